//! A task that was handed out, and whose reply never reached its worker.

use super::{Hand, by, server, start};
use crate::{connect, journal::Outcome, oracle::wait, run::beside_others, server::Server};
use orbit::proto::workflow::execution::State;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A lost task must be back within this: a few session timeouts.
const SECONDS: Duration = Duration::from_secs(6);

/// A wire between a worker and its server that can swallow what the server says.
struct Wire {
    address: SocketAddr,
    swallows: Arc<AtomicBool>,
}

impl Wire {
    async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let swallows = Arc::new(AtomicBool::new(false));
        let (target, swallowing) = (server.address(), Arc::clone(&swallows));
        tokio::spawn(async move {
            while let Ok((worker, _)) = listener.accept().await {
                tokio::spawn(carry(worker, target, Arc::clone(&swallowing)));
            }
        });
        Self { address, swallows }
    }

    fn swallow(&self, swallows: bool) {
        self.swallows.store(swallows, Ordering::SeqCst);
    }
}

/// Carries bytes both ways; what the server says while the wire swallows is gone, and the connection with it.
async fn carry(worker: TcpStream, target: SocketAddr, swallows: Arc<AtomicBool>) {
    let server = TcpStream::connect(target).await.unwrap();
    let (mut worker_reads, mut worker_writes) = worker.into_split();
    let (mut server_reads, mut server_writes) = server.into_split();
    let up = async move { tokio::io::copy(&mut worker_reads, &mut server_writes).await.map(drop) };
    let down = async move {
        let mut bytes = vec![0; 16 * 1024];
        loop {
            let count = server_reads.read(&mut bytes).await?;
            if count == 0 {
                return Ok::<_, std::io::Error>(());
            }
            if !swallows.load(Ordering::SeqCst) {
                worker_writes.write_all(&bytes[..count]).await?;
            }
        }
    };
    let _ = tokio::join!(up, down);
}

#[tokio::test(flavor = "multi_thread")]
async fn c003_a_task_whose_reply_was_swallowed_is_handed_out_again_within_seconds() {
    let _beside_others = beside_others().await;
    let mut server = server().await;
    let mut admin = server.admin();
    let wire = Wire::to(&server).await;
    let deaf = Hand::register_for(connect::tasks(wire.address), "deaf", "case.work@1").await;
    wire.swallow(true);
    let poll = {
        let deaf = deaf.clone();
        tokio::spawn(async move { deaf.poll().await })
    };
    // The worker lives and beats on another wire, but does not know of the task, so it does not list it.
    let beating = Hand { tasks: server.tasks(), session_id: deaf.session_id.clone() };
    let _listing = beating.keep_listing(&[]);
    start(&mut admin, "one", "swallowed").await;
    let begin = Instant::now();
    while dispatches(&mut admin).await == 0 {
        assert!(begin.elapsed() < SECONDS, "the deaf worker's poll takes the task");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    let begin = Instant::now();
    let second = Hand::register(&server, "second").await;
    let task = second.poll().await;
    assert!(begin.elapsed() < SECONDS, "{:?}", begin.elapsed());
    assert_eq!(task.attempt, 1, "no attempt was used up");
    assert!(task.redelivery, "nobody knows whether the first delivery arrived");
    assert_eq!(second.complete(&task, &by("second")).await, Outcome::Accepted);
    assert_eq!(wait(&mut admin, "swallowed").await.state(), State::Succeeded);
    poll.abort();
    server.stop().await;
}

async fn dispatches(admin: &mut connect::Admin) -> usize {
    let events = crate::oracle::events(admin, "swallowed").await;
    super::count(&events, |kind| matches!(kind, orbit::proto::workflow::event::Kind::StepDispatched(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn c003_a_call_that_is_given_up_while_its_task_is_committed_costs_no_attempt() {
    let _beside_others = beside_others().await;
    let mut chance = crate::chance::Chance::named("c003");
    let mut server = server().await;
    let mut admin = server.admin();
    let second = Hand::register(&server, "second").await;
    let _beating = second.keep_listing(&[]);
    for round in 0..30 {
        let id = format!("given-up-{round}");
        let first = Hand::register(&server, "first").await;
        let poll = tokio::spawn(async move { first.poll().await });
        let wait = Duration::from_micros(chance.below(3_000));
        // The call is cut off around the moment of the commit, before or after.
        let (_, ()) = tokio::join!(start(&mut admin, "one", &id), async {
            tokio::time::sleep(wait).await;
            poll.abort();
        });
        let begin = Instant::now();
        let task = second.poll().await;
        assert!(begin.elapsed() < SECONDS, "round {round}: {:?}", begin.elapsed());
        assert_eq!((task.execution_id.as_str(), task.attempt), (id.as_str(), 1));
        assert_eq!(second.complete(&task, &by("second")).await, Outcome::Accepted);
    }
    server.stop().await;
}
