//! What callers set of a schedule, on the wire and as it is stored.
//!
//! It is stored as it was asked for, the four fields of the message `Schedule` that callers set, as JSON. It is judged again
//! whenever it is read: what is stored may be of another version, or of somebody's hand.

mod read;

pub use read::{Setting, Start, overlap, read, spec};

use crate::proto::{json, schedule as proto};
use crate::wire::{Invalid, Violations, field::clean_text, field_path};
use std::sync::Arc;

/// The label that executions of a schedule carry: the schedule's id.
pub const LABEL: &str = "orbit.schedule";

/// Fields of a schedule that callers set.
pub const SETTABLE: [&str; 4] = ["spec", "start", "policies", "description"];

/// What callers set: as it is stored, and what it means.
#[derive(Clone, Debug)]
pub struct Settings {
    /// JSON text.
    pub text: Arc<str>,
    /// What it means.
    pub setting: Setting,
}

impl Settings {
    /// Judges what a caller sets; notes everything that is wrong.
    pub fn judge(violations: &mut Violations, schedule: &proto::Schedule) -> Option<Self> {
        let setting = read(violations, schedule)?;
        let text = violations.take("spec", text(schedule))?;
        Some(Self { text: text.into(), setting })
    }

    /// Settings that may be used, of what was stored.
    ///
    /// # Errors
    /// What is wrong with them, for people.
    pub fn restore(text: &str) -> Result<Setting, String> {
        let schedule = stored(text)?;
        let mut violations = Violations::new();
        let setting = read(&mut violations, &schedule);
        violations.finish(setting).map_err(|invalid: Invalid| invalid.to_string())
    }
}

/// What an update makes of a schedule. What it leaves as it was is not judged again: that may be past, or of another version.
#[derive(Clone, Debug)]
pub struct Update {
    /// What is to be stored, as JSON text.
    pub text: Arc<str>,
    /// What it means; or why it cannot be used, if that was so before.
    pub setting: Result<Setting, Arc<str>>,
    /// Workflow that it starts; empty if there is none.
    pub workflow: Arc<str>,
    /// Whether it is due at other times.
    pub is_spec_new: bool,
    /// Whether it starts another workflow, version or input.
    pub is_start_new: bool,
}

impl Update {
    /// Judges what differs from `before`, all of it if that cannot be read; notes everything that is wrong.
    pub fn judge(
        violations: &mut Violations,
        before: Option<&proto::Schedule>,
        after: &proto::Schedule,
    ) -> Option<Self> {
        let changed = |field: &str| before.is_none_or(|before| differs(before, after, field));
        let mut all = Violations::without_most();
        let setting = read(&mut all, after);
        let setting = match all.finish(setting) {
            Ok(setting) => Ok(setting),
            Err(invalid) => {
                let why = invalid.to_string();
                if violations.take_over(invalid, changed) {
                    return None;
                }
                Err(Arc::from(why))
            }
        };
        let text = violations.take("", text(after))?;
        let start = after.start.as_ref();
        Some(Self {
            text: text.into(),
            setting,
            workflow: start.map(|start| Arc::from(&*start.workflow)).unwrap_or_default(),
            is_spec_new: changed("spec"),
            is_start_new: ["workflow", "version", "input"].iter().any(|field| changed(&field_path("start", field))),
        })
    }
}

/// Whether two schedules differ in what a fault at this path is about. The fields of a spec depend on each other.
fn differs(before: &proto::Schedule, after: &proto::Schedule, path: &str) -> bool {
    let mut segments = path.split(['.', '[']);
    match (segments.next(), segments.next()) {
        (Some("spec"), _) => before.spec != after.spec,
        (Some("start"), Some(field)) => {
            let (before, after) = (before.start.clone().unwrap_or_default(), after.start.clone().unwrap_or_default());
            match field {
                "workflow" => before.workflow != after.workflow,
                "version" => before.version != after.version,
                "input" => before.input != after.input,
                "labels" => before.labels != after.labels,
                _ => true,
            }
        }
        (Some("start"), None) => before.start != after.start,
        (Some("policies"), _) => before.policies != after.policies,
        (Some("description"), _) => before.description != after.description,
        _ => true,
    }
}

/// What is to be stored, as JSON text.
fn text(schedule: &proto::Schedule) -> Result<String, String> {
    let mut settings = settable(schedule);
    // As with every text for people, what a terminal would obey is replaced.
    settings.description = clean_text(&settings.description).to_string();
    json::to_string_sparse(&settings).map_err(|error| error.to_string())
}

/// The fields that callers set, and no others.
#[must_use]
pub fn settable(schedule: &proto::Schedule) -> proto::Schedule {
    proto::Schedule {
        spec: schedule.spec.clone(),
        start: schedule.start.clone(),
        policies: schedule.policies,
        description: schedule.description.clone(),
        ..proto::Schedule::default()
    }
}

/// The settings as they were stored, not judged.
///
/// # Errors
/// What is wrong with the text.
pub fn stored(text: &str) -> Result<proto::Schedule, String> {
    json::from_slice(text.as_bytes()).map_err(|faults| format!("its settings cannot be read: {faults}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::workflow::{Payload, payload::Content};

    fn payload(json: &str) -> Option<Payload> {
        Some(Payload { content: Some(Content::Json(json.to_owned())) })
    }

    fn daily() -> proto::Schedule {
        proto::Schedule {
            spec: Some(proto::ScheduleSpec {
                crons: vec!["@daily".to_owned()],
                timezone: "UTC".to_owned(),
                ..Default::default()
            }),
            start: Some(proto::StartTemplate { workflow: "order".to_owned(), ..Default::default() }),
            ..Default::default()
        }
    }

    /// Field and code of each fault.
    fn faults(schedule: &proto::Schedule) -> Vec<(String, String)> {
        let mut violations = Violations::new();
        let settings = Settings::judge(&mut violations, schedule);
        let invalid = violations.finish(settings).expect_err("it has faults");
        let code =
            |text: &str| text.split(": ").find(|part| !part.starts_with("column ")).unwrap_or_default().to_owned();
        let code = |text: &str| code(text.trim_start_matches("line 1, "));
        invalid.violations.iter().map(|it| (it.field.clone(), code(&it.description))).collect()
    }

    fn told(faults: &[(&str, &str)]) -> Vec<(String, String)> {
        faults.iter().map(|(field, code)| ((*field).to_owned(), (*code).to_owned())).collect()
    }

    #[test]
    fn what_cannot_be_read_and_what_is_wrong_are_told_at_once_each_with_its_code() {
        let span = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let schedule = proto::Schedule {
            spec: Some(proto::ScheduleSpec {
                crons: vec!["61 * * * *".to_owned()],
                intervals: vec![
                    proto::IntervalRule { every: None, offset: span(-1) },
                    proto::IntervalRule { every: span(60), offset: span(60) },
                ],
                calendars: vec![proto::CalendarRule {
                    hours: vec![
                        proto::NumberRange { first: 1, last: None, step: Some(0) },
                        proto::NumberRange { first: 24, last: None, step: None },
                    ],
                    ..Default::default()
                }],
                exclusions: Some(proto::Exclusions {
                    crons: vec!["x".to_owned()],
                    dates: vec![proto::DateRange { first_date: "2026-02-30".to_owned(), last_date: "y".to_owned() }],
                    ..Default::default()
                }),
                timezone: "Nowhere".to_owned(),
                start_time: Some(prost_types::Timestamp { seconds: 0, nanos: -1 }),
                jitter: span(90_000),
                missing_times: 9,
                ..Default::default()
            }),
            start: Some(proto::StartTemplate {
                workflow: "a b".to_owned(),
                version: "1".to_owned(),
                input: payload(r#"["${ x }", {"a b": "${ y }", "c": "${ z }"}]"#),
                labels: [("a b".to_owned(), String::new())].into(),
            }),
            policies: Some(proto::SchedulePolicies {
                overlap: 9,
                catchup_window: span(1),
                max_actions: -1,
                ..Default::default()
            }),
            description: "x".repeat(1_025),
            ..Default::default()
        };
        let expected = [
            ("spec.intervals[0].every", "FIELD_REQUIRED"),
            ("spec.intervals[0].offset", "OUT_OF_RANGE"),
            ("spec.start_time", "OUT_OF_RANGE"),
            ("spec.missing_times", "ENUM_INVALID"),
            ("spec.crons[0]", "CRON_INVALID"),
            ("spec.calendars[0].hours[0]", "OUT_OF_RANGE"),
            ("spec.calendars[0].hours[1]", "OUT_OF_RANGE"),
            ("spec.intervals[1].offset", "OUT_OF_RANGE"),
            ("spec.exclusions.crons[0]", "CRON_INVALID"),
            ("spec.exclusions.dates[0].first_date", "DATE_INVALID"),
            ("spec.exclusions.dates[0].last_date", "DATE_INVALID"),
            ("spec.timezone", "TIMEZONE_INVALID"),
            ("spec.jitter", "OUT_OF_RANGE"),
            ("start.workflow", "NAME_INVALID"),
            ("start.version", "VERSION_INVALID"),
            ("start.input[0]", "TEMPLATE_INVALID"),
            ("start.input[1][\"a b\"]", "TEMPLATE_INVALID"),
            ("start.input[1].c", "TEMPLATE_INVALID"),
            ("start.labels[\"a b\"]", "LABEL_INVALID"),
            ("policies.overlap", "ENUM_INVALID"),
            ("policies.max_actions", "OUT_OF_RANGE"),
            ("policies.catchup_window", "OUT_OF_RANGE"),
            ("description", "TEXT_TOO_LONG"),
        ];
        assert_eq!(faults(&schedule), told(&expected));
        assert_eq!(
            faults(&proto::Schedule::default()),
            told(&[("spec", "FIELD_REQUIRED"), ("start", "FIELD_REQUIRED")])
        );
        let with_input = |input| {
            let start = proto::StartTemplate { input, ..daily().start.unwrap_or_default() };
            faults(&proto::Schedule { start: Some(start), ..daily() })
        };
        assert_eq!(with_input(payload("{")), told(&[("start.input", "SOURCE_SYNTAX")]));
        assert_eq!(with_input(Some(Payload::default())), told(&[("start.input", "FIELD_REQUIRED")]));
    }

    #[test]
    fn a_description_is_kept_without_what_a_terminal_would_obey() {
        let schedule = proto::Schedule { description: "x\0y\u{1b}[31m".to_owned(), ..daily() };
        let settings = Settings::judge(&mut Violations::new(), &schedule).unwrap();
        assert_eq!(stored(&settings.text).unwrap().description, "x\u{FFFD}y\u{FFFD}[31m");
    }

    #[test]
    fn an_update_does_not_judge_what_it_leaves() {
        let judge = |before: Option<&proto::Schedule>, after: &proto::Schedule| {
            let mut violations = Violations::new();
            let update = Update::judge(&mut violations, before, after);
            violations.finish(update).map_err(|invalid| invalid.violations.into_iter().map(|it| it.field).collect())
        };
        let lost = proto::Schedule {
            spec: Some(proto::ScheduleSpec { timezone: "Mars/Olympus".to_owned(), ..daily().spec.unwrap() }),
            start: Some(proto::StartTemplate {
                version: "one".to_owned(),
                input: payload("\"${ nope }\""),
                ..daily().start.unwrap()
            }),
            ..daily()
        };
        let described = proto::Schedule { description: "new".to_owned(), ..lost.clone() };
        let update = judge(Some(&lost), &described).unwrap();
        assert!(update.setting.unwrap_err().contains("Mars/Olympus"));
        assert_eq!((update.is_spec_new, update.is_start_new, &*update.workflow), (false, false, "order"));
        let mut labelled = lost.clone();
        labelled.start.as_mut().unwrap().labels.insert("a b".to_owned(), String::new());
        let fields: Vec<String> = judge(Some(&lost), &labelled).unwrap_err();
        assert_eq!(fields, ["start.labels[\"a b\"]"]);
        let mut other = lost.clone();
        other.start.as_mut().unwrap().workflow = "other".to_owned();
        let update = judge(Some(&lost), &other).unwrap();
        assert_eq!((update.is_start_new, &*update.workflow), (true, "other"));
        let mut jittered = lost.clone();
        jittered.spec.as_mut().unwrap().crons.push("@hourly".to_owned());
        assert_eq!(judge(Some(&lost), &jittered).unwrap_err(), ["spec.timezone"]);
        assert_eq!(judge(None, &described).unwrap_err(), ["spec.timezone", "start.version", "start.input"]);
        assert!(judge(Some(&lost), &daily()).unwrap().setting.is_ok());
    }
}
