//! What the executions of a run do, and what must come of each.

use crate::{chance::Chance, connect::Admin, journal::End};
use orbit::proto::{
    admin::{DeployDefinitionRequest, deploy_definition_request::Content},
    workflow::execution::State,
};
use serde_json::{Value, json};

/// The definitions, in files of their own.
const SOURCES: [&str; 9] = [
    include_str!("workflows/chain.yaml"),
    include_str!("workflows/join.yaml"),
    include_str!("workflows/retry.yaml"),
    include_str!("workflows/signals.yaml"),
    include_str!("workflows/sleep.yaml"),
    include_str!("workflows/compute.yaml"),
    include_str!("workflows/patient.yaml"),
    include_str!("workflows/hold.yaml"),
    include_str!("workflows/pass.yaml"),
];

/// What one execution is made to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// Five tasks, one after the other.
    Chain { value: i64 },
    /// Six tasks at the same time, a sum of them, and a task with it.
    Join { value: i64 },
    /// A task whose first attempts fail, as often as this; three attempts are all there are.
    Retry { value: i64, failures: i64 },
    /// The same, but the failure is no end.
    Forgiving { value: i64, failures: i64 },
    /// A task, three waits for a signal, a task.
    Signals { value: i64, items: [i64; 3] },
    /// A task, a sleep, a task.
    Sleep { value: i64, millis: u64 },
    /// Nothing that a worker does.
    Compute { value: i64 },
    /// Waits for a signal that never comes, until it is cancelled or terminated.
    Patient { value: i64, ends: State },
    /// A chain that is cancelled somewhere on its way, or too late.
    Interrupted { value: i64 },
    /// Two tasks that take as long as this each.
    Hold { value: i64, millis: u64 },
    /// A task that takes as long as this, and one that takes no time.
    Pass { value: i64, millis: u64 },
}

impl Plan {
    /// A plan of a run in which work is fast.
    pub(crate) fn any(chance: &mut Chance) -> Self {
        let value = Self::value(chance);
        match chance.below(100) {
            0..35 => Self::Chain { value },
            35..50 => Self::Join { value },
            50..60 => Self::Retry { value, failures: i64::try_from(chance.below(4)).expect("it is small") },
            60..65 => Self::Forgiving { value, failures: i64::try_from(chance.below(4)).expect("it is small") },
            65..80 => Self::Signals { value, items: std::array::from_fn(|_| Self::value(chance)) },
            80..86 => Self::Sleep { value, millis: 50 + chance.below(450) },
            86..91 => Self::Compute { value },
            91..94 => Self::Patient { value, ends: State::Cancelled },
            94..96 => Self::Patient { value, ends: State::Terminated },
            _ => Self::Interrupted { value },
        }
    }

    /// A plan of a run in which workers hold their tasks for a while.
    pub(crate) fn holding(chance: &mut Chance) -> Self {
        Self::Hold { value: Self::value(chance), millis: 50 + chance.below(1_200) }
    }

    fn value(chance: &mut Chance) -> i64 {
        i64::try_from(chance.below(1 << 40)).expect("it is below 2^63")
    }

    pub(crate) fn workflow(&self) -> &'static str {
        match self {
            Self::Chain { .. } | Self::Interrupted { .. } => "chain",
            Self::Join { .. } => "join",
            Self::Retry { .. } | Self::Forgiving { .. } => "retry",
            Self::Signals { .. } => "signals",
            Self::Sleep { .. } => "sleep",
            Self::Compute { .. } => "compute",
            Self::Patient { .. } => "patient",
            Self::Hold { .. } => "hold",
            Self::Pass { .. } => "pass",
        }
    }

    pub(crate) fn input(&self) -> Value {
        match self {
            Self::Chain { value }
            | Self::Join { value }
            | Self::Compute { value }
            | Self::Patient { value, .. }
            | Self::Interrupted { value }
            | Self::Signals { value, .. } => json!({"value": value}),
            Self::Retry { value, failures } => json!({"value": value, "failures": failures, "forgiving": false}),
            Self::Forgiving { value, failures } => json!({"value": value, "failures": failures, "forgiving": true}),
            Self::Sleep { value, millis } => json!({"value": value, "pause": format!("{millis}ms")}),
            Self::Hold { value, millis } | Self::Pass { value, millis } => json!({"value": value, "millis": millis}),
        }
    }

    /// How it must end if nobody stops it.
    pub(crate) fn end(&self) -> End {
        let succeeded = |result: Value| End { state: State::Succeeded, result };
        match self {
            Self::Chain { value } | Self::Interrupted { value } => succeeded(json!({"value": value + 5})),
            Self::Join { value } => succeeded(json!({"value": 6 * (value + 1) + 1})),
            Self::Retry { failures: 3.., .. } => End { state: State::Failed, result: json!("FLAKY") },
            Self::Forgiving { failures: 3.., .. } => succeeded(json!({"value": -1})),
            Self::Retry { value, .. } | Self::Forgiving { value, .. } | Self::Sleep { value, .. } => {
                succeeded(json!({"value": value + 2}))
            }
            Self::Signals { value, items } => {
                succeeded(json!({"value": value + 1 + items.iter().sum::<i64>() + 1, "items": items}))
            }
            Self::Compute { value } => succeeded(json!({"value": value * 2, "is_even": value % 2 == 0})),
            Self::Patient { ends, .. } => End { state: *ends, result: Value::Null },
            Self::Hold { value, .. } | Self::Pass { value, .. } => succeeded(json!({"value": value + 2})),
        }
    }
}

/// Deploys all definitions.
pub(crate) async fn deploy(admin: &mut Admin) {
    for source in SOURCES {
        deploy_source(admin, source).await;
    }
}

/// Deploys one definition.
pub(crate) async fn deploy_source(admin: &mut Admin, source: &str) {
    let request = DeployDefinitionRequest {
        content: Some(Content::Source(source.to_owned())),
        ..DeployDefinitionRequest::default()
    };
    admin.deploy_definition(request).await.unwrap_or_else(|status| panic!("{status:?}\n{source}"));
}
