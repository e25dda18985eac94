//! `orbit migrate` on files; on PostgreSQL it stands beside the tests of its store.

use crate::harness::{Dir, Server, orbit};
use std::fs;

#[test]
fn a_new_file_is_told_and_brought_up_to_date() {
    let dir = Dir::new();
    let file = dir.path("orbit.db");
    let status = || orbit(&["migrate", "status", "--db", &file, "-o", "json"]).done();
    let found = status();
    assert_eq!(found.code, 13, "{}", found.stderr);
    let found = found.stdout_json();
    assert_eq!((&found["found_schema"], &found["state"]), (&0.into(), &"empty".into()));
    assert_eq!(found["pending"][0]["name"], "foundation");
    assert!(!fs::exists(&file).unwrap(), "looking makes no file");

    let dry = orbit(&["migrate", "up", "--dry-run", "--db", &file]).done();
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert!(dry.stdout.starts_with("-- 0001_foundation\n") && dry.stdout.contains("CREATE TABLE"), "{}", dry.stdout);
    assert!(!fs::exists(&file).unwrap(), "nothing runs");

    let done = orbit(&["migrate", "up", "--db", &file]).done();
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.starts_with("0001_foundation done\n"), "{}", done.stdout);
    let found = status();
    assert_eq!((found.code, found.stdout_json()["state"].as_str()), (0, Some("current")));
    let again = orbit(&["migrate", "up", "--db", &file, "-o", "json"]).done();
    assert_eq!((again.code, &again.stdout_json()["done"]), (0, &serde_json::json!([])));
    let again = orbit(&["migrate", "up", "--dry-run", "--db", &file]).done();
    assert_eq!((again.code, &*again.stdout), (0, ""));
}

#[test]
fn a_file_that_a_server_has_is_looked_at_and_not_changed() {
    let server = Server::start();
    let found = orbit(&["migrate", "status", "--db", &server.database()]).done();
    assert_eq!(found.code, 0, "{}", found.stderr);
    assert!(found.stdout.contains("current"), "{}", found.stdout);
    let refused = orbit(&["migrate", "up", "--db", &server.database()]).done();
    assert_eq!((refused.code, &*refused.stdout), (1, ""));
    assert!(refused.stderr.contains("in use by another server"), "{}", refused.stderr);
    assert_eq!(server.orbit(&["list"]).code, 0);
}

#[tokio::test]
async fn a_newer_schema_is_refused_in_plain_words_by_each_command() {
    let dir = Dir::new();
    let file = dir.path("orbit.db");
    assert_eq!(orbit(&["migrate", "up", "--db", &file]).done().code, 0);
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (999, 'later', 1, x'00', 1)";
    let pool = sqlx::SqlitePool::connect(&file).await.unwrap();
    sqlx::query(later).execute(&pool).await.unwrap();
    pool.close().await;

    for (arguments, code) in
        [(&["migrate", "up"][..], 4), (&["migrate", "up", "--dry-run"], 4), (&["server", "--listen", "127.0.0.1:0"], 1)]
    {
        let done = orbit(&[arguments, &["--db", &file]].concat()).done();
        assert_eq!((done.code, &*done.stdout), (code, ""), "{arguments:?}: {}", done.stderr);
        let said = "was written by a newer version of Orbit: its schema is 999, and this version knows schemas up to";
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    let found = orbit(&["migrate", "status", "--db", &file, "-o", "json"]).done();
    assert_eq!((found.code, found.stdout_json()["state"].as_str()), (4, Some("newer")));
}

#[test]
fn what_is_no_database_of_ours_is_refused() {
    let dir = Dir::new();
    let text = dir.file("notes.txt", &"no database at all\n".repeat(100));
    for command in ["status", "up"] {
        let done = orbit(&["migrate", command, "--db", &text]).done();
        assert_eq!((done.code, &*done.stdout), (1, ""), "{}", done.stderr);
        assert!(done.stderr.contains("is not a SQLite database"), "{}", done.stderr);
    }
    let done = orbit(&["migrate", "status", "--db", &dir.path("no/such/orbit.db")]).done();
    assert_eq!(done.code, 1);
    assert!(done.stderr.contains("there is no such directory"), "{}", done.stderr);
}
