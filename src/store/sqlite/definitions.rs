//! Definitions and the contracts that they use.

use super::connection::{Transaction, Values, begin_read, end_read, row, rows};
use super::executions::{bytes, limit, text, time};
use crate::store::{Change, DefinitionRow, DefinitionStored, FindDefinition, NAMESPACE, sql};
use sqlx::{
    Row as _,
    sqlite::{SqliteConnection, SqliteRow},
};
use std::sync::Arc;

pub(super) async fn put(transaction: &mut Transaction, definition: &DefinitionRow) -> sqlx::Result<DefinitionStored> {
    let values = Values::default()
        .with(NAMESPACE)
        .with(definition.name.clone())
        .with(definition.version.clone())
        .with(definition.version_order.clone())
        .with(i64::from(definition.prerelease))
        .with(definition.hash.to_vec())
        .with(definition.description.clone())
        .with(definition.json.clone())
        .with(definition.source.clone())
        .with(definition.create_time.as_micros());
    let inserted = transaction.returning(Change::DefinitionInserted, sql::DEFINITION_INSERT, values).await?;
    let Some(inserted) = inserted.first() else {
        let values = Values::default().with(NAMESPACE).with(definition.name.clone()).with(definition.version.clone());
        let stored = transaction.row(sql::DEFINITION_BY_VERSION, values).await?.ok_or(sqlx::Error::RowNotFound)?;
        let same = bytes(&stored, 5)? == definition.hash;
        return Ok(if same { DefinitionStored::Same } else { DefinitionStored::Different });
    };
    let key: i64 = inserted.try_get(0)?;
    for contract in &definition.contracts {
        // A contract is `name@version`; the version has no `@`.
        let (name, version) = contract.rsplit_once('@').unwrap_or((contract, ""));
        let values = Values::default().with(NAMESPACE).with(name).with(version).with(key);
        transaction.run(Change::ContractInserted, sql::CONTRACT_INSERT, values).await?;
    }
    Ok(DefinitionStored::Created)
}

pub(super) async fn definition(
    connection: &mut SqliteConnection,
    find: &FindDefinition,
) -> sqlx::Result<Option<DefinitionRow>> {
    let values = Values::default().with(NAMESPACE);
    begin_read(connection).await?;
    let found = match find {
        FindDefinition::Hash(hash) => row(connection, sql::DEFINITION_BY_HASH, values.with(hash.to_vec())).await?,
        FindDefinition::Version(name, version) => {
            row(connection, sql::DEFINITION_BY_VERSION, values.with(name.clone()).with(version.clone())).await?
        }
        FindDefinition::Latest { name, prerelease } => {
            row(connection, sql::DEFINITION_LATEST, values.with(name.clone()).with(i64::from(*prerelease))).await?
        }
    };
    let found = match found {
        Some(row) => Some(definition_row(connection, &row).await?),
        None => None,
    };
    end_read(connection).await?;
    Ok(found)
}

pub(super) async fn definitions(
    connection: &mut SqliteConnection,
    name: Option<&str>,
    after: Option<(&str, &[u8])>,
    most: usize,
) -> sqlx::Result<Vec<DefinitionRow>> {
    let values = Values::default()
        .with(NAMESPACE)
        .with(name.map(str::to_owned))
        .with(after.map(|(name, _)| name.to_owned()))
        .with(after.map(|(_, order)| order.to_vec()))
        .with(limit(most));
    begin_read(connection).await?;
    let mut page = Vec::new();
    for row in rows(connection, sql::DEFINITIONS, values).await? {
        page.push(definition_row(connection, &row).await?);
    }
    end_read(connection).await?;
    Ok(page)
}

pub(super) async fn contract_versions(connection: &mut SqliteConnection, task_name: &str) -> sqlx::Result<Vec<String>> {
    let values = Values::default().with(NAMESPACE).with(task_name);
    rows(connection, sql::CONTRACT_VERSIONS, values).await?.iter().map(|row| row.try_get(0)).collect()
}

async fn definition_row(connection: &mut SqliteConnection, row: &SqliteRow) -> sqlx::Result<DefinitionRow> {
    let contracts = rows(connection, sql::CONTRACTS, Values::default().with(row.try_get::<i64, _>(0)?)).await?;
    let contract =
        |row: &SqliteRow| Ok(Arc::from(format!("{}@{}", row.try_get::<&str, _>(0)?, row.try_get::<&str, _>(1)?)));
    Ok(DefinitionRow {
        name: text(row, 1)?,
        version: text(row, 2)?,
        version_order: row.try_get(3)?,
        prerelease: row.try_get::<i64, _>(4)? == 1,
        hash: bytes(row, 5)?,
        description: row.try_get(6)?,
        json: row.try_get(7)?,
        source: row.try_get(8)?,
        contracts: contracts.iter().map(contract).collect::<sqlx::Result<_>>()?,
        create_time: time(row, 9)?,
    })
}
