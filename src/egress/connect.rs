//! From an address to a connection: allowed host, resolved name, judged address.

use super::{Fault, address, tls::Tls};
use crate::config;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use url::{Host, Url};

/// How long one address may take to answer, before the next one is tried.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Addresses of one host that are tried.
const ADDRESSES_MAX: usize = 8;

/// Finds the addresses of names.
#[async_trait::async_trait]
pub(super) trait Resolver: Send + Sync + 'static {
    /// The addresses of a name, in the order in which to try them.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's: files and name servers as for every program.
pub(super) struct SystemResolver;

#[async_trait::async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// A connection, encrypted or not.
pub(super) trait Io: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector {
    rules: Arc<config::Http>,
    resolver: Arc<dyn Resolver>,
    tls: Tls,
}

impl Connector {
    pub(super) fn new(rules: Arc<config::Http>, resolver: Arc<dyn Resolver>, tls: Tls) -> Self {
        Self { rules, resolver, tls }
    }

    /// Connects to where an address leads, if that is allowed.
    pub(super) async fn connect(&self, url: &Url) -> Result<Pin<Box<dyn Io>>, Fault> {
        let (host, port) = self.judge(url)?;
        let addresses = self.addresses(&host, port).await?;
        let stream = dial(&addresses).await?;
        // A request is one small write that must not wait for more.
        stream.set_nodelay(true).map_err(|error| broken("cannot use the connection", &error))?;
        if url.scheme() == "https" { Ok(Box::pin(self.tls.wrap(stream, host).await?)) } else { Ok(Box::pin(stream)) }
    }

    /// Host and port of an address that is allowed, as far as its text tells.
    fn judge<'u>(&self, url: &'u Url) -> Result<(Host<&'u str>, u16), Fault> {
        let usual_port = match url.scheme() {
            "http" => 80,
            "https" => 443,
            _ => return Err(forbidden("only http and https addresses are called")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(forbidden("an address must not hold a user or a password: use the header `authorization`"));
        }
        let (Some(host), Some(text)) = (url.host(), url.host_str()) else {
            return Err(Fault::Invalid("`url` names no host".to_owned()));
        };
        let port = url.port().unwrap_or(usual_port);
        if self.rules.allow.iter().any(|rule| rule.allows(text, port, usual_port)) {
            return Ok((host, port));
        }
        Err(forbidden(format!("{text}:{port} is not one of the hosts that this server allows (--http-allow)")))
    }

    /// The addresses of a host that may be connected to. They are what is connected to: nothing looks again.
    async fn addresses(&self, host: &Host<&str>, port: u16) -> Result<Vec<SocketAddr>, Fault> {
        let found = match host {
            Host::Ipv4(address) => vec![IpAddr::V4(*address)],
            Host::Ipv6(address) => vec![IpAddr::V6(*address)],
            Host::Domain(name) => {
                let found = self.resolver.resolve(name).await;
                found.map_err(|error| broken(&format!("cannot find the address of {name}"), &error))?
            }
        };
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in found {
            match address::refusal(address, &self.rules.allow_private) {
                None => allowed.push(SocketAddr::new(address, port)),
                Some(why) => refused = Some((address, why)),
            }
        }
        allowed.truncate(ADDRESSES_MAX);
        match refused {
            _ if !allowed.is_empty() => Ok(allowed),
            Some((address, why)) => Err(forbidden(format!(
                "{host} is at {address}, which is {why}; such addresses are not called (--http-allow-private)"
            ))),
            None => Err(Fault::Failed(format!("{host} has no address"))),
        }
    }
}

/// Connects to the first address that answers.
async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, Fault> {
    let mut last = None;
    for address in addresses {
        match tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = Some(broken(&format!("cannot connect to {address}"), &error)),
            Err(_) => last = Some(Fault::Failed(format!("{address} does not answer"))),
        }
    }
    Err(last.expect("there is an address, or it was refused before"))
}

fn forbidden(message: impl Into<String>) -> Fault {
    Fault::Forbidden(message.into())
}

fn broken(what: &str, error: &io::Error) -> Fault {
    Fault::Failed(format!("{what}: {error}"))
}
