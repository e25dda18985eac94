//! A definition from its tree.

use super::{
    action::Context,
    continue_as_new, coverage,
    expression::Template,
    fault::{Fault, Place, code},
    fields::{Checker, Fields, POSITIVE, Path, nearest},
    graph::{self, Ancestors},
    handlers,
    model::{
        Action, Definition, HTTP_CONTRACT, Role, STEPS_MAX, SignalStep, SignalTarget, Step, StepIndex, TaskContract,
    },
    node::{Node, Value},
    outline,
    references::{Ids, List, References},
    render,
    schema::Schema,
    signal, source, step,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// Most characters of a description.
const DESCRIPTION_CHARACTERS_MAX: usize = 4_096;

/// Most labels, and most characters of a key and of a value.
const LABELS_MAX: usize = 32;
/// How keys begin of labels that the server adds, and no other's.
pub const LABEL_PREFIX_RESERVED: &str = "orbit.";
const LABEL_KEY_MAX: usize = 63;
const LABEL_VALUE_MAX: usize = 255;

/// Most characters of a name, and what to do about one that is none.
const NAME_MAX: usize = 128;
const NAME_HINT: &str = "1 to 128 characters of A-Z a-z 0-9 . _ -, the first a letter or digit";

/// Most queries.
const QUERIES_MAX: usize = 100;

const DEFINITION_FIELDS: [&str; 13] = [
    "name",
    "version",
    "description",
    "input",
    "output",
    "timeout",
    "labels",
    "tasks",
    "signals",
    "queries",
    "steps",
    "result",
    "handlers",
];

impl Definition {
    /// Reads and checks a definition, YAML 1.2 or JSON. Returns it with its warnings.
    ///
    /// # Errors
    ///
    /// All faults at once, in the order of the text.
    pub fn parse(file_name: &str, source: &str) -> Result<(Self, Vec<Fault>), Vec<Fault>> {
        let root = source::read(file_name, source)?;
        let mut checker = Checker::new(source, true);
        let definition = build(&mut checker, &root);
        let in_order = |mut faults: Vec<Fault>| {
            faults.sort_by_key(|fault| (fault.line, fault.column));
            faults
        };
        match definition {
            Some(definition) if checker.faults.is_empty() => Ok((definition, in_order(checker.warnings))),
            Some(_) | None => Err(in_order(checker.faults)),
        }
    }

    /// Compiles a definition that was deployed before, from [`Definition::to_json`]. It is not judged again: a check
    /// that came later must not take a running execution's definition away.
    ///
    /// # Errors
    ///
    /// What leaves nothing to compile: text that is not JSON, fields that this version does not know, expressions and
    /// schemas that do not compile.
    pub fn parse_stored(json: &str) -> Result<Self, Vec<Fault>> {
        let root = source::read_json(json)?;
        let mut checker = Checker::new(json, false);
        match build(&mut checker, &root) {
            Some(definition) if checker.faults.is_empty() => Ok(definition),
            Some(_) | None => Err(checker.faults),
        }
    }
}

/// Builds the definition as far as it can be understood; `None` if something that it cannot do without is missing, of
/// which there is then a fault.
fn build(checker: &mut Checker<'_>, root: &Node) -> Option<Definition> {
    let path = Path::ROOT;
    let fields = checker.fields(root, &path, &DEFINITION_FIELDS)?;
    let name = required(checker, &fields, &path, "name").and_then(|node| {
        let path = path.field("name");
        let text = checker.text(node, &path)?;
        name(checker, node, &path, text);
        Some(text)
    });
    let version =
        required(checker, &fields, &path, "version").and_then(|node| version(checker, node, &path.field("version")));
    let description = description(checker, &fields, &path);
    let input = schema(checker, &fields, &path, "input");
    let output = schema(checker, &fields, &path, "output");
    let timeout = duration(checker, &fields, &path, "timeout", POSITIVE);
    let labels = labels(checker, &fields, &path);
    let tasks = tasks(checker, &fields, &path);
    let signals = signals(checker, &fields, &path);

    let steps_path = path.field("steps");
    let nodes = checker.list(fields.get("steps"), &steps_path);
    if nodes.is_empty() {
        checker.refuse(
            code::FIELD_REQUIRED,
            fields.mark("steps"),
            &steps_path,
            "a definition has at least one step",
            "add a step",
        );
    }
    if nodes.len() > STEPS_MAX {
        let message = format!("{} steps; a definition may have {STEPS_MAX}", nodes.len());
        checker.refuse(code::TOO_MANY, fields.mark("steps"), &steps_path, message, "split the workflow");
        return None;
    }
    let lists = handlers::find(checker, &fields, &path);
    let ids = outline::ids(checker, nodes, &lists);
    let context = Context { ids: &ids, tasks: &tasks, signals: &signals };
    let mut steps: Vec<Step> = Vec::with_capacity(nodes.len());
    let mut places: Vec<Place> = Vec::with_capacity(nodes.len());
    let mut answered = Vec::with_capacity(nodes.len());
    let mut compensations = Vec::new();
    let mut complete = true;
    for (position, node) in nodes.iter().enumerate() {
        let index = StepIndex::new(position);
        match step::read(checker, node, &steps_path.index(position), index, List::Main, Role::Main, &context) {
            Some(read) => {
                steps.push(read.step);
                places.push(read.place);
                answered.push(read.says_irreversible);
                compensations.extend(read.compensation.map(|compensation| (index, compensation)));
            }
            None => complete = false,
        }
    }
    for (of, (step, place)) in compensations {
        // Positions are indices only if all were read; otherwise the list is read for its faults.
        if complete {
            steps[of.position()].compensation = Some(StepIndex::new(steps.len()));
        }
        steps.push(step);
        places.push(place);
    }
    let handlers = handlers::read(checker, &lists, &path, &context, &mut steps, &mut places);
    let queries = queries(checker, &fields, &path, &ids);
    let result = fields
        .get("result")
        .and_then(|node| checker.template(node, &path.field("result"), &mut References::of_head(&ids)));
    warn_of_unused(checker, &fields, &path, &steps, &tasks);
    let handlers = handlers.filter(|_| complete)?;
    if graph::connect(checker, &mut steps, &places) {
        check_graph(checker, &steps[..nodes.len()], &places, &answered);
    }
    let mut definition = Definition {
        name: Arc::from(name?),
        version: version?,
        description,
        input,
        output,
        timeout,
        labels,
        tasks,
        signals,
        queries,
        handlers,
        by_id: StepIndex::sorted_by_id(&steps),
        steps,
        result,
        hash: [0; 32],
    };
    definition.hash = render::hash(&definition);
    Some(definition)
}

/// Checks what only the whole graph of the steps under `steps` shows.
fn check_graph(checker: &mut Checker<'_>, steps: &[Step], places: &[Place], answered: &[bool]) {
    let is_asked = |step: &Step| {
        let sends = matches!(&step.action, Action::Signal(SignalStep { to: SignalTarget::Child(_), .. }));
        step.compensation.is_some() || sends || matches!(step.action, Action::ContinueAsNew(_))
    };
    // Most definitions ask for nothing that costs more than their steps and edges.
    if checker.is_stored() || !steps.iter().any(is_asked) {
        return;
    }
    let ancestors = Ancestors::of(steps);
    continue_as_new::check(checker, steps, places, &ancestors);
    signal::check(checker, steps, places, &ancestors);
    coverage::check(checker, steps, places, answered, &ancestors);
}

/// A field that must be there.
pub(super) fn required<'n>(
    checker: &mut Checker<'_>,
    fields: &Fields<'n>,
    path: &Path<'_>,
    field: &str,
) -> Option<&'n Node> {
    let node = fields.get(field);
    if node.is_none() {
        checker.refuse(
            code::FIELD_REQUIRED,
            fields.node.start,
            &path.field(field),
            format!("`{field}` is required"),
            format!("add `{field}`"),
        );
    }
    node
}

/// An optional duration.
pub(super) fn duration(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    field: &str,
    least: Duration,
) -> Option<Duration> {
    fields.get(field).and_then(|node| checker.duration(node, &path.field(field), least))
}

/// Judges a name: 1 to 128 characters of `A-Z a-z 0-9 . _ -`, the first alphanumeric.
pub(super) fn name(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>, text: &str) {
    if !is_name(text) {
        let message = format!("`{text}` is not a name");
        checker.judge(code::NAME_INVALID, node.start, path, message, NAME_HINT);
    }
}

pub(super) fn is_name(text: &str) -> bool {
    text.len() <= NAME_MAX
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Judges a contract: `name@version`.
pub(super) fn contract(checker: &mut Checker<'_>, mark: super::node::Mark, path: &Path<'_>, text: &str) {
    let is_version = |version: &str| {
        (1..=NAME_MAX).contains(&version.len())
            && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+'))
    };
    if !text.split_once('@').is_some_and(|(name, version)| is_name(name) && is_version(version)) {
        checker.judge(
            code::CONTRACT_INVALID,
            mark,
            path,
            format!("`{text}` is not `name@version`"),
            "write it like `payments.charge@1`",
        );
    }
}

fn version(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>) -> Option<semver::Version> {
    let text = match &node.value {
        // `version: 1.0` is a number to YAML; the hint is about versions, not about types.
        Value::Number(digits) => digits,
        Value::Text(text) => text,
        Value::Null | Value::Bool(_) | Value::List(_) | Value::Object(_) => {
            checker.text(node, path)?;
            return None;
        }
    };
    match semver::Version::parse(text) {
        Ok(version) => Some(version),
        Err(error) => {
            let message = format!("`{text}` is not a version: {error}");
            checker.refuse(code::VERSION_INVALID, node.start, path, message, "three numbers by semver, like `1.4.0`");
            None
        }
    }
}

fn description(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) -> Arc<str> {
    let path = path.field("description");
    let Some(node) = fields.get("description") else { return Arc::from("") };
    let Some(text) = checker.text(node, &path) else { return Arc::from("") };
    let length = text.chars().count();
    if length > DESCRIPTION_CHARACTERS_MAX {
        let message = format!("{length} characters; a description may have {DESCRIPTION_CHARACTERS_MAX}");
        checker.judge(code::TEXT_TOO_LONG, node.start, &path, message, "shorten it");
    }
    Arc::from(text)
}

fn schema(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>, field: &str) -> Option<Arc<Schema>> {
    fields.get(field).and_then(|node| checker.schema(node, &path.field(field)))
}

fn labels(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) -> BTreeMap<Arc<str>, Arc<str>> {
    let path = path.field("labels");
    let entries = checker.entries(fields.get("labels"), &path);
    if entries.len() > LABELS_MAX {
        let message = format!("{} labels; a definition may have {LABELS_MAX}", entries.len());
        checker.judge(code::TOO_MANY, fields.mark("labels"), &path, message, "remove some");
    }
    let mut labels = BTreeMap::new();
    for entry in entries {
        let path = path.key(&entry.key);
        let is_key = (1..=LABEL_KEY_MAX).contains(&entry.key.len())
            && entry.key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
        if !is_key {
            let hint = format!("1 to {LABEL_KEY_MAX} characters of a-z A-Z 0-9 . _ -");
            checker.judge(
                code::LABEL_INVALID,
                entry.mark,
                &path,
                format!("`{}` is not a label's key", entry.key),
                hint,
            );
        }
        if entry.key.starts_with(LABEL_PREFIX_RESERVED) {
            let message =
                format!("`{}` begins with `{LABEL_PREFIX_RESERVED}`, as only the server's labels do", entry.key);
            checker.judge(code::LABEL_INVALID, entry.mark, &path, message, "give it another key");
        }
        let Some(value) = checker.text(&entry.node, &path) else { continue };
        if value.chars().count() > LABEL_VALUE_MAX {
            let hint = format!("a value has at most {LABEL_VALUE_MAX} characters");
            checker.judge(code::LABEL_INVALID, entry.node.start, &path, "the label's value is too long", hint);
        }
        labels.insert(Arc::from(&*entry.key), Arc::from(value));
    }
    labels
}

fn tasks(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) -> BTreeMap<Arc<str>, TaskContract> {
    let path = path.field("tasks");
    let mut tasks = BTreeMap::new();
    for entry in checker.entries(fields.get("tasks"), &path) {
        let path = path.key(&entry.key);
        contract(checker, entry.mark, &path, &entry.key);
        // `payments.charge@1:` with nothing behind it is a contract that takes and gives anything.
        let contract = match entry.node.value {
            Value::Null => TaskContract::default(),
            Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Object(_) => {
                match checker.fields(&entry.node, &path, &["input", "output"]) {
                    Some(fields) => TaskContract {
                        input: schema(checker, &fields, &path, "input"),
                        output: schema(checker, &fields, &path, "output"),
                    },
                    None => continue,
                }
            }
        };
        tasks.insert(Arc::from(&*entry.key), contract);
    }
    tasks
}

fn signals(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) -> BTreeMap<Arc<str>, Arc<Schema>> {
    let path = path.field("signals");
    let mut signals = BTreeMap::new();
    for entry in checker.entries(fields.get("signals"), &path) {
        let path = path.key(&entry.key);
        if !is_name(&entry.key) {
            checker.judge(
                code::NAME_INVALID,
                entry.mark,
                &path,
                format!("`{}` is not a signal's name", entry.key),
                NAME_HINT,
            );
        }
        if let Some(schema) = checker.schema(&entry.node, &path) {
            signals.insert(Arc::from(&*entry.key), schema);
        }
    }
    signals
}

fn queries(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    ids: &Ids<'_>,
) -> BTreeMap<Arc<str>, Template> {
    let path = path.field("queries");
    let entries = checker.entries(fields.get("queries"), &path);
    if entries.len() > QUERIES_MAX {
        let message = format!("{} queries; a definition may have {QUERIES_MAX}", entries.len());
        checker.judge(code::TOO_MANY, fields.mark("queries"), &path, message, "let one query give several values");
    }
    let mut queries = BTreeMap::new();
    for entry in entries {
        let path = path.key(&entry.key);
        if !is_name(&entry.key) {
            let message = format!("`{}` is not a query's name", entry.key);
            checker.judge(code::NAME_INVALID, entry.mark, &path, message, NAME_HINT);
        }
        let template = checker.template(&entry.node, &path, &mut References::of_head(ids));
        queries.extend(template.map(|template| (Arc::from(&*entry.key), template)));
    }
    queries
}

fn warn_of_unused(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    path: &Path<'_>,
    steps: &[Step],
    tasks: &BTreeMap<Arc<str>, TaskContract>,
) {
    let used: HashSet<&str> = steps
        .iter()
        .filter_map(|step| step.action.as_task())
        .map(|task| &*task.contract)
        .filter(|contract| *contract != HTTP_CONTRACT)
        .collect();
    let path = path.field("tasks");
    for contract in tasks.keys().filter(|contract| !used.contains(&***contract)) {
        let hint = match nearest(contract, used.iter().copied().filter(|used| !tasks.contains_key(*used))) {
            Some(near) => format!("a step uses `{near}`"),
            None => "remove it".to_owned(),
        };
        checker.warn(
            code::CONTRACT_UNUSED,
            fields.mark("tasks"),
            &path.key(contract),
            format!("no step uses `{contract}`"),
            hint,
        );
    }
}
