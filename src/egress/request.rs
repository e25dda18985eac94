//! The request of a step: from the task's input to method, address, headers and body.

use super::Fault;
use crate::domain::{
    PAYLOAD_BYTES_MAX, Payload,
    definition::HTTP_HEADERS_RESERVED,
    json::{self, Cursor, JsonError},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use url::Url;

/// Longest address, in bytes.
const URL_BYTES_MAX: usize = 8 * 1024;

/// Most headers of a step.
const HEADERS_MAX: usize = 100;

/// Most bytes of a step's headers, names and values together.
const HEADER_BYTES_MAX: usize = 32 * 1024;

/// What this server calls itself.
const USER_AGENT: &str = concat!("orbit/", env!("CARGO_PKG_VERSION"));

/// Headers that go along where a redirect leads to another origin. All others could be credentials: how an API calls
/// its key nobody here knows.
const FOR_ANYBODY: [&str; 6] =
    ["accept", "accept-language", "content-type", "user-agent", IDEMPOTENCY_KEY, TRACE_PARENT];

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const TRACE_PARENT: &str = "traceparent";

/// What a request carries unless its step says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults<'a> {
    /// The task's idempotency key, for `Idempotency-Key`.
    pub(crate) idempotency_key: &'a str,
    /// W3C `traceparent`; may be empty.
    pub(crate) trace_parent: &'a str,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    /// Reads the input of a task: an object with `url`, and `method`, `headers` and `body` where they are wanted.
    ///
    /// # Errors
    /// `Invalid`, with what is wrong; it shows no value, since it may be a secret.
    pub(crate) fn parse(input: &Payload, defaults: Defaults<'_>) -> Result<Self, Fault> {
        let input = input.as_str();
        let body = present(input, "body")?;
        let method = match present(input, "method")? {
            None if body.is_some() => Method::POST,
            None => Method::GET,
            Some(text) => method(&text_of(text, "method")?)?,
        };
        let url = present(input, "url")?.ok_or_else(|| invalid("`url` is required"))?;
        let url = parse_url(&text_of(url, "url")?)?;
        let mut headers = match present(input, "headers")? {
            Some(text) => parse_headers(text)?,
            None => HeaderMap::new(),
        };
        let body = match body {
            Some(_) if matches!(method, Method::GET | Method::HEAD) => {
                return Err(invalid(format!("a {method} request has no body")));
            }
            Some(text) => parse_body(text, &mut headers)?,
            None => Bytes::new(),
        };
        for (name, value) in [
            (header::USER_AGENT, USER_AGENT),
            (header::ACCEPT, "application/json, */*;q=0.5"),
            (HeaderName::from_static(IDEMPOTENCY_KEY), defaults.idempotency_key),
            (HeaderName::from_static(TRACE_PARENT), defaults.trace_parent),
        ] {
            if !headers.contains_key(&name)
                && !value.is_empty()
                && let Ok(value) = HeaderValue::from_str(value)
            {
                headers.insert(name, value);
            }
        }
        Ok(Self { method, url, headers, body })
    }

    /// The request that a redirect asks for; `None` if such a one is not followed.
    ///
    /// Any method is repeated after 307 and 308; GET and HEAD also after 301, 302 and 303. Other methods stop there:
    /// whether to repeat them or to go on with GET, servers and clients do not agree.
    pub(super) fn redirected(&self, status: u16, location: &str) -> Option<Result<Self, Fault>> {
        let is_followed = match status {
            307 | 308 => true,
            301..=303 => matches!(self.method, Method::GET | Method::HEAD),
            _ => false,
        };
        if !is_followed {
            return None;
        }
        let Ok(mut url) = self.url.join(location) else { return None };
        url.set_fragment(None);
        if self.url.scheme() == "https" && url.scheme() == "http" {
            return Some(Err(Fault::Forbidden("a redirect leads from https to http".to_owned())));
        }
        let mut next = Self { url, ..self.clone() };
        if next.url.origin() != self.url.origin() {
            let kept = self.headers.iter().filter(|(name, _)| FOR_ANYBODY.contains(&name.as_str()));
            next.headers = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        }
        Some(Ok(next))
    }
}

fn invalid(message: impl Into<String>) -> Fault {
    Fault::Invalid(message.into())
}

fn unreadable(_: JsonError) -> Fault {
    invalid("the request is not an object with `url`")
}

/// The text of a member that is there and not null.
fn present<'t>(input: &'t str, name: &str) -> Result<Option<&'t str>, Fault> {
    Ok(json::member(input, name).map_err(unreadable)?.filter(|text| *text != "null"))
}

fn text_of(json: &str, name: &str) -> Result<String, Fault> {
    let text = Cursor::new(json).string().map_err(|_| invalid(format!("`{name}` is not a text")))?;
    Ok(text.into_owned())
}

fn method(text: &str) -> Result<Method, Fault> {
    Ok(match text.to_ascii_uppercase().as_str() {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        "OPTIONS" => Method::OPTIONS,
        _ => return Err(invalid("`method` is none of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")),
    })
}

fn parse_url(text: &str) -> Result<Url, Fault> {
    if text.len() > URL_BYTES_MAX {
        return Err(invalid(format!("`url` has {} bytes; at most {URL_BYTES_MAX} are allowed", text.len())));
    }
    // The parser drops these without a word, so that two texts which look unlike would be one address.
    if text.contains(|c: char| c.is_ascii_control()) {
        return Err(invalid("`url` holds a control character"));
    }
    let mut url = Url::parse(text).map_err(|error| invalid(format!("`url` is not an address: {error}")))?;
    url.set_fragment(None);
    Ok(url)
}

fn parse_headers(text: &str) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    let mut bytes = 0;
    let not_object = |_| invalid("`headers` is not an object of texts");
    let mut cursor = Cursor::new(text);
    cursor.expect(b'{', "expected an object").map_err(not_object)?;
    while !cursor.take(b'}') {
        cursor.take(b',');
        let name = cursor.string().map_err(not_object)?;
        cursor.expect(b':', "expected a colon").map_err(not_object)?;
        let value = cursor.slice().map_err(not_object)?;
        // What is null was left out on purpose.
        if value == "null" {
            continue;
        }
        let value = match value.as_bytes().first() {
            Some(b'"') => Cursor::new(value).string().map_err(not_object)?,
            Some(b'{' | b'[') | None => return Err(invalid(format!("header `{}` is not a text", shown(&name)))),
            Some(_) => value.into(),
        };
        let (name, value) = parse_header(&name, &value)?;
        bytes += name.as_str().len() + value.len();
        headers.insert(name, value);
        if headers.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
            return Err(invalid(format!("`headers` has more than {HEADERS_MAX} entries or {HEADER_BYTES_MAX} bytes")));
        }
    }
    Ok(headers)
}

fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Fault> {
    let shown = shown(name);
    let name =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid(format!("`{shown}` is not a header name")))?;
    if HTTP_HEADERS_RESERVED.contains(&name.as_str()) {
        return Err(invalid(format!("header `{name}` is the server's to set")));
    }
    let mut value = HeaderValue::from_bytes(value.trim_ascii().as_bytes()).map_err(|_| {
        invalid(format!("the value of header `{name}` holds a line break or another control character"))
    })?;
    // Whatever logs it shows no value.
    value.set_sensitive(true);
    Ok((name, value))
}

/// A name for a message: short, and without what could look like another line of a log.
fn shown(name: &str) -> String {
    name.chars().take(50).map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

/// The bytes of a body. Any document is sent as JSON, exactly as it stands, unless the step names another type: then
/// it must be a text, which is sent as it is.
fn parse_body(text: &str, headers: &mut HeaderMap) -> Result<Bytes, Fault> {
    let as_json = match headers.get(header::CONTENT_TYPE) {
        Some(value) => is_json(value.as_bytes()),
        None => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            true
        }
    };
    let body = if as_json {
        Bytes::copy_from_slice(text.as_bytes())
    } else {
        let text = Cursor::new(text)
            .string()
            .map_err(|_| invalid("`body` must be a text where `content-type` is not JSON"))?;
        Bytes::from(text.into_owned())
    };
    // The input is a payload, so this is a promise rather than a check.
    debug_assert!(body.len() <= PAYLOAD_BYTES_MAX, "a payload's part is no larger than the payload");
    Ok(body)
}

/// Whether a content type is that of a JSON document: `application/json`, or one that ends in `+json`.
pub(super) fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let essence = essence.to_ascii_lowercase();
    essence == b"application/json" || essence.ends_with(b"+json")
}
