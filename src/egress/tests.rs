//! Requests against servers of the test's own, which answer word for word what they are told.

use super::{Client, Defaults, Fault, Request, client::Response, connect::Resolver, of_fault, of_response, tls::Tls};
use crate::config::Http;
use crate::domain::{Payload, Timestamp};
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

mod answers;
mod encrypted;
mod requests;
mod rules;

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// A server that gives one answer to each connection, in order, and keeps what it was asked.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: JoinHandle<()>,
}

impl Server {
    async fn start(answers: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let answers: Vec<Vec<u8>> = answers.into_iter().collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let keep = asked.clone();
        let serving = tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                keep.lock().unwrap().push(request);
                // A client that has read enough may be gone.
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { address, asked, _serving: serving }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn read_request(stream: &mut tokio::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let mut part = [0; 4096];
        match stream.read(&mut part).await.unwrap() {
            0 => return text,
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

/// An answer with a body whose length is told.
fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn redirect(status: u16, location: &str) -> Vec<u8> {
    answer(&format!("{status} Redirect"), &format!("location: {location}\r\n"), "")
}

/// A resolver that knows what the test says, and nothing else.
#[derive(Default)]
struct Names {
    known: BTreeMap<&'static str, Vec<Vec<&'static str>>>,
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl Resolver for Names {
    /// The first answers first; the last one for ever.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let answers = self.known.get(name).ok_or_else(|| io::Error::other("no such host"))?;
        let answer = answers.get(asked).or(answers.last()).unwrap();
        Ok(answer.iter().map(|address| address.parse().unwrap()).collect())
    }
}

fn rules(allow: &[&str], private: &[&str]) -> Http {
    Http {
        allow: allow.iter().map(|rule| rule.parse().unwrap()).collect(),
        allow_private: private.iter().map(|network| network.parse().unwrap()).collect(),
        ..Http::default()
    }
}

/// A client that may call any host on the servers' ports, here.
fn client(servers: &[&Server]) -> Client {
    let allow: Vec<String> = servers.iter().map(|server| format!("*:{}", server.address.port())).collect();
    let allow: Vec<&str> = allow.iter().map(String::as_str).collect();
    with_resolver(rules(&allow, &["127.0.0.0/8"]), Arc::new(names(&[("server.test", &[&["127.0.0.1"]])])))
}

fn with_resolver(rules: Http, resolver: Arc<dyn Resolver>) -> Client {
    Client::with(rules, resolver, Tls::trusting(rustls::RootCertStore::empty()))
}

fn names(known: &[(&'static str, &[&[&'static str]])]) -> Names {
    let known = known.iter().map(|(name, answers)| (*name, answers.iter().map(|answer| answer.to_vec()).collect()));
    Names { known: known.collect(), asked: AtomicUsize::new(0) }
}

fn parse(input: &str) -> Result<Request, Fault> {
    let defaults = Defaults { idempotency_key: KEY, trace_parent: "00-1-2-01" };
    Request::parse(&Payload::from_json(input), defaults)
}

/// What a client makes of a request.
async fn call(client: &Client, input: &str) -> Result<Response, Fault> {
    let called = client.call(parse(input).unwrap());
    tokio::time::timeout(Duration::from_secs(20), called).await.expect("a call ends")
}

async fn get(client: &Client, url: &str) -> Result<Response, Fault> {
    call(client, &format!(r#"{{"url": "{url}"}}"#)).await
}

/// The output of a step whose server answers so.
async fn output(bytes: Vec<u8>) -> String {
    let server = Server::start([bytes]).await;
    let response = get(&client(&[&server]), &server.url("/")).await.unwrap();
    of_response(&response, WALL).unwrap().as_str().to_owned()
}

/// 1994-11-06T08:49:37Z.
const WALL: Timestamp = Timestamp::from_micros(784_111_777_000_000);
