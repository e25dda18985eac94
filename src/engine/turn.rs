//! A turn: decides what waits in one mailbox, commits it, and answers.
//!
//! - No answer that depends on an uncommitted event leaves before that event's commit.
//! - If another writer was first, the state is loaded again and the commands are decided again, with growing random
//!   pauses; then, after about half a second, `WriteConflict`.
//! - Where other nodes write, an answer without an append is of a state that was the newest after the question came.
//! - A panic drops the state, and the commands are decided one by one, so that the guilty one stands alone: it is
//!   answered `Internal`, and an execution that cannot even be woken is set aside.

use super::{
    Core,
    call::{Error, Standing, Task},
    draft::{Draft, Handed, Tail},
    mailbox::{Glance, Hot, Item, Mailbox},
};
use crate::domain::{Command, DeliveryRef, EndReason, Obstacle, Outcome, State, TaskToken, Timestamp, decide::Context};
use crate::store::{self, ExecutionKey, ReadyUnit, Target};
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

/// How often a batch is decided again after another writer was first.
const TRIES_MAX: u32 = 8;
/// First pause between two tries; doubled each time, and each drawn at random from its second half: together 0.25 to
/// 0.5 s, long enough for a burst of another node's, short enough for who waits.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// Pause before a wake-up that could not be judged yet comes again: an outage that it waits out lasts seconds.
const LATER: Duration = Duration::from_secs(1);

/// What is known of deliveries that are due for their first check.
struct Checks {
    /// A worker holds them.
    held: Vec<DeliveryRef>,
    /// It cannot be told yet.
    early: Vec<DeliveryRef>,
}

/// Runs turns until the mailbox is empty.
pub(super) async fn run(core: Arc<Core>, mailbox: Arc<Mailbox>) {
    let mut busy = Busy { core: &core, mailbox: &mailbox, is_over: false };
    while let Some((items, hot)) = mailbox.begin() {
        core.turn(&mailbox, hot, items).await;
    }
    busy.is_over = true;
    drop(busy);
    core.cache.release(mailbox);
}

/// A mailbox that a turn has. Should the turn panic where nothing catches it, the next item begins another.
struct Busy<'a> {
    core: &'a Core,
    mailbox: &'a Mailbox,
    is_over: bool,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if std::thread::panicking() {
            tracing::error!(execution = self.mailbox.key().0, "a turn panicked; what it had is dropped");
        }
        self.core.cache.drop_state(self.mailbox.key());
        self.mailbox.abandon();
    }
}

impl Core {
    async fn turn(self: &Arc<Self>, mailbox: &Arc<Mailbox>, mut hot: Option<Box<Hot>>, mut items: Vec<Item>) {
        let key = mailbox.key();
        // One that replaces the execution is decided alone, after all that came before it.
        if let Some(place) = items.iter().position(|item| matches!(item, Item::Replace { .. })) {
            mailbox.put_back(items.split_off(place.max(1)));
            if place == 0
                && let Some(Item::Replace { begun, answer }) = items.pop()
            {
                let replaced = self.replace(mailbox, hot, *begun).await;
                drop(answer.send(replaced));
                return;
            }
        }
        if hot.is_none() && self.answer_closed(mailbox, &mut items).await {
            return;
        }
        let mut is_alone = false;
        let mut tries = 0;
        // Whether the state is the newest that there was once the items had come; without other nodes it always is.
        let mut is_newest = self.probe.is_none();
        // A number that the store is known to have reached.
        let mut reached = 0;
        loop {
            let mut loaded = match self.state_for(mailbox, hot.take(), reached, &mut is_newest).await {
                Ok(hot) => hot,
                Err(error) => {
                    self.cache.drop_state(key);
                    return self.refuse(mailbox, items, &error);
                }
            };
            // One time for both: a check that becomes due while the rows are read is not judged by them.
            let context = Context { now: self.clock.now(), settings: self.config.settings };
            let checks = match self.first_checks(&loaded, &items, &context).await {
                Ok(checks) => checks,
                Err(error) => {
                    self.put_to_rest(mailbox, loaded);
                    return self.refuse(mailbox, items, &error);
                }
            };
            if is_alone && items.len() > 1 {
                mailbox.put_back(items.split_off(1));
            }

            let mut draft = Draft::new(Vec::new());
            let decided = std::panic::catch_unwind(AssertUnwindSafe(|| {
                self.decide_all(&mut draft, &mut loaded, &mut items, &checks, &context)
            }));
            let Ok(answers) = decided else {
                self.cache.drop_state(key);
                if items.len() == 1 {
                    return self.give_up(mailbox, items).await;
                }
                is_alone = true;
                continue;
            };
            mailbox.put_back(items.split_off(answers.len()));
            if draft.events.is_empty() {
                match self.newest_number(&loaded, is_newest).await {
                    Ok(number) if number == loaded.state.last_number() => {
                        self.answer(&loaded, items, answers);
                        return self.put_to_rest(mailbox, loaded);
                    }
                    Ok(number) => {
                        // A store that has less than was committed has lost it: then only the whole tells.
                        hot = (number > loaded.state.last_number()).then_some(loaded);
                        reached = number;
                        continue;
                    }
                    Err(error) => {
                        self.put_to_rest(mailbox, loaded);
                        return self.refuse(mailbox, items, &error);
                    }
                }
            }
            if draft.level() > self.level() {
                self.cache.drop_state(key);
                return self.refuse(mailbox, items, &Error::LevelTooHigh);
            }

            let row = &loaded.row;
            let drafted = draft.finish(
                &loaded.state,
                row,
                Target::Existing(key),
                Tail::of(&loaded, &self.config),
                self.entropy.uuid(),
            );
            let committed = self.committer.commit(drafted.append.clone()).await;
            match committed {
                Ok(_) => {
                    loaded.take_note(&drafted);
                    self.answer(&loaded, items, answers);
                    self.after_commit(mailbox, loaded, draft, drafted.added, true);
                    return;
                }
                Err(Error::WriteConflict) if tries < TRIES_MAX => {
                    metrics::counter!(crate::telemetry::WRITE_CONFLICTS).increment(1);
                    self.cache.drop_state(key);
                    self.pause(FIRST_PAUSE * 2_u32.pow(tries)).await;
                    tries += 1;
                }
                Err(error) => {
                    // It may have been written all the same.
                    self.timers.note_earlier(key, drafted.wake_time);
                    self.cache.drop_state(key);
                    return self.refuse(mailbox, items, &error);
                }
            }
        }
    }

    /// Answers who only reads an execution that has just been closed: it is still kept for those who watch, and need not be
    /// loaded for this. Says whether that was all.
    async fn answer_closed(&self, mailbox: &Mailbox, items: &mut Vec<Item>) -> bool {
        if !items.iter().all(|item| matches!(item, Item::Read { .. })) {
            return false;
        }
        let Glance::Closed(closed) = mailbox.glance() else { return false };
        let newest = match &self.probe {
            Some(probe) => probe.newest_number(mailbox.key()).await.ok().flatten(),
            None => Some(closed.state.last_number()),
        };
        if newest != Some(closed.state.last_number()) || closed.state.is_deleting() {
            return false;
        }
        for item in items.drain(..) {
            if let Item::Read { answer, .. } = item {
                // A caller that has gone needs no answer.
                drop(answer.send(Ok(Some((*closed).clone()))));
            }
        }
        true
    }

    /// The state to decide on: the one in memory, unless another node is known to be ahead of it.
    pub(super) async fn state_for(
        &self,
        mailbox: &Mailbox,
        hot: Option<Box<Hot>>,
        reached: u64,
        is_newest: &mut bool,
    ) -> Result<Box<Hot>, Error> {
        let heard = if self.probe.is_some() { mailbox.heard() } else { 0 };
        let loaded = match hot {
            Some(hot) if hot.state.last_number() >= heard.max(reached) => return Ok(hot),
            Some(hot) => self.catch_up(hot).await?,
            None => self.load(mailbox.key()).await?,
        };
        *is_newest = true;
        mailbox.looked_for(heard);
        self.announce(mailbox, &loaded);
        Ok(loaded)
    }

    /// The number of an execution's newest event, which nobody need be asked for if the state is known to be the newest.
    async fn newest_number(&self, hot: &Hot, is_newest: bool) -> Result<u64, Error> {
        match &self.probe {
            Some(probe) if !is_newest => {
                let number = probe.newest_number(hot.row.key).await?;
                // What is gone has gone beyond any number; the next look at its rows tells so.
                Ok(number.unwrap_or(u64::MAX))
            }
            Some(_) | None => Ok(hot.state.last_number()),
        }
    }

    /// The newest level of events that every live node reads.
    pub(super) fn level(&self) -> u32 {
        self.members.level()
    }

    /// Tells those who watch how far an execution has come.
    fn announce(&self, mailbox: &Mailbox, hot: &Hot) {
        let standing = || Standing { row: hot.row.clone(), state: Arc::new(hot.state.clone()) };
        mailbox.announce(hot.state.last_number(), hot.state.is_closed().then_some(standing));
    }

    /// Decides items until all are, or the append is full; answers those it came to, in order.
    fn decide_all(
        &self,
        draft: &mut Draft,
        hot: &mut Hot,
        items: &mut [Item],
        checks: &Checks,
        context: &Context,
    ) -> Vec<Result<Outcome, Error>> {
        let mut answers = Vec::with_capacity(items.len());
        for item in items {
            // A deletion is an append of its own, to an execution that was closed before.
            let is_deletion = matches!(item, Item::Command { command: Command::BeginDeletion { .. }, .. });
            if draft.is_full() || (is_deletion && !draft.events.is_empty()) {
                break;
            }
            answers.push(match item {
                Item::Command { whose, .. } if !whose.is(hot) => Err(Error::ExecutionNotFound { id: String::new() }),
                Item::Command { command: Command::Retry { request, .. }, .. } => {
                    // The id may have passed on since it was looked for; the store refuses the append then.
                    let obstacle = (!hot.row.current).then_some(Obstacle::IdTaken);
                    let command = Command::Retry { obstacle, request: *request };
                    draft.decide(&mut hot.state, command, context).map_err(Error::from)
                }
                Item::Command { command, .. } | Item::Tell(command) => {
                    draft.decide(&mut hot.state, command.clone(), context).map_err(Error::from)
                }
                Item::Wake { .. } => {
                    // A wake-up that came early, or for an older row, is no reason to write.
                    let is_due = hot.row.wake_time.is_some_and(|time| time <= context.now) || hot.state.work_due_now();
                    if is_due {
                        let wake = Command::Wake { held: checks.held.clone(), early: checks.early.clone() };
                        draft.decide(&mut hot.state, wake, context).map_err(Error::from)
                    } else {
                        Ok(Outcome::Done)
                    }
                }
                Item::Hand { unit, reservation, .. } => match reservation.take() {
                    Some(taken) => {
                        *reservation = draft.hand(&mut hot.state, unit.clone(), taken, context);
                        Ok(Outcome::Done)
                    }
                    // It went with an append that another writer was before; the pool is looked at again.
                    None => Err(Error::WriteConflict),
                },
                Item::Read { .. } => Ok(Outcome::Done),
                Item::Replace { .. } => unreachable!("it is decided alone"),
            });
        }
        draft.hand_off(&mut hot.state, &self.dispatch, context);
        answers
    }

    /// What is known of the deliveries that are due for their first check. One that was out for too little time in which
    /// workers could be heard cannot be judged: its worker may live and have had nobody to tell. Nor can one whose session
    /// has been given a longer timeout since: its worker may come by later.
    async fn first_checks(&self, hot: &Hot, items: &[Item], context: &Context) -> Result<Checks, Error> {
        let is_waking = items.iter().any(|item| matches!(item, Item::Wake { .. }));
        let due = if is_waking { hot.state.checks_due(context.now) } else { Vec::new() };
        let (mut early, mut is_any_due) = (Vec::new(), false);
        for delivery in due {
            let Some(time) = hot.state.dispatch_time(&delivery) else { continue };
            let attended = self.sessions.steadiness().attended(time, context.now, self.clock.monotonic());
            if attended < self.first_check_span(&hot.state, &delivery).await? {
                early.push(delivery);
            } else {
                is_any_due = true;
            }
        }
        if !is_any_due {
            return Ok(Checks { held: Vec::new(), early });
        }
        let rows = self.store.held_by_execution(hot.row.key).await.map_err(Error::Store)?;
        let held = rows.into_iter().map(|row| DeliveryRef { unit: row.unit, delivery: row.delivery }).collect();
        Ok(Checks { held, early })
    }

    /// How long a delivery is out before it is looked for: as its session's timeout was then, or is now if that is longer.
    async fn first_check_span(&self, state: &State, delivery: &DeliveryRef) -> Result<Duration, Error> {
        let Some((session, span)) = state.first_check(delivery) else { return Ok(Duration::ZERO) };
        // Another node may have taken it back; of a lost one nobody will be heard.
        let timeout = if self.store.is_shared() {
            let row = self.store.session(session).await.map_err(Error::Store)?;
            row.map(|row| row.timeout.unwrap_or(self.config.settings.session_timeout))
        } else {
            self.timeout_of(session).await?
        };
        let now = timeout.map(|timeout| state.heartbeat_timeout(delivery).map_or(timeout, |beat| beat.min(timeout)));
        Ok(now.map_or(span, |now| now.max(span)))
    }

    /// Everything that follows a commit: tasks leave, waiting units become known, timers and watchers hear of it.
    /// `is_ours` says whether the caller has the mailbox; if not, another has read the state from the store.
    pub(super) fn after_commit(
        self: &Arc<Self>,
        mailbox: &Arc<Mailbox>,
        mut hot: Box<Hot>,
        draft: Draft,
        added: Vec<ReadyUnit>,
        is_ours: bool,
    ) {
        let key = mailbox.key();
        self.metrics_of(&draft.events);
        self.watch_length(&hot.state, draft.events.len());
        for handed in draft.handed {
            self.deliver(key, &hot, handed);
        }
        for unit in added {
            if !self.dispatch.added(key, &unit) {
                self.news.waiting(&unit.queue);
            }
        }
        if let Some(newest) = draft.events.last() {
            self.news.changed(key, newest.number);
        }
        self.sessions.note_events(key, &draft.events);
        let effects = hot.state.take_fresh_effects();
        self.drive(key, &hot.state, effects);
        if hot.state.is_closed() {
            self.schedules.ended(&hot.state);
        }
        if !is_ours {
            // What the other has noted since is newer; a wake-up that is early finds nothing due.
            self.timers.note_earlier(key, hot.row.wake_time);
            return;
        }
        self.timers.note(key, hot.row.wake_time);
        if hot.state.work_due_now() {
            self.put(key, Item::Wake { permit: None });
        }
        self.announce(mailbox, &hot);
        self.put_to_rest(mailbox, hot);
    }

    /// Keeps an open state in the cache, and a closed one for as long as others must hear of it; else that needs no
    /// memory. What is closed is not found by its id, which may be another's by now.
    pub(super) fn put_to_rest(&self, mailbox: &Arc<Mailbox>, hot: Box<Hot>) {
        let key = mailbox.key();
        let is_closed = hot.state.is_closed();
        if is_closed && !hot.state.has_pending() {
            self.cache.drop_state(key);
            return;
        }
        let (id, uid, bytes, warmth) = (hot.row.id.clone(), hot.row.uid, hot.size_bytes(), hot.warmth());
        mailbox.end(hot);
        self.cache.keep(key, Some((&id, uid)).filter(|_| !is_closed), bytes, warmth);
    }

    fn deliver(self: &Arc<Self>, key: ExecutionKey, hot: &Hot, handed: Handed) {
        let state = &hot.state;
        let task = Task {
            token: TaskToken { execution: key, uid: state.uid(), delivery: handed.delivery.reference.clone() },
            delivery: handed.delivery,
            execution_id: state.id().clone(),
            run: state.run(),
            workflow: hot.row.workflow.clone(),
            version: hot.row.version.clone(),
            trace_parent: state.trace_parent().clone(),
        };
        if let Err(task) = handed.reservation.deliver(task) {
            self.return_unsent(*task);
        }
    }

    /// A task never left the server: its delivery ends without counting.
    pub(super) fn return_unsent(self: &Arc<Self>, task: Task) {
        let command =
            Command::EndDelivery { delivery: task.token.delivery, reason: EndReason::NotSent, progress: None };
        self.put(task.token.execution, Item::Tell(command));
    }

    fn answer(&self, hot: &Hot, items: Vec<Item>, answers: Vec<Result<Outcome, Error>>) {
        for (item, outcome) in items.into_iter().zip(answers) {
            match item {
                // A caller that has gone needs no answer.
                Item::Command { answer, .. } => drop(answer.send(outcome)),
                Item::Read { even_open, answer } => {
                    let is_wanted = even_open || hot.state.is_closed();
                    let standing = || Standing { row: hot.row.clone(), state: Arc::new(hot.state.clone()) };
                    let missing = || Error::ExecutionNotFound { id: String::new() };
                    let is_there = !hot.state.is_deleting();
                    drop(answer.send(is_there.then(|| is_wanted.then(standing)).ok_or_else(missing)));
                }
                Item::Hand { pool, unit, .. } => self.dispatch.settled(&pool, hot.row.key, &unit, outcome.is_ok()),
                // It was early: another node may have moved what is due, and may be gone before it is. Or it cannot be
                // judged yet.
                Item::Wake { .. } => {
                    let earliest = self.clock.now() + LATER;
                    let is_due = |time: Timestamp| time <= self.clock.now();
                    let next = hot.row.wake_time.map(|time| if is_due(time) { earliest } else { time });
                    self.timers.note(hot.row.key, next);
                }
                Item::Tell(_) | Item::Replace { .. } => {}
            }
        }
    }

    /// Answers each item with an error.
    fn refuse(&self, mailbox: &Mailbox, mut items: Vec<Item>, error: &Error) {
        let key = mailbox.key();
        if let Error::Store(store::Error::Unavailable(_)) = error {
            // Who came meanwhile has waited, too; a turn of their own could keep them as long again.
            items.extend(mailbox.take_asked());
        }
        // What is not there, or set aside, need not be looked at again; all else is.
        let is_final = matches!(error, Error::ExecutionNotFound { .. } | Error::Quarantined { .. } | Error::Internal);
        // A unit that only other nodes can dispatch now is left to them until the pool is next read.
        let is_for_others = matches!(error, Error::EventUnknown | Error::LevelTooHigh);
        for item in items {
            match item {
                Item::Command { answer, .. } => drop(answer.send(Err(error.clone()))),
                Item::Read { answer, .. } => drop(answer.send(Err(error.clone()))),
                Item::Replace { answer, .. } => drop(answer.send(Err(error.clone()))),
                Item::Hand { pool, unit, .. } => self.dispatch.settled(&pool, key, &unit, is_final || is_for_others),
                Item::Wake { .. } if is_final => {
                    tracing::warn!(execution = key.0, %error, "wake-up of an execution that cannot be read")
                }
                Item::Wake { .. } => self.timers.note(key, Some(self.clock.now() + self.config.retry_pause)),
                Item::Tell(command) if is_final => tracing::debug!(execution = key.0, ?command, %error, "dropped"),
                // The first check, or the session loop, comes back to it.
                Item::Tell(command) => tracing::warn!(execution = key.0, ?command, %error, "not done"),
            }
        }
    }

    /// One item alone makes deciding panic.
    async fn give_up(&self, mailbox: &Mailbox, items: Vec<Item>) {
        let key = mailbox.key();
        tracing::error!(execution = key.0, "deciding panicked; the command was refused and the state dropped");
        if items.iter().any(|item| matches!(item, Item::Wake { .. }))
            && let Err(error) = self.store.quarantine(key, "deciding a wake-up panicked").await
        {
            tracing::warn!(execution = key.0, %error, "setting aside failed");
            self.timers.note(key, Some(self.clock.now() + self.config.retry_pause));
        }
        self.refuse(mailbox, items, &Error::Internal);
    }

    /// Waits for the second half of a pause at least, all of it at most.
    pub(super) async fn pause(&self, longest: Duration) {
        let half = longest / 2;
        let share = (self.entropy.number() >> 40) as f64 / (1_u64 << 24) as f64;
        crate::clock::sleep(half + half.mul_f64(share)).await;
    }
}
