//! How far the schema of a database is, compared with what this version knows.

use sqlx::migrate::Migrator;

/// A change of the schema that this version can make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Its number: 1, 2, 3 …
    pub number: u32,
    /// Its name, from its file: `foundation` of `0001_foundation.sql`.
    pub name: String,
    /// Its statements.
    pub sql: String,
}

/// The schema that a database has, and what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Number of the newest migration that the database has; 0 if it is new or not there.
    pub found: u32,
    /// Number of the newest migration that this version knows.
    pub known: u32,
    /// The migrations that this version would make, in order. None if the database is newer.
    pub pending: Vec<Migration>,
}

impl Schema {
    /// Compares.
    pub(super) fn compare(found: u32, migrations: &Migrator) -> Self {
        let all = migrations.iter().map(|migration| Migration {
            number: number(migration.version),
            name: migration.description.replace(' ', "_"),
            sql: migration.sql.as_str().to_owned(),
        });
        let pending = all.filter(|migration| migration.number > found).collect();
        Self { found, known: newest(migrations), pending }
    }

    /// Whether a newer version of Orbit has been at this database, which this one may then neither serve nor change.
    #[must_use]
    pub const fn is_newer(&self) -> bool {
        self.found > self.known
    }

    /// What is wrong with a schema that [is newer](Self::is_newer); fits after the name of the database.
    pub(super) fn newer(&self) -> String {
        format!(
            "was written by a newer version of Orbit: its schema is {}, and this version knows schemas up to {}",
            self.found, self.known
        )
    }
}

/// Number of the newest migration.
pub(super) fn newest(migrations: &Migrator) -> u32 {
    number(migrations.iter().map(|migration| migration.version).max().unwrap_or(0))
}

fn number(version: i64) -> u32 {
    u32::try_from(version).expect("migrations are numbered 1, 2, 3 …")
}
