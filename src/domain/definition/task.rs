//! The task of a step, and its retry policy.

use super::{
    expression::References,
    fault::code,
    fields::{Checker, Fields, POSITIVE, Path, nearest},
    model::{PRIORITY_DEFAULT, QUEUE_DEFAULT, TaskContract, TaskStep},
    node::Node,
    parse::{contract, duration, name},
    step::Context,
};
use crate::domain::retry::RetryPolicy;
use std::{sync::Arc, time::Duration};

/// Shortest heartbeat timeout: workers beat every third of it, and no faster.
const HEARTBEAT_MIN: Duration = Duration::from_secs(1);

/// Limits of a retry policy.
const ATTEMPTS_MAX: i64 = 1_000_000;
const COEFFICIENT_MAX: f64 = 1_000.0;
const NON_RETRYABLE_MAX: usize = 100;

/// Reads a task from its step's fields; `node` is the contract.
pub(super) fn read(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    node: &Node,
    path: &Path<'_>,
    context: &Context<'_>,
    references: &mut References<'_>,
) -> Option<TaskStep> {
    let task_path = path.field("task");
    let contract_text = checker.text(node, &task_path);
    let mut schemas = TaskContract::default();
    if let Some(text) = contract_text {
        contract(checker, node.start, &task_path, text);
        match context.tasks.get(text) {
            Some(found) => schemas = found.clone(),
            None => {
                let hint = match nearest(text, context.tasks.keys().map(|known| &**known)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "add it to `tasks` with its schemas".to_owned(),
                };
                checker.warn(
                    code::CONTRACT_UNDECLARED,
                    node.start,
                    &task_path,
                    format!("`{text}` is not listed under `tasks`, so its input and output are not checked"),
                    hint,
                );
            }
        }
    }
    let input = fields.get("input").map(|node| checker.template(node, &path.field("input"), references));
    let named = |checker: &mut Checker<'_>, field: &str| {
        let node = fields.get(field)?;
        let path = path.field(field);
        let text = checker.text(node, &path)?;
        name(checker, node, &path, text);
        Some(Arc::from(text))
    };
    let language = named(checker, "language");
    let queue = named(checker, "queue").unwrap_or_else(|| Arc::from(QUEUE_DEFAULT));
    let retry =
        fields.get("retry").map_or_else(RetryPolicy::default, |node| retry(checker, node, &path.field("retry")));
    let timeout = duration(checker, fields, path, "timeout", POSITIVE);
    let queue_timeout = duration(checker, fields, path, "queue_timeout", POSITIVE);
    let total_timeout = duration(checker, fields, path, "total_timeout", POSITIVE);
    let heartbeat_timeout = duration(checker, fields, path, "heartbeat_timeout", Duration::ZERO);
    check_heartbeat(checker, fields, path, heartbeat_timeout, timeout);
    if timeout.is_none() && total_timeout.is_none() && heartbeat_timeout.is_none() {
        let hint = "set `timeout`, `total_timeout` or `heartbeat_timeout`";
        checker.warn(
            code::TASK_WITHOUT_TIMEOUT,
            fields.mark("task"),
            path,
            "the task has no timeout: a worker that hangs holds it for ever",
            hint,
        );
    }
    let priority =
        fields.get("priority").map_or(PRIORITY_DEFAULT, |node| priority(checker, node, &path.field("priority")));
    let input = match input {
        // The template had faults, which have been said.
        Some(None) => return None,
        Some(Some(template)) => Some(template),
        None => None,
    };
    Some(TaskStep {
        contract: Arc::from(contract_text?),
        input,
        input_schema: schemas.input,
        output_schema: schemas.output,
        language,
        queue,
        retry,
        timeout,
        queue_timeout,
        total_timeout,
        heartbeat_timeout,
        priority,
    })
}

fn check_heartbeat(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    heartbeat: Option<Duration>,
    timeout: Option<Duration>,
) {
    let (Some(heartbeat), Some(node)) = (heartbeat, fields.get("heartbeat_timeout")) else { return };
    let path = path.field("heartbeat_timeout");
    if heartbeat < HEARTBEAT_MIN {
        checker.judge(
            code::HEARTBEAT_TIMEOUT_INVALID,
            node.start,
            &path,
            "the heartbeat timeout is below 1 s, the shortest there is",
            "set it to `1s` or more",
        );
    }
    if timeout.is_some_and(|timeout| heartbeat > timeout) {
        let message = "the heartbeat timeout is longer than `timeout`, so it could never end a delivery";
        checker.judge(
            code::HEARTBEAT_TIMEOUT_INVALID,
            node.start,
            &path,
            message,
            "make it shorter than `timeout`, or leave it out",
        );
    }
}

fn priority(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>) -> u8 {
    let Some(number) = checker.integer(node, path) else { return PRIORITY_DEFAULT };
    match u8::try_from(number) {
        Ok(0) => PRIORITY_DEFAULT,
        Ok(priority @ 1..=5) => priority,
        Ok(_) | Err(_) => {
            checker.judge(
                code::OUT_OF_RANGE,
                node.start,
                path,
                format!("priority {number}; priorities are 1, first, to 5, last"),
                "use 1 to 5",
            );
            if number < 1 { 1 } else { 5 }
        }
    }
}

fn retry(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>) -> RetryPolicy {
    const FIELDS: [&str; 6] =
        ["max_attempts", "initial_interval", "backoff_coefficient", "max_interval", "jitter", "non_retryable"];
    let default = RetryPolicy::default();
    let Some(fields) = checker.fields(node, path, &FIELDS) else { return default };
    let max_attempts = fields.get("max_attempts").and_then(|node| {
        let path = path.field("max_attempts");
        let number = checker.integer(node, &path)?;
        if !(0..=ATTEMPTS_MAX).contains(&number) {
            checker.judge(
                code::OUT_OF_RANGE,
                node.start,
                &path,
                format!("{number} attempts; a task may have 1 to 1,000,000"),
                "use 1 for no retry",
            );
        }
        u32::try_from(number.clamp(0, ATTEMPTS_MAX)).ok().filter(|attempts| *attempts > 0)
    });
    let initial_interval =
        duration(checker, &fields, path, "initial_interval", Duration::ZERO).unwrap_or(default.initial_interval);
    let coefficient = fields.get("backoff_coefficient").and_then(|node| {
        let path = path.field("backoff_coefficient");
        let number = checker.number(node, &path)?;
        // 0 is ProtoJSON's absent.
        if number != 0.0 && !(1.0..=COEFFICIENT_MAX).contains(&number) {
            checker.judge(
                code::OUT_OF_RANGE,
                node.start,
                &path,
                format!("coefficient {number}; it is 1 to 1,000"),
                "use 1 for equal pauses, 2 to double them",
            );
        }
        Some(number).filter(|number| *number != 0.0)
    });
    let max_interval = match duration(checker, &fields, path, "max_interval", Duration::ZERO) {
        Some(max) => {
            if max < initial_interval {
                let message = "`max_interval` is shorter than `initial_interval`";
                checker.judge(
                    code::OUT_OF_RANGE,
                    fields.mark("max_interval"),
                    &path.field("max_interval"),
                    message,
                    "make it at least as long",
                );
            }
            max
        }
        None => default.max_interval.max(initial_interval),
    };
    let jitter = fields.get("jitter").and_then(|node| {
        let path = path.field("jitter");
        let number = checker.number(node, &path)?;
        if !(0.0..=1.0).contains(&number) {
            checker.judge(
                code::OUT_OF_RANGE,
                node.start,
                &path,
                format!("jitter {number}; it is 0 to 1"),
                "0.2 spreads pauses over their last fifth",
            );
        }
        Some(number)
    });
    RetryPolicy {
        max_attempts: max_attempts.unwrap_or(default.max_attempts),
        initial_interval,
        coefficient: coefficient.unwrap_or(default.coefficient),
        max_interval,
        jitter: jitter.unwrap_or(default.jitter),
        non_retryable: non_retryable(checker, &fields, path),
    }
}

fn non_retryable(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) -> Vec<Arc<str>> {
    let path = path.field("non_retryable");
    let nodes = checker.list(fields.get("non_retryable"), &path);
    if nodes.len() > NON_RETRYABLE_MAX {
        let message = format!("{} codes; a policy may have {NON_RETRYABLE_MAX}", nodes.len());
        checker.judge(code::TOO_MANY, fields.mark("non_retryable"), &path, message, "remove some");
    }
    let mut codes: Vec<Arc<str>> = Vec::with_capacity(nodes.len());
    for (position, node) in nodes.iter().enumerate() {
        codes.extend(checker.text(node, &path.index(position)).map(Arc::from));
    }
    // A set: neither order nor repeats mean anything.
    codes.sort_unstable();
    codes.dedup();
    codes
}
