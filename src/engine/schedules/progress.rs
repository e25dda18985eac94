//! What a schedule's row remembers of its decisions, as JSON: the state that the rules need, and the executions that it started.
//!
//! The cursor has a column of its own. A member that an older version did not write is read as empty.

use crate::domain::schedule::{Backfill, Ending, Pause, PauseReason, Slot, SlotKind, State, Waiting};
use crate::domain::{Timestamp, Uid};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use uuid::Uuid;

/// Open executions that a schedule remembers: as many as a backfill may keep open at once, so that no decision depends on
/// whether there are more. Of more than these the oldest are remembered; the others are found when they are.
pub(super) const OPEN_MAX: usize = 100;

/// An execution that a schedule started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id.
    pub id: Arc<str>,
    /// Its uid.
    pub uid: Uid,
}

/// What a schedule remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What the rules need to know.
    pub state: State,
    /// Executions that were open when it was last looked at, oldest first.
    pub open: Vec<Run>,
    /// The one that it started last.
    pub last: Option<Run>,
}

impl Progress {
    /// Of a schedule that has decided nothing yet.
    pub(super) const fn new(state: State) -> Self {
        Self { state, open: Vec::new(), last: None }
    }

    /// Takes note of an execution that it started.
    pub(super) fn started(&mut self, run: Run) {
        if self.open.len() < OPEN_MAX {
            self.open.push(run.clone());
        }
        self.last = Some(run);
    }

    /// As it is stored.
    pub(super) fn store(&self) -> String {
        serde_json::to_string(&Stored::of(self)).expect("numbers and texts are JSON")
    }

    /// As it was stored, with the cursor; or what is wrong with it.
    pub(super) fn restore(text: &str, cursor: Timestamp) -> Result<Self, String> {
        let stored: Stored =
            serde_json::from_str(text).map_err(|error| format!("its progress cannot be read: {error}"))?;
        stored.progress(cursor)
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    actions: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<StoredPause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_time: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<StoredWaiting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    backfills: Vec<StoredBackfill>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paced_until: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    open: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct StoredPause {
    since: i64,
    note: String,
    failed: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredWaiting {
    nominal: i64,
    kind: String,
    request: String,
    ending: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredBackfill {
    request: String,
    cursor: i64,
    last: i64,
    concurrency: u32,
}

const CANCEL: &str = "cancel";
const TERMINATE: &str = "terminate";

impl Stored {
    fn of(progress: &Progress) -> Self {
        let state = &progress.state;
        let run = |run: &Run| (run.id.to_string(), run.uid.to_string());
        let pause = |Pause { since, reason }: &Pause| {
            let (note, failed) = match reason {
                PauseReason::Asked { note } => (note, false),
                PauseReason::Failure { note } => (note, true),
            };
            StoredPause { since: since.as_micros(), note: note.to_string(), failed }
        };
        let waiting = |Waiting { slot, ending }: &Waiting| StoredWaiting {
            nominal: slot.nominal.as_micros(),
            kind: slot.kind.name().to_owned(),
            request: slot.kind.request().to_owned(),
            ending: ending.map(|ending| match ending {
                Ending::Cancel => CANCEL.to_owned(),
                Ending::Terminate => TERMINATE.to_owned(),
            }),
        };
        let backfill = |backfill: &Backfill| StoredBackfill {
            request: backfill.request.to_string(),
            cursor: backfill.cursor.as_micros(),
            last: backfill.last.as_micros(),
            concurrency: backfill.concurrency,
        };
        Self {
            actions: state.actions,
            pause: state.pause.as_ref().map(pause),
            resume_time: state.resume_time.map(Timestamp::as_micros),
            waiting: state.waiting.as_ref().map(waiting),
            backfills: state.backfills.iter().map(backfill).collect(),
            paced_until: state.paced_until.map(Timestamp::as_micros),
            open: progress.open.iter().map(run).collect(),
            last: progress.last.as_ref().map(run),
        }
    }

    fn progress(self, cursor: Timestamp) -> Result<Progress, String> {
        let run = |(id, uid): (String, String)| {
            let uid = Uuid::parse_str(&uid).map_err(|_| format!("{uid:?} is no uid"))?;
            Ok::<Run, String>(Run { id: id.into(), uid: Uid(uid) })
        };
        let pause = |pause: StoredPause| {
            let note = Arc::from(pause.note);
            let reason = if pause.failed { PauseReason::Failure { note } } else { PauseReason::Asked { note } };
            Pause { since: Timestamp::from_micros(pause.since), reason }
        };
        let backfill = |backfill: StoredBackfill| Backfill {
            request: backfill.request.into(),
            cursor: Timestamp::from_micros(backfill.cursor),
            last: Timestamp::from_micros(backfill.last),
            concurrency: backfill.concurrency,
        };
        let state = State {
            cursor,
            actions: self.actions,
            pause: self.pause.map(pause),
            resume_time: self.resume_time.map(Timestamp::from_micros),
            waiting: self.waiting.map(StoredWaiting::waiting).transpose()?,
            paced_until: self.paced_until.map(Timestamp::from_micros),
            backfills: self.backfills.into_iter().map(backfill).collect(),
        };
        let open = self.open.into_iter().map(run).collect::<Result<_, _>>()?;
        Ok(Progress { state, open, last: self.last.map(run).transpose()? })
    }
}

impl StoredWaiting {
    fn waiting(self) -> Result<Waiting, String> {
        let request = Arc::from(self.request);
        let kind = match &*self.kind {
            "regular" => SlotKind::Regular,
            "trigger" => SlotKind::Trigger { request },
            "backfill" => SlotKind::Backfill { request },
            other => return Err(format!("a slot of the kind {other:?} waits, which is not known")),
        };
        let ending = match self.ending.as_deref() {
            None => None,
            Some(CANCEL) => Some(Ending::Cancel),
            Some(TERMINATE) => Some(Ending::Terminate),
            Some(other) => return Err(format!("open executions are to {other:?}, which is not known")),
        };
        Ok(Waiting { slot: Slot { nominal: Timestamp::from_micros(self.nominal), kind }, ending })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn what_is_stored_comes_back_whole() {
        let run = |number| Run { id: format!("~{number}").into(), uid: Uid(Uuid::from_u128(number)) };
        for (kind, ending, reason) in [
            (SlotKind::Regular, None, PauseReason::Asked { note: "a \"note\"".into() }),
            (SlotKind::Trigger { request: "t".into() }, Some(Ending::Cancel), PauseReason::Failure { note: "".into() }),
            (
                SlotKind::Backfill { request: "b".into() },
                Some(Ending::Terminate),
                PauseReason::Asked { note: "".into() },
            ),
        ] {
            let progress = Progress {
                state: State {
                    cursor: time(9),
                    actions: 3,
                    pause: Some(Pause { since: time(5), reason }),
                    resume_time: Some(time(4)),
                    waiting: Some(Waiting { slot: Slot { nominal: time(8), kind }, ending }),
                    paced_until: Some(time(6)),
                    backfills: vec![Backfill { request: "x".into(), cursor: time(1), last: time(2), concurrency: 4 }],
                },
                open: vec![run(1), run(2)],
                last: Some(run(2)),
            };
            assert_eq!(Progress::restore(&progress.store(), time(9)), Ok(progress));
        }
        let new = Progress::new(State::new(time(7)));
        assert_eq!((Progress::restore("{}", time(7)), &*new.store()), (Ok(new.clone()), "{\"actions\":0}"));
    }

    #[test]
    fn of_many_open_executions_the_oldest_are_remembered() {
        let mut progress = Progress::new(State::new(time(0)));
        for number in 0..150 {
            progress.started(Run { id: "~".into(), uid: Uid(Uuid::from_u128(number)) });
        }
        assert_eq!(progress.open.len(), OPEN_MAX);
        assert_eq!(progress.open[99].uid, Uid(Uuid::from_u128(99)));
        assert_eq!(progress.last.unwrap().uid, Uid(Uuid::from_u128(149)));
    }

    #[test]
    fn what_nobody_knows_is_refused_in_words() {
        let of = |text| Progress::restore(text, time(0)).unwrap_err();
        assert!(of("{").contains("cannot be read"));
        let waiting = r#"{"waiting": {"nominal": 1, "kind": "lunar", "request": "", "ending": null}}"#;
        assert!(of(waiting).contains("lunar"));
    }
}
