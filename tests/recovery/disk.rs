//! A disk that loses what was not synced when the power fails.
//!
//! `unsynced.c`, preloaded into the server, keeps beside each file of the database what the disk has for sure. A power loss
//! is a SIGKILL, after which each file is put together anew: what is for sure, and of the rest any of its blocks or none, as
//! a disk writes them in any order.

use crate::chance::Chance;
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A sector: what a disk writes whole or not at all.
const BLOCK: usize = 4096;

/// What stands behind the database's name in the names of its files.
const FILES: [&str; 3] = ["", "-wal", "-journal"];

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    library: PathBuf,
    /// How much of what was not synced a power loss may leave, in percent: one of these each time.
    shares: &'static [u64],
    lost_bytes: Arc<AtomicU64>,
    losses: Arc<AtomicU64>,
}

impl Disk {
    /// A disk that writes what it was given in any order.
    pub(crate) fn new() -> Self {
        Self::keeping(&[0, 0, 50, 90])
    }

    /// A disk that writes nothing before it is told to sync.
    pub(crate) fn lazy() -> Self {
        Self::keeping(&[0])
    }

    /// Compiles the layer.
    fn keeping(shares: &'static [u64]) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recovery/unsynced.c");
        // Tests that run at the same time compile it at the same time.
        let name = format!("unsynced-{}.so", uuid::Uuid::new_v4());
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let output = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o"])
            .args([library.as_os_str(), source.as_os_str(), OsStr::new("-ldl"), OsStr::new("-lpthread")])
            .output()
            .expect("a C compiler is needed, as it is for the bundled SQLite");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { library, shares, lost_bytes: Arc::default(), losses: Arc::default() }
    }

    /// Puts the layer under a server's database.
    pub(crate) fn lie_under(&self, command: &mut Command, database: &Path) {
        command.env("LD_PRELOAD", &self.library).env("UNSYNCED_PATH", database);
    }

    /// Whether a power loss now would take something away.
    pub(crate) fn has_unsynced(database: &Path) -> bool {
        FILES.iter().any(|suffix| beside(&beside(database, suffix), ".unsynced").exists())
    }

    /// What a power loss leaves of the files of a server that was killed.
    pub(crate) fn lose_power(&self, database: &Path, chance: &mut Chance) {
        assert!(beside(database, ".platter").exists(), "the layer did not see the server open its database");
        for suffix in FILES {
            let path = beside(database, suffix);
            let platter = beside(&path, ".platter");
            if !platter.exists() {
                continue;
            }
            let kept = fs::read(&platter).unwrap();
            let seen = fs::read(&path).unwrap();
            let (left, lost) = settle(&kept, &seen, *chance.pick(self.shares), chance);
            self.lost_bytes.fetch_add(lost, Ordering::Relaxed);
            fs::write(&path, left).unwrap();
            fs::remove_file(platter).unwrap();
            let _ = fs::remove_file(beside(&path, ".unsynced"));
        }
        let _ = fs::remove_file(beside(database, "-shm"));
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes that all power losses together took away.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes.load(Ordering::Relaxed)
    }

    /// How often the power was lost.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if Arc::strong_count(&self.losses) == 1 {
            let _ = fs::remove_file(&self.library);
        }
    }
}

/// Puts a file together from what the disk has for sure and what it was about to get, of which it has this share, in
/// percent. Answers with it and with how many bytes were lost.
fn settle(kept: &[u8], seen: &[u8], share: u64, chance: &mut Chance) -> (Vec<u8>, u64) {
    let size = if chance.percent(share) { seen.len() } else { kept.len() };
    let mut left = kept.to_vec();
    left.resize(size, 0);
    let mut lost = 0;
    for at in (0..size.max(seen.len())).step_by(BLOCK) {
        let part = |bytes: &[u8]| bytes.get(at..bytes.len().min(at + BLOCK)).map(<[u8]>::to_vec).unwrap_or_default();
        let new = part(seen);
        if part(kept) == new {
            continue;
        }
        let end = size.min(at + new.len());
        if at < end && chance.percent(share) {
            left[at..end].copy_from_slice(&new[..end - at]);
        } else {
            lost += new.len() as u64;
        }
    }
    (left, lost)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_every_power_loss() {
        let mut chance = Chance::named("disk");
        let kept = vec![1; 3 * BLOCK];
        for _ in 0..100 {
            let mut seen = kept.clone();
            seen.extend(vec![2; 5 * BLOCK + 7]);
            let (left, lost) = settle(&kept, &seen, 50, &mut chance);
            assert_eq!(left[..kept.len()], kept);
            assert!(left[kept.len()..].iter().all(|byte| [0, 2].contains(byte)));
            assert!(lost <= 5 * BLOCK as u64 + 7);
        }
    }

    #[test]
    fn nothing_is_lost_where_everything_was_synced() {
        let bytes = vec![3; 2 * BLOCK + 1];
        assert_eq!(settle(&bytes, &bytes, 50, &mut Chance::named("disk")), (bytes.clone(), 0));
    }
}
