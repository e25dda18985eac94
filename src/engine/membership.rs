//! Which nodes share the store and live, and what each of them looks at first.
//!
//! - A node lives while the time in its row keeps changing, judged by this node's own monotonic time; this node itself
//!   always lives. No clock of another machine is compared with this one's.
//! - Keys are spread by rendezvous hashing over the nodes that live: if one dies, only its own keys move.
//! - Nothing depends on it being right: it decides who looks first, and the fence of a history who acts.

use crate::domain::{SessionId, Timestamp};
use crate::store::{ExecutionKey, NodeRow, ScheduleKey};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};
use uuid::Uuid;

/// Silence after which a node is taken for dead: three rounds of presence, so that a single slow one moves nothing.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// What is known of another node.
#[derive(Clone, Copy)]
struct Sight {
    now: Timestamp,
    /// When its row last changed, or was first seen, by this node's monotonic time.
    since: Duration,
    level: u32,
    life: Life,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Live,
    /// It was seen once, with an old time: a dead node's row most likely. It counts where a mistake would do harm only.
    Unsure,
    Dead,
}

#[derive(Default)]
struct Sights {
    others: BTreeMap<Uuid, Sight>,
    /// When rows were last seen, by this node's monotonic time.
    seen: Duration,
}

/// The nodes that live, as hash seeds: what a key's owner is worked out from.
#[derive(Clone, Debug)]
pub(super) struct Live {
    me: u64,
    others: Arc<[u64]>,
}

/// The nodes as this one sees them.
pub(super) struct Membership {
    me: Uuid,
    own_level: u32,
    sights: Mutex<Sights>,
    live: Mutex<Live>,
    has_others: AtomicBool,
    level: AtomicU32,
}

impl Membership {
    /// This node alone, which reads events up to `level`.
    pub(super) fn new(me: Uuid, level: u32) -> Self {
        let live = Mutex::new(Live { me: seed_of(me), others: Arc::default() });
        Self {
            me,
            own_level: level,
            sights: Mutex::default(),
            live,
            has_others: AtomicBool::new(false),
            level: AtomicU32::new(level),
        }
    }

    fn sights(&self) -> MutexGuard<'_, Sights> {
        self.sights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the rows of all nodes, as presence answers with them; `monotonic` is this node's time. Back come the
    /// times of others that went faster than this node's, from and to. Where other nodes are among them it must be called
    /// every round, since only their silence tells that they are dead.
    pub(super) fn seen(&self, rows: &[NodeRow], monotonic: Duration) -> Vec<(Timestamp, Timestamp)> {
        let mut leaps = Vec::new();
        let mut sights = self.sights();
        // Whoever did not look for long cannot tell silence from its own absence.
        let was_away = monotonic.saturating_sub(sights.seen) > SILENCE_MAX;
        sights.seen = monotonic;
        let newest = rows.iter().map(|row| row.now).max().unwrap_or_default();
        sights.others.retain(|id, _| rows.iter().any(|row| row.id == *id));
        for row in rows.iter().filter(|row| row.id != self.me) {
            let sight = sights.others.entry(row.id).or_insert_with(|| {
                // Nodes that live are never further apart than a round of presence: each jumps to the newest time.
                let life = if newest.since(row.now) <= SILENCE_MAX { Life::Live } else { Life::Unsure };
                Sight { now: row.now, since: monotonic, level: row.level, life }
            });
            sight.level = row.level;
            if sight.now != row.now {
                let expected = sight.now + monotonic.saturating_sub(sight.since);
                if row.now > expected {
                    leaps.push((sight.now, sight.now + row.now.since(expected)));
                }
                (sight.now, sight.since, sight.life) = (row.now, monotonic, Life::Live);
            } else if was_away {
                sight.since = monotonic;
            } else if monotonic.saturating_sub(sight.since) > SILENCE_MAX {
                sight.life = Life::Dead;
            }
        }
        let live = sights.others.iter().filter(|(_, sight)| sight.life == Life::Live);
        let others: Arc<[u64]> = live.map(|(id, _)| seed_of(*id)).collect();
        let may_live = sights.others.values().filter(|sight| sight.life != Life::Dead);
        let level = may_live.map(|sight| sight.level).fold(self.own_level, u32::min);
        drop(sights);
        self.level.store(level, Ordering::Relaxed);
        metrics::gauge!(crate::telemetry::EVENT_LEVEL).set(f64::from(level));
        metrics::gauge!(crate::telemetry::NODES_LIVE).set(others.len() as f64 + 1.0);
        self.has_others.store(!others.is_empty(), Ordering::Relaxed);
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.others = others;
        leaps
    }

    /// The nodes that live with the newest kind of event that each reads, by id; this one among them.
    pub(super) fn nodes(&self) -> Vec<(Uuid, u32)> {
        let sights = self.sights();
        let others = sights.others.iter().filter(|(_, sight)| sight.life == Life::Live);
        let all = others.map(|(id, sight)| (*id, sight.level)).chain([(self.me, self.own_level)]);
        all.collect::<BTreeMap<_, _>>().into_iter().collect()
    }

    /// Whether another node lives.
    pub(super) fn has_others(&self) -> bool {
        self.has_others.load(Ordering::Relaxed)
    }

    /// The nodes that live now, to work out the owners of many keys.
    pub(super) fn live(&self) -> Live {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest kind of event that every node which may live can read: newer ones must not be written yet.
    pub(super) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }
}

impl Live {
    /// Whether an execution's timers and waiting units are this node's to look at first.
    pub(super) fn is_mine(&self, key: ExecutionKey) -> bool {
        self.rank(key) == 0
    }

    /// Whether a session is this node's to judge first.
    pub(super) fn judges(&self, id: SessionId) -> bool {
        self.rank_of(seed_of(id.0)) == 0
    }

    /// This node's turn to look at an execution: 0 is its owner, 1 comes next should the owner not do it, and so on.
    pub(super) fn rank(&self, key: ExecutionKey) -> usize {
        self.rank_of(key.0.cast_unsigned())
    }

    /// This node's turn to work on a batch.
    pub(super) fn rank_of_batch(&self, id: Uuid) -> usize {
        self.rank_of(seed_of(id))
    }

    /// This node's turn to look at a schedule.
    pub(super) fn rank_of_schedule(&self, key: ScheduleKey) -> usize {
        self.rank_of(mix(key.0.cast_unsigned()))
    }

    fn rank_of(&self, key: u64) -> usize {
        // The highest score owns the key. Equal scores, one case in 2^64, only make two nodes look at the same time.
        let key = mix(key);
        let mine = mix(self.me ^ key);
        self.others.iter().filter(|other| mix(**other ^ key) > mine).count()
    }
}

fn seed_of(id: Uuid) -> u64 {
    let (high, low) = id.as_u64_pair();
    mix(mix(high) ^ low)
}

/// SplitMix64's finalizer. Every node must use the same: another one would make two of them own the same keys.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: i64 = 1_000_000_000_000;

    fn node(number: u128, second: i64) -> NodeRow {
        NodeRow { id: Uuid::from_u128(number), now: Timestamp::from_micros(BASE + second * 1_000_000), level: 1 }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn members(me: u128) -> Membership {
        Membership::new(Uuid::from_u128(me), 2)
    }

    #[test]
    fn a_node_alone_owns_everything() {
        let members = members(1);
        assert!(!members.has_others());
        assert!((0..1_000).all(|key| members.live().is_mine(ExecutionKey(key))));
        assert_eq!(members.level(), 2);
    }

    #[test]
    fn a_node_lives_while_its_time_changes_and_dies_after_three_silent_seconds() {
        let members = members(1);
        for second in 0..10 {
            members.seen(&[node(1, second), node(2, second)], seconds(second.unsigned_abs()));
            assert!(members.has_others());
        }
        for second in 10..13 {
            members.seen(&[node(1, second), node(2, 9)], seconds(second.unsigned_abs()));
            assert!(members.has_others(), "second {second}");
        }
        members.seen(&[node(1, 13), node(2, 9)], seconds(13));
        assert!(!members.has_others());
        members.seen(&[node(1, 14), node(2, 14)], seconds(14));
        assert!(members.has_others(), "it is back");
    }

    #[test]
    fn rows_of_dead_nodes_are_no_members_but_count_for_the_level_until_they_are_known_to_be_silent() {
        let members = members(1);
        members.seen(&[node(1, 1_000), node(2, 5)], seconds(1));
        assert!(!members.has_others());
        assert_eq!(members.level(), 1);
        for second in 2..6 {
            members.seen(&[node(1, 1_000), node(2, 5)], seconds(second));
        }
        assert_eq!(members.level(), 2);
    }

    #[test]
    fn the_live_nodes_are_told_with_their_levels() {
        let members = members(2);
        members.seen(&[node(3, 1_000), node(2, 1_000), node(1, 5)], seconds(1));
        assert_eq!(members.nodes(), [(Uuid::from_u128(2), 2), (Uuid::from_u128(3), 1)]);
    }

    #[test]
    fn a_node_that_was_away_does_not_take_the_others_for_dead() {
        let members = members(1);
        members.seen(&[node(1, 0), node(2, 0)], seconds(0));
        // Both were suspended together, and this one is the first to wake.
        members.seen(&[node(1, 600), node(2, 0)], seconds(600));
        assert!(members.has_others());
        members.seen(&[node(1, 604), node(2, 0)], seconds(602));
        members.seen(&[node(1, 604), node(2, 0)], seconds(604));
        assert!(!members.has_others(), "silent for as long as this node looked");
    }

    #[test]
    fn a_clock_that_is_minutes_off_makes_no_node_dead() {
        let members = members(1);
        for second in 0..10 {
            members
                .seen(&[node(1, second), node(2, second + 300), node(3, second - 300)], seconds(second.unsigned_abs()));
        }
        assert_eq!(members.live().others.len(), 2);
    }

    #[test]
    fn a_time_that_goes_faster_than_this_node_s_is_told() {
        let members = members(1);
        assert_eq!(members.seen(&[node(1, 0), node(2, 0)], seconds(0)), []);
        assert_eq!(members.seen(&[node(1, 1), node(2, 1)], seconds(1)), []);
        let leaps = members.seen(&[node(1, 3), node(2, 303)], seconds(3));
        assert_eq!(leaps, [(node(2, 1).now, node(2, 301).now)], "two seconds are real");
        assert_eq!(members.seen(&[node(1, 63), node(2, 363)], seconds(63)), [], "it was away");
    }

    #[test]
    fn each_key_has_one_owner_and_only_a_dead_node_s_keys_move() {
        let all: Vec<Membership> = (1..=3).map(members).collect();
        for members in &all {
            members.seen(&[node(1, 0), node(2, 0), node(3, 0)], seconds(0));
        }
        let owners = |all: &[Membership]| -> Vec<usize> {
            let live: Vec<Live> = all.iter().map(Membership::live).collect();
            let owner = |key| {
                let owners: Vec<usize> =
                    (0..live.len()).filter(|node| live[*node].is_mine(ExecutionKey(key))).collect();
                assert_eq!(owners.len(), 1, "{key}");
                owners[0]
            };
            (0..3_000).map(owner).collect()
        };
        let before = owners(&all);
        for node in 0..3 {
            let share = before.iter().filter(|owner| **owner == node).count();
            assert!((850..1_150).contains(&share), "node {node} has {share} of 3,000");
        }
        let ranks: Vec<usize> = all.iter().map(|members| members.live().rank(ExecutionKey(7))).collect();
        assert_eq!(ranks.iter().sum::<usize>(), 3, "each has a turn of its own: {ranks:?}");
        let two = &all[..2];
        for members in two {
            for second in 1..5 {
                members.seen(&[node(1, second), node(2, second), node(3, 0)], seconds(second.unsigned_abs()));
            }
        }
        let after = owners(two);
        for (key, (before, after)) in before.iter().zip(after).enumerate() {
            assert!(*before == 2 || *before == after, "key {key} moved from a node that lives");
        }
    }
}
