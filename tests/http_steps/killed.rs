//! A server that dies amid a request: the program itself, killed.

use crate::harness::{Site, answer};
use std::{
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
};

/// The program, with none of the developer's own variables.
fn orbit() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orbit"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ORBIT_")) {
        command.env_remove(name);
    }
    command
}

/// A server that may call this site.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, site: &Site) -> Self {
        let mut child = orbit()
            .args(["server", "--listen", "127.0.0.1:0", "--session-timeout", "1s", "--log", "warn", "-o", "json"])
            .args(["--http-allow", &site.address.to_string(), "--http-allow-private", "127.0.0.0/8"])
            .arg("--db")
            .arg(folder.join("orbit.db"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        let stdout = child.stdout.as_mut().unwrap();
        while stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        let started: serde_json::Value = serde_json::from_slice(&line).unwrap();
        Self { child, address: started["address"].as_str().unwrap().to_owned() }
    }

    /// Runs a command against it, which must succeed.
    async fn run(&self, arguments: &[&str]) -> String {
        let mut command = orbit();
        command.args(arguments).env("ORBIT_SERVER", &self.address).stdin(Stdio::null());
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_server_that_is_killed_amid_a_request_makes_it_again_with_the_same_key() {
    let site = Site::start(|_, before| async move {
        if before == 0 {
            std::future::pending::<()>().await;
        }
        answer(200, "application/json", "[1]")
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("call.yaml");
    let step = format!("{{id: call, http: {{method: POST, url: \"{}\", body: {{a: 1}}}}, timeout: 1h}}", site.url("/"));
    let text = format!("name: call\nversion: 1.0.0\nsteps:\n  - {step}\nresult: ${{ steps.call.output.body }}\n");
    std::fs::write(&file, text).unwrap();

    let mut server = Server::start(folder.path(), &site);
    server.run(&["deploy", file.to_str().unwrap()]).await;
    server.run(&["start", "call", "--id", "x"]).await;
    site.asked_at_least(1).await;
    server.kill();

    let server = Server::start(folder.path(), &site);
    let output = server.run(&["start", "call", "--id", "x", "--wait"]).await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&output).unwrap(), serde_json::json!([1]));
    let asked = site.asked();
    assert_eq!((asked.len(), &asked[0].idempotency_key), (2, &asked[1].idempotency_key));
}
