//! News between nodes, by LISTEN and NOTIFY: they save waiting, and nothing depends on them.
//!
//! - Told on a connection of its own, outside of every commit: a NOTIFY takes a lock of the whole server while it commits, so
//!   in each commit it would make all of them wait for each other. It waits for no disk.
//! - Heard on a connection of its own, which is asked every second whether it lives: one that dies in silence looks like one on
//!   which nothing happens. After it was lost, or where somebody did not keep up, [`Heard::Gap`] says that anything may have
//!   been missed.

use super::{
    connection::{Connector, Purpose, Values, row},
    error,
};
use crate::clock::sleep;
use crate::domain::ExecutionKey;
use crate::store::{Error, Heard, Hints, unbroken::unbroken};
use serde::{Deserialize, Serialize};
use sqlx::{
    Connection as _, Executor as _, Row as _,
    postgres::{PgConnection, PgListener},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use uuid::Uuid;

/// News that wait for this node to take them: some seconds of a busy cluster.
const HEARD_MAX: usize = 1024;

/// Bytes of one message. PostgreSQL takes less than 8,000.
const MESSAGE_BYTES_MAX: usize = 7_900;

/// A connection on which nothing came for so long is asked whether it lives, and has so long to answer.
const SILENCE: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(2);

/// Pause between two tries to connect.
const PAUSE: Duration = Duration::from_millis(250);

/// Of each schema its own, since several clusters may share a database.
const CHANNEL: &str = "SELECT 'orbit_' || CAST(CAST(to_regnamespace(quote_ident(current_schema())) AS oid) AS text)";

const NOTIFY: &str = "SELECT count(pg_notify($1, message)) FROM unnest($2) AS message";

/// A message as it is sent.
#[derive(Serialize, Deserialize)]
struct Message {
    /// The store that sends it, which does not want to hear it.
    from: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    queues: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    executions: Vec<(i64, u64)>,
}

/// What a store tells and hears.
pub(super) struct News {
    teller: Arc<Teller>,
    heard: Mutex<Option<mpsc::Receiver<Heard>>>,
    listener: JoinHandle<()>,
}

struct Teller {
    connector: Connector,
    channel: String,
    from: String,
    connection: tokio::sync::Mutex<Option<PgConnection>>,
}

impl News {
    /// Begins to listen.
    pub(super) async fn open(connector: &Connector) -> sqlx::Result<Self> {
        let mut connection = connector.connect(Purpose::News).await?;
        let channel = row(&mut connection, CHANNEL, Values::default()).await?;
        let channel: String = channel.ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        let listening = listen(connector, &channel).await?;
        let teller = Arc::new(Teller {
            connector: connector.clone(),
            channel,
            from: Uuid::new_v4().simple().to_string(),
            connection: tokio::sync::Mutex::new(Some(connection)),
        });
        let (sender, receiver) = mpsc::channel(HEARD_MAX);
        let outlet = Outlet { to: sender, has_gap: false };
        let listener = tokio::spawn(keep_listening(teller.clone(), listening, outlet));
        Ok(Self { teller, heard: Mutex::new(Some(receiver)), listener })
    }

    /// Tells other nodes.
    pub(super) async fn publish(&self, hints: &Hints) -> Result<(), Error> {
        let messages = messages(&self.teller.from, hints);
        if messages.is_empty() {
            return Ok(());
        }
        let teller = self.teller.clone();
        unbroken(async move { teller.tell(messages).await }).await.map_err(error::from_sqlx)
    }

    /// What other nodes tell since the store was opened. Nothing, from the second call on.
    pub(super) fn listen(&self) -> mpsc::Receiver<Heard> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).take();
        heard.unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// Tells and hears no more.
    pub(super) async fn close(&self) {
        self.listener.abort();
        if let Some(connection) = self.teller.connection.lock().await.take() {
            let _ = timeout(self.teller.connector.limit(), connection.close()).await;
        }
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Teller {
    async fn tell(&self, messages: Vec<String>) -> sqlx::Result<()> {
        let mut place = self.connection.lock().await;
        let told = async {
            let mut connection = match place.take() {
                Some(connection) => connection,
                None => self.connector.connect(Purpose::News).await?,
            };
            let values = Values::default().with(self.channel.as_str()).with(messages);
            values.execute(&mut connection, NOTIFY).await?;
            *place = Some(connection);
            Ok(())
        };
        timeout(self.connector.limit(), told).await.unwrap_or_else(|_| Err(error::no_answer()))
    }
}

/// Puts hints into as few messages as they fit in. A queue whose name does not fit into one is left out.
fn messages(from: &str, hints: &Hints) -> Vec<String> {
    let empty = || Message { from: from.to_owned(), queues: Vec::new(), executions: Vec::new() };
    let text = |message: &Message| serde_json::to_string(message).expect("texts and numbers are JSON");
    // With the names of both lists.
    let empty_bytes = text(&empty()).len() + r#","queues":[],"executions":[]"#.len();
    let mut messages = Vec::new();
    let (mut message, mut bytes) = (empty(), empty_bytes);
    let mut make_room = |message: &mut Message, more: usize| {
        if bytes + more > MESSAGE_BYTES_MAX {
            messages.push(text(&std::mem::replace(message, empty())));
            bytes = empty_bytes;
        }
        bytes += more;
    };
    for queue in &hints.queues {
        let more = serde_json::to_string(queue).expect("text is JSON").len() + 1;
        if empty_bytes + more <= MESSAGE_BYTES_MAX {
            make_room(&mut message, more);
            message.queues.push(queue.to_string());
        }
    }
    for (execution, number) in &hints.executions {
        make_room(&mut message, format!("[{},{number}],", execution.0).len());
        message.executions.push((execution.0, *number));
    }
    if !message.queues.is_empty() || !message.executions.is_empty() {
        messages.push(text(&message));
    }
    messages
}

/// Where what was heard goes.
struct Outlet {
    to: mpsc::Sender<Heard>,
    /// Something was missed, and this was not told yet.
    has_gap: bool,
}

impl Outlet {
    /// Hands on without waiting: a node that does not keep up misses something.
    fn hand_on(&mut self, hints: Hints) {
        self.tell_of_gap();
        if !self.has_gap && self.to.try_send(Heard::Hints(hints)).is_err() {
            self.has_gap = true;
        }
    }

    fn tell_of_gap(&mut self) {
        if self.has_gap && self.to.try_send(Heard::Gap).is_ok() {
            self.has_gap = false;
        }
    }
}

/// Listens on a new connection.
async fn listen(connector: &Connector, channel: &str) -> sqlx::Result<PgListener> {
    let listening = async {
        let mut listener = PgListener::connect_with(&connector.pool_of_one(Purpose::News)).await?;
        // Whoever listens again must know that he did not for a while.
        listener.eager_reconnect(false);
        listener.listen(channel).await?;
        Ok(listener)
    };
    timeout(connector.limit(), listening).await.unwrap_or_else(|_| Err(error::no_answer()))
}

/// Listens until nobody wants to hear any more.
async fn keep_listening(teller: Arc<Teller>, mut listener: PgListener, mut outlet: Outlet) {
    loop {
        hear(&teller, &mut listener, &mut outlet).await;
        outlet.has_gap = true;
        listener = loop {
            if outlet.to.is_closed() {
                return;
            }
            match listen(&teller.connector, &teller.channel).await {
                Ok(listener) => break listener,
                Err(cause) => tracing::warn!(error = %cause, "cannot listen for news of other nodes; trying again"),
            }
            sleep(PAUSE).await;
        };
        outlet.tell_of_gap();
    }
}

/// Hears until the connection is lost.
async fn hear(teller: &Teller, listener: &mut PgListener, outlet: &mut Outlet) {
    while !outlet.to.is_closed() {
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => match serde_json::from_str::<Message>(notification.payload()) {
                Ok(message) if message.from == teller.from => {}
                Ok(message) => outlet.hand_on(Hints {
                    queues: message.queues.into_iter().map(Arc::from).collect(),
                    executions: message
                        .executions
                        .into_iter()
                        .map(|(key, number)| (ExecutionKey(key), number))
                        .collect(),
                }),
                Err(cause) => tracing::debug!(error = %cause, "news that is not understood"),
            },
            Ok(Ok(None)) => {
                tracing::warn!("the connection that listens for news was lost");
                return;
            }
            Ok(Err(cause)) => {
                tracing::warn!(error = %cause, "the connection that listens for news was lost");
                return;
            }
            Err(_) => {
                if !matches!(timeout(ANSWER, listener.execute("SELECT 1")).await, Ok(Ok(_))) {
                    tracing::warn!("the connection that listens for news does not answer");
                    return;
                }
                outlet.tell_of_gap();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_that_do_not_fit_into_one_message_are_told_in_several() {
        let queues = (0..300).map(|number| format!("queue-\"{number:0>40}\"").into()).collect();
        let executions = (0..2_000).map(|number| (ExecutionKey(i64::MAX - number), u64::MAX)).collect();
        let hints = Hints { queues, executions };
        let messages = messages("n", &hints);
        let mut heard = Hints::default();
        for message in &messages {
            assert!(message.len() <= MESSAGE_BYTES_MAX, "{}", message.len());
            let message: Message = serde_json::from_str(message).unwrap();
            heard.queues.extend(message.queues.into_iter().map(Arc::from));
            heard.executions.extend(message.executions.iter().map(|(key, number)| (ExecutionKey(*key), *number)));
        }
        assert_eq!(heard, hints);
        assert!(messages.len() < 16, "{}", messages.len());
    }

    #[test]
    fn a_queue_with_a_name_beyond_all_bounds_is_left_out() {
        let hints = Hints { queues: ["x".repeat(8_000).into(), "a".into()].into(), ..Hints::default() };
        let messages = messages("n", &hints);
        assert_eq!(messages.len(), 1);
        assert!(messages[0].contains(r#"["a"]"#), "{messages:?}");
        assert_eq!(super::messages("n", &Hints::default()), Vec::<String>::new());
    }

    #[tokio::test]
    async fn who_does_not_keep_up_is_told_of_a_gap() {
        let (to, mut heard) = mpsc::channel(2);
        let mut outlet = Outlet { to, has_gap: false };
        let hints = |number| Hints { executions: [(ExecutionKey(1), number)].into(), ..Hints::default() };
        for number in 1..=4 {
            outlet.hand_on(hints(number));
        }
        assert_eq!(heard.recv().await, Some(Heard::Hints(hints(1))));
        assert_eq!(heard.recv().await, Some(Heard::Hints(hints(2))));
        outlet.hand_on(hints(5));
        assert_eq!(heard.recv().await, Some(Heard::Gap));
        assert_eq!(heard.recv().await, Some(Heard::Hints(hints(5))));
    }
}
