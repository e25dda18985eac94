//! The examples of a page: each ```` ```yaml ```` block that begins with a name, after a comment with its script.

use crate::{Text, script::Story};
use orbit::domain::{
    self, NESTING_MAX, PAYLOAD_BYTES_MAX, Settings,
    definition::{
        EXPRESSION_BYTES_MAX, ITEMS_MAX, PRIORITY_DEFAULT, QUEUE_DEFAULT, SOURCE_BYTES_MAX, STEPS_MAX, VARIABLE_DEFAULT,
    },
};
use orbit::proto::{
    json::Message as _,
    workflow::{
        Await, Compensation, ContinueAsNew, Definition, EventHandler, Fail, Handlers, Http, RetryPolicy, SignalStep,
        Sleep, Step, TaskContract,
    },
};
use serde_json::{Map, Value, json};
use std::{fs, path::Path, time::Duration};

/// Those of `docs/workflows.md`.
pub(crate) fn workflows() -> (Vec<Text>, Vec<Story>) {
    let (definitions, stories) = examples(&page());
    assert!(definitions.len() >= 10, "the examples are found: {}", definitions.len());
    (definitions, stories)
}

/// Those of `README.md`.
pub(crate) fn readme() -> (Vec<Text>, Vec<Story>) {
    examples(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap())
}

fn examples(page: &str) -> (Vec<Text>, Vec<Story>) {
    let (mut definitions, mut stories) = (Vec::new(), Vec::new());
    let mut rest = page;
    let mut script = None;
    while let Some((at, is_script)) = next(rest) {
        let begin = &rest[at..];
        if is_script {
            let (text, after) = begin["<!-- run".len()..].split_once("-->").expect("a comment ends");
            assert!(script.is_none(), "no definition follows the comment before {text}");
            (script, rest) = (Some(text), after);
            continue;
        }
        let (text, after) = begin["```yaml\n".len()..].split_once("\n```").expect("a block ends");
        rest = after;
        let Some(name) = text.strip_prefix("name: ").and_then(|text| text.lines().next()) else { continue };
        let script = script.take().unwrap_or_else(|| panic!("the example {name} has no script"));
        definitions.push(Text { file: format!("{name}.yaml"), text: format!("{text}\n") });
        // Several stories of one example are parted by `---`.
        for (number, case) in script.split("\n---\n").enumerate() {
            stories.push(Story::read(&format!("{name}.{number}"), case));
        }
    }
    (definitions, stories)
}

/// Where the next comment or block is.
fn next(text: &str) -> Option<(usize, bool)> {
    let script = text.find("<!-- run").map(|at| (at, true));
    let block = text.find("```yaml\n").map(|at| (at, false));
    script.into_iter().chain(block).min()
}

/// The table of expressions, as a definition that computes them all, and a story of what each must give.
pub(crate) fn expressions() -> (Text, Story) {
    let rows = table(&page(), "expressions");
    assert!(rows.len() > 30, "the rows are found: {}", rows.len());
    let (mut steps, mut result, mut output) = (Vec::new(), Map::new(), Map::new());
    for (number, row) in rows.iter().enumerate() {
        let [expression, value] = row.as_slice() else { panic!("two columns: {row:?}") };
        let code = |text: &str| text.trim_matches('`').replace("\\|", "|");
        let id = format!("e{number}");
        steps.push(json!({"id": id, "compute": format!("${{ {} }}", code(expression))}));
        result.insert(code(expression), json!(format!("${{ steps.{id}.output }}")));
        let value = serde_json::from_str(&code(value)).unwrap_or_else(|error| panic!("{value}: {error}"));
        output.insert(code(expression), value);
    }
    let definition = json!({"name": "expressions", "version": "1.0.0", "steps": steps, "result": result});
    let text = Text { file: "expressions.json".to_owned(), text: definition.to_string() };
    let mut story = Story::read("expressions", "");
    story.script.output = Some(Value::Object(output));
    (text, story)
}

#[test]
fn the_page_names_every_field_of_a_definition() {
    let page = page();
    let mut absent = Vec::new();
    for (message, fields) in [
        ("Definition", Definition::FIELDS),
        ("TaskContract", TaskContract::FIELDS),
        ("Step", Step::FIELDS),
        ("Sleep", Sleep::FIELDS),
        ("Await", Await::FIELDS),
        ("Fail", Fail::FIELDS),
        ("RetryPolicy", RetryPolicy::FIELDS),
        ("Compensation", Compensation::FIELDS),
        ("ContinueAsNew", ContinueAsNew::FIELDS),
        ("EventHandler", EventHandler::FIELDS),
        ("Handlers", Handlers::FIELDS),
        ("Http", Http::FIELDS),
        ("SignalStep", SignalStep::FIELDS),
    ] {
        absent.extend(
            fields.iter().filter(|(name, _)| !page.contains(&format!("`{name}`"))).map(|field| (message, field.0)),
        );
    }
    assert!(absent.is_empty(), "{absent:?}");
}

#[test]
fn the_page_tells_the_limits_and_defaults_as_they_are() {
    let (settings, retry) = (Settings::default(), domain::retry::RetryPolicy::default());
    let mebibytes = |bytes: usize| format!("{} MiB", bytes >> 20);
    let seconds = |span: Duration| format!("{} s", span.as_secs());
    let expected = [
        format!("| text of a definition | {}", mebibytes(SOURCE_BYTES_MAX)),
        format!("| steps of a definition | {}", grouped(STEPS_MAX)),
        format!("| items of a `for_each` | {}", grouped(ITEMS_MAX)),
        format!("| an expression | {} bytes", grouped(EXPRESSION_BYTES_MAX)),
        format!("| a payload (input, output, signal, progress) | {}", mebibytes(PAYLOAD_BYTES_MAX)),
        format!("| signals that wait in an execution | {}", grouped(settings.buffered_signals_max)),
        format!("| deliveries of a unit without a report | {}", settings.deliveries_max),
        format!("after {} without a sign of it (the session timeout)", seconds(settings.session_timeout)),
        format!("has {} (`cancel_grace`)", seconds(settings.cancel_grace)),
        format!("| children in children | {NESTING_MAX} deep"),
        format!("| `max_attempts` | {} |", retry.max_attempts),
        format!("| `initial_interval` | {} |", seconds(retry.initial_interval)),
        format!("| `backoff_coefficient` | {} |", retry.coefficient),
        format!("| `max_interval` | {} m,", retry.max_interval.as_secs() / 60),
        format!("| `jitter` | {} |", retry.jitter),
        format!("| `queue` | `task` | `{QUEUE_DEFAULT}` |"),
        format!("| `as` | `for_each` | `{VARIABLE_DEFAULT}` |"),
        format!("| `priority` | `task`, `http` | {PRIORITY_DEFAULT} |"),
    ];
    let page = page();
    let absent: Vec<_> = expected.iter().filter(|text| !page.contains(*text)).collect();
    assert!(absent.is_empty(), "{absent:#?}");
}

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/workflows.md")).unwrap()
}

/// The rows of the table after a comment, without its head.
pub(crate) fn table(page: &str, name: &str) -> Vec<Vec<String>> {
    let (_, after) =
        page.split_once(&format!("<!-- {name} -->\n")).unwrap_or_else(|| panic!("there is no table {name}"));
    let rows = after.lines().take_while(|line| line.starts_with('|')).skip(2);
    rows.map(cells).collect()
}

/// The cells of a row; a `\|` is no border.
fn cells(row: &str) -> Vec<String> {
    let inside = row.trim().trim_matches('|').replace("\\|", "\u{1}");
    inside.split('|').map(|cell| cell.trim().replace('\u{1}', "\\|")).collect()
}

/// `10000` as `10,000`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
