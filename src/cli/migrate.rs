//! The schema of a database, without a server: `migrate status`, `migrate up`.
//!
//! A server brings its database up to date when it starts. These commands are for whoever wants to see that before, or
//! to do it at a time of his own, with rights that the server need not have.

use super::{
    database,
    error::Error,
    exit::Exit,
    output::{Output, Tone},
    table::{Cell, Table},
};
use crate::{
    config::{Database, parse_secretly},
    store::{Schema, schema::Migration},
};
use std::path::PathBuf;

/// Looks at the schema of a database, or brings it up to date. Needs no server.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  orbit migrate status --db /var/lib/orbit/orbit.db
  ORBIT_DB=postgres://orbit@db.example/orbit orbit migrate up --dry-run > changes.sql

A server does `up` by itself when it starts. Of several that start at once, one does it and the others wait.")]
pub(super) enum Migrate {
    Status(Status),
    Up(Up),
}

/// Tells the schema that a database has, the one that this version knows, and the migrations between them.
///
/// Ends with 0 if they are the same, with 13 if migrations are pending, and with 4 if the database is newer than this
/// version. A database that is still empty, or a file that is not there, has schema 0. Servers may run meanwhile.
#[derive(Debug, clap::Args)]
pub(super) struct Status {
    #[command(flatten)]
    place: Place,
}

/// Brings the schema of a database up to date.
///
/// On SQLite no server may have the file; an older database is copied beside itself first, as FILE.schema-N.copy. On
/// PostgreSQL all pending migrations are one transaction, and only one node makes them. Ends with 0 also if there was
/// nothing to do, and with 4 if the database is newer than this version.
#[derive(Debug, clap::Args)]
pub(super) struct Up {
    #[command(flatten)]
    place: Place,
    /// Changes nothing: prints the statements that would run
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
struct Place {
    /// Database: a file, as a path or as `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST:PORT/NAME`
    #[arg(long = "db", env = "ORBIT_DB", value_name = "DATABASE", default_value = "orbit.db", hide_env_values = true,
          value_parser = parse_secretly::<Database>())]
    database: Database,
}

impl Migrate {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        match self {
            Self::Status(Status { place }) => {
                let schema = database::schema(&place.database).await?;
                show(&place.database, &schema, output)?;
                match (schema.is_newer(), schema.pending.is_empty()) {
                    (true, _) => Err(Error::Said(Exit::Conflict)),
                    (false, false) => Err(Error::Said(Exit::MigrationsPending)),
                    (false, true) => Ok(()),
                }
            }
            Self::Up(Up { place, dry_run: true }) => {
                let schema = database::schema(&place.database).await?;
                refuse_newer(&place.database, &schema)?;
                show_statements(&place.database, &schema, output)
            }
            Self::Up(Up { place, dry_run: false }) => {
                // Looked at first for an exit code of its own; whoever migrates looks again, alone.
                refuse_newer(&place.database, &database::schema(&place.database).await?)?;
                let (before, copy) = database::migrate(&place.database).await?;
                show_done(&place.database, &before, copy, output)
            }
        }
    }
}

/// What the database has and lacks, in JSON.
#[derive(serde::Serialize)]
struct Json<'a> {
    database: String,
    found_schema: u32,
    known_schema: u32,
    state: &'static str,
    pending: Vec<PendingJson<'a>>,
}

#[derive(serde::Serialize)]
struct PendingJson<'a> {
    number: u32,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sql: Option<&'a str>,
}

impl<'a> Json<'a> {
    fn of(database: &Database, schema: &'a Schema, with_statements: bool) -> Self {
        let pending = schema.pending.iter().map(|migration| PendingJson {
            number: migration.number,
            name: &migration.name,
            sql: with_statements.then_some(&migration.sql),
        });
        Self {
            database: database.to_string(),
            found_schema: schema.found,
            known_schema: schema.known,
            state: state(schema).0,
            pending: pending.collect(),
        }
    }

    fn print(&self, output: Output) -> Result<(), Error> {
        output.line(&serde_json::to_string_pretty(self).expect("numbers and texts have a JSON form"))
    }
}

/// Where a schema stands, in one word.
fn state(schema: &Schema) -> (&'static str, Tone) {
    match (schema.is_newer(), schema.pending.is_empty(), schema.found) {
        (true, ..) => ("newer", Tone::Bad),
        (false, true, _) => ("current", Tone::Good),
        (false, false, 0) => ("empty", Tone::Warning),
        (false, false, _) => ("older", Tone::Warning),
    }
}

fn show(database: &Database, schema: &Schema, output: Output) -> Result<(), Error> {
    if output.is_json() {
        return Json::of(database, schema, false).print(output);
    }
    let (state, tone) = state(schema);
    let mut table = Table::default();
    table.field("Database", database.to_string());
    table.field("State", Cell::toned(tone, state));
    table.field("Schema found", schema.found.to_string());
    table.field("Schema known", schema.known.to_string());
    for migration in &schema.pending {
        table.field("Pending", file_name(migration));
    }
    output.table(&table)
}

/// As the file of the migration is called.
fn file_name(migration: &Migration) -> String {
    format!("{:04}_{}", migration.number, migration.name)
}

fn show_statements(database: &Database, schema: &Schema, output: Output) -> Result<(), Error> {
    if output.is_json() {
        return Json::of(database, schema, true).print(output);
    }
    if schema.pending.is_empty() {
        output.note(&format!("{database} has schema {}: there is nothing to do", schema.found));
    }
    for migration in &schema.pending {
        output.line(&format!("-- {}\n{}", file_name(migration), migration.sql.trim_end()))?;
    }
    Ok(())
}

fn show_done(database: &Database, before: &Schema, copy: Option<PathBuf>, output: Output) -> Result<(), Error> {
    if output.is_json() {
        let done: Vec<_> = before.pending.iter().map(file_name).collect();
        let line = serde_json::json!({
            "database": database.to_string(),
            "found_schema": before.found,
            "schema": before.known,
            "done": done,
            "copy": copy,
        });
        return output.line(&format!("{line:#}"));
    }
    if let Some(copy) = copy {
        output.note(&format!("the database as it was is in {}", copy.display()));
    }
    for migration in &before.pending {
        output.line(&format!("{} done", file_name(migration)))?;
    }
    output.line(&format!("{database} has schema {}", before.known))
}

fn refuse_newer(database: &Database, schema: &Schema) -> Result<(), Error> {
    if !schema.is_newer() {
        return Ok(());
    }
    Err(Error::Local {
        exit: Exit::Conflict,
        message: format!(
            "{database} was written by a newer version of Orbit: its schema is {}, and this version knows schemas up to {}",
            schema.found, schema.known
        ),
        hint: "use that version, or a newer one; a schema never goes back".to_owned(),
    })
}
