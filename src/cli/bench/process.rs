//! The processes of a benchmark: servers, and helpers that talk to this one in lines of JSON on their stdout.
//!
//! A helper works until its stdin is closed, so it also ends if this process is killed.

use crate::{cli::error::Error, clock, config::Database, telemetry};
use serde::de::DeserializeOwned;
use std::{ffi::OsStr, fs, io::Read as _, path::Path, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdout, Command},
    sync::oneshot,
};

/// How long a process may take to start, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of its own.
#[derive(Debug)]
pub(super) struct Server {
    /// Its address, `IP:PORT`.
    pub(super) address: String,
    /// Its process.
    pub(super) pid: u32,
    child: Child,
    // A server whose stdout is closed could not say anything any more.
    _lines: Lines<BufReader<ChildStdout>>,
}

/// The line that `orbit server -o json` prints once it serves.
#[derive(serde::Deserialize)]
struct Started {
    address: String,
}

impl Server {
    /// Starts one on this database, and waits until it serves.
    pub(super) async fn start(database: &Database) -> Result<Self, Error> {
        let mut command = orbit(["server", "--listen", "127.0.0.1:0", "--log", "warn", "-o", "json"])?;
        // As a variable: an address may hold a password, and everybody can read a command line.
        match database {
            Database::Sqlite(path) => {
                if let Some(directory) = path.parent() {
                    fs::create_dir_all(directory)
                        .map_err(|error| Error::failure(format!("cannot make {}: {error}", directory.display())))?;
                }
                command.env("ORBIT_DB", format!("sqlite:{}", path.display()));
            }
            Database::Postgres(url) => {
                command.env("ORBIT_DB", url.driver_url());
            }
        }
        end_with_this_process(&mut command);
        let mut child = command
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| Error::failure(format!("cannot start a server: {error}")))?;
        let mut lines = lines(&mut child);
        let Started { address } = next_line(&mut lines, "the server").await?;
        let pid = child.id().ok_or_else(|| Error::failure("the server ended at once"))?;
        Ok(Self { address, pid, child, _lines: lines })
    }

    /// Kills it, as `kill -9` does.
    pub(super) async fn kill(mut self) -> Result<(), Error> {
        self.child.kill().await.map_err(|error| Error::failure(format!("cannot kill the server: {error}")))
    }

    /// Asks it to end, and waits for that.
    pub(super) async fn stop(mut self) -> Result<(), Error> {
        let pid = libc::pid_t::try_from(self.pid).expect("a process id fits");
        // SAFETY: no memory is involved; the child is not reaped yet, so the id is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Error::failure(format!("the server ended with {status}"))),
            Ok(Err(error)) => Err(Error::failure(format!("cannot wait for the server: {error}"))),
            Err(_) => Err(Error::failure(format!("the server did not end within {PATIENCE:?}"))),
        }
    }
}

/// A worker or a caller.
#[derive(Debug)]
pub(super) struct Helper {
    name: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// What a helper says first.
#[derive(serde::Serialize, serde::Deserialize)]
struct Ready {
    ready: bool,
}

impl Helper {
    /// Starts one with these arguments of `orbit bench`.
    pub(super) fn start<A: AsRef<str>>(arguments: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        let arguments: Vec<_> = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        let mut child = orbit(["bench"])?
            .args(&arguments)
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| Error::failure(format!("cannot start the {}: {error}", arguments[0])))?;
        let lines = lines(&mut child);
        Ok(Self { name: format!("the {}", arguments[0]), child, lines })
    }

    /// Waits until it can work.
    pub(super) async fn expect_ready(&mut self) -> Result<(), Error> {
        next_line::<Ready>(&mut self.lines, &self.name).await.map(|_| ())
    }

    /// Its next message, however long that takes.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        read_line(&mut self.lines, &self.name).await
    }

    /// Waits until it ends by itself.
    pub(super) async fn ended(&mut self) {
        // While it lives, its stdin must stay open: `Child::wait` would close it.
        while let Ok(None) = self.child.try_wait() {
            clock::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Ends it.
    pub(super) async fn stop(mut self) -> Result<(), Error> {
        drop(self.child.stdin.take());
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Error::failure(format!("{} ended with {status}", self.name))),
            Ok(Err(error)) => Err(Error::failure(format!("cannot wait for {}: {error}", self.name))),
            Err(_) => Err(Error::failure(format!("{} did not end within {PATIENCE:?}", self.name))),
        }
    }
}

/// Says one thing to the process that started this one.
pub(super) fn say(message: &impl serde::Serialize) -> Result<(), Error> {
    use std::io::Write as _;
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, message).map_err(|error| Error::Output(error.into()))?;
    writeln!(stdout)?;
    Ok(stdout.flush()?)
}

/// Says that this process can work.
pub(super) fn say_ready() -> Result<(), Error> {
    say(&Ready { ready: true })
}

/// Resolves once the process that started this one closes stdin, or is gone.
pub(super) async fn told_to_stop() {
    let (sender, receiver) = oneshot::channel();
    // A thread, since a read of stdin cannot be cancelled; it ends with the process.
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read(&mut [0]);
        let _ = sender.send(());
    });
    let _ = receiver.await;
}

/// This program with these arguments; it does not outlive the handle.
fn orbit<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<Command, Error> {
    let program = std::env::current_exe().map_err(|error| Error::failure(format!("cannot find myself: {error}")))?;
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

/// Has the kernel end the child if this process is killed: a server does not listen to its stdin as a helper does.
#[cfg(target_os = "linux")]
fn end_with_this_process(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec and makes one system call, which touches no memory.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_this_process(_command: &mut Command) {}

fn lines(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines()
}

async fn next_line<T: DeserializeOwned>(lines: &mut Lines<BufReader<ChildStdout>>, name: &str) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, read_line(lines, name))
        .await
        .map_err(|_| Error::failure(format!("{name} did not start within {PATIENCE:?}")))?
}

async fn read_line<T: DeserializeOwned>(lines: &mut Lines<BufReader<ChildStdout>>, name: &str) -> Result<T, Error> {
    let line = lines.next_line().await.map_err(|error| Error::failure(format!("cannot hear {name}: {error}")))?;
    // Its stderr is this one's, so the user has read why.
    let line = line.ok_or_else(|| Error::failure(format!("{name} ended too early")))?;
    serde_json::from_str(&line).map_err(|error| Error::failure(format!("{name} said {line:?}: {error}")))
}

/// Whether a database is on a file system without a disk, which makes every number too good.
pub(super) fn is_in_memory(database: &Database) -> bool {
    match database {
        Database::Sqlite(path) => is_on_tmpfs(path),
        // Its files are its own affair.
        Database::Postgres(_) => false,
    }
}

#[cfg(target_os = "linux")]
fn is_on_tmpfs(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends with a zero, and the pointer is to room for the answer, which is read only after success.
    let kind = unsafe {
        if libc::statfs(path.as_ptr(), found.as_mut_ptr()) != 0 {
            return false;
        }
        found.assume_init().f_type
    };
    kind == libc::TMPFS_MAGIC
}

#[cfg(not(target_os = "linux"))]
fn is_on_tmpfs(_path: &Path) -> bool {
    false
}

/// Bytes of the database with its log, which a server tells among its metrics; none if it does not.
pub(super) async fn database_bytes(address: &str) -> Option<u64> {
    let read = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    };
    let text = tokio::time::timeout(PATIENCE, read).await.ok()?.ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(telemetry::DATABASE_BYTES)?.strip_prefix(' '))?;
    value.parse().ok()
}

/// CPU time that processes have used so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage(Duration);

impl Usage {
    /// Of all of them together; none if there are none, or one of them tells nothing.
    pub(super) fn of(pids: &[u32]) -> Option<Self> {
        let used: Option<Duration> = pids.iter().map(|pid| Some(usage(*pid)?.0)).sum();
        used.filter(|_| !pids.is_empty()).map(Self)
    }

    /// What was used since then.
    pub(super) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Reads `/proc/PID/stat`; none where there is no such file.
fn usage(pid: u32) -> Option<Usage> {
    parse_usage(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, ticks_per_second())
}

/// Bytes of memory that a process has now, from `/proc/PID/statm`.
pub(super) fn rss_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: no memory is involved.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.checked_mul(u64::try_from(page_bytes).ok()?)
}

fn ticks_per_second() -> u64 {
    // SAFETY: no memory is involved.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// User and system time are fields 14 and 15. Field 2, the program's name in parentheses, may hold anything.
fn parse_usage(stat: &str, ticks_per_second: u64) -> Option<Usage> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let total = ticks()? + ticks()?;
    Some(Usage(Duration::from_micros(total * 1_000_000 / ticks_per_second)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 3 0 100 1000 200 rest";
        let Usage(time) = parse_usage(stat, 100).unwrap();
        assert_eq!(time, Duration::from_secs(2));
        assert!(parse_usage("", 100).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_system_without_a_disk_is_known() {
        assert!(!is_on_tmpfs(Path::new("/proc/self")));
        assert!(!is_on_tmpfs(Path::new("/does/not/exist")));
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(rss_bytes(std::process::id()).is_none_or(|bytes| bytes > 100_000));
        assert!(usage(u32::MAX).is_none());
    }
}
