//! A wait in words: what is waited for, and what a person can do about it.
//!
//! Times are left to whoever shows them: they are fields of the wait.

use super::{AtWorker, ForChild, ForWorker, Items, NAMES_MAX, Reason, Stage, Supply, Wait, WindDown};
use crate::domain::definition::{HTTP_CONTRACT, Winding};
use crate::domain::{ExecutionId, Failure};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Characters of a failure's message that a sentence has room for.
const SHOWN_MAX: usize = 200;

impl Wait {
    /// What is waited for, as a sentence without its subject: `waits for signal "approved"`.
    #[must_use]
    pub fn sentence(&self) -> String {
        match &self.reason {
            Reason::Closed { state } => format!("is closed ({state})"),
            Reason::Quarantined { why } => format!("is set aside, since its stored data is damaged: {why}"),
            Reason::Pause { reason } if reason.is_empty() => "is paused".to_owned(),
            Reason::Pause { reason } => format!("is paused: {reason}"),
            Reason::Delay => "begins later, since its start was delayed".to_owned(),
            Reason::Held => "waits until the execution goes on".to_owned(),
            Reason::WindDown(wind_down) => winding_down(wind_down),
            Reason::Work => "has something due that the server is about to do".to_owned(),
            Reason::Worker(task) => for_worker(task),
            Reason::AtWorker(task) => at_worker(task),
            Reason::Retry { attempt, failure } => for_retry(*attempt, failure.as_ref()),
            Reason::Time => "sleeps".to_owned(),
            Reason::Signal { name, has_match, unmatched } => for_signal(name, *has_match, *unmatched),
            Reason::Child(child) => for_child(child),
            Reason::Recipient { id, name } => {
                format!("gives signal \"{name}\" to execution {id}, which has not taken it")
            }
            Reason::Parent { id, unit } => format!("is to tell unit {unit} of its parent {id} how it ended"),
            Reason::Abandoned { ids, more } => {
                let ids: Vec<&str> = ids.iter().map(ExecutionId::as_str).collect();
                format!("is to cancel children that it does not need any more: {}{}", ids.join(", "), and_more(*more))
            }
            Reason::Items(items) => for_items(items),
            Reason::Steps { names, more } => for_steps(names, *more),
        }
    }

    /// What a person can do about it; empty where there is nothing but to wait. `id` is the execution's.
    #[must_use]
    pub fn hint(&self, id: &str) -> String {
        match &self.reason {
            Reason::Closed { state: "FAILED" | "TIMED_OUT" } => {
                format!("`orbit retry {id}` runs it again from where it failed")
            }
            Reason::Pause { .. } => format!("`orbit resume {id}` lets it go on"),
            Reason::Closed { .. }
            | Reason::Delay
            | Reason::Held
            | Reason::WindDown(_)
            | Reason::Retry { .. }
            | Reason::Time
            | Reason::Parent { .. }
            | Reason::Abandoned { .. }
            | Reason::Items(_)
            | Reason::Steps { .. } => String::new(),
            Reason::Child(ForChild { uid: None, .. }) => {
                "it starts within a second as a rule; if this stays, look at the server's log".to_owned()
            }
            Reason::Child(child) => format!("`orbit explain {}` tells what it waits for", child.id),
            Reason::Recipient { id, .. } => {
                format!("if this stays, its buffer of signals may be full: `orbit explain {id}` tells more")
            }
            Reason::Quarantined { .. } => "the server's log tells more; other executions are not concerned".to_owned(),
            Reason::Work => "if this stays for more than some seconds, look at the server's log".to_owned(),
            Reason::Worker(task) => worker_hint(task),
            Reason::AtWorker(task) if task.expire_time.is_none() && task.heartbeat_timeout.is_none() => {
                "its step has neither `timeout` nor `heartbeat_timeout`: as long as its worker lives and lists it, it \
                 may go on for ever"
                    .to_owned()
            }
            Reason::AtWorker(_) => String::new(),
            Reason::Signal { name, .. } => format!("`orbit signal {id} {name}` gives it the signal"),
        }
    }
}

fn for_child(ForChild { id, uid, stops, has_cancel, attempt: _ }: &ForChild) -> String {
    match (uid, stops, has_cancel) {
        (_, true, true) => format!("waits for child {id} to end, which has been cancelled"),
        (_, true, false) => format!("waits for child {id} to end, which is about to be cancelled"),
        (Some(_), false, _) => format!("waits for child {id} to end"),
        (None, false, _) => format!("waits for child {id} to start"),
    }
}

fn winding_down(WindDown { cause, stage }: &WindDown) -> String {
    let cause = match cause {
        Winding::Failure => "failure",
        Winding::Cancel => "cancel",
        Winding::Timeout => "timeout",
    };
    let stage = match stage {
        Stage::Stopping(units) => format!("{} still out", counted(*units, "unit is", "units are")),
        Stage::Undoing(0) => "the last unit is being undone".to_owned(),
        Stage::Undoing(left) => format!("a unit is being undone, {}", counted(*left, "more follows", "more follow")),
        Stage::Handling => format!("its handlers of {cause} run"),
    };
    format!("winds down for a {cause}: {stage}")
}

fn for_worker(task: &ForWorker) -> String {
    if *task.contract == *HTTP_CONTRACT {
        return for_http(task.supply.as_ref());
    }
    let language = task.language.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
    let wanted = format!("waits for a worker that does {}{language} in queue {:?}", task.contract, task.queue);
    match &task.supply {
        Some(supply) => format!("{wanted}: {}", supply_text(task, supply)),
        None => wanted,
    }
}

/// An `http` step: servers that allow any hosts are its workers.
fn for_http(supply: Option<&Supply>) -> String {
    let wanted = "waits for a server that does http requests";
    match supply {
        None => wanted.to_owned(),
        Some(Supply { sessions: 0, .. }) => format!("{wanted}: no live one does any"),
        Some(Supply { asking: 0, sessions, .. }) => {
            format!("{wanted}: {} any, and none of them is free", counted(*sessions, "does", "do"))
        }
        Some(Supply { sessions, .. }) => format!("{wanted}: {} any", counted(*sessions, "does", "do")),
    }
}

fn supply_text(task: &ForWorker, supply: &Supply) -> String {
    match supply {
        Supply { sessions: 0, .. } => {
            let near = nearly(task, supply);
            let near = if near.is_empty() { "none announces it anywhere".to_owned() } else { near.join("; ") };
            format!("no live worker announces it there; {near}")
        }
        Supply { asking: 0, sessions, .. } => {
            format!("{}, and none of them asks for a task", announces(*sessions, "it"))
        }
        Supply { asking, sessions, .. } => {
            format!("{}, and {} for a task", announces(*sessions, "it"), counted(*asking, "asks", "ask"))
        }
    }
}

/// Who could do it but for one thing.
fn nearly(task: &ForWorker, supply: &Supply) -> Vec<String> {
    let version = task.contract.split_once('@').map_or("", |(_, version)| version);
    let listed = |counts: &BTreeMap<Arc<str>, u32>, text: &dyn Fn(&str, u32) -> String| {
        counts.iter().take(NAMES_MAX).map(|(name, count)| text(name, *count)).collect::<Vec<_>>()
    };
    let mut near =
        listed(&supply.other_queues, &|queue, count| format!("{} in queue {queue:?}", announces(count, "it")));
    near.extend(listed(&supply.other_languages, &|language, count| match language {
        "" => format!("{} without a language", announces(count, "it")),
        language => format!("{} in {language}", announces(count, "it")),
    }));
    near.extend(listed(&supply.other_versions, &|other, count| {
        format!("{}, and version {version} is needed", announces(count, &format!("version {other}")))
    }));
    near
}

fn worker_hint(task: &ForWorker) -> String {
    let ForWorker { queue, contract, language, .. } = task;
    if **contract == *HTTP_CONTRACT {
        let nobody = task.supply.as_ref().is_some_and(|supply| supply.sessions == 0);
        return if nobody { "start a server with `--http-allow`".to_owned() } else { String::new() };
    }
    match &task.supply {
        None => String::new(),
        Some(Supply { sessions: 0, other_queues, .. }) if !other_queues.is_empty() => {
            format!("let such a worker serve queue {queue:?}, too")
        }
        Some(Supply { sessions: 0, .. }) => {
            let language = language.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
            format!("start a worker{language} that announces {contract} and serves queue {queue:?}")
        }
        Some(Supply { asking: 0, .. }) => "start more workers, or give them more slots".to_owned(),
        Some(_) => String::new(),
    }
}

fn at_worker(task: &AtWorker) -> String {
    let AtWorker { worker_id, attempt, delivery, .. } = task;
    let held = if task.held { "" } else { ", which is not yet known to hold it" };
    let stops = if task.stops { "; it is asked to stop" } else { "" };
    format!("is at worker {worker_id:?} (attempt {attempt}, delivery {delivery}){held}{stops}")
}

fn for_retry(attempt: u32, failure: Option<&Failure>) -> String {
    let next = attempt.saturating_add(1);
    match failure {
        Some(failure) => {
            let shown: String = failure.message.chars().take(SHOWN_MAX).collect();
            let message = if shown.is_empty() { shown } else { format!(" ({shown})") };
            format!("pauses before attempt {next}, since attempt {attempt} failed with {}{message}", failure.code)
        }
        None => format!("pauses before attempt {next}"),
    }
}

fn for_signal(name: &str, has_match: bool, unmatched: usize) -> String {
    let fitting = if has_match { " that fits its `match`" } else { "" };
    let others = match unmatched {
        0 => String::new(),
        count => format!("; {} and did not fit", counted(count, "has come", "have come")),
    };
    format!("waits for signal {name:?}{fitting}{others}")
}

fn for_items(items: &Items) -> String {
    let Items { items: all, begun, open, failed, parallel_max } = *items;
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let limit = match parallel_max {
        Some(most) if items.is_at_limit() => {
            format!("; the next one begins when one ends, since {most} may run at once")
        }
        Some(_) | None => String::new(),
    };
    format!("goes through {}: {begun} begun, {open} not ended{failed}{limit}", counted(all, "item", "items"))
}

fn for_steps(names: &[Arc<str>], more: usize) -> String {
    format!("waits for {}{}", names.join(", "), and_more(more))
}

fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(" and {more} more") }
}

/// `1 announces it`, `2 announce it`.
fn announces(count: u32, what: &str) -> String {
    format!("{} {what}", counted(count, "announces", "announce"))
}

fn counted<T: Copy + fmt::Display + PartialEq + From<u8>>(count: T, one: &str, many: &str) -> String {
    let noun = if count == T::from(1) { one } else { many };
    format!("{count} {noun}")
}
