//! Which workers there are for a task that waits for one, and which there nearly are.

use super::ForWorker;
use std::{collections::BTreeMap, sync::Arc};

/// A live session of a worker, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// Queues that it serves.
    pub queues: &'a [Arc<str>],
    /// Contracts that it can do.
    pub contracts: &'a [Arc<str>],
    /// Its language; empty for none.
    pub language: &'a str,
    /// Most tasks that it does at once.
    pub slots: u32,
    /// Whether it asks for a task now.
    pub asks: bool,
}

/// The workers for a task. Each live session counts once at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// Sessions that can do it.
    pub sessions: u32,
    /// Those of them that ask for a task now, as far as is known where it was looked.
    pub asking: u32,
    /// Slots of all that can do it, free or not.
    pub slots: u64,
    /// Sessions that could but for their language, by language.
    pub other_languages: BTreeMap<Arc<str>, u32>,
    /// Sessions that could in another queue, by queue.
    pub other_queues: BTreeMap<Arc<str>, u32>,
    /// Sessions that can do another version of the contract, by version.
    pub other_versions: BTreeMap<Arc<str>, u32>,
}

impl Supply {
    /// Looks at the live sessions.
    #[must_use]
    pub fn of<'a>(task: &ForWorker, sessions: impl IntoIterator<Item = Announcement<'a>>) -> Self {
        let mut supply = Self::default();
        for session in sessions {
            supply.count(task, session);
        }
        supply
    }

    /// Counts a session where it comes nearest to what is needed.
    fn count(&mut self, task: &ForWorker, session: Announcement<'_>) {
        let can = session.contracts.contains(&task.contract);
        let serves = session.queues.contains(&task.queue);
        let speaks = task.language.as_deref().is_none_or(|language| language == session.language);
        let count = |counts: &mut BTreeMap<Arc<str>, u32>, name: &str| *counts.entry(Arc::from(name)).or_default() += 1;
        if can && serves && speaks {
            self.sessions += 1;
            self.asking += u32::from(session.asks);
            self.slots += u64::from(session.slots);
        } else if can && serves {
            count(&mut self.other_languages, session.language);
        } else if can {
            if let Some(queue) = session.queues.first() {
                count(&mut self.other_queues, queue);
            }
        } else if let Some((name, _)) = task.contract.split_once('@') {
            let mut versions =
                session.contracts.iter().filter_map(|contract| contract.strip_prefix(name)?.strip_prefix('@'));
            if let Some(version) = versions.next() {
                count(&mut self.other_versions, version);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arcs(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn each_worker_counts_where_it_comes_nearest() {
        let task = ForWorker {
            queue: Arc::from("x"),
            contract: Arc::from("pay@1"),
            language: Some(Arc::from("python")),
            priority: 3,
            attempt: 1,
            supply: None,
        };
        let workers = [
            (["x"], ["pay@1"], "python", true),
            (["x"], ["pay@1"], "python", false),
            (["x"], ["pay@1"], "go", true),
            (["y"], ["pay@1"], "go", true),
            (["x"], ["pay@2"], "python", true),
            (["x"], ["payout@1"], "python", true),
        ];
        let workers: Vec<_> = workers.iter().map(|(q, c, l, asks)| (arcs(q), arcs(c), *l, *asks)).collect();
        let supply = Supply::of(
            &task,
            workers.iter().map(|(queues, contracts, language, asks)| Announcement {
                queues,
                contracts,
                language,
                slots: 4,
                asks: *asks,
            }),
        );
        let one = |name: &str| BTreeMap::from([(Arc::from(name), 1)]);
        assert_eq!(
            supply,
            Supply {
                sessions: 2,
                asking: 1,
                slots: 8,
                other_languages: one("go"),
                other_queues: one("y"),
                other_versions: one("2"),
            }
        );
    }
}
