//! Keeps the write-ahead log short, off the writer.
//!
//! A commit never checkpoints. This task copies the log into the database while commits go on (PASSIVE), and now and then
//! lets the log begin anew (RESTART, or TRUNCATE where the file has grown too long), which stops commits for the few
//! pages that came since. A reader that is older than the newest commit prevents a new beginning; the task tries again
//! until it is gone, so the log returns below its limit by itself.

use super::{Options, connection::Writer};
use sqlx::{Connection as _, Row as _, sqlite::SqliteConnection};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, Notify},
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// At most so often the log is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The task and how it is stopped: by [`Checkpointer::stop`], or when this goes.
pub(super) struct Checkpointer {
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl Checkpointer {
    /// Starts the task; `log_grew` is told of each commit.
    pub(super) fn start(
        connection: SqliteConnection,
        log: PathBuf,
        writer: Arc<Mutex<Writer>>,
        log_grew: Arc<Notify>,
        options: &Options,
    ) -> Self {
        let stop = CancellationToken::new();
        let limits = Limits {
            copy: options.log_copy_bytes,
            restart: options.log_restart_bytes.max(options.log_copy_bytes),
            truncate: options.log_truncate_bytes.max(options.log_restart_bytes),
        };
        let work = Work { connection, log, writer, limits, is_blocked: false };
        let task = tokio::spawn(work.run(log_grew, stop.clone()));
        Self { task, stop: stop.drop_guard() }
    }

    /// Ends the task and waits until its connection is closed.
    pub(super) async fn stop(self) {
        drop(self.stop);
        if let Err(cause) = self.task.await {
            tracing::error!(error = %cause, "the checkpoint task ended badly");
        }
    }
}

/// Bytes of the log at which something is done.
struct Limits {
    copy: u64,
    restart: u64,
    truncate: u64,
}

struct Work {
    connection: SqliteConnection,
    log: PathBuf,
    writer: Arc<Mutex<Writer>>,
    limits: Limits,
    is_blocked: bool,
}

/// What a checkpoint answers, in bytes of the log.
struct Position {
    is_busy: bool,
    used: u64,
    copied: u64,
}

impl Work {
    async fn run(mut self, log_grew: Arc<Notify>, stop: CancellationToken) {
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_done = true;
        while !stop.is_cancelled() {
            let next = async {
                if is_done {
                    log_grew.notified().await;
                }
                look.tick().await;
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = next => {}
            }
            is_done = match self.look().await {
                Ok(is_done) => is_done,
                Err(cause) => {
                    // A full disk or a busy file: commits say so themselves, and the next look tries again.
                    tracing::warn!(error = %cause, "failed to shorten the write-ahead log");
                    true
                }
            };
        }
        let _ = self.connection.close().await;
    }

    /// Does what the length of the log asks for; says whether nothing is left to do until the next commit.
    async fn look(&mut self) -> sqlx::Result<bool> {
        let position = checkpoint(&mut self.connection, "PRAGMA wal_checkpoint(NOOP)").await?;
        if position.used - position.copied < self.limits.copy && position.used < self.limits.restart {
            return Ok(true);
        }
        let position = checkpoint(&mut self.connection, "PRAGMA wal_checkpoint(PASSIVE)").await?;
        if position.used < self.limits.restart {
            return Ok(true);
        }
        let file_bytes = tokio::fs::metadata(&self.log).await.map_or(0, |file| file.len());
        let statement = if file_bytes < self.limits.truncate {
            "PRAGMA wal_checkpoint(RESTART)"
        } else {
            "PRAGMA wal_checkpoint(TRUNCATE)"
        };
        let position = {
            // Under the writer's lock, or the two would wait for each other in SQLite's slow way.
            let _no_commit = self.writer.lock().await;
            checkpoint(&mut self.connection, statement).await?
        };
        if position.is_busy != self.is_blocked {
            self.is_blocked = position.is_busy;
            if self.is_blocked {
                tracing::warn!(log_bytes = file_bytes, "an old reader keeps the write-ahead log from being shortened");
            } else {
                tracing::info!("the write-ahead log can be shortened again");
            }
        }
        Ok(!position.is_busy)
    }
}

async fn checkpoint(connection: &mut SqliteConnection, statement: &'static str) -> sqlx::Result<Position> {
    let row = sqlx::query(statement).fetch_one(connection).await?;
    // −1 where there is no log yet.
    let frames = |column| row.try_get::<i64, _>(column).map(|frames| u64::try_from(frames).unwrap_or(0));
    Ok(Position {
        is_busy: row.try_get::<i64, _>(0)? != 0,
        used: frames(1)? * FRAME_BYTES,
        copied: frames(2)? * FRAME_BYTES,
    })
}

/// A page with its header in the log.
const FRAME_BYTES: u64 = super::PAGE_BYTES as u64 + 24;
