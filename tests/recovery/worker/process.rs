//! Workers that are processes of their own, and so can be killed and stopped.
//!
//! Such a process is this very test program, told by a variable that it is a worker. It writes what it is told to stdout,
//! a line each, and drains once its stdin is closed, so it also ends when its parent does.

use super::{Setup, Sink, run};
use crate::{
    connect::Flight,
    journal::{Journal, Record},
};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, Command, Stdio},
    thread::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Holds the setup of a worker, as JSON.
const VARIABLE: &str = "RECOVERY_TEST_WORKER";

/// A worker process. It does not outlive this handle.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(setup: &Setup, journal: &Journal) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker::process::a_worker_process_works_until_its_stdin_is_closed", "--test-threads=1"])
            .env(VARIABLE, serde_json::to_string(setup).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let journal = journal.clone();
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The test harness says something too. A line that is cut off belongs to a process that was killed.
                if let Ok(record) = serde_json::from_str::<Record>(&line) {
                    journal.record(record);
                }
            }
        });
        Self { child, reader: Some(reader) }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a process id fits");
        // SAFETY: no memory is involved; the child is not reaped yet, so the id is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// SIGKILL. What it had written down is in the journal then.
    pub(crate) async fn kill(mut self) {
        self.child.kill().unwrap();
        self.join().await;
    }

    /// Lets it drain.
    pub(crate) async fn end(mut self) {
        drop(self.child.stdin.take());
        self.join().await;
    }

    async fn join(&mut self) {
        let reader = self.reader.take().expect("it is joined once");
        tokio::task::spawn_blocking(|| reader.join()).await.unwrap().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The worker itself, if this process was started as one; nothing otherwise.
#[test]
fn a_worker_process_works_until_its_stdin_is_closed() {
    let Ok(setup) = std::env::var(VARIABLE) else { return };
    let setup: Setup = serde_json::from_str(&setup).unwrap();
    let stop = CancellationToken::new();
    let told = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read(&mut [0]);
        told.cancel();
    });
    // The harness may have begun a line.
    std::io::stdout().write_all(b"\n").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(setup, Sink::Stdout, Flight::default(), stop));
}
