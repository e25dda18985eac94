//! Callers who do what a script says, once something has happened.

use crate::{events::Line, script::Call};
use orbit::domain::{ExecutionId, Payload, Rejection, Timestamp};
use orbit::engine::{Engine, Error, ExecutionName};
use orbit::store::{ExecutionRow, ListFilter};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Executions of one story, each with its history so far.
pub(crate) struct Cast<'s> {
    engine: &'s Engine,
    /// The story's own.
    pub(crate) own: ExecutionName,
    /// Those of this story began here or later, and were not there before.
    begin: Timestamp,
    before: BTreeSet<i64>,
    pub(crate) members: Vec<Member>,
    made: BTreeSet<(usize, String)>,
}

/// One execution.
pub(crate) struct Member {
    pub(crate) name: ExecutionName,
    pub(crate) row: ExecutionRow,
    pub(crate) lines: Vec<Line>,
}

impl<'s> Cast<'s> {
    pub(crate) async fn before(engine: &'s Engine, id: &str) -> Self {
        let begin = engine.clock().now();
        let before = rows(engine, begin).await.iter().map(|row| row.key.0).collect();
        let own = name(id);
        Self { engine, own, begin, before, members: Vec::new(), made: BTreeSet::new() }
    }

    /// Reads what has happened; says whether there is anything new.
    pub(crate) async fn look(&mut self) -> bool {
        let mut is_new = false;
        for row in rows(self.engine, self.begin).await.into_iter().filter(|row| !self.before.contains(&row.key.0)) {
            let position = match self.members.iter().position(|member| member.row.key == row.key) {
                Some(position) => position,
                None => {
                    self.members.push(Member { name: name(&row.id), row: row.clone(), lines: Vec::new() });
                    self.members.len() - 1
                }
            };
            let member = &mut self.members[position];
            member.row = row;
            loop {
                let known = u64::try_from(member.lines.len()).expect("few events");
                let events = self.engine.events(&member.name, known, 10_000).await.unwrap();
                if events.is_empty() {
                    break;
                }
                is_new = true;
                member.lines.extend(events.iter().map(Line::of));
            }
        }
        is_new
    }

    pub(crate) fn own(&self) -> &Member {
        self.members.iter().find(|member| member.row.id.as_ref() == self.own.id.as_str()).expect("it was started")
    }

    pub(crate) fn are_all_closed(&self) -> bool {
        self.members.iter().all(|member| member.row.state.is_closed())
    }

    /// Children, of children too, of this workflow.
    pub(crate) fn children<'c>(&'c self, workflow: &'c str) -> impl Iterator<Item = &'c Member> {
        self.members.iter().filter(move |member| &*member.row.workflow == workflow && member.row.id.starts_with('~'))
    }

    /// Makes the calls whose time has come. Says whether any was made, and when the next one is, in microseconds.
    pub(crate) async fn call(&mut self, calls: &[Call], now: i64) -> Result<(bool, Option<i64>), String> {
        let mut next: Option<i64> = None;
        let mut due: Vec<((usize, String), &Call, ExecutionName)> = Vec::new();
        for (number, call) in calls.iter().enumerate() {
            for member in self.meant(call) {
                let key = (number, if call.each { member.row.id.to_string() } else { String::new() });
                if self.made.contains(&key) || due.iter().any(|(known, ..)| *known == key) {
                    continue;
                }
                let Some(cause) = cause(call, &member.lines) else { continue };
                let at = cause + i64::try_from(call.later.unwrap_or(Duration::ZERO).as_micros()).expect("it is short");
                if at <= now {
                    due.push((key, call, member.name.clone()));
                } else {
                    next = Some(next.map_or(at, |next| next.min(at)));
                }
            }
        }
        let is_any = !due.is_empty();
        for (key, call, target) in due {
            self.made.insert(key);
            make(self.engine, call, &target, &self.own).await.map_err(|error| format!("{call:?}: {error}"))?;
        }
        Ok((is_any, next))
    }

    /// The executions that a call may be about.
    fn meant<'c>(&'c self, call: &'c Call) -> Vec<&'c Member> {
        let Some(workflow) = &call.of else { return vec![self.own()] };
        let is_meant = |member: &&Member| {
            let input = member.lines.first().map(|line| &line.body["input"]);
            call.except.is_empty() || !call.except.iter().all(|(name, value)| input.is_some_and(|i| &i[name] == value))
        };
        self.children(workflow).filter(is_meant).collect()
    }
}

/// When the event happened that a call waits for, in microseconds.
fn cause(call: &Call, lines: &[Line]) -> Option<i64> {
    let lines = match &call.after {
        None => lines.first(),
        Some(pattern) => lines.iter().filter(|line| line.is(pattern)).nth(call.times - 1),
    };
    lines.map(|line| line.time)
}

async fn make(engine: &Engine, call: &Call, target: &ExecutionName, own: &ExecutionName) -> Result<(), Error> {
    let text = |text: &Option<String>| text.as_deref().map(Arc::from);
    if let Some(signal) = text(&call.signal) {
        engine.signal(target, signal, Payload::from_json(call.payload.to_string()), None, None).await?;
    }
    if let Some(reason) = text(&call.cancel) {
        engine.cancel(target, reason, None).await?;
    }
    if let Some(reason) = text(&call.cancel_parent) {
        engine.cancel(own, reason, None).await?;
    }
    if let Some(reason) = text(&call.pause) {
        engine.pause(target, reason, None).await?;
    }
    if call.resume {
        engine.resume(target, None).await?;
    }
    if call.retry {
        engine.retry(target, None).await?;
    }
    if let Some(reason) = text(&call.terminate) {
        match engine.terminate(target, reason, None).await {
            Ok(_) | Err(Error::Rejected(Rejection::ExecutionClosed { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn rows(engine: &Engine, begin: Timestamp) -> Vec<ExecutionRow> {
    let filter = ListFilter { start_from: Some(begin), ..ListFilter::default() };
    engine.store().list(&filter, None, 1_000).await.unwrap().rows
}

fn name(id: &str) -> ExecutionName {
    ExecutionName { id: ExecutionId::parse(id).unwrap_or_else(|| panic!("{id:?} is no id")), uid: None }
}

/// The histories by name, for a failure's message.
pub(crate) fn told(members: &[Member]) -> String {
    let mut out = String::new();
    for member in members {
        out.push_str(&format!("  {} of {} ({:?})\n", member.row.id, member.row.workflow, member.row.state));
        for (number, line) in member.lines.iter().enumerate() {
            let body: BTreeMap<&str, &serde_json::Value> = member_fields(&line.body);
            let body = serde_json::to_string(&body).expect("values are JSON");
            let body: String = body.chars().take(160).collect();
            out.push_str(&format!("    {:>3} {} {body}\n", number + 1, line.text));
        }
    }
    out
}

fn member_fields(body: &serde_json::Value) -> BTreeMap<&str, &serde_json::Value> {
    const TOLD: [&str; 8] = ["input", "output", "failure", "reason", "name", "payload", "cause", "retryTime"];
    let members = body.as_object().into_iter().flatten();
    members.filter(|(name, _)| TOLD.contains(&name.as_str())).map(|(name, value)| (name.as_str(), value)).collect()
}
