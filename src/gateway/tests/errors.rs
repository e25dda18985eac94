//! What a caller learns when a call is refused.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;

use super::Bench;

#[tokio::test]
async fn an_error_of_the_service_comes_in_the_envelope_with_all_its_details() {
    let answer = Bench::new().get("/v1/executions/missing").await;
    let expected = json!({"error": {
        "code": 404,
        "status": "NOT_FOUND",
        "message": "asked for missing",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "EXECUTION_NOT_FOUND",
                "domain": "orbit",
                "metadata": {"id": "missing"},
            },
            {
                "@type": "type.googleapis.com/google.rpc.ResourceInfo",
                "resourceType": "execution",
                "resourceName": "missing",
                "owner": "",
                "description": "no such execution",
            },
        ],
    }});
    assert_eq!(answer.json(), expected);
    assert!(answer.text().starts_with(r#"{"error":{"code":404,"status":"NOT_FOUND","message":"#));
}

#[tokio::test]
async fn codes_become_http_statuses_and_pauses_become_retry_after() {
    let bench = Bench::new();
    for (id, status, reason) in [
        ("closed", 400, "EXECUTION_CLOSED"),
        ("draining", 503, "SERVER_DRAINING"),
        ("overloaded", 429, "OVERLOADED"),
        ("large", 413, "PAYLOAD_TOO_LARGE"),
        ("stranger", 401, "CREDENTIALS_MISSING"),
    ] {
        assert_eq!(bench.get(&format!("/v1/executions/{id}")).await.refusal(), (status, reason.to_owned()));
    }
    assert_eq!(bench.get("/v1/executions/draining").await.header("retry-after"), "2");
    assert_eq!(bench.get("/v1/executions/overloaded").await.header("retry-after"), "3");
    assert_eq!(bench.get("/v1/executions/stranger").await.header("www-authenticate"), "Bearer");
    let draining = bench.get("/v1/executions/draining").await.json();
    let retry = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.500s"});
    assert!(draining["error"]["details"].as_array().unwrap().contains(&retry), "{draining}");
}

#[tokio::test]
async fn all_bad_fields_come_in_one_reply() {
    let bench = Bench::new();
    let body = r#"{"id":1,"workflw":"a","labels":{"a":1},"input":{"jiter":1}}"#;
    let answer = bench.post("/v1/executions?page_size=1&pretty=maybe", body).await;
    let expected = [
        "pretty: expected true or false",
        "page_size: no such parameter; the fields of this call go into the body",
        "id: expected a string, not a number",
        "workflw: no such field; did you mean \"workflow\"?",
        "labels[\"a\"]: expected a string, not a number",
    ];
    assert_eq!(answer.violations(), expected);
    assert_eq!(answer.json()["error"]["message"], "pretty: expected true or false (and 4 more)");
    let deep = bench.post("/v1/definitions", r#"{"definition":{"steps":[{"retry":{"jiter":1}}]}}"#).await;
    assert_eq!(deep.violations(), ["definition.steps[0].retry.jiter: no such field; did you mean \"jitter\"?"]);
    assert!(bench.fake.calls().is_empty());
}

#[tokio::test]
async fn parameters_are_refused_by_name() {
    let bench = Bench::new();
    for (query, violation) in [
        ("pagesize=1&x=2", "x: no such field"),
        ("pageSiz=1", "pageSiz: no such field; did you mean \"pageSize\"?"),
        ("pageSize=1&page_size=2", "page_size: given twice"),
        ("pageSize=many", "pageSize: expected an integer from -2147483648 to 2147483647, not \"many\""),
        ("filter=%", "filter: not percent-encoded UTF-8"),
    ] {
        let violations = bench.get(&format!("/v1/executions?{query}")).await.violations();
        assert!(violations.contains(&violation.to_owned()), "{query}: {violations:?}");
    }
    let body = bench.send("GET", "/v1/executions", &[], "{}").await.violations();
    assert_eq!(body, ["body: this call takes none; its fields are query parameters"]);
    let headers = [("request-timeout", "soon"), ("grpc-timeout", "5")];
    assert_eq!(bench.send("GET", "/v1/executions", &headers, "").await.violations().len(), 2);
    let contradiction = bench.get("/v1/executions/a?id=b").await.violations();
    assert_eq!(contradiction, ["id: is \"a\" in the path and \"b\" elsewhere"]);
}

#[tokio::test]
async fn an_unknown_route_or_method_is_told_in_the_same_envelope() {
    let bench = Bench::new();
    for path in ["/", "/v1", "/v1/nothing", "/v1/executions/a/events/b", "/v2/executions", "/v1/executions:nope"] {
        assert_eq!(bench.get(path).await.refusal(), (404, "ROUTE_NOT_FOUND".to_owned()), "{path}");
    }
    let answer = bench.send("DELETE", "/v1/executions", &[], "").await;
    assert_eq!(answer.refusal(), (405, "METHOD_NOT_ALLOWED".to_owned()));
    assert_eq!(answer.header("allow"), "POST, GET, HEAD, OPTIONS");
    assert_eq!(answer.json()["error"]["status"], "UNIMPLEMENTED");
}

#[tokio::test]
async fn a_body_must_be_json_in_utf8() {
    let bench = Bench::new();
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", ""] {
        let answer = bench.send("POST", "/v1/executions", &[("content-type", content_type)], "{}").await;
        assert_eq!(answer.refusal(), (415, "MEDIA_TYPE_UNSUPPORTED".to_owned()), "{content_type}");
    }
    assert_eq!(bench.send("POST", "/v1/executions", &[], "{}").await.status, 415);
    assert_eq!(bench.send("POST", "/v1/executions", &[("content-type", "text/plain")], "").await.status, 200);
    let broken = bench.post("/v1/executions", "{\"id\": ").await.violations();
    assert!(broken[0].starts_with("body: not a JSON document: EOF"), "{broken:?}");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_the_limit() {
    let bench = Bench::new();
    let large = format!("{{\"id\":\"{}\"}}", "a".repeat(64 * 1024));
    let pieces = stream::iter((0..1000).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 1024]))));
    let length = large.len().to_string();
    let announced = [("content-type", "application/json"), ("content-length", length.as_str())];
    for (headers, body) in [
        (&announced[..], Body::from(large.clone())),
        (&announced[..1], Body::from(large.clone())),
        (&announced[..1], Body::from_stream(pieces)),
    ] {
        let answer = bench.send("POST", "/v1/executions", headers, body).await;
        assert_eq!(answer.refusal(), (413, "PAYLOAD_TOO_LARGE".to_owned()));
        assert_eq!(answer.json()["error"]["details"][0]["metadata"]["limit"], "65536");
    }
    assert!(bench.fake.calls().is_empty());
    assert_eq!(bench.post("/v1/executions", &large[..64 * 1024]).await.status, 400, "at the limit it is read");
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_when_its_caller_no_longer_waits() {
    let bench = Bench::new();
    for (headers, time) in [
        (&[("request-timeout", "5")][..], 5_000),
        (&[("grpc-timeout", "100m")][..], 100),
        (&[("grpc-timeout", "1H")][..], 60_000),
        (&[][..], 60_000),
    ] {
        let started = tokio::time::Instant::now();
        let answer = bench.send("GET", "/v1/executions/slow", headers, "").await;
        assert_eq!(answer.refusal(), (504, "DEADLINE_EXCEEDED".to_owned()));
        let early = time - started.elapsed().as_millis();
        assert!((0..10).contains(&early), "{headers:?}: {early}");
    }
}
