//! A definition as text: the JSON form of its message, and the canonical form that its hash is taken of.
//!
//! What equals its default is left out of both, so defaults that a later version adds change no text and no hash.

use super::{
    duration,
    expression::{Template, canonical_text},
    http::method_default,
    model::{
        Action, ChildStep, Definition, ForEach, HTTP_CONTRACT, HTTP_TIMEOUT_DEFAULT, OnError, PRIORITY_DEFAULT,
        QUEUE_DEFAULT, Role, SignalStep, SignalTarget, Sleep, Step, StepIndex, TaskStep, Unknown, VARIABLE_DEFAULT,
    },
    node::{Entry, Node, Value},
    schema::Schema,
};
use crate::domain::retry::RetryPolicy;
use sha2::{Digest, Sha256};
use std::{sync::Arc, time::Duration};

impl Definition {
    /// JSON text of the definition's message, field names in lower camel case. Parsing it gives the same definition.
    #[must_use]
    pub fn to_json(&self) -> String {
        Renderer { canonical: false }.definition(self).to_json()
    }
}

/// SHA-256 of the meaning.
pub(super) fn hash(definition: &Definition) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"orbit.definition.v1\0");
    hash.update(Renderer { canonical: true }.definition(definition).to_canonical_json());
    hash.finalize().into()
}

/// Collects the members of an object.
#[derive(Default)]
struct Object(Vec<Entry>);

impl Object {
    fn set(&mut self, key: &str, node: Node) {
        self.0.push(Entry { key: key.into(), mark: super::node::Mark::default(), node });
    }

    fn text(&mut self, key: &str, text: &str) {
        self.set(key, Node::text(text));
    }

    fn duration(&mut self, key: &str, span: Option<Duration>) {
        if let Some(span) = span {
            self.text(key, &duration::format(span));
        }
    }

    fn schema(&mut self, key: &str, schema: Option<&Arc<Schema>>) {
        if let Some(schema) = schema {
            self.set(key, schema.source().clone());
        }
    }

    fn done(self) -> Node {
        Node::made(Value::Object(self.0))
    }
}

struct Renderer {
    /// Whether texts of equal meaning must come out equal.
    canonical: bool,
}

impl Renderer {
    fn definition(&self, definition: &Definition) -> Node {
        let mut object = Object::default();
        object.text("name", &definition.name);
        object.text("version", &definition.version.to_string());
        if !self.canonical {
            if !definition.description.is_empty() {
                object.text("description", &definition.description);
            }
            if !definition.labels.is_empty() {
                let labels = definition.labels.iter().map(|(key, value)| (Box::from(&**key), Node::text(value)));
                object.set("labels", Node::object(labels));
            }
        }
        object.schema("input", definition.input.as_ref());
        object.schema("output", definition.output.as_ref());
        object.duration("timeout", definition.timeout);
        if !definition.tasks.is_empty() {
            let tasks = definition.tasks.iter().map(|(name, contract)| {
                let mut object = Object::default();
                object.schema("input", contract.input.as_ref());
                object.schema("output", contract.output.as_ref());
                (Box::from(&**name), object.done())
            });
            object.set("tasks", Node::object(tasks));
        }
        if !definition.signals.is_empty() {
            let signals = definition.signals.iter().map(|(name, schema)| (Box::from(&**name), schema.source().clone()));
            object.set("signals", Node::object(signals));
        }
        if !definition.queries.is_empty() {
            let queries = definition.queries.iter().map(|(name, query)| (Box::from(&**name), self.template(query)));
            object.set("queries", Node::object(queries));
        }
        let steps = definition.main().iter().map(|step| self.step(definition, step));
        object.set("steps", Node::made(Value::List(steps.collect())));
        if let Some(result) = &definition.result {
            object.set("result", self.template(result));
        }
        let handlers = self.handlers(definition);
        if !handlers.0.is_empty() {
            object.set("handlers", handlers.done());
        }
        object.done()
    }

    fn handlers(&self, definition: &Definition) -> Object {
        let mut object = Object::default();
        let handlers = &definition.handlers;
        let mut list = |field: &str, indices: &[StepIndex], render: &dyn Fn(&Step) -> Node| {
            if !indices.is_empty() {
                let steps = indices.iter().map(|index| render(definition.step(*index)));
                object.set(field, Node::made(Value::List(steps.collect())));
            }
        };
        let plain = |step: &Step| self.step(definition, step);
        list("failure", &handlers.failure, &plain);
        list("cancel", &handlers.cancel, &plain);
        list("timeout", &handlers.timeout, &plain);
        list("onEvent", &handlers.on_event, &|step| {
            let Role::OnEvent { signal, predicate } = &step.role else {
                unreachable!("every step of the list takes a signal")
            };
            let mut object = Object::default();
            object.text("signal", signal);
            if let Some(predicate) = predicate {
                object.text("match", predicate.source());
            }
            object.set("step", self.step(definition, step));
            object.done()
        });
        object
    }

    fn step(&self, definition: &Definition, step: &Step) -> Node {
        let mut object = Object::default();
        object.text("id", step.short_id());
        if !step.needs.is_empty() {
            let needs = step.needs.iter().map(|need| Node::text(definition.step(*need).short_id()));
            object.set("needs", Node::made(Value::List(needs.collect())));
        }
        if let Some(when) = &step.when {
            object.text("when", when.source());
        }
        if let Some(for_each) = &step.for_each {
            self.for_each(&mut object, for_each);
        }
        self.action(&mut object, definition, &step.action);
        match step.on_error {
            OnError::Fail => {}
            OnError::Continue => object.text("onError", "ON_ERROR_CONTINUE"),
        }
        if let Some(compensation) = step.compensation {
            object.set("compensate", self.compensation(definition, definition.step(compensation)));
        }
        if step.irreversible {
            object.set("irreversible", Node::made(Value::Bool(true)));
        }
        object.done()
    }

    fn for_each(&self, object: &mut Object, for_each: &ForEach) {
        object.set("forEach", self.template(&for_each.items));
        if *for_each.variable != *VARIABLE_DEFAULT {
            object.text("as", &for_each.variable);
        }
        if let Some(max) = for_each.parallel_max {
            object.set("maxParallel", number(max.to_string()));
        }
    }

    fn compensation(&self, definition: &Definition, step: &Step) -> Node {
        let mut object = Object::default();
        self.action(&mut object, definition, &step.action);
        if let Role::Compensation { unknown: Unknown::Skip, .. } = step.role {
            object.text("unknown", "UNKNOWN_SKIP");
        }
        object.done()
    }

    fn action(&self, object: &mut Object, definition: &Definition, action: &Action) {
        match action {
            Action::Task(task) if *task.contract == *HTTP_CONTRACT => self.http(object, task),
            Action::Task(task) => self.task(object, task),
            Action::Compute(template) => object.set("compute", self.template(template)),
            Action::Sleep(sleep) => {
                let (field, template) = match sleep {
                    Sleep::For(template) => ("for", template),
                    Sleep::Until(template) => ("until", template),
                };
                object.set("sleep", Node::object([(Box::from(field), self.template(template))]));
            }
            Action::Await(wait) => {
                let mut inner = Object::default();
                inner.text("signal", &wait.signal);
                if let Some(predicate) = &wait.predicate {
                    inner.text("match", predicate.source());
                }
                inner.duration("timeout", wait.timeout);
                object.set("await", inner.done());
            }
            Action::Fail(fail) => {
                let mut inner = Object::default();
                inner.text("code", &fail.code);
                if fail.message.as_constant().is_none_or(|message| message.as_str() != "\"\"") {
                    inner.set("message", self.template(&fail.message));
                }
                object.set("fail", inner.done());
            }
            Action::Child(child) => self.child(object, child),
            Action::Signal(signal) => object.set("signal", self.signal(definition, signal)),
            Action::ContinueAsNew(next) => {
                let mut inner = Object::default();
                if let Some(input) = &next.input {
                    inner.set("input", self.template(input));
                }
                object.set("continueAsNew", inner.done());
            }
        }
    }

    fn child(&self, object: &mut Object, child: &ChildStep) {
        object.text("workflow", &format!("{}@{}", child.workflow, child.range));
        if let Some(input) = &child.input {
            object.set("input", self.template(input));
        }
        if let Some(retry) = retry(&child.retry) {
            object.set("retry", retry);
        }
        object.duration("timeout", child.timeout);
        object.duration("totalTimeout", child.total_timeout);
        // Which version a range stands for is no part of what the author meant.
        if let (false, Some(pin)) = (self.canonical, &child.pin) {
            let mut inner = Object::default();
            inner.text("version", &pin.version.to_string());
            inner.text("hash", &pin.hash_hex());
            object.set("pin", inner.done());
        }
    }

    fn signal(&self, definition: &Definition, signal: &SignalStep) -> Node {
        let mut object = Object::default();
        match &signal.to {
            SignalTarget::Execution(id) => object.set("execution", self.template(id)),
            SignalTarget::Parent => object.set("parent", Node::made(Value::Bool(true))),
            SignalTarget::Child(step) => object.text("child", definition.step(*step).short_id()),
        }
        object.text("name", &signal.name);
        if let Some(payload) = &signal.payload {
            object.set("payload", self.template(payload));
        }
        object.done()
    }

    fn http(&self, object: &mut Object, task: &TaskStep) {
        if let Some(input) = &task.input {
            let mut request = self.template(input);
            if let Value::Object(members) = &mut request.value {
                let default = method_default(members.iter().any(|member| *member.key == *"body"));
                let is_default = |node: &Node| matches!(&node.value, Value::Text(method) if **method == *default);
                members.retain(|member| *member.key != *"method" || !is_default(&member.node));
            }
            object.set("http", request);
        }
        if let Some(retry) = retry(&task.retry) {
            object.set("retry", retry);
        }
        object.duration("timeout", task.timeout.filter(|timeout| *timeout != HTTP_TIMEOUT_DEFAULT));
        object.duration("totalTimeout", task.total_timeout);
        if task.priority != PRIORITY_DEFAULT {
            object.set("priority", number(task.priority.to_string()));
        }
    }

    fn task(&self, object: &mut Object, task: &TaskStep) {
        object.text("task", &task.contract);
        if let Some(input) = &task.input {
            object.set("input", self.template(input));
        }
        if let Some(language) = &task.language {
            object.text("language", language);
        }
        if *task.queue != *QUEUE_DEFAULT {
            object.text("queue", &task.queue);
        }
        if let Some(retry) = retry(&task.retry) {
            object.set("retry", retry);
        }
        object.duration("timeout", task.timeout);
        object.duration("queueTimeout", task.queue_timeout);
        object.duration("totalTimeout", task.total_timeout);
        object.duration("heartbeatTimeout", task.heartbeat_timeout);
        if task.priority != PRIORITY_DEFAULT {
            object.set("priority", number(task.priority.to_string()));
        }
    }

    fn template(&self, template: &Template) -> Node {
        if self.canonical { canonical(template.source()) } else { template.source().clone() }
    }
}

fn number(digits: String) -> Node {
    Node::made(Value::Number(digits.into()))
}

/// A double as JSON; values that JSON cannot write, which only an unjudged definition has, as ProtoJSON's texts.
fn double(value: f64) -> Node {
    match serde_json::Number::from_f64(value) {
        Some(finite) => number(finite.to_string()),
        None if value.is_nan() => Node::text("NaN"),
        None if value > 0.0 => Node::text("Infinity"),
        None => Node::text("-Infinity"),
    }
}

/// The policy's fields that differ from the defaults; `None` if none does.
fn retry(policy: &RetryPolicy) -> Option<Node> {
    let default = RetryPolicy::default();
    let mut object = Object::default();
    if policy.max_attempts != default.max_attempts {
        object.set("maxAttempts", number(policy.max_attempts.to_string()));
    }
    if policy.initial_interval != default.initial_interval {
        object.duration("initialInterval", Some(policy.initial_interval));
    }
    // Bits, since NaN differs from itself.
    if policy.coefficient.to_bits() != default.coefficient.to_bits() {
        object.set("backoffCoefficient", double(policy.coefficient));
    }
    if policy.max_interval != default.max_interval.max(policy.initial_interval) {
        object.duration("maxInterval", Some(policy.max_interval));
    }
    if policy.jitter.to_bits() != default.jitter.to_bits() {
        object.set("jitter", double(policy.jitter));
    }
    if !policy.non_retryable.is_empty() {
        let codes = policy.non_retryable.iter().map(|code| Node::text(code));
        object.set("nonRetryable", Node::made(Value::List(codes.collect())));
    }
    if object.0.is_empty() { None } else { Some(object.done()) }
}

/// A template with the white space inside each `${ … }` removed.
fn canonical(node: &Node) -> Node {
    Node::made(match &node.value {
        Value::Text(text) => Value::Text(canonical_text(text).into()),
        Value::List(items) => Value::List(items.iter().map(canonical).collect()),
        Value::Object(entries) => {
            let entries = entries.iter().map(|entry| Entry {
                key: entry.key.clone(),
                mark: entry.mark,
                node: canonical(&entry.node),
            });
            Value::Object(entries.collect())
        }
        value @ (Value::Null | Value::Bool(_) | Value::Number(_)) => value.clone(),
    })
}
