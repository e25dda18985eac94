//! The task of a step or of a compensation.

use super::{
    action::{Context, optional_template},
    fault::code,
    fields::{Checker, Fields, POSITIVE, Path, nearest},
    model::{PRIORITY_DEFAULT, QUEUE_DEFAULT, TaskContract, TaskStep},
    node::Node,
    parse::{contract, duration, name},
    references::References,
    retry,
};
use std::{sync::Arc, time::Duration};

/// Shortest heartbeat timeout: workers beat every third of it, and no faster.
const HEARTBEAT_MIN: Duration = Duration::from_secs(1);

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
    let input = optional_template(checker, fields, path, "input", references);
    let named = |checker: &mut Checker<'_>, field: &str| {
        let node = fields.get(field)?;
        let path = path.field(field);
        let text = checker.text(node, &path)?;
        name(checker, node, &path, text);
        Some(Arc::from(text))
    };
    let language = named(checker, "language");
    let queue = named(checker, "queue").unwrap_or_else(|| Arc::from(QUEUE_DEFAULT));
    let retry = retry::read(checker, fields, path);
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
    let priority = priority(checker, fields, path);
    Some(TaskStep {
        contract: Arc::from(contract_text?),
        input: input.ok()?,
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

/// The priority among the fields.
pub(super) fn priority(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) -> u8 {
    let path = path.field("priority");
    let Some(node) = fields.get("priority") else { return PRIORITY_DEFAULT };
    let Some(number) = checker.integer(node, &path) else { return PRIORITY_DEFAULT };
    match u8::try_from(number) {
        Ok(0) => PRIORITY_DEFAULT,
        Ok(priority @ 1..=5) => priority,
        Ok(_) | Err(_) => {
            checker.judge(
                code::OUT_OF_RANGE,
                node.start,
                &path,
                format!("priority {number}; priorities are 1, first, to 5, last"),
                "use 1 to 5",
            );
            if number < 1 { 1 } else { 5 }
        }
    }
}
