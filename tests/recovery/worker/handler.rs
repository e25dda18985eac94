//! What the tasks do: a function of their input and attempt, so that a caller knows what must come of them.

use crate::{caller::document, journal::Report};
use orbit::proto::workflow::Task;
use serde_json::json;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Does a task.
pub(super) async fn handle(task: &Task, worker: &str) -> Report {
    let input = document(task.input.as_ref());
    let number = |name: &str| input[name].as_i64().unwrap_or_else(|| panic!("{name} is no integer in {input}"));
    match task.contract.as_str() {
        "work.flaky@1" if i64::from(task.attempt) <= number("failures") => return Report::Failure("FLAKY".to_owned()),
        "work.hold@1" => {
            let span = u64::try_from(number("millis")).expect("it is not negative");
            tokio::time::sleep(Duration::from_millis(span)).await;
        }
        "work.add@1" | "work.flaky@1" => {}
        contract => panic!("this worker did not announce {contract}"),
    }
    Report::Success(output(number("value") + 1, worker))
}

/// An output like no other: two deliveries of one task never report the same.
pub(super) fn output(value: i64, worker: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let by = format!("{worker}/{}/{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    json!({"value": value, "by": by}).to_string()
}
