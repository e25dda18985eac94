//! Counts which combinations of command, state of its execution, and fault while it was under way were reached; and of
//! what executions do to each other, fault while that was under way, and number of nodes.
//!
//! The combinations that can occur are in `coverage.txt`, with how often the run for the record reached each. A run that
//! meets one that is not there fails, so the table cannot fall behind.

use crate::{deeds::Deed, world::NODES_MAX};
use orbit::store::ExecutionState;
use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

/// What a caller or a worker does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Command {
    /// A start with an id that may be new.
    Start,
    /// The same start with its `request_id` again.
    StartRepeat,
    /// A start of the same id with another input.
    StartOther,
    /// A start that brings a signal, which an execution that has the id gets.
    StartSignal,
    Signal,
    SignalRepeat,
    Cancel,
    Terminate,
    Pause,
    Unpause,
    /// A retry of what may have failed.
    Retry,
    /// A new execution that repeats one from a step on.
    Rerun,
    Delete,
    /// A batch of whatever action.
    Batch,
    BatchCancel,
    Complete,
    /// A result that breaks the contract.
    CompleteWrong,
    Fail,
    Release,
    /// A report that was made before.
    ReportRepeat,
    /// A report on a token that its worker has given up.
    ReportLate,
    /// A report on a task of an execution that was deleted.
    ReportGone,
    Get,
    Wait,
    Watch,
    Poll,
    Stream,
    Heartbeat,
    Register,
    Resume,
    Unregister,
}

impl Command {
    pub(crate) const ALL: [Self; 31] = [
        Self::Start,
        Self::StartRepeat,
        Self::StartOther,
        Self::StartSignal,
        Self::Signal,
        Self::SignalRepeat,
        Self::Cancel,
        Self::Terminate,
        Self::Pause,
        Self::Unpause,
        Self::Retry,
        Self::Rerun,
        Self::Delete,
        Self::Batch,
        Self::BatchCancel,
        Self::Complete,
        Self::CompleteWrong,
        Self::Fail,
        Self::Release,
        Self::ReportRepeat,
        Self::ReportLate,
        Self::ReportGone,
        Self::Get,
        Self::Wait,
        Self::Watch,
        Self::Poll,
        Self::Stream,
        Self::Heartbeat,
        Self::Register,
        Self::Resume,
        Self::Unregister,
    ];
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fault {
    None,
    /// A commit failed and wrote nothing.
    CommitFails,
    /// A commit wrote and answered that it had failed.
    CommitLost,
    /// A read failed.
    ReadFails,
    /// Another write (a session, presence) failed, having written or not.
    WriteFails,
    /// The server died.
    Crash,
    /// The wall clock jumped by an hour.
    ClockJump,
    /// Another node wrote first.
    Conflict,
    /// The way to the store was cut: calls failed, having worked or not, or took seconds.
    CutOff,
    /// The node was stopped, and went on as if no time had passed.
    Freeze,
    /// News from another node were lost, or came twice or late.
    NewsLost,
    /// Another node died.
    OtherDies,
}

impl Fault {
    pub(crate) const ALL: [Self; 12] = [
        Self::None,
        Self::CommitFails,
        Self::CommitLost,
        Self::ReadFails,
        Self::WriteFails,
        Self::Crash,
        Self::ClockJump,
        Self::Conflict,
        Self::CutOff,
        Self::Freeze,
        Self::NewsLost,
        Self::OtherDies,
    ];

    /// How often the run for the record reaches each combination with it: those of several nodes are in a part of the
    /// runs only, and last for moments.
    const fn least(self) -> u64 {
        match self {
            Self::None
            | Self::CommitFails
            | Self::CommitLost
            | Self::ReadFails
            | Self::WriteFails
            | Self::Crash
            | Self::ClockJump => 100,
            Self::Conflict | Self::CutOff | Self::Freeze | Self::NewsLost | Self::OtherDies => 10,
        }
    }

    /// What excuses that a store did not work.
    pub(crate) const OF_STORE: [Self; 5] =
        [Self::CommitFails, Self::CommitLost, Self::ReadFails, Self::WriteFails, Self::CutOff];
}

/// Numbers of nodes that worlds have.
const NODES: [usize; NODES_MAX] = [1, 2, 3];

/// How often the run for the record does each deed under each fault, and on each number of nodes.
const DEED_LEAST: u64 = 10;

/// State of the execution that a command is for, when it was sent; none where there is no execution (yet).
pub(crate) type Of = Option<ExecutionState>;

/// Counters of combinations.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Coverage {
    commands: BTreeMap<(Command, Of, Fault), u64>,
    deeds: BTreeMap<(Deed, Fault), u64>,
    /// How often each was done, by the number of nodes.
    deeds_by_nodes: BTreeMap<(Deed, usize), u64>,
}

impl Coverage {
    pub(crate) fn count(&mut self, command: Command, of: Of, fault: Fault) {
        *self.commands.entry((command, of, fault)).or_default() += 1;
    }

    pub(crate) fn count_deed(&mut self, deed: Deed, nodes: usize, faults: &[Fault]) {
        for fault in if faults.is_empty() { &[Fault::None] } else { faults } {
            *self.deeds.entry((deed, *fault)).or_default() += 1;
        }
        *self.deeds_by_nodes.entry((deed, nodes)).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (key, count) in &other.commands {
            *self.commands.entry(*key).or_default() += count;
        }
        for (key, count) in &other.deeds {
            *self.deeds.entry(*key).or_default() += count;
        }
        for (key, count) in &other.deeds_by_nodes {
            *self.deeds_by_nodes.entry(*key).or_default() += count;
        }
    }

    /// Combinations that the table does not have.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let known = table();
        let unknown = self.commands.keys().filter(|key| !known.contains(&(key.0, key.1)));
        unknown.map(|key| format!("{key:?}")).collect()
    }

    /// Combinations of the table that were reached too rarely for the record.
    pub(crate) fn rare(&self) -> Vec<String> {
        let mut rare = Vec::new();
        for (command, of) in table() {
            for fault in Fault::ALL {
                let count = self.of_command(command, of, fault);
                if count < fault.least() {
                    rare.push(format!("{command:?} {} {fault:?}: {count}", state_name(of)));
                }
            }
        }
        for deed in Deed::ALL {
            let counts = Fault::ALL.map(|fault| (format!("{fault:?}"), self.of_deed(deed, fault)));
            let by_nodes = NODES.map(|nodes| (format!("on {nodes} nodes"), self.of_nodes(deed, nodes)));
            for (what, count) in counts.into_iter().chain(by_nodes).filter(|(_, count)| *count < DEED_LEAST) {
                rare.push(format!("{deed:?} {what}: {count}"));
            }
        }
        rare
    }

    /// How many combinations were reached, and the least count among those of the table.
    pub(crate) fn summary(&self) -> (usize, u64) {
        let of_commands =
            table().into_iter().flat_map(|(command, of)| Fault::ALL.map(|fault| self.of_command(command, of, fault)));
        let of_deeds = Deed::ALL.into_iter().flat_map(|deed| Fault::ALL.map(|fault| self.of_deed(deed, fault)));
        let of_nodes = Deed::ALL.into_iter().flat_map(|deed| NODES.map(|nodes| self.of_nodes(deed, nodes)));
        let combinations = self.commands.len() + self.deeds.len() + self.deeds_by_nodes.len();
        (combinations, of_commands.chain(of_deeds).chain(of_nodes).min().unwrap_or(0))
    }

    fn of_command(&self, command: Command, of: Of, fault: Fault) -> u64 {
        self.commands.get(&(command, of, fault)).copied().unwrap_or(0)
    }

    fn of_deed(&self, deed: Deed, fault: Fault) -> u64 {
        self.deeds.get(&(deed, fault)).copied().unwrap_or(0)
    }

    fn of_nodes(&self, deed: Deed, nodes: usize) -> u64 {
        self.deeds_by_nodes.get(&(deed, nodes)).copied().unwrap_or(0)
    }

    /// The table with its counts, as it is committed.
    pub(crate) fn render(&self, title: &str) -> String {
        let mut text = format!("{title}\n\n{:<14} {:<13}", "command", "state");
        for fault in Fault::ALL {
            write!(text, " {:>12}", format!("{fault:?}")).unwrap();
        }
        for (command, of) in table() {
            write!(text, "\n{:<14} {:<13}", format!("{command:?}"), state_name(of)).unwrap();
            for fault in Fault::ALL {
                write!(text, " {:>12}", self.of_command(command, of, fault)).unwrap();
            }
        }
        text += "\n\nHow often each was done under each fault of any node, and on so many nodes.\n\n";
        write!(text, "{:<20}", "deed").unwrap();
        for fault in Fault::ALL {
            write!(text, " {:>12}", format!("{fault:?}")).unwrap();
        }
        for nodes in NODES {
            write!(text, " {:>12}", format!("on {nodes}")).unwrap();
        }
        for deed in Deed::ALL {
            write!(text, "\n{:<20}", format!("{deed:?}")).unwrap();
            let of_faults = Fault::ALL.map(|fault| self.of_deed(deed, fault));
            for count in of_faults.into_iter().chain(NODES.map(|nodes| self.of_nodes(deed, nodes))) {
                write!(text, " {count:>12}").unwrap();
            }
        }
        text.push('\n');
        text
    }
}

fn state_name(of: Of) -> String {
    of.map_or_else(|| "-".to_owned(), |state| format!("{state:?}"))
}

pub(crate) fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulation/coverage.txt"))
}

/// The combinations of command and state that can occur; each can with every fault.
fn table() -> Vec<(Command, Of)> {
    let mut table = Vec::new();
    for command in Command::ALL {
        match command {
            // Before there is an execution, and whatever has become of it.
            Command::Start | Command::StartRepeat | Command::StartSignal => {
                table.push((command, None));
                table.extend(ExecutionState::ALL.map(|state| (command, Some(state))));
            }
            Command::StartOther
            | Command::Signal
            | Command::SignalRepeat
            | Command::Cancel
            | Command::Terminate
            | Command::Pause
            | Command::Unpause
            | Command::Retry
            | Command::Rerun
            | Command::Delete
            | Command::ReportRepeat
            | Command::ReportLate
            | Command::Get
            | Command::Wait
            | Command::Watch => table.extend(ExecutionState::ALL.map(|state| (command, Some(state)))),
            // A worker that has not given its task up reports on it whatever has become of its execution.
            Command::Complete | Command::CompleteWrong | Command::Fail | Command::Release => {
                table.extend(ExecutionState::ALL.map(|state| (command, Some(state))));
            }
            Command::Batch
            | Command::BatchCancel
            | Command::ReportGone
            | Command::Poll
            | Command::Stream
            | Command::Heartbeat
            | Command::Register
            | Command::Resume
            | Command::Unregister => table.push((command, None)),
        }
    }
    table
}
