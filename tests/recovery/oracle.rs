//! Judges a run: what callers and workers were told against what the server says once everything has ended.

mod history;

use crate::{
    caller::{end_of, signal_request, start_request},
    connect::Admin,
    journal::{Entries, Journal, Life, Outcome, Received, Report, Reported, Start},
    workflow::Plan,
};
use futures_util::StreamExt as _;
use orbit::proto::{
    admin::{
        CountExecutionsRequest, GetExecutionRequest, ListEventsRequest, ListExecutionsRequest, WaitExecutionRequest,
    },
    workflow::{Event, Execution, execution::State},
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// Questions that are asked at the same time.
const QUESTIONS: usize = 32;

/// How long no execution may end while some are open.
const STANDSTILL: Duration = Duration::from_secs(30);

/// What a run came to.
#[derive(Default, Debug)]
#[expect(dead_code, reason = "printed")]
pub(crate) struct Verdict {
    pub(crate) executions: usize,
    pub(crate) events: usize,
    pub(crate) reports: usize,
    /// Deliveries of an attempt whose delivery before had an unknown outcome.
    pub(crate) redeliveries: usize,
    /// Reports that changed nothing: late ones, and those that were sent to see whether they would.
    pub(crate) refused: usize,
    /// Successes of a token whose task had been handed out again: those that were the first, and those that were not.
    pub(crate) old_tokens_accepted: usize,
    pub(crate) old_tokens_refused: usize,
}

/// Waits until every execution is closed; fails if they stand still.
pub(crate) async fn drain(admin: &mut Admin, faults: &Journal) {
    let mut open_before = i64::MAX;
    let mut moved = Instant::now();
    loop {
        let counts = admin.count_executions(CountExecutionsRequest {}).await.unwrap().into_inner().counts;
        let is_open = |state: State| matches!(state, State::Running | State::WindingDown);
        let open: i64 = counts.iter().filter(|count| is_open(count.state())).map(|count| count.count).sum();
        if open == 0 {
            return;
        }
        if open < open_before {
            (open_before, moved) = (open, Instant::now());
        }
        if moved.elapsed() > STANDSTILL {
            let stuck = stuck(admin).await;
            panic!("{open} executions stand still, among them {stuck}\n{:?}", faults.lock().faults);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The first open executions with their steps, for people.
async fn stuck(admin: &mut Admin) -> String {
    let mut text = String::new();
    for state in ["RUNNING", "WINDING_DOWN"] {
        let filter = format!("state = {state}");
        let request = ListExecutionsRequest { page_size: 3, filter, ..ListExecutionsRequest::default() };
        for execution in admin.list_executions(request).await.unwrap().into_inner().executions {
            let request = GetExecutionRequest { id: execution.id.clone(), ..GetExecutionRequest::default() };
            let whole = admin.get_execution(request).await.unwrap().into_inner().execution;
            text += &format!("\n{whole:?}\n{:?}", events(admin, &execution.id).await);
        }
    }
    text
}

/// Compares everything and panics with all that is wrong.
pub(crate) async fn judge(admin: &mut Admin, journal: &Journal) -> Verdict {
    let entries = std::mem::take(&mut *journal.lock());
    let mut faults = entries.faults.clone();
    let mut verdict = Verdict { reports: entries.reported.len(), ..Verdict::default() };

    let listed = list(admin).await;
    verdict.executions = listed.len();
    faults.extend(count_faults(admin, &listed).await);
    let mut by_key: HashMap<u64, Vec<Execution>> = HashMap::new();
    // Those of schedules have a judge of their own.
    for execution in listed.into_iter().filter(|execution| !execution.labels.contains_key("orbit.schedule")) {
        match execution.labels.get("start").and_then(|key| key.parse().ok()) {
            Some(key) => by_key.entry(key).or_default().push(execution),
            None => faults.push(format!("nobody started {execution:?}")),
        }
    }

    let told = Arc::new(Told::of(&entries, &mut verdict, &mut faults));
    let mut judged = Vec::new();
    for life in &entries.lives {
        match (&life.start, by_key.remove(&life.key).unwrap_or_default().as_slice()) {
            (Start::Accepted { id, uid, .. }, [one]) if one.id == *id && one.uid == *uid => {
                judged.push((life.clone(), one.clone()))
            }
            (Start::Unknown, []) => {}
            (Start::Unknown, [one]) => judged.push((life.clone(), one.clone())),
            (start, found) => faults.push(format!("{start:?} of {} became {found:?}", life.key)),
        }
    }
    faults.extend(by_key.values().flatten().map(|execution| format!("nobody started {execution:?}")));

    let found: Vec<_> = futures_util::stream::iter(judged)
        .map(|(life, execution)| {
            let (mut admin, told) = (admin.clone(), Arc::clone(&told));
            async move { judge_one(&mut admin, &told, &life, &execution).await }
        })
        .buffer_unordered(QUESTIONS)
        .collect()
        .await;
    for (events, found) in found {
        verdict.events += events;
        faults.extend(found);
    }
    faults.extend(repeat_requests(admin, &entries).await);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults[..faults.len().min(5)].join("\n"));
    verdict
}

/// All executions there are.
pub(crate) async fn list(admin: &mut Admin) -> Vec<Execution> {
    let mut executions = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListExecutionsRequest { page_size: 1000, page_token, ..ListExecutionsRequest::default() };
        let page = admin.list_executions(request).await.unwrap().into_inner();
        executions.extend(page.executions);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return executions;
        }
    }
}

async fn count_faults(admin: &mut Admin, listed: &[Execution]) -> Vec<String> {
    let counts = admin.count_executions(CountExecutionsRequest {}).await.unwrap().into_inner().counts;
    let counted: HashMap<i32, i64> =
        counts.iter().filter(|count| count.count != 0).map(|count| (count.state, count.count)).collect();
    let mut found: HashMap<i32, i64> = HashMap::new();
    listed.iter().for_each(|execution| *found.entry(execution.state).or_default() += 1);
    if counted == found { Vec::new() } else { vec![format!("the counters say {counted:?}, the list {found:?}")] }
}

/// All events of an execution.
pub(crate) async fn events(admin: &mut Admin, id: &str) -> Vec<Event> {
    let mut events = Vec::new();
    let mut page_token = String::new();
    loop {
        let request =
            ListEventsRequest { id: id.to_owned(), page_size: 1000, page_token, ..ListEventsRequest::default() };
        let page = admin.list_events(request).await.unwrap().into_inner();
        events.extend(page.events);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return events;
        }
    }
}

/// What workers were told, by execution.
#[derive(Default)]
struct Told {
    reported: HashMap<String, Vec<Reported>>,
}

impl Told {
    /// Sorts it, and judges what needs no history: idempotency keys and the mark of a redelivery.
    fn of(entries: &Entries, verdict: &mut Verdict, faults: &mut Vec<String>) -> Self {
        let mut told = Self::default();
        let mut newest: HashMap<(&str, &str), i32> = HashMap::new();
        let mut keys: HashMap<(&str, &str), &str> = HashMap::new();
        let mut deliveries: HashMap<(&str, &str, i32), Vec<&Received>> = HashMap::new();
        for task in &entries.received {
            let unit = (task.uid.as_str(), task.unit.as_str());
            if *keys.entry(unit).or_insert(&task.idempotency_key) != task.idempotency_key {
                faults.push(format!("another idempotency key: {task:?}"));
            }
            deliveries.entry((unit.0, unit.1, task.attempt)).or_default().push(task);
            let newest = newest.entry(unit).or_default();
            *newest = task.delivery.max(*newest);
        }
        if keys.values().collect::<HashSet<_>>().len() != keys.len() {
            faults.push("two units have one idempotency key".to_owned());
        }
        for deliveries in deliveries.values_mut() {
            deliveries.sort_by_key(|task| task.delivery);
            for pair in deliveries.windows(2) {
                if pair[0].delivery == pair[1].delivery || !pair[1].redelivery {
                    faults.push(format!("after {:?}: {:?}", pair[0], pair[1]));
                }
            }
            verdict.redeliveries += deliveries.iter().filter(|task| task.redelivery).count();
        }
        for reported in &entries.reported {
            let task = &reported.task;
            let is_old = task.delivery < newest[&(task.uid.as_str(), task.unit.as_str())];
            let is_old_success = is_old && matches!(reported.report, Report::Success(_));
            match reported.outcome {
                Outcome::Refused(_) => {
                    verdict.refused += 1;
                    verdict.old_tokens_refused += usize::from(is_old_success);
                }
                Outcome::Accepted => verdict.old_tokens_accepted += usize::from(is_old_success),
                Outcome::Duplicate => {}
            }
            told.reported.entry(task.uid.clone()).or_default().push(reported.clone());
        }
        told
    }
}

/// Judges one execution. Answers with the number of its events and with what is wrong.
async fn judge_one(admin: &mut Admin, told: &Told, life: &Life, listed: &Execution) -> (usize, Vec<String>) {
    let request = GetExecutionRequest { id: listed.id.clone(), ..GetExecutionRequest::default() };
    let execution = admin.get_execution(request).await.unwrap().into_inner().execution.expect("it is there");
    let events = events(admin, &listed.id).await;
    let mut faults = Vec::new();
    let end = end_of(&execution);
    if let Some(seen) = &life.end
        && end.as_ref() != Some(seen)
    {
        faults.push(format!("its caller was told that it ended as {seen:?}, now it is {end:?}"));
    }
    let expected_state = life.stop.map(|stop| stop.state);
    let is_as_planned = match (expected_state, &end) {
        (Some(state), Some(end)) => end.state == state,
        // A stop that was sent and not answered may have happened; only an unknown start leaves its caller so.
        (None, Some(end)) => *end == life.plan.end(),
        (_, None) => false,
    };
    // Nobody signals or stops an execution whose start was not answered.
    let is_left_alone =
        life.start == Start::Unknown && matches!(life.plan, Plan::Signals { .. } | Plan::Patient { .. });
    if !is_as_planned && !is_left_alone {
        faults.push(format!("it ended as {end:?}"));
    }
    let reported = told.reported.get(&listed.uid).map_or(&[][..], Vec::as_slice);
    history::judge(life, &execution, reported, &events, &mut faults);
    let place = |fault: String| {
        let kinds: Vec<_> = events.iter().map(|event| format!("{} {:?}", event.number, event.kind)).collect();
        format!("{} {:?}: {fault}\n    {}", listed.id, life, kinds.join("\n    "))
    };
    (events.len(), faults.into_iter().map(place).collect())
}

/// Requests that were answered are sent once more, after everything is over: the answers must be the same.
async fn repeat_requests(admin: &mut Admin, entries: &Entries) -> Vec<String> {
    /// Enough to meet every kind of request many times.
    const REPEATS: usize = 2_000;
    let mut faults = Vec::new();
    for life in entries.lives.iter().take(REPEATS) {
        let Start::Accepted { id, uid, request_id } = &life.start else { continue };
        let request = start_request(life);
        if request.id.is_empty() && request.request_id.is_empty() {
            // Once more would be another execution.
            continue;
        }
        let answer = admin.start_execution(request).await;
        let is_same = answer.as_ref().is_ok_and(|answer| {
            let answer = answer.get_ref();
            answer.id == *id && answer.uid == *uid && answer.created != request_id.is_empty()
        });
        if !is_same {
            faults.push(format!("the start of {life:?} repeated: {answer:?}"));
        }
        let Plan::Signals { items, .. } = &life.plan else { continue };
        for (index, (item, event_number)) in items.iter().zip(&life.signals).enumerate() {
            let answer = admin.signal_execution(signal_request(id, life.key, index, *item)).await;
            if !answer.as_ref().is_ok_and(|answer| answer.get_ref().event_number == *event_number) {
                faults.push(format!("signal {index} of {life:?} repeated: {answer:?}"));
            }
        }
    }
    faults
}

/// Ends what nobody looks after: executions whose start was not answered and which wait for their caller.
pub(crate) async fn adopt(admin: &mut Admin, journal: &Journal) {
    let keys: Vec<u64> = {
        let entries = journal.lock();
        let waits = |life: &&Life| matches!(life.plan, Plan::Signals { .. } | Plan::Patient { .. });
        entries.lives.iter().filter(|life| life.start == Start::Unknown).filter(waits).map(|life| life.key).collect()
    };
    for key in keys {
        let filter = format!("labels.start = \"{key}\"");
        let request = ListExecutionsRequest { filter, ..ListExecutionsRequest::default() };
        for execution in admin.list_executions(request).await.unwrap().into_inner().executions {
            let request = orbit::proto::admin::TerminateExecutionRequest {
                id: execution.id,
                ..orbit::proto::admin::TerminateExecutionRequest::default()
            };
            admin.terminate_execution(request).await.unwrap();
        }
    }
}

/// Waits for the end of one execution.
pub(crate) async fn wait(admin: &mut Admin, id: &str) -> Execution {
    loop {
        let request = WaitExecutionRequest { id: id.to_owned(), ..WaitExecutionRequest::default() };
        let execution = admin.wait_execution(request).await.unwrap().into_inner().execution.expect("it is there");
        if end_of(&execution).is_some() {
            return execution;
        }
    }
}
