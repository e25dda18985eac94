//! Generates the routes of the HTTP gateway from `google.api.http`, for the runtime in `src/gateway`.
//!
//! What a route does beyond its annotation follows from the shape of its messages, never from their names:
//! - a request with a string `request_id` takes the header `Idempotency-Key`;
//! - a request of a server stream with an int64 `after_number` takes the header `Last-Event-ID`;
//! - an answer of a server stream with a message whose int64 is called `number` gives each event its id.

use std::fmt::Write;

use heck::ToSnakeCase;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, MethodDescriptor, ServiceDescriptor};

use crate::{
    Error,
    names::{self, ident},
    rule::{Rule, Segment},
};

/// The Rust text: one function a service that adds its routes.
///
/// # Errors
/// A unary method or a server stream has no rule, a client stream has one, a rule cannot be served, or two contradict
/// each other.
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String, Error> {
    let mut out = String::new();
    let mut taken: Vec<(String, Rule)> = vec![];
    for service in pool.services() {
        let mut routes = String::new();
        for method in service.methods() {
            let name = method.full_name();
            let rules = rules(pool, &method).map_err(|why| format!("{name}: {why}"))?;
            for rule in rules {
                if let Some((other, _)) = taken.iter().find(|(_, other)| other.contradicts(&rule)) {
                    return Err(format!("{name}: {other} has the same route").into());
                }
                routes += &route(&service, &method, &rule);
                taken.push((name.to_owned(), rule));
            }
        }
        let module = names::package(service.package_name());
        let snake = service.name().to_snake_case();
        writeln!(
            out,
            "/// Adds the routes of `{full}`.
pub(super) fn {snake}<S: {module}::{snake}_server::{name}>(service: &Arc<S>, router: &mut Router) {{
{routes}}}",
            full = service.full_name(),
            name = service.name(),
        )?;
    }
    Ok(out)
}

/// The rules of a method, its additional bindings included.
fn rules(pool: &DescriptorPool, method: &MethodDescriptor) -> Result<Vec<Rule>, Error> {
    let annotation = pool.get_extension_by_name("google.api.http").ok_or("google.api.http is not known")?;
    let options = method.options();
    if method.is_client_streaming() {
        return if options.has_extension(&annotation) {
            Err("a client stream has no HTTP form".into())
        } else {
            Ok(vec![])
        };
    }
    if !options.has_extension(&annotation) {
        return Err("has no google.api.http annotation".into());
    }
    let value = options.get_extension(&annotation);
    let main = value.as_message().ok_or("the annotation is no HttpRule")?;
    let mut rules = vec![rule(main, &method.input())?];
    for more in main.get_field_by_name("additional_bindings").iter().filter_map(|field| field.as_list()).flatten() {
        rules.push(rule(more.as_message().ok_or("the binding is no HttpRule")?, &method.input())?);
    }
    Ok(rules)
}

fn rule(http: &DynamicMessage, input: &MessageDescriptor) -> Result<Rule, Error> {
    let text = |name: &str| http.get_field_by_name(name).and_then(|value| value.as_str().map(str::to_owned));
    if text("response_body").is_some_and(|body| !body.is_empty()) {
        return Err("response_body is not served".into());
    }
    let method = ["get", "put", "post", "delete", "patch"].into_iter().find(|name| http.has_field_by_name(name));
    let method = method.ok_or("the rule has no path of a known method")?;
    let path = text(method).ok_or("the rule has no path")?;
    let is_text = |name: &str| {
        let field = input.get_field_by_name(name)?;
        Some(field.kind() == Kind::String && !field.is_list() && !field.supports_presence())
    };
    Ok(Rule::parse(&method.to_uppercase(), &path, &text("body").unwrap_or_default(), is_text)?)
}

/// One call of `Router::add`.
fn route(service: &ServiceDescriptor, method: &MethodDescriptor, rule: &Rule) -> String {
    let (mut segments, mut reads) = (String::new(), String::new());
    reads += if rule.takes_body { "call.body(&mut request);\n" } else { "call.query(&mut request);\n" };
    for (place, segment) in rule.segments.iter().enumerate() {
        match segment {
            Segment::Literal(text) => segments += &format!("Segment::Literal({text:?}), "),
            Segment::Variable(name) => {
                segments += "Segment::Variable, ";
                reads += &format!("call.variable({place}, {name:?}, &mut request.{});\n", ident(name));
            }
        }
    }
    if has(&method.input(), "request_id", &Kind::String) {
        reads += "call.idempotency_key(&mut request.request_id);\n";
    }
    if method.is_server_streaming() && has(&method.input(), "after_number", &Kind::Int64) {
        reads += "call.last_event_id(&mut request.after_number);\n";
    }
    let answer = if method.is_server_streaming() {
        format!("Ok(stream::answer(call, reply, |{}))", number(&method.output()))
    } else {
        "call.answer(&reply)".to_owned()
    };
    format!(
        "{{
let service = service.clone();
let spec = Spec {{ method: {http:?}, verb: {verb:?}, takes_body: {takes_body}, streams: {streams}, rpc: {rpc:?} }};
router.add(&[{segments}], spec, move |mut call| {{
let service = service.clone();
Box::pin(async move {{
let mut request = <{input}>::default();
{reads}let request = call.request(request)?;
let reply = call.bounded(service.{function}(request)).await?;
{answer}
}})
}});
}}
",
        http = rule.method,
        verb = rule.verb,
        takes_body = rule.takes_body,
        streams = method.is_server_streaming(),
        rpc = format!("{}/{}", service.full_name(), method.name()),
        input = names::message(&method.input()),
        function = ident(method.name()),
    )
}

fn has(message: &MessageDescriptor, field: &str, kind: &Kind) -> bool {
    message.get_field_by_name(field).is_some_and(|f| f.kind() == *kind && !f.is_list() && !f.supports_presence())
}

/// The rest of a closure that finds the number of a stream's event: `|event| …`.
fn number(output: &MessageDescriptor) -> String {
    let numbered = output.fields().find(|field| {
        let Kind::Message(inner) = field.kind() else { return false };
        !field.is_list() && field.containing_oneof().is_none() && has(&inner, "number", &Kind::Int64)
    });
    let output = names::message(output);
    match numbered {
        Some(field) => {
            format!("message: &{output}| message.{}.as_ref().map(|event| event.number)", ident(field.name()))
        }
        None => format!("_: &{output}| None"),
    }
}
