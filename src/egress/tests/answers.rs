//! What becomes of a response: outputs, failures, limits.

use super::*;

const JSON: &str = "content-type: application/json; charset=utf-8\r\n";

async fn failed(bytes: Vec<u8>) -> Box<super::super::Failed> {
    let server = Server::start([bytes]).await;
    let response = get(&client(&[&server]), &server.url("/")).await.unwrap();
    of_response(&response, WALL).unwrap_err()
}

fn body(output: &str) -> &str {
    output.split_once("\"body\":").unwrap().1.strip_suffix('}').unwrap()
}

#[tokio::test]
async fn json_is_kept_with_every_digit_and_text_as_text() {
    let document = r#"{"n": 12345678901234567890, "d": 1.50, "a": [null]}"#;
    assert_eq!(
        output(answer("201 Created", &format!("{JSON}X-A: 1\r\nx-a: 2\r\n"), document)).await,
        format!(
            "{{\"status\":201,\"headers\":{{\"content-length\":\"{}\",\"content-type\":\"application/json; \
             charset=utf-8\",\"x-a\":\"1, 2\"}},\"body\":{document}}}",
            document.len()
        )
    );
    assert_eq!(body(&output(answer("200 OK", "content-type: application/problem+json\r\n", "1")).await), "1");
    assert_eq!(body(&output(answer("200 OK", "content-type: text/plain\r\n", "{\"a\"\n}")).await), r#""{\"a\"\n}""#);
    assert_eq!(body(&output(answer("200 OK", "", "é")).await), "\"é\"");
}

#[tokio::test]
async fn what_says_that_it_is_json_and_is_not_stays_text() {
    for text in ["{", "1 2", "1,\"status\":500", "NaN", "\u{feff}1", "1e999"] {
        let out = output(answer("200 OK", JSON, text)).await;
        assert_eq!(serde_json::from_str::<String>(body(&out)).unwrap(), text);
    }
    // So deep that the object around it would be too deep.
    let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
    assert_eq!(body(&output(answer("200 OK", JSON, &deep)).await), format!("\"{deep}\""));
}

#[tokio::test]
async fn no_body_is_null_and_bytes_are_base64() {
    assert_eq!(body(&output(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()).await), "null");
    assert_eq!(body(&output(answer("200 OK", JSON, "")).await), "null");
    assert_eq!(body(&output(answer("200 OK", "", [0xff, 0xfe, 0])).await), r#"{"base64":"//4A"}"#);
    assert_eq!(body(&output(answer("200 OK", "", "a\0")).await), r#"{"base64":"YQA="}"#);
}

#[tokio::test]
async fn bodies_in_chunks_and_up_to_the_end_of_the_connection_are_read() {
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n".to_vec();
    assert_eq!(body(&output(chunked).await), "\"abc\"");
    assert_eq!(body(&output(b"HTTP/1.1 200 OK\r\n\r\nabc".to_vec()).await), "\"abc\"");
}

#[tokio::test]
async fn a_response_beyond_the_limit_fails_for_good() {
    let exact = vec![b'a'; 1 << 20];
    assert_eq!(body(&output(answer("200 OK", "", &exact)).await).len(), exact.len() + 2);
    let endless = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &exact, b"a"].concat();
    let head = format!("HTTP/1.1 200 OK\r\nx-a: {}\r\n\r\n", "a".repeat(70_000)).into_bytes();
    for bytes in [answer("200 OK", "", [&exact[..], b"a"].concat()), endless, head] {
        let server = Server::start([bytes]).await;
        let fault = get(&client(&[&server]), &server.url("/")).await.unwrap_err();
        assert!(matches!(fault, Fault::TooLarge(_)), "{fault:?}");
        let failed = of_fault(fault);
        assert_eq!((&*failed.failure.code, failed.retryable), ("HTTP_TOO_LARGE", false));
    }
    // A text of control characters is six times as long in JSON.
    let server = Server::start([answer("200 OK", "", vec![1; 500_000])]).await;
    let response = get(&client(&[&server]), &server.url("/")).await.unwrap();
    assert_eq!(&*of_response(&response, WALL).unwrap_err().failure.code, "HTTP_TOO_LARGE");
}

#[tokio::test]
async fn a_status_says_whether_another_attempt_may_help() {
    for status in [408, 425, 429, 500, 502, 503, 504, 507, 599] {
        let failed = failed(answer(&format!("{status} No"), "", "")).await;
        assert_eq!((&*failed.failure.code, failed.retryable), (format!("HTTP_{status}").as_str(), true));
    }
    for status in [304, 400, 401, 403, 404, 409, 410, 422, 451, 501, 505] {
        let failed = failed(answer(&format!("{status} No"), "", "")).await;
        assert_eq!((&*failed.failure.code, failed.retryable), (format!("HTTP_{status}").as_str(), false));
    }
}

#[tokio::test]
async fn a_failure_tells_what_the_other_side_said_but_no_cookies() {
    let headers = format!("{JSON}set-cookie: s\r\nx-request-id: r-1\r\n");
    let refusal = failed(answer("422 Unprocessable", &headers, r#"{"why": 9007199254740993}"#)).await;
    assert_eq!(&*refusal.failure.message, "the answer was 422 Unprocessable Entity");
    assert_eq!(
        refusal.failure.details.as_ref().unwrap().as_str(),
        "{\"status\":422,\"headers\":{\"content-type\":\"application/json; charset=utf-8\",\"x-request-id\":\"r-1\"},\
         \"body\":{\"why\": 9007199254740993}}"
    );
    // Cut to 4 KiB, and not inside a character.
    let long = failed(answer("404 No", JSON, format!("a{}", "é".repeat(100_000)))).await;
    let details = long.failure.details.unwrap();
    let text: String = serde_json::from_str(body(details.as_str())).unwrap();
    assert_eq!((text.len(), text.chars().last()), (4095, Some('é')));
    // Who promises more than comes has still said its status.
    let broken = failed(b"HTTP/1.1 500 No\r\ncontent-length: 10\r\n\r\nabc".to_vec()).await;
    assert_eq!(body(broken.failure.details.unwrap().as_str()), "\"abc\"");
}

#[tokio::test]
async fn retry_after_is_seconds_or_a_date_of_at_most_a_day() {
    for (value, seconds) in [
        ("0", Some(0)),
        ("7", Some(7)),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
        ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
        ("86401", Some(86_400)),
        ("99999999999999999999999999", Some(86_400)),
        ("Sat, 06 Nov 2094 08:50:37 GMT", Some(86_400)),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
    ] {
        let failed = failed(answer("429 Slow", &format!("retry-after: {value}\r\n"), "")).await;
        assert_eq!(failed.retry_after.map(|pause| pause.as_secs()), seconds, "{value}");
    }
    let failed = failed(answer("404 No", "retry-after: 7\r\n", "")).await;
    assert_eq!(failed.retry_after, None);
}

#[tokio::test]
async fn what_breaks_on_the_way_may_be_tried_again() {
    let unknown = get(&client(&[]), "http://unknown.test/").await;
    assert!(matches!(unknown, Err(Fault::Forbidden(_))), "no rule names the usual port");
    // A port that was free a moment ago.
    let closed =
        Server { address: Server::start([]).await.address, asked: Arc::default(), _serving: tokio::spawn(async {}) };
    let silent = Server::start([Vec::new()]).await;
    let short = Server::start([b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_vec()]).await;
    let noise = Server::start([b"220 smtp.test ESMTP\r\n".to_vec()]).await;
    let client = client(&[&closed, &silent, &short, &noise]);
    let port = closed.address.port();
    for url in [
        format!("http://unknown.test:{port}/"),
        closed.url("/"),
        silent.url("/"),
        short.url("/"),
        noise.url("/"),
        format!("https://127.0.0.1:{port}/"),
    ] {
        let fault = get(&client, &url).await.unwrap_err();
        assert!(matches!(fault, Fault::Failed(_)), "{url}: {fault:?}");
        let failed = of_fault(fault);
        assert_eq!((&*failed.failure.code, failed.retryable), ("HTTP_FAILED", true));
    }
}
