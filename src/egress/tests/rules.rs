//! Where requests may go: C153, hosts, addresses, redirects.

use super::*;

async fn forbidden(client: &Client, url: &str) -> String {
    match get(client, url).await {
        Err(Fault::Forbidden(message)) => message,
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test]
async fn c153_an_address_inside_is_refused_however_it_is_written() {
    let client = with_resolver(
        rules(&["*", "*:8080"], &[]),
        Arc::new(names(&[
            ("7f000001.nip.test", &[&["127.0.0.1"]]),
            ("mapped.test", &[&["::ffff:10.0.0.1"]]),
            ("both.test", &[&["::1", "169.254.169.254"]]),
        ])),
    );
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.0.0.1:8080/",
        "http://0177.0.0.1/",
        "http://%31%32%37.0.0.1/",
        "http://１２７.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://0.0.0.0/",
        "https://10.0.0.1/",
        "http://7f000001.nip.test/",
        "http://mapped.test/",
        "http://both.test/",
    ] {
        let message = forbidden(&client, url).await;
        assert!(message.contains("--http-allow-private"), "{url}: {message}");
    }
}

#[tokio::test]
async fn c153_the_systems_own_names_for_this_machine_are_refused_too() {
    let message = forbidden(&Client::new(rules(&["*"], &[])), "http://localhost/").await;
    assert!(message.contains("loopback"), "{message}");
}

#[tokio::test]
async fn c153_only_http_and_https_without_a_user_are_called() {
    let client = with_resolver(rules(&["*", "*:70"], &["0.0.0.0/0"]), Arc::new(Names::default()));
    for url in ["file:///etc/passwd", "gopher://127.0.0.1:70/", "ftp://a.test/", "data:text/plain,a", "javascript:1"] {
        forbidden(&client, url).await;
    }
    for url in ["http://user@a.test/", "http://:word@a.test/", "http://user:word@127.0.0.1/"] {
        let message = forbidden(&client, url).await;
        assert!(message.contains("authorization") && !message.contains("word@"), "{message}");
    }
}

#[tokio::test]
async fn c153_the_connection_goes_to_the_address_that_was_judged() {
    let server = Server::start([answer("200 OK", "", "")]).await;
    // Whoever asked again would get an address where nobody is.
    let changing = names(&[("a.test", &[&["127.0.0.1"], &["127.0.0.99"]])]);
    let port = server.address.port();
    let changing = Arc::new(changing);
    let client = with_resolver(rules(&[&format!("a.test:{port}")], &["127.0.0.1/32"]), changing.clone());
    get(&client, &format!("http://a.test:{port}/")).await.unwrap();
    assert_eq!(changing.asked.load(Ordering::Relaxed), 1);
    assert!(server.asked()[0].contains(&format!("\r\nhost: a.test:{port}\r\n")));
}

#[tokio::test]
async fn of_several_addresses_only_those_that_are_allowed_are_called() {
    let server = Server::start([answer("200 OK", "", "")]).await;
    let port = server.address.port();
    let resolver = Arc::new(names(&[("a.test", &[&["10.0.0.1", "127.0.0.1"]])]));
    let client = with_resolver(rules(&[&format!("a.test:{port}")], &["127.0.0.1/32"]), resolver);
    assert_eq!(get(&client, &format!("http://a.test:{port}/")).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_host_that_is_not_named_is_refused_before_it_is_looked_up() {
    let resolver = Arc::new(names(&[("a.test", &[&["127.0.0.1"]])]));
    let client = with_resolver(rules(&["b.test"], &["127.0.0.0/8"]), resolver.clone());
    for url in ["http://a.test/", "http://b.test:8080/", "http://b.test.a.test/", "http://b.test@a.test/"] {
        forbidden(&client, url).await;
    }
    assert_eq!(resolver.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn c153_a_redirect_to_a_forbidden_place_is_refused() {
    for (location, why) in [
        ("http://169.254.169.254/latest", "not one of the hosts"),
        ("http://evil.test/", "not one of the hosts"),
        ("file:///etc/passwd", "only http and https"),
        ("//user:word@server.test/", "authorization"),
    ] {
        let server = Server::start([redirect(302, location)]).await;
        let message = forbidden(&client(&[&server]), &server.url("/")).await;
        assert!(message.contains(why), "{location}: {message}");
    }
    // The name is allowed, and the address is not.
    let server = Server::start([redirect(302, "http://inside.test/")]).await;
    let port = server.address.port();
    let resolver = Arc::new(names(&[("inside.test", &[&["10.0.0.1"]])]));
    let client = with_resolver(rules(&["*", &format!("*:{port}")], &["127.0.0.1/32"]), resolver);
    assert!(forbidden(&client, &server.url("/")).await.contains("private"));
}

#[tokio::test]
async fn five_redirects_are_followed_and_a_sixth_is_not() {
    let server = Server::start([
        redirect(301, "/1"),
        redirect(302, "2"),
        redirect(303, "/3?q"),
        redirect(307, "/4"),
        redirect(308, "/5"),
        answer("200 OK", "", "done"),
    ])
    .await;
    let response = get(&client(&[&server]), &server.url("/0")).await.unwrap();
    assert_eq!((response.status, &response.body[..]), (200, &b"done"[..]));
    let paths: Vec<String> = server.asked().iter().map(|asked| asked.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!(paths, ["/0", "/1", "/2", "/3?q", "/4", "/5"]);

    let server = Server::start((0..7).map(|_| redirect(302, "/"))).await;
    let response = get(&client(&[&server]), &server.url("/")).await.unwrap();
    assert_eq!((response.status, server.asked().len()), (302, 6));
    let failed = of_response(&response, WALL).unwrap_err();
    assert_eq!((&*failed.failure.code, failed.retryable), ("HTTP_302", false));
}

#[tokio::test]
async fn a_post_is_repeated_only_where_the_redirect_says_so() {
    for (status, hops) in [(301, 1), (302, 1), (303, 1), (307, 2), (308, 2)] {
        let server = Server::start([redirect(status, "/next"), answer("200 OK", "", "")]).await;
        let input = format!(r#"{{"url": "{}", "body": {{"a": 1}}}}"#, server.url("/"));
        let response = call(&client(&[&server]), &input).await.unwrap();
        let asked = server.asked();
        assert_eq!((response.status == 200, asked.len()), (hops == 2, hops), "{status}");
        assert!(asked.iter().all(|asked| asked.starts_with("POST /") && asked.ends_with("{\"a\": 1}")), "{asked:?}");
    }
}

#[tokio::test]
async fn headers_that_may_be_credentials_stay_with_their_origin() {
    let other = Server::start([answer("200 OK", "", "")]).await;
    let location = other.url("/there");
    let first = Server::start([redirect(307, "/here"), redirect(307, &location)]).await;
    let headers = r#"{"Authorization": "Bearer s", "cookie": "s", "x-api-key": "s", "accept": "text/csv"}"#;
    let input = format!(r#"{{"url": "{}", "headers": {headers}}}"#, first.url("/"));
    call(&client(&[&first, &other]), &input).await.unwrap();
    for name in ["authorization: Bearer s", "cookie: s", "x-api-key: s"] {
        assert!(first.asked()[1].contains(name), "{name} goes to the same origin");
        assert!(!other.asked()[0].contains(name), "{name} goes nowhere else");
    }
    let kept = &other.asked()[0];
    assert!(kept.contains("accept: text/csv") && kept.contains(KEY) && kept.contains("traceparent"), "{kept}");
}
