//! One random history over all stores: every answer must be equal.
//!
//! Keys may differ between stores, so they are told by the execution's place among all that were ever tried.

mod batches;
mod schedules;

use crate::make::*;
use orbit::domain::{RequestKey, SessionId, Uid};
use orbit::store::{
    Append, Committed, Deletion, ExecutionKey, ExecutionRow, ExecutionState, Find, HeldRow, ListCursor, ListFilter,
    MemoryStore, NewExecution, NodeRow, Pool, Presence, Replacement, ScheduleKey, SessionRow, StateChange, Store,
    Target, WakeChange,
};
use std::{collections::BTreeMap, fmt::Debug, time::Duration};

/// Steps of the history: some thousand appends to some hundred executions.
const STEPS: usize = 1000;

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }
}

/// What the test knows of an execution, to make appends that fit more often than not.
#[derive(Clone)]
struct Known {
    uid: u128,
    newest: u64,
    state: ExecutionState,
    past: Vec<Append>,
    row: NewExecution,
    run: u32,
    is_current: bool,
    is_deleted: bool,
}

/// A store with the keys that it gave to executions.
struct Subject<'a> {
    store: &'a dyn Store,
    keys: BTreeMap<u128, ExecutionKey>,
    schedules: BTreeMap<u128, ScheduleKey>,
}

impl Subject<'_> {
    fn key(&self, uid: u128) -> ExecutionKey {
        self.keys.get(&uid).copied().unwrap_or(ExecutionKey(1 << 40))
    }

    fn uid(&self, key: ExecutionKey) -> u128 {
        *self.keys.iter().find(|(_, known)| **known == key).expect("a key that was given").0
    }

    fn row(&self, mut row: ExecutionRow) -> ExecutionRow {
        row.key = ExecutionKey(i64::try_from(self.uid(row.key)).unwrap());
        row
    }

    fn held(&self, mut row: HeldRow) -> HeldRow {
        row.execution = ExecutionKey(i64::try_from(self.uid(row.execution)).unwrap());
        row
    }
}

#[tokio::test]
async fn all_stores_give_equal_answers_to_a_random_history() {
    let seed =
        std::env::var("SEED").ok().map_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let memory = MemoryStore::new();
    let sqlite = crate::temporary().await;
    let postgres = crate::OnPostgres::new().await;
    let stores: [&dyn Store; 3] = [&memory, &sqlite.store, &postgres.store];
    let mut subjects = stores.map(|store| Subject { store, keys: BTreeMap::new(), schedules: BTreeMap::new() });
    let mut random = Random(seed);
    let mut known: Vec<Known> = Vec::new();
    let mut made = schedules::Schedules::default();
    for step in 0..STEPS {
        match random.below(12) {
            10 | 11 => schedules::change(&mut random, &mut known, &mut made, &mut subjects).await,
            0..=6 => commit(&mut random, &mut known, &mut subjects).await,
            7 if random.one_in(2) => presence(&mut random, &known, &subjects).await,
            7 if random.one_in(2) => batches::change(&mut random, &subjects).await,
            7 => retention(&mut random, &known, &subjects).await,
            8 => sessions(&mut random, &subjects).await,
            _ => quarantine(&mut random, &known, &subjects).await,
        }
        compare_reads(&mut random, &known, &subjects).await;
        batches::compare(&mut random, &subjects).await;
        schedules::compare(&mut random, &known, &made, &subjects).await;
        if step % 100 == 0 {
            compare_everything(&known, &subjects).await;
            schedules::compare_everything(&made, &subjects).await;
        }
    }
    compare_everything(&known, &subjects).await;
    schedules::compare_everything(&made, &subjects).await;
    schedules::check_variety(&made);
}

fn equal<T: PartialEq + Debug>(answers: Vec<T>, what: &str) -> T {
    let mut answers = answers.into_iter();
    let model = answers.next().unwrap();
    for answer in answers {
        assert_eq!(answer, model, "{what}");
    }
    model
}

/// Asks every store the same, with its own keys.
macro_rules! ask {
    ($subjects:expr, $what:expr, |$subject:ident| $answer:expr) => {{
        let mut answers = Vec::new();
        for $subject in $subjects.iter() {
            answers.push($answer);
        }
        equal(answers, &format!("{:?}", $what))
    }};
}
use ask;

fn random_start(random: &mut Random, number: u128) -> Append {
    let mut labels = Vec::new();
    if random.one_in(2) {
        labels.push(("tenant", random.of(&["a", "b"])));
    }
    if random.one_in(3) {
        labels.push(("day", random.of(&["1", "2"])));
    }
    let begin = with_labels(start(&format!("id-{}", random.below(60)), number), &labels);
    let begin = if random.one_in(3) { with_request(begin, random.below(4) as u8) } else { begin };
    let closed = random.one_in(6);
    with_row(begin, |row| {
        row.workflow = random.of(&["order", "refund"]).into();
        row.start_time = time(random.below(8) as i64);
        row.state = if closed {
            random.of(&[ExecutionState::Succeeded, ExecutionState::Failed])
        } else {
            ExecutionState::Running
        };
        row.close_time = closed.then(|| time(50));
    })
}

/// Gives an append things that go with it.
fn adorned(random: &mut Random, append: Append) -> Append {
    let units = ["charge", "ship", "pack", "bill"];
    let mut append = append;
    append.events = vec![random.below(256) as u8; random.below(2000) as usize].into();
    if random.one_in(3) {
        append.ready_added.push(unit(random.of(&units), 1 + random.below(5) as u8, random.below(9) as i64));
    }
    if random.one_in(3) {
        append.ready_removed.push(random.of(&units).into());
    }
    if random.one_in(3) {
        append.wake = WakeChange::Set(random.one_in(2).then(|| time(random.below(20) as i64)));
    }
    if random.one_in(5) {
        append.snapshot = Some(snapshot(append.last_number - random.below(append.last_number)));
    }
    if random.one_in(5) {
        let digest = random.below(3) as u8;
        append.payloads.push(payload(digest, &format!("{digest}")));
    }
    append
}

/// A batch of starts and appends, stale ones and repeated ones among them.
async fn commit(random: &mut Random, known: &mut Vec<Known>, subjects: &mut [Subject<'_>]) {
    // Appends with the execution that they go to, by uid; no execution and no id twice.
    let mut batch: Vec<(u128, Append)> = Vec::new();
    let mut used = std::collections::BTreeSet::new();
    let mut replacement: Option<Known> = None;
    let mut next_uid = known.last().map_or(1, |known| known.uid + 1);
    for _ in 0..=random.below(12) {
        if known.is_empty() || random.one_in(3) {
            let begin = random_start(random, next_uid);
            let begin = adorned(random, begin);
            let Target::New(row) = &begin.target else { unreachable!() };
            if used.insert(row.id.to_string()) {
                batch.push((next_uid, begin));
                next_uid += 1;
            }
            continue;
        }
        let target = random.of(known);
        if !used.insert(target.uid.to_string()) {
            continue;
        }
        if random.one_in(12) && used.insert(target.row.id.to_string()) {
            if target.state.is_closed() {
                batch.push((target.uid, deletion(random, &target)));
            } else {
                replacement = Some(target);
            }
            continue;
        }
        let append = match random.below(6) {
            0 => random.of(&target.past),
            1 => {
                let first = 1 + random.below(target.newest + 3);
                append(ExecutionKey(0), first, first + random.below(3))
            }
            _ => append(ExecutionKey(0), target.newest + 1, target.newest + 1 + random.below(4)),
        };
        let fresh = !target.past.iter().any(|past| past.batch_id == append.batch_id);
        let mut append = if fresh { Append { run: target.run, ..adorned(random, append) } } else { append };
        if fresh && random.one_in(8) {
            append.run += 1;
            append.begins_run = Some(time(random.below(1000) as i64));
        }
        if fresh && random.one_in(4) {
            let to = random.of(&ExecutionState::ALL);
            append.state = Some(StateChange { from: target.state, to, close_time: to.is_closed().then(|| time(60)) });
        }
        batch.push((target.uid, append));
    }
    // The last, since it gets its key after all others.
    if let Some(target) = replacement {
        let end = random.one_in(3).then(|| ending(ExecutionKey(0), target.newest + 1, ExecutionState::Terminated, 70));
        let end = end.map(|mut end| {
            end.state.as_mut().unwrap().from = target.state;
            Append { run: target.run, ..end }
        });
        let begin = random_start(random, next_uid);
        let begin = adorned(random, begin);
        let Target::New(mut new) = begin.target else { unreachable!() };
        new.id = target.row.id.clone();
        let old = ExecutionKey(i64::try_from(target.uid).unwrap());
        let replacement = Target::Replacing(Box::new(Replacement { new: *new, old, end }));
        batch.push((next_uid, Append { target: replacement, ..begin }));
    }
    let mut outcomes = Vec::new();
    for subject in subjects.iter_mut() {
        let own: Vec<Append> = batch
            .iter()
            .map(|(uid, append)| match &append.target {
                Target::New(_) => append.clone(),
                Target::Existing(_) => Append { target: Target::Existing(subject.key(*uid)), ..append.clone() },
                Target::Replacing(replacement) => {
                    let mut own = replacement.clone();
                    own.old = subject.key(replacement.old.0 as u128);
                    own.end = own.end.map(|end| Append { target: Target::Existing(own.old), ..end });
                    Append { target: Target::Replacing(own), ..append.clone() }
                }
            })
            .collect();
        let answers = subject.store.commit(own).await.unwrap();
        for ((uid, _), answer) in batch.iter().zip(&answers) {
            if let Committed::Written(key) = answer {
                assert_eq!(*subject.keys.entry(*uid).or_insert(*key), *key, "an execution keeps its key");
            }
        }
        outcomes.push(answers.into_iter().map(|answer| matches!(answer, Committed::Written(_))).collect::<Vec<_>>());
    }
    for ((uid, append), written) in batch.into_iter().zip(equal(outcomes, "commit")) {
        if !written {
            continue;
        }
        if let Target::Replacing(replacement) = &append.target
            && known.iter().all(|known| known.uid != uid)
        {
            let old = known.iter_mut().find(|known| known.uid == replacement.old.0 as u128).unwrap();
            old.is_current = false;
            if let Some(end) = &replacement.end {
                (old.newest, old.state) = (end.last_number, ExecutionState::Terminated);
            }
        }
        let target = match known.iter_mut().find(|known| known.uid == uid) {
            Some(target) => target,
            None => {
                let row = append.new_execution().expect("written to something").clone();
                let (state, past) = (row.state, Vec::new());
                known.push(Known { uid, newest: 0, state, past, row, run: 1, is_current: true, is_deleted: false });
                known.last_mut().unwrap()
            }
        };
        if append.last_number > target.newest {
            target.newest = append.last_number;
            target.state = append.state.map_or(target.state, |change| change.to);
            target.run = append.run;
            target.is_deleted |= append.deletion.is_some();
            target.is_current &= !target.is_deleted;
            target.past.push(append);
        }
    }
    known.sort_by_key(|known| known.uid);
}

/// Begins the deletion of a closed execution.
fn deletion(random: &mut Random, target: &Known) -> Append {
    let deletion = Deletion {
        time: time(random.below(1000) as i64),
        request: random.one_in(2).then(|| RequestKey { key: [random.below(4) as u8; 16], content: [1; 16] }),
        state: target.state,
        labels: target.row.labels.clone(),
        start_time: target.row.start_time,
    };
    let first = target.newest + u64::from(!random.one_in(5));
    let append = Append { run: target.run, ..append(ExecutionKey(0), first, first + random.below(2)) };
    Append { wake: WakeChange::Set(None), deletion: Some(Box::new(deletion)), ..append }
}

/// Removes something, or says that it may be.
async fn retention(random: &mut Random, known: &[Known], subjects: &[Subject<'_>]) {
    let begins = |known: &Known| {
        known
            .past
            .iter()
            .filter(|past| past.begins_run.is_some())
            .map(|past| past.first_number - 1)
            .collect::<Vec<u64>>()
    };
    let deleted: Vec<&Known> = known.iter().filter(|known| known.is_deleted).collect();
    let with_runs: Vec<&Known> = known.iter().filter(|known| !begins(known).is_empty()).collect();
    let limit = 1 + random.below(4) as usize;
    if random.one_in(2) && !deleted.is_empty() {
        let (target, with_row) = (random.of(&deleted), random.one_in(2));
        ask!(subjects, ("delete_rows", target.uid), |subject| {
            subject.store.delete_rows(&[(subject.key(target.uid), with_row)], limit).await.unwrap()
        });
    } else if !with_runs.is_empty() {
        let target = random.of(&with_runs);
        let mut number = random.of(&begins(target));
        if random.one_in(4) {
            number += 1;
        }
        ask!(subjects, ("raise_floor", target.uid, number), |subject| {
            subject.store.raise_floor(subject.key(target.uid), number).await.unwrap()
        });
        ask!(subjects, ("delete_trimmed", target.uid, number, limit), |subject| {
            subject.store.delete_trimmed(subject.key(target.uid), number, limit).await.unwrap()
        });
    }
}

async fn presence(random: &mut Random, known: &[Known], subjects: &[Subject<'_>]) {
    let now = time(random.below(1000) as i64);
    let contacts: Vec<_> = (0..random.below(4))
        .map(|_| (SessionId(uuid(random.below(5).into())), time(random.below(1000) as i64)))
        .collect();
    let mut rows: BTreeMap<_, HeldRow> = BTreeMap::new();
    for _ in 0..random.below(6) {
        let Some(execution) = known.get(random.below(known.len().max(1) as u64) as usize) else { continue };
        let row = HeldRow {
            missing_since: random.one_in(2).then(|| time(random.below(1000) as i64)),
            heartbeat_timeout_micros: random.one_in(2).then(|| random.below(500) as i64),
            beat_time: time(random.below(1000) as i64),
            progress: random.one_in(2).then(|| random.below(5).to_string().into()),
            ..held(
                random.below(5).into(),
                i64::try_from(execution.uid).unwrap(),
                random.of(&["charge", "ship"]),
                random.below(3) as u32,
            )
        };
        rows.insert(held_key(&row), row);
    }
    let node = random.one_in(2).then(|| NodeRow { id: uuid(random.below(3).into()), now, level: 1 });
    ask!(subjects, "presence", |subject| {
        let own = rows
            .values()
            .map(|row| HeldRow { execution: subject.key(row.execution.0 as u128), ..row.clone() })
            .collect();
        subject.store.presence(&Presence { contacts: contacts.clone(), held: own, node }).await.unwrap()
    });
    if let Some(row) = rows.values().next().filter(|_| random.one_in(3)) {
        ask!(subjects, "delete_held", |subject| {
            let own = (subject.key(row.execution.0 as u128), row.unit.clone(), row.delivery);
            subject.store.delete_held(&[own]).await.unwrap();
        });
    }
}

async fn sessions(random: &mut Random, subjects: &[Subject<'_>]) {
    let timeout = random.one_in(2).then(|| Duration::from_micros(random.below(400)));
    let row = SessionRow { timeout, ..session(random.below(5).into(), random.below(1000) as i64) };
    match random.below(3) {
        0 => {
            if ask!(subjects, "session", |subject| subject.store.session(row.id).await.unwrap()).is_none() {
                ask!(subjects, "put_session", |subject| subject.store.put_session(&row).await.unwrap());
            }
        }
        1 => drop(ask!(subjects, "resume_session", |subject| subject.store.resume_session(&row).await.unwrap())),
        _ => {
            let judged = random.one_in(2).then_some(row.contact_time);
            ask!(subjects, "end_session", |subject| subject.store.end_session(row.id, judged).await.unwrap());
        }
    }
}

async fn quarantine(random: &mut Random, known: &[Known], subjects: &[Subject<'_>]) {
    if known.len() > 20 && random.one_in(4) {
        let uid = random.of(known).uid;
        ask!(subjects, "quarantine", |subject| subject.store.quarantine(subject.key(uid), "damaged").await.unwrap());
    }
}

async fn compare_reads(random: &mut Random, known: &[Known], subjects: &[Subject<'_>]) {
    let limit = 1 + random.below(30) as usize;
    let now = time(random.below(1000) as i64);
    let soon = time(random.below(22) as i64);
    ask!(subjects, "count", |subject| subject.store.count().await.unwrap());
    ask!(subjects, ("due", soon, limit), |subject| {
        let due = subject.store.due(soon, limit).await.unwrap();
        due.into_iter().map(|(key, wake)| (subject.uid(key), wake)).collect::<Vec<_>>()
    });
    ask!(subjects, ("ready", limit), |subject| {
        let rows = subject.store.ready(&pool(), limit).await.unwrap();
        rows.into_iter().map(|row| (subject.uid(row.execution), row.unit)).collect::<Vec<_>>()
    });
    let filter = ListFilter {
        states: (0..random.below(3)).map(|_| random.of(&ExecutionState::ALL)).collect(),
        workflow: random.one_in(3).then(|| random.of(&["order", "refund"]).into()),
        labels: if random.one_in(2) { vec![("tenant".into(), random.of(&["a", "b"]).into())] } else { vec![] },
        start_from: random.one_in(3).then(|| time(random.below(8) as i64)),
        start_until: random.one_in(3).then(|| time(random.below(8) as i64)),
    };
    let cursor = random.one_in(2).then(|| (time(random.below(8) as i64), random.below(known.len() as u64 + 1)));
    ask!(subjects, ("list", &filter, limit), |subject| {
        let after = cursor.map(|(start_time, uid)| ListCursor { start_time, key: subject.key(uid.into()) });
        let page = subject.store.list(&filter, after, limit).await.unwrap();
        let next = page.next.map(|next| (next.start_time, subject.uid(next.key)));
        (page.rows.into_iter().map(|row| subject.row(row)).collect::<Vec<_>>(), next)
    });
    ask!(subjects, ("held_overdue", now, limit), |subject| {
        let rows = subject.store.held_overdue(now, Duration::from_micros(20), limit).await.unwrap();
        rows.into_iter().map(|row| subject.held(row)).collect::<Vec<_>>()
    });
    ask!(subjects, ("held_without_session", limit), |subject| {
        let rows = subject.store.held_without_session(limit).await.unwrap();
        rows.into_iter().map(|row| subject.held(row)).collect::<Vec<_>>()
    });
    ask!(subjects, "sessions", |subject| subject.store.sessions(None, limit).await.unwrap());
    let holder = SessionId(uuid(random.below(5).into()));
    ask!(subjects, "held_by_session", |subject| {
        let rows = subject.store.held_by_session(holder, limit).await.unwrap();
        rows.into_iter().map(|row| subject.held(row)).collect::<Vec<_>>()
    });
    let id = format!("id-{}", random.below(60));
    let request = [random.below(4) as u8; 16];
    ask!(subjects, ("by request", &id), |subject| {
        subject.store.execution_by_request(&id, request).await.unwrap().map(|row| subject.row(row))
    });
    let unknown = u128::MAX;
    let uids: Vec<u128> = (0..random.below(40))
        .map(|_| known.get(random.below(99) as usize).map_or(unknown, |known| known.uid))
        .collect();
    ask!(subjects, ("newest_numbers", &uids), |subject| {
        let keys: Vec<ExecutionKey> = uids.iter().map(|uid| subject.key(*uid)).collect();
        subject.store.newest_numbers(&keys).await.unwrap()
    });
    ask!(subjects, ("still_due", &uids, soon), |subject| {
        let keys: Vec<ExecutionKey> = uids.iter().map(|uid| subject.key(*uid)).collect();
        let due = subject.store.still_due(&keys, soon).await.unwrap();
        due.into_iter().map(|key| subject.uid(key)).collect::<Vec<_>>()
    });
    let after = random.one_in(2).then(|| (now, random.below(known.len() as u64 + 1)));
    ask!(subjects, ("closed_before", soon, after, limit), |subject| {
        let after = after.map(|(time, uid)| (time, subject.key(uid.into())));
        let rows =
            subject.store.closed_before(soon + std::time::Duration::from_micros(45), after, limit).await.unwrap();
        rows.into_iter().map(|(time, key)| (time, subject.uid(key))).collect::<Vec<_>>()
    });
    ask!(subjects, ("deleted", after, limit), |subject| {
        let after = after.map(|(time, uid)| (time, subject.key(uid.into())));
        let rows = subject.store.deleted(after, limit).await.unwrap();
        rows.into_iter().map(|row| (row.delete_time, subject.uid(row.key), row.has_request)).collect::<Vec<_>>()
    });
    ask!(subjects, ("runs_begun_before", now, limit), |subject| {
        let rows = subject.store.runs_begun_before(now, None, limit).await.unwrap();
        rows.into_iter()
            .map(|row| (row.start_time, subject.uid(row.execution), row.run, row.first_number))
            .collect::<Vec<_>>()
    });
    let another = Pool { queue: "another".into(), ..pool() };
    ask!(subjects, "waiting_pools", |subject| {
        subject.store.waiting_pools(&[another.clone(), pool(), another.clone()]).await.unwrap()
    });
    if let Some(target) = known.get(random.below(known.len().max(1) as u64) as usize) {
        let (after, rows, bytes) =
            (random.below(target.newest + 2), random.below(5) as usize, random.below(3000) as usize);
        ask!(subjects, ("history", after, rows, bytes), |subject| {
            subject.store.history(subject.key(target.uid), after, rows, bytes).await.unwrap()
        });
        ask!(subjects, ("load_tail", after), |subject| {
            let tail = subject.store.load_tail(subject.key(target.uid), after).await.unwrap();
            tail.map(|tail| (subject.row(tail.row), tail.snapshot, tail.history, tail.payloads))
        });
        let digests = [[random.below(4) as u8; 32], [random.below(4) as u8; 32]];
        ask!(subjects, ("payloads", digests), |subject| {
            subject.store.payloads(subject.key(target.uid), &digests).await.unwrap()
        });
    }
}

async fn compare_everything(known: &[Known], subjects: &[Subject<'_>]) {
    for target in known {
        ask!(subjects, ("load", target.uid), |subject| {
            let loaded = subject.store.load(subject.key(target.uid)).await.unwrap();
            assert_eq!(loaded.is_none(), target.is_deleted);
            loaded.map(|loaded| {
                assert_eq!((loaded.row.uid, loaded.row.current), (Uid(uuid(target.uid)), target.is_current));
                (subject.row(loaded.row), loaded.snapshot, loaded.history, loaded.payloads)
            })
        });
        ask!(subjects, "held_by_execution", |subject| {
            let rows = subject.store.held_by_execution(subject.key(target.uid)).await.unwrap();
            rows.into_iter().map(|row| subject.held(row)).collect::<Vec<_>>()
        });
        let history = subjects[0].store.history(subjects[0].key(target.uid), 0, usize::MAX, usize::MAX).await.unwrap();
        for (row, next) in history.iter().zip(history.iter().skip(1)) {
            assert_eq!(next.first_number, row.last_number + 1, "numbers have no gaps");
        }
        assert!(target.is_deleted || history.last().unwrap().last_number == target.newest);
    }
    ask!(subjects, "counted by hand", |subject| {
        let mut counted: BTreeMap<ExecutionState, u64> = BTreeMap::new();
        for row in subject.store.list(&ListFilter::default(), None, usize::MAX).await.unwrap().rows {
            let holder = subject.store.execution(&Find::Id(row.id.clone())).await.unwrap();
            assert_eq!(row.current, holder.is_some_and(|holder| holder.key == row.key));
            *counted.entry(row.state).or_default() += 1;
        }
        assert_eq!(subject.store.count().await.unwrap(), counted);
    });
}
