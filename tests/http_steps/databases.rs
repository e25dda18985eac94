//! `http` steps on SQLite, and on two nodes with PostgreSQL: each request is made once, by whichever node is allowed to.

use crate::{
    harness::{Site, answer, end, engine_on, rules, start},
    postgres,
};
use orbit::config::Http;
use orbit::domain::Phase;
use orbit::engine::Engine;
use orbit::store::{PostgresStore, SqliteStore, Store, postgres::Options as PostgresOptions, sqlite};
use std::{any::Any, collections::BTreeSet, sync::Arc, time::Duration};

/// Engines on one database, which goes with them.
struct Nodes {
    engines: Vec<Engine>,
    stores: Vec<Arc<dyn Store>>,
    _database: Box<dyn Any>,
}

impl Nodes {
    async fn on_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("orbit.db"), sqlite::Options::default()).await.unwrap();
        Self::start(vec![Arc::new(store)], Box::new(directory))
    }

    async fn on_postgres() -> Self {
        let database = postgres::fresh_database().await;
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..2 {
            stores.push(Arc::new(PostgresStore::open(PostgresOptions::new(database.url())).await.unwrap()));
        }
        Self::start(stores, Box::new(database))
    }

    fn start(stores: Vec<Arc<dyn Store>>, database: Box<dyn Any>) -> Self {
        let engines = stores.iter().map(|store| engine_on(store.clone(), Duration::from_secs(30))).collect();
        Self { engines, stores, _database: database }
    }

    /// The node that no case asks to make requests, where there are two.
    fn last(&self) -> &Engine {
        self.engines.last().expect("there is one")
    }

    async fn end(self) {
        for engine in self.engines {
            engine.shutdown().await;
        }
        for store in self.stores {
            store.close().await.unwrap();
        }
    }
}

/// Makes a test on each database of each case: `async fn(Nodes)`.
macro_rules! on_databases {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $case() {
                super::$case(super::Nodes::on_sqlite().await).await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test]
            async fn $case() {
                super::$case(super::Nodes::on_postgres().await).await;
            })+
        }
    };
}

on_databases![
    the_node_that_may_makes_the_requests_of_steps_that_another_one_started,
    where_every_node_may_each_request_is_made_once,
    c153_what_no_operator_allows_is_not_called,
];

async fn the_node_that_may_makes_the_requests_of_steps_that_another_one_started(nodes: Nodes) {
    let site = Site::start(|_, _| async { answer(200, "application/json", "[1]") }).await;
    nodes.engines[0].serve_http(&rules(&[&site]));
    registered(&nodes).await;
    start(nodes.last(), &format!("  - {{id: call, http: {{url: \"{}\"}}}}\n", site.url("/"))).await;
    let standing = end(nodes.last()).await;
    assert_eq!(standing.state.phase(), Phase::Succeeded);
    assert!(standing.state.output().unwrap().as_str().contains("\"body\":[1]"));
    assert_eq!(site.asked().len(), 1);
    nodes.end().await;
}

async fn where_every_node_may_each_request_is_made_once(nodes: Nodes) {
    const CALLS: usize = 40;
    let site = Site::start(|_, _| async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        answer(200, "text/plain", "")
    })
    .await;
    for engine in &nodes.engines {
        engine.serve_http(&Http { slots: 4, ..rules(&[&site]) });
    }
    registered(&nodes).await;
    let steps: String = (0..CALLS)
        .map(|step| {
            format!("  - {{id: s{step}, http: {{method: POST, url: \"{}\"}}}}\n", site.url(&format!("/{step}")))
        })
        .collect();
    start(nodes.last(), &format!("{steps}  - {{id: call, compute: 1}}\n")).await;
    assert_eq!(end(nodes.last()).await.state.phase(), Phase::Succeeded);
    let (asked, paths): (_, BTreeSet<String>) = (site.asked(), site.asked().into_iter().map(|it| it.path).collect());
    assert_eq!((asked.len(), paths.len()), (CALLS, CALLS));
    nodes.end().await;
}

async fn c153_what_no_operator_allows_is_not_called(nodes: Nodes) {
    let inside = Site::start(|_, _| async { answer(200, "text/plain", "secret") }).await;
    let port = inside.address.port();
    // Any name on that port, and no private address.
    let allow = vec![format!("*:{port}").parse().unwrap()];
    for engine in &nodes.engines {
        engine.serve_http(&Http { allow: allow.clone(), ..Http::default() });
    }
    registered(&nodes).await;
    let urls =
        ["http://127.0.0.1", "http://localhost", "http://[::1]", "http://[::ffff:127.0.0.1]", "http://2130706433"];
    let steps: String = (0..)
        .zip(urls)
        .map(|(step, url)| format!("  - {{id: s{step}, http: {{url: \"{url}:{port}/\"}}, on_error: continue}}\n"))
        .collect();
    let codes: Vec<String> = (0..urls.len()).map(|step| format!("\"${{ steps.s{step}.error.code }}\"")).collect();
    start(nodes.last(), &format!("{steps}  - {{id: call, compute: [{}]}}\n", codes.join(", "))).await;
    let standing = end(nodes.last()).await;
    let refused = vec!["\"HTTP_FORBIDDEN\""; urls.len()].join(",");
    assert_eq!(standing.state.output().map(|output| output.as_str()), Some(&*format!("[{refused}]")));
    assert!(inside.asked().is_empty());
    nodes.end().await;
}

/// Waits until some node is there for `http` steps, also for the others to see.
async fn registered(nodes: &Nodes) {
    let (http, _) = crate::harness::definition("  - {id: call, http: {url: \"http://a.test/\"}}\n");
    while nodes.last().check_served(&http).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
