//! What changes schedules: made, updated, paused, resumed, triggered, backfilled, deleted.

use super::{Answer, patch, render};
use crate::api::status::Refusal;
use crate::engine::{self, BackfillSpan, Engine, NewSchedule, Patch};
use crate::proto::schedule as proto;
use crate::wire::{Invalid, Violations, canonical, field, field_path, payload, request, schedule as wire, time};
use prost::Message as _;
use std::{collections::BTreeMap, sync::Arc};

/// `CreateSchedule`.
pub(super) async fn create(
    engine: Engine,
    request: proto::CreateScheduleRequest,
) -> Answer<proto::CreateScheduleResponse> {
    let viewed = engine.create_schedule(parse_create(request)?).await?;
    Ok(proto::CreateScheduleResponse { schedule: Some(render::schedule(&viewed)) })
}

fn parse_create(request: proto::CreateScheduleRequest) -> Result<NewSchedule, Invalid> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let id = v.take("id", schedule_id(&request.id));
    let message = proto::Schedule {
        spec: request.spec,
        start: request.start,
        policies: request.policies,
        description: request.description,
        ..proto::Schedule::default()
    };
    let settings = wire::Settings::judge(v, &message);
    if !request.paused && !request.pause_note.is_empty() {
        v.add("pause_note", "is for a schedule that is made paused");
    }
    let note = v.take("pause_note", field::reason(&request.pause_note));
    let mut content = content(&message);
    content.push(vec![u8::from(request.paused)]);
    content.push(request.pause_note.into_bytes());
    let key = key(v, "CreateSchedule", &request.id, &request.request_id, &content);
    let new = (|| {
        let (id, settings, note, request_key) = (id?, settings?, note?, key?);
        let paused = request.paused.then_some(note);
        Some(NewSchedule { id, settings, paused, request: request_key })
    })();
    violations.finish(new)
}

/// `UpdateSchedule`.
pub(super) async fn update(
    engine: Engine,
    request: proto::UpdateScheduleRequest,
) -> Answer<proto::UpdateScheduleResponse> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let id = v.take("id", schedule_id(&request.id));
    if request.schedule.is_none() {
        v.add("schedule", "is required: the new values");
    }
    let new = request.schedule.unwrap_or_default();
    let paths = v.take("update_mask", patch::paths(request.update_mask, &new));
    let mut content = content(&new);
    content.extend(paths.iter().flatten().map(|path| path.to_string().into_bytes()));
    content.push(request.etag.clone().into_bytes());
    let key = key(v, "UpdateSchedule", &request.id, &request.request_id, &content);
    let (id, paths, key) = violations.finish((|| Some((id?, paths?, key?)))())?;
    let patch: Patch = Arc::new(move |before| {
        // What cannot be read is replaced as a whole.
        let before = wire::stored(before).ok();
        let message = patch::apply(&before.clone().unwrap_or_default(), &new, &paths)?;
        let mut violations = Violations::new();
        let update = violations.within("schedule", |v| wire::Update::judge(v, before.as_ref(), &message));
        violations.finish(update)
    });
    let viewed = engine.update_schedule(id, etag(&request.etag), patch, key).await.map_err(inside("schedule"))?;
    Ok(proto::UpdateScheduleResponse { schedule: Some(render::schedule(&viewed)) })
}

/// Says of fields that the engine judges where they are in the request.
fn inside(field: &'static str) -> impl Fn(engine::Error) -> Refusal {
    move |error| match error {
        engine::Error::Invalid(mut invalid) => {
            for violation in &mut invalid.violations {
                if !violation.field.starts_with(field) {
                    violation.field = field_path(field, &violation.field);
                }
            }
            invalid.into()
        }
        other => other.into(),
    }
}

/// `DeleteSchedule`.
pub(super) async fn delete(
    engine: Engine,
    request: proto::DeleteScheduleRequest,
) -> Answer<proto::DeleteScheduleResponse> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let id = v.take("id", schedule_id(&request.id));
    let content = [request.etag.clone().into_bytes(), vec![u8::from(request.allow_missing)]];
    let key = key(v, "DeleteSchedule", &request.id, &request.request_id, &content);
    let (id, key) = violations.finish(id.zip(key))?;
    engine.delete_schedule(id, etag(&request.etag), request.allow_missing, key).await?;
    Ok(proto::DeleteScheduleResponse {})
}

/// `PauseSchedule`.
pub(super) async fn pause(
    engine: Engine,
    request: proto::PauseScheduleRequest,
) -> Answer<proto::PauseScheduleResponse> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let id = v.take("id", schedule_id(&request.id));
    let note = v.take("note", field::reason(&request.note));
    let content = [request.note.into_bytes(), request.etag.clone().into_bytes()];
    let key = key(v, "PauseSchedule", &request.id, &request.request_id, &content);
    let (id, note, key) = violations.finish((|| Some((id?, note?, key?)))())?;
    let viewed = engine.pause_schedule(id, etag(&request.etag), note, key).await?;
    Ok(proto::PauseScheduleResponse { schedule: Some(render::schedule(&viewed)) })
}

/// `ResumeSchedule`.
pub(super) async fn resume(
    engine: Engine,
    request: proto::ResumeScheduleRequest,
) -> Answer<proto::ResumeScheduleResponse> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let id = v.take("id", schedule_id(&request.id));
    let key = key(v, "ResumeSchedule", &request.id, &request.request_id, &[request.etag.clone().into_bytes()]);
    let (id, key) = violations.finish(id.zip(key))?;
    let viewed = engine.resume_schedule(id, etag(&request.etag), key).await?;
    Ok(proto::ResumeScheduleResponse { schedule: Some(render::schedule(&viewed)) })
}

/// `TriggerSchedule`.
pub(super) async fn trigger(
    engine: Engine,
    request: proto::TriggerScheduleRequest,
) -> Answer<proto::TriggerScheduleResponse> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let id = v.take("id", schedule_id(&request.id));
    let overlap = v.take("overlap", wire::overlap(request.overlap));
    let content = [request.overlap.to_be_bytes().to_vec()];
    let key = key(v, "TriggerSchedule", &request.id, &request.request_id, &content);
    let (id, overlap, key) = violations.finish((|| Some((id?, overlap?, key?)))())?;
    let slot = engine.trigger_schedule(id, overlap, key).await?;
    Ok(proto::TriggerScheduleResponse { slot: Some(render::slot(&slot)) })
}

/// `BackfillSchedule`.
pub(super) async fn backfill(
    engine: Engine,
    request: proto::BackfillScheduleRequest,
) -> Answer<proto::BackfillScheduleResponse> {
    let mut violations = Violations::new();
    let v = &mut violations;
    let id = v.take("id", schedule_id(&request.id));
    let mut instant = |field: &str, time: Option<&prost_types::Timestamp>| {
        v.take(field, time.map_or_else(|| Err("is required".to_owned()), time::parse))
    };
    let first = instant("first_time", request.first_time.as_ref());
    let last = instant("last_time", request.last_time.as_ref());
    let concurrency = if request.concurrency == 0 { Ok(1) } else { u32::try_from(request.concurrency) };
    let concurrency = v.take("concurrency", concurrency.map_err(|_| "is negative; 1 to 100"));
    let micros =
        |time: Option<crate::domain::Timestamp>| time.map_or(0, |time| time.as_micros()).to_be_bytes().to_vec();
    let content = [micros(first), micros(last), request.concurrency.to_be_bytes().to_vec()];
    let key = key(v, "BackfillSchedule", &request.id, &request.request_id, &content);
    let span = (|| Some(BackfillSpan { first: first?, last: last?, concurrency: concurrency? }))();
    let (id, span, key) = violations.finish((|| Some((id?, span?, key?)))())?;
    let (name, viewed) = engine.backfill_schedule(id, span, key).await?;
    Ok(proto::BackfillScheduleResponse { request: name.to_string(), schedule: Some(render::schedule(&viewed)) })
}

/// A schedule's id: as an execution's that a caller chooses.
pub(super) fn schedule_id(text: &str) -> Result<Arc<str>, String> {
    field::new_execution_id(text).map(|id| Arc::from(id.as_str()))
}

fn etag(text: &str) -> engine::Etag {
    (!text.is_empty()).then(|| Arc::from(text))
}

fn key(
    v: &mut Violations,
    rpc: &str,
    id: &str,
    request_id: &str,
    content: &[Vec<u8>],
) -> Option<Option<crate::domain::RequestKey>> {
    let content: Vec<&[u8]> = content.iter().map(Vec::as_slice).collect();
    v.take("request_id", request::key(rpc, id, request_id, &content))
}

/// What callers set, as it means: the same object in another order is the same call.
fn content(schedule: &proto::Schedule) -> Vec<Vec<u8>> {
    let start = schedule.start.clone().unwrap_or_default();
    let input = payload::parse_optional(start.input).ok().flatten();
    let labels: BTreeMap<String, String> = start.labels.into_iter().collect();
    let mut content = vec![
        schedule.spec.as_ref().map(proto::ScheduleSpec::encode_to_vec).unwrap_or_default(),
        schedule.policies.as_ref().map(proto::SchedulePolicies::encode_to_vec).unwrap_or_default(),
        schedule.description.clone().into_bytes(),
        start.workflow.into_bytes(),
        start.version.into_bytes(),
        input.as_ref().map(canonical::text).unwrap_or_default().into_bytes(),
    ];
    content.extend(labels.into_iter().flat_map(|(key, value)| [key.into_bytes(), value.into_bytes()]));
    content
}
