//! The gateway over services that record their calls; once over real sockets.

mod errors;
mod fake;
mod routes;
mod rule;
mod serving;
mod streams;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::{Gateway, Limits};
use fake::Fake;

/// A gateway, and the services behind it.
struct Bench {
    gateway: Gateway,
    fake: Arc<Fake>,
}

/// An answer, read to its end.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Bench {
    fn new() -> Self {
        let fake = Arc::new(Fake::default());
        let limits = Limits { body_bytes_max: 64 * 1024, ..Limits::default() };
        Self { gateway: Gateway::new(&fake, &fake, &fake, limits), fake }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let request =
            headers.iter().fold(http::Request::builder().method(method).uri(path), |builder, (name, value)| {
                builder.header(*name, *value)
            });
        let response = self.gateway.handle(request.body(body.into()).unwrap()).await;
        let (parts, body) = response.into_parts();
        Answer { status: parts.status, headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    async fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.to_owned()).await
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("{why}: {:?}", self.body))
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("has no header {name}")).to_str().unwrap()
    }

    /// Status and `reason`, after a check of the envelope.
    fn refusal(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/json");
        let json = self.json();
        let error = &json["error"];
        assert_eq!(error["code"], self.status.as_u16());
        assert!(error["status"].is_string() && error["message"].is_string(), "{json}");
        let info = &error["details"][0];
        assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{json}");
        assert_eq!(info["domain"], "orbit");
        (self.status.as_u16(), info["reason"].as_str().unwrap().to_owned())
    }

    /// The fields that are refused, each with its description.
    fn violations(&self) -> Vec<String> {
        assert_eq!(self.refusal(), (400, "FIELD_VIOLATION".to_owned()));
        let bad = &self.json()["error"]["details"][1];
        assert_eq!(bad["@type"], "type.googleapis.com/google.rpc.BadRequest");
        let violations = bad["fieldViolations"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        violations.iter().map(|v| format!("{}: {}", text(&v["field"]), text(&v["description"]))).collect()
    }
}
