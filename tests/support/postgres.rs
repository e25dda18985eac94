//! PostgreSQL for tests: databases of one's own on a shared server, and servers of one's own.
//!
//! - [`fresh_database`]: an empty database on the server that `ORBIT_TEST_POSTGRES_URL` names (`make test` starts one), or
//!   else on one that this process starts for all its tests.
//! - [`PrivateServer`]: one that a test may stop, kill, freeze and reconfigure.
//!
//! `scripts/postgres private` starts each server and ends it when its input ends, which is when this process does, in
//! whatever way.
#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::disallowed_methods, reason = "a server is watched in real time")]

use sqlx::{Connection as _, PgConnection};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Names the server that tests share; its user may create databases.
const SHARED: &str = "ORBIT_TEST_POSTGRES_URL";

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database of one test; dropped with this.
#[derive(Debug)]
pub(crate) struct Database {
    server: String,
    name: String,
}

/// Makes an empty database.
pub(crate) async fn fresh_database() -> Database {
    Database::make(shared_server()).await
}

impl Database {
    /// Makes an empty database on a server.
    pub(crate) async fn make(server: &str) -> Self {
        let name = format!("test_{}", uuid::Uuid::new_v4().simple());
        execute(server, &format!("CREATE DATABASE {name} TEMPLATE template0")).await;
        Self { server: server.to_owned(), name }
    }

    /// `postgres://…`
    pub(crate) fn url(&self) -> String {
        with_database(&self.server, &self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, drop) = (self.server.clone(), format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        // On a thread and a runtime of its own: the test's runtime may be the one that is ending.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime needs nothing special").block_on(execute(&server, &drop));
        });
        // The server may be gone; then so is the database.
        let _ = dropped.join();
    }
}

/// One statement on a connection of its own.
pub(crate) async fn execute(url: &str, statement: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut connection).await;
    done.unwrap_or_else(|error| panic!("{statement}: {error}"));
    // It has done what was asked; how its connection ends is all the same.
    let _ = connection.close().await;
}

/// What a setting of the server is, as `SHOW` says it.
pub(crate) async fn show(url: &str, setting: &str) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    let query = format!("SHOW {setting}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(&mut connection).await.expect("the setting exists")
}

/// The URL with another database in it.
pub(crate) fn with_database(url: &str, name: &str) -> String {
    let (address, parameters) = url.split_once('?').map_or((url, None), |(address, rest)| (address, Some(rest)));
    let authority = address.find("://").map_or(0, |at| at + 3);
    let end = address[authority..].find('/').map_or(address.len(), |at| authority + at);
    let parameters = parameters.map_or(String::new(), |parameters| format!("?{parameters}"));
    format!("{}/{name}{parameters}", &address[..end])
}

/// The server that all tests of this process share.
fn shared_server() -> &'static str {
    static SERVER: OnceLock<(String, Option<Guard>)> = OnceLock::new();
    let (url, _) = SERVER.get_or_init(|| match std::env::var(SHARED) {
        Ok(url) => (url, None),
        Err(_) => {
            let (url, _, guard) = Guard::start(None);
            (url, Some(guard))
        }
    });
    url
}

/// The process that stops and removes a server once its input ends.
#[derive(Debug)]
struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts a server, as a standby of the one with this URL if there is one, and answers with its URL, its folder and its
    /// guard.
    fn start(primary: Option<&str>) -> (String, PathBuf, Self) {
        let mut command = Command::new(script());
        command.arg("private").args(primary).stdin(Stdio::piped()).stdout(Stdio::piped());
        // In a process group of its own: Ctrl-C, or the end of the terminal, is for the tests.
        let mut child = command.process_group(0).spawn().expect("scripts/postgres runs");
        let input = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut line =
            || lines.next().and_then(Result::ok).expect("scripts/postgres starts a server; see its words above");
        let (url, folder) = (line(), PathBuf::from(line()));
        (url, folder, Self { child, input })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/postgres")
}

/// How a server is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It ends its connections and syncs what it has.
    Fast,
    /// It ends at once; the next start recovers from the log.
    Immediate,
}

/// A server that belongs to one test. It is stopped and removed with this.
#[derive(Debug)]
pub(crate) struct PrivateServer {
    url: String,
    folder: PathBuf,
    /// The settings that the script wrote.
    base: String,
    overrides: BTreeMap<String, String>,
    _guard: Guard,
}

impl PrivateServer {
    /// Makes a cluster and starts it.
    pub(crate) fn start() -> Self {
        Self::of(Guard::start(None))
    }

    /// Copies this cluster and starts the copy, which follows this one until it is promoted, with none of the settings that
    /// were changed here.
    pub(crate) fn start_standby(&self) -> Self {
        Self::of(Guard::start(Some(&self.url)))
    }

    fn of((url, folder, guard): (String, PathBuf, Guard)) -> Self {
        let base = fs::read_to_string(settings(&folder)).expect("the script wrote them");
        Self { url, folder, base, overrides: BTreeMap::new(), _guard: guard }
    }

    /// The URL of its database `postgres`; the same after each start.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Stops it and waits for its end.
    pub(crate) fn stop(&self, stop: Stop) {
        let mode = match stop {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        assert!(self.script(&["stop"], &[mode]), "the server does not stop");
    }

    /// Starts it again and waits until it takes connections.
    pub(crate) fn start_again(&self) {
        let begin = Instant::now();
        // After a SIGKILL the next one must wait until the last process of the one before has noticed.
        while !self.script(&["start"], &[]) {
            assert!(begin.elapsed() < PATIENCE, "the server does not start");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Makes a standby take writes. Answers soon after it does.
    pub(crate) fn promote(&self) {
        assert!(self.script(&["promote"], &[]), "the standby is not promoted");
    }

    /// SIGKILL of every process, as when the machine is lost.
    pub(crate) fn kill(&self) {
        let processes = self.processes();
        // All of them stand still first: the main process would otherwise start others for those that it loses.
        for signal_number in [libc::SIGSTOP, libc::SIGKILL] {
            for pid in &processes {
                signal(*pid, signal_number);
            }
        }
        let begin = Instant::now();
        while processes.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
            assert!(begin.elapsed() < PATIENCE, "the server's processes do not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// SIGSTOP of every process: connections stay, nothing answers.
    pub(crate) fn freeze(&self) {
        for pid in self.processes() {
            signal(pid, libc::SIGSTOP);
        }
    }

    /// SIGCONT of every process.
    pub(crate) fn thaw(&self) {
        for pid in self.processes() {
            signal(pid, libc::SIGCONT);
        }
    }

    /// Changes a setting, or takes a change back, and makes the server read it. A setting that needs a restart waits for it.
    /// Works without a connection. Answers before the server has acted on it.
    pub(crate) fn set(&mut self, setting: &str, value: Option<&str>) {
        match value {
            Some(value) => self.overrides.insert(setting.to_owned(), value.to_owned()),
            None => self.overrides.remove(setting),
        };
        let overrides = self.overrides.iter().map(|(setting, value)| format!("{setting} = '{value}'\n"));
        let text = self.base.clone() + &overrides.collect::<String>();
        fs::write(settings(&self.folder), text).expect("the folder is this user's or this is root");
        if let Some(pid) = self.running() {
            signal(pid, libc::SIGHUP);
        }
    }

    /// Puts a file where the server finds it, for its user alone; answers with its path.
    pub(crate) fn put(&self, name: &str, text: &str) -> String {
        let path = self.folder.join("data").join(name);
        fs::write(&path, text).expect("the folder is this user's or this is root");
        let owner = fs::metadata(self.folder.join("data")).expect("it is there");
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).expect("as the folder's");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours to give");
        path.to_str().expect("the folder's path is text").to_owned()
    }

    /// The last lines of its log.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn script(&self, before: &[&str], after: &[&str]) -> bool {
        let ran = Command::new(script()).args(before).arg(&self.folder).args(after).stdout(Stdio::null()).status();
        ran.expect("scripts/postgres runs").success()
    }

    fn running(&self) -> Option<libc::pid_t> {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }

    fn pid(&self) -> libc::pid_t {
        self.running().expect("it runs")
    }

    /// The main process, which starts the others, and those.
    fn processes(&self) -> Vec<libc::pid_t> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        std::iter::once(pid).chain(children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok())).collect()
    }
}

fn settings(folder: &Path) -> PathBuf {
    folder.join("data/orbit.conf")
}

fn signal(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: no memory is involved. A child of the server may have ended since it was listed; then nothing happens.
    unsafe { libc::kill(pid, signal) };
}
