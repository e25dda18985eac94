//! Brings the schema up to date.
//!
//! - One transaction under a lock that ends with it: of several nodes that start at once one does it and the others wait,
//!   also behind a connection pooler; one that is killed leaves the old schema or the new one.
//! - Nothing is changed in a database that a newer version wrote, or another program, or whose migrations were other ones.

use super::{
    Options,
    connection::{Connector, Purpose, Values, rows_once, run},
    error,
};
use crate::store::{Error, schema::Schema};
use sqlx::{Connection as _, Row as _, migrate::Migrator, postgres::PgConnection};
use std::time::Duration;
use tokio::time::timeout;

/// The migrations that this version knows.
pub(super) static MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");

/// The longest that bringing a schema up to date may take, waiting for another node included.
const MIGRATION_MAX: Duration = Duration::from_secs(15 * 60);

// A name of this lock among all of the database: "orbt", migrations. Different schemas of one database share it.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1869767284, 1)";

// Views of extensions (pg_stat_statements) stand in `public` in many databases and are nobody's data.
const FOUND: &str = "SELECT current_schema() IS NOT NULL, to_regclass(quote_ident(current_schema()) || '.orbit_migrations') IS NOT NULL, \
     EXISTS (SELECT 1 FROM pg_class AS c WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) \
       AND c.relkind IN ('r', 'p', 'v', 'm', 'f') \
       AND NOT EXISTS (SELECT 1 FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))";

const APPLIED: &str = "SELECT version, checksum FROM orbit_migrations ORDER BY version";

// Which migrations a database has had. Written by this file alone.
const CREATE_APPLIED: &str = "CREATE TABLE orbit_migrations (\
     version BIGINT NOT NULL, name TEXT NOT NULL, checksum BYTEA NOT NULL, applied_time TIMESTAMPTZ NOT NULL DEFAULT now(), \
     CONSTRAINT orbit_migrations_version PRIMARY KEY (version))";

const APPLY: &str = "INSERT INTO orbit_migrations (version, name, checksum) VALUES ($1, $2, $3)";

/// See [`super::PostgresStore::schema`].
pub(super) async fn schema(options: &Options) -> Result<Schema, Error> {
    let connector = Connector::new(options)?;
    let looked = async {
        let mut connection = connector.connect(Purpose::Work).await?;
        let schema = inspect(&mut connection, &MIGRATIONS).await?;
        connection.close().await?;
        Ok(schema)
    };
    timeout(connector.limit(), looked).await.unwrap_or_else(|_| Err(error::no_answer())).map_err(error::at_start)
}

/// See [`super::PostgresStore::migrate`].
pub(super) async fn alone(options: &Options) -> Result<Schema, Error> {
    bring_up(&Connector::new(options)?, &MIGRATIONS).await
}

/// Brings the schema up to these migrations; answers with what was found before.
pub(super) async fn bring_up(connector: &Connector, migrations: &Migrator) -> Result<Schema, Error> {
    let migrated = async {
        let mut connection = connector.connect(Purpose::Migration).await?;
        let found = migrate(connector, &mut connection, migrations).await?;
        connection.close().await?;
        Ok(found)
    };
    timeout(MIGRATION_MAX, migrated).await.unwrap_or_else(|_| Err(error::no_answer())).map_err(error::at_start)
}

async fn migrate(connector: &Connector, connection: &mut PgConnection, migrations: &Migrator) -> sqlx::Result<Schema> {
    run(connection, "BEGIN").await?;
    connector.set_up(connection, Purpose::Migration).await?;
    lock(connection).await?;
    let found = inspect(connection, migrations).await?;
    if found.is_newer() {
        return Err(error::refusal(format!("the database {}", found.newer())));
    }
    if found.found == 0 {
        run(connection, CREATE_APPLIED).await?;
    }
    for migration in migrations.iter().filter(|migration| migration.version > i64::from(found.found)) {
        assert!(!migration.no_tx, "all migrations run in one transaction");
        run(connection, migration.sql.clone()).await?;
        let values = Values::default()
            .with(migration.version)
            .with(migration.description.to_string())
            .with(migration.checksum.to_vec());
        values.execute_once(connection, APPLY).await?;
        tracing::info!(schema = migration.version, name = %migration.description, "brought the schema up to date");
    }
    run(connection, "COMMIT").await?;
    Ok(found)
}

/// Waits for the lock in steps, so that somebody who watches is told why nothing happens.
async fn lock(connection: &mut PgConnection) -> sqlx::Result<()> {
    loop {
        run(connection, "SAVEPOINT waiting").await?;
        match run(connection, LOCK).await {
            Err(cause) if error::is_of_the_moment(&cause) => {
                tracing::info!("another node brings the schema up to date; waiting for it");
                run(connection, "ROLLBACK TO SAVEPOINT waiting").await?;
            }
            done => return done,
        }
    }
}

/// Looks at the schema; refuses what is not ours.
async fn inspect(connection: &mut PgConnection, migrations: &Migrator) -> sqlx::Result<Schema> {
    let found = rows_once(connection, FOUND).await?.pop().ok_or(sqlx::Error::RowNotFound)?;
    let (has_schema, is_ours, has_tables): (bool, bool, bool) =
        (found.try_get(0)?, found.try_get(1)?, found.try_get(2)?);
    if !has_schema {
        return Err(error::refusal("none of the schemas of the search_path exists, or this user may not use them"));
    }
    if !is_ours {
        if has_tables {
            return Err(error::refusal(
                "the database has tables of another program; give Orbit a database, or a schema in search_path, of its own",
            ));
        }
        return Ok(Schema::compare(0, migrations));
    }
    let mut newest = 0;
    for applied in rows_once(connection, APPLIED).await? {
        let (version, checksum): (i64, Vec<u8>) = (applied.try_get(0)?, applied.try_get(1)?);
        if let Some(known) = migrations.iter().find(|known| known.version == version)
            && *known.checksum != *checksum
        {
            return Err(error::refusal(format!(
                "the database's schema {version} was made by another migration than this version's, so it may differ from what \
                 is expected"
            )));
        }
        newest = u32::try_from(version).map_err(|_| error::refusal(format!("the schema {version} cannot be")))?;
    }
    Ok(Schema::compare(newest, migrations))
}
