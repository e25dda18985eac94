//! YAML as a JSON value: enough for what tests keep beside their definitions.

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Value};

/// Reads one document.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    let mut stack: Vec<Open> = Vec::new();
    let mut root = Value::Null;
    for event in Parser::new(StrInput::new(text)) {
        let (event, span) = event.map_err(|error| error.to_string())?;
        let line = span.start.line();
        let value = match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                continue;
            }
            Event::Alias(_) => return Err(format!("line {line}: no aliases")),
            Event::SequenceStart(..) => {
                stack.push(Open::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                stack.push(Open::Object(Map::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match stack.pop().expect("what ends has begun") {
                Open::List(items) => Value::Array(items),
                Open::Object(members, _) => Value::Object(members),
            },
            Event::Scalar(text, ScalarStyle::Plain, ..) => plain(&text),
            Event::Scalar(text, ..) => Value::String(text.into_owned()),
        };
        match stack.last_mut() {
            None => root = value,
            Some(Open::List(items)) => items.push(value),
            Some(Open::Object(members, key)) => match key.take() {
                None => *key = Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
                Some(key) => {
                    if members.insert(key.clone(), value).is_some() {
                        return Err(format!("line {line}: {key:?} stands twice"));
                    }
                }
            },
        }
    }
    Ok(root)
}

/// A list or object whose end has not come yet.
enum Open {
    List(Vec<Value>),
    Object(Map<String, Value>, Option<String>),
}

fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match serde_json::from_str::<Value>(text) {
            Ok(number @ Value::Number(_)) => number,
            _ => Value::String(text.to_owned()),
        },
    }
}
