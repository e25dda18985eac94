//! What an execution waits for, as callers see it.

use super::time;
use crate::domain::explain::{AtWorker, ForWorker, Items, Reason, Stage, Supply, Wait, WindDown};
use crate::proto::admin::{self as proto, near_miss::Difference, wait, wind_down_reason};
use crate::proto::workflow::FanOutStatus;
use std::{collections::BTreeMap, sync::Arc};

/// A wait of the execution with this id.
#[must_use]
pub fn render(wait: &Wait, id: &str) -> proto::Wait {
    proto::Wait {
        unit: wait.unit.as_ref().map(ToString::to_string).unwrap_or_default(),
        since_time: wait.since.map(time::render),
        until_time: wait.until.map(time::render),
        message: wait.sentence(),
        hint: wait.hint(id),
        reason: Some(reason(&wait.reason)),
    }
}

fn reason(reason: &Reason) -> wait::Reason {
    match reason {
        Reason::Closed { .. } => wait::Reason::Closed(proto::ClosedReason {}),
        Reason::Quarantined { why } => wait::Reason::Quarantine(proto::QuarantineReason { why: why.to_string() }),
        Reason::Pause { reason } => wait::Reason::Pause(proto::PauseReason { reason: reason.to_string() }),
        Reason::Delay => wait::Reason::Delay(proto::DelayReason {}),
        Reason::Held => wait::Reason::Held(proto::HeldReason {}),
        Reason::WindDown(wind_down) => wait::Reason::WindDown(self::wind_down(*wind_down)),
        Reason::Work => wait::Reason::Work(proto::WorkReason {}),
        Reason::Worker(task) => wait::Reason::Worker(for_worker(task)),
        Reason::AtWorker(task) => wait::Reason::Report(at_worker(task)),
        Reason::Retry { attempt, failure } => wait::Reason::Retry(proto::RetryReason {
            failed_attempt: count(*attempt),
            code: failure.as_ref().map(|failure| failure.code.to_string()).unwrap_or_default(),
        }),
        Reason::Time => wait::Reason::Sleep(proto::SleepReason {}),
        Reason::Signal { name, has_match, unmatched } => wait::Reason::Signal(proto::SignalReason {
            name: name.to_string(),
            has_match: *has_match,
            unmatched_signals: count(*unmatched),
        }),
        Reason::Child(child) => wait::Reason::Child(proto::ChildReason {
            id: child.id.to_string(),
            uid: child.uid.map(|uid| uid.to_string()).unwrap_or_default(),
            attempt: count(child.attempt),
            stopping: child.stops,
        }),
        Reason::Recipient { id, name } => {
            wait::Reason::Recipient(proto::RecipientReason { id: id.to_string(), signal: name.to_string() })
        }
        Reason::Parent { id, unit } => {
            wait::Reason::Parent(proto::ParentReason { id: id.to_string(), unit: unit.to_string() })
        }
        Reason::Abandoned { ids, more } => wait::Reason::Abandoned(proto::AbandonedReason {
            ids: ids.iter().map(ToString::to_string).collect(),
            more_ids: count(*more),
        }),
        Reason::Items(items) => wait::Reason::Items(self::items(items)),
        Reason::Steps { names, more } => wait::Reason::Steps(proto::StepsReason {
            steps: names.iter().map(ToString::to_string).collect(),
            more_steps: count(*more),
        }),
    }
}

fn wind_down(WindDown { stage, .. }: WindDown) -> proto::WindDownReason {
    let (stage, units) = match stage {
        Stage::Stopping(units) => (wind_down_reason::Stage::Stopping, units),
        Stage::Undoing(left) => (wind_down_reason::Stage::Undoing, left),
        Stage::Handling => (wind_down_reason::Stage::Handling, 0),
    };
    proto::WindDownReason { stage: stage.into(), units: count(units) }
}

fn for_worker(task: &ForWorker) -> proto::WorkerReason {
    let none = Supply::default();
    let supply = task.supply.as_ref().unwrap_or(&none);
    let misses = |counts: &BTreeMap<Arc<str>, u32>, difference: fn(String) -> Difference| {
        let miss = |(name, sessions): (&Arc<str>, &u32)| proto::NearMiss {
            difference: Some(difference(name.to_string())),
            sessions: count(*sessions),
        };
        counts.iter().map(miss).collect::<Vec<_>>()
    };
    let near_misses = [
        misses(&supply.other_queues, Difference::Queue),
        misses(&supply.other_languages, Difference::Language),
        misses(&supply.other_versions, Difference::Version),
    ];
    proto::WorkerReason {
        queue: task.queue.to_string(),
        contract: task.contract.to_string(),
        language: task.language.as_ref().map(ToString::to_string).unwrap_or_default(),
        priority: i32::from(task.priority),
        attempt: count(task.attempt),
        sessions: count(supply.sessions),
        asking_sessions: count(supply.asking),
        slots: i64::try_from(supply.slots).unwrap_or(i64::MAX),
        near_misses: near_misses.concat(),
    }
}

fn at_worker(task: &AtWorker) -> proto::ReportReason {
    proto::ReportReason {
        worker_id: task.worker_id.to_string(),
        session_id: task.session_id.map(|id| id.to_string()).unwrap_or_default(),
        attempt: count(task.attempt),
        delivery: count(task.delivery),
        held: task.held,
        stopping: task.stops,
        expire_time: task.expire_time.map(time::render),
        heartbeat_timeout: task.heartbeat_timeout.map(time::render_span),
        heartbeat_due_time: task.beat_due_time.map(time::render),
        contact_time: task.contact_time.map(time::render),
    }
}

fn items(items: &Items) -> proto::ItemsReason {
    proto::ItemsReason {
        fan_out: Some(FanOutStatus {
            items: count(items.items),
            begun: count(items.begun),
            open: count(items.open),
            failed: count(items.failed),
        }),
        max_parallel: items.parallel_max.map_or(0, count),
        at_max_parallel: items.is_at_limit(),
    }
}

fn count(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}
