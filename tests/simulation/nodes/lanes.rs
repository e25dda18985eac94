//! Several commits of one node at once: never two of one execution, nor two that make the same id.

use super::{Node, ONE_TASK};
use crate::{harness::*, random::Random};
use orbit::clock::Clock;
use orbit::store::{
    ExecutionKey, MemoryStore, Target,
    faulty::{Call, Fate},
};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

const LANES: usize = 4;
const COMMIT: Duration = Duration::from_millis(10);

/// What a commit that is under way writes to, until when.
struct UnderWay {
    until: orbit::domain::Timestamp,
    keys: BTreeSet<ExecutionKey>,
    ids: BTreeSet<Arc<str>>,
}

/// Checks each commit against those under way; counts how many there are at most.
fn judge(node: &Node, most: &Arc<Mutex<usize>>) -> impl FnMut(Call<'_>) -> Fate + Send + use<> {
    let (clock, most) = (node.clock.clone(), most.clone());
    let mut under_way: Vec<UnderWay> = Vec::new();
    move |call| {
        let Call::Commit(batch) = call else { return Fate::Works };
        let now = clock.now();
        under_way.retain(|other| other.until > now);
        let mut this = UnderWay { until: now + COMMIT, keys: BTreeSet::new(), ids: BTreeSet::new() };
        for append in batch {
            let is_new = match &append.target {
                Target::New(new) => this.ids.insert(new.id.clone()),
                Target::Existing(key) => this.keys.insert(*key),
            };
            assert!(is_new, "twice in one batch: {:?}", append.target);
        }
        for other in &under_way {
            assert!(this.keys.is_disjoint(&other.keys) && this.ids.is_disjoint(&other.ids), "in two at once");
        }
        under_way.push(this);
        assert!(under_way.len() <= LANES);
        let mut most = most.lock().unwrap();
        *most = under_way.len().max(*most);
        Fate::Takes(COMMIT)
    }
}

#[tokio::test(start_paused = true)]
async fn commits_run_at_once_and_never_meet() {
    let node = Node::on(&MemoryStore::shared().with_committers(LANES), 0);
    node.deploy("one", ONE_TASK).await;
    node.deploy("open", super::OPEN).await;
    for number in 0..20 {
        node.start("open", &format!("open-{number}")).await;
    }
    let most = Arc::new(Mutex::new(0));
    node.meets(judge(&node, &most));
    let mut random = Random::new(1);
    let calls = (0..400).map(|number| {
        let (engine, of) = (node.engine.clone(), random.below(20));
        let after = Duration::from_micros(random.next() % 100_000);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            if number % 2 == 0 {
                engine.start_execution(start_of("one", &format!("one-{of}"), "{}")).await.unwrap();
            } else {
                engine.signal(&name(&format!("open-{of}")), arc("s"), json("1"), None, None).await.unwrap();
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(*most.lock().unwrap(), LANES, "all lanes were used at once");
}

#[tokio::test(start_paused = true)]
async fn a_node_with_several_lanes_drains_and_stops() {
    let node = Node::on(&MemoryStore::shared().with_committers(LANES), 0);
    node.deploy("one", ONE_TASK).await;
    node.start("one", "e").await;
    let engine = node.engine.clone();
    tokio::time::timeout(Duration::from_secs(5), engine.shutdown()).await.expect("it ends");
}
