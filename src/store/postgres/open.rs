//! Opens the database: in a format that this version knows, durable, and through nothing that would mix up its sessions.

use super::{
    Options, PostgresStore,
    commit::Committers,
    connection::{Connector, Purpose, rows_once},
    error,
    hints::News,
    migrate, nodes,
    pool::Connections,
};
use crate::store::{Error, Opened, schema, statistics::Totals};
use sqlx::{Connection as _, Row as _, postgres::PgConnection};
use std::sync::{Arc, atomic::AtomicI64};
use tokio::time::timeout;

pub(super) async fn open(options: &Options) -> Result<PostgresStore, Error> {
    let connector = Connector::new(options)?;
    demand_sessions(&connector).await.map_err(error::at_start)?;
    migrate::bring_up(&connector, &migrate::MIGRATIONS).await?;
    let looked = async {
        let mut connection = connector.connect(Purpose::Work).await?;
        let newest_now = nodes::newest_now(&mut connection).await?;
        connection.close().await?;
        Ok((newest_now, News::open(&connector).await?))
    };
    let (newest_now, news) = timeout(connector.limit(), looked)
        .await
        .unwrap_or_else(|_| Err(error::no_answer()))
        .map_err(error::at_start)?;
    if options.unsafe_without_sync {
        tracing::warn!("the server's durability is not looked at: a power loss may lose acknowledged work");
    }
    let totals = Arc::new(Totals::default());
    let slot = Arc::new(AtomicI64::new(nodes::SLOT_NONE));
    Ok(PostgresStore {
        committers: Arc::new(Committers::new(connector.clone(), options.committers, slot.clone(), totals.clone())),
        news,
        slot,
        connections: Arc::new(Connections::new(connector, options.pool_size, totals.clone())),
        totals,
        opened: Opened { newest_now: Some(newest_now), schema_version: schema::newest(&migrate::MIGRATIONS) },
    })
}

const SERVER_PROCESS: &str = "SELECT pg_backend_pid()";

/// Refuses a pooler that gives each transaction another session (PgBouncer's `pool_mode = transaction`): prepared statements,
/// settings and LISTEN would be other clients'. Two connections at once that have one server process give it away.
async fn demand_sessions(connector: &Connector) -> sqlx::Result<()> {
    let process = async |connection: &mut PgConnection| -> sqlx::Result<i32> {
        rows_once(connection, SERVER_PROCESS).await?.pop().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
    };
    let looked = async {
        let mut one = connector.connect(Purpose::Work).await?;
        let mut other = connector.connect(Purpose::Work).await?;
        if process(&mut one).await? == process(&mut other).await? {
            return Err(error::refusal(
                "the address is a connection pooler's that gives each transaction another session (pool_mode = transaction); \
                 Orbit needs sessions of its own, a few dozen at most: use the server's own address, or pool_mode = session",
            ));
        }
        one.close().await?;
        other.close().await
    };
    timeout(connector.limit(), looked).await.unwrap_or_else(|_| Err(error::no_answer()))
}
