//! What the dispatcher promises, without a store.

use super::{Dispatch, Parked, Reservation, Step, pools::WINDOW_LENGTH};
use crate::domain::{Claimant, Delivery, DeliveryRef, ExecutionId, Payload, SessionId, TaskToken, Timestamp, Uid};
use crate::engine::{call::Task, membership::Membership};
use crate::store::{ExecutionKey, NodeRow, Pool, ReadyRow, ReadyUnit};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

fn pool(contract: &str) -> Pool {
    Pool { queue: "q".into(), contract: contract.into(), language: "".into() }
}

fn unit(contract: &str, name: &str, priority: u8, since: i64) -> ReadyUnit {
    ReadyUnit {
        unit: name.into(),
        queue: "q".into(),
        contract: contract.into(),
        language: "".into(),
        priority,
        ready_time: Timestamp::from_micros(since),
    }
}

fn row(key: i64, unit: ReadyUnit) -> ReadyRow {
    ReadyRow { execution: ExecutionKey(key), unit }
}

fn task(key: i64, unit: &str) -> Task {
    let reference = DeliveryRef { unit: unit.into(), delivery: 1 };
    Task {
        token: TaskToken { execution: ExecutionKey(key), uid: Uid(Uuid::nil()), delivery: reference.clone() },
        delivery: Delivery {
            reference,
            contract: "a@1".into(),
            queue: "q".into(),
            input: Payload::null(),
            attempt: 1,
            redelivery: false,
            idempotency_key: String::new(),
            schedule_time: Timestamp::default(),
            dispatch_time: Timestamp::default(),
            expire_time: None,
            heartbeat_timeout: None,
            progress: None,
        },
        execution_id: ExecutionId::parse("x").unwrap(),
        run: 1,
        workflow: "w".into(),
        version: "1.0.0".into(),
        trace_parent: "".into(),
    }
}

struct Bench {
    members: Arc<Membership>,
    dispatch: Arc<Dispatch>,
    unsent: tokio::sync::mpsc::UnboundedReceiver<Task>,
}

impl Bench {
    fn new() -> Self {
        Self::of(Arc::new(Membership::new(Uuid::from_u128(1), 1)))
    }

    fn of(members: Arc<Membership>) -> Self {
        let (dispatch, unsent) = Dispatch::new(members.clone());
        Self { members, dispatch, unsent }
    }

    fn park(&self, contracts: &[&str], credits: u32) -> Parked {
        let claimant = Claimant {
            session_id: SessionId(Uuid::nil()),
            worker_id: "w".into(),
            message_bytes_max: 1 << 20,
            session_timeout: Duration::from_secs(30),
        };
        let parked = self.dispatch.park(claimant, contracts.iter().map(|contract| pool(contract)).collect());
        parked.grant(credits);
        parked
    }

    /// Runs the matcher until it rests; loads come from `rows`.
    fn run(&self, rows: &[ReadyRow]) -> Vec<(Arc<str>, Reservation)> {
        let mut handed = Vec::new();
        loop {
            match self.dispatch.step() {
                Step::Rest => return handed,
                Step::Load { pool, limit } => {
                    let mut found: Vec<ReadyRow> =
                        rows.iter().filter(|row| row.unit.contract == pool.contract).cloned().collect();
                    found.sort_by_key(|row| (row.unit.priority, row.unit.ready_time, row.execution));
                    found.truncate(limit);
                    self.dispatch.loaded(&pool, limit, Some(&found));
                }
                Step::Hand { unit, reservation, .. } => handed.push((unit, reservation)),
            }
        }
    }
}

fn names(handed: &[(Arc<str>, Reservation)]) -> Vec<&str> {
    handed.iter().map(|(unit, _)| &**unit).collect()
}

#[test]
fn a_hand_off_waits_until_the_pool_is_known() {
    let bench = Bench::new();
    let _parked = bench.park(&["a@1"], 1);
    assert!(bench.dispatch.reserve(&unit("a@1", "u", 3, 1)).is_none());
    assert!(bench.run(&[]).is_empty());
    assert!(bench.dispatch.reserve(&unit("a@1", "u", 3, 1)).is_some());
}

#[test]
fn a_credit_is_used_once_and_comes_back_with_a_dropped_reservation() {
    let bench = Bench::new();
    let _parked = bench.park(&["a@1"], 1);
    bench.run(&[]);
    let reservation = bench.dispatch.reserve(&unit("a@1", "u", 3, 1));
    assert!(bench.dispatch.reserve(&unit("a@1", "v", 3, 1)).is_none());
    drop(reservation);
    assert!(bench.dispatch.reserve(&unit("a@1", "v", 3, 1)).is_some());
}

#[test]
fn a_hand_off_passes_no_older_unit_of_any_pool_that_the_worker_serves() {
    let bench = Bench::new();
    let parked = bench.park(&["a@1", "b@1"], 0);
    let _pool_is_asked_for = bench.park(&["a@1", "b@1"], 1);
    let handed = bench.run(&[row(1, unit("b@1", "old", 3, 1))]);
    assert_eq!(names(&handed), ["old"]);
    drop(handed);
    // The reservation came back, so the worker has a credit, and the row of `b@1` is no longer in the window.
    bench.dispatch.added(ExecutionKey(2), &unit("b@1", "older", 3, 5));
    assert!(bench.dispatch.reserve(&unit("a@1", "new", 3, 9)).is_none(), "older waits in the other pool");
    assert!(bench.dispatch.reserve(&unit("a@1", "urgent", 1, 9)).is_some(), "a more urgent one passes it");
    drop(parked);
}

#[test]
fn rows_go_out_by_priority_then_age_over_all_pools() {
    let bench = Bench::new();
    let _parked = bench.park(&["a@1", "b@1"], 10);
    let rows = [
        row(1, unit("a@1", "late", 3, 30)),
        row(2, unit("b@1", "middle", 3, 20)),
        row(3, unit("a@1", "early", 3, 10)),
        row(4, unit("b@1", "urgent", 1, 40)),
    ];
    assert_eq!(names(&bench.run(&rows)), ["urgent", "early", "middle", "late"]);
}

#[test]
fn a_unit_that_arrives_during_a_load_is_not_lost() {
    let bench = Bench::new();
    let _parked = bench.park(&["a@1"], 1);
    let Step::Load { pool, limit } = bench.dispatch.step() else { panic!("the pool is unknown") };
    bench.dispatch.added(ExecutionKey(1), &unit("a@1", "u", 3, 1));
    bench.dispatch.loaded(&pool, limit, Some(&[]));
    assert_eq!(names(&bench.run(&[])), ["u"]);
}

#[test]
fn a_load_that_failed_is_tried_again() {
    let bench = Bench::new();
    let _parked = bench.park(&["a@1"], 1);
    let Step::Load { pool, limit } = bench.dispatch.step() else { panic!("the pool is unknown") };
    bench.dispatch.loaded(&pool, limit, None);
    assert_eq!(names(&bench.run(&[row(1, unit("a@1", "u", 3, 1))])), ["u"]);
}

#[test]
fn c001_a_poll_that_has_gone_gets_nothing() {
    for _ in 0..1_000 {
        let bench = Bench::new();
        let dead = bench.park(&["a@1"], 1);
        let mut alive = bench.park(&["a@1"], 1);
        bench.run(&[]);
        drop(dead);
        let reservation = bench.dispatch.reserve(&unit("a@1", "u", 3, 1)).expect("somebody waits");
        reservation.deliver(task(1, "u")).expect("it is there");
        assert_eq!(alive.try_next().map(|task| task.token.execution), Some(ExecutionKey(1)));
    }
}

#[test]
fn c003_a_task_for_a_poll_that_went_meanwhile_comes_back() {
    let mut bench = Bench::new();
    let parked = bench.park(&["a@1"], 2);
    bench.run(&[]);
    let first = bench.dispatch.reserve(&unit("a@1", "u", 3, 1)).unwrap();
    let second = bench.dispatch.reserve(&unit("a@1", "v", 3, 1)).unwrap();
    first.deliver(task(1, "u")).unwrap();
    drop(parked);
    assert_eq!(bench.unsent.try_recv().map(|task| task.token.execution), Ok(ExecutionKey(1)), "received, not taken");
    assert!(second.deliver(task(2, "v")).is_err(), "reserved, and nobody is there");
}

#[test]
fn a_closed_poll_still_gets_what_is_reserved_for_it() {
    let bench = Bench::new();
    let mut parked = bench.park(&["a@1"], 2);
    bench.run(&[]);
    let reservation = bench.dispatch.reserve(&unit("a@1", "u", 3, 1)).unwrap();
    parked.close();
    assert!(bench.dispatch.reserve(&unit("a@1", "v", 3, 1)).is_none());
    reservation.deliver(task(1, "u")).unwrap();
    assert!(parked.try_next().is_some());
    assert!(parked.try_next().is_none());
}

#[test]
fn a_pool_larger_than_the_window_is_worked_off_in_order() {
    let bench = Bench::new();
    let count = WINDOW_LENGTH * 2 + 10;
    let rows: Vec<ReadyRow> = (0..count)
        .map(|i| row(i64::try_from(i).unwrap(), unit("a@1", &format!("u{i:04}"), 3, i64::try_from(i).unwrap())))
        .collect();
    let _parked = bench.park(&["a@1"], u32::try_from(count).unwrap());
    let mut seen = Vec::new();
    // What is taken stays taken while its dispatch is under way, and what is dispatched is in the store no more.
    while seen.len() < count {
        let left: Vec<ReadyRow> = rows.iter().filter(|row| !seen.contains(&row.unit.unit)).cloned().collect();
        let handed = bench.run(&left);
        assert!(!handed.is_empty());
        for (unit, reservation) in handed {
            let key = rows.iter().find(|row| row.unit.unit == unit).unwrap().execution;
            reservation.deliver(task(key.0, &unit)).unwrap();
            bench.dispatch.settled(&pool("a@1"), key, &unit, true);
            seen.push(unit);
        }
    }
    assert!(seen.is_sorted());
}

#[test]
fn pools_that_nobody_serves_are_forgotten() {
    let bench = Bench::new();
    for i in 0..100 {
        let parked = bench.park(&[&format!("c{i}@1")], 1);
        bench.run(&[]);
        drop(parked);
    }
    assert_eq!(bench.dispatch.sizes(), (0, 0));
    assert_eq!(bench.dispatch.known_pools(), 0);
}

#[test]
fn a_unit_that_came_back_while_it_was_handed_out_has_two_outcomes() {
    let bench = Bench::new();
    let worker = bench.park(&["a@1"], 2);
    let first = bench.run(&[row(1, unit("a@1", "u", 3, 1))]);
    bench.dispatch.added(ExecutionKey(1), &unit("a@1", "u", 3, 2));
    let second = bench.run(&[]);
    assert_eq!((names(&first), names(&second)), (vec!["u"], vec!["u"]));
    drop((worker, first, second));
    bench.dispatch.settled(&pool("a@1"), ExecutionKey(1), &"u".into(), false);
    bench.dispatch.settled(&pool("a@1"), ExecutionKey(1), &"u".into(), true);
    assert_eq!(bench.dispatch.known_pools(), 0);
}

/// A node that knows of another one.
fn one_of_two() -> Bench {
    let row = |number: u128| NodeRow { id: Uuid::from_u128(number), now: Timestamp::from_micros(1), level: 1 };
    let members = Arc::new(Membership::new(Uuid::from_u128(1), 1));
    members.seen(&[row(1), row(2)], Duration::ZERO);
    Bench::of(members)
}

/// The first keys that this node, and that the other node looks at first.
fn keys(bench: &Bench) -> (Vec<i64>, Vec<i64>) {
    let live = bench.members.live();
    let (mine, others): (Vec<i64>, Vec<i64>) = (0..100).partition(|key| live.is_mine(ExecutionKey(*key)));
    (mine, others)
}

#[test]
fn units_of_another_node_s_executions_count_as_a_second_younger() {
    let bench = one_of_two();
    let (mine, others) = keys(&bench);
    let _parked = bench.park(&["a@1"], 10);
    let rows = [
        row(others[0], unit("a@1", "theirs, long ago", 3, 1_000_000)),
        row(others[1], unit("a@1", "theirs, urgent", 1, 9_000_000)),
        row(others[2], unit("a@1", "theirs", 3, 2_000_000)),
        row(mine[0], unit("a@1", "mine", 3, 2_900_000)),
        row(mine[1], unit("a@1", "mine, late", 3, 3_100_000)),
    ];
    let order = ["theirs, urgent", "theirs, long ago", "mine", "theirs", "mine, late"];
    assert_eq!(names(&bench.run(&rows)), order, "priority first, and nobody waits for ever");
}

#[test]
fn a_window_whose_next_unit_another_node_has_changed_is_read_again_but_not_for_every_unit() {
    let bench = one_of_two();
    let count = 200;
    let rows: Vec<ReadyRow> = (0..count).map(|i| row(i, unit("a@1", &format!("u{i}"), 3, 1))).collect();
    let changed = (0..count).map(|key| (ExecutionKey(key), 9)).collect();
    let worker = bench.park(&["a@1"], 1);
    assert_eq!(bench.run(&rows).len(), 1);
    let (mut loads, mut hands) = (0, 0);
    for _ in 0..count {
        bench.dispatch.doubt(&changed);
        worker.grant(1);
        loop {
            match bench.dispatch.step() {
                Step::Rest => break,
                Step::Load { pool, limit } => {
                    loads += 1;
                    bench.dispatch.loaded(&pool, limit, Some(&rows));
                }
                Step::Hand { reservation, .. } => {
                    hands += 1;
                    std::mem::forget(reservation);
                }
            }
        }
    }
    assert_eq!(hands, count - 1, "each of the others was handed out once");
    assert!((1..=8).contains(&loads), "{loads} loads");
}

#[test]
fn what_the_store_is_seen_to_have_is_read_even_if_it_is_being_read_already() {
    let bench = Bench::new();
    let _parked = bench.park(&["a@1"], 1);
    let Step::Load { pool, limit } = bench.dispatch.step() else { panic!("the pool is unknown") };
    // The answer that is under way is of before; the look that found the unit is of after.
    bench.dispatch.found(&pool);
    bench.dispatch.loaded(&pool, limit, Some(&[]));
    assert_eq!(names(&bench.run(&[row(1, unit("a@1", "u", 3, 1))])), ["u"]);
}

#[test]
fn only_pools_that_a_worker_is_free_for_and_that_look_empty_are_looked_at() {
    let bench = Bench::new();
    let _free = bench.park(&["a@1"], 1);
    let _busy = bench.park(&["b@1"], 0);
    let full = bench.park(&["c@1"], 1);
    let rows = [row(1, unit("c@1", "u", 3, 1)), row(2, unit("c@1", "v", 3, 1))];
    assert_eq!(bench.run(&rows).len(), 1);
    full.grant(0);
    assert_eq!(bench.dispatch.waited_for(None), [pool("a@1")]);
    assert_eq!(bench.dispatch.waited_for(Some(&["other".into()].into())), []);
    assert_eq!(bench.dispatch.waited_for(Some(&["q".into()].into())), [pool("a@1")]);
}

#[test]
fn a_unit_is_news_for_others_unless_a_free_worker_here_can_take_it() {
    let bench = Bench::new();
    assert!(!bench.dispatch.added(ExecutionKey(1), &unit("a@1", "u", 3, 1)), "nobody waits");
    let _parked = bench.park(&["a@1"], 2);
    bench.run(&[]);
    assert!(bench.dispatch.added(ExecutionKey(2), &unit("a@1", "v", 3, 1)));
    assert!(bench.dispatch.added(ExecutionKey(3), &unit("a@1", "w", 3, 1)));
    assert!(!bench.dispatch.added(ExecutionKey(4), &unit("a@1", "x", 3, 1)), "there are two credits");
}
