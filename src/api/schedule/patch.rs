//! What an update changes: the fields that its mask names, as deep as one field of the spec, the start or the policies.
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
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.field, self.inner.unwrap_or("*"))
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
    set.map(|(field, _)| Path { field, inner: None }).collect()
}

fn named(names: &[String]) -> Result<Vec<Path>, String> {
    let mut paths = Vec::with_capacity(names.len());
    for name in names {
        if name == "*" {
            paths.extend(SETTABLE.map(|field| Path { field, inner: None }));
            continue;
        }
        let (outer, inner) = name.split_once('.').map_or((name.as_str(), None), |(outer, inner)| (outer, Some(inner)));
        let unknown = || format!("has no path {name:?}; it may name {} and their fields", SETTABLE.join(", "));
        let field = SETTABLE.into_iter().find(|field| *field == outer).ok_or_else(unknown)?;
        let inner = match inner {
            None => None,
            Some(inner) => Some(inner_field(field, inner).ok_or_else(unknown)?),
        };
        paths.push(Path { field, inner });
    }
    Ok(paths)
}

fn inner_field(field: &str, name: &str) -> Option<&'static str> {
    let fields = match field {
        "spec" => proto::ScheduleSpec::FIELDS,
        "start" => proto::StartTemplate::FIELDS,
        "policies" => proto::SchedulePolicies::FIELDS,
        _ => &[],
    };
    fields.iter().find(|(snake, _)| *snake == name).map(|(_, camel)| *camel)
}

type Members = BTreeMap<String, Box<RawValue>>;

/// The settings as they are to be.
pub(super) fn apply(
    before: &proto::Schedule,
    new: &proto::Schedule,
    paths: &[Path],
) -> Result<proto::Schedule, Invalid> {
    let (mut members, source) = (members(before)?, members(new)?);
    for Path { field, inner } in paths {
        match inner {
            None => put(&mut members, field, member(&source, field)),
            Some(inner) => {
                let mut inside = members_of(member(&members, field))?;
                let from = members_of(member(&source, field))?;
                put(&mut inside, inner, member(&from, inner));
                let text = serde_json::to_string(&inside).map_err(unwritable)?;
                members.insert((*field).to_owned(), RawValue::from_string(text).map_err(unwritable)?);
            }
        }
    }
    let text = serde_json::to_string(&members).map_err(unwritable)?;
    json::from_slice(text.as_bytes()).map_err(|faults| Invalid::field("schedule", faults.to_string()))
}

fn member<'m>(members: &'m Members, name: &str) -> Option<&'m RawValue> {
    members.get(name).map(|value| &**value)
}

fn put(members: &mut Members, name: &str, value: Option<&RawValue>) {
    match value {
        Some(value) => members.insert(name.to_owned(), value.to_owned()),
        None => members.remove(name),
    };
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
    fn without_a_mask_what_is_set_is_changed() {
        let new = proto::Schedule { description: "new".to_owned(), ..Default::default() };
        assert_eq!(paths(None, &new).unwrap(), [Path { field: "description", inner: None }]);
        assert!(paths(None, &proto::Schedule::default()).unwrap_err().contains("names nothing"));
    }

    #[test]
    fn an_unknown_path_is_refused_by_name() {
        for path in ["etag", "spec.nope", "description.x", "spec.crons.x", ""] {
            let why = paths(mask(&[path]), &proto::Schedule::default()).unwrap_err();
            assert!(why.contains(&format!("{path:?}")), "{why}");
        }
    }
}
