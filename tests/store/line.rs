//! A line between a store and its database that fails as a test wants: answers are lost, or everything is.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// A proxy in front of a database server.
pub(crate) struct Line {
    address: String,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    target: String,
    /// So many answers to statements that write are thrown away, and their connections cut.
    answers_to_lose: AtomicU32,
    /// Says nothing in either direction, and takes connections that it does not carry on.
    is_silent: watch::Sender<bool>,
}

impl Line {
    /// A line to the server of this address.
    pub(crate) async fn to(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = authority(url).to_owned();
        let address = url.replace(&target, &format!("127.0.0.1:{}", listener.local_addr().unwrap().port()));
        let shared =
            Arc::new(Shared { target, answers_to_lose: AtomicU32::new(0), is_silent: watch::Sender::new(false) });
        let serving = tokio::spawn(serve(shared.clone(), listener));
        Self { address, shared, serving }
    }

    /// The address of the database through this line.
    pub(crate) fn url(&self) -> &str {
        &self.address
    }

    /// Loses the answers to the next statements that write, with their connections: they have been carried out.
    pub(crate) fn lose_answers(&self, count: u32) {
        self.shared.answers_to_lose.store(count, Ordering::SeqCst);
    }

    /// Begins or ends to be silent. Connections that were silent stay so for ever.
    pub(crate) fn be_silent(&self, is_silent: bool) {
        self.shared.is_silent.send_replace(is_silent);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// `host:port` of an address.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    let rest = rest.split(['/', '?']).next().unwrap();
    rest.rsplit('@').next().unwrap()
}

async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let shared = shared.clone();
        connections.spawn(async move {
            let mut is_silent = shared.is_silent.subscribe();
            let mut carried = std::pin::pin!(carry(&shared, client));
            tokio::select! {
                // How it ended is for its two ends to find out.
                _ = &mut carried => {}
                // Both ends believe that the line is there.
                () = async { drop(is_silent.wait_for(|is_silent| *is_silent).await) } => std::future::pending().await,
            }
        });
    }
}

async fn carry(shared: &Shared, mut client: TcpStream) -> std::io::Result<()> {
    let mut server = TcpStream::connect(&shared.target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut from_server) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut has_written = false;
    loop {
        tokio::select! {
            count = client.read(&mut from_client) => {
                let count = count?;
                if count == 0 {
                    return Ok(());
                }
                // Bind, the message that carries values: only the statements of commits are so long.
                has_written |= from_client[0] == b'B' && count > 300;
                server.write_all(&from_client[..count]).await?;
            }
            count = server.read(&mut from_server) => {
                let count = count?;
                if count == 0 {
                    return Ok(());
                }
                let is_lost = has_written
                    && shared.answers_to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
                if is_lost {
                    return Ok(());
                }
                has_written = false;
                client.write_all(&from_server[..count]).await?;
            }
        }
    }
}
