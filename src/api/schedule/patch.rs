//! What an update changes: the fields that its mask names, as deep as one field of the spec, the start or the policies, one kind
//! of exclusions, or one label.
//!
//! Fields are moved as JSON text, as they are stored, so a payload keeps every digit and the list of fields is the messages' own.

use crate::proto::{
    json::{self, Message},
    schedule as proto,
};
use crate::wire::{
    Invalid,
    schedule::{SETTABLE, settable},
};
use serde_json::value::RawValue;
use std::{collections::BTreeMap, fmt};

/// A field that is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// One of [`SETTABLE`].
    field: &'static str,
    /// A field of that message, as it is called in JSON.
    inner: Option<&'static str>,
    /// What in that: a field of the exclusions, or a label's key.
    leaf: Option<String>,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.field, self.inner.unwrap_or("*"))?;
        self.leaf.as_ref().map_or(Ok(()), |leaf| write!(f, ".{leaf}"))
    }
}

/// What a mask names; without one, the fields that are set.
pub(super) fn paths(mask: Option<prost_types::FieldMask>, new: &proto::Schedule) -> Result<Vec<Path>, String> {
    let names = mask.map(|mask| mask.paths).unwrap_or_default();
    let paths = if names.is_empty() { set_fields(new) } else { named(&names)? };
    if paths.is_empty() { Err(format!("names nothing, and none of {} is set", SETTABLE.join(", "))) } else { Ok(paths) }
}

fn set_fields(new: &proto::Schedule) -> Vec<Path> {
    let is_set = [new.spec.is_some(), new.start.is_some(), new.policies.is_some(), !new.description.is_empty()];
    let set = SETTABLE.into_iter().zip(is_set).filter(|(_, is_set)| *is_set);
    set.map(|(field, _)| Path { field, inner: None, leaf: None }).collect()
}

fn named(names: &[String]) -> Result<Vec<Path>, String> {
    let mut paths = Vec::with_capacity(names.len());
    for name in names {
        if name == "*" {
            paths.extend(SETTABLE.map(|field| Path { field, inner: None, leaf: None }));
            continue;
        }
        let unknown = || format!("has no path {name:?}; it may name {} and their fields", SETTABLE.join(", "));
        paths.push(path(name).ok_or_else(unknown)?);
    }
    Ok(paths)
}

/// A path that a mask names, whose fields are called as in the proto file or as in JSON.
fn path(name: &str) -> Option<Path> {
    let mut segments = name.splitn(3, '.');
    let outer = segments.next()?;
    let field = SETTABLE.into_iter().find(|field| *field == outer)?;
    let fields = match field {
        "spec" => proto::ScheduleSpec::FIELDS,
        "start" => proto::StartTemplate::FIELDS,
        "policies" => proto::SchedulePolicies::FIELDS,
        _ => &[],
    };
    let Some(inner) = segments.next() else { return Some(Path { field, inner: None, leaf: None }) };
    let inner = in_json(fields, inner)?;
    let leaf = match (inner, segments.next()) {
        (_, None) => None,
        ("exclusions", Some(leaf)) => Some(in_json(proto::Exclusions::FIELDS, leaf)?.to_owned()),
        ("labels", Some(key)) if !key.is_empty() => Some(key.to_owned()),
        (_, Some(_)) => return None,
    };
    Some(Path { field, inner: Some(inner), leaf })
}

/// What a field is called in JSON.
fn in_json(fields: &'static [(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    fields.iter().find(|(snake, camel)| *snake == name || *camel == name).map(|(_, camel)| *camel)
}

type Members = BTreeMap<String, Box<RawValue>>;

/// The settings as they are to be.
pub(super) fn apply(
    before: &proto::Schedule,
    new: &proto::Schedule,
    paths: &[Path],
) -> Result<proto::Schedule, Invalid> {
    let (mut members, source) = (members(before)?, members(new)?);
    for Path { field, inner, leaf } in paths {
        let names: Vec<&str> = [Some(*field), *inner, leaf.as_deref()].into_iter().flatten().collect();
        put(&mut members, &source, &names)?;
    }
    let text = serde_json::to_string(&members).map_err(unwritable)?;
    json::from_slice(text.as_bytes()).map_err(|faults| Invalid::field("schedule", faults.to_string()))
}

fn member<'m>(members: &'m Members, name: &str) -> Option<&'m RawValue> {
    members.get(name).map(|value| &**value)
}

/// Takes what stands at a path; where nothing does, it is taken away.
fn put(members: &mut Members, source: &Members, names: &[&str]) -> Result<(), Invalid> {
    let Some((name, inside)) = names.split_first() else { return Ok(()) };
    let value = if inside.is_empty() {
        member(source, name).map(ToOwned::to_owned)
    } else {
        let mut inner = members_of(member(members, name))?;
        put(&mut inner, &members_of(member(source, name))?, inside)?;
        let text = serde_json::to_string(&inner).map_err(unwritable)?;
        Some(RawValue::from_string(text).map_err(unwritable)?)
    };
    match value {
        Some(value) => members.insert((*name).to_owned(), value),
        None => members.remove(*name),
    };
    Ok(())
}

/// What callers set of a schedule, as JSON.
fn members(schedule: &proto::Schedule) -> Result<Members, Invalid> {
    let settings = settable(schedule);
    let text = json::to_string_sparse(&settings).map_err(unwritable)?;
    serde_json::from_str(&text).map_err(unwritable)
}

fn members_of(value: Option<&RawValue>) -> Result<Members, Invalid> {
    value.map_or_else(|| Ok(Members::new()), |value| serde_json::from_str(value.get()).map_err(unwritable))
}

fn unwritable(why: impl fmt::Display) -> Invalid {
    Invalid::field("schedule", why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::workflow::{Payload, payload::Content};

    fn schedule(timezone: &str, crons: &[&str], input: &str) -> proto::Schedule {
        proto::Schedule {
            spec: Some(proto::ScheduleSpec {
                crons: crons.iter().map(|cron| (*cron).to_owned()).collect(),
                timezone: timezone.to_owned(),
                ..Default::default()
            }),
            start: Some(proto::StartTemplate {
                workflow: "order".to_owned(),
                input: Some(Payload { content: Some(Content::Json(input.to_owned())) }),
                ..Default::default()
            }),
            description: "old".to_owned(),
            ..Default::default()
        }
    }

    fn mask(paths: &[&str]) -> Option<prost_types::FieldMask> {
        Some(prost_types::FieldMask { paths: paths.iter().map(|path| (*path).to_owned()).collect() })
    }

    fn applied(new: &proto::Schedule, names: &[&str]) -> proto::Schedule {
        let before = schedule("UTC", &["@daily"], "{\"n\": 12345678901234567890.10}");
        apply(&before, new, &paths(mask(names), new).unwrap()).unwrap()
    }

    #[test]
    fn a_field_inside_is_changed_alone_and_a_payload_keeps_its_digits() {
        let new = schedule("Europe/London", &[], "null");
        let spec = applied(&new, &["spec.timezone"]).spec.unwrap();
        assert_eq!((&*spec.timezone, &spec.crons[..]), ("Europe/London", &["@daily".to_owned()][..]));
        let kept = applied(&new, &["spec.timezone"]).start.unwrap().input;
        let Some(Content::Json(kept)) = kept.unwrap().content else { panic!("it is text") };
        assert!(kept.contains("12345678901234567890.10"), "{kept}");
    }

    #[test]
    fn what_is_named_and_not_set_gets_its_default() {
        let new = proto::Schedule::default();
        let changed = applied(&new, &["description", "spec.crons"]);
        assert_eq!((&*changed.description, changed.spec.unwrap().crons.len()), ("", 0));
        assert_eq!(applied(&new, &["*"]), proto::Schedule::default());
    }

    #[test]
    fn a_kind_of_exclusions_and_a_label_are_changed_alone() {
        let label = |key: &str| (key.to_owned(), "x".to_owned());
        let dates = |day: &str| vec![proto::DateRange { first_date: day.to_owned(), ..Default::default() }];
        let exclusions = |crons: &[&str], day| proto::Exclusions {
            crons: crons.iter().map(|cron| (*cron).to_owned()).collect(),
            dates: dates(day),
            ..Default::default()
        };
        let mut before = schedule("UTC", &["@daily"], "null");
        before.start.as_mut().unwrap().labels = [label("a.b"), label("teamA")].into();
        before.spec.as_mut().unwrap().exclusions = Some(exclusions(&["* 1 * * *"], "2026-12-24"));
        let mut new = schedule("UTC", &[], "null");
        new.start.as_mut().unwrap().labels = [label("c"), label("d")].into();
        new.spec.as_mut().unwrap().exclusions = Some(exclusions(&[], "2026-12-31"));
        let names = ["spec.exclusions.dates", "start.labels.c", "start.labels.a.b", "spec.startTime", "spec.end_time"];
        let after = apply(&before, &new, &paths(mask(&names), &new).unwrap()).unwrap();
        assert_eq!(after.start.unwrap().labels, [label("c"), label("teamA")].into());
        let spec = after.spec.unwrap();
        assert_eq!(spec.exclusions.unwrap(), exclusions(&["* 1 * * *"], "2026-12-31"));
        assert_eq!(spec.crons, ["@daily"]);
    }

    #[test]
    fn without_a_mask_what_is_set_is_changed() {
        let new = proto::Schedule { description: "new".to_owned(), ..Default::default() };
        assert_eq!(paths(None, &new).unwrap(), [Path { field: "description", inner: None, leaf: None }]);
        assert!(paths(None, &proto::Schedule::default()).unwrap_err().contains("names nothing"));
    }

    #[test]
    fn an_unknown_path_is_refused_by_name() {
        for path in [
            "etag",
            "spec.nope",
            "description.x",
            "spec.crons.x",
            "",
            "Description",
            "spec.Time_Zone",
            "spec.exclusions.nope",
            "start.labels.",
            "spec.exclusions.dates.x",
        ] {
            let why = paths(mask(&[path]), &proto::Schedule::default()).unwrap_err();
            assert!(why.contains(&format!("{path:?}")), "{why}");
        }
    }
}
