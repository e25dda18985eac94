//! What callers and workers were told: the oracle.
//!
//! An entry is made when an answer has arrived, never before. What was sent and not answered may have happened or not.

use crate::workflow::Plan;
use orbit::proto::workflow::execution::State;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Shared by all callers and workers of a run.
#[derive(Clone, Default, Debug)]
pub(crate) struct Journal(Arc<Mutex<Entries>>);

/// Everything that was told.
#[derive(Default, Debug)]
pub(crate) struct Entries {
    /// One entry for each start that was sent.
    pub(crate) lives: Vec<Life>,
    /// Every task that reached a worker.
    pub(crate) received: Vec<Received>,
    /// Every report that was answered.
    pub(crate) reported: Vec<Reported>,
    /// Answers that no server may give.
    pub(crate) faults: Vec<String>,
    /// When each worker's newest result was accepted.
    completed: HashMap<String, Instant>,
}

/// What a caller knows of one execution.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// Names the start: the execution has it as its label `start`.
    pub(crate) key: u64,
    pub(crate) plan: Plan,
    pub(crate) start: Start,
    /// Event numbers of the signals, in the order in which they were sent, each after the answer to the one before.
    pub(crate) signals: Vec<i64>,
    pub(crate) stop: Option<Stop>,
    /// What the caller was told of the end.
    pub(crate) end: Option<End>,
}

impl Life {
    /// One of which nothing is known yet.
    pub(crate) fn begun(key: u64, plan: Plan) -> Self {
        Self { key, plan, start: Start::Unknown, signals: Vec::new(), stop: None, end: None }
    }
}

/// What a start call came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    Accepted {
        id: String,
        uid: String,
        request_id: String,
    },
    /// Sent once, without anything that makes a repeat safe, and not answered.
    Unknown,
}

/// A cancel or a terminate that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    pub(crate) state: State,
    pub(crate) event_number: i64,
}

/// How an execution ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct End {
    pub(crate) state: State,
    /// The output; the failure's code for a failed one.
    pub(crate) result: serde_json::Value,
}

/// What a worker writes down.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum Record {
    Received(Received),
    Reported(Reported),
    Fault(String),
}

/// A delivery that reached a worker.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Received {
    pub(crate) worker: String,
    pub(crate) token: String,
    pub(crate) uid: String,
    pub(crate) unit: String,
    pub(crate) attempt: i32,
    pub(crate) delivery: i32,
    pub(crate) redelivery: bool,
    pub(crate) idempotency_key: String,
}

/// A report and its answer.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Reported {
    pub(crate) task: Received,
    pub(crate) report: Report,
    pub(crate) outcome: Outcome,
}

/// What a worker says of its task.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) enum Report {
    /// It is done; the output as JSON text.
    Success(String),
    /// It failed with this code.
    Failure(String),
}

/// What became of a report.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) enum Outcome {
    Accepted,
    Duplicate,
    /// The name of the reason.
    Refused(String),
}

impl Journal {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn life(&self, life: Life) {
        self.lock().lives.push(life);
    }

    pub(crate) fn fault(&self, fault: String) {
        self.lock().faults.push(fault);
    }

    pub(crate) fn record(&self, record: Record) {
        let mut entries = self.lock();
        match record {
            Record::Received(received) => entries.received.push(received),
            Record::Reported(reported) => {
                if reported.outcome == Outcome::Accepted {
                    entries.completed.insert(reported.task.worker.clone(), Instant::now());
                }
                entries.reported.push(reported);
            }
            Record::Fault(fault) => entries.faults.push(fault),
        }
    }

    /// The workers that have had a result accepted since then.
    pub(crate) fn completed_since(&self, since: Instant) -> usize {
        self.lock().completed.values().filter(|at| **at > since).count()
    }
}
