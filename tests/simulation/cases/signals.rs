//! Signals: each once, in order, through any node.

use super::*;
use orbit::domain::{Phase, Rejection, StepState};
use orbit::engine::Error;

on_one_and_two_nodes!(
    c067_an_expired_signal_is_not_delivered,
    c069_the_second_of_two_quick_signals_is_refused_or_recorded_and_never_lost,
    c071_two_signals_at_once_are_both_taken_in_the_order_of_their_receipt,
    c073_a_flood_meets_a_limit_and_does_not_keep_the_execution_from_closing,
);

async fn c067_an_expired_signal_is_not_delivered(nodes: Nodes) {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: z, sleep: {for: 5s}}\n  - {id: w, needs: [z], await: {signal: s, timeout: 1h}}\nresult: ${ steps.w.output }\n";
    nodes.next().deploy("later", lines).await;
    nodes.next().start("later", "e").await;
    let expires = nodes.now() + Duration::from_secs(1);
    nodes.next().engine.signal(&name("e"), arc("s"), json("1"), Some(expires), None).await.unwrap();
    pass(7.0).await;
    assert_eq!(nodes.next().step("e", "w").await, StepState::Awaiting);
    assert_eq!(nodes.next().count("e", |kind| matches!(kind, EventKind::SignalExpired { .. })).await, 1);
    nodes.next().signal("e", "s", "2").await.unwrap();
    assert_eq!(nodes.next().output("e").await, "2");
}

async fn c069_the_second_of_two_quick_signals_is_refused_or_recorded_and_never_lost(nodes: Nodes) {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: w, await: {signal: s}}\nresult: ${ steps.w.output }\n";
    nodes.next().deploy("wait", lines).await;
    for round in 0..50 {
        let id = format!("e{round}");
        nodes.next().start("wait", &id).await;
        let (a, b) = (nodes.next(), nodes.next());
        let (first, second) = tokio::join!(a.signal(&id, "s", "1"), b.signal(&id, "s", "2"));
        let received = nodes.next().count(&id, |kind| matches!(kind, EventKind::SignalReceived { .. })).await;
        let acknowledged = [&first, &second].into_iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(acknowledged, received, "{first:?} {second:?}");
        let is_refusal = |answer: &Result<u64, Error>| match answer {
            Ok(_) => true,
            Err(error) => matches!(error, Error::Rejected(Rejection::ExecutionClosed { .. })),
        };
        assert!(is_refusal(&first) && is_refusal(&second), "{first:?} {second:?}");
        assert!(acknowledged >= 1);
        assert_eq!(nodes.next().phase(&id).await, Phase::Succeeded);
        let taken = nodes.next().output(&id).await;
        assert_eq!(taken, if first.is_ok_and(|number| number == 3) { "1" } else { "2" });
    }
}

async fn c071_two_signals_at_once_are_both_taken_in_the_order_of_their_receipt(nodes: Nodes) {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: v, await: {signal: s}}\n  - {id: w, needs: [v], await: {signal: s}}\nresult: [ '${ steps.v.output }', '${ steps.w.output }' ]\n";
    nodes.next().deploy("loop", lines).await;
    for round in 0..50 {
        let id = format!("e{round}");
        nodes.next().start("loop", &id).await;
        let (a, b) = (nodes.next(), nodes.next());
        let (first, second) = tokio::join!(a.signal(&id, "s", "1"), b.signal(&id, "s", "2"));
        let in_order = first.unwrap() < second.unwrap();
        assert_eq!(nodes.next().phase(&id).await, Phase::Succeeded);
        assert_eq!(nodes.next().output(&id).await, if in_order { "[1,2]" } else { "[2,1]" });
    }
}

async fn c073_a_flood_meets_a_limit_and_does_not_keep_the_execution_from_closing(nodes: Nodes) {
    let lines = "signals: {s: {}}\nsteps:\n  - {id: z, sleep: {for: 55s}}\n";
    nodes.next().deploy("flood", lines).await;
    nodes.next().start("flood", "e").await;
    nodes.next().deploy("one", ONE_TASK).await;
    let session = nodes.next().worker(&["a@1"]).await;
    let begin = nodes.now();
    let (mut taken, mut full, mut closed_at) = (0, 0, None);
    for second in 0..60 {
        let flood = (0..200).map(|_| {
            let engine = nodes.next().engine.clone();
            tokio::spawn(async move { engine.signal(&name("e"), arc("s"), json("1"), None, None).await })
        });
        for answer in flood.collect::<Vec<_>>() {
            match answer.await.unwrap() {
                Ok(_) => taken += 1,
                Err(Error::Rejected(Rejection::SignalBufferFull { .. })) => full += 1,
                Err(Error::Rejected(Rejection::ExecutionClosed { .. })) => {
                    closed_at.get_or_insert(nodes.now());
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        // The others do not wait for it.
        let id = format!("beside-{second}");
        let before = nodes.now();
        nodes.next().start("one", &id).await;
        let task = nodes.task(session).await;
        nodes.next().report(&task, complete("1")).await;
        assert_eq!(nodes.next().wait(&id, 5.0).await, Phase::Succeeded);
        assert!(nodes.now().since(before) <= HEARD);
        pass(1.0 - nodes.now().since(before).as_secs_f64().min(0.9)).await;
    }
    let closed_after = closed_at.expect("it closes").since(begin);
    assert!(closed_after <= Duration::from_secs(58), "{closed_after:?}");
    assert_eq!(nodes.next().phase("e").await, Phase::Succeeded);
    let received = nodes.store.execution(&orbit::store::Find::Id(arc("e"))).await.unwrap().unwrap();
    let newest = nodes.store.newest_numbers(&[received.key]).await.unwrap()[0].unwrap();
    assert!(newest >= taken && taken <= 10_000, "{taken} were taken, {full} found no room");
}
