//! What the workflow language promises where steps fail, are undone and are many.

use super::*;
use orbit::domain::{RefusalReason, Rejection, ReportOutcome, Settings};
use orbit::engine::{Error, Registration, Report};
use orbit::store::Find;

on_one_and_two_nodes!(
    c041_undoing_goes_backwards_one_after_another_also_where_it_takes_several_steps,
    c043_nothing_is_undone_before_what_is_out_has_ended,
    c045_each_item_is_undone_with_its_own_value,
    c083_a_failure_is_no_skip_however_far_away,
    c085_no_items_end_at_once_and_no_list_is_an_error,
    c087_a_loop_without_an_end_fails_and_is_no_burden_before,
    c089_ten_thousand_items_are_done_once_each_and_small_ones_go_by,
    c095_a_start_is_known_by_its_content_until_it_is_deleted,
    c155_a_result_after_the_deletion_changes_nothing,
);

on_databases!(
    c041_undoing_goes_backwards_one_after_another_also_where_it_takes_several_steps,
    c043_nothing_is_undone_before_what_is_out_has_ended,
    c045_each_item_is_undone_with_its_own_value,
    c083_a_failure_is_no_skip_however_far_away,
    c085_no_items_end_at_once_and_no_list_is_an_error,
    c087_a_loop_without_an_end_fails_and_is_no_burden_before,
    c089_ten_thousand_items_are_done_once_each_and_small_ones_go_by,
    c095_a_start_is_known_by_its_content_until_it_is_deleted,
    c155_a_result_after_the_deletion_changes_nothing,
);

/// Takes the next task, which must have this input, and succeeds it.
async fn works(nodes: &Nodes, session: SessionId, input: &str) {
    let task = nodes.task_within(session, Duration::from_secs(10)).await;
    assert_eq!(task.delivery.input.as_str(), input);
    assert_eq!(nodes.next().report(&task, complete(input)).await, ReportOutcome::Accepted);
}

/// Takes the tasks that wait, which must be so many, in the order of their inputs.
async fn tasks(nodes: &Nodes, session: SessionId, count: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    while tasks.len() < count {
        tasks.push(nodes.task_within(session, Duration::from_secs(10)).await);
    }
    tasks.sort_by(|a, b| a.delivery.input.as_str().cmp(b.delivery.input.as_str()));
    tasks
}

/// Fails a task for good.
async fn breaks(nodes: &Nodes, task: &Task) {
    let Report::Fail { failure, .. } = fail("BROKEN") else { unreachable!("it fails") };
    let report = Report::Fail { failure, retryable: false, retry_after: None };
    assert_eq!(nodes.next().report(task, report).await, ReportOutcome::Accepted);
}

async fn no_task(nodes: &Nodes, session: SessionId) {
    let tasks = nodes.next().poll_for(session, 1, 1.0).await.tasks;
    assert!(tasks.is_empty(), "{tasks:?}");
}

async fn c041_undoing_goes_backwards_one_after_another_also_where_it_takes_several_steps(nodes: Nodes) {
    nodes
        .next()
        .deploy(
            "undo",
            "tasks: {a@1: {}}
steps:
  - {id: first, task: a@1, input: u2a}
  - {id: nap, needs: [first], sleep: {for: 3s}}
  - {id: second, needs: [nap], task: a@1, input: u2b}
",
        )
        .await;
    let saga = "tasks: {a@1: {}}
steps:
  - {id: s1, task: a@1, input: s1, compensate: {task: a@1, input: u1}}
  - {id: s2, needs: [s1], task: a@1, input: s2, compensate: {workflow: undo@^1}}
  - {id: s3, needs: [s2], fail: {code: BROKEN}}
";
    nodes.next().deploy("saga", saga).await;
    let session = nodes.next().worker(&["a@1"]).await;
    nodes.next().start("saga", "e").await;
    for input in ["s1", "s2", "u2a"] {
        works(&nodes, session, &format!("{input:?}")).await;
    }
    no_task(&nodes, session).await;
    let begin = nodes.now();
    for input in ["u2b", "u1"] {
        works(&nodes, session, &format!("{input:?}")).await;
    }
    assert!(nodes.now().since(begin) >= Duration::from_secs(1), "the nap was waited for");
    nodes.ends("e", Phase::Failed, 3.0).await;
}

async fn c043_nothing_is_undone_before_what_is_out_has_ended(nodes: Nodes) {
    let saga = "tasks: {a@1: {}}
steps:
  - {id: a, task: a@1, input: a, compensate: {task: a@1, input: ua}}
  - {id: b, task: a@1, input: b, compensate: {task: a@1, input: ub}}
  - {id: c, task: a@1, input: c}
";
    nodes.next().deploy("saga", saga).await;
    let session = nodes.next().worker(&["a@1"]).await;
    nodes.next().start("saga", "e").await;
    let tasks = tasks(&nodes, session, 3).await;
    assert_eq!(nodes.next().report(&tasks[0], complete("1")).await, ReportOutcome::Accepted);
    breaks(&nodes, &tasks[2]).await;
    nodes.hold(session, &[&tasks[1]], 20).await;
    let answer = nodes.next().heartbeat(session, vec![listed(&tasks[1])]).await;
    assert_eq!(answer.stop, std::slice::from_ref(&tasks[1].token), "it is asked to stop");
    assert_eq!(nodes.next().phase("e").await, Phase::WindingDown);
    assert_eq!(nodes.next().report(&tasks[1], complete("2")).await, ReportOutcome::Accepted, "it was done after all");
    works(&nodes, session, "\"ub\"").await;
    works(&nodes, session, "\"ua\"").await;
    nodes.ends("e", Phase::Failed, 3.0).await;
}

async fn c045_each_item_is_undone_with_its_own_value(nodes: Nodes) {
    let saga = "tasks: {a@1: {}}
steps:
  - id: each
    for_each: [x, y, z]
    task: a@1
    input: '${ item.value }'
    compensate: {task: a@1, input: '${ \"un\" + item.value + steps.each.output }'}
";
    nodes.next().deploy("saga", saga).await;
    let session = nodes.next().worker(&["a@1"]).await;
    nodes.next().start("saga", "e").await;
    let tasks = tasks(&nodes, session, 3).await;
    for (task, output) in [(&tasks[1], "\"1\""), (&tasks[0], "\"0\"")] {
        assert_eq!(nodes.next().report(task, complete(output)).await, ReportOutcome::Accepted);
    }
    breaks(&nodes, &tasks[2]).await;
    works(&nodes, session, "\"unx0\"").await;
    works(&nodes, session, "\"uny1\"").await;
    nodes.ends("e", Phase::Failed, 3.0).await;
    no_task(&nodes, session).await;
}

async fn c083_a_failure_is_no_skip_however_far_away(nodes: Nodes) {
    let graph = |on_error: &str| {
        format!(
            "tasks: {{a@1: {{}}}}
steps:
  - {{id: gate, task: a@1, input: gate{on_error}}}
  - {{id: x, needs: [gate], when: 'steps.gate.error == null', compute: 1}}
  - {{id: y, compute: 1}}
  - {{id: join, needs: [x, y], compute: 1}}
  - {{id: publish, needs: [join], task: a@1, input: publish}}
"
        )
    };
    nodes.next().deploy("strict", &graph("")).await;
    nodes.next().deploy("lenient", &graph(", on_error: continue")).await;
    let session = nodes.next().worker(&["a@1"]).await;
    nodes.next().start("strict", "s").await;
    breaks(&nodes, &nodes.task(session).await).await;
    nodes.ends("s", Phase::Failed, 3.0).await;
    no_task(&nodes, session).await;
    // Only who says so lets others go on, and then a skip is one.
    nodes.next().start("lenient", "l").await;
    breaks(&nodes, &nodes.task(session).await).await;
    works(&nodes, session, "\"publish\"").await;
    nodes.ends("l", Phase::Succeeded, 3.0).await;
}

async fn c085_no_items_end_at_once_and_no_list_is_an_error(nodes: Nodes) {
    let lines = "tasks: {a@1: {}}
steps:
  - {id: each, for_each: '${ input.list }', task: a@1, input: item}
  - {id: b, needs: [each], task: a@1, input: '${ steps.each.output }'}
";
    nodes.next().deploy("many", lines).await;
    let session = nodes.next().worker(&["a@1"]).await;
    let start = async |id: &str, input: &str| {
        nodes.next().engine.start_execution(start_of("many", id, input)).await.unwrap();
    };
    start("empty", "{\"list\":[]}").await;
    works(&nodes, session, "[]").await;
    nodes.ends("empty", Phase::Succeeded, 3.0).await;
    assert_eq!(nodes.dispatches("empty").await, 1);
    for (id, input, why) in [("null", "{\"list\":null}", "gives no list"), ("missing", "{}", "has no field `list`")] {
        start(id, input).await;
        nodes.ends(id, Phase::Failed, 3.0).await;
        let standing = nodes.next().standing(id).await;
        let failure = standing.state.failure().unwrap();
        assert_eq!((&*failure.code, &*failure.unit), ("EXPRESSION_FAILED", "each"));
        assert!(failure.message.contains(why), "{}", failure.message);
    }
    no_task(&nodes, session).await;
}

async fn c087_a_loop_without_an_end_fails_and_is_no_burden_before(mut nodes: Nodes) {
    const MOST: u64 = 300;
    let settings = Settings { history_events_max: MOST, ..Settings::default() };
    nodes.configure(Config { settings, ..Config::default() }).await;
    let large = "x".repeat(20_000);
    let lines = format!(
        "tasks: {{a@1: {{}}, n@1: {{}}}}
steps:
  - {{id: a, task: a@1, input: {large}, retry: {{max_attempts: 100000, initial_interval: 1ms, max_interval: 1ms}}}}
handlers:
  failure: [{{id: tell, task: n@1, input: '${{ failure.code }}'}}]
"
    );
    nodes.next().deploy("loop", &lines).await;
    let session = nodes.next().worker(&["a@1"]).await;
    nodes.next().start("loop", "e").await;
    let mut tries = 0;
    while nodes.next().phase("e").await == Phase::Running {
        tries += 1;
        assert!(tries < MOST, "it ends");
        for task in nodes.next().poll_for(session, 1, 0.5).await.tasks {
            nodes.next().report(&task, fail("NOT_YET")).await;
        }
    }
    let telling = nodes.next().worker(&["n@1"]).await;
    works(&nodes, telling, "\"HISTORY_TOO_LONG\"").await;
    nodes.ends("e", Phase::Failed, 60.0).await;
    let standing = nodes.next().standing("e").await;
    assert_eq!(&*standing.state.failure().unwrap().code, "HISTORY_TOO_LONG");
    assert!((MOST..MOST + 20).contains(&standing.state.last_number()), "{}", standing.state.last_number());
    // A retry does not say again what is tried.
    let rows = nodes.store.history(standing.row.key, 0, 10_000, usize::MAX).await.unwrap();
    let bytes: usize = rows.iter().map(|row| row.events.len()).sum();
    assert!(bytes < 20_000 + 200 * usize::try_from(MOST).unwrap(), "{bytes}");
}

/// A worker with room for many tasks.
async fn busy_worker(nodes: &Nodes) -> SessionId {
    let registration = Registration { slots: 1_000, ..registration(&["a@1"]) };
    nodes.next().engine.register(registration).await.unwrap().session
}

async fn c089_ten_thousand_items_are_done_once_each_and_small_ones_go_by(mut nodes: Nodes) {
    const ITEMS: usize = 10_000;
    let lines = "input: {type: array}
tasks: {a@1: {}}
steps:
  - {id: each, for_each: '${ input }', task: a@1, input: '${ item.value }'}
result: ${ size(steps.each.output) }
";
    nodes.next().deploy("many", lines).await;
    nodes.next().deploy("small", "tasks: {a@1: {}}\nsteps: [{id: a, task: a@1, priority: 1}]").await;
    let list: Vec<String> = (0..ITEMS).map(|item| item.to_string()).collect();
    let input = format!("[{}]", list.join(","));
    nodes.next().engine.start_execution(start_of("many", "big", &input)).await.unwrap();
    let mut session = busy_worker(&nodes).await;
    let (mut done, mut rounds, mut small) = (vec![0_u32; ITEMS], 0, 0);
    while done.contains(&0) {
        rounds += 1;
        assert!(rounds < 1_000, "{} are left", done.iter().filter(|times| **times == 0).count());
        if rounds == 25 {
            nodes.lose_last();
            session = busy_worker(&nodes).await;
        }
        let is_small = rounds % 10 == 0;
        if is_small {
            nodes.next().start("small", &format!("small{rounds}")).await;
        }
        let tasks = nodes.next().poll_for(session, 200, 1.0).await.tasks;
        assert!(!is_small || tasks.iter().any(|task| &*task.workflow == "small"), "it does not wait behind the others");
        let reports = tasks.into_iter().map(|task| {
            let engine = nodes.next().engine.clone();
            tokio::spawn(async move {
                let outcome = engine.report(task.token.clone(), complete(task.delivery.input.as_str())).await;
                (task, outcome.unwrap())
            })
        });
        for report in reports.collect::<Vec<_>>() {
            let (task, outcome) = report.await.unwrap();
            assert_eq!(outcome, ReportOutcome::Accepted);
            match &*task.workflow {
                "small" => small += 1,
                _ => done[task.delivery.input.as_str().parse::<usize>().unwrap()] += 1,
            }
        }
        nodes.next().heartbeat(session, Vec::new()).await;
    }
    assert!(done.iter().all(|times| *times == 1) && small >= 3, "{small}");
    nodes.ends("big", Phase::Succeeded, 5.0).await;
    assert_eq!(nodes.next().output("big").await, ITEMS.to_string());
}

async fn c095_a_start_is_known_by_its_content_until_it_is_deleted(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    let start = async |input: &str| nodes.next().engine.start_execution(start_of("one", "k", input)).await;
    let first = start("1").await.unwrap();
    assert!(first.created);
    for _ in 0..2 {
        let again = start("1").await.unwrap();
        assert_eq!((again.uid, again.created), (first.uid, false));
    }
    assert!(matches!(start("2").await, Err(Error::ExecutionAlreadyExists { .. })));
    let session = nodes.next().worker(&["a@1"]).await;
    let task = nodes.task(session).await;
    nodes.next().report(&task, complete("1")).await;
    nodes.ends("k", Phase::Succeeded, 3.0).await;
    assert_eq!(start("1").await.unwrap().uid, first.uid, "also after its end");
    assert!(matches!(start("2").await, Err(Error::ExecutionAlreadyExists { .. })));
    nodes.next().engine.delete(&name("k"), None).await.unwrap();
    let next = start("2").await.unwrap();
    assert!(next.created && next.uid != first.uid, "the id is free");
}

async fn c155_a_result_after_the_deletion_changes_nothing(nodes: Nodes) {
    nodes.next().deploy("one", ONE_TASK).await;
    let session = nodes.next().worker(&["a@1"]).await;
    nodes.next().start("one", "e").await;
    let task = nodes.task(session).await;
    let key = nodes.next().standing("e").await.row.key;
    let open = nodes.next().engine.delete(&name("e"), None).await;
    assert!(matches!(open, Err(Error::Rejected(Rejection::ExecutionOpen { .. }))), "{open:?}");
    nodes.next().engine.terminate(&name("e"), arc("enough"), None).await.unwrap();
    nodes.next().engine.delete(&name("e"), None).await.unwrap();
    let late = async |report| nodes.next().report(&task, report).await;
    let refused = ReportOutcome::Refused(RefusalReason::ExecutionClosed);
    assert_eq!(late(complete("1")).await, refused);
    assert_eq!(late(fail("LATE")).await, refused);
    let answer = nodes.next().heartbeat(session, vec![listed(&task)]).await;
    assert_eq!(answer.stop, std::slice::from_ref(&task.token));
    // Nothing of it is left, and what has the id next is another.
    pass(150.0).await;
    assert_eq!(late(complete("1")).await, refused);
    assert!(nodes.store.execution(&Find::Key(key)).await.unwrap().is_none());
    assert!(nodes.store.history(key, 0, 10, usize::MAX).await.unwrap().is_empty());
    nodes.next().start("one", "e").await;
    assert_eq!(nodes.next().kinds("e").await, ["execution_created", "step_scheduled"]);
    let session = nodes.next().worker(&["a@1"]).await;
    let next = nodes.task(session).await;
    assert_eq!(nodes.next().report(&next, complete("2")).await, ReportOutcome::Accepted);
    nodes.ends("e", Phase::Succeeded, 3.0).await;
    assert_eq!(nodes.next().output("e").await, "2");
}
