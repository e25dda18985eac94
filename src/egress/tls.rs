//! TLS to the hosts of `http` steps, with the certificates that the system trusts.

use super::Fault;
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use url::Host;

/// Speaks TLS 1.2 and 1.3.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
}

impl Tls {
    /// Reads the certificates that the system trusts, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    pub(super) fn load() -> Self {
        let loaded = rustls_native_certs::load_native_certs();
        for error in &loaded.errors {
            tracing::warn!(error = error as &dyn std::error::Error, "some trusted certificates could not be read");
        }
        let mut roots = RootCertStore::empty();
        let (taken, _) = roots.add_parsable_certificates(loaded.certs);
        if taken == 0 {
            tracing::warn!("the system trusts no certificates: http steps cannot call https addresses");
        }
        Self::trusting(roots)
    }

    /// Trusts these authorities.
    pub(super) fn trusting(roots: RootCertStore) -> Self {
        // What is taken is named here, so that another user of the library in this process cannot change it.
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has ciphers for both versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { connector: TlsConnector::from(Arc::new(config)) }
    }

    /// Encrypts a connection to a host, whose certificate must be for it.
    pub(super) async fn wrap(&self, stream: TcpStream, host: Host<&str>) -> Result<TlsStream<TcpStream>, Fault> {
        let name = match host {
            Host::Domain(name) => ServerName::try_from(name.trim_end_matches('.').to_owned())
                .map_err(|_| Fault::Invalid("`url` names a host that no certificate can name".to_owned()))?,
            Host::Ipv4(address) => ServerName::IpAddress(std::net::IpAddr::V4(address).into()),
            Host::Ipv6(address) => ServerName::IpAddress(std::net::IpAddr::V6(address).into()),
        };
        self.connector.connect(name, stream).await.map_err(|error| Fault::Failed(format!("no TLS: {error}")))
    }
}
