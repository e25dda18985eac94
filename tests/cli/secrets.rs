//! The password of a database is in no output, however the program ends.

use crate::harness::orbit;

/// Stands in every address below, in the form that a user types and in the one that it means.
const SECRETS: [&str; 2] = ["s3cr3t", "hunter2"];

#[test]
fn a_wrong_address_of_a_database_is_refused_without_its_password() {
    for address in [
        "postgres://ada:s3cr3t@db/orbit?nonsense=1",
        "postgres://ada:s3cr3t@db/orbit?sslmode=perhaps",
        "postgres://ada:s3cr3t%@db/orbit",
        "postgres://ada:s3cr3t/hunter2@db/orbit",
        "postgres://ada:s3cr3t@hunter2@db/orbit",
        "postgress://ada:s3cr3t@db/orbit",
        "postgres:ada:s3cr3t@db/orbit",
    ] {
        for command in [&["server"][..], &["dev"], &["bench"], &["migrate", "status"], &["migrate", "up"]] {
            let done = orbit(&[command, &["--db", address]].concat()).done();
            assert_eq!((done.code, &*done.stdout), (2, ""), "{command:?} {address}: {}", done.stderr);
            assert!(done.stderr.contains("invalid value for '--db <"), "{}", done.stderr);
            assert!(!SECRETS.iter().any(|secret| done.stderr.contains(secret)), "{}", done.stderr);
        }
    }
}

#[test]
fn help_does_not_show_the_address_that_a_variable_holds() {
    for command in [&["server", "--help"][..], &["migrate", "up", "--help"]] {
        let mut help = orbit(command);
        help.0.env("ORBIT_DB", "postgres://ada:s3cr3t@db/orbit");
        let done = help.done();
        assert_eq!(done.code, 0, "{}", done.stderr);
        assert!(done.stdout.contains("[env: ORBIT_DB") && !done.stdout.contains("s3cr3t"), "{}", done.stdout);
    }
}
