//! Judges what callers set.

use super::LABEL;
use crate::domain::Payload;
use crate::domain::schedule::{
    CATCHUP_WINDOW_DEFAULT, Calendar, Date, DateRange, Draft, Exclusions, Fault, Interval, Missing, Overlap, Policies,
    Range, Repeated, SlotInput, Spec,
};
use crate::proto::schedule::{self as proto, schedule_policies, schedule_spec};
use crate::wire::{Violations, field, payload, time};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// What callers set, judged.
#[derive(Clone, Debug)]
pub struct Setting {
    /// When it is due.
    pub spec: Spec,
    /// What it does about slots that meet an open execution, come too late, or are one too many.
    pub policies: Policies,
    /// What it starts.
    pub start: Start,
}

/// What a schedule starts.
#[derive(Clone, Debug)]
pub struct Start {
    /// Workflow.
    pub workflow: Arc<str>,
    /// Version; the highest release if absent.
    pub version: Option<Arc<str>>,
    /// Template of the input.
    pub input: SlotInput,
    /// Labels, without the schedule's own.
    pub labels: BTreeMap<String, String>,
}

/// Judges the four fields that callers set; notes everything that is wrong.
pub fn read(violations: &mut Violations, schedule: &proto::Schedule) -> Option<Setting> {
    let spec = spec(violations, schedule.spec.as_ref());
    let start = match &schedule.start {
        Some(start) => violations.within("start", |v| read_start(v, start)),
        None => {
            violations.add("start", "is required: what to start");
            None
        }
    };
    let policies = policies(violations, schedule.policies.as_ref());
    violations.take("description", field::reason(&schedule.description));
    Some(Setting { spec: spec?, policies: policies?, start: start? })
}

/// Judges a spec.
pub fn spec(violations: &mut Violations, spec: Option<&proto::ScheduleSpec>) -> Option<Spec> {
    let Some(spec) = spec else {
        violations.add("spec", "is required: when it is due");
        return None;
    };
    violations.within("spec", |v| {
        let draft = draft(v, spec)?;
        match Spec::check(&draft) {
            Ok(spec) => Some(spec),
            Err(faults) => {
                add_faults(v, "", &faults);
                None
            }
        }
    })
}

fn add_faults(violations: &mut Violations, prefix: &str, faults: &[Fault]) {
    for fault in faults {
        let path = format!("{prefix}{}", fault.path);
        violations.add(path.trim_start_matches('.'), describe(fault));
    }
}

/// A fault on one line: place, what is wrong, what to do.
fn describe(fault: &Fault) -> String {
    let place = if fault.column > 0 { format!("column {}: ", fault.column) } else { String::new() };
    let hint = if fault.hint.is_empty() { String::new() } else { format!(" ({})", fault.hint) };
    format!("{place}{}{hint}", fault.message)
}

fn draft(v: &mut Violations, spec: &proto::ScheduleSpec) -> Option<Draft> {
    let intervals = entries(v, "intervals", &spec.intervals, interval);
    let calendars = entries(v, "calendars", &spec.calendars, calendar);
    let exclusions = match &spec.exclusions {
        Some(exclusions) => v.within("exclusions", |v| read_exclusions(v, exclusions)),
        None => Some(Exclusions::default()),
    };
    let start_time = optional(v, "start_time", spec.start_time.as_ref(), time::parse);
    let end_time = optional(v, "end_time", spec.end_time.as_ref(), time::parse);
    let jitter = optional(v, "jitter", spec.jitter.as_ref(), time::parse_span);
    let missing = v.take("missing_times", missing(spec.missing_times));
    let repeated = v.take("repeated_times", repeated(spec.repeated_times));
    Some(Draft {
        crons: spec.crons.clone(),
        cron_seconds: spec.six_field_crons,
        intervals: intervals?,
        calendars: calendars?,
        exclusions: exclusions?,
        timezone: spec.timezone.clone(),
        start_time: start_time?,
        end_time: end_time?,
        jitter: jitter?.unwrap_or_default(),
        missing: missing?,
        repeated: repeated?,
    })
}

/// Each entry of a list; nothing if one is wrong.
fn entries<M, T>(
    v: &mut Violations,
    field: &str,
    messages: &[M],
    read: impl Fn(&mut Violations, &M) -> Option<T>,
) -> Option<Vec<T>> {
    let read: Vec<Option<T>> =
        (0..).zip(messages).map(|(index, message)| v.within_entry(field, index, |v| read(v, message))).collect();
    read.into_iter().collect()
}

/// A field that may be absent; nothing if it is wrong.
fn optional<M, T>(
    v: &mut Violations,
    field: &str,
    message: Option<&M>,
    parse: impl Fn(&M) -> Result<T, String>,
) -> Option<Option<T>> {
    match message {
        None => Some(None),
        Some(message) => v.take(field, parse(message)).map(Some),
    }
}

fn interval(v: &mut Violations, rule: &proto::IntervalRule) -> Option<Interval> {
    let every = match &rule.every {
        Some(every) => v.take("every", time::parse_span(every)),
        None => {
            v.add("every", "is required: from one slot to the next");
            None
        }
    };
    let offset = optional(v, "offset", rule.offset.as_ref(), time::parse_span);
    Some(Interval { every: every?, offset: offset?.unwrap_or(Duration::ZERO) })
}

fn calendar(v: &mut Violations, rule: &proto::CalendarRule) -> Option<Calendar> {
    let mut ranges = |field: &str, ranges: &[proto::NumberRange]| entries(v, field, ranges, range);
    let years = ranges("years", &rule.years);
    let months = ranges("months", &rule.months);
    let days = ranges("days", &rule.days);
    let weekdays = ranges("weekdays", &rule.weekdays);
    let hours = ranges("hours", &rule.hours);
    let minutes = ranges("minutes", &rule.minutes);
    let seconds = ranges("seconds", &rule.seconds);
    Some(Calendar {
        years: years?,
        months: months?,
        days: days?,
        weekdays: weekdays?,
        hours: hours?,
        minutes: minutes?,
        seconds: seconds?,
    })
}

fn range(v: &mut Violations, range: &proto::NumberRange) -> Option<Range> {
    let step = u32::try_from(range.step.unwrap_or(1)).ok().filter(|step| *step > 0);
    let step = v.take("step", step.ok_or("is not at least 1"))?;
    Some(Range { first: range.first, last: range.last.unwrap_or(range.first), step })
}

fn read_exclusions(v: &mut Violations, exclusions: &proto::Exclusions) -> Option<Exclusions> {
    let calendars = entries(v, "calendars", &exclusions.calendars, calendar);
    let dates = entries(v, "dates", &exclusions.dates, |v, range| {
        let first = v.take("first_date", date(&range.first_date));
        let last = match &*range.last_date {
            "" => first,
            last => v.take("last_date", date(last)),
        };
        Some(DateRange { first: first?, last: last? })
    });
    Some(Exclusions { crons: exclusions.crons.clone(), calendars: calendars?, dates: dates? })
}

fn date(text: &str) -> Result<Date, &'static str> {
    let number = |text: &str, digits: usize| {
        let is_plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_: &u32| is_plain)
    };
    let parts: Vec<&str> = text.split('-').collect();
    let date = match parts[..] {
        [year, month, day] => number(year, 4).zip(number(month, 2)).zip(number(day, 2)),
        _ => None,
    };
    let ((year, month), day) = date.ok_or("is not a date such as \"2026-12-24\"")?;
    Ok(Date { year: year.cast_signed(), month, day })
}

fn missing(number: i32) -> Result<Option<Missing>, String> {
    use schedule_spec::MissingTimes;
    match MissingTimes::try_from(number) {
        Ok(MissingTimes::Unspecified) => Ok(None),
        Ok(MissingTimes::Skip) => Ok(Some(Missing::Skip)),
        Ok(MissingTimes::Shift) => Ok(Some(Missing::Shift)),
        Err(_) => Err(format!("{number} is no policy")),
    }
}

fn repeated(number: i32) -> Result<Option<Repeated>, String> {
    use schedule_spec::RepeatedTimes;
    match RepeatedTimes::try_from(number) {
        Ok(RepeatedTimes::Unspecified) => Ok(None),
        Ok(RepeatedTimes::First) => Ok(Some(Repeated::First)),
        Ok(RepeatedTimes::Last) => Ok(Some(Repeated::Last)),
        Ok(RepeatedTimes::Both) => Ok(Some(Repeated::Both)),
        Err(_) => Err(format!("{number} is no policy")),
    }
}

fn policies(violations: &mut Violations, policies: Option<&proto::SchedulePolicies>) -> Option<Policies> {
    let Some(policies) = policies else { return Some(Policies::default()) };
    violations.within("policies", |v| {
        let overlap = v.take("overlap", overlap(policies.overlap));
        let window = optional(v, "catchup_window", policies.catchup_window.as_ref(), time::parse_span);
        let actions = u64::try_from(policies.max_actions).map_err(|_| "is negative; 0 is no limit");
        let actions = v.take("max_actions", actions);
        let read = Policies {
            overlap: overlap?.unwrap_or(Overlap::Skip),
            catchup_window: window?.unwrap_or(CATCHUP_WINDOW_DEFAULT),
            max_actions: Some(actions?).filter(|actions| *actions > 0),
            pause_on_failure: policies.pause_on_failure,
        };
        let faults = read.faults();
        add_faults(v, "", &faults);
        faults.is_empty().then_some(read)
    })
}

/// An overlap policy; none if it is not specified.
///
/// # Errors
/// What is wrong with it.
pub fn overlap(number: i32) -> Result<Option<Overlap>, String> {
    use schedule_policies::Overlap as Named;
    match Named::try_from(number) {
        Ok(Named::Unspecified) => Ok(None),
        Ok(Named::Skip) => Ok(Some(Overlap::Skip)),
        Ok(Named::Allow) => Ok(Some(Overlap::Allow)),
        Ok(Named::BufferOne) => Ok(Some(Overlap::BufferOne)),
        Ok(Named::CancelPrevious) => Ok(Some(Overlap::CancelPrevious)),
        Ok(Named::TerminatePrevious) => Ok(Some(Overlap::TerminatePrevious)),
        Err(_) => Err(format!("{number} is no policy")),
    }
}

fn read_start(v: &mut Violations, start: &proto::StartTemplate) -> Option<Start> {
    let workflow = v.take("workflow", field::name(&start.workflow));
    let version = match &*start.version {
        "" => Some(None),
        text => v.take("version", field::version(text)).map(Some),
    };
    let input = v.take_payload("input", payload::parse_optional(start.input.clone()));
    let input = input.map(|input| input.unwrap_or_else(Payload::null));
    let input = input.and_then(|input| match SlotInput::compile(input.as_str()) {
        Ok(input) => Some(input),
        Err(faults) => {
            add_faults(v, "input.", &faults);
            None
        }
    });
    let labels: BTreeMap<String, String> =
        start.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    if labels.len() >= field::LABELS_MAX {
        v.add("labels", format!("has more than {} entries", field::LABELS_MAX - 1));
    }
    let mut all_are_sound = true;
    for (key, value) in &labels {
        let judged = if key == LABEL { Err("is the server's own label") } else { field::label(key, value) };
        all_are_sound &= v.take(&format!("labels[{key:?}]"), judged).is_some();
    }
    all_are_sound.then_some(())?;
    Some(Start { workflow: workflow?, version: version?, input: input?, labels })
}
