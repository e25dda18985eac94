//! Opens the database: alone, in a format that this version knows, and durable.

use super::{
    Options, PAGE_BYTES, SqliteStore,
    checkpoint::Checkpointer,
    connection::{Readers, Writer},
    error,
};
use crate::domain::Timestamp;
use crate::store::{Error, Opened, Schema, schema, statistics::Totals};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _,
    migrate::{MigrateError, Migrator},
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous},
};
use std::{
    fs::{File, TryLockError},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{Mutex, Notify};

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// `ORBT`: says to whom the file belongs.
const APPLICATION_ID: i64 = 0x4f52_4254;

/// How long the checkpointer waits for readers while no commit can run.
const CHECKPOINT_WAIT: Duration = Duration::from_millis(20);

/// Prepared statements that a connection keeps: each kind in each size on the writer.
const WRITER_STATEMENTS: usize = 256;

pub(super) async fn open(path: &Path, options: &Options) -> Result<SqliteStore, Error> {
    let path = &resolved(path)?;
    let lock = lock(path)?;
    demand_one_name(path)?;
    let found = known(path, inspect(path).await?)?;
    let connect = SqliteConnectOptions::new()
        .filename(path)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(if options.unsafe_without_sync { SqliteSynchronous::Off } else { SqliteSynchronous::Full })
        .busy_timeout(options.busy_timeout)
        .foreign_keys(true)
        .pragma("temp_store", "MEMORY")
        .pragma("wal_autocheckpoint", "0")
        .disable_statement_logging();

    let writes = connect
        .clone()
        .create_if_missing(true)
        .pragma("cache_size", cache_size(options.writer_cache_bytes))
        .statement_cache_capacity(WRITER_STATEMENTS);
    let mut connection = writes.connect().await.map_err(error::from_sqlx)?;
    demand_durability(&mut connection, options).await?;
    migrate(&mut connection, &MIGRATIONS, path, found.found).await?;
    let newest_now = prepare(&mut connection).await.map_err(error::from_sqlx)?;

    let reads = connect
        .clone()
        .read_only(true)
        .pragma("cache_size", cache_size(options.reader_cache_bytes))
        .row_buffer_size(ROW_BUFFER);
    let checkpoints = connect.busy_timeout(CHECKPOINT_WAIT).connect().await.map_err(error::from_sqlx)?;
    let totals = Arc::new(Totals::default());
    let log_grew = Arc::new(Notify::new());
    let writer = Arc::new(Mutex::new(Writer::new(writes, connection, totals.clone(), log_grew.clone())));
    let log = beside(path, "-wal");
    Ok(SqliteStore {
        path: path.to_owned(),
        checkpointer: Mutex::new(Some(Checkpointer::start(
            checkpoints,
            log.clone(),
            writer.clone(),
            log_grew,
            options,
        ))),
        log,
        writer,
        readers: Readers::new(reads, options),
        totals,
        opened: Opened { newest_now, schema_version: schema::newest(&MIGRATIONS) },
        lock: Mutex::new(Some(lock)),
    })
}

/// Rows that SQLite reads ahead of the one who takes them: few, since a row of history may have a megabyte.
const ROW_BUFFER: usize = 16;

/// See [`SqliteStore::schema`].
pub(super) async fn schema(path: &Path) -> Result<Schema, Error> {
    inspect(&resolved(path)?).await
}

/// See [`SqliteStore::migrate`].
pub(super) async fn migrate_alone(path: &Path) -> Result<(Schema, Option<PathBuf>), Error> {
    let path = &resolved(path)?;
    let _lock = lock(path)?;
    demand_one_name(path)?;
    let found = known(path, inspect(path).await?)?;
    if found.pending.is_empty() {
        return Ok((found, None));
    }
    let connect = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .disable_statement_logging();
    let mut connection = connect.connect().await.map_err(error::from_sqlx)?;
    let copy = migrate(&mut connection, &MIGRATIONS, path, found.found).await?;
    connection.close().await.map_err(error::from_sqlx)?;
    Ok((found, copy))
}

/// The file that a path means: through a link, the lock would stand beside the link and keep nobody out.
fn resolved(path: &Path) -> Result<PathBuf, Error> {
    if path.is_dir() {
        return Err(Error::Refused(format!("{} is a directory; name a file", path.display())));
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        return Err(Error::Refused(format!("{}: there is no such directory", directory.display())));
    }
    if !path.is_symlink() {
        return Ok(path.to_owned());
    }
    std::fs::canonicalize(path)
        .map_err(|cause| Error::Refused(format!("{} is a link that leads nowhere: {cause}", path.display())))
}

/// Refuses a file with several names: under each it would have a lock and a write-ahead log of its own.
#[cfg(unix)]
fn demand_one_name(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt as _;
    match std::fs::metadata(path) {
        Ok(file) if file.nlink() > 1 => Err(Error::Refused(format!(
            "{} has {} names (hard links), and a server under another one would damage it; copy the file instead",
            path.display(),
            file.nlink()
        ))),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Other systems do not tell.
#[cfg(not(unix))]
fn demand_one_name(_: &Path) -> Result<(), Error> {
    Ok(())
}

/// Takes the file beside the database that only one server can hold; it is free again when the process ends, however.
fn lock(path: &Path) -> Result<File, Error> {
    let lock_path = beside(path, ".lock");
    let refuse = |cause: std::io::Error| Error::Refused(format!("cannot open {}: {cause}", lock_path.display()));
    let mut file =
        File::options().create(true).truncate(false).read(true).write(true).open(&lock_path).map_err(refuse)?;
    match file.try_lock() {
        Ok(()) => {
            // For whoever wonders who has it; not read by the server.
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            Err(Error::Refused(format!("{} is in use by another server; stop it first", path.display())))
        }
        Err(TryLockError::Error(cause)) => Err(refuse(cause)),
    }
}

/// Refuses what a newer version wrote.
fn known(path: &Path, schema: Schema) -> Result<Schema, Error> {
    if schema.is_newer() {
        return Err(Error::Refused(format!("{} {}", path.display(), schema.newer())));
    }
    Ok(schema)
}

/// The schema that is found in the file. Refuses what is not ours before anything is changed.
async fn inspect(path: &Path) -> Result<Schema, Error> {
    if std::fs::metadata(path).map_or(0, |file| file.len()) == 0 {
        return Ok(Schema::compare(0, &MIGRATIONS));
    }
    let refuse = |why: String| Error::Refused(format!("{} {why}", path.display()));
    let inspected = async {
        let mut connection = SqliteConnectOptions::new().filename(path).disable_statement_logging().connect().await?;
        let application_id: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut connection).await?;
        let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema").fetch_one(&mut connection).await?;
        let is_migrated: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'")
            .fetch_one(&mut connection)
            .await?;
        let version: Option<i64> = if is_migrated == 0 {
            None
        } else {
            sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations").fetch_one(&mut connection).await?
        };
        connection.close().await?;
        Ok((application_id, tables, version.unwrap_or(0)))
    };
    let (application_id, tables, version) = inspected.await.map_err(|cause: sqlx::Error| {
        if error::is_not_a_database(&cause) {
            refuse("is not a SQLite database".to_owned())
        } else {
            error::from_sqlx(cause)
        }
    })?;
    if tables > 0 && application_id != APPLICATION_ID {
        return Err(refuse("is a database of another program".to_owned()));
    }
    let version = u32::try_from(version).map_err(|_| refuse(format!("has the schema {version}, which cannot be")))?;
    Ok(Schema::compare(version, &MIGRATIONS))
}

/// What is acknowledged must be on the disk: nothing may have turned that off behind our back.
async fn demand_durability(connection: &mut SqliteConnection, options: &Options) -> Result<(), Error> {
    let read = async {
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await?;
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *connection).await?;
        Ok((journal, synchronous))
    };
    let (journal, synchronous) = read.await.map_err(error::from_sqlx)?;
    if journal != "wal" {
        return Err(Error::Refused(format!(
            "the database cannot keep a write-ahead log here: journal_mode is {journal}"
        )));
    }
    if options.unsafe_without_sync {
        tracing::warn!("commits are not synced: a power loss loses acknowledged work");
    } else if synchronous != 2 {
        return Err(Error::Refused(format!(
            "commits would not be synced: synchronous is {synchronous} instead of 2 (FULL)"
        )));
    }
    Ok(())
}

/// Brings the schema up to date; an older database is copied first. Answers with the copy.
pub(super) async fn migrate(
    connection: &mut SqliteConnection,
    migrations: &Migrator,
    path: &Path,
    found: u32,
) -> Result<Option<PathBuf>, Error> {
    let mut copy = None;
    if found == 0 {
        let mark = format!("PRAGMA application_id = {APPLICATION_ID}");
        sqlx::query(AssertSqlSafe(mark)).execute(&mut *connection).await.map_err(error::from_sqlx)?;
    } else if found < schema::newest(migrations) {
        copy = Some(copy_before_migration(connection, path, found).await?);
    }
    migrations.run(connection).await.map_err(|cause| match cause {
        MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) => error::from_sqlx(cause),
        other => Error::Refused(format!("{} cannot be brought up to date: {other}", path.display())),
    })?;
    Ok(copy)
}

/// Copies the database beside itself as `NAME.schema-N.copy`, synced, so that a version that goes wrong can be left again.
async fn copy_before_migration(connection: &mut SqliteConnection, path: &Path, found: u32) -> Result<PathBuf, Error> {
    let copy = beside(path, &format!(".schema-{found}.copy"));
    let unavailable = |cause: std::io::Error| Error::Unavailable(Arc::new(cause));
    // Left by a migration that was broken off: the database still has all that it has.
    match std::fs::remove_file(&copy) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => return Err(unavailable(cause)),
        Ok(()) | Err(_) => {}
    }
    let name = copy.to_str().ok_or_else(|| Error::Refused(format!("{} is not a path in UTF-8", copy.display())))?;
    sqlx::query("VACUUM INTO ?").bind(name).execute(connection).await.map_err(error::from_sqlx)?;
    File::options().write(true).open(&copy).and_then(|file| file.sync_all()).map_err(unavailable)?;
    tracing::info!(copy = name, schema = found, "copied the database before bringing its schema up to date");
    Ok(copy)
}

/// Forgets nodes of the past, but for the newest time. Answers with that time.
async fn prepare(connection: &mut SqliteConnection) -> sqlx::Result<Option<Timestamp>> {
    sqlx::query("DELETE FROM nodes WHERE now < (SELECT max(now) FROM nodes)").execute(&mut *connection).await?;
    let newest: Option<i64> = sqlx::query_scalar("SELECT max(now) FROM nodes").fetch_one(connection).await?;
    Ok(newest.map(Timestamp::from_micros))
}

/// The path with something put to its end, as SQLite names its own files.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// SQLite's `cache_size`: negative for KiB. Each connection has its own.
fn cache_size(bytes: u64) -> String {
    format!("-{}", bytes / 1024)
}
