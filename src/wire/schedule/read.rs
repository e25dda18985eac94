//! Judges what callers set.
//!
//! Every fault has a code, and all are told at once: where a value cannot be read, the rest is judged with one in its place that
//! no rule minds.

use crate::domain::schedule::{
    CATCHUP_WINDOW_DEFAULT, Calendar, DateRange, Draft, Exclusions, Interval, Missing, Overlap, Policies, Range,
    Repeated, SlotInput, Spec, code,
};
use crate::domain::{Payload, SPAN_MAX, Timestamp};
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
            violations.refuse("start", code::FIELD_REQUIRED, "is required: what to start");
            None
        }
    };
    let policies = policies(violations, schedule.policies.as_ref());
    violations.take_coded("description", code::TEXT_TOO_LONG, field::reason(&schedule.description));
    Some(Setting { spec: spec?, policies: policies?, start: start? })
}

/// Judges a spec.
pub fn spec(violations: &mut Violations, spec: Option<&proto::ScheduleSpec>) -> Option<Spec> {
    let Some(spec) = spec else {
        violations.refuse("spec", code::FIELD_REQUIRED, "is required: when it is due");
        return None;
    };
    violations.within("spec", |v| {
        let before = v.count();
        let draft = draft(v, spec);
        let checked = Spec::check(&draft).map_err(|faults| v.faults(&faults));
        checked.ok().filter(|_| v.count() == before)
    })
}

fn draft(v: &mut Violations, spec: &proto::ScheduleSpec) -> Draft {
    let intervals = (0..).zip(&spec.intervals);
    Draft {
        crons: spec.crons.clone(),
        cron_seconds: spec.six_field_crons,
        intervals: intervals.map(|(index, rule)| v.within_entry("intervals", index, |v| interval(v, rule))).collect(),
        calendars: spec.calendars.iter().map(calendar).collect(),
        exclusions: spec.exclusions.as_ref().map(exclusions).unwrap_or_default(),
        timezone: spec.timezone.clone(),
        start_time: instant(v, "start_time", spec.start_time.as_ref()),
        end_time: instant(v, "end_time", spec.end_time.as_ref()),
        jitter: span(v, "jitter", spec.jitter.as_ref()).unwrap_or_default(),
        missing: v.take_coded("missing_times", code::ENUM_INVALID, missing(spec.missing_times)).flatten(),
        repeated: v.take_coded("repeated_times", code::ENUM_INVALID, repeated(spec.repeated_times)).flatten(),
    }
}

/// An instant; none if it is absent or wrong.
fn instant(v: &mut Violations, field: &str, time: Option<&prost_types::Timestamp>) -> Option<Timestamp> {
    v.take_coded(field, code::OUT_OF_RANGE, time::parse(time?))
}

/// A span; none if it is absent or wrong.
fn span(v: &mut Violations, field: &str, span: Option<&prost_types::Duration>) -> Option<Duration> {
    v.take_coded(field, code::OUT_OF_RANGE, time::parse_span(span?))
}

fn interval(v: &mut Violations, rule: &proto::IntervalRule) -> Interval {
    if rule.every.is_none() {
        v.refuse("every", code::FIELD_REQUIRED, "is required: from one slot to the next");
    }
    let every = span(v, "every", rule.every.as_ref()).unwrap_or(SPAN_MAX);
    Interval { every, offset: span(v, "offset", rule.offset.as_ref()).unwrap_or_default() }
}

fn calendar(rule: &proto::CalendarRule) -> Calendar {
    let ranges = |ranges: &[proto::NumberRange]| ranges.iter().map(range).collect();
    Calendar {
        years: ranges(&rule.years),
        months: ranges(&rule.months),
        days: ranges(&rule.days),
        weekdays: ranges(&rule.weekdays),
        hours: ranges(&rule.hours),
        minutes: ranges(&rule.minutes),
        seconds: ranges(&rule.seconds),
    }
}

fn range(range: &proto::NumberRange) -> Range {
    Range { first: range.first, last: range.last.unwrap_or(range.first), step: range.step.unwrap_or(1) }
}

fn exclusions(exclusions: &proto::Exclusions) -> Exclusions {
    let dates = |range: &proto::DateRange| DateRange {
        first: range.first_date.clone(),
        last: Some(range.last_date.clone()).filter(|last| !last.is_empty()),
    };
    Exclusions {
        crons: exclusions.crons.clone(),
        calendars: exclusions.calendars.iter().map(calendar).collect(),
        dates: exclusions.dates.iter().map(dates).collect(),
    }
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
        let before = v.count();
        let overlap = v.take_coded("overlap", code::ENUM_INVALID, overlap(policies.overlap)).flatten();
        let window = span(v, "catchup_window", policies.catchup_window.as_ref());
        let actions = u64::try_from(policies.max_actions).map_err(|_| "is negative; 0 is no limit");
        let actions = v.take_coded("max_actions", code::OUT_OF_RANGE, actions).unwrap_or_default();
        let read = Policies {
            overlap: overlap.unwrap_or(Overlap::Skip),
            catchup_window: window.unwrap_or(CATCHUP_WINDOW_DEFAULT),
            max_actions: Some(actions).filter(|actions| *actions > 0),
            pause_on_failure: policies.pause_on_failure,
        };
        v.faults(&read.faults());
        (v.count() == before).then_some(read)
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
    let before = v.count();
    let name = if start.workflow.is_empty() { code::FIELD_REQUIRED } else { code::NAME_INVALID };
    let workflow = v.take_coded("workflow", name, field::name(&start.workflow));
    let version = match &*start.version {
        "" => None,
        text => v.take_coded("version", code::VERSION_INVALID, field::version(text)),
    };
    let input = read_input(v, start);
    let labels: BTreeMap<String, String> =
        start.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    if labels.len() >= field::LABELS_MAX {
        v.refuse("labels", code::TOO_MANY, format_args!("has more than {} entries", field::LABELS_MAX - 1));
    }
    for (key, value) in &labels {
        v.take_coded(&format!("labels[{key:?}]"), code::LABEL_INVALID, field::new_label(key, value));
    }
    let read = Start { workflow: workflow?, version, input: input?, labels };
    (v.count() == before).then_some(read)
}

fn read_input(v: &mut Violations, start: &proto::StartTemplate) -> Option<SlotInput> {
    let input = match payload::parse_optional(start.input.clone()) {
        Ok(input) => input.unwrap_or_else(Payload::null),
        Err(payload::Fault::Malformed(why)) => {
            v.refuse("input", code::SOURCE_SYNTAX, why);
            return None;
        }
        Err(payload::Fault::Missing) => {
            v.refuse("input", code::FIELD_REQUIRED, payload::Fault::Missing);
            return None;
        }
        Err(fault @ payload::Fault::TooLarge { .. }) => {
            v.add_payload("input", &fault);
            return None;
        }
    };
    let compiled = SlotInput::compile(input.as_str());
    compiled.map_err(|faults| v.within("input", |v| v.faults(&faults))).ok()
}
