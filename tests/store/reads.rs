//! Lists, pages and what the loops look for.

use crate::{make::*, on_every_store, written};
use orbit::store::{Append, ExecutionKey, ExecutionRow, ExecutionState, Find, ListFilter, ListPage, Store, WakeChange};

on_every_store![
    c139_pages_have_each_execution_once_though_all_started_at_once,
    a_list_has_the_newest_start_first,
    a_list_keeps_to_its_filter,
    a_list_looks_at_few_entries_at_a_time_and_finds_all,
    a_list_walks_the_condition_that_fewest_meet,
    history_comes_in_pages,
    what_is_due_comes_earliest_first,
    waiting_units_come_in_order,
    a_quarantined_execution_is_neither_woken_nor_dispatched,
    a_closed_store_or_an_open_one_has_a_size,
];

async fn pages(store: &dyn Store, filter: &ListFilter, page_size: usize) -> Vec<ExecutionRow> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(filter, after, page_size).await.unwrap();
        assert!(page.rows.len() <= page_size);
        all.extend(page.rows);
        if page.next.is_none() {
            return all;
        }
        assert!(page.next < after || after.is_none(), "{:?} after {after:?}", page.next);
        after = page.next;
    }
}

async fn c139_pages_have_each_execution_once_though_all_started_at_once(store: &dyn Store) {
    const EXECUTIONS: u128 = 10_000;
    for first in (0..EXECUTIONS).step_by(1000) {
        let batch = (first..first + 1000).map(|n| with_labels(start(&format!("e{n}"), n + 1), &[("tenant", "a")]));
        store.commit(batch.collect()).await.unwrap();
    }
    let by_label = ListFilter { labels: vec![("tenant".into(), "a".into())], ..ListFilter::default() };
    for filter in [ListFilter::default(), by_label] {
        let all = pages(store, &filter, 10).await;
        let keys: std::collections::BTreeSet<ExecutionKey> = all.iter().map(|row| row.key).collect();
        assert_eq!((all.len(), keys.len()), (EXECUTIONS as usize, EXECUTIONS as usize));
        assert!(all.is_sorted_by(|a, b| a.key > b.key));
    }
}

async fn a_list_has_the_newest_start_first(store: &dyn Store) {
    for (number, started) in [30, 10, 20, 20].into_iter().enumerate() {
        written(
            store,
            with_row(start(&format!("e{number}"), number as u128 + 1), |row| row.start_time = time(started)),
        )
        .await;
    }
    let ids = |rows: Vec<ExecutionRow>| rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>();
    let page = async |most| ids(store.list(&ListFilter::default(), None, most).await.unwrap().rows);
    assert_eq!(page(10).await, ["e0", "e3", "e2", "e1"]);
    assert_eq!(page(2).await, ["e0", "e3"]);
    assert_eq!(ids(pages(store, &ListFilter::default(), 1).await), ["e0", "e3", "e2", "e1"]);
    assert_eq!(store.list(&ListFilter::default(), None, 0).await.unwrap(), ListPage::default());
}

async fn a_list_keeps_to_its_filter(store: &dyn Store) {
    let labels: [&[(&str, &str)]; 3] =
        [&[("tenant", "a")], &[("tenant", "a"), ("day", "1")], &[("tenant", "b"), ("day", "1")]];
    for number in 0..36_u32 {
        let begin = with_labels(start(&format!("e{number}"), u128::from(number) + 1), labels[number as usize % 3]);
        let begin = with_row(begin, |row| {
            row.workflow = if number % 2 == 0 { "even".into() } else { "odd".into() };
            row.start_time = time(i64::from(number / 4));
        });
        let key = written(store, begin).await;
        match number % 4 {
            0 => drop(written(store, ending(key, 3, ExecutionState::Succeeded, 50)).await),
            1 => drop(written(store, ending(key, 3, ExecutionState::Failed, 50)).await),
            _ => {}
        }
    }
    let all = pages(store, &ListFilter::default(), 100).await;
    assert_eq!(all.len(), 36);
    let some_states: [&[ExecutionState]; 5] = [
        &[],
        &[ExecutionState::Running],
        &[ExecutionState::Failed, ExecutionState::Succeeded, ExecutionState::Failed],
        &[ExecutionState::Terminated],
        &ExecutionState::ALL,
    ];
    let some_labels: [&[(&str, &str)]; 4] =
        [&[], &[("tenant", "a")], &[("day", "1"), ("tenant", "b")], &[("day", "2")]];
    for states in some_states {
        for labels in some_labels {
            for workflow in [None, Some("odd"), Some("none")] {
                for (from, until) in [(None, None), (Some(2), Some(5)), (Some(5), Some(2))] {
                    let filter = ListFilter {
                        states: states.to_vec(),
                        workflow: workflow.map(Into::into),
                        labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
                        start_from: from.map(time),
                        start_until: until.map(time),
                    };
                    let expected: Vec<_> = all
                        .iter()
                        .filter(|row| states.is_empty() || states.contains(&row.state))
                        .filter(|row| workflow.is_none_or(|workflow| *row.workflow == *workflow))
                        .filter(|row| {
                            labels.iter().all(|(key, value)| row.labels.get(*key).is_some_and(|v| v == value))
                        })
                        .filter(|row| from.is_none_or(|from| row.start_time >= time(from)))
                        .filter(|row| until.is_none_or(|until| row.start_time < time(until)))
                        .cloned()
                        .collect();
                    assert_eq!(pages(store, &filter, 3).await, expected, "{filter:?}");
                }
            }
        }
    }
}

/// Executions of two workflows, in turn: tenant a starts orders, tenant b refunds. Each has the label `all`.
async fn two_tenants(store: &dyn Store) {
    for first in (0..6000).step_by(1000) {
        let batch = (first..first + 1000).map(|number: u128| {
            let (tenant, workflow) = if number.is_multiple_of(2) { ("a", "order") } else { ("b", "refund") };
            let row = with_row(start(&format!("e{number}"), number + 1), |row| {
                row.start_time = time(number as i64);
                row.workflow = workflow.into();
            });
            with_labels(row, &[("tenant", tenant), ("all", "1")])
        });
        store.commit(batch.collect()).await.unwrap();
    }
}

async fn a_list_looks_at_few_entries_at_a_time_and_finds_all(store: &dyn Store) {
    let odd = with_labels(with_row(start("odd", 9000), |row| row.workflow = "refund".into()), &[("tenant", "a")]);
    written(store, with_row(odd, |row| row.start_time = time(-1))).await;
    two_tenants(store).await;
    let refunds = ListFilter {
        workflow: Some("refund".into()),
        labels: vec![("tenant".into(), "a".into())],
        ..ListFilter::default()
    };
    let both = ListFilter { states: vec![ExecutionState::Running, ExecutionState::Failed], ..refunds.clone() };
    for filter in [refunds, both] {
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = store.list(&filter, after, 10).await.unwrap();
            found.extend(page.rows.into_iter().map(|row| row.id.to_string()));
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, ["odd"]);
        // Memory is the model, and looks at all at once.
        assert_eq!(pages > 3, store.kind() != "memory", "{pages} pages");
        assert!(pages < 20, "{pages} pages");
    }
}

async fn a_list_walks_the_condition_that_fewest_meet(store: &dyn Store) {
    two_tenants(store).await;
    let rare = with_labels(start("rare", 9000), &[("tenant", "c"), ("all", "1")]);
    let rare = written(store, with_row(rare, |row| row.start_time = time(-1))).await;
    written(store, ending(rare, 3, ExecutionState::Failed, 9)).await;
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let failed = ListFilter { states: vec![ExecutionState::Failed], ..ListFilter::default() };
    for filter in [
        ListFilter { labels: vec![label("all", "1")], ..failed },
        ListFilter { labels: vec![label("all", "1"), label("tenant", "c")], ..ListFilter::default() },
        ListFilter {
            labels: vec![label("all", "1"), label("tenant", "c")],
            workflow: Some("order".into()),
            ..ListFilter::default()
        },
        ListFilter {
            labels: vec![label("all", "1"), label("tenant", "c")],
            states: vec![ExecutionState::Failed],
            ..ListFilter::default()
        },
    ] {
        let page = store.list(&filter, None, 10).await.unwrap();
        assert_eq!((page.rows.len(), page.next), (1, None), "{filter:?}");
        assert_eq!(&*page.rows[0].id, "rare");
    }
}

async fn history_comes_in_pages(store: &dyn Store) {
    let key = written(store, start("a", 1)).await;
    written(store, Append { events: vec![1; 1000].into(), ..append(key, 3, 5) }).await;
    written(store, Append { events: vec![2; 1000].into(), ..append(key, 6, 6) }).await;
    written(store, append(key, 7, 7)).await;
    let firsts = async |after, rows, bytes| {
        store.history(key, after, rows, bytes).await.unwrap().iter().map(|row| row.first_number).collect::<Vec<_>>()
    };
    assert_eq!(firsts(0, 10, usize::MAX).await, [1, 3, 6, 7]);
    assert_eq!(firsts(2, 10, usize::MAX).await, [3, 6, 7]);
    // Events 3 to 5 stand in one row, which comes as long as one of them is asked for.
    assert_eq!(firsts(4, 10, usize::MAX).await, [3, 6, 7]);
    assert_eq!(firsts(5, 10, usize::MAX).await, [6, 7]);
    assert_eq!(firsts(7, 10, usize::MAX).await, [0; 0]);
    assert_eq!(firsts(u64::MAX, 10, usize::MAX).await, [0; 0]);
    assert_eq!(firsts(0, 2, usize::MAX).await, [1, 3]);
    assert_eq!(firsts(2, 10, 1).await, [3]);
    assert_eq!(firsts(2, 10, 1001).await, [3, 6]);
    assert_eq!(store.history(ExecutionKey(404), 0, 10, usize::MAX).await.unwrap(), []);
}

async fn what_is_due_comes_earliest_first(store: &dyn Store) {
    let mut keys = Vec::new();
    for (number, wake) in [30, 10, 20, 20, 40].into_iter().enumerate() {
        let begin = start(&format!("e{number}"), number as u128 + 1);
        keys.push(written(store, Append { wake: WakeChange::Set(Some(time(wake))), ..begin }).await);
    }
    written(store, start("sleeps", 99)).await;
    let expected = [(keys[1], time(10)), (keys[2], time(20)), (keys[3], time(20)), (keys[0], time(30))];
    assert_eq!(store.due(time(30), 10).await.unwrap(), expected);
    assert_eq!(store.due(time(30), 2).await.unwrap(), expected[..2]);
}

async fn waiting_units_come_in_order(store: &dyn Store) {
    let other = orbit::store::ReadyUnit { language: "go".into(), ..unit("other", 1, 1) };
    let a = written(
        store,
        Append { ready_added: vec![unit("x", 3, 5), unit("w", 3, 5), other, unit("late", 5, 1)], ..start("a", 1) },
    )
    .await;
    let b = written(
        store,
        Append { ready_added: vec![unit("x", 3, 5), unit("x2", 3, 4), unit("first", 1, 9)], ..start("b", 2) },
    )
    .await;
    let ready = store.ready(&pool(), 10).await.unwrap();
    let order: Vec<_> = ready.iter().map(|row| (row.execution, &*row.unit.unit)).collect();
    assert_eq!(order, [(b, "first"), (b, "x2"), (a, "w"), (a, "x"), (b, "x"), (a, "late")]);
    assert_eq!(store.ready(&pool(), 2).await.unwrap(), ready[..2]);
    let go = orbit::store::Pool { language: "go".into(), ..pool() };
    assert_eq!(store.ready(&go, 10).await.unwrap().len(), 1);
}

async fn a_quarantined_execution_is_neither_woken_nor_dispatched(store: &dyn Store) {
    let begin = Append { wake: WakeChange::Set(Some(time(1))), ready_added: vec![unit("u", 1, 1)], ..start("a", 1) };
    let key = written(store, begin).await;
    store.quarantine(key, "event 3 cannot be read").await.unwrap();
    assert_eq!(store.due(time(100), 10).await.unwrap(), []);
    assert_eq!(store.ready(&pool(), 10).await.unwrap(), []);
    let row = store.execution(&Find::Key(key)).await.unwrap().unwrap();
    assert_eq!(row.quarantined.as_deref(), Some("event 3 cannot be read"));
    store.quarantine(ExecutionKey(404), "not there").await.unwrap();
}

async fn a_closed_store_or_an_open_one_has_a_size(store: &dyn Store) {
    written(store, start("a", 1)).await;
    let size = store.size().await.unwrap();
    assert!(size.database_bytes >= size.log_bytes);
    // A shared store begins with the database's clock.
    assert_eq!(store.opened().newest_now.is_some(), store.is_shared());
}
