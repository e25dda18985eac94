//! Workers who do what a script says.

use crate::script::{Behaviour, Behaviours};
use orbit::domain::{
    Failure, Payload, SessionId,
    definition::{Action, Definition},
};
use orbit::engine::{Engine, Error, HeldToken, Registration, Report, Task};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// How often workers say what they hold.
const BEAT: Duration = Duration::from_secs(5);

/// One worker for each queue and language that the definitions name. They play the server's own part, too: `http` steps.
pub(crate) struct Workers<'s> {
    engine: &'s Engine,
    tasks: &'s BTreeMap<String, Behaviours>,
    sessions: Vec<SessionId>,
    held: Vec<Held>,
    /// Deliveries that each entry of the script has decided about.
    deliveries: BTreeMap<&'s str, usize>,
    next_beat: Instant,
}

/// A task that a worker has.
struct Held {
    session: SessionId,
    task: Task,
    behaviour: Behaviour,
    /// When it is reported; a task that is only held never is.
    done: Option<Instant>,
}

impl<'s> Workers<'s> {
    /// Workers for a workflow and its children.
    pub(crate) async fn register(
        engine: &'s Engine,
        definitions: &[Definition],
        workflow: &str,
        tasks: &'s BTreeMap<String, Behaviours>,
    ) -> Self {
        let mut sessions = Vec::new();
        for ((queue, language), contracts) in work_of(definitions, workflow) {
            sessions.push(enter(engine, queue, language, contracts).await);
        }
        Self { engine, tasks, sessions, held: Vec::new(), deliveries: BTreeMap::new(), next_beat: Instant::now() }
    }

    /// Whether somebody works, so that time should not leap.
    pub(crate) fn is_busy(&self) -> bool {
        !self.held.is_empty()
    }

    /// When the next report is due.
    pub(crate) fn next_report(&self) -> Option<Instant> {
        self.held.iter().filter_map(|held| held.done).min()
    }

    /// Fetches, beats and reports; says whether anything was done.
    pub(crate) async fn work(&mut self) -> Result<bool, Error> {
        if Instant::now() >= self.next_beat {
            self.beat().await?;
            self.next_beat = Instant::now() + BEAT;
        }
        let mut has_worked = self.report_due().await?;
        for session in self.sessions.clone() {
            let polled = self.engine.poll(session, 1_000, Duration::from_millis(2)).await?;
            for task in polled.tasks {
                has_worked = true;
                let behaviour = self.behaviour(&task);
                if behaviour.silent {
                    continue;
                }
                let takes = behaviour.takes.unwrap_or_default();
                let done = (!behaviour.hold).then(|| Instant::now() + takes);
                self.held.push(Held { session, task, behaviour, done });
            }
        }
        Ok(has_worked | self.report_due().await?)
    }

    /// What becomes of a delivery: by its unit, its step, or its contract.
    fn behaviour(&mut self, task: &Task) -> Behaviour {
        let unit = task.token.delivery.unit.to_string();
        let step = unit.split('[').next().expect("a split has a first part");
        let keys = [unit.as_str(), step, &*task.delivery.contract];
        let Some((key, behaviours)) = keys.into_iter().find_map(|key| self.tasks.get_key_value(key)) else {
            return Behaviour::default();
        };
        let count = self.deliveries.entry(key).or_default();
        *count += 1;
        behaviours.of(*count - 1).clone()
    }

    async fn beat(&mut self) -> Result<(), Error> {
        for session in self.sessions.clone() {
            let of_session = |held: &&Held| held.session == session;
            let tokens = self.held.iter().filter(of_session).map(|held| HeldToken {
                token: held.task.token.clone(),
                progress: held.behaviour.progress.as_ref().map(|progress| Payload::from_json(progress.to_string())),
                beat: held.behaviour.beats,
            });
            let answer = self.engine.heartbeat(session, tokens.collect()).await?;
            // Who only holds a task lets it go; others go on and report all the same.
            self.held.retain(|held| !(held.behaviour.hold && answer.stop.contains(&held.task.token)));
        }
        Ok(())
    }

    async fn report_due(&mut self) -> Result<bool, Error> {
        let now = Instant::now();
        let (due, rest) =
            std::mem::take(&mut self.held).into_iter().partition(|held| held.done.is_some_and(|at| at <= now));
        self.held = rest;
        let due: Vec<Held> = due;
        for held in &due {
            let report = report(&held.behaviour, &held.task);
            self.engine.report(held.task.token.clone(), report).await?;
        }
        Ok(!due.is_empty())
    }

    pub(crate) async fn leave(self) {
        for session in self.sessions {
            self.engine.unregister(session).await.unwrap();
        }
    }
}

/// Registers one worker.
pub(crate) async fn enter(
    engine: &Engine,
    queue: &str,
    language: &str,
    contracts: impl IntoIterator<Item = &str>,
) -> SessionId {
    let registration = Registration {
        worker_id: Arc::from(format!("{language} at {queue}")),
        language: language.into(),
        sdk: Arc::from("script"),
        build: Arc::from("1"),
        queues: vec![queue.into()],
        contracts: contracts.into_iter().map(Arc::from).collect(),
        slots: 1_000,
        message_bytes_max: 4 << 20,
        previous_session: None,
    };
    engine.register(registration).await.unwrap().session
}

/// The contracts that a workflow and its children use, by queue and language.
fn work_of<'d>(definitions: &'d [Definition], workflow: &'d str) -> BTreeMap<(&'d str, &'d str), BTreeSet<&'d str>> {
    let mut found: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    let mut workflows = vec![workflow];
    let mut next = 0;
    while let Some(name) = workflows.get(next).copied() {
        next += 1;
        let of_name = definitions.iter().filter(|definition| *definition.name == *name);
        for step in of_name.flat_map(|definition| &definition.steps) {
            match &step.action {
                Action::Task(task) => {
                    let language = task.language.as_deref().unwrap_or("python");
                    found.entry((&*task.queue, language)).or_default().insert(&task.contract);
                }
                Action::Child(child) if !workflows.contains(&&*child.workflow) => workflows.push(&child.workflow),
                _ => {}
            }
        }
    }
    found
}

fn report(behaviour: &Behaviour, task: &Task) -> Report {
    if behaviour.release {
        return Report::Release;
    }
    match &behaviour.fail {
        Some(code) => {
            let (code, message) = (Arc::from(code.as_str()), Arc::from("scripted"));
            let failure = Failure { code, message, details: None, unit: Arc::from("") };
            Report::Fail { failure, retryable: behaviour.retryable, retry_after: behaviour.retry_after }
        }
        None => {
            let input: Value = serde_json::from_str(task.delivery.input.as_str()).expect("an input is JSON");
            Report::Complete { output: Payload::from_json(filled(&behaviour.give, &input).to_string()) }
        }
    }
}

/// The value with what it takes from the input.
fn filled(value: &Value, input: &Value) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix('$') {
            Some(path) => path.split('.').fold(input, |value, name| &value[name]).clone(),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(|item| filled(item, input)).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), filled(value, input))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
