//! Schedules, judged from outside: what a spec says about times, and what a schedule decides.

mod clocks;
mod cron;
mod decisions;
mod drafts;
mod property;

use super::{Calendar, Draft, Fault, Interval, Policies, Range, Schedule, ScheduleUid, Situation, Spec, State};
use crate::domain::{Timestamp, definition::duration};
use std::time::Duration;
use uuid::Uuid;

/// An instant, as RFC 3339.
fn at(text: &str) -> Timestamp {
    duration::parse_time(text).unwrap_or_else(|| panic!("{text} is a time"))
}

/// As people read it.
fn utc(instant: Timestamp) -> String {
    duration::format_time(instant)
}

/// A draft of one cron.
fn cron(text: &str, timezone: &str) -> Draft {
    Draft { crons: vec![text.to_owned()], timezone: timezone.to_owned(), ..Draft::default() }
}

/// A draft of one interval.
fn every(seconds: u64) -> Draft {
    let interval = Interval { every: Duration::from_secs(seconds), offset: Duration::ZERO };
    Draft { intervals: vec![interval], ..Draft::default() }
}

fn spec(draft: &Draft) -> Spec {
    Spec::check(draft).unwrap_or_else(|faults| panic!("{draft:?}: {faults:#?}"))
}

fn faults(draft: &Draft) -> Vec<Fault> {
    Spec::check(draft).expect_err("the draft has faults")
}

/// A schedule with the defaults.
fn schedule(draft: &Draft) -> Schedule {
    Schedule { uid: ScheduleUid(Uuid::from_u128(7)), spec: spec(draft), policies: Policies::default() }
}

/// The next slots after an instant.
fn slots(spec: &Spec, after: &str, count: usize) -> Vec<String> {
    std::iter::successors(spec.next(at(after)), |slot| spec.next(*slot)).take(count).map(utc).collect()
}

/// The slots in a span, the first instant included.
fn between(spec: &Spec, from: &str, to: &str) -> Vec<String> {
    let before = at(from) - Duration::from_micros(1);
    std::iter::successors(spec.next(before), |slot| spec.next(*slot))
        .take_while(|slot| *slot < at(to))
        .map(utc)
        .collect()
}

/// What is known when a decision is made.
fn when(now: &str, open_runs: u32) -> Situation<'static> {
    Situation { now: at(now), open_runs, obstacle: None }
}

/// The state of a schedule that was made then.
fn made(time: &str) -> State {
    State::new(at(time))
}

fn one(number: i32) -> Vec<Range> {
    vec![Range::one(number)]
}

/// A calendar of one time a day.
fn daily(hour: i32, minute: i32) -> Calendar {
    Calendar { hours: one(hour), minutes: one(minute), ..Calendar::default() }
}
