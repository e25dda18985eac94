//! The worker of a benchmark: gives back each task's input as its output, by stream or by poll.

use super::{
    Mode, chain,
    connect::connect,
    process::{say_ready, told_to_stop},
};
use crate::{
    cli::error::Error,
    clock,
    proto::{
        worker::{
            Complete, CompleteTaskRequest, HeartbeatRequest, HeldTask, PollTasksRequest, RegisterWorkerRequest, Report,
            ReportResult, StreamTasksRequest, StreamTasksResponse, UnregisterWorkerRequest, report::Kind,
            worker_service_client::WorkerServiceClient,
        },
        workflow::{Payload, Task},
    },
};
use futures_util::future::try_join_all;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Interval, MissedTickBehavior},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, transport::Channel};

/// Polls that wait at the same time.
const POLLS: usize = 4;

/// Tasks that one poll takes at most.
const POLL_TASKS_MAX: i32 = 256;

/// Reports that are under way at the same time, with polls.
const REPORTS_MAX: usize = 512;

/// How often reports that the server could not take are sent again.
const RESEND_INTERVAL: Duration = Duration::from_millis(200);

/// Does the tasks.
#[derive(Debug, clap::Args)]
pub(super) struct Worker {
    /// Servers, `HOST:PORT`; the worker has a session at each
    #[arg(long = "server", required = true)]
    servers: Vec<String>,
    /// How tasks come
    #[arg(long, value_enum)]
    mode: Mode,
    /// Tasks at a time, at each server
    #[arg(long)]
    slots: u16,
}

type Client = WorkerServiceClient<Channel>;

/// A registered worker.
#[derive(Clone, Debug)]
struct Session {
    id: String,
    heartbeat_interval: Duration,
    /// Tasks that it takes at a time.
    credits: i32,
}

impl Worker {
    pub(super) async fn run(self) -> Result<(), Error> {
        let mut sessions = Vec::new();
        for server in &self.servers {
            let mut client = WorkerServiceClient::new(connect(server).await?);
            let session = register(&mut client, self.slots).await?;
            sessions.push((client, session));
        }
        say_ready()?;
        let mode = self.mode;
        let work = sessions.iter().map(|(client, session)| async move {
            match mode {
                Mode::Stream => stream(&mut client.clone(), session).await,
                Mode::Poll => poll(client, session).await,
            }
        });
        tokio::select! {
            worked = try_join_all(work) => drop(worked?),
            () = told_to_stop() => {}
        }
        for (mut client, session) in sessions {
            client.unregister_worker(UnregisterWorkerRequest { session_id: session.id }).await?;
        }
        Ok(())
    }
}

async fn register(client: &mut Client, slots: u16) -> Result<Session, Error> {
    let request = RegisterWorkerRequest {
        worker_id: format!("bench-{}", std::process::id()),
        language: "rust".to_owned(),
        queues: vec![chain::QUEUE.to_owned()],
        contracts: vec![chain::CONTRACT.to_owned()],
        slots: i32::from(slots),
        ..RegisterWorkerRequest::default()
    };
    let response = client.register_worker(request).await?.into_inner();
    let heartbeat_interval = response.heartbeat_interval.and_then(|interval| interval.try_into().ok());
    Ok(Session {
        id: response.session_id,
        credits: i32::from(slots),
        heartbeat_interval: heartbeat_interval
            .ok_or_else(|| Error::failure("the server names no heartbeat interval"))?,
    })
}

/// Registers, does the first task that comes, and unregisters.
pub(super) async fn do_one(channel: Channel) -> Result<(), Error> {
    let mut client = WorkerServiceClient::new(channel);
    let session = register(&mut client, 1).await?;
    let tasks = loop {
        let request = PollTasksRequest { session_id: session.id.clone(), max_tasks: 1, wait_duration: None };
        let tasks = client.poll_tasks(request).await?.into_inner().tasks;
        if !tasks.is_empty() {
            break tasks;
        }
    };
    for task in tasks {
        complete(&mut client, &task).await;
    }
    client.unregister_worker(UnregisterWorkerRequest { session_id: session.id }).await?;
    Ok(())
}

fn every(interval: Duration) -> Interval {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Works on one stream after the other: the server ends each after ten minutes or so.
async fn stream(client: &mut Client, session: &Session) -> Result<(), Error> {
    // Tokens whose report was not answered yet, with their outputs: a server that could not take one gets it again.
    let mut held = HashMap::new();
    loop {
        stream_once(client, session, &mut held).await?;
    }
}

async fn stream_once(client: &mut Client, session: &Session, held: &mut HashMap<String, Payload>) -> Result<(), Error> {
    // Unbounded, but never long: a frame answers tasks, and those are bounded by the credits.
    let (frames, receiver) = mpsc::unbounded_channel();
    let first = StreamTasksRequest {
        session_id: session.id.clone(),
        credits: session.credits,
        // What the last stream left unanswered.
        reports: held.iter().map(|(token, output)| report(token.clone(), output.clone())).collect(),
        heartbeat: None,
    };
    let _ = frames.send(first);
    let mut responses = client.stream_tasks(UnboundedReceiverStream::new(receiver)).await?.into_inner();
    let mut heartbeat = every(session.heartbeat_interval);
    let mut resend = every(RESEND_INTERVAL);
    let mut refused = Vec::new();
    loop {
        let frame = tokio::select! {
            response = responses.message() => match response? {
                Some(response) => echo(response, held, &mut refused),
                None => return Ok(()),
            },
            _ = heartbeat.tick() => {
                let held = held.keys().map(|token| held_task(token.clone())).collect();
                let heartbeat = Some(HeartbeatRequest { session_id: String::new(), held });
                Some(StreamTasksRequest { heartbeat, ..StreamTasksRequest::default() })
            }
            _ = resend.tick(), if !refused.is_empty() => {
                let again = |token: String| held.get(&token).map(|output| report(token.clone(), output.clone()));
                let reports = refused.drain(..).filter_map(again).collect();
                Some(StreamTasksRequest { reports, ..StreamTasksRequest::default() })
            }
        };
        // A closed channel is a stream that has ended; the next response says how.
        if let Some(frame) = frame {
            let _ = frames.send(frame);
        }
    }
}

/// Takes in a frame and makes the one that answers its tasks, each with a fresh credit.
fn echo(
    response: StreamTasksResponse,
    held: &mut HashMap<String, Payload>,
    refused: &mut Vec<String>,
) -> Option<StreamTasksRequest> {
    for ReportResult { task_token, error, .. } in response.results {
        match error {
            Some(error) if error.retryable => refused.push(task_token),
            Some(_) | None => drop(held.remove(&task_token)),
        }
    }
    if response.tasks.is_empty() {
        return None;
    }
    let credits = i32::try_from(response.tasks.len()).expect("not more than there were credits");
    let answer = |task: Task| {
        let output = task.input.unwrap_or_default();
        held.insert(task.task_token.clone(), output.clone());
        report(task.task_token, output)
    };
    let reports = response.tasks.into_iter().map(answer).collect();
    Some(StreamTasksRequest { credits, reports, ..StreamTasksRequest::default() })
}

fn report(task_token: String, output: Payload) -> Report {
    Report { task_token, kind: Some(Kind::Complete(Complete { output: Some(output) })) }
}

fn held_task(task_token: String) -> HeldTask {
    HeldTask { task_token, progress: None, beat: false }
}

/// Tokens that the worker holds, with polls.
type Held = Arc<Mutex<HashSet<String>>>;

fn lock(held: &Held) -> MutexGuard<'_, HashSet<String>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works with polls, reports and heartbeats as calls of their own.
async fn poll(client: &Client, session: &Session) -> Result<(), Error> {
    let held = Held::default();
    let reports = Arc::new(Semaphore::new(REPORTS_MAX));
    let mut loops = JoinSet::new();
    for _ in 0..POLLS {
        loops.spawn(keep_polling(client.clone(), session.clone(), Arc::clone(&held), Arc::clone(&reports)));
    }
    loops.spawn(keep_beating(client.clone(), session.clone(), held));
    let first = loops.join_next().await.expect("there are loops");
    Err(first.expect("a loop does not panic").into())
}

/// Polls until a call fails.
async fn keep_polling(mut client: Client, session: Session, held: Held, reports: Arc<Semaphore>) -> Status {
    loop {
        let request = PollTasksRequest {
            session_id: session.id.clone(),
            max_tasks: POLL_TASKS_MAX.min(session.credits),
            wait_duration: None,
        };
        let response = match client.poll_tasks(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => return status,
        };
        for task in response.tasks {
            lock(&held).insert(task.task_token.clone());
            let permit = Arc::clone(&reports).acquire_owned().await.expect("it is never closed");
            let (mut client, held) = (client.clone(), Arc::clone(&held));
            tokio::spawn(async move {
                complete(&mut client, &task).await;
                lock(&held).remove(&task.task_token);
                drop(permit);
            });
        }
        if response.draining {
            clock::sleep(RESEND_INTERVAL).await;
        }
    }
}

/// Reports a task until the server has an answer. What is refused for good shows at the caller, as a missing end.
async fn complete(client: &mut Client, task: &Task) {
    loop {
        let request = CompleteTaskRequest { task_token: task.task_token.clone(), output: task.input.clone() };
        match client.complete_task(request).await {
            Err(status) if status.code() == tonic::Code::Unavailable => clock::sleep(RESEND_INTERVAL).await,
            Ok(_) | Err(_) => return,
        }
    }
}

/// Sends heartbeats until one fails.
async fn keep_beating(mut client: Client, session: Session, held: Held) -> Status {
    let mut ticks = every(session.heartbeat_interval);
    loop {
        ticks.tick().await;
        let held = lock(&held).iter().cloned().map(held_task).collect();
        if let Err(status) = client.heartbeat(HeartbeatRequest { session_id: session.id.clone(), held }).await {
            return status;
        }
    }
}
