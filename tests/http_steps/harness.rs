//! An engine that runs `http` steps, a server that they call, and short words for what a caller asks.

use axum::{Router, extract::Request, response::Response};
use orbit::clock::{SystemClock, SystemEntropy};
use orbit::config::Http;
use orbit::domain::{ExecutionId, Payload, Settings, definition::Definition};
use orbit::engine::{Config, Engine, ExecutionName, IdReuse, Standing, StartExecution, input_digest};
use orbit::store::{MemoryStore, Store};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

/// Longest that anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that keeps what it is asked; it ends with the test.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    serving: JoinHandle<()>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) idempotency_key: String,
}

impl Site {
    /// Serves; `answer` is given a request and how many came before it.
    pub(crate) async fn start<F>(answer: impl Fn(Asked, usize) -> F + Clone + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response> + Send,
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let keep = asked.clone();
        let router = Router::new().fallback(move |request: Request| {
            let key = request.headers().get("idempotency-key").unwrap().to_str().unwrap().to_owned();
            let this = Asked { path: request.uri().to_string(), idempotency_key: key };
            let before = {
                let mut asked = keep.lock().unwrap();
                asked.push(this.clone());
                asked.len() - 1
            };
            let answer = answer.clone();
            async move { answer(this, before).await }
        });
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, asked, serving }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until so many requests have come.
    pub(crate) async fn asked_at_least(&self, count: usize) {
        until(|| self.asked().len() >= count).await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Waits until something is true.
pub(crate) async fn until(mut is_true: impl FnMut() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it becomes true");
}

/// An answer.
pub(crate) fn answer(status: u16, content_type: &str, body: impl Into<axum::body::Body>) -> Response {
    Response::builder().status(status).header("content-type", content_type).body(body.into()).unwrap()
}

/// Rules that let steps call this site, and no other place.
pub(crate) fn rules(sites: &[&Site]) -> Http {
    Http {
        allow: sites.iter().map(|site| site.address.to_string().parse().unwrap()).collect(),
        allow_private: vec!["127.0.0.0/8".parse().unwrap()],
        ..Http::default()
    }
}

/// An engine on a store of its own.
pub(crate) fn engine() -> Engine {
    engine_on(Arc::new(MemoryStore::new()), Duration::from_secs(30))
}

pub(crate) fn engine_on(store: Arc<dyn Store>, session_timeout: Duration) -> Engine {
    let settings = Settings { session_timeout, ..Settings::default() };
    let clock = SystemClock::starting_at(store.opened().newest_now);
    Engine::start(store, Arc::new(clock), Arc::new(SystemEntropy), Config { settings, ..Config::default() })
}

/// The definition of these steps, under the name `call`.
pub(crate) fn definition(steps: &str) -> (Definition, String) {
    let text = format!("name: call\nversion: 1.0.0\nsteps:\n{steps}result: ${{ steps.call.output }}\n");
    let (definition, _) =
        Definition::parse("test.yaml", &text).unwrap_or_else(|faults| panic!("{faults:?}\nin\n{text}"));
    (definition, text)
}

/// Deploys these steps and starts an execution `x` of them.
pub(crate) async fn start(engine: &Engine, steps: &str) {
    let (definition, text) = definition(steps);
    engine.deploy(definition, text).await.unwrap();
    let start = StartExecution {
        id: Some(ExecutionId::parse("x").unwrap()),
        workflow: "call".into(),
        version: None,
        input: Payload::from_json("{}"),
        input_digest: input_digest("call", "{}"),
        id_reuse: IdReuse::Reject,
        labels: BTreeMap::new(),
        request: None,
        trace_parent: "".into(),
        delay: None,
        signal: None,
    };
    engine.start_execution(start).await.unwrap();
}

pub(crate) fn name() -> ExecutionName {
    ExecutionName { id: ExecutionId::parse("x").unwrap(), uid: None }
}

/// Waits for the end of the execution.
pub(crate) async fn end(engine: &Engine) -> Standing {
    let standing = engine.wait(&name(), PATIENCE).await.unwrap();
    assert!(standing.state.phase().is_closed(), "it ends: {:?}", standing.state.phase());
    standing
}
