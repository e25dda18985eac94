//! An `http` step: a task whose worker is the server itself, and whose input is the request.

use super::{
    fault::code,
    fields::{Checker, Fields, POSITIVE, Path, list, nearest},
    model::{HTTP_CONTRACT, HTTP_QUEUE, HTTP_TIMEOUT_DEFAULT, TaskStep},
    node::{Entry, Node, Value},
    parse::{duration, required},
    references::References,
    retry, task,
};
use std::sync::Arc;

/// The methods that a request may have.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Methods of requests that change nothing: their steps leave nothing to undo, and they have no body.
pub(super) const SAFE_METHODS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Most headers.
const HEADERS_MAX: usize = 64;

/// Headers that belong to the connection, lower-case: a step that set them could make two requests of one, or reach another
/// host.
pub const HTTP_HEADERS_RESERVED: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The method of a request that names none.
pub(super) fn method_default(has_body: bool) -> &'static str {
    if has_body { "POST" } else { "GET" }
}

/// Reads an `http` step from its fields; `node` is the request.
pub(super) fn read(
    checker: &mut Checker<'_>,
    fields: &Fields<'_>,
    node: &Node,
    path: &Path<'_>,
    references: &mut References<'_>,
) -> Option<TaskStep> {
    let input = request(checker, node, &path.field("http"))
        .and_then(|request| checker.template(&request, &path.field("http"), references));
    let retry = retry::read(checker, fields, path);
    let timeout = duration(checker, fields, path, "timeout", POSITIVE);
    let total_timeout = duration(checker, fields, path, "total_timeout", POSITIVE);
    let priority = task::priority(checker, fields, path);
    Some(TaskStep {
        contract: Arc::from(HTTP_CONTRACT),
        input: Some(input?),
        input_schema: None,
        output_schema: None,
        language: None,
        queue: Arc::from(HTTP_QUEUE),
        retry,
        timeout: Some(timeout.unwrap_or(HTTP_TIMEOUT_DEFAULT)),
        queue_timeout: None,
        total_timeout,
        heartbeat_timeout: None,
        priority,
    })
}

/// The document of the request, as the step's worker gets it: `method`, `url`, and `headers` and `body` if there are any.
fn request(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>) -> Option<Node> {
    let fields = checker.fields(node, path, &["method", "url", "headers", "body"])?;
    let body = fields.get("body");
    let method = method(checker, &fields, path, body.is_some());
    let url = required(checker, &fields, path, "url");
    let url = url.filter(|node| url_is_text(checker, node, &path.field("url")));
    let headers = headers(checker, &fields, path);
    let member = |key: &str, node: Node| Entry { key: key.into(), mark: node.start, node };
    let mut members = vec![member("method", method?), member("url", url?.clone())];
    members.extend(headers?.map(|headers| member("headers", headers)));
    members.extend(body.map(|body| member("body", body.clone())));
    Some(Node { value: Value::Object(members), start: node.start, end: node.end })
}

fn method(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>, has_body: bool) -> Option<Node> {
    let Some(node) = fields.get("method") else { return Some(Node::text(method_default(has_body))) };
    let path = path.field("method");
    let word = checker.text(node, &path)?;
    let method = word.to_ascii_uppercase();
    if !METHODS.contains(&method.as_str()) {
        let hint = match nearest(&method, METHODS.into_iter()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("use one of {}", list(&METHODS)),
        };
        checker.judge(code::ENUM_INVALID, node.start, &path, format!("`{word}` is no method"), hint);
    }
    if has_body && SAFE_METHODS.contains(&method.as_str()) {
        let message = format!("a request with `{method}` has no body");
        checker.judge(code::FIELD_NOT_APPLICABLE, node.start, &path, message, "use `POST`, or remove `body`");
    }
    Some(Node { value: Value::Text(method.into()), ..node.clone() })
}

/// Whether it is a text; one that cannot be a URL, whatever its expressions give, is a fault.
fn url_is_text(checker: &mut Checker<'_>, node: &Node, path: &Path<'_>) -> bool {
    let Some(text) = checker.text(node, path) else { return false };
    let literal = text.split("${").next().unwrap_or_default();
    let lower = literal.to_ascii_lowercase();
    let rest = ["https://", "http://"].iter().find_map(|scheme| lower.strip_prefix(scheme));
    let begins_well = match rest {
        // The host may come from an expression.
        Some(rest) => !rest.starts_with('/') && (!rest.is_empty() || literal.len() < text.len()),
        None => literal.is_empty() && !text.is_empty(),
    };
    if !begins_well || literal.contains(|c: char| c.is_ascii_whitespace() || c.is_control()) {
        let hint = "write it like `https://api.example.com/orders/${ input.id }`";
        checker.judge(code::HTTP_URL_INVALID, node.start, path, "not an absolute `http` or `https` URL", hint);
    }
    true
}

/// The headers as they were written, without those of value null; `None` if one is no text.
#[expect(clippy::option_option, reason = "faults, which have been said, and no headers are two things")]
fn headers(checker: &mut Checker<'_>, fields: &Fields<'_>, path: &Path<'_>) -> Option<Option<Node>> {
    let Some(node) = fields.get("headers") else { return Some(None) };
    let path = path.field("headers");
    let entries = checker.entries(Some(node), &path);
    if entries.len() > HEADERS_MAX {
        let message = format!("{} headers; a request may have {HEADERS_MAX}", entries.len());
        checker.judge(code::TOO_MANY, fields.mark("headers"), &path, message, "remove some");
    }
    let mut names: Vec<String> = Vec::with_capacity(entries.len());
    let mut are_texts = true;
    for entry in entries {
        let path = path.key(&entry.key);
        let name = entry.key.to_ascii_lowercase();
        let problem = if !is_header(&name) {
            Some(("is not a header's name", "letters, digits and any of !#$%&'*+-.^_`|~"))
        } else if HTTP_HEADERS_RESERVED.contains(&name.as_str()) {
            Some(("is set by the server", "remove it"))
        } else if names.contains(&name) {
            Some(("stands twice, in two spellings", "keep one of them"))
        } else {
            None
        };
        if let Some((problem, hint)) = problem {
            let message = format!("`{}` {problem}", entry.key);
            checker.judge(code::HTTP_HEADER_INVALID, entry.mark, &path, message, hint);
        }
        names.push(name);
        match checker.text(&entry.node, &path) {
            Some(text) if text.split("${").next().unwrap_or_default().contains(char::is_control) => {
                let message = "a header's value has no line ends and no other control characters";
                checker.judge(code::HTTP_HEADER_INVALID, entry.node.start, &path, message, "remove them");
            }
            Some(_) => {}
            None => are_texts = false,
        }
    }
    let is_map = matches!(node.value, Value::Object(_));
    (is_map && are_texts).then(|| (!entries.is_empty()).then(|| node.clone()))
}

fn is_header(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
