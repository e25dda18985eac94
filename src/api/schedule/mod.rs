//! The service of schedules. Each rpc is parse, call, render.

mod change;
mod patch;
mod read;
mod render;

use super::{call::Calls, status::Refusal};
use crate::engine::Engine;
use crate::proto::schedule::{self as proto, schedule_service_server::ScheduleService};
use tonic::{Request, Response, Status};

/// Answers `orbit.schedule.v1.ScheduleService`.
pub struct Schedules {
    /// What does the work.
    pub(super) engine: Engine,
    /// What surrounds every call.
    pub(super) calls: Calls,
}

/// What the handlers give.
type Answer<T> = Result<T, Refusal>;

#[tonic::async_trait]
impl ScheduleService for Schedules {
    async fn create_schedule(
        &self,
        request: Request<proto::CreateScheduleRequest>,
    ) -> Result<Response<proto::CreateScheduleResponse>, Status> {
        self.calls.write("CreateSchedule", change::create(self.engine.clone(), request.into_inner())).await
    }

    async fn get_schedule(
        &self,
        request: Request<proto::GetScheduleRequest>,
    ) -> Result<Response<proto::GetScheduleResponse>, Status> {
        self.calls.read("GetSchedule", read::get(&self.engine, request.into_inner())).await
    }

    async fn list_schedules(
        &self,
        request: Request<proto::ListSchedulesRequest>,
    ) -> Result<Response<proto::ListSchedulesResponse>, Status> {
        self.calls.read("ListSchedules", read::list(&self.engine, request.into_inner())).await
    }

    async fn update_schedule(
        &self,
        request: Request<proto::UpdateScheduleRequest>,
    ) -> Result<Response<proto::UpdateScheduleResponse>, Status> {
        self.calls.write("UpdateSchedule", change::update(self.engine.clone(), request.into_inner())).await
    }

    async fn delete_schedule(
        &self,
        request: Request<proto::DeleteScheduleRequest>,
    ) -> Result<Response<proto::DeleteScheduleResponse>, Status> {
        self.calls.write("DeleteSchedule", change::delete(self.engine.clone(), request.into_inner())).await
    }

    async fn pause_schedule(
        &self,
        request: Request<proto::PauseScheduleRequest>,
    ) -> Result<Response<proto::PauseScheduleResponse>, Status> {
        self.calls.write("PauseSchedule", change::pause(self.engine.clone(), request.into_inner())).await
    }

    async fn resume_schedule(
        &self,
        request: Request<proto::ResumeScheduleRequest>,
    ) -> Result<Response<proto::ResumeScheduleResponse>, Status> {
        self.calls.write("ResumeSchedule", change::resume(self.engine.clone(), request.into_inner())).await
    }

    async fn trigger_schedule(
        &self,
        request: Request<proto::TriggerScheduleRequest>,
    ) -> Result<Response<proto::TriggerScheduleResponse>, Status> {
        self.calls.write("TriggerSchedule", change::trigger(self.engine.clone(), request.into_inner())).await
    }

    async fn backfill_schedule(
        &self,
        request: Request<proto::BackfillScheduleRequest>,
    ) -> Result<Response<proto::BackfillScheduleResponse>, Status> {
        self.calls.write("BackfillSchedule", change::backfill(self.engine.clone(), request.into_inner())).await
    }

    async fn preview_schedule(
        &self,
        request: Request<proto::PreviewScheduleRequest>,
    ) -> Result<Response<proto::PreviewScheduleResponse>, Status> {
        self.calls.read("PreviewSchedule", read::preview(&self.engine, request.into_inner())).await
    }

    async fn list_slots(
        &self,
        request: Request<proto::ListSlotsRequest>,
    ) -> Result<Response<proto::ListSlotsResponse>, Status> {
        self.calls.read("ListSlots", read::slots(&self.engine, request.into_inner())).await
    }
}
