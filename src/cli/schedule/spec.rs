//! Options that say when a schedule is due, what it starts and what it does about slots that meet an open execution.
//!
//! Each knows the path of its field, so that an update changes what was given and nothing else.

use crate::{
    cli::{
        error::Error,
        input::{PayloadArgument, parse_label},
    },
    config::parse_duration,
    proto::{
        json::{self, Scalar as _, Time},
        schedule::{
            DateRange, Exclusions, IntervalRule, Schedule, SchedulePolicies, ScheduleSpec, StartTemplate,
            schedule_policies, schedule_spec,
        },
        workflow::payload::Content,
    },
    wire::time::render_span,
};
use std::time::Duration;

/// When it is due.
#[derive(Debug, clap::Args)]
pub(super) struct SpecArguments {
    /// Cron expression, such as '0 9 * * MON-FRI' or @hourly; may be given again
    #[arg(long = "cron", value_name = "EXPR")]
    crons: Vec<String>,
    /// Whether cron expressions may have a sixth field, the first, for seconds [default: no]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    six_field_crons: Option<bool>,
    /// Interval, such as 15m, or 1h+5m with an offset; may be given again
    #[arg(long = "interval", value_name = "DURATION", value_parser = parse_interval)]
    intervals: Vec<Span>,
    /// Zone of crons and dates, such as Europe/London [default: UTC, where a new schedule needs one]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Days without slots, 2026-12-24 or 2026-12-24..2027-01-01; may be given again
    #[arg(long = "exclude-date", value_name = "DATES")]
    exclude_dates: Vec<String>,
    /// Cron expression of times without slots; may be given again
    #[arg(long = "exclude-cron", value_name = "EXPR")]
    exclude_crons: Vec<String>,
    /// First instant that may be a slot, such as 2026-12-24T09:00:00Z
    #[arg(long, value_name = "TIME", value_parser = Time::text)]
    start_time: Option<prost_types::Timestamp>,
    /// Last instant that may be a slot
    #[arg(long, value_name = "TIME", value_parser = Time::text)]
    end_time: Option<prost_types::Timestamp>,
    /// How much later than its slot an execution may start, at most; spreads the load of many schedules
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    jitter: Option<Duration>,
    /// What becomes of local times that the clocks leave out
    #[arg(long, value_name = "POLICY", value_enum)]
    missing_times: Option<Missing>,
    /// What becomes of local times that the clocks repeat
    #[arg(long, value_name = "POLICY", value_enum)]
    repeated_times: Option<Repeated>,
    /// The whole spec as JSON, @FILE or - for stdin: also calendars; the options above change it
    #[arg(long, value_name = "JSON")]
    spec: Option<PayloadArgument>,
}

/// A span with an offset.
#[derive(Clone, Copy, Debug)]
struct Span {
    every: Duration,
    offset: Duration,
}

fn parse_interval(text: &str) -> Result<Span, String> {
    let (every, offset) = text.split_once('+').map_or((text, None), |(every, offset)| (every, Some(offset)));
    let offset = offset.map(parse_duration).transpose()?.unwrap_or_default();
    Ok(Span { every: parse_duration(every)?, offset })
}

/// What becomes of local times that do not exist.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Missing {
    /// They are left out
    Skip,
    /// They are one slot, when the clocks are put forward
    Shift,
}

/// What becomes of local times that exist twice.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Repeated {
    /// The first time is a slot
    First,
    /// The second time is a slot
    Last,
    /// Both are
    Both,
}

impl SpecArguments {
    /// The spec, and the paths of what was given.
    pub(super) fn read(self) -> Result<(ScheduleSpec, Vec<&'static str>), Error> {
        let mut paths = Vec::new();
        let mut spec = ScheduleSpec::default();
        if let Some(text) = &self.spec {
            let payload = text.read("--spec")?;
            let Some(Content::Json(text)) = payload.content else { return Err(Error::usage("--spec is no JSON")) };
            spec = json::from_slice(text.as_bytes())
                .map_err(|faults| Error::usage(format!("--spec is no spec of a schedule: {faults}")))?;
            paths.push("spec");
        }
        let mut given = |is_given: bool, path| {
            if is_given {
                paths.push(path);
            }
            is_given
        };
        if given(!self.crons.is_empty(), "spec.crons") {
            spec.crons = self.crons;
        }
        if given(self.six_field_crons.is_some(), "spec.six_field_crons") {
            spec.six_field_crons = self.six_field_crons.unwrap_or_default();
        }
        if given(!self.intervals.is_empty(), "spec.intervals") {
            let rule = |span: Span| IntervalRule {
                every: Some(render_span(span.every)),
                offset: (!span.offset.is_zero()).then(|| render_span(span.offset)),
            };
            spec.intervals = self.intervals.into_iter().map(rule).collect();
        }
        if given(!self.exclude_dates.is_empty(), "spec.exclusions.dates") {
            let range = |text: String| match text.split_once("..") {
                Some((first, last)) => DateRange { first_date: first.to_owned(), last_date: last.to_owned() },
                None => DateRange { first_date: text, last_date: String::new() },
            };
            let exclusions = spec.exclusions.get_or_insert_with(Exclusions::default);
            exclusions.dates = self.exclude_dates.into_iter().map(range).collect();
        }
        if given(!self.exclude_crons.is_empty(), "spec.exclusions.crons") {
            spec.exclusions.get_or_insert_with(Exclusions::default).crons = self.exclude_crons;
        }
        if given(self.timezone.is_some(), "spec.timezone") {
            spec.timezone = self.timezone.unwrap_or_default();
        }
        if given(self.start_time.is_some(), "spec.start_time") {
            spec.start_time = self.start_time;
        }
        if given(self.end_time.is_some(), "spec.end_time") {
            spec.end_time = self.end_time;
        }
        if given(self.jitter.is_some(), "spec.jitter") {
            spec.jitter = self.jitter.map(render_span);
        }
        if given(self.missing_times.is_some(), "spec.missing_times") {
            spec.set_missing_times(match self.missing_times {
                None => schedule_spec::MissingTimes::Unspecified,
                Some(Missing::Skip) => schedule_spec::MissingTimes::Skip,
                Some(Missing::Shift) => schedule_spec::MissingTimes::Shift,
            });
        }
        if given(self.repeated_times.is_some(), "spec.repeated_times") {
            spec.set_repeated_times(match self.repeated_times {
                None => schedule_spec::RepeatedTimes::Unspecified,
                Some(Repeated::First) => schedule_spec::RepeatedTimes::First,
                Some(Repeated::Last) => schedule_spec::RepeatedTimes::Last,
                Some(Repeated::Both) => schedule_spec::RepeatedTimes::Both,
            });
        }
        Ok((spec, paths))
    }
}

/// A spec of a new schedule, in which the zone is UTC unless it is said: a person at a terminal sees it in the answer.
pub(super) fn with_zone(mut spec: ScheduleSpec) -> ScheduleSpec {
    let needs_zone = !spec.crons.is_empty() || !spec.calendars.is_empty() || spec.exclusions.is_some();
    if needs_zone && spec.timezone.is_empty() {
        "UTC".clone_into(&mut spec.timezone);
    }
    spec
}

/// What it starts.
#[derive(Debug, clap::Args)]
pub(super) struct StartArguments {
    /// Workflow to start
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Version of its definition [default: the highest release at the time of each start]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Input: JSON text, @FILE, or - for stdin; may use ${ schedule.nominal_time } [default: null]
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    input: Option<PayloadArgument>,
    /// Label of each execution; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
}

impl StartArguments {
    /// The template, and the paths of what was given.
    pub(super) fn read(self) -> Result<(StartTemplate, Vec<String>), Error> {
        let given = [
            (self.workflow.is_some(), "start.workflow"),
            (self.version.is_some(), "start.version"),
            (self.input.is_some(), "start.input"),
        ];
        let given = given.into_iter().filter(|(given, _)| *given).map(|(_, path)| path.to_owned());
        let labels = self.labels.iter().map(|(key, _)| format!("start.labels.{key}"));
        let paths = given.chain(labels).collect();
        let start = StartTemplate {
            workflow: self.workflow.unwrap_or_default(),
            version: self.version.unwrap_or_default(),
            input: self.input.map(|input| input.read("--input")).transpose()?,
            labels: self.labels.into_iter().collect(),
        };
        Ok((start, paths))
    }
}

/// What it does about slots that meet an open execution, come too late, or are one too many.
#[derive(Debug, clap::Args)]
pub(super) struct PolicyArguments {
    /// What a slot does while an execution of the schedule is open
    #[arg(long, value_name = "POLICY", value_enum)]
    overlap: Option<OverlapArgument>,
    /// How late a slot may start; later it is missed [default: 365d]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    catchup_window: Option<Duration>,
    /// How many slots start in all; 0 is no limit, the default
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(0..))]
    max_actions: Option<i64>,
    /// Pauses the schedule when an execution of it fails or times out, or cannot be started
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pause_on_failure: Option<bool>,
}

/// What a slot does while an execution of the schedule is open.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum OverlapArgument {
    /// It is skipped
    Skip,
    /// It starts beside it
    Allow,
    /// It waits; one can wait
    BufferOne,
    /// The open one is cancelled first
    CancelPrevious,
    /// The open one is terminated first
    TerminatePrevious,
}

impl From<OverlapArgument> for schedule_policies::Overlap {
    fn from(overlap: OverlapArgument) -> Self {
        match overlap {
            OverlapArgument::Skip => Self::Skip,
            OverlapArgument::Allow => Self::Allow,
            OverlapArgument::BufferOne => Self::BufferOne,
            OverlapArgument::CancelPrevious => Self::CancelPrevious,
            OverlapArgument::TerminatePrevious => Self::TerminatePrevious,
        }
    }
}

impl PolicyArguments {
    /// The policies, and the paths of what was given.
    pub(super) fn read(self) -> (SchedulePolicies, Vec<&'static str>) {
        let given = [
            (self.overlap.is_some(), "policies.overlap"),
            (self.catchup_window.is_some(), "policies.catchup_window"),
            (self.max_actions.is_some(), "policies.max_actions"),
            (self.pause_on_failure.is_some(), "policies.pause_on_failure"),
        ];
        let overlap = self.overlap.map_or(schedule_policies::Overlap::Unspecified, Into::into);
        let policies = SchedulePolicies {
            overlap: overlap.into(),
            catchup_window: self.catchup_window.map(render_span),
            max_actions: self.max_actions.unwrap_or_default(),
            pause_on_failure: self.pause_on_failure.unwrap_or_default(),
        };
        (policies, given.into_iter().filter(|(given, _)| *given).map(|(_, path)| path).collect())
    }
}

/// A schedule as it is to be set, and what of it was given.
pub(super) fn settings(
    spec: SpecArguments,
    start: StartArguments,
    policies: PolicyArguments,
    description: Option<String>,
) -> Result<(Schedule, Vec<String>), Error> {
    let (spec, paths) = spec.read()?;
    let mut paths: Vec<String> = paths.into_iter().map(str::to_owned).collect();
    let (start, more) = start.read()?;
    paths.extend(more);
    let (policies, more) = policies.read();
    paths.extend(more.into_iter().map(str::to_owned));
    paths.extend(description.is_some().then(|| "description".to_owned()));
    let schedule = Schedule {
        spec: Some(spec),
        start: Some(start),
        policies: Some(policies),
        description: description.unwrap_or_default(),
        ..Schedule::default()
    };
    Ok((schedule, paths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_may_have_an_offset() {
        let span = parse_interval("1h+5m").unwrap();
        assert_eq!((span.every, span.offset), (Duration::from_hours(1), Duration::from_mins(5)));
        assert_eq!(parse_interval("90s").unwrap().offset, Duration::ZERO);
        assert!(parse_interval("1h+").is_err() && parse_interval("x").is_err());
    }
}
