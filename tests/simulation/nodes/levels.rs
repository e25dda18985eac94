//! Events that a live node could not read are not written.

use super::{OPEN, nodes};
use crate::harness::*;
use orbit::engine::Error;
use orbit::store::{NodeRow, Presence, Store};

#[tokio::test(start_paused = true)]
async fn nothing_is_written_that_a_live_node_of_an_older_version_could_not_read() {
    let [a] = nodes();
    a.deploy("open", OPEN).await;
    a.start("open", "e").await;
    let before = a.kinds("e").await;
    for second in 0..8_u32 {
        let old = NodeRow { id: uuid::Uuid::from_u128(1), now: a.now(), level: 0 };
        a.memory.presence(&Presence { node: Some(old), ..Presence::default() }).await.unwrap();
        pass(1.0).await;
        if second < 4 {
            continue;
        }
        let refused = a.signal("e", "s", "1").await;
        assert!(matches!(refused, Err(Error::LevelTooHigh)), "{refused:?}");
        let refused = a.engine.start_execution(start_of("open", "f", "{}")).await;
        assert!(matches!(refused, Err(Error::LevelTooHigh)), "{refused:?}");
    }
    assert_eq!(a.kinds("e").await, before);
    assert!(matches!(a.engine.execution(&name("f")).await, Err(Error::ExecutionNotFound { .. })));
    // It writes no more that it lives, so it does not count for long.
    pass(10.0).await;
    a.signal("e", "s", "1").await.unwrap();
}
