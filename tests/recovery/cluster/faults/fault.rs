//! The faults: what goes wrong, with whom, for how long, and who must be told.

use std::time::Duration;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Nothing; what a recovery takes where there is none.
    Nothing,
    NodeKilled,
    NodeStopped,
    NodeRefusedByDatabase,
    NodeCutOffInSilence,
    NodeDeafToNews,
    DatabaseRestartedFast,
    DatabaseRestartedImmediately,
    DatabaseKilled,
    DatabaseStopped,
    DatabaseSilent,
    DatabaseRefusing,
    DatabaseSlow,
    DatabaseOutOfConnections,
    DatabaseReadOnly,
    DatabaseFailedOver,
}

impl Fault {
    pub(super) const ALL: [Self; 16] = [
        Self::Nothing,
        Self::NodeKilled,
        Self::NodeStopped,
        Self::NodeRefusedByDatabase,
        Self::NodeCutOffInSilence,
        Self::NodeDeafToNews,
        Self::DatabaseRestartedFast,
        Self::DatabaseRestartedImmediately,
        Self::DatabaseKilled,
        Self::DatabaseStopped,
        Self::DatabaseSilent,
        Self::DatabaseRefusing,
        Self::DatabaseSlow,
        Self::DatabaseOutOfConnections,
        Self::DatabaseReadOnly,
        Self::DatabaseFailedOver,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing but clocks minutes apart",
            Self::NodeKilled => "node killed",
            Self::NodeStopped => "node stopped (SIGSTOP)",
            Self::NodeRefusedByDatabase => "node refused by the database",
            Self::NodeCutOffInSilence => "node cut off in silence",
            Self::NodeDeafToNews => "node's LISTEN dead in silence",
            Self::DatabaseRestartedFast => "database restarted (fast)",
            Self::DatabaseRestartedImmediately => "database restarted (immediate)",
            Self::DatabaseKilled => "database killed",
            Self::DatabaseStopped => "database stopped (SIGSTOP)",
            Self::DatabaseSilent => "database silent (packets vanish)",
            Self::DatabaseRefusing => "database refusing",
            Self::DatabaseSlow => "database slow (+200 ms)",
            Self::DatabaseOutOfConnections => "database out of connections",
            Self::DatabaseReadOnly => "database read-only",
            Self::DatabaseFailedOver => "primary killed, standby promoted",
        }
    }

    /// Whether the other nodes go on meanwhile.
    pub(super) fn is_of_one_node(self) -> bool {
        match self {
            Self::Nothing
            | Self::NodeKilled
            | Self::NodeStopped
            | Self::NodeRefusedByDatabase
            | Self::NodeCutOffInSilence
            | Self::NodeDeafToNews => true,
            Self::DatabaseRestartedFast
            | Self::DatabaseRestartedImmediately
            | Self::DatabaseKilled
            | Self::DatabaseStopped
            | Self::DatabaseSilent
            | Self::DatabaseRefusing
            | Self::DatabaseSlow
            | Self::DatabaseOutOfConnections
            | Self::DatabaseReadOnly
            | Self::DatabaseFailedOver => false,
        }
    }

    /// Who calls meanwhile and must be told UNAVAILABLE, and when to come again.
    pub(super) fn told(self) -> Told {
        match self {
            // Who is dead tells nothing, nor does who stands still; who is deaf or slow has its answers.
            Self::Nothing | Self::NodeKilled | Self::NodeStopped | Self::NodeDeafToNews | Self::DatabaseSlow => {
                Told::Nobody
            }
            // Commits are tried again for longer than this lasts, and what has its connection goes on.
            Self::NodeRefusedByDatabase
            | Self::DatabaseRestartedFast
            | Self::DatabaseRestartedImmediately
            | Self::DatabaseKilled
            | Self::DatabaseRefusing
            | Self::DatabaseOutOfConnections
            | Self::DatabaseReadOnly
            | Self::DatabaseFailedOver => Told::Somebody,
            Self::NodeCutOffInSilence | Self::DatabaseStopped | Self::DatabaseSilent => Told::Everybody,
        }
    }

    /// Whether the nodes that it is about are there to answer, and so must in time.
    pub(super) fn leaves_nodes_alive(self) -> bool {
        !matches!(self, Self::NodeKilled | Self::NodeStopped)
    }

    /// How long it lasts at least.
    pub(super) fn span(self) -> Duration {
        match self {
            Self::Nothing => Duration::ZERO,
            // Longer than the others take it for alive, and longer than a session lasts.
            Self::NodeStopped => Duration::from_secs(4),
            // Until everybody was told, which is longer.
            Self::NodeCutOffInSilence | Self::DatabaseStopped | Self::DatabaseSilent => Duration::ZERO,
            Self::NodeKilled
            | Self::NodeRefusedByDatabase
            | Self::NodeDeafToNews
            | Self::DatabaseRestartedFast
            | Self::DatabaseRestartedImmediately
            | Self::DatabaseKilled
            | Self::DatabaseRefusing
            | Self::DatabaseSlow
            | Self::DatabaseOutOfConnections
            | Self::DatabaseReadOnly
            | Self::DatabaseFailedOver => Duration::from_millis(1_500),
        }
    }
}

/// Whom a fault leaves without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    Nobody,
    /// Some call of some node.
    Somebody,
    /// Each kind of call of each node that it is about.
    Everybody,
}
