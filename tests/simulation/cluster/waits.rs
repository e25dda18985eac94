//! Waits at a node that cannot see what becomes of what it waits for.

use super::*;
use orbit::engine::Error;

#[tokio::test(start_paused = true)]
async fn who_waits_at_a_node_that_has_lost_its_database_is_told_so_within_seconds() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    cluster.nodes[0].start("one", "e").await;
    let engine = cluster.nodes[1].engine.clone();
    let wait = tokio::spawn(async move { engine.wait(&name("e"), Duration::from_secs(25)).await });
    pass(3.0).await;
    assert!(!wait.is_finished(), "it waits as long as all is well");
    cluster.nodes[1].weather(|_| Fate::FailsBefore);
    let began = tokio::time::Instant::now();
    let answer = wait.await.unwrap();
    assert!(matches!(answer, Err(Error::Store(_))), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_waits_goes_on_waiting_where_one_look_has_failed() {
    let cluster = Cluster::new(2).await;
    cluster.nodes[0].deploy("one", ONE_TASK).await;
    let session = cluster.nodes[0].worker(&["a@1"]).await;
    cluster.nodes[0].start("one", "e").await;
    let engine = cluster.nodes[1].engine.clone();
    let wait = tokio::spawn(async move { engine.wait(&name("e"), Duration::from_secs(25)).await });
    pass(3.0).await;
    let mut looks = 0;
    cluster.nodes[1].weather(move |call| {
        looks += usize::from(method(&call) == "newest_numbers");
        if looks == 1 && method(&call) == "newest_numbers" { Fate::FailsBefore } else { Fate::Works }
    });
    pass(5.0).await;
    assert!(!wait.is_finished(), "{:?}", wait.await);
    let task = cluster.nodes[0].task(session).await;
    cluster.nodes[0].report(&task, complete("1")).await;
    assert_eq!(wait.await.unwrap().unwrap().state.phase(), orbit::domain::Phase::Succeeded);
}
