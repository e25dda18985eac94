//! Where stories are played: an engine on a real database, in time that leaps.
//!
//! Tokio's time is paused, so it goes on at once where nobody has anything to do. A database answers in real time: for
//! as long as a call of it is under way, time stands still. Its own connections and duties live in another runtime, whose
//! time is real.

use crate::{Text, play, postgres, script::Story, worker};
use orbit::clock::{SeededEntropy, TokioClock};
use orbit::domain::{
    Timestamp,
    definition::{Definition, HTTP_CONTRACT, HTTP_QUEUE},
};
use orbit::engine::{Config, Deployment, Engine};
use orbit::store::{
    Faulty, PostgresStore, SqliteStore, Store, faulty::Fate, postgres::Options as PostgresOptions, sqlite,
};
use std::{any::Any, sync::Arc};

/// When the first story begins.
const START: Timestamp = Timestamp::from_micros(1_000_000_000_000_000);

/// An engine, and the definitions that are deployed there.
pub(crate) struct Stage {
    pub(crate) engine: Engine,
    pub(crate) definitions: Vec<Definition>,
}

/// Plays stories on SQLite.
pub(crate) fn on_sqlite(definitions: &[Text], stories: &[Story]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orbit.db");
    perform(definitions, stories, async move |_: &mut Vec<Box<dyn Any>>| {
        Arc::new(SqliteStore::open(&path, sqlite::Options::default()).await.unwrap()) as Arc<dyn Store>
    });
}

/// Plays stories on PostgreSQL.
pub(crate) fn on_postgres(definitions: &[Text], stories: &[Story]) {
    perform(definitions, stories, async |kept: &mut Vec<Box<dyn Any>>| {
        let database = postgres::fresh_database().await;
        let store = PostgresStore::open(PostgresOptions::new(database.url())).await.unwrap();
        kept.push(Box::new(database));
        Arc::new(store) as Arc<dyn Store>
    });
}

fn perform(texts: &[Text], stories: &[Story], open: impl AsyncFnOnce(&mut Vec<Box<dyn Any>>) -> Arc<dyn Store>) {
    let real = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut kept = Vec::new();
    let store = real.block_on(open(&mut kept));
    let paused = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let failures = paused.block_on(async {
        let handle = tokio::runtime::Handle::current();
        let timed = Faulty::new(store.clone(), |_| Fate::Works).holding(move || stop_time(&handle));
        let clock = Arc::new(TokioClock::starting_at(START));
        let engine = Engine::start(Arc::new(timed), clock, Arc::new(SeededEntropy::new(11)), Config::default());
        let mut failures = Vec::new();
        // Who runs `http` steps must be there at a deploy.
        let server = worker::enter(&engine, HTTP_QUEUE, "orbit", [HTTP_CONTRACT]).await;
        let definitions = deploy(&engine, texts, &mut failures).await;
        engine.unregister(server).await.unwrap();
        let stage = Stage { engine, definitions };
        let wanted = std::env::var("CORPUS").unwrap_or_default();
        for story in stories.iter().filter(|story| story.name.contains(&wanted)) {
            if stage.definitions.iter().any(|definition| *definition.name == *story.workflow) {
                let begin = std::time::Instant::now();
                let now = stage.engine.clock().now();
                failures.extend(play::story(&stage, story).await.err().map(|what| format!("{}: {what}", story.name)));
                let (took, passed) = (begin.elapsed(), stage.engine.clock().now().since(now));
                println!("{}: {took:?} for {passed:?}", story.name);
            }
        }
        stage.engine.shutdown().await;
        failures
    });
    real.block_on(store.close()).unwrap();
    drop(kept);
    assert!(failures.is_empty(), "{} stories went wrong:\n{}", failures.len(), failures.join("\n\n"));
}

/// Time stands still until what this gives is dropped: a blocking task is under way.
fn stop_time(handle: &tokio::runtime::Handle) -> Box<dyn Send> {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    handle.spawn_blocking(move || ended.recv());
    Box::new(end)
}

/// Deploys definitions together, of which none may have a fault or a warning.
async fn deploy(engine: &Engine, texts: &[Text], failures: &mut Vec<String>) -> Vec<Definition> {
    let (mut definitions, mut deployments) = (Vec::new(), Vec::new());
    for Text { file, text } in texts {
        let parse = || Definition::parse(file, text);
        match parse() {
            Ok((definition, warnings)) => {
                failures.extend(warnings.iter().map(|warning| format!("{file}: {warning:?}")));
                deployments.push(Deployment { definition, source: text.clone() });
                definitions.extend(parse().map(|(definition, _)| definition));
            }
            Err(faults) => failures.extend(faults.iter().map(|fault| format!("{file}: {fault:?}"))),
        }
    }
    if let Err(error) = engine.deploy_all(deployments, false).await {
        failures.push(format!("{error:?}"));
        definitions.clear();
    }
    definitions
}
