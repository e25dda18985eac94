//! A TCP connection's worst ways, on demand: a proxy that a test cuts, slows down, silences and closes.

use crate::server::free_address;
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// What the proxy does with what it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// Carries it.
    Carry,
    /// Carries it, each chunk that way to the target as much later.
    Slow(Duration),
    /// Takes connections and bytes and says nothing, as a network that drops every packet. What it was given meanwhile it
    /// carries afterwards, as a network would that delivers it at last.
    Silent,
    /// Takes no connections and ends those that there are.
    Refuse,
}

/// A proxy in front of one address. It ends with this, and its connections with it.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    rule: watch::Sender<Rule>,
    connections: Mutex<Vec<Weak<Connection>>>,
}

/// One connection through the proxy.
#[derive(Debug)]
struct Connection {
    cut: CancellationToken,
    /// It alone is silent.
    silent: watch::Sender<bool>,
    /// Its client has said `LISTEN`, so it is one on which PostgreSQL tells news.
    listens: AtomicBool,
}

impl Proxy {
    /// Opens a proxy.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let address = free_address();
        let listener = TcpListener::bind(address).await.unwrap();
        let target = Mutex::new(target);
        let shared = Arc::new(Shared { target, rule: watch::Sender::new(Rule::Carry), connections: Mutex::default() });
        let serving = tokio::spawn(serve(Arc::clone(&shared), address, listener));
        Self { address, shared, serving }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections to another address from now on, as a name does that was given to another machine.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// Goes by this rule from now on, for connections that are there too.
    pub(crate) fn set(&self, rule: Rule) {
        self.shared.rule.send_replace(rule);
        if rule == Rule::Refuse {
            self.cut();
        }
    }

    /// Ends every connection; new ones are taken.
    pub(crate) fn cut(&self) {
        for connection in self.shared.alive() {
            connection.cut.cancel();
        }
    }

    /// Silences for ever the connections on which PostgreSQL tells news. Answers with how many there are.
    pub(crate) fn silence_listening(&self) -> usize {
        let mut listening = self.shared.alive();
        listening.retain(|connection| connection.listens.load(Ordering::SeqCst));
        for connection in &listening {
            connection.silent.send_replace(true);
        }
        listening.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
        self.cut();
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Vec<Weak<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self) -> SocketAddr {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> Vec<Arc<Connection>> {
        self.connections().iter().filter_map(Weak::upgrade).collect()
    }
}

async fn serve(shared: Arc<Shared>, address: SocketAddr, listener: TcpListener) {
    let mut rule = shared.rule.subscribe();
    let mut listener = Some(listener);
    loop {
        let refuses = *rule.borrow_and_update() == Rule::Refuse;
        if refuses {
            listener = None;
            // Whoever was taken between the rule and its cut.
            shared.alive().iter().for_each(|connection| connection.cut.cancel());
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        let Some(open) = &listener else {
            tokio::select! {
                _ = rule.changed() => {}
                () = tokio::time::sleep(Duration::from_millis(10)), if !refuses => {}
            }
            continue;
        };
        tokio::select! {
            accepted = open.accept() => if let Ok((client, _)) = accepted {
                tokio::spawn(connect(Arc::clone(&shared), client));
            },
            _ = rule.changed() => {}
        }
    }
}

/// Carries one connection until an end closes it or it is cut.
async fn connect(shared: Arc<Shared>, client: TcpStream) {
    let connection = Arc::new(Connection {
        cut: CancellationToken::new(),
        silent: watch::Sender::new(false),
        listens: AtomicBool::new(false),
    });
    {
        let mut connections = shared.connections();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(&connection));
    }
    let carried = async {
        passable(&shared, &connection).await;
        let target = TcpStream::connect(shared.target()).await?;
        // Both wait for nothing: what comes small leaves small.
        client.set_nodelay(true)?;
        target.set_nodelay(true)?;
        let (client_reads, client_writes) = client.into_split();
        let (target_reads, target_writes) = target.into_split();
        tokio::try_join!(
            pump(&shared, &connection, client_reads, target_writes, true),
            pump(&shared, &connection, target_reads, client_writes, false),
        )
    };
    tokio::select! {
        // How it ended is for the two ends to find out.
        _ = carried => {}
        () = connection.cut.cancelled() => {}
    }
}

async fn pump(
    shared: &Shared,
    connection: &Connection,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    is_to_target: bool,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut bytes).await?;
        if is_to_target && bytes[..count].windows(7).any(|word| word == b"LISTEN ") {
            connection.listens.store(true, Ordering::SeqCst);
        }
        let rule = passable(shared, connection).await;
        if let (Rule::Slow(delay), true) = (rule, is_to_target) {
            tokio::time::sleep(delay).await;
        }
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&bytes[..count]).await?;
    }
}

/// Waits as long as nothing passes. Answers with the rule that lets it.
async fn passable(shared: &Shared, connection: &Connection) -> Rule {
    let (mut rule, mut silent) = (shared.rule.subscribe(), connection.silent.subscribe());
    loop {
        let found = *rule.borrow_and_update();
        if found != Rule::Silent && !*silent.borrow_and_update() {
            return found;
        }
        tokio::select! {
            _ = rule.changed() => {}
            _ = silent.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than bytes need on this machine, on a bad day.
    const SOON: Duration = Duration::from_secs(5);

    /// As long as nothing happens is looked at.
    const WHILE: Duration = Duration::from_millis(100);

    /// A server that says what it is told.
    async fn echo() -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let target = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut reads, mut writes) = client.split();
                    tokio::io::copy(&mut reads, &mut writes).await
                });
            }
        });
        Proxy::to(target).await
    }

    async fn hears(client: &mut TcpStream, word: &[u8]) {
        let mut heard = vec![0; word.len()];
        tokio::time::timeout(SOON, client.read_exact(&mut heard)).await.unwrap().unwrap();
        assert_eq!(heard, word);
    }

    async fn hears_nothing(client: &mut TcpStream) {
        assert!(tokio::time::timeout(WHILE, client.read(&mut [0])).await.is_err());
    }

    #[tokio::test]
    async fn a_proxy_carries_and_cuts() {
        let proxy = echo().await;
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        client.write_all(b"one").await.unwrap();
        hears(&mut client, b"one").await;
        proxy.cut();
        assert!(matches!(tokio::time::timeout(SOON, client.read(&mut [0])).await.unwrap(), Ok(0) | Err(_)));
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        client.write_all(b"two").await.unwrap();
        hears(&mut client, b"two").await;
    }

    #[tokio::test]
    async fn what_a_silent_proxy_was_given_it_carries_afterwards() {
        let proxy = echo().await;
        let mut old = TcpStream::connect(proxy.address()).await.unwrap();
        old.write_all(b"one").await.unwrap();
        hears(&mut old, b"one").await;
        proxy.set(Rule::Silent);
        let mut new = TcpStream::connect(proxy.address()).await.unwrap();
        old.write_all(b"two").await.unwrap();
        new.write_all(b"three").await.unwrap();
        hears_nothing(&mut old).await;
        hears_nothing(&mut new).await;
        proxy.set(Rule::Carry);
        hears(&mut old, b"two").await;
        hears(&mut new, b"three").await;
    }

    #[tokio::test]
    async fn a_refusing_proxy_takes_connections_again_at_the_same_address() {
        let proxy = echo().await;
        proxy.set(Rule::Refuse);
        let begin = std::time::Instant::now();
        while TcpStream::connect(proxy.address()).await.is_ok() {
            assert!(begin.elapsed() < SOON, "it still takes connections");
        }
        proxy.set(Rule::Carry);
        let mut client = loop {
            match TcpStream::connect(proxy.address()).await {
                Ok(client) => break client,
                Err(_) => assert!(begin.elapsed() < SOON, "it takes no connections again"),
            }
        };
        client.write_all(b"again").await.unwrap();
        hears(&mut client, b"again").await;
    }

    #[tokio::test]
    async fn a_proxy_that_leads_elsewhere_does_so_for_new_connections() {
        let (proxy, other) = (echo().await, echo().await);
        let mut old = TcpStream::connect(proxy.address()).await.unwrap();
        old.write_all(b"one").await.unwrap();
        hears(&mut old, b"one").await;
        proxy.lead_to(other.address());
        other.set(Rule::Silent);
        let mut new = TcpStream::connect(proxy.address()).await.unwrap();
        new.write_all(b"two").await.unwrap();
        old.write_all(b"three").await.unwrap();
        hears(&mut old, b"three").await;
        hears_nothing(&mut new).await;
    }

    #[tokio::test]
    async fn a_slow_proxy_is_late_and_one_connection_can_be_silent_alone() {
        let proxy = echo().await;
        proxy.set(Rule::Slow(Duration::from_millis(150)));
        let mut listening = TcpStream::connect(proxy.address()).await.unwrap();
        let begin = std::time::Instant::now();
        listening.write_all(b"LISTEN news").await.unwrap();
        hears(&mut listening, b"LISTEN news").await;
        assert!(begin.elapsed() >= Duration::from_millis(150));
        proxy.set(Rule::Carry);
        let mut other = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(proxy.silence_listening(), 1);
        listening.write_all(b"nothing").await.unwrap();
        other.write_all(b"something").await.unwrap();
        hears(&mut other, b"something").await;
        hears_nothing(&mut listening).await;
    }
}
