//! https, with an authority of the test's own. Debian's PostgreSQL, which other tests need, brings `openssl` with it.

use super::*;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{path::Path, process::Command};
use tokio_rustls::TlsAcceptor;

fn openssl(folder: &Path, arguments: &str) {
    let done = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A server for `good.test` that says "hello" over TLS, and what a client must trust to hear it.
async fn server() -> (SocketAddr, RootCertStore, JoinHandle<()>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(folder.path(), &format!("req -x509 {key} -days 2 -subj /CN=authority -keyout ca.key -out ca.crt"));
    openssl(folder.path(), &format!("req -new {key} -subj /CN=server -keyout server.key -out server.csr"));
    std::fs::write(path("names"), "basicConstraints=CA:FALSE\nsubjectAltName=DNS:good.test,IP:127.0.0.1\n").unwrap();
    let sign = "x509 -req -days 2 -CAcreateserial -CA ca.crt -CAkey ca.key -in server.csr -out server.crt";
    openssl(folder.path(), &format!("{sign} -extfile names"));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path("ca.crt")).unwrap()).unwrap();
    let certificate = CertificateDer::from_pem_file(path("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(path("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust this server hangs up.
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut part = [0; 4096];
                let _ = stream.read(&mut part).await;
                let _ = stream.write_all(&answer("200 OK", "", "hello")).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    (address, roots, serving)
}

#[tokio::test]
async fn https_is_spoken_with_who_has_a_certificate_for_the_host_and_nobody_else() {
    let (address, roots, serving) = server().await;
    let port = address.port();
    let rules = rules(&[&format!("*:{port}")], &["127.0.0.0/8"]);
    let resolver = Arc::new(names(&[("good.test", &[&["127.0.0.1"]]), ("bad.test", &[&["127.0.0.1"]])]));
    let trusting = Client::with(rules.clone(), resolver.clone(), Tls::trusting(roots));
    for host in ["good.test", "GOOD.test", "127.0.0.1"] {
        let response = get(&trusting, &format!("https://{host}:{port}/")).await.unwrap();
        assert_eq!((response.status, &response.body[..]), (200, &b"hello"[..]), "{host}");
    }
    let other_host = get(&trusting, &format!("https://bad.test:{port}/")).await.unwrap_err();
    let distrusting = with_resolver(rules, resolver);
    let no_authority = get(&distrusting, &format!("https://good.test:{port}/")).await.unwrap_err();
    for fault in [other_host, no_authority] {
        assert!(matches!(&fault, Fault::Failed(message) if message.contains("no TLS")), "{fault:?}");
    }
    serving.abort();
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_refused() {
    let request = parse(r#"{"url": "https://a.test/x"}"#).unwrap();
    let down = request.redirected(302, "http://a.test/").unwrap();
    assert!(matches!(down, Err(Fault::Forbidden(_))), "{down:?}");
    assert!(request.redirected(302, "//b.test/").unwrap().is_ok());
}
