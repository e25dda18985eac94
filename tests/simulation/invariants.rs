//! What must be true of every store at every moment, and of every state that was read.

use orbit::domain::{Event, EventKind, ExecutionKey, Phase, State, Uid, Unit, definition::Definition};
use orbit::engine::Standing;
use orbit::store::{ExecutionRow, ExecutionState, HistoryRow, ListFilter, MemoryStore, Pool, ReadyRow, Store};
use orbit::wire::event::decode_batch;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

/// One execution as the store has it.
pub(crate) struct History {
    pub(crate) row: ExecutionRow,
    pub(crate) events: Vec<Event>,
    rows: Vec<HistoryRow>,
}

impl History {
    /// All that happened, for people.
    pub(crate) fn story(&self) -> String {
        let row = &self.row;
        let mut text =
            format!("{} ({}, {}) is {:?} and due at {:?}", row.id, row.uid, row.workflow, row.state, row.wake_time);
        for event in &self.events {
            let _ = write!(text, "\n  {} {:?} {:?}", event.number, event.time, event.kind);
        }
        text
    }

    /// Whether it was taken up again after a close.
    pub(crate) fn was_reopened(&self) -> bool {
        self.events.iter().any(|event| matches!(event.kind, EventKind::ExecutionReopened { .. }))
    }
}

/// All of them.
pub(crate) struct Histories {
    by_key: BTreeMap<ExecutionKey, History>,
    by_uid: BTreeMap<Uid, ExecutionKey>,
}

impl Histories {
    pub(crate) async fn read(store: &MemoryStore) -> Self {
        let (mut by_key, mut by_uid) = (BTreeMap::new(), BTreeMap::new());
        for row in store.list(&ListFilter::default(), None, 10_000).await.unwrap().rows {
            by_uid.insert(row.uid, row.key);
            by_key.insert(row.key, history(store, row).await);
        }
        Self { by_key, by_uid }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &History> {
        self.by_key.values()
    }

    pub(crate) fn by_key(&self, key: ExecutionKey) -> &History {
        &self.by_key[&key]
    }

    pub(crate) fn find(&self, key: ExecutionKey) -> Option<&History> {
        self.by_key.get(&key)
    }

    pub(crate) fn by_uid(&self, uid: Uid) -> Option<&History> {
        self.by_uid.get(&uid).map(|key| &self.by_key[key])
    }

    pub(crate) fn event(&self, uid: Uid, number: u64) -> &Event {
        let history = self.by_uid(uid).expect("what is in the journal is in the store");
        let found = history.events.get(usize::try_from(number).unwrap() - 1);
        found.unwrap_or_else(|| panic!("event {number} of {} is lost", history.row.id))
    }

    pub(crate) fn has(&self, uid: Uid, is_it: impl Fn(&EventKind) -> bool) -> bool {
        self.by_uid(uid).is_some_and(|history| history.events.iter().any(|event| is_it(&event.kind)))
    }

    /// The history of the execution of an id.
    pub(crate) fn by_id(&self, id: &str) -> Option<&History> {
        self.all().find(|history| *history.row.id == *id)
    }

    /// Nothing that was there is gone or has changed, but what may be deleted.
    pub(crate) fn goes_on_from(&self, earlier: &Self, deletable: Option<&str>) {
        for (key, before) in &earlier.by_key {
            let Some(now) = self.by_key.get(key) else {
                assert_eq!(Some(&*before.row.workflow), deletable, "{} has gone away", before.row.id);
                continue;
            };
            assert!(now.rows.starts_with(&before.rows), "history of {} has changed", before.row.id);
            let is_reopened = |event: &Event| matches!(event.kind, EventKind::ExecutionReopened { .. });
            let stays = !now.events[before.events.len()..].iter().any(is_reopened);
            if before.row.state.is_closed() && stays {
                let kept = ExecutionRow { wake_time: before.row.wake_time, ..now.row.clone() };
                assert_eq!(kept, before.row, "a closed execution's row stays as it is");
            }
        }
    }

    /// A digest of everything, to compare two runs.
    pub(crate) fn digest(&self) -> [u8; 16] {
        let text: Vec<String> = self.all().map(|history| format!("{:?} {:?}", history.row, history.rows)).collect();
        let parts: Vec<&[u8]> = text.iter().map(String::as_bytes).collect();
        orbit::domain::digest16(&parts)
    }
}

async fn history(store: &MemoryStore, row: ExecutionRow) -> History {
    let rows = store.history(row.key, 0, 100_000, usize::MAX).await.unwrap();
    let mut events = Vec::new();
    for stored in &rows {
        let decoded = decode_batch(&stored.events, stored.format, &|_| None).expect("what was written is readable");
        assert_eq!(decoded.first().map(|event| event.number), Some(stored.first_number));
        assert_eq!(decoded.last().map(|event| event.number), Some(stored.last_number));
        events.extend(decoded);
    }
    History { row, events, rows }
}

/// The state after the first `count` events.
pub(crate) fn replay(definition: &Arc<Definition>, events: &[Event], count: usize) -> State {
    let mut state = State::begin(definition.clone(), &events[0]);
    for event in &events[1..count] {
        state.evolve(event);
    }
    state
}

/// A state that was read is the one that the history gives, and no older than when it was asked for.
pub(crate) fn check_standing(standing: &Standing, histories: &Histories, least: u64) {
    let history = histories.by_key(standing.row.key);
    let count = usize::try_from(standing.state.last_number()).unwrap();
    assert!(count <= history.events.len(), "{} was read ahead of its history", history.row.id);
    assert!(count as u64 >= least, "{} was read at event {count}, when {least} was there already", history.row.id);
    let replayed = replay(standing.state.definition(), &history.events, count);
    assert_eq!(*standing.state, replayed, "the live state of {} is not what its history gives", history.row.id);
    assert_eq!(standing.row.state, state_of(&replayed));
    assert_eq!(standing.row.close_time, replayed.close_time());
}

/// Everything that one moment of a store can be held to.
pub(crate) async fn check(
    store: &MemoryStore,
    definitions: &BTreeMap<Arc<str>, Arc<Definition>>,
    pools: &[Pool],
) -> Histories {
    let histories = Histories::read(store).await;
    let mut counts: BTreeMap<ExecutionState, u64> = BTreeMap::new();
    let mut ready: BTreeSet<(ExecutionKey, Unit)> = BTreeSet::new();
    for pool in pools {
        let rows: Vec<ReadyRow> = store.ready(pool, 100_000).await.unwrap();
        for row in rows {
            assert!(ready.insert((row.execution, row.unit.unit.clone())), "a unit waits twice");
        }
    }
    for history in histories.all() {
        *counts.entry(history.row.state).or_default() += 1;
        let definition = &definitions[&history.row.workflow];
        check_history(history, definition);
        let state = replay(definition, &history.events, history.events.len());
        assert_eq!(history.row.state, state_of(&state), "the row of {} says another state", history.row.id);
        assert_eq!(history.row.close_time, state.close_time());
        assert_eq!(history.row.quarantined, None, "{} was set aside", history.row.id);
        let waiting: BTreeSet<_> = state.waiting().map(|waiting| (history.row.key, waiting.unit)).collect();
        let rows: BTreeSet<_> = ready.iter().filter(|(key, _)| *key == history.row.key).cloned().collect();
        assert_eq!(rows, waiting, "ready rows of {} are not what waits", history.row.id);
        if let Some(deadline) = state.deadline() {
            let wake_time = history.row.wake_time;
            assert!(
                wake_time.is_some_and(|time| time <= deadline),
                "{} is woken at {wake_time:?}, later than {deadline:?}",
                history.row.id
            );
        }
        if state.is_closed() && !state.has_pending() {
            assert_eq!(history.row.wake_time, None, "{} has nothing left to do", history.row.id);
        }
    }
    let stored = store.count().await.unwrap();
    counts.retain(|_, count| *count > 0);
    let stored: BTreeMap<_, _> = stored.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(stored, counts, "counters are not what there is");
    histories
}

/// Numbers without gaps, times that never go back, each unit resolved once in a run and a generation (but for what turns
/// out to have worked before it is undone), nothing after the close but a retry and what others are told.
fn check_history(history: &History, definition: &Definition) {
    // With whether it is a success.
    let mut resolved: BTreeMap<Unit, bool> = BTreeMap::new();
    let (mut winds_down, mut undone) = (false, BTreeSet::new());
    let mut accepted = BTreeSet::new();
    let mut is_closed = false;
    for (position, event) in history.events.iter().enumerate() {
        assert_eq!(event.number, position as u64 + 1, "numbers of {} have a gap", history.row.id);
        assert!(position == 0 || event.time >= history.events[position - 1].time, "time went back");
        let may_be = !is_closed || event.kind.follows_close();
        assert!(may_be, "{:?} follows the close: {}", event.kind, history.story());
        match &event.kind {
            EventKind::StepSucceeded { unit, .. }
            | EventKind::StepFailed { unit, .. }
            | EventKind::StepSkipped { unit, .. }
            | EventKind::StepCancelled { unit } => {
                let is_well = matches!(&event.kind, EventKind::StepSucceeded { .. });
                let before = resolved.insert(unit.clone(), is_well);
                // A success of what had an unknown outcome is taken until it is undone.
                let step = definition.steps.iter().find(|step| *step.id == *step_of(unit));
                let has_undo = step.is_some_and(|step| step.compensation.is_some());
                let may_follow = before == Some(false) && is_well && winds_down && has_undo && !undone.contains(unit);
                assert!(before.is_none() || may_follow, "{unit} was resolved twice: {}", history.story());
            }
            EventKind::StepDispatched { unit, delivery, .. } => {
                assert!(accepted.insert((unit.clone(), *delivery)), "a delivery number was used twice");
                let is_over = resolved.contains_key(unit);
                assert!(!is_over, "{unit} was handed out after its end: {}", history.story());
            }
            EventKind::ExecutionSucceeded { .. }
            | EventKind::ExecutionFailed { .. }
            | EventKind::ExecutionCancelled
            | EventKind::ExecutionTimedOut
            | EventKind::ExecutionTerminated { .. } => is_closed = true,
            // Its units are others.
            EventKind::RunStarted(_) => {
                resolved.clear();
                undone.clear();
            }
            EventKind::WindDownStarted { .. } => winds_down = true,
            EventKind::StepScheduled { unit, .. } | EventKind::ChildRequested { unit, .. } => {
                if let Some(of) = unit.strip_prefix("compensate:") {
                    undone.insert(Unit::from(of));
                }
            }
            EventKind::ExecutionReopened { steps, .. } => {
                (is_closed, winds_down) = (false, false);
                undone.clear();
                // Undoing and handlers are as if they had never been.
                resolved.retain(|unit, _| !unit.contains(':') || unit.starts_with("on_event:"));
                for step in steps {
                    let whole = step.items.is_empty();
                    resolved.retain(|unit, _| {
                        let of_step = unit.strip_prefix(&*step.unit);
                        let is_whole = of_step.is_some_and(|rest| rest.is_empty() || rest.starts_with('['));
                        let is_item = step.items.iter().any(|item| **unit == *format!("{}[{item}]", step.unit));
                        !(if whole { is_whole } else { is_item || *unit == step.unit })
                    });
                }
            }
            EventKind::ExecutionCreated(_)
            | EventKind::TaskHeld { .. }
            | EventKind::DeliveryEnded { .. }
            | EventKind::AttemptFailed { .. }
            | EventKind::SleepStarted { .. }
            | EventKind::AwaitStarted { .. }
            | EventKind::SignalReceived { .. }
            | EventKind::SignalExpired { .. }
            | EventKind::LateSuccess { .. }
            | EventKind::ChildStarted { .. }
            | EventKind::ChildCancelSent { .. }
            | EventKind::SignalRequested { .. }
            | EventKind::ParentTold
            | EventKind::DeletionBegan
            | EventKind::FanOutStarted { .. }
            | EventKind::FanOutEnded { .. }
            | EventKind::ExecutionPaused { .. }
            | EventKind::ExecutionResumed
            | EventKind::ContinuedAsNew { .. }
            | EventKind::EventTaken { .. }
            | EventKind::Woke => {}
        }
    }
}

/// The step of a unit.
fn step_of(unit: &str) -> &str {
    unit.split_once('[').map_or(unit, |(step, _)| step)
}

fn state_of(state: &State) -> ExecutionState {
    match state.phase() {
        Phase::Running if state.is_paused() => ExecutionState::Paused,
        Phase::Running => ExecutionState::Running,
        Phase::WindingDown => ExecutionState::WindingDown,
        Phase::Succeeded => ExecutionState::Succeeded,
        Phase::Failed => ExecutionState::Failed,
        Phase::Cancelled => ExecutionState::Cancelled,
        Phase::TimedOut => ExecutionState::TimedOut,
        Phase::Terminated => ExecutionState::Terminated,
    }
}
