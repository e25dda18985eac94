//! What a step may ask for, and what goes over the wire.

use super::*;

fn refused(input: &str) -> String {
    match parse(input) {
        Err(Fault::Invalid(message)) => message,
        other => panic!("{input}: {other:?}"),
    }
}

#[tokio::test]
async fn a_request_without_a_body_is_a_get_with_the_servers_headers() {
    let server = Server::start([answer("200 OK", "", "")]).await;
    get(&client(&[&server]), &server.url("/a/b?c=d%20e#fragment")).await.unwrap();
    let asked = server.asked().remove(0);
    assert!(asked.starts_with("GET /a/b?c=d%20e HTTP/1.1\r\n"), "{asked}");
    for line in [
        &format!("host: {}", server.address),
        &format!("idempotency-key: {KEY}"),
        "traceparent: 00-1-2-01",
        concat!("user-agent: orbit/", env!("CARGO_PKG_VERSION")),
        "accept: application/json, */*;q=0.5",
    ] {
        assert!(asked.contains(&format!("\r\n{line}\r\n")), "{line} in {asked}");
    }
}

#[tokio::test]
async fn a_document_is_sent_as_json_with_every_digit() {
    let server = Server::start([answer("200 OK", "", "")]).await;
    let input = format!(r#"{{"url": "{}", "body": {{"n": 12345678901234567890, "d": 1.50}}}}"#, server.url("/"));
    call(&client(&[&server]), &input).await.unwrap();
    let asked = server.asked().remove(0);
    assert!(asked.starts_with("POST / HTTP/1.1\r\n") && asked.contains("\r\ncontent-type: application/json\r\n"));
    assert!(asked.ends_with("\r\n\r\n{\"n\": 12345678901234567890, \"d\": 1.50}"), "{asked}");
}

#[tokio::test]
async fn a_text_with_a_type_of_its_own_is_sent_as_it_is_and_headers_of_the_step_count() {
    let server = Server::start([answer("200 OK", "", "")]).await;
    let input = format!(
        r#"{{"method": "put", "url": "{}", "headers": {{"Content-Type": "text/plain", "Idempotency-Key": "mine",
            "x-count": 7, "x-none": null, "X-Empty": ""}}, "body": "a\nb"}}"#,
        server.url("/")
    );
    call(&client(&[&server]), &input).await.unwrap();
    let asked = server.asked().remove(0);
    assert!(asked.starts_with("PUT / HTTP/1.1\r\n") && asked.ends_with("\r\n\r\na\nb"), "{asked}");
    assert!(asked.contains("\r\nidempotency-key: mine\r\n") && asked.contains("\r\nx-count: 7\r\n"), "{asked}");
    assert!(!asked.contains("x-none") && asked.contains("\r\nx-empty: \r\n"), "{asked}");
}

#[test]
fn what_is_no_request_is_refused_without_its_values() {
    for (input, told) in [
        ("[]", "not an object"),
        ("{}", "`url` is required"),
        (r#"{"url": 5}"#, "`url` is not a text"),
        (r#"{"url": "/path"}"#, "not an address"),
        (r#"{"url": "http://"}"#, "not an address"),
        (r#"{"url": "http://a/\n"}"#, "control character"),
        (r#"{"url": "http://a", "method": "CONNECT"}"#, "`method`"),
        (r#"{"url": "http://a", "method": 1}"#, "`method`"),
        (r#"{"url": "http://a", "method": "GET", "body": {}}"#, "no body"),
        (r#"{"url": "http://a", "headers": []}"#, "`headers`"),
        (r#"{"url": "http://a", "headers": {"x": ["SECRET"]}}"#, "header `x`"),
        (r#"{"url": "http://a", "headers": {"x y": "SECRET"}}"#, "`x y` is not a header name"),
        (r#"{"url": "http://a", "headers": {"x": "SECRET\r\nHost: b"}}"#, "line break"),
        (r#"{"url": "http://a", "headers": {"Host": "b"}}"#, "`host`"),
        (r#"{"url": "http://a", "headers": {"transfer-encoding": "chunked"}}"#, "`transfer-encoding`"),
        (
            r#"{"url": "http://a", "headers": {"content-type": "text/plain"}, "body": {"a": "SECRET"}}"#,
            "must be a text",
        ),
    ] {
        let message = refused(input);
        assert!(message.contains(told) && !message.contains("SECRET"), "{input}: {message}");
    }
    let long = format!(r#"{{"url": "http://a/{}"}}"#, "a".repeat(9_000));
    assert!(refused(&long).contains("bytes"));
    let many: Vec<String> = (0..101).map(|index| format!(r#""x-{index}": "a""#)).collect();
    assert!(refused(&format!(r#"{{"url": "http://a", "headers": {{{}}}}}"#, many.join(","))).contains("entries"));
}
