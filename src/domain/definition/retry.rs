//! The retry policy of a task, a child or an `http` step.

use super::{
    fault::code,
    fields::{Checker, Fields, Path},
    parse::duration,
};
use crate::domain::retry::RetryPolicy;
use std::{sync::Arc, time::Duration};

/// Limits of a retry policy.
const ATTEMPTS_MAX: i64 = 1_000_000;
const COEFFICIENT_MAX: f64 = 1_000.0;
const NON_RETRYABLE_MAX: usize = 100;

/// The policy among the fields; the default if there is none.
pub(super) fn read(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) -> RetryPolicy {
    const FIELDS: [&str; 6] =
        ["max_attempts", "initial_interval", "backoff_coefficient", "max_interval", "jitter", "non_retryable"];
    let default = RetryPolicy::default();
    let path = &path.field("retry");
    let Some(node) = fields.get("retry") else { return default };
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
