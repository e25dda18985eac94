//! Writes presence, once a second: what was heard of workers, and this node's time.
//!
//! A task of its own, so that a session with thousands of tasks that is being ended keeps no contact from being written.

use super::steady::LEAP_MIN;
use crate::engine::{Core, call::Error, presence_interval};
use crate::store::{NodeRow, Presence};
use std::{sync::Arc, time::Duration};

/// Runs until the engine stops.
pub(super) async fn run(core: Arc<Core>) {
    loop {
        let interval = core.presence_interval();
        tokio::select! {
            biased;
            () = core.stop.cancelled() => break,
            () = crate::clock::sleep(interval) => {}
        }
        match core.write_presence().await {
            Ok(()) => {
                core.sessions.steadiness().worked(core.clock.monotonic(), core.clock.now(), core.presence_interval());
                core.duty_done("presence");
            }
            Err(error) => {
                core.sessions.steadiness().failed(core.clock.monotonic());
                tracing::warn!(error = &error as &dyn std::error::Error, "presence could not be written");
            }
        }
        match core.delete_ended().await {
            Ok(()) => core.duty_done("ended tasks"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "rows of ended tasks could not be deleted")
            }
        }
    }
    // What was heard last is worth a row: the next life of this node judges by it.
    for outcome in [core.write_presence().await, core.delete_ended().await] {
        if let Err(error) = outcome {
            tracing::warn!(error = &error as &dyn std::error::Error, "presence could not be written at the end");
        }
    }
}

impl Core {
    /// How long until the next round: the session with the shortest timeout, of whichever node, must not be silent for the
    /// want of one.
    pub(super) fn presence_interval(&self) -> Duration {
        presence_interval(self.sessions.timeout_min())
    }

    /// Writes contacts, held rows and this node's time, in one transaction. Where no other node looks for this one's
    /// time, nothing if nothing was heard or committed: the next life of this node goes on from the time that is written,
    /// so what was committed lies behind it, whatever the machine's clock says by then.
    async fn write_presence(&self) -> Result<(), Error> {
        let has_written = self.committer.take_written();
        let now = self.clock.now();
        let (contacts, held) = self.sessions.changes();
        if contacts.is_empty() && held.is_empty() && !has_written && !self.store.is_shared() {
            return Ok(());
        }
        let node = Some(NodeRow { id: self.node, now, level: super::super::EVENT_LEVEL });
        let presence = Presence { contacts, held, node };
        let written = self.store.presence(&presence).await;
        let mut nodes = written.inspect_err(|_| self.committer.set_written()).map_err(Error::Store)?;
        if !self.store.is_shared() {
            // The others are lives before this one. Of them nothing is expected, and rounds that write nothing could not
            // tell that they are silent.
            nodes.retain(|node| node.id == self.node);
        }
        self.sessions.written(&presence.contacts, &presence.held);
        for (from, to) in self.members.seen(&nodes, self.clock.monotonic()) {
            self.sessions.steadiness().leapt(from, to);
        }
        if let Some(newest) = nodes.iter().map(|node| node.now).max() {
            let before = self.clock.now();
            if newest.since(before) >= LEAP_MIN {
                // First, so that nobody judges by the new time what was written by the old one.
                self.sessions.steadiness().leapt(before, newest);
            }
            self.clock.advance(newest);
        }
        Ok(())
    }

    /// Deletes held rows whose delivery has ended. After presence was written, so that none comes back by it.
    async fn delete_ended(&self) -> Result<(), Error> {
        let ended = self.sessions.ended();
        if ended.is_empty() {
            return Ok(());
        }
        self.store.delete_held(&ended).await.map_err(Error::Store)?;
        self.sessions.deleted(&ended);
        Ok(())
    }
}
