//! What only looks at schedules: read, listed, previewed; and the ledger.

use super::{Answer, change::schedule_id, render};
use crate::domain::schedule::{PREVIEW_MAX, Policies, Schedule, ScheduleUid};
use crate::domain::{Timestamp, Uid};
use crate::engine::Engine;
use crate::proto::schedule as proto;
use crate::store::{ScheduleFilter, SlotKind, SlotName, SlotRow};
use crate::wire::{Violations, field, page, schedule as wire, time};
use std::sync::Arc;
use uuid::Uuid;

/// Slots of a preview that does not say how many.
const PREVIEW_DEFAULT: usize = 10;

/// `GetSchedule`.
pub(super) async fn get(engine: &Engine, request: proto::GetScheduleRequest) -> Answer<proto::GetScheduleResponse> {
    let mut violations = Violations::new();
    let id = violations.take("id", schedule_id(&request.id));
    let uid = violations.take("uid", field::uid(&request.uid));
    let (id, uid) = violations.finish(id.zip(uid))?;
    let viewed = engine.schedule(&id, uid.map(|Uid(uid)| uid)).await?;
    Ok(proto::GetScheduleResponse { schedule: Some(render::schedule(&viewed)) })
}

/// `ListSchedules`.
pub(super) async fn list(
    engine: &Engine,
    request: proto::ListSchedulesRequest,
) -> Answer<proto::ListSchedulesResponse> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let size = page::size(v, request.page_size);
    let workflow = match &*request.workflow {
        "" => Some(None),
        name => v.take("workflow", field::name(name)).map(Some),
    };
    let state = v.take("state", render::state_of(request.state));
    let state_text = request.state.to_string();
    let list = page::List { rpc: "ListSchedules", arguments: &[&request.workflow, &state_text] };
    let after = list.cursor(v, &request.page_token, |bytes| String::from_utf8(bytes.to_vec()).ok());
    let filter = violations.finish((|| Some(ScheduleFilter { workflow: workflow?, state: state? }))())?;
    let mut rows = engine.schedules(&filter, after.as_deref(), size + 1).await?;
    let more = rows.len() > size;
    rows.truncate(size);
    let next = rows.last().filter(|_| more).map(|viewed| list.token(viewed.row.id.as_bytes()));
    Ok(proto::ListSchedulesResponse {
        schedules: rows.iter().map(render::schedule).collect(),
        next_page_token: next.unwrap_or_default(),
    })
}

/// `PreviewSchedule`.
pub(super) async fn preview(
    engine: &Engine,
    request: proto::PreviewScheduleRequest,
) -> Answer<proto::PreviewScheduleResponse> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let after = match &request.after_time {
        None => Some(None),
        Some(after) => v.take("after_time", time::parse(after)).map(Some),
    };
    let most = match usize::try_from(request.max_slots) {
        Ok(0) => Some(PREVIEW_DEFAULT),
        Ok(most) => Some(most.min(PREVIEW_MAX)),
        Err(_) => {
            v.add("max_slots", "is negative; 1 to 1,000");
            None
        }
    };
    let named = match (&*request.id, &request.spec) {
        ("", None) => {
            v.add("id", "is required, or `spec` in its place");
            None
        }
        ("", Some(spec)) => wire::spec(v, Some(spec)).map(|spec| Named::Spec(Box::new(spec))),
        (id, None) => v.take("id", schedule_id(id)).map(Named::Id),
        (_, Some(_)) => {
            v.add("spec", "stands beside `id`: only one of the two");
            None
        }
    };
    let (after, most, named) = violations.finish((|| Some((after?, most?, named?)))())?;
    let (schedule, is_stored) = match named {
        Named::Id(id) => (engine.schedule_rules(&id).await?, true),
        Named::Spec(spec) => {
            (Schedule { uid: ScheduleUid(Uuid::nil()), spec: *spec, policies: Policies::default() }, false)
        }
    };
    let outlook = schedule.preview(after.unwrap_or_else(|| engine.clock().wall()), most);
    Ok(proto::PreviewScheduleResponse {
        slots: outlook.times.iter().map(|slot| render::planned(slot, is_stored)).collect(),
        unlisted_count: i32::try_from(outlook.unlisted).unwrap_or(i32::MAX),
        stop_time: outlook.stopped.map(time::render),
    })
}

/// What a preview is of.
enum Named {
    Id(Arc<str>),
    Spec(Box<crate::domain::schedule::Spec>),
}

/// `ListSlots`.
pub(super) async fn slots(engine: &Engine, request: proto::ListSlotsRequest) -> Answer<proto::ListSlotsResponse> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let id = v.take("id", schedule_id(&request.id));
    let uid = v.take("uid", field::uid(&request.uid));
    let outcome = v.take("outcome", render::slot_outcome(request.outcome));
    let size = page::size(v, request.page_size);
    let outcome_text = request.outcome.to_string();
    let list = page::List { rpc: "ListSlots", arguments: &[&request.id, &request.uid, &outcome_text] };
    let after = list.cursor(v, &request.page_token, read_cursor);
    let (id, uid, outcome) = violations.finish((|| Some((id?, uid?, outcome?)))())?;
    let mut rows = engine.slots(&id, uid.map(|Uid(uid)| uid), outcome, after, size + 1).await?;
    let more = rows.len() > size;
    rows.truncate(size);
    let next = rows.last().filter(|_| more).map(|row| list.token(&write_cursor(row)));
    Ok(proto::ListSlotsResponse {
        slots: rows.iter().map(render::slot).collect(),
        next_page_token: next.unwrap_or_default(),
    })
}

fn write_cursor(row: &SlotRow) -> Vec<u8> {
    let SlotName { nominal_time, kind, request } = &row.name;
    [&nominal_time.as_micros().to_be_bytes()[..], &(*kind as i16).to_be_bytes(), request.as_bytes()].concat()
}

fn read_cursor(bytes: &[u8]) -> Option<SlotName> {
    let (time, rest) = bytes.split_first_chunk()?;
    let (kind, request) = rest.split_first_chunk()?;
    let number = i16::from_be_bytes(*kind);
    Some(SlotName {
        nominal_time: Timestamp::from_micros(i64::from_be_bytes(*time)),
        kind: SlotKind::ALL.into_iter().find(|kind| *kind as i16 == number)?,
        request: std::str::from_utf8(request).ok()?.into(),
    })
}
