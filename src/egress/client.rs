//! One request with its redirects: connection, head, body, each within its bounds.

use super::{
    Fault, Request,
    connect::{Connector, Io, Resolver, SystemResolver},
    tls::Tls,
};
use crate::config;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::{pin::Pin, sync::Arc};
use tokio_util::task::AbortOnDropHandle;
use url::{Position, Url};

/// Most redirects of one request.
const REDIRECTS_MAX: usize = 5;

/// Most bytes of a response's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most headers of a response.
const HEADERS_MAX: usize = 100;

/// Bytes of the body of a response without success that are read: a failure tells no more of it.
const FAILURE_BODY_BYTES: usize = 4 * 1024;

/// A response, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// Status: 200 to 599, or what else the other side says.
    pub(crate) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether there was more of the body. Never of a success.
    pub(super) is_cut: bool,
}

/// Makes requests. Clones share the rules and the certificates.
#[derive(Clone)]
pub(crate) struct Client {
    connector: Connector,
    response_bytes_max: usize,
}

impl Client {
    /// A client that keeps to these rules.
    pub(crate) fn new(rules: config::Http) -> Self {
        Self::with(rules, Arc::new(SystemResolver), Tls::load())
    }

    pub(super) fn with(rules: config::Http, resolver: Arc<dyn Resolver>, tls: Tls) -> Self {
        let response_bytes_max = rules.response_bytes_max;
        Self { connector: Connector::new(Arc::new(rules), resolver, tls), response_bytes_max }
    }

    /// Makes a request and follows redirects. Any status is a response.
    ///
    /// # Errors
    /// Why there is no response.
    pub(crate) async fn call(&self, mut request: Request) -> Result<Response, Fault> {
        for redirects in 0.. {
            let io = self.connector.connect(&request.url).await?;
            let (response, connection) = exchange(io, &request).await?;
            let (head, body) = response.into_parts();
            let status = head.status.as_u16();
            bounded(&head.headers)?;
            let location = head.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
            if redirects < REDIRECTS_MAX
                && let Some(next) = location.and_then(|location| request.redirected(status, location))
            {
                request = next?;
                continue;
            }
            let (body, is_cut) = self.read(status, body).await?;
            drop(connection);
            return Ok(Response { status, headers: head.headers, body, is_cut });
        }
        unreachable!("the last redirect is not followed")
    }

    /// Reads a body: all of a success, the beginning of a failure; says whether there is more.
    async fn read(&self, status: u16, mut body: Incoming) -> Result<(Bytes, bool), Fault> {
        let is_success = (200..300).contains(&status);
        let most = if is_success { self.response_bytes_max } else { FAILURE_BODY_BYTES };
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) if is_success => return Err(broken(&error)),
                // The status is known, and it is what counts.
                Err(_) => return Ok((read.freeze(), true)),
            };
            let Ok(data) = frame.into_data() else { continue };
            if read.len() + data.len() > most {
                if is_success {
                    return Err(Fault::TooLarge(format!("the response has more than {most} bytes")));
                }
                read.extend_from_slice(&data[..most - read.len()]);
                return Ok((read.freeze(), true));
            }
            read.extend_from_slice(&data);
        }
        Ok((read.freeze(), false))
    }
}

/// Sends a request and waits for the head of its response. The connection is driven until the handle is dropped.
async fn exchange(
    io: Pin<Box<dyn Io>>,
    request: &Request,
) -> Result<(http::Response<Incoming>, AbortOnDropHandle<()>), Fault> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .handshake(TokioIo::new(io))
        .await
        .map_err(|error| broken(&error))?;
    let connection = AbortOnDropHandle::new(tokio::spawn(async move {
        // Whoever waits for the response, or for its body, is told.
        let _ = connection.await;
    }));
    let response = sender.send_request(message(request)?).await.map_err(|error| broken(&error))?;
    Ok((response, connection))
}

/// Refuses a head beyond the limit. hyper's own, of its buffer, is what it reads ahead rather than a promise.
fn bounded(headers: &HeaderMap) -> Result<(), Fault> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > HEAD_BYTES_MAX { Err(head_too_large()) } else { Ok(()) }
}

fn head_too_large() -> Fault {
    Fault::TooLarge(format!("the response's head has more than {HEAD_BYTES_MAX} bytes"))
}

fn message(request: &Request) -> Result<http::Request<Full<Bytes>>, Fault> {
    let invalid = || Fault::Invalid("`url` cannot be sent".to_owned());
    let target = &request.url[Position::BeforePath..Position::AfterQuery];
    let mut message = http::Request::new(Full::new(request.body.clone()));
    *message.method_mut() = request.method.clone();
    *message.uri_mut() = target.parse().map_err(|_| invalid())?;
    *message.headers_mut() = request.headers.clone();
    let host = HeaderValue::from_str(authority(&request.url)).map_err(|_| invalid())?;
    message.headers_mut().insert(header::HOST, host);
    Ok(message)
}

/// Host, and port where it is not the usual one.
fn authority(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

/// What hyper says, with its cause: alone it only says that there is one.
fn broken(error: &hyper::Error) -> Fault {
    if error.is_parse_too_large() {
        return head_too_large();
    }
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Fault::Failed(format!("the connection broke: {error}{cause}"))
}
