//! Batches: made, read, listed, cancelled.

use super::{Answer, cut_page};
use crate::domain::Timestamp;
use crate::engine::{BatchFailure, Engine, NewBatch};
use crate::proto::admin::{self as proto, batch, create_batch_request};
use crate::store::{BatchAction, BatchCursor, BatchRow, BatchState};
use crate::wire::{Invalid, Violations, field, filter::Filter, page, request, time};
use std::sync::Arc;
use uuid::Uuid;

/// `CreateBatch`.
pub(super) async fn create(engine: Engine, request: proto::CreateBatchRequest) -> Answer<proto::CreateBatchResponse> {
    let dry_run = request.dry_run;
    let row = engine.create_batch(parse(request)?, dry_run).await?;
    let id = if dry_run { String::new() } else { row.id.to_string() };
    Ok(proto::CreateBatchResponse { batch: Some(proto::Batch { id, ..render(&row) }) })
}

/// `GetBatch`.
pub(super) async fn get(engine: &Engine, request: proto::GetBatchRequest) -> Answer<proto::GetBatchResponse> {
    let batch = engine.batch(parse_id(&request.id)?).await?;
    Ok(proto::GetBatchResponse { batch: Some(render(&batch)) })
}

/// `ListBatches`.
pub(super) async fn list(engine: &Engine, request: proto::ListBatchesRequest) -> Answer<proto::ListBatchesResponse> {
    let mut violations = Violations::new();
    let size = page::size(&mut violations, request.page_size);
    let list = page::List { rpc: "ListBatches", arguments: &[] };
    let after = list.cursor(&mut violations, &request.page_token, read_cursor);
    violations.finish(Some(()))?;
    let (rows, more) = cut_page(engine.batches(after, size + 1).await?, size);
    let next = rows.last().filter(|_| more).map(|row| list.token(&write_cursor(row)));
    Ok(proto::ListBatchesResponse {
        batches: rows.iter().map(render).collect(),
        next_page_token: next.unwrap_or_default(),
    })
}

/// `CancelBatch`.
pub(super) async fn cancel(engine: Engine, request: proto::CancelBatchRequest) -> Answer<proto::CancelBatchResponse> {
    let batch = engine.cancel_batch(parse_id(&request.id)?).await?;
    Ok(proto::CancelBatchResponse { batch: Some(render(&batch)) })
}

fn parse_id(id: &str) -> Result<Uuid, Invalid> {
    let mut violations = Violations::new();
    let id = violations.take("id", id.parse::<Uuid>().map_err(|_| "is not a UUID"));
    violations.finish(id)
}

fn parse(request: proto::CreateBatchRequest) -> Result<NewBatch, Invalid> {
    use create_batch_request::Action;
    let mut violations = Violations::new();
    let v = &mut violations;
    let (action, field, reason) = match &request.action {
        Some(Action::Cancel(cancel)) => (Some(BatchAction::Cancel), "cancel.reason", &*cancel.reason),
        Some(Action::Terminate(terminate)) => (Some(BatchAction::Terminate), "terminate.reason", &*terminate.reason),
        Some(Action::Retry(_)) => (Some(BatchAction::Retry), "", ""),
        Some(Action::Delete(_)) => (Some(BatchAction::Delete), "", ""),
        None => {
            v.add("action", "is missing: one of cancel, terminate, retry, delete");
            (None, "", "")
        }
    };
    let parsed = if request.filter.trim().is_empty() {
        Err("is empty; `start_time > \"1970-01-01T00:00:00Z\"` names all executions".to_owned())
    } else {
        Filter::parse(&request.filter)
    };
    let filter = v.take("filter", parsed);
    let most =
        v.take("max_executions", u64::try_from(request.max_executions).map_err(|_| "is negative; 0 is no limit"));
    let kind = action.map_or(0, |action| action as i16).to_be_bytes();
    let limit = request.max_executions.to_be_bytes();
    let content = [&kind, reason.as_bytes(), request.filter.as_bytes(), &limit];
    let key = v.take("request_id", request::key("CreateBatch", "", &request.request_id, &content));
    let reason = v.take(field, field::reason(reason));
    let batch = (|| {
        filter?;
        Some(NewBatch {
            action: action?,
            reason: reason?,
            filter: Arc::from(request.filter),
            executions_max: most?,
            request: key?,
        })
    })();
    violations.finish(batch)
}

fn render(row: &BatchRow) -> proto::Batch {
    let (reason, progress) = (row.reason.to_string(), &row.progress);
    let action = match row.action {
        BatchAction::Cancel => batch::Action::Cancel(proto::CancelAction { reason }),
        BatchAction::Terminate => batch::Action::Terminate(proto::TerminateAction { reason }),
        BatchAction::Retry => batch::Action::Retry(proto::RetryAction {}),
        BatchAction::Delete => batch::Action::Delete(proto::DeleteAction {}),
    };
    let state = match progress.state {
        BatchState::Running => batch::State::Running,
        BatchState::Succeeded => batch::State::Succeeded,
        BatchState::Cancelled => batch::State::Cancelled,
    };
    let failure = |BatchFailure { id, uid, message }| proto::BatchFailure { id, uid, message };
    proto::Batch {
        id: row.id.to_string(),
        action: Some(action),
        filter: row.filter.to_string(),
        max_executions: count(row.executions_max),
        state: state.into(),
        expected_count: count(row.expected),
        expected_complete: row.is_counted,
        done_count: count(progress.done),
        skipped_count: count(progress.skipped),
        failed_count: count(progress.failed),
        failures: BatchFailure::all_of(progress).into_iter().map(failure).collect(),
        create_time: Some(time::render(row.create_time)),
        end_time: progress.end_time.map(time::render),
    }
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn write_cursor(row: &BatchRow) -> Vec<u8> {
    [&row.create_time.as_micros().to_be_bytes()[..], row.id.as_bytes()].concat()
}

fn read_cursor(bytes: &[u8]) -> Option<BatchCursor> {
    let (time, id) = bytes.split_first_chunk()?;
    Some((Timestamp::from_micros(i64::from_be_bytes(*time)), Uuid::from_slice(id).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bad_fields_of_a_batch_are_told_at_once() {
        let request = proto::CreateBatchRequest { max_executions: -1, ..Default::default() };
        let Err(invalid) = parse(request) else { panic!("it has bad fields") };
        let fields: Vec<_> = invalid.violations.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, ["action", "filter", "max_executions"]);
    }

    #[test]
    fn a_batch_of_another_action_or_filter_is_another_call() {
        let key = |action, filter: &str| {
            let request = proto::CreateBatchRequest {
                action: Some(action),
                filter: filter.to_owned(),
                request_id: "r".to_owned(),
                ..Default::default()
            };
            parse(request).ok().unwrap().request.unwrap()
        };
        let cancel =
            |reason: &str| create_batch_request::Action::Cancel(proto::CancelAction { reason: reason.to_owned() });
        let terminate = create_batch_request::Action::Terminate(proto::TerminateAction { reason: String::new() });
        let first = key(cancel(""), "state = RUNNING");
        assert_eq!(first, key(cancel(""), "state = RUNNING"));
        for other in
            [key(cancel("x"), "state = RUNNING"), key(terminate, "state = RUNNING"), key(cancel(""), "state = FAILED")]
        {
            assert_eq!(first.key, other.key);
            assert_ne!(first.content, other.content);
        }
    }
}
