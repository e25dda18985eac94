//! The program on PostgreSQL: its schema, its password, its absence, and several servers on one database.

use crate::{
    COMPUTE, WAITING,
    harness::{Dir, Done, Orbit, Server, line, orbit, signal, text, until},
    postgres::{PrivateServer, Stop, execute, fresh_database},
};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Stdio,
};

/// A server on this database, with its password in a variable as in use.
fn serve(database: &str, more: &[&str]) -> Server {
    let mut command = orbit(&[&["server", "--listen", "127.0.0.1:0", "--log", "warn", "-o", "json"], more].concat());
    command.0.env("ORBIT_DB", database);
    Server::started(command, Dir::new())
}

fn on(database: &str, arguments: &[&str]) -> Orbit {
    let mut command = orbit(arguments);
    command.0.env("ORBIT_DB", database);
    command
}

fn http_status(address: &str, path: &str) -> u16 {
    http(address, path).0
}

/// Status and body.
fn http(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn migrations_are_told_made_once_and_refused_if_they_are_newer() {
    let database = fresh_database().await;
    let url = database.url();
    let status = || on(&url, &["migrate", "status", "-o", "json"]).done();
    let found = status();
    assert_eq!((found.code, &found.stdout_json()["state"]), (13, &"empty".into()), "{}", found.stderr);

    let dry = on(&url, &["migrate", "up", "--dry-run"]).done();
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert!(dry.stdout.starts_with("-- 0001_foundation\n") && dry.stdout.contains("CREATE TABLE"), "{}", dry.stdout);
    assert_eq!(status().code, 13, "nothing ran");

    // Several at once: one makes them, the others find them made.
    let all: Vec<_> = (0..4).map(|_| on(&url, &["migrate", "up", "-o", "json"]).spawned()).collect();
    let all: Vec<Done> = all.into_iter().map(Done::of).collect();
    assert!(all.iter().all(|done| done.code == 0), "{:?}", all.iter().map(|done| &done.stderr).collect::<Vec<_>>());
    let made = all.iter().filter(|done| done.stdout_json()["done"] != serde_json::json!([])).count();
    assert_eq!(made, 1, "{:?}", all.iter().map(|done| &done.stdout).collect::<Vec<_>>());
    let found = status();
    assert_eq!((found.code, &found.stdout_json()["state"]), (0, &"current".into()));

    execute(&url, "INSERT INTO orbit_migrations (version, name, checksum) VALUES (999, 'later', '\\x00')").await;
    let found = status();
    assert_eq!((found.code, &found.stdout_json()["state"]), (4, &"newer".into()));
    for (arguments, code) in
        [(&["migrate", "up"][..], 4), (&["migrate", "up", "--dry-run"], 4), (&["server", "--listen", "127.0.0.1:0"], 1)]
    {
        let done = on(&url, arguments).done();
        assert_eq!((done.code, &*done.stdout), (code, ""), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains("was written by a newer version of Orbit: its schema is 999"), "{}", done.stderr);
    }
}

#[tokio::test]
async fn two_servers_on_one_database_are_one_service() {
    let database = fresh_database().await;
    let (one, two) = (serve(&database.url(), &[]), serve(&database.url(), &[]));
    for definition in [COMPUTE, WAITING] {
        assert_eq!(one.orbit(&["deploy", &one.dir.file("definition.yaml", definition)]).code, 0);
    }
    let done = two.orbit(&["start", "compute", "--id", "a", "--input", "7", "--wait"]);
    assert_eq!((done.code, &*done.stdout), (0, "7\n"), "{}", done.stderr);
    assert_eq!(one.orbit(&["get", "a", "-o", "json"]).stdout_json()["state"], "STATE_SUCCEEDED");

    // They know each other: each tells its own id, and both tell both.
    let info = |server: &Server| -> serde_json::Value {
        serde_json::from_str(&http(&server.address, "/v1/server").1).unwrap()
    };
    until("they see each other", || {
        [&one, &two].iter().all(|server| info(server)["nodes"].as_array().unwrap().len() == 2)
    });
    let (one_says, two_says) = (info(&one), info(&two));
    assert_eq!((&one_says["store"], &one_says["nodes"]), (&"postgres".into(), &two_says["nodes"]));
    for says in [&one_says, &two_says] {
        assert!(one_says["nodes"].as_array().unwrap().iter().any(|node| node["id"] == says["nodeId"]), "{one_says}");
    }
    assert_ne!(one_says["nodeId"], two_says["nodeId"]);

    // Started at one, signalled at the other, waited for at both.
    assert_eq!(one.orbit(&["start", "waiting", "--id", "w"]).code, 0);
    let waits = [&one, &two].map(|server| server.command(&["get", "w", "--wait"]).spawned());
    let signalled = two.orbit(&["signal", "w", "go", "--payload", "8"]);
    assert_eq!(signalled.code, 0, "{}", signalled.stderr);
    for wait in waits {
        let done = Done::of(wait);
        assert_eq!((done.code, &*done.stdout), (0, "8\n"), "{}", done.stderr);
    }
    assert_eq!(
        one.orbit(&["list", "-o", "json"]).stdout_json(),
        two.orbit(&["list", "-o", "json"]).stdout_json(),
        "they tell the same"
    );
}

#[tokio::test]
async fn the_password_of_a_database_is_in_nothing_that_a_server_says() {
    let database = PrivateServer::start();
    execute(database.url(), "CREATE ROLE ada LOGIN SUPERUSER PASSWORD 's3cr3t/@%?'").await;
    let address = database.url().replace("postgres@", "ada:s3cr3t%2F%40%25%3F@");
    let says_it = |text: &str| text.contains("s3cr3t");

    let mut command = on(&address, &["server", "--listen", "127.0.0.1:0", "--log", "trace", "-o", "json"]);
    let mut child = command.0.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = child.stderr.take();
    let log = std::thread::spawn(move || text(stderr));
    let started = line(child.stdout.as_mut().unwrap());
    let shown: serde_json::Value = serde_json::from_str(&started).unwrap();
    let host = address.split('@').nth(1).unwrap();
    assert_eq!(shown["database"], format!("postgres://ada:***@{host}"), "{started}");
    let client = |arguments: &[&str]| {
        let mut command = orbit(arguments);
        command.0.env("ORBIT_SERVER", shown["address"].as_str().unwrap());
        command.done()
    };
    assert_eq!(client(&["list"]).code, 0);
    // What a lost database makes it say is part of it.
    database.stop(Stop::Immediate);
    let failed = client(&["list"]);
    assert_eq!(failed.code, 6, "{}", failed.stderr);
    assert!(!says_it(&failed.stderr), "{}", failed.stderr);
    signal(child.id(), libc::SIGTERM);
    child.wait().unwrap();
    let log = log.join().unwrap();
    assert!(log.contains("readiness changed") || log.contains("SIGTERM"), "{log}");
    assert!(!says_it(&log), "{}", log.lines().find(|line| says_it(line)).unwrap_or_default());

    let away = on(&address, &["server", "--listen", "127.0.0.1:0", "--db-wait", "1s"]).done();
    assert_eq!((away.code, &*away.stdout), (6, ""), "{}", away.stderr);
    assert!(away.stderr.contains(&format!("postgres://ada:***@{host}")) && !says_it(&away.stderr), "{}", away.stderr);
}

#[tokio::test]
async fn what_the_database_refuses_is_said_at_once() {
    let database = PrivateServer::start();
    let url = database.url();
    let nobody = url.replace("postgres@", "nobody:s3cr3t@");
    let nowhere = url.replace("/postgres", "/nowhere").replace("//nowhere", "//postgres");
    for (address, said) in [(&nobody, "does not let this user in"), (&nowhere, "there is no such database")] {
        for command in [&["server", "--listen", "127.0.0.1:0"][..], &["migrate", "status"]] {
            let done = on(address, command).done();
            assert_eq!((done.code, &*done.stdout), (1, ""), "{command:?}: {}", done.stderr);
            assert!(done.stderr.contains(said) && !done.stderr.contains("s3cr3t"), "{}", done.stderr);
        }
    }
}

#[tokio::test]
async fn a_start_waits_for_its_database() {
    let database = PrivateServer::start();
    database.stop(Stop::Fast);
    let gone = on(database.url(), &["migrate", "status"]).done();
    assert_eq!((gone.code, &*gone.stdout), (6, ""), "{}", gone.stderr);

    let mut command = on(database.url(), &["server", "--listen", "127.0.0.1:0", "-o", "json", "--db-wait", "1m"]);
    let mut child = command.0.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let waits = line(child.stderr.as_mut().unwrap());
    assert!(waits.contains("the database does not answer; trying again"), "{waits}");
    database.start_again();
    let started = line(child.stdout.as_mut().unwrap());
    assert!(started.contains("\"address\""), "{started}");
    signal(child.id(), libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn c125_a_lost_database_makes_a_server_unready_and_not_dead_until_it_is_back() {
    let database = PrivateServer::start();
    let server = serve(database.url(), &[]);
    assert_eq!(server.orbit(&["deploy", &server.dir.file("compute.yaml", COMPUTE)]).code, 0);
    assert_eq!(http_status(&server.address, "/readyz"), 200);

    database.stop(Stop::Immediate);
    until("it is not ready", || http_status(&server.address, "/readyz") == 503);
    assert_eq!(http_status(&server.address, "/healthz"), 200);
    let refused = server.orbit(&["start", "compute", "-o", "json"]);
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    let error = &refused.stderr_json()["error"];
    assert_eq!(
        (&error["status"], &error["details"][0]["reason"]),
        (&"UNAVAILABLE".into(), &"STORE_UNAVAILABLE".into())
    );
    let details = error["details"].as_array().unwrap();
    assert!(details.iter().any(|detail| detail["retryDelay"].is_string()), "{error}");

    database.start_again();
    until("it is ready again", || http_status(&server.address, "/readyz") == 200);
    assert_eq!(server.orbit(&["start", "compute", "--wait"]).code, 0);
}

#[tokio::test]
async fn c125_a_database_that_takes_no_writes_makes_a_server_unready() {
    let mut database = PrivateServer::start();
    let server = serve(database.url(), &[]);
    // As a standby does, or a disk that a provider has frozen.
    database.set("default_transaction_read_only", Some("on"));
    until("it is not ready", || http_status(&server.address, "/readyz") == 503);
    assert_eq!(http_status(&server.address, "/healthz"), 200);
    assert_eq!(server.orbit(&["deploy", &server.dir.file("compute.yaml", COMPUTE)]).code, 6);
    database.set("default_transaction_read_only", None);
    until("it is ready again", || http_status(&server.address, "/readyz") == 200);
}

#[tokio::test]
async fn a_benchmark_runs_on_several_nodes_and_spares_a_database_that_is_in_use() {
    let database = fresh_database().await;
    let load = ["bench", "--steps", "3", "--concurrency", "8", "--duration", "1s", "--warm-up", "200ms", "-o", "json"];
    let bench = |more: &[&str]| orbit(&[&load[..], &["--db", &database.url()], more].concat()).done();
    let done = bench(&["--nodes", "2"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let report = done.stdout_json();
    assert_eq!((&report["errors"], &report["store"], &report["nodes"]), (&0.into(), &"postgres".into(), &2.into()));
    for number in [
        &report["steps_per_second"],
        &report["server"]["cpu_us_per_step"],
        &report["server"]["rss_bytes"],
        &report["server"]["db_bytes"],
    ] {
        assert!(number.as_f64().unwrap() > 0.0, "{report}");
    }

    let refused = bench(&[]);
    assert_eq!((refused.code, &*refused.stdout), (2, ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("a benchmark needs an empty database"), "{}", refused.stderr);
    assert_eq!(bench(&["--reuse", "--mode", "poll"]).code, 0);
}
