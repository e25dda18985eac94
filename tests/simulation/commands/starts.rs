//! What makes executions: starts, again and with other inputs, with signals, and reruns.

use super::{PAYLOADS, STARTS_MAX, tells_that_it_is_gone};
use crate::{
    coverage::Command,
    harness::{arc, json, request, start_of},
    node::Server,
    world::World,
};
use orbit::domain::{ExecutionId, Rejection, decide::StartSignal};
use orbit::engine::{Error, RerunExecution, StartExecution, input_digest};
use std::collections::BTreeMap;

impl World {
    pub(super) fn start(&mut self, server: &Server) {
        if self.starts.len() >= STARTS_MAX || self.random.one_in(3) {
            return self.start_again(server, Command::Start);
        }
        let number = self.starts.len();
        let request = (!self.random.one_in(3)).then(|| request(&format!("start {number}"), "1"));
        let call = StartExecution { request, ..self.new_start() };
        self.starts.push(call.clone());
        self.send_start(server, Command::Start, call);
        // Now and then twice at once.
        if self.random.one_in(4) {
            let other = self.some_server();
            self.start_again(&other, Command::Start);
        }
    }

    /// A start of something new.
    fn new_start(&mut self) -> StartExecution {
        let workflow = self.random.below(self.workflows.len());
        let workflow = self.workflows[workflow].definition.name.clone();
        let input = *self.random.pick(&["{}", "{\"x\":1}"]);
        start_of(&workflow, &format!("e{}", self.starts.len()), input)
    }

    /// A start that brings a signal: of something new, or of what may be there; or one that was called before.
    pub(super) fn start_with_signal(&mut self, server: &Server) {
        if self.random.one_in(4) {
            let known = self.signal_starts.clone();
            let id_of = |call: &StartExecution| call.id.as_ref().unwrap().as_str().into();
            let Some((call, _)) = self.some(known, id_of) else { return };
            return self.send_start_with_signal(server, call);
        }
        let mut call = if self.starts.len() >= STARTS_MAX || !self.random.one_in(4) {
            let calls = self.starts.clone();
            let id_of = |call: &StartExecution| call.id.as_ref().unwrap().as_str().into();
            let Some((call, _)) = self.some(calls, id_of) else { return };
            call
        } else {
            let call = self.new_start();
            self.starts.push(call.clone());
            call
        };
        let payload = *self.random.pick(&PAYLOADS);
        call.signal = Some(StartSignal { name: arc("s"), payload: json(payload) });
        let key = format!("signal start {}", self.random.next());
        call.request = self.random.one_in(2).then(|| request(&key, payload));
        if call.request.is_some() {
            self.signal_starts.push(call.clone());
        }
        self.send_start_with_signal(server, call);
    }

    fn send_start_with_signal(&self, server: &Server, call: StartExecution) {
        let id = call.id.clone().unwrap();
        let may_go = self.deletable.as_ref() == Some(&call.workflow);
        let engine = server.engine.clone();
        // The event of one that comes with what it makes carries no request.
        self.shared().journal.signal_sent(id.as_str());
        let was_known = call.request.is_some_and(|key| self.shared().journal.knows(&key));
        Self::send(server, Command::StartSignal, self.state_of(id.as_str()), |desk| async move {
            let (request, payload) = (call.request, call.signal.as_ref().unwrap().payload.clone());
            match engine.start_execution(call).await {
                Ok(_) if may_go => {}
                Ok(started) => desk.journal(|journal| journal.start_with_signal(&started, payload, request)),
                Err(error) => {
                    let is_refusal = matches!(
                        error,
                        Error::Rejected(Rejection::ExecutionClosed { .. } | Rejection::SignalBufferFull { .. })
                    );
                    let is_gone = may_go && tells_that_it_is_gone(&error);
                    desk.error(&error, is_refusal && !was_known || is_gone);
                }
            }
        });
    }

    pub(super) fn start_again(&mut self, server: &Server, command: Command) {
        let is_right = |call: &&StartExecution| command != Command::StartRepeat || call.request.is_some();
        let calls: Vec<StartExecution> = self.starts.iter().filter(is_right).cloned().collect();
        let id_of = |call: &StartExecution| call.id.as_ref().unwrap().as_str().into();
        let Some((mut call, of)) = self.some(calls, id_of) else { return };
        if command == Command::StartOther {
            if of.is_none() {
                return;
            }
            call.input = json("[7]");
            call.input_digest = input_digest(&call.workflow, "[7]");
        }
        if command != Command::StartRepeat {
            call.request = None;
        }
        self.send_start(server, command, call);
    }

    fn send_start(&self, server: &Server, command: Command, call: StartExecution) {
        let id = call.id.clone().unwrap();
        let (of, has_request) = (self.state_of(id.as_str()), call.request.is_some());
        let may_go = self.deletable.as_ref() == Some(&call.workflow);
        let engine = server.engine.clone();
        Self::send(server, command, of, |desk| async move {
            match engine.start_execution(call).await {
                Ok(started) => desk.journal(|journal| {
                    journal.start(&started, has_request, may_go);
                    if command == Command::StartOther && !may_go {
                        journal.faults.push(format!("{} was started with another input", started.id));
                    }
                }),
                Err(error) => {
                    // An id that was free again may have been taken with the other input.
                    let is_other = command == Command::StartOther || may_go;
                    let is_expected = is_other && matches!(error, Error::ExecutionAlreadyExists { .. });
                    desk.error(&error, is_expected);
                }
            }
        });
    }

    /// Repeats an execution from a step on, or asks for a repeat that was asked for before.
    pub(super) fn rerun(&mut self, server: &Server) {
        let number = self.starts.len() + self.reruns.len();
        if number >= STARTS_MAX || self.random.one_in(3) {
            let reruns = self.reruns.clone();
            let Some((call, _)) = self.some(reruns, |call| call.source.id.as_str().into()) else { return };
            return self.send_rerun(server, call);
        }
        let Some(target) = self.some_execution() else { return };
        let call = RerunExecution {
            source: target.name,
            from_step: arc(self.random.pick::<&str>(&["s0", "s1", "s2", "s5"])),
            input: None,
            id: Some(ExecutionId::parse(&format!("r{number}")).unwrap()),
            labels: BTreeMap::new(),
            request: self.random.one_in(2).then(|| request(&format!("rerun {number}"), "1")),
            trace_parent: arc(""),
        };
        self.reruns.push(call.clone());
        self.send_rerun(server, call);
    }

    fn send_rerun(&self, server: &Server, call: RerunExecution) {
        // An id stands for the same execution as when it was called, unless it may be another's.
        let Some(target) = self.target_of(call.source.id.as_str()) else { return };
        let engine = server.engine.clone();
        Self::send(server, Command::Rerun, Some(target.state), |desk| async move {
            let has_request = call.request.is_some();
            match engine.rerun(call).await {
                Ok(started) => desk.journal(|journal| journal.start(&started, has_request, target.may_go)),
                Err(error) => {
                    let is_taken = target.may_go && matches!(error, Error::ExecutionAlreadyExists { .. });
                    let is_refusal = matches!(error, Error::StepNotFound { .. }) || is_taken;
                    desk.error(&error, target.expects(&error, is_refusal));
                }
            }
        });
    }
}
