//! One node: its process, and the proxies on both sides of it.

use super::proxy::Proxy;
use crate::{
    connect::{self, Admin},
    server::{Options, Server},
};
use std::net::SocketAddr;

/// How a server ends that waited for its database in vain.
const NO_DATABASE: i32 = 6;

/// A node of a cluster.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: Server,
    /// Between its callers and it.
    pub(crate) front: Proxy,
    /// Between it and its database.
    pub(crate) back: Proxy,
}

impl Node {
    /// A node that is not started yet.
    pub(super) async fn beside(database: &str, options: Options) -> Self {
        let target = address_in(database);
        let back = Proxy::to(target).await;
        let database = Some(database.replace(&target.to_string(), &back.address().to_string()));
        let server = Server::new(Options { database, ..options });
        let front = Proxy::to(server.address()).await;
        Self { server, front, back }
    }

    /// Where its callers find it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.front.address()
    }

    pub(crate) fn admin(&self) -> Admin {
        connect::admin(self.address())
    }

    pub(crate) fn log_tail(&self) -> String {
        self.server.log_tail()
    }

    /// Starts the process; the database need not be there.
    pub(crate) fn spawn(&mut self) {
        self.server.spawn();
    }

    /// Does what a supervisor does: a process that found no database for too long, and ended, is started again. Nothing
    /// else ends it.
    pub(crate) fn tend(&mut self) {
        if let Some(status) = self.server.ended() {
            assert_eq!(status.code(), Some(NO_DATABASE), "a node ended by itself:\n{}", self.log_tail());
            self.spawn();
        }
    }

    /// Ends it as an operator would.
    pub(super) async fn stop(&mut self) {
        self.server.stop().await;
    }
}

/// Where the database with this URL listens.
pub(super) fn address_in(url: &str) -> SocketAddr {
    let (_, after) = url.split_once("127.0.0.1:").expect("the tests' servers are on loopback");
    let (port, _) = after.split_once('/').expect("the URL names a database");
    SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()))
}
