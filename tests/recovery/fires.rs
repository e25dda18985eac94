//! SIGKILL around the fires of schedules: each slot starts one execution, whenever the server dies.

use crate::{
    chance,
    run::{Run, beside_others},
    server::Options,
};

#[tokio::test(flavor = "multi_thread")]
async fn each_slot_starts_once_when_the_server_is_killed_around_fires() {
    let _beside = beside_others().await;
    let kills = chance::count("KILLS", 10);
    let mut run = Run::begin("fires", Options::default()).await;
    run.schedule().await;
    for _ in 0..kills {
        // Fires are on full seconds: most kills strike shortly before or after one, some in a downtime of several.
        let lead = run.chance.millis(0, 60);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let until_next = std::time::Duration::from_nanos(u64::from(1_000_000_000 - now.subsec_nanos()));
        tokio::time::sleep((until_next + lead).saturating_sub(std::time::Duration::from_millis(20))).await;
        run.server.kill(&mut run.chance);
        if run.chance.percent(30) {
            let downtime = run.chance.millis(500, 4_000);
            tokio::time::sleep(downtime).await;
        }
        run.server.start_again().await;
    }
    run.end().await;
}
