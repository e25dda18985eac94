//! TLS to the database, with certificates of the test's own.

use crate::{
    harness::{Dir, Done, orbit},
    postgres::{PrivateServer, Stop, execute},
};
use std::{fs, process::Command};

/// Certificates and keys in a directory. Debian's PostgreSQL brings `openssl` with it.
struct Authority {
    dir: Dir,
}

impl Authority {
    /// One that vouches for itself.
    fn new(name: &str) -> Self {
        let dir = Dir::new();
        let (key, certificate) = (dir.path("ca.key"), dir.path("ca.crt"));
        let subject = format!("/CN={name}");
        openssl(
            &["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
            &["-subj", &subject, "-keyout", &key, "-out", &certificate],
        );
        Self { dir }
    }

    fn certificate(&self) -> String {
        self.dir.path("ca.crt")
    }

    /// Makes `NAME.crt` and `NAME.key`, for this subject and (unless empty) this host.
    fn vouch(&self, name: &str, subject: &str, host: &str) -> (String, String) {
        let path = |suffix: &str| self.dir.path(&format!("{name}.{suffix}"));
        let (key, request, certificate) = (path("key"), path("csr"), path("crt"));
        let subject = format!("/CN={subject}");
        openssl(
            &["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
            &["-subj", &subject, "-keyout", &key, "-out", &request],
        );
        let names = if host.is_empty() { String::new() } else { format!("subjectAltName=DNS:{host}\n") };
        let extensions = self.dir.file(&format!("{name}.ext"), &format!("basicConstraints=CA:FALSE\n{names}"));
        openssl(
            &["x509", "-req", "-days", "2", "-CAcreateserial", "-CA", &self.certificate()],
            &["-CAkey", &self.dir.path("ca.key"), "-in", &request, "-out", &certificate, "-extfile", &extensions],
        );
        (certificate, key)
    }
}

fn openssl(arguments: &[&str], more: &[&str]) {
    let done = Command::new("openssl").args(arguments).args(more).output().expect("openssl is installed");
    assert!(done.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A server that takes TLS, for the host `localhost`, and one role that only a certificate lets in.
fn database(authority: &Authority) -> PrivateServer {
    let mut server = PrivateServer::start();
    let (certificate, key) = authority.vouch("server", "a database", "localhost");
    for (setting, source) in
        [("ssl_cert_file", certificate), ("ssl_key_file", key), ("ssl_ca_file", authority.certificate())]
    {
        let file = server.put(setting, &fs::read_to_string(source).unwrap());
        server.set(setting, Some(&file));
    }
    let rules = "hostssl all certified all cert\nhostnossl all certified all reject\nhost all all all trust\n\
                 local all all trust\n";
    let rules = server.put("rules.conf", rules);
    server.set("hba_file", Some(&rules));
    server.set("ssl", Some("on"));
    server.stop(Stop::Fast);
    server.start_again();
    server
}

/// `orbit migrate status`, which connects and changes nothing; 13 says that it got through.
fn look(url: &str, user: &str, host: &str, parameters: &str) -> Done {
    let url = url.replace("postgres@127.0.0.1", &format!("{user}@{host}"));
    let mut command = orbit(&["migrate", "status"]);
    command.0.env("ORBIT_DB", format!("{url}?{parameters}")).env_remove("SSL_CERT_FILE");
    command.done()
}

#[tokio::test]
async fn a_database_is_believed_only_as_far_as_its_certificate_goes() {
    let (authority, stranger) = (Authority::new("orbit tests"), Authority::new("somebody else"));
    let server = database(&authority);
    let (ours, theirs) = (authority.certificate(), stranger.certificate());
    for (host, parameters, passes) in [
        ("127.0.0.1", "sslmode=disable".to_owned(), true),
        ("127.0.0.1", "sslmode=require".to_owned(), true),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={ours}"), true),
        ("localhost", format!("sslmode=verify-full&sslrootcert={ours}"), true),
        // Another name than the certificate's.
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={ours}"), false),
        // Nobody who is trusted vouches for it.
        ("localhost", format!("sslmode=verify-full&sslrootcert={theirs}"), false),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={theirs}"), false),
        ("localhost", format!("sslmode=require&sslrootcert={theirs}"), false),
        ("localhost", "sslmode=verify-full".to_owned(), false),
        ("localhost", "sslrootcert=system".to_owned(), false),
    ] {
        let done = look(server.url(), "postgres", host, &parameters);
        if passes {
            assert_eq!(done.code, 13, "{host} {parameters}: {}", done.stderr);
        } else {
            assert_eq!((done.code, &*done.stdout), (1, ""), "{host} {parameters}: {}", done.stderr);
            assert!(done.stderr.contains("no TLS with the database"), "{host} {parameters}: {}", done.stderr);
        }
    }
}

#[tokio::test]
async fn a_database_without_tls_is_refused_where_tls_is_asked_for() {
    let server = PrivateServer::start();
    assert_eq!(look(server.url(), "postgres", "localhost", "sslmode=prefer").code, 13);
    let done = look(server.url(), "postgres", "localhost", "sslmode=require");
    assert_eq!((done.code, &*done.stdout), (1, ""), "{}", done.stderr);
    assert!(done.stderr.contains("no TLS with the database"), "{}", done.stderr);
}

#[tokio::test]
async fn a_certificate_lets_its_role_in() {
    let authority = Authority::new("orbit tests");
    let server = database(&authority);
    execute(server.url(), "CREATE ROLE certified LOGIN SUPERUSER").await;
    let ours = authority.certificate();
    let (certificate, key) = authority.vouch("client", "certified", "");
    let (foreign, foreign_key) = authority.vouch("foreign", "somebody", "");
    let with = |certificate: &str, key: &str| {
        let parameters = format!("sslmode=verify-full&sslrootcert={ours}&sslcert={certificate}&sslkey={key}");
        look(server.url(), "certified", "localhost", &parameters)
    };
    let done = with(&certificate, &key);
    assert_eq!(done.code, 13, "{}", done.stderr);
    let done = with(&foreign, &foreign_key);
    assert_eq!((done.code, &*done.stdout), (1, ""), "{}", done.stderr);
    let done = look(server.url(), "certified", "localhost", &format!("sslmode=verify-full&sslrootcert={ours}"));
    assert_eq!((done.code, &*done.stdout), (1, ""), "{}", done.stderr);
}
