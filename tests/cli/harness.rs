//! Runs the program, and servers for it to talk to.

use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Longest time for what should come at once; a machine under load is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with these arguments, and none of the developer's own `ORBIT_` variables.
pub(crate) struct Orbit(pub(crate) Command);

pub(crate) fn orbit(arguments: &[&str]) -> Orbit {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orbit"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORBIT_") {
            command.env_remove(name);
        }
    }
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").args(arguments).stdin(Stdio::null());
    Orbit(command)
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How a run ended.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Orbit {
    pub(crate) fn done(self) -> Done {
        Done::of(self.spawned())
    }

    /// Runs beside the test.
    pub(crate) fn spawned(mut self) -> Child {
        self.0.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Done {
    /// The end of a run that was spawned.
    pub(crate) fn of(child: Child) -> Self {
        let output = child.wait_with_output().unwrap();
        Self {
            code: output.status.code().expect("it ends by itself"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn stdout_json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    pub(crate) fn stderr_json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stderr).unwrap_or_else(|error| panic!("{error}: {}", self.stderr))
    }
}

/// A directory for a test's files.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

/// A server on a database of its own, killed at the end.
pub(crate) struct Server {
    pub(crate) dir: Dir,
    pub(crate) address: String,
    pub(crate) child: Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        let dir = Dir::new();
        let (child, address) = serve(&dir, "127.0.0.1:0");
        Self { dir, address, child }
    }

    /// One that this command starts, with `-o json`.
    pub(crate) fn started(command: Orbit, dir: Dir) -> Self {
        let (child, address) = begin(command);
        Self { dir, address, child }
    }

    /// With these definitions deployed.
    pub(crate) fn with(definitions: &[&str]) -> Self {
        let server = Self::start();
        for (number, definition) in definitions.iter().enumerate() {
            let done = server.orbit(&["deploy", &server.dir.file(&format!("{number}.yaml"), definition)]);
            assert_eq!(done.code, 0, "{}", done.stderr);
        }
        server
    }

    pub(crate) fn database(&self) -> String {
        self.dir.path("orbit.db")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// On the same database and address.
    pub(crate) fn restart(&mut self) {
        (self.child, self.address) = serve(&self.dir, &self.address);
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Orbit {
        let mut command = orbit(arguments);
        command.0.env("ORBIT_SERVER", &self.address);
        command
    }

    pub(crate) fn orbit(&self, arguments: &[&str]) -> Done {
        self.command(arguments).done()
    }

    /// Runs a command again and again until it gives what it should.
    pub(crate) fn until(&self, arguments: &[&str], good: impl Fn(&Done) -> bool) {
        let start = Instant::now();
        loop {
            let done = self.orbit(arguments);
            if good(&done) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{arguments:?}: {}{}", done.stdout, done.stderr);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(dir: &Dir, listen: &str) -> (Child, String) {
    begin(orbit(&["server", "--db", &dir.path("orbit.db"), "--listen", listen, "--log", "warn", "-o", "json"]))
}

fn begin(mut command: Orbit) -> (Child, String) {
    let mut child = command.0.stdout(Stdio::piped()).spawn().unwrap();
    let started: serde_json::Value = serde_json::from_str(&line(child.stdout.as_mut().unwrap())).unwrap();
    (child, started["address"].as_str().unwrap().to_owned())
}

/// The next line. Byte by byte, so that nothing behind it is lost.
pub(crate) fn line(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

/// All that is left.
pub(crate) fn text(from: Option<impl Read>) -> String {
    let mut text = String::new();
    from.unwrap().read_to_string(&mut text).unwrap();
    text
}

pub(crate) fn signal(pid: u32, signal: libc::c_int) {
    // SAFETY: no memory is involved; the child was not waited for yet, so the id is its own.
    assert_eq!(unsafe { libc::kill(pid.try_into().unwrap(), signal) }, 0);
}
