//! Which call a request becomes.

use super::Bench;

#[tokio::test]
async fn every_route_reaches_its_rpc_with_its_message() {
    let bench = Bench::new();
    for (method, path, body, call) in [
        (
            "POST",
            "/v1/definitions",
            r#"{"source":"a"}"#,
            r#"deploy_definition DeployDefinitionRequest { file_name: "", validate_only: false, content: Some(Source("a")) }"#,
        ),
        (
            "GET",
            "/v1/definitions/a?version=1.0.0",
            "",
            r#"get_definition GetDefinitionRequest { name: "a", version: "1.0.0" }"#,
        ),
        (
            "GET",
            "/v1/definitions?pageSize=5&page_token=t+%2B",
            "",
            r#"list_definitions ListDefinitionsRequest { page_size: 5, page_token: "t +", name: "" }"#,
        ),
        (
            "GET",
            "/v1/executions/a:wait?waitDuration=1.5s",
            "",
            r#"wait_execution WaitExecutionRequest { id: "a", uid: "", wait_duration: Some(Duration { seconds: 1, nanos: 500000000 }) }"#,
        ),
        (
            "GET",
            "/v1/executions?filter=state%20%3D%20RUNNING",
            "",
            r#"list_executions ListExecutionsRequest { page_size: 0, page_token: "", filter: "state = RUNNING" }"#,
        ),
        ("GET", "/v1/executions:count", "", "count_executions CountExecutionsRequest"),
        (
            "GET",
            "/v1/executions/a/events?uid=u",
            "",
            r#"list_events ListEventsRequest { id: "a", uid: "u", page_size: 0, page_token: "" }"#,
        ),
        (
            "POST",
            "/v1/executions/a:signal",
            r#"{"name":"go","payload":1}"#,
            r#"signal_execution SignalExecutionRequest { id: "a", uid: "", name: "go", payload: Some(Payload { content: Some(Json("1")) }), expire_time: None, request_id: "" }"#,
        ),
        (
            "POST",
            "/v1/executions/a:cancel",
            "",
            r#"cancel_execution CancelExecutionRequest { id: "a", uid: "", reason: "", request_id: "" }"#,
        ),
        (
            "POST",
            "/v1/executions/a:terminate",
            r#"{"id":"a"}"#,
            r#"terminate_execution TerminateExecutionRequest { id: "a", uid: "", reason: "", request_id: "" }"#,
        ),
        ("GET", "/v1/workers?pretty", "", r#"list_workers ListWorkersRequest { page_size: 0, page_token: "" }"#),
        ("GET", "/v1/server", "", "get_server_info GetServerInfoRequest"),
        (
            "POST",
            "/v1/sessions",
            r#"{"contracts":["a@1"]}"#,
            r#"register_worker RegisterWorkerRequest { worker_id: "", language: "", sdk: "", build: "", queues: [], contracts: ["a@1"], slots: 0, message_bytes_max: 0, previous_session_id: "" }"#,
        ),
        (
            "POST",
            "/v1/sessions/s:poll",
            r#"{"maxTasks":2}"#,
            r#"poll_tasks PollTasksRequest { session_id: "s", max_tasks: 2, wait_duration: None }"#,
        ),
        (
            "POST",
            "/v1/sessions/s:heartbeat",
            r#"{"held":[{"taskToken":"t"}]}"#,
            r#"heartbeat HeartbeatRequest { session_id: "s", held: [HeldTask { task_token: "t", progress: None, beat: false }] }"#,
        ),
        ("POST", "/v1/sessions/s:unregister", "{}", r#"unregister_worker UnregisterWorkerRequest { session_id: "s" }"#),
        (
            "POST",
            "/v1/tasks/t:complete",
            r#"{"output":null}"#,
            r#"complete_task CompleteTaskRequest { task_token: "t", output: Some(Payload { content: Some(Json("null")) }) }"#,
        ),
        (
            "POST",
            "/v1/tasks/t:fail",
            r#"{"retryable":false}"#,
            r#"fail_task FailTaskRequest { task_token: "t", failure: None, retryable: Some(false), retry_after: None }"#,
        ),
        ("POST", "/v1/tasks/t:release", "{}", r#"release_task ReleaseTaskRequest { task_token: "t" }"#),
    ] {
        let answer = bench.send(method, path, &[("content-type", "application/json; charset=UTF-8")], body).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
        assert_eq!(bench.fake.calls(), [call], "{method} {path}");
    }
}

#[tokio::test]
async fn an_id_comes_through_as_it_is_or_not_at_all() {
    let bench = Bench::new();
    let ids = ["a/b", "a%2Fb", "user:1", "x:cancel", "a b", "ü", "..", "+", "a?b#c", "order:42"];
    for id in ids {
        let encoded: String = id
            .bytes()
            .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
            .collect();
        let answer = bench.get(&format!("/v1/executions/{encoded}")).await;
        assert_eq!(answer.json()["execution"]["id"], id);
        bench.fake.calls();
        bench.post(&format!("/v1/executions/{encoded}:signal"), "{}").await;
        let calls = bench.fake.calls();
        assert!(
            calls.len() == 1 && calls[0].starts_with(&format!("signal_execution SignalExecutionRequest {{ id: {id:?}")),
            "{calls:?}"
        );
    }
}

#[tokio::test]
async fn a_colon_is_a_verb_only_where_there_is_such_a_verb() {
    let bench = Bench::new();
    for (path, id) in [
        ("order:42", "order:42"),
        ("order%3A42", "order:42"),
        ("x%3Acancel", "x:cancel"),
        ("a:b:c", "a:b:c"),
        ("+", "+"),
        ("..", ".."),
        ("~", "~"),
        ("a%252Fb", "a%2Fb"),
    ] {
        assert_eq!(bench.get(&format!("/v1/executions/{path}")).await.json()["execution"]["id"], id, "{path}");
    }
    bench.fake.calls();
    for (path, id) in [("order:42:cancel", "order:42"), ("a:cancel:cancel", "a:cancel"), ("a%3Ab:%63ancel", "a:b")] {
        bench.post(&format!("/v1/executions/{path}"), "{}").await;
        assert!(
            bench.fake.calls()[0].starts_with(&format!("cancel_execution CancelExecutionRequest {{ id: {id:?}")),
            "{path}"
        );
    }
    // The same path with another method is never another resource.
    let answer = bench.get("/v1/executions/x:cancel").await;
    assert_eq!(answer.refusal(), (405, "METHOD_NOT_ALLOWED".to_owned()));
    assert_eq!(answer.header("allow"), "POST, OPTIONS");
    assert!(bench.fake.calls().is_empty());
}

#[tokio::test]
async fn an_empty_or_garbled_id_is_refused_and_calls_nothing() {
    let bench = Bench::new();
    for path in ["/v1/executions/", "/v1/executions//events", "/v1/executions/?uid=a"] {
        assert_eq!(bench.get(path).await.violations(), ["id: must not be empty in the path"], "{path}");
    }
    assert_eq!(bench.post("/v1/executions/:cancel", "{}").await.violations(), ["id: must not be empty in the path"]);
    for path in ["/v1/executions/%", "/v1/executions/%2", "/v1/executions/%zz", "/v1/executions/%FF"] {
        assert_eq!(bench.get(path).await.violations(), ["path: not percent-encoded UTF-8"], "{path}");
    }
    let contradiction = bench.post("/v1/executions/a:cancel", r#"{"id":"b"}"#).await;
    assert_eq!(contradiction.violations(), ["id: is \"a\" in the path and \"b\" elsewhere"]);
    assert!(bench.fake.calls().is_empty());
}

#[tokio::test]
async fn head_is_get_without_a_body_and_options_tells_the_methods() {
    let bench = Bench::new();
    let (get, head) = (bench.get("/v1/executions/a").await, bench.send("HEAD", "/v1/executions/a", &[], "").await);
    assert_eq!((head.status, head.header("content-length")), (get.status, get.body.len().to_string().as_str()));
    assert!(head.body.is_empty());
    assert_eq!(bench.send("HEAD", "/v1/executions/missing", &[], "").await.status, 404);
    let options = bench.send("OPTIONS", "/v1/executions", &[], "").await;
    assert_eq!((options.status.as_u16(), options.header("allow")), (204, "POST, GET, HEAD, OPTIONS"));
    assert_eq!(bench.send("OPTIONS", "/v1/nothing", &[], "").await.status, 404);
}

#[tokio::test]
async fn a_payload_comes_back_byte_for_byte() {
    let bench = Bench::new();
    let payload =
        "{\"n\":12345678901234567890123,\"f\":1.00000000000000000001,\"z\":1e400,\n  \"i\" : 9007199254740993}";
    bench.post("/v1/executions", &format!("{{\"id\":\"a\",\"input\":{payload}}}")).await;
    let answer = bench.get("/v1/executions/a").await;
    assert!(answer.text().contains(&format!("\"input\":{payload},")), "{}", answer.text());
    let pretty = bench.get("/v1/executions/a?pretty=true").await;
    assert!(pretty.text().contains("\n      \"n\": 12345678901234567890123,\n"), "{}", pretty.text());
    bench.post("/v1/executions", r#"{"input":null}"#).await;
    assert!(bench.get("/v1/executions/a").await.text().contains("\"input\":null"));
    bench.post("/v1/executions", "{}").await;
    assert!(!bench.get("/v1/executions/a").await.text().contains("input"));
}

#[tokio::test]
async fn only_known_headers_become_metadata() {
    let bench = Bench::new();
    let headers = [
        ("content-type", "application/json"),
        ("authorization", "Bearer k"),
        ("traceparent", "00-1-2-01"),
        ("x-request-id", "r"),
        ("cookie", "secret"),
        ("user-agent", "curl"),
        ("request-timeout", "5"),
        ("idempotency-key", "\"key-1\""),
    ];
    let answer = bench.send("POST", "/v1/executions", &headers, "{}").await;
    assert_eq!(answer.header("x-request-id"), "r1");
    assert!(!answer.headers.contains_key("grpc-inner"));
    assert!(bench.fake.calls()[0].contains("request_id: \"key-1\""));
    let metadata = bench.fake.metadata().into_headers();
    let mut names: Vec<_> = metadata.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["authorization", "grpc-timeout", "idempotency-key", "traceparent", "x-request-id"]);
    assert_eq!(metadata["grpc-timeout"], "5000m");
    // What the message says itself counts; a call that has no such field ignores the header.
    bench.send("POST", "/v1/executions", &headers, r#"{"requestId":"own"}"#).await;
    assert!(bench.fake.calls()[0].contains("request_id: \"own\""));
    assert_eq!(bench.send("POST", "/v1/tasks/t:release", &headers, "").await.status, 200);
}
