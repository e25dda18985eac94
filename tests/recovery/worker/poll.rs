//! Fetching by poll: polls, reports and heartbeats are calls of their own.

use super::{Ended, Session, Shared};
use crate::connect::{Answer, Refusal};
use orbit::proto::worker::{HeartbeatRequest, PollTasksRequest};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Polls that wait at the same time.
const POLLS: usize = 2;

/// Longest wait of a poll: short, so that polls end in the middle of everything.
const WAIT: Duration = Duration::from_secs(2);

/// Works until the connection or the session is lost, or the worker has drained.
pub(super) async fn work(shared: &Arc<Shared>, session: &Session, stop: &CancellationToken) -> Ended {
    let fetch = async {
        let polls = (0..POLLS).map(|_| Box::pin(keep_polling(shared, session, stop)));
        let (ended, ..) = futures_util::future::select_all(polls).await;
        ended
    };
    tokio::select! {
        ended = fetch => ended,
        ended = keep_beating(shared, session) => ended,
    }
}

async fn keep_polling(shared: &Arc<Shared>, session: &Session, stop: &CancellationToken) -> Ended {
    loop {
        // The polls share the slots.
        let room = shared.room().div_ceil(POLLS);
        if stop.is_cancelled() {
            std::future::pending().await
        }
        if room == 0 {
            tokio::select! {
                () = shared.freed.notified() => {}
                // The other poll may have been told.
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
            continue;
        }
        let request = PollTasksRequest {
            session_id: session.id.clone(),
            max_tasks: i32::try_from(room).expect("it is small"),
            wait_duration: Some(WAIT.try_into().expect("it is short")),
        };
        match Answer::of(shared.client.clone().poll_tasks(request).await) {
            Answer::Done(response) => response.tasks.into_iter().for_each(|task| shared.accept(task)),
            Answer::Refused(refusal) => return ended(shared, &refusal),
            Answer::Unknown(_) => return Ended::Connection,
        }
    }
}

async fn keep_beating(shared: &Arc<Shared>, session: &Session) -> Ended {
    let mut ticks = tokio::time::interval(session.heartbeat_interval);
    loop {
        ticks.tick().await;
        let request = HeartbeatRequest { session_id: session.id.clone(), held: shared.listed() };
        match Answer::of(shared.client.clone().heartbeat(request).await) {
            Answer::Done(response) => shared.stop_tasks(&response.stop),
            Answer::Refused(refusal) => return ended(shared, &refusal),
            Answer::Unknown(_) => return Ended::Connection,
        }
    }
}

/// The one refusal that a session may meet is that it is over.
pub(super) fn ended(shared: &Shared, refusal: &Refusal) -> Ended {
    if refusal.reason != "SESSION_NOT_FOUND" {
        shared.fault(&format!("the session was refused: {refusal:?}"));
    }
    Ended::Session
}
