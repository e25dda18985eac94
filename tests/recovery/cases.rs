//! Single faults, step by step: workers by hand, and one fault each.

mod dead_poll;
mod lost_reply;
mod old_token;
mod server_restart;

use crate::{
    caller::payload,
    connect::{Admin, Tasks},
    journal::Outcome,
    server::{Options, Server},
    workflow,
};
use orbit::proto::{
    admin::StartExecutionRequest,
    worker::{
        CompleteTaskRequest, FailTaskRequest, HeartbeatRequest, HeldTask, PollTasksRequest, RegisterWorkerRequest,
        ReleaseTaskRequest, ReportOutcome,
    },
    workflow::{Event, Failure, Task, event::Kind},
};
use serde_json::{Value, json};
use std::time::Duration;

/// Silence after which a session, or a delivery that nobody lists, is lost: twice the shortest that there is, since other tests
/// run beside.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// Longer than any task of these cases needs to come.
const LONG: Duration = Duration::from_secs(20);

/// One step or two for these workers, and a step that wants beats.
const CASES: [&str; 3] = [
    "
name: one
version: 1.0.0
tasks: {case.work@1: {}}
steps:
  - {id: a, task: case.work@1}
result: {a: '${ steps.a.output }'}
",
    "
name: two
version: 1.0.0
tasks: {case.work@1: {}, case.later@1: {}}
steps:
  - {id: a, task: case.work@1}
  - {id: b, needs: [a], task: case.later@1}
result: {a: '${ steps.a.output }'}
",
    "
name: beats
version: 1.0.0
tasks: {case.work@1: {}}
steps:
  - {id: a, task: case.work@1, timeout: 1h, heartbeat_timeout: 3s, retry: {max_attempts: 2, initial_interval: 0s}}
result: {a: '${ steps.a.output }'}
",
];

/// A server with the definitions of the cases.
async fn server() -> Server {
    let environment = vec![("ORBIT_SESSION_TIMEOUT", format!("{}s", SESSION_TIMEOUT.as_secs()))];
    let server = Server::start_with(Options { environment, ..Options::default() }).await;
    for source in CASES {
        workflow::deploy_source(&mut server.admin(), source).await;
    }
    server
}

async fn start(admin: &mut Admin, workflow: &str, id: &str) {
    let request =
        StartExecutionRequest { id: id.to_owned(), workflow: workflow.to_owned(), ..StartExecutionRequest::default() };
    admin.start_execution(request).await.unwrap();
}

/// A worker that does what it is told, on a connection of its own, and nothing by itself.
#[derive(Clone, Debug)]
struct Hand {
    tasks: Tasks,
    session_id: String,
}

impl Hand {
    async fn register(server: &Server, worker_id: &str) -> Self {
        Self::register_for(server.tasks(), worker_id, "case.work@1").await
    }

    async fn register_for(mut tasks: Tasks, worker_id: &str, contract: &str) -> Self {
        let request = RegisterWorkerRequest {
            worker_id: worker_id.to_owned(),
            contracts: vec![contract.to_owned()],
            ..RegisterWorkerRequest::default()
        };
        let session_id = tasks.register_worker(request).await.unwrap().into_inner().session_id;
        Self { tasks, session_id }
    }

    /// The next task, if one comes in time.
    async fn poll_for(&self, wait: Duration) -> Option<Task> {
        let request = PollTasksRequest {
            session_id: self.session_id.clone(),
            max_tasks: 1,
            wait_duration: Some(wait.try_into().unwrap()),
        };
        self.tasks.clone().poll_tasks(request).await.unwrap().into_inner().tasks.pop()
    }

    /// The next task. Beats while it waits, as one who holds nothing.
    async fn poll(&self) -> Task {
        let _beating = self.keep_listing(&[]);
        self.poll_for(LONG).await.expect("a task comes")
    }

    /// A heartbeat that lists these tasks. Answers with the tokens to stop; none if the session is over.
    async fn beat(&self, held: &[&Task], beat: bool) -> Option<Vec<String>> {
        let held = held.iter().map(|task| HeldTask { task_token: task.task_token.clone(), progress: None, beat });
        let request = HeartbeatRequest { session_id: self.session_id.clone(), held: held.collect() };
        self.tasks.clone().heartbeat(request).await.ok().map(|response| response.into_inner().stop)
    }

    async fn complete(&self, task: &Task, output: &Value) -> Outcome {
        let request = CompleteTaskRequest { task_token: task.task_token.clone(), output: Some(payload(output)) };
        outcome(self.tasks.clone().complete_task(request).await.unwrap().into_inner().outcome)
    }

    async fn fail(&self, task: &Task) -> Outcome {
        let failure = Some(Failure { code: "LATE".to_owned(), ..Failure::default() });
        let request = FailTaskRequest { task_token: task.task_token.clone(), failure, ..FailTaskRequest::default() };
        outcome(self.tasks.clone().fail_task(request).await.unwrap().into_inner().outcome)
    }

    async fn release(&self, task: &Task) -> Outcome {
        let request = ReleaseTaskRequest { task_token: task.task_token.clone() };
        outcome(self.tasks.clone().release_task(request).await.unwrap().into_inner().outcome)
    }

    /// Beats in the background, listing these tasks, until the answer is dropped.
    fn keep_listing(&self, tasks: &[&Task]) -> KeepListing {
        let (hand, tasks) = (self.clone(), tasks.iter().map(|task| (*task).clone()).collect::<Vec<_>>());
        KeepListing(tokio::spawn(async move {
            loop {
                hand.beat(&tasks.iter().collect::<Vec<_>>(), false).await;
                tokio::time::sleep(SESSION_TIMEOUT / 4).await;
            }
        }))
    }
}

/// A worker that goes on beating.
struct KeepListing(tokio::task::JoinHandle<()>);

impl Drop for KeepListing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn outcome(outcome: Option<ReportOutcome>) -> Outcome {
    let outcome = outcome.expect("an answer has an outcome");
    match (outcome.accepted, outcome.duplicate) {
        (true, false) => Outcome::Accepted,
        (true, true) => Outcome::Duplicate,
        (false, _) => refused(outcome.reason().as_str_name()),
    }
}

fn refused(reason: &str) -> Outcome {
    Outcome::Refused(reason.to_owned())
}

/// The output that makes a result known.
fn by(worker: &str) -> Value {
    json!({"by": worker})
}

/// How many events are of a kind.
fn count(events: &[Event], is_one: impl Fn(&Kind) -> bool) -> usize {
    events.iter().filter(|event| event.kind.as_ref().is_some_and(&is_one)).count()
}
