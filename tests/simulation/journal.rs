//! What callers and workers were told: the oracle is this, not the database.
//!
//! Whatever was acknowledged must be in the history, then and for ever; whatever was refused must not.

use crate::{
    definitions::WRONG_OUTPUT,
    invariants::{Histories, History},
    world::is_gone,
};
use orbit::domain::{
    DeliveryRef, EndReason, Event, EventKind, ExecutionKey, Payload, RefusalReason, ReportOutcome, RequestKey,
    TaskToken, Uid, code,
};
use orbit::engine::{Standing, Started};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use uuid::Uuid;

/// What a report says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Content {
    Complete(Payload),
    Fail,
    Release,
}

/// What an acknowledged call did.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Call {
    Signal { payload: Payload },
    Cancel,
    Terminate,
    Pause,
    Unpause,
    Retry,
}

/// All that was acknowledged.
#[derive(Default)]
pub(crate) struct Journal {
    /// Uid of each id that was started.
    started: BTreeMap<Arc<str>, Uid>,
    /// What is deleted, as was said.
    deleted: BTreeSet<Uid>,
    /// The batch of each request for one.
    batches: BTreeMap<[u8; 16], Uuid>,
    /// Whether a start with a `request_id` was said to have made it, by id.
    created: BTreeMap<Arc<str>, bool>,
    /// What each start with a signal and a `request_id` was said to have done.
    signal_starts: BTreeMap<[u8; 16], (Uid, bool, Option<u64>)>,
    recorded: Vec<(Uid, u64, Call, Option<RequestKey>)>,
    by_request: BTreeMap<[u8; 16], u64>,
    /// How many signals without a `request_id` were sent to each id.
    signals_sent: BTreeMap<Arc<str>, usize>,
    reported: Vec<(TaskToken, Content, ReportOutcome)>,
    received: BTreeSet<TaskToken>,
    watched: Vec<(ExecutionKey, Vec<Event>)>,
    /// States that were read, to be compared with the history, and the number of the newest event when they were asked
    /// for.
    pub(crate) read: Vec<(Standing, u64)>,
    /// What should never be answered.
    pub(crate) faults: Vec<String>,
}

impl Journal {
    /// A start was answered; if its execution may be deleted, its id may be another's later.
    pub(crate) fn start(&mut self, started: &Started, has_request: bool, may_go: bool) {
        let Started { id, uid, .. } = started;
        if may_go {
            return;
        }
        let known = *self.started.entry(id.clone()).or_insert(*uid);
        if known != *uid {
            self.faults.push(format!("{id} was {known}, now it is {uid}"));
        }
        if has_request && *self.created.entry(id.clone()).or_insert(started.created) != started.created {
            self.faults.push(format!("the same request to start {id} had another answer before"));
        }
    }

    /// A start with a signal was answered.
    pub(crate) fn start_with_signal(&mut self, started: &Started, payload: Payload, request: Option<RequestKey>) {
        self.start(started, false, false);
        let answer = (started.uid, started.created, started.signal_number);
        let number = started.signal_number.unwrap_or_default();
        let call = Call::Signal { payload };
        let Some(request) = request else { return self.record(started.uid, number, call, None) };
        self.by_request.insert(request.key, number);
        let known = *self.signal_starts.entry(request.key).or_insert(answer);
        if known != answer {
            self.faults.push(format!("the same start with a signal did {known:?}, and now {answer:?}"));
        }
        // The first event of what it made has its request.
        self.recorded.push((started.uid, number, call, (!started.created).then_some(request)));
    }

    pub(crate) fn deleted(&mut self, uid: Uid) {
        self.deleted.insert(uid);
    }

    pub(crate) fn batch(&mut self, id: Uuid, request: Option<RequestKey>) {
        let Some(request) = request else { return };
        let known = *self.batches.entry(request.key).or_insert(id);
        if known != id {
            self.faults.push(format!("a batch was {known}, now it is {id}"));
        }
    }

    pub(crate) fn record(&mut self, uid: Uid, number: u64, call: Call, request: Option<RequestKey>) {
        if let Some(request) = request {
            let known = *self.by_request.entry(request.key).or_insert(number);
            if known != number {
                self.faults.push(format!("{call:?} was event {known}, now it is {number}"));
            }
        }
        let is_taken = |known: &(Uid, u64, Call, Option<RequestKey>)| (known.0, known.1) == (uid, number);
        if request.is_none() && matches!(call, Call::Signal { .. }) && self.recorded.iter().any(is_taken) {
            self.faults.push(format!("{call:?} was said to be event {number}, which is another's"));
        }
        self.recorded.push((uid, number, call, request));
    }

    pub(crate) fn signal_sent(&mut self, id: &str) {
        *self.signals_sent.entry(id.into()).or_default() += 1;
    }

    /// Whether a call with this request was acknowledged.
    pub(crate) fn knows(&self, request: &RequestKey) -> bool {
        self.by_request.contains_key(&request.key)
    }

    pub(crate) fn report(&mut self, token: TaskToken, content: Content, outcome: ReportOutcome) {
        let before = (token.clone(), content.clone(), ReportOutcome::Accepted);
        if outcome == ReportOutcome::Accepted && self.reported.contains(&before) {
            self.faults.push(format!("{content:?} of {token:?} was accepted twice"));
        }
        self.reported.push((token, content, outcome));
    }

    pub(crate) fn receive(&mut self, token: &TaskToken) {
        if !self.received.insert(token.clone()) {
            self.faults.push(format!("{token:?} was handed out twice"));
        }
    }

    /// What a watch gave after this number; if nothing disturbed it, at least what there was when it began.
    pub(crate) fn watch(&mut self, key: ExecutionKey, after: u64, events: Vec<Event>, least: Option<u64>) {
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        if !numbers.iter().copied().eq((after + 1..).take(numbers.len())) {
            self.faults.push(format!("a watch after {after} gave {numbers:?}"));
        }
        let newest = numbers.last().copied().unwrap_or(after);
        if least.is_some_and(|least| newest < least) {
            self.faults.push(format!("a watch after {after} gave {numbers:?} although there was {least:?}"));
        }
        self.watched.push((key, events));
    }

    /// Holds everything against the histories.
    pub(crate) fn check(&self, histories: &Histories, deletable: Option<&str>) {
        let is_gone = |uid: Uid| is_gone(histories, uid, deletable);
        for uid in &self.deleted {
            assert!(histories.by_uid(*uid).is_none(), "{uid} is there, though it was said to be deleted");
        }
        assert!(self.faults.is_empty(), "{:#?}", self.faults);
        for (id, uid) in &self.started {
            let found = histories.by_uid(*uid);
            assert!(found.is_some_and(|history| history.row.id == *id), "the accepted start of {id} ({uid}) is lost");
        }
        for (uid, number, call, request) in &self.recorded {
            let event = histories.event(*uid, *number);
            let is_it = match (&event.kind, call) {
                (EventKind::SignalReceived { payload, .. }, Call::Signal { payload: sent }) => payload == sent,
                (EventKind::WindDownStarted { .. }, Call::Cancel) => true,
                (EventKind::ExecutionTerminated { .. }, Call::Terminate)
                | (EventKind::ExecutionPaused { .. }, Call::Pause)
                | (EventKind::ExecutionResumed, Call::Unpause)
                | (EventKind::ExecutionReopened { .. }, Call::Retry) => true,
                _ => false,
            };
            assert!(is_it, "{call:?} was said to be {event:?}");
            // A second cancel or pause is answered with the first one's event.
            let is_shared = matches!(call, Call::Cancel | Call::Pause);
            let is_named = request.is_none() || event.request == *request || is_shared;
            assert!(is_named, "{event:?} does not carry {request:?}");
        }
        for history in histories.all() {
            let (mut unnamed, mut named) = (0, BTreeSet::new());
            for event in &history.events {
                match (&event.kind, event.request) {
                    (EventKind::SignalReceived { sender: None, .. }, None) => unnamed += 1,
                    (EventKind::SignalReceived { .. }, Some(request)) => {
                        assert!(named.insert(request.key), "a signal to {} is there twice", history.row.id);
                    }
                    _ => {}
                }
            }
            let sent = self.signals_sent.get(&history.row.id).copied().unwrap_or(0);
            assert!(unnamed <= sent, "{} has {unnamed} signals of {sent} that were sent", history.row.id);
        }
        for (token, content, outcome) in self.reported.iter().filter(|(token, ..)| !is_gone(token.uid)) {
            self.check_report(histories, token, content, *outcome);
        }
        for token in self.received.iter().filter(|token| !is_gone(token.uid)) {
            let is_it = |kind: &EventKind| matches!(kind, EventKind::StepDispatched { unit, delivery, .. } if *unit == token.delivery.unit && *delivery == token.delivery.delivery);
            assert!(histories.has(token.uid, is_it), "{token:?} was handed out and is not in the history");
        }
        for (key, events) in &self.watched {
            let Some(history) = histories.find(*key).map(|history| &history.events) else {
                assert!(deletable.is_some(), "{key:?} was watched and is lost");
                continue;
            };
            for event in events {
                let number = usize::try_from(event.number).unwrap();
                assert_eq!(history.get(number - 1), Some(event), "a watch gave what is not in the history");
            }
        }
    }

    fn check_report(&self, histories: &Histories, token: &TaskToken, content: &Content, outcome: ReportOutcome) {
        let of = &token.delivery;
        let is_done = |kind: &EventKind| did(kind, of, content);
        match outcome {
            ReportOutcome::Accepted | ReportOutcome::Duplicate => {
                assert!(histories.has(token.uid, is_done), "{content:?} of {of:?} was accepted and is lost");
            }
            ReportOutcome::Refused(reason) => {
                assert!(
                    !histories.has(token.uid, is_done),
                    "{content:?} of {of:?} was refused ({reason:?}) and counts"
                );
                if reason == RefusalReason::ExecutionClosed {
                    let was_closed = |history: &History| history.row.state.is_closed() || history.was_reopened();
                    assert!(histories.by_uid(token.uid).is_some_and(was_closed));
                }
            }
        }
    }
}

/// Whether an event is what a report causes.
fn did(kind: &EventKind, of: &DeliveryRef, content: &Content) -> bool {
    match (kind, content) {
        (EventKind::StepSucceeded { unit, delivery, output, report: Some(_), .. }, Content::Complete(sent)) => {
            (unit, *delivery, output) == (&of.unit, of.delivery, sent)
        }
        (EventKind::AttemptFailed { unit, delivery, failure, report: Some(_), .. }, Content::Complete(sent)) => {
            let is_wrong = sent.as_str() == WRONG_OUTPUT && &*failure.code == code::OUTPUT_INVALID;
            is_wrong && (unit, *delivery) == (&of.unit, of.delivery)
        }
        (EventKind::AttemptFailed { unit, delivery, failure, report: Some(_), .. }, Content::Fail) => {
            (unit, *delivery) == (&of.unit, of.delivery) && &*failure.code != code::OUTPUT_INVALID
        }
        (EventKind::DeliveryEnded { unit, delivery, reason: EndReason::Released, .. }, Content::Release) => {
            (unit, *delivery) == (&of.unit, of.delivery)
        }
        _ => false,
    }
}
