//! HTTP/JSON over the same services: what only shows where both meet.

use crate::harness::*;

#[tokio::test]
async fn the_same_start_by_grpc_and_by_http_is_one_execution() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    let body = "{\"id\":\"one\",\"workflow\":\"echo\",\"input\":{\"n\":9007199254740993},\"requestId\":\"r\"}";
    let first = http(server.address, "POST", "/v1/executions", body).await;
    assert_eq!(first.status, 200, "{first:?}");
    let again = http(server.address, "POST", "/v1/executions", body).await;
    assert_eq!(again.json(), first.json());
    let by_grpc = orbit::proto::admin::StartExecutionRequest {
        request_id: "r".to_owned(),
        ..start_request("echo", "one", "{ \"n\": 9007199254740993 }")
    };
    let by_grpc = server.admin.start_execution(by_grpc).await.unwrap().into_inner();
    assert_eq!(first.json()["uid"], by_grpc.uid.as_str());

    let other = body.replace("9007199254740993", "2").replace("\"r\"", "\"r2\"");
    let refused = http(server.address, "POST", "/v1/executions", &other).await;
    assert_eq!((refused.status, refused.reason()), (409, "EXECUTION_ALREADY_EXISTS".to_owned()));

    // Every digit survives the way through a step and back.
    let session = server.register("echo@1").await;
    let task = server.take(&session).await;
    server.complete(&task.task_token, text(task.input.as_ref())).await;
    let waited = http(server.address, "GET", "/v1/executions/one:wait", "").await;
    assert!(waited.body.contains("9007199254740993"), "{waited:?}");
    server.end().await;
}

#[tokio::test]
async fn lists_and_faults_have_their_http_form() {
    let server = server().await;
    let negative = http(server.address, "GET", "/v1/executions?pageSize=-1", "").await;
    assert_eq!(negative.status, 400);
    assert!(negative.body.contains("page_size"), "{negative:?}");
    for size in ["0", "99999"] {
        assert_eq!(http(server.address, "GET", &format!("/v1/executions?pageSize={size}"), "").await.status, 200);
    }
    let token = http(server.address, "GET", "/v1/executions?pageToken=AAAA", "").await;
    assert_eq!((token.status, token.reason()), (400, "PAGE_TOKEN_INVALID".to_owned()));
    let bad = "{\"id\":\"a/b\",\"input\":1,\"requestId\":\"\\u0000\"}";
    let bad = http(server.address, "POST", "/v1/executions", bad).await;
    let details = bad.json()["error"]["details"].clone();
    let violations =
        details.as_array().unwrap().iter().find_map(|detail| detail["fieldViolations"].as_array()).unwrap();
    assert_eq!((bad.status, violations.len()), (400, 3), "{bad:?}");
    let large = format!("{{\"workflow\":\"echo\",\"input\":\"{}\"}}", "a".repeat(2 << 20));
    let large = http(server.address, "POST", "/v1/executions", &large).await;
    assert_eq!((large.status, large.reason()), (413, "PAYLOAD_TOO_LARGE".to_owned()));
    server.end().await;
}

#[tokio::test]
async fn c137_ids_in_paths_reach_the_right_execution_or_none() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    for id in ["user:1", "x:cancel", "a+b", "a~b"] {
        let uid = server.start("echo", id, "1").await.uid;
        let path = format!("/v1/executions/{}", id.replace(':', "%3A").replace('+', "%2B"));
        let read = http(server.address, "GET", &path, "").await;
        assert_eq!(read.json()["execution"]["uid"], uid.as_str(), "{id}: {read:?}");
    }
    for id in ["a%2Fb", "..%2F..%2Fetc%2Fpasswd", "a%20b", "%C3%BC", "%2e%2e", "a%3Fb%23c", "a%00b"] {
        let read = http(server.address, "GET", &format!("/v1/executions/{id}"), "").await;
        assert_eq!((read.status, read.reason()), (400, "FIELD_VIOLATION".to_owned()), "{id}: {read:?}");
    }
    let signalled = http(server.address, "POST", "/v1/executions/user%3A1:cancel", "{}").await;
    assert_eq!(signalled.status, 200, "{signalled:?}");
    server.end().await;
}

#[tokio::test]
async fn c147_ids_that_look_like_paths_touch_no_file() {
    let mut server = server().await;
    server.deploy(ECHO).await;
    for id in ["../../etc/passwd", "..", ".", "/abs", "..\\", "a\0"] {
        let refused = server.admin.start_execution(start_request("echo", id, "1")).await;
        let status = assert_refused(refused, tonic::Code::InvalidArgument, "FIELD_VIOLATION");
        assert_eq!(bad_fields(&status), ["id"]);
    }
    // A name that some systems reserve is a name like any other: nothing here becomes a file.
    server.start("echo", "CON", "1").await;
    server.end().await;
}
