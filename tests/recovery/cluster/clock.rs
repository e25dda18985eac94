//! Machines whose clocks differ.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// Variables that put a process on a machine whose clock is so many seconds ahead.
pub(super) fn ahead(seconds: i64) -> Vec<(&'static str, String)> {
    vec![("LD_PRELOAD", LIBRARY.display().to_string()), ("CLOCK_AHEAD_SECONDS", seconds.to_string())]
}

/// The layer that tells another time, compiled once for each run of the tests.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recovery/cluster/clock.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clock.so");
    // Renamed when it is whole: another run may be using it.
    let fresh = library.with_extension(std::process::id().to_string());
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o"])
        .args([fresh.as_os_str(), source.as_os_str(), OsStr::new("-ldl")])
        .output()
        .expect("a C compiler is needed, as it is for the bundled SQLite");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::rename(fresh, &library).unwrap();
    library
});
