//! Behind PgBouncer: where it gives each transaction another session Orbit says so and refuses, where it gives each
//! client a session of its own everything works.

#![allow(clippy::disallowed_methods, reason = "a database is watched in real time")]

use crate::{make::*, postgres_server::*};
use orbit::store::{Committed, Error, Heard, Hints, PostgresStore, Store, postgres::Options};
use std::{
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A PgBouncer before a database, which goes with this.
struct Pooler {
    process: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Pooler {
    fn start(database: &Database, pool_mode: &str) -> Self {
        let url = database.url();
        let (authority, name) = url.strip_prefix("postgres://").unwrap().split_once('/').unwrap();
        let (user, address) = authority.split_once('@').unwrap();
        let (user, (host, port)) = (user.split(':').next().unwrap(), address.rsplit_once(':').unwrap());
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={host} port={port} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {free}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = {pool_mode}\ndefault_pool_size = 40\n"
        );
        std::fs::write(&config, text).unwrap();
        // It runs as another user, who must be able to read it.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/postgres");
        let process =
            Command::new(script).arg("pooler").arg(&config).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let pooler = Self {
            process: process.unwrap(),
            url: format!("postgres://{user}@127.0.0.1:{free}/{name}"),
            _folder: folder,
        };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", free)).is_err() {
            assert!(begin.elapsed() < PATIENCE, "PgBouncer does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        pooler
    }

    async fn open(&self) -> Result<PostgresStore, Error> {
        PostgresStore::open(Options::new(self.url.clone())).await
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It is gone, or goes now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c111_a_pooler_that_mixes_up_sessions_is_refused_in_plain_words() {
    let database = fresh_database().await;
    let pooler = Pooler::start(&database, "transaction");
    // On an empty database, and on one that is in use.
    for _ in 0..2 {
        for _ in 0..3 {
            match pooler.open().await {
                Err(Error::Refused(why)) => assert!(why.contains("pool_mode = transaction"), "{why}"),
                other => panic!("{:?}", other.map(|_| "it was opened")),
            }
        }
        PostgresStore::open(Options::new(database.url())).await.unwrap().close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c111_a_pooler_that_keeps_sessions_apart_is_as_good_as_the_server() {
    let database = fresh_database().await;
    let pooler = Pooler::start(&database, "session");
    let (one, other) = (pooler.open().await.unwrap(), pooler.open().await.unwrap());
    let mut heard = other.listen();
    let Committed::Written(key) = one.commit(vec![start("a", 1)]).await.unwrap()[0] else { panic!("it is new") };
    for number in 0..100 {
        // The same statements again and again, on all connections of both.
        let (first, node) = (3 + number, if number % 2 == 0 { &one } else { &other });
        let committed = node.commit(vec![append(key, first, first)]).await.unwrap();
        assert_eq!(committed, [Committed::Written(key)]);
        assert_eq!(one.newest_numbers(&[key]).await.unwrap(), other.newest_numbers(&[key]).await.unwrap());
    }
    let hints = Hints { executions: [(key, 102)].into(), ..Hints::default() };
    let begin = Instant::now();
    loop {
        one.publish(&hints).await.unwrap();
        match tokio::time::timeout(Duration::from_millis(200), heard.recv()).await {
            Ok(Some(Heard::Hints(news))) if news == hints => break,
            Ok(Some(Heard::Hints(_) | Heard::Gap)) | Err(_) => {}
            Ok(None) => panic!("it hears no more"),
        }
        assert!(begin.elapsed() < PATIENCE, "it hears nothing");
    }
    one.close().await.unwrap();
    other.close().await.unwrap();
}
