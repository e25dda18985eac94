//! Schedules and slots on a terminal.

use crate::{
    cli::{
        error::Error,
        execution::{json_text, labels},
        exit::Exit,
        output::{Output, Tone},
        table::{Cell, Table},
    },
    proto::schedule::{
        DateRange, IntervalRule, PlannedSlot, PreviewScheduleResponse, Schedule, ScheduleSpec, Slot, SlotCounts,
        planned_slot::Skip,
        schedule::State,
        schedule_policies::Overlap,
        schedule_spec::{MissingTimes, RepeatedTimes},
        slot,
    },
};

/// One schedule with all that is set.
pub(super) fn schedule(schedule: &Schedule, output: Output) -> Result<(), Error> {
    if output.is_json() {
        return output.json(schedule);
    }
    let (spec, start) = (schedule.spec.clone().unwrap_or_default(), schedule.start.clone().unwrap_or_default());
    let policies = schedule.policies.unwrap_or_default();
    let counts = schedule.counts.unwrap_or_default();
    let version = if start.version.is_empty() { String::new() } else { format!("@{}", start.version) };
    let mut table = Table::default();
    table.field("Id", &*schedule.id);
    table.field("Uid", &*schedule.uid);
    table.field("State", state_cell(schedule.state()));
    table.field("Reason", Cell::toned(Tone::Bad, &*schedule.invalid_reason));
    table.field("Paused", when(output, schedule.pause_time.as_ref()));
    table.field("Note", &*schedule.pause_note);
    table.field("Description", &*schedule.description);
    table.field("Starts", format!("{}{version}", start.workflow));
    table.field("Input", json_text(start.input.as_ref()));
    table.field("Labels", labels(&start.labels));
    table.field("Due", due(&spec));
    table.field("Except", except(&spec));
    table.field("Zone", &*spec.timezone);
    table.field("From", when(output, spec.start_time.as_ref()));
    table.field("Until", when(output, spec.end_time.as_ref()));
    table.field("Jitter", span(spec.jitter.as_ref()));
    table.field("Missing", missing_name(spec.missing_times()));
    table.field("Repeated", repeated_name(spec.repeated_times()));
    table.field("Overlap", overlap_name(policies.overlap()));
    table.field("Catch-up", span(policies.catchup_window.as_ref()));
    table.field("At most", if policies.max_actions > 0 { policies.max_actions.to_string() } else { String::new() });
    table.field("On failure", if policies.pause_on_failure { "pause" } else { "" });
    table.field("Next", when(output, schedule.next_time.as_ref()));
    table.field("Waiting", when(output, schedule.waiting_time.as_ref()));
    let open: Vec<&str> = schedule.open_executions.iter().map(|execution| &*execution.id).collect();
    table.field("Open", open.join(", "));
    let last = schedule.last_execution.as_ref().map(|execution| &*execution.id).unwrap_or_default();
    table.field("Last", last);
    table.field(
        "Backfills",
        if schedule.backfills.is_empty() { String::new() } else { schedule.backfills.len().to_string() },
    );
    table.field("Slots", told(counts));
    table.field("Etag", &*schedule.etag);
    table.field("Made", output.time(schedule.create_time.as_ref()));
    table.field("Changed", output.time(schedule.update_time.as_ref()));
    table.field("Deleted", when(output, schedule.delete_time.as_ref()));
    output.table(&table)
}

/// Schedules in a table.
pub(super) fn list(schedules: &[Schedule], output: Output) -> Result<(), Error> {
    if output.is_json() {
        return output.json_array(schedules);
    }
    if schedules.is_empty() {
        output.note("no schedules");
        return Ok(());
    }
    let mut table = Table::with_headers(&["ID", "WORKFLOW", "STATE", "NEXT", "STARTED", "DUE", "REASON"]);
    for schedule in schedules {
        let spec = schedule.spec.clone().unwrap_or_default();
        let workflow = schedule.start.as_ref().map(|start| &*start.workflow).unwrap_or_default();
        let reason = if schedule.invalid_reason.is_empty() { &schedule.pause_note } else { &schedule.invalid_reason };
        table.row([
            (&*schedule.id).into(),
            workflow.into(),
            state_cell(schedule.state()),
            output.time(schedule.next_time.as_ref()).into(),
            schedule.counts.unwrap_or_default().started.to_string().into(),
            due(&spec).into(),
            (&**reason).into(),
        ]);
    }
    output.table(&table)
}

/// Slots to come.
pub(super) fn preview(preview: &PreviewScheduleResponse, output: Output) -> Result<(), Error> {
    planned(&preview.slots, preview.stop_time.is_none(), output)?;
    // A list that was cut says so on stderr, whatever its form.
    if preview.unlisted_count > 0 {
        output.note(&format!("{} more times are left out and not shown", preview.unlisted_count));
    }
    if let Some(stop) = preview.stop_time {
        output.note(&format!("the look stopped at {stop}, since so many times are left out; --after {stop} goes on"));
    }
    Ok(())
}

fn planned(slots: &[PlannedSlot], is_end: bool, output: Output) -> Result<(), Error> {
    if output.is_json() {
        return output.json_array(slots);
    }
    if slots.is_empty() {
        if is_end {
            output.note("no slots are left");
        }
        return Ok(());
    }
    let mut table = Table::with_headers(&["LOCAL TIME", "NOMINAL", "STARTS", "LEFT OUT"]);
    for slot in slots {
        let skip = match slot.skip() {
            Skip::Unspecified => String::new(),
            Skip::Excluded => format!("excluded by {}", slot.detail),
            Skip::Missing => format!("the clocks leave out {}", slot.detail),
            Skip::Repeated => "the clocks show this time twice".to_owned(),
        };
        table.row([
            (&*slot.local_time).into(),
            output.time(slot.nominal_time.as_ref()).into(),
            output.time(slot.planned_time.as_ref()).into(),
            Cell::toned(Tone::Warning, skip.trim_end()),
        ]);
    }
    output.table(&table)
}

/// Rows of the ledger.
pub(super) fn slots(slots: &[Slot], output: Output) -> Result<(), Error> {
    if output.is_json() {
        return output.json_array(slots);
    }
    if slots.is_empty() {
        output.note("no slots yet");
        return Ok(());
    }
    let mut table = Table::with_headers(&["NOMINAL", "KIND", "OUTCOME", "SLOTS", "DECIDED", "EXECUTION", "DETAIL"]);
    for slot in slots {
        let execution = slot.execution.as_ref().map(|execution| &*execution.id).unwrap_or_default();
        table.row([
            output.time(slot.nominal_time.as_ref()).into(),
            kind_name(slot.kind()).into(),
            outcome_cell(slot.outcome()),
            slot.slot_count.to_string().into(),
            output.time(slot.actual_time.as_ref()).into(),
            execution.into(),
            (&*slot.detail).into(),
        ]);
    }
    output.table(&table)
}

/// What came of a trigger: the id of the execution, or a failure where nothing started and nothing will.
pub(super) fn triggered(slot: &Slot, output: Output) -> Result<(), Error> {
    let goes_on = matches!(slot.outcome(), slot::Outcome::Started | slot::Outcome::Buffered);
    if output.is_json() {
        output.json(slot)?;
    } else if let Some(execution) = &slot.execution {
        output.line(&execution.id)?;
    } else {
        let why = match slot.outcome() {
            slot::Outcome::Buffered => "it waits until no execution of the schedule is open",
            slot::Outcome::Overlapped => "skipped: an execution of the schedule is open",
            _ => &slot.detail,
        };
        output.note(why);
    }
    if goes_on { Ok(()) } else { Err(Error::Said(Exit::Conflict)) }
}

/// A time, or nothing if there is none.
fn when(output: Output, time: Option<&prost_types::Timestamp>) -> String {
    if time.is_some() { output.time(time) } else { String::new() }
}

/// When it is due, on one line.
fn due(spec: &ScheduleSpec) -> String {
    let every = |rule: &IntervalRule| {
        let offset = rule.offset.as_ref().map(|offset| format!("+{}", span(Some(offset)))).unwrap_or_default();
        format!("every {}{offset}", span(rule.every.as_ref()))
    };
    let mut parts: Vec<String> = spec.crons.clone();
    parts.extend(spec.intervals.iter().map(every));
    parts.extend(calendars(spec.calendars.len()));
    parts.join(", ")
}

/// When it is not due, on one line.
fn except(spec: &ScheduleSpec) -> String {
    let Some(exclusions) = &spec.exclusions else { return String::new() };
    let days = |range: &DateRange| match &*range.last_date {
        "" => range.first_date.clone(),
        last => format!("{}..{last}", range.first_date),
    };
    let mut parts: Vec<String> = exclusions.dates.iter().map(days).collect();
    parts.extend(exclusions.crons.iter().cloned());
    parts.extend(calendars(exclusions.calendars.len()));
    parts.join(", ")
}

fn calendars(count: usize) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 calendar".to_owned()),
        count => Some(format!("{count} calendars")),
    }
}

/// A span as options take it; empty if there is none.
fn span(span: Option<&prost_types::Duration>) -> String {
    span.map(|span| format!("{span}")).unwrap_or_default()
}

fn told(counts: SlotCounts) -> String {
    let SlotCounts { started, skipped, missed, failed } = counts;
    let some = |count: i64, word: &str| if count > 0 { format!(", {count} {word}") } else { String::new() };
    format!("{started} started{}{}{}", some(skipped, "skipped"), some(missed, "missed"), some(failed, "failed"))
}

fn state_cell(state: State) -> Cell {
    let (tone, name) = match state {
        State::Unspecified => (Tone::Plain, "-"),
        State::Active => (Tone::Good, "ACTIVE"),
        State::Paused => (Tone::Warning, "PAUSED"),
        State::Invalid => (Tone::Bad, "INVALID"),
        State::Completed => (Tone::Plain, "COMPLETED"),
    };
    Cell::toned(tone, name)
}

fn overlap_name(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::Unspecified | Overlap::Skip => "skip",
        Overlap::Allow => "allow",
        Overlap::BufferOne => "buffer one",
        Overlap::CancelPrevious => "cancel previous",
        Overlap::TerminatePrevious => "terminate previous",
    }
}

fn missing_name(missing: MissingTimes) -> &'static str {
    match missing {
        MissingTimes::Unspecified => "",
        MissingTimes::Skip => "skip",
        MissingTimes::Shift => "shift",
    }
}

fn repeated_name(repeated: RepeatedTimes) -> &'static str {
    match repeated {
        RepeatedTimes::Unspecified => "",
        RepeatedTimes::First => "first",
        RepeatedTimes::Last => "last",
        RepeatedTimes::Both => "both",
    }
}

fn kind_name(kind: slot::Kind) -> &'static str {
    match kind {
        slot::Kind::Unspecified => "-",
        slot::Kind::Regular => "regular",
        slot::Kind::Trigger => "trigger",
        slot::Kind::Backfill => "backfill",
    }
}

fn outcome_cell(outcome: slot::Outcome) -> Cell {
    let (tone, name) = match outcome {
        slot::Outcome::Unspecified => (Tone::Plain, "-"),
        slot::Outcome::Started => (Tone::Good, "STARTED"),
        slot::Outcome::Buffered => (Tone::Busy, "BUFFERED"),
        slot::Outcome::Overlapped => (Tone::Warning, "OVERLAPPED"),
        slot::Outcome::Superseded => (Tone::Warning, "SUPERSEDED"),
        slot::Outcome::Paused => (Tone::Warning, "PAUSED"),
        slot::Outcome::Replaced => (Tone::Warning, "REPLACED"),
        slot::Outcome::Missed => (Tone::Bad, "MISSED"),
        slot::Outcome::Failed => (Tone::Bad, "FAILED"),
    };
    Cell::toned(tone, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::schedule::{CalendarRule, Exclusions};

    #[test]
    fn counts_name_what_there_is() {
        let counts = SlotCounts { started: 3, skipped: 0, missed: 2, failed: 0 };
        assert_eq!(told(counts), "3 started, 2 missed");
        assert_eq!(told(SlotCounts::default()), "0 started");
    }

    #[test]
    fn times_and_exclusions_are_told_on_one_line() {
        let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let dates = |first: &str, last: &str| DateRange { first_date: first.to_owned(), last_date: last.to_owned() };
        let spec = ScheduleSpec {
            crons: vec!["@daily".to_owned()],
            intervals: vec![
                IntervalRule { every: seconds(3_600), offset: seconds(300) },
                IntervalRule { every: seconds(90), offset: None },
            ],
            exclusions: Some(Exclusions {
                dates: vec![dates("2026-12-24", ""), dates("2026-12-31", "2027-01-01")],
                crons: vec!["* 1 * * *".to_owned()],
                calendars: vec![CalendarRule::default()],
            }),
            ..ScheduleSpec::default()
        };
        assert_eq!(due(&spec), "@daily, every 3600s+300s, every 90s");
        assert_eq!(except(&spec), "2026-12-24, 2026-12-31..2027-01-01, * 1 * * *, 1 calendar");
        assert_eq!(except(&ScheduleSpec::default()), "");
    }
}
