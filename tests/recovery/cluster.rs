//! Several nodes on one PostgreSQL, each behind a proxy for its callers and another for its database.

mod chaos;
mod clock;
mod faults;
mod node;
mod proxy;

use crate::{
    connect::Admin,
    oracle,
    postgres::{self, PrivateServer},
    run::Serve,
    server::Options,
};
use node::{Node, address_in};
use orbit::proto::admin::CountExecutionsRequest;
use sqlx::{Connection as _, PgConnection};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// How long everything together may take to be well again, once nothing is wrong any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// The database that the nodes share.
const DATABASE: &str = "orbit";

/// Executions of which every event is read from every node at the end.
const COMPARED: usize = 100;

/// The nodes and their database.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) database: PrivateServer,
}

impl Cluster {
    /// Starts a database server and as many nodes on it, all at once, each with its options.
    pub(crate) async fn start(options: Vec<Options>) -> Self {
        let database = tokio::task::block_in_place(PrivateServer::start);
        postgres::execute(database.url(), &format!("CREATE DATABASE {DATABASE} TEMPLATE template0")).await;
        // What the nodes acknowledge is durable only on such a server.
        for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
            assert_eq!(postgres::show(database.url(), setting).await, "on", "{setting}");
        }
        let mut nodes = Vec::new();
        for options in options {
            nodes.push(Node::beside(&postgres::with_database(database.url(), DATABASE), options).await);
        }
        let mut cluster = Self { nodes, database };
        for node in &mut cluster.nodes {
            node.spawn();
        }
        cluster.well().await;
        cluster
    }

    /// The database, past all proxies.
    pub(crate) fn url(&self) -> String {
        postgres::with_database(self.database.url(), DATABASE)
    }

    /// Makes a standby of the database that has all that is acknowledged from now on, and answers with it.
    pub(crate) async fn add_standby(&mut self) -> PrivateServer {
        let standby = tokio::task::block_in_place(|| self.database.start_standby());
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        let begin = Instant::now();
        // Once it has caught up, no commit has to wait for that.
        for state in ["async", "sync"] {
            if state == "sync" {
                self.database.set("synchronous_standby_names", Some("*"));
            }
            loop {
                let query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = $1";
                let count: i64 = sqlx::query_scalar(query).bind(state).fetch_one(&mut connection).await.unwrap();
                if count == 1 {
                    break;
                }
                assert!(begin.elapsed() < PATIENCE, "the standby is not {state}\n{}", standby.log_tail());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        standby
    }

    /// Leads every node to a standby and promotes it. Answers with the server that it stands in for, and with a moment at
    /// which it took no writes yet, a few milliseconds before it did.
    pub(crate) async fn fail_over(&mut self, standby: PrivateServer) -> (PrivateServer, Instant) {
        let target = address_in(standby.url());
        self.nodes.iter().for_each(|node| node.back.lead_to(target));
        let mut connection = PgConnection::connect(standby.url()).await.unwrap();
        let promoted = tokio::task::spawn_blocking(move || {
            standby.promote();
            standby
        });
        let mut last = Instant::now();
        loop {
            let asked = Instant::now();
            let query = sqlx::query_scalar("SELECT pg_is_in_recovery()");
            let is_standby: bool = query.fetch_one(&mut connection).await.unwrap();
            if !is_standby {
                break;
            }
            last = asked;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (std::mem::replace(&mut self.database, promoted.await.unwrap()), last)
    }

    /// Waits until every node answers from the database.
    pub(crate) async fn well(&mut self) {
        let begin = Instant::now();
        for number in 0..self.nodes.len() {
            loop {
                self.nodes[number].tend();
                let mut admin = self.nodes[number].admin();
                let asked = admin.count_executions(CountExecutionsRequest {});
                match tokio::time::timeout(Duration::from_secs(2), asked).await {
                    Ok(Ok(_)) => break,
                    answer => assert!(
                        begin.elapsed() < PATIENCE,
                        "node {number}: {answer:?}\n{}\n{}",
                        self.nodes[number].log_tail(),
                        self.database.log_tail()
                    ),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Panics unless every node gives the same answers.
    async fn agree(&self) {
        let admins: Vec<Admin> = self.nodes.iter().map(Node::admin).collect();
        let mut lists = Vec::new();
        for mut admin in admins.clone() {
            let counts = admin.count_executions(CountExecutionsRequest {}).await.unwrap().into_inner();
            lists.push((counts, oracle::list(&mut admin).await));
        }
        for (number, list) in lists.iter().enumerate() {
            assert!(*list == lists[0], "node {number} lists and counts other executions than node 0");
        }
        for execution in &lists[0].1[..lists[0].1.len().min(COMPARED)] {
            let mut first = None;
            for admin in &admins {
                let events = oracle::events(&mut admin.clone(), &execution.id).await;
                assert_eq!(*first.get_or_insert_with(|| events.clone()), events, "{execution:?}");
            }
        }
    }

    /// Waits until no work is left in the database, which is soon after nobody has any.
    async fn nothing_is_left(&self) {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        let begin = Instant::now();
        loop {
            let query = "SELECT (SELECT count(*) FROM ready), (SELECT count(*) FROM held)";
            let left: (i64, i64) = sqlx::query_as(query).fetch_one(&mut connection).await.unwrap();
            if left == (0, 0) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "ready and held units are left: {left:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Serve for Cluster {
    fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::address).collect()
    }

    fn log_tail(&self) -> String {
        let logs = self.nodes.iter().map(|node| format!("--- {}\n{}\n", node.address(), node.log_tail()));
        logs.collect::<String>() + "--- PostgreSQL\n" + &self.database.log_tail()
    }

    /// Also compares what the nodes say, and looks whether work is left where there should be none.
    async fn stop(&mut self) {
        self.agree().await;
        self.nothing_is_left().await;
        for node in &mut self.nodes {
            node.stop().await;
        }
    }
}
