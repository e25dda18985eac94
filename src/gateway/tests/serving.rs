//! gRPC and HTTP/JSON on one real port.

use std::sync::Arc;

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tonic::{Code, service::Routes};
use tonic_types::StatusExt as _;

use super::fake::Fake;
use crate::{
    gateway::{Gateway, Limits, Request},
    proto::admin::{
        GetExecutionRequest, admin_service_client::AdminServiceClient, admin_service_server::AdminServiceServer,
    },
};

/// Serves the admin service by gRPC and everything by HTTP; returns the address.
async fn serve() -> String {
    let fake = Arc::new(Fake::default());
    let gateway = Gateway::new(&fake, &fake, &fake, Limits::default());
    let app = Routes::new(AdminServiceServer::from_arc(fake)).into_axum_router().fallback(move |request: Request| {
        let gateway = gateway.clone();
        async move { gateway.handle(request).await }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // As the real server does: tonic's own answers late calls in gRPC's form, should its timer be the first.
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(app.clone());
            let builder = Builder::new(TokioExecutor::new());
            tokio::spawn(async move { builder.serve_connection(TokioIo::new(stream), service).await });
        }
    });
    address
}

/// Sends text over HTTP/1.1 and reads until the server closes.
async fn exchange(address: &str, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{head}\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn both_forms_of_a_call_get_the_same_answer() {
    let address = serve().await;
    let mut client = AdminServiceClient::connect(format!("http://{address}")).await.unwrap();
    let request = GetExecutionRequest { id: "order:42".to_owned(), ..Default::default() };
    let execution = client.get_execution(request).await.unwrap().into_inner().execution.unwrap();
    let answer = exchange(&address, "GET /v1/executions/order:42 HTTP/1.1", b"").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(&format!("\"id\":\"{}\"", execution.id)));
    let options = exchange(&address, "OPTIONS /v1/executions/a HTTP/1.1", b"").await;
    assert!(
        options.starts_with("HTTP/1.1 204") && options.contains("allow: GET, DELETE, HEAD, OPTIONS\r\n"),
        "{options}"
    );
    let head = exchange(&address, "HEAD /v1/executions/a HTTP/1.1", b"").await;
    assert!(head.contains("content-length: ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn an_unknown_rpc_is_refused_in_grpcs_own_form() {
    let address = serve().await;
    let channel =
        tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    // The worker service is not served here, so its names are unknown.
    let mut client = crate::proto::worker::worker_service_client::WorkerServiceClient::new(channel);
    let status = client.heartbeat(crate::proto::worker::HeartbeatRequest::default()).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unimplemented, "no rpc /orbit.worker.v1.WorkerService/Heartbeat")
    );
    assert_eq!(status.get_details_error_info().unwrap().reason, "METHOD_UNKNOWN");
}

#[tokio::test]
async fn a_client_that_sends_all_of_a_large_body_first_still_reads_the_refusal() {
    let address = serve().await;
    let body = vec![b' '; 5 * 1024 * 1024];
    let head =
        format!("POST /v1/executions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    let answer = exchange(&address, &head, &body).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("\"limit\":\"4194304\"") && answer.contains("\"actual\":\"5242880\""), "{answer}");
}

#[tokio::test]
async fn a_stream_over_http_1_is_chunked_and_complete() {
    let address = serve().await;
    let answer = exchange(&address, "GET /v1/executions/a/events:watch HTTP/1.1", b"").await;
    assert!(answer.contains("transfer-encoding: chunked\r\n") && answer.contains("{\"end\":{}}\n"), "{answer}");
}

#[tokio::test]
async fn a_late_call_is_answered_in_http_whichever_header_set_the_time() {
    let address = serve().await;
    for header in ["request-timeout: 0.05", "grpc-timeout: 50m"] {
        for _ in 0..20 {
            let answer = exchange(&address, &format!("GET /v1/executions/slow HTTP/1.1\r\n{header}"), b"").await;
            assert!(answer.starts_with("HTTP/1.1 504 "), "{header}: {answer}");
        }
    }
}
