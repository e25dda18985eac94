//! The real program as a process of its own, which can be killed and started again on the same port and file.

use crate::{chance::Chance, connect, disk::Disk, run::Serve};
use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Silence after which a session, or a delivery that nobody lists, is lost in these tests.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a start, or an end, may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a condition of another process is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// How a server is started.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// The database that it shares with others; a file of its own if there is none.
    pub(crate) database: Option<String>,
    /// Variables beyond those that all these tests set.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The file layer that forgets what was not synced.
    pub(crate) disk: Option<Disk>,
}

/// A server process. It does not outlive this handle; its files outlive only a failed test.
#[derive(Debug)]
pub(crate) struct Server {
    child: Option<Child>,
    address: SocketAddr,
    directory: Option<TempDir>,
    options: Options,
}

impl Server {
    /// Makes an empty directory and starts a server in it.
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub(crate) async fn start_with(options: Options) -> Self {
        let mut server = Self::new(options);
        server.start_again().await;
        server
    }

    /// Makes an empty directory for a server.
    pub(crate) fn new(options: Options) -> Self {
        let directory = tempfile::Builder::new().prefix("recovery-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { child: None, address: free_address(), directory: Some(directory), options }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("orbit.db")
    }

    /// A path in the server's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.as_ref().expect("it is kept until the end").path().join(name)
    }

    pub(crate) fn admin(&self) -> connect::Admin {
        connect::admin(self.address)
    }

    pub(crate) fn tasks(&self) -> connect::Tasks {
        connect::tasks(self.address)
    }

    /// The id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Adds or changes a variable of the next start.
    pub(crate) fn set(&mut self, variable: &'static str, value: &str) {
        self.options.environment.retain(|(name, _)| *name != variable);
        self.options.environment.push((variable, value.to_owned()));
    }

    /// Starts the process; does not wait until it listens.
    pub(crate) fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let database = self.options.database.as_ref().map_or_else(|| self.database(), PathBuf::from);
        self.child = Some(self.command(&database, self.address).spawn().unwrap());
    }

    /// The command that serves a database at an address, with its log in a file.
    pub(crate) fn command(&self, database: &Path, address: SocketAddr) -> Command {
        let log = File::options().create(true).append(true).open(self.path("server.log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_orbit"));
        // What a developer has set for servers of their own must not reach this one.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ORBIT_")) {
            command.env_remove(name);
        }
        command
            .args(["server", "--db"])
            .arg(database)
            .args(["--listen", &address.to_string()])
            .env("ORBIT_SESSION_TIMEOUT", format!("{}s", SESSION_TIMEOUT.as_secs()))
            .env("ORBIT_CANCEL_GRACE", "1s")
            .env("ORBIT_LOG", "warn")
            .envs(self.options.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        if let Some(disk) = &self.options.disk {
            disk.lie_under(&mut command, database);
        }
        command
    }

    /// Starts the process and waits until it listens. Answers with the moment when it did.
    pub(crate) async fn start_again(&mut self) -> Instant {
        self.spawn();
        self.listens().await
    }

    /// Waits until the process takes connections.
    pub(crate) async fn listens(&mut self) -> Instant {
        let begin = Instant::now();
        while TcpStream::connect_timeout(&self.address, PATIENCE).is_err() {
            if let Some(status) = self.child.as_mut().expect("it runs").try_wait().unwrap() {
                panic!("the server ended with {status}:\n{}", self.log_tail());
            }
            assert!(begin.elapsed() < PATIENCE, "the server does not listen:\n{}", self.log_tail());
            tokio::time::sleep(LOOK).await;
        }
        Instant::now()
    }

    /// SIGKILL. With a disk, what was not synced is lost.
    pub(crate) fn kill(&mut self, chance: &mut Chance) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "it had ended by itself:\n{}", self.log_tail());
        if let Some(disk) = &self.options.disk {
            disk.lose_power(&self.database(), chance);
        }
    }

    /// SIGTERM, and how it ended.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        send(&child, libc::SIGTERM);
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "it ignores SIGTERM:\n{}", self.log_tail());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the process as an operator would, and looks whether its file is whole.
    pub(crate) async fn stop(&mut self) {
        let status = self.terminate().await;
        assert!(status.success(), "the server ended with {status}:\n{}", self.log_tail());
        if self.options.database.is_none() {
            assert_eq!(integrity(&self.database()).await, "ok");
        }
    }

    /// Sends the process a signal.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        send(self.child.as_ref().expect("it runs"), signal);
    }

    /// How the process ended, if it ended by itself; it can be started again then.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().unwrap()?;
        self.child = None;
        Some(status)
    }

    /// Whether there is a process.
    pub(crate) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// The last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.path("server.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let kept = self.directory.take().map(TempDir::keep);
            eprintln!("the server's files are kept in {}", kept.unwrap_or_default().display());
        }
    }
}

impl Serve for Server {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.address]
    }

    fn log_tail(&self) -> String {
        self.log_tail()
    }

    async fn stop(&mut self) {
        self.stop().await;
    }
}

/// Sends a process a signal.
fn send(child: &Child, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(child.id()).expect("a process id fits");
    // SAFETY: no memory is involved; the child is not reaped yet, so the id is still its own.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// What SQLite itself says about the file.
pub(crate) async fn integrity(database: &Path) -> String {
    use sqlx::{ConnectOptions as _, Connection as _};
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(database);
    let mut connection = options.connect().await.unwrap();
    let answer = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    answer
}

/// An address that nobody has, below the ports that the kernel gives to outgoing connections: while the server is down,
/// its clients knock at the port hundreds of times, and one of those knocks could come from that very port and answer itself.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 8_000).expect("it is small");
    loop {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 8_000;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
