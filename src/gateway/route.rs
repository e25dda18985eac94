//! Finds the route of a path: split first, then decode each segment once.

use std::{borrow::Cow, sync::Arc};

use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;
use tonic::Status;

use super::{Response, call::Call, error};

/// What answers the calls of a route.
type Handler = Arc<dyn Fn(Call) -> BoxFuture<'static, Result<Response, Status>> + Send + Sync>;

/// A part of a route's path between two slashes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Segment {
    /// This word.
    Literal(&'static str),
    /// Any value, the empty one too: then the call is refused for its field, and no other route takes it.
    Variable,
}

/// What is to be known of a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    /// HTTP method.
    pub(super) method: &'static str,
    /// What follows the path after a colon; empty for none.
    pub(super) verb: &'static str,
    /// Whether the request is the body. Otherwise its fields are parameters.
    pub(super) takes_body: bool,
    /// Whether the answer is a stream, which may take any time.
    pub(super) streams: bool,
    /// Full name, `package.Service/Method`.
    pub(super) rpc: &'static str,
}

/// One method of one path.
pub(super) struct Route {
    /// What is to be known of it.
    pub(super) spec: Spec,
    /// Answers a call.
    pub(super) handler: Handler,
}

/// All routes, as a tree over segments in which a literal wins over a variable.
#[derive(Default)]
pub(super) struct Router(Node);

#[derive(Default)]
struct Node {
    literals: Vec<(&'static str, Node)>,
    variable: Option<Box<Node>>,
    routes: Vec<Route>,
}

/// The routes of one path, and the path's segments as values.
pub(super) struct Found<'a> {
    routes: Vec<&'a Route>,
    /// The decoded segments, the last one without its verb.
    pub(super) values: Vec<String>,
}

impl Router {
    /// Adds a route. The build has checked that no two are the same.
    pub(super) fn add(
        &mut self,
        segments: &[Segment],
        spec: Spec,
        handler: impl Fn(Call) -> BoxFuture<'static, Result<Response, Status>> + Send + Sync + 'static,
    ) {
        let mut node = &mut self.0;
        for segment in segments {
            node = match segment {
                Segment::Literal(word) => node.literal(word),
                Segment::Variable => node.variable.get_or_insert_default(),
            };
        }
        node.routes.push(Route { spec, handler: Arc::new(handler) });
    }

    /// The routes of a raw path; none if there are none.
    ///
    /// # Errors
    /// The path is not percent-encoded UTF-8.
    pub(super) fn find(&self, path: &str) -> Result<Option<Found<'_>>, Status> {
        let raw = path.strip_prefix('/').unwrap_or(path);
        let decoded = |raw: &str| decode(raw).ok_or_else(|| error::field("path", "not percent-encoded UTF-8"));
        let mut values = raw.split('/').map(decoded).collect::<Result<Vec<_>, _>>()?;
        let last = raw.rsplit('/').next().unwrap_or_default();
        // The colon is looked for in the raw text: an encoded one is part of the value.
        if let Some((value, verb)) = last.rsplit_once(':') {
            let (value, verb) = (decoded(value)?, decoded(verb)?);
            let whole = values.pop();
            values.push(value);
            if let Some(routes) = self.0.find(&values, &verb) {
                return Ok(Some(Found { routes, values }));
            }
            values.pop();
            values.extend(whole);
        }
        Ok(self.0.find(&values, "").map(|routes| Found { routes, values }))
    }
}

impl Node {
    fn literal(&mut self, word: &'static str) -> &mut Self {
        let place = self.literals.iter().position(|(literal, _)| *literal == word).unwrap_or_else(|| {
            self.literals.push((word, Self::default()));
            self.literals.len() - 1
        });
        &mut self.literals[place].1
    }

    fn find(&self, values: &[String], verb: &str) -> Option<Vec<&Route>> {
        let Some((first, rest)) = values.split_first() else {
            let routes: Vec<_> = self.routes.iter().filter(|route| route.spec.verb == verb).collect();
            return (!routes.is_empty()).then_some(routes);
        };
        let literal = self.literals.iter().find(|(word, _)| word == first).map(|(_, node)| node);
        literal.into_iter().chain(self.variable.as_deref()).find_map(|node| node.find(rest, verb))
    }
}

impl<'a> Found<'a> {
    /// The route of a method.
    pub(super) fn route(&self, method: &str) -> Option<&'a Route> {
        self.routes.iter().copied().find(|route| route.spec.method == method)
    }

    /// The methods of the path, for the header `Allow`.
    pub(super) fn allow(&self) -> String {
        let mut methods: Vec<_> = self.routes.iter().map(|route| route.spec.method).collect();
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        methods.push("OPTIONS");
        methods.join(", ")
    }
}

/// Decodes percent-encoded text, once. None if a `%` has no two digits after it, or the result is not UTF-8.
pub(super) fn decode(raw: &str) -> Option<String> {
    let encoded = |after: &str| after.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !raw.split('%').skip(1).all(encoded) {
        return None;
    }
    percent_decode_str(raw).decode_utf8().ok().map(Cow::into_owned)
}
