//! Definitions and the contracts that they use.

use super::executions::limit;
use super::row::{bytes, definition_row};
use super::{Connection, List, Row as _, Transaction, text as sql};
use crate::store::{Change, DefinitionRow, DefinitionStored, FindDefinition, NAMESPACE};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Stores all, or none if one has other content than is stored.
pub(crate) async fn put<T: Transaction>(
    transaction: &mut T,
    definitions: &[DefinitionRow],
) -> sqlx::Result<Vec<DefinitionStored>> {
    let mut stored = Vec::with_capacity(definitions.len());
    for definition in definitions {
        stored.push(find_same(transaction, definition).await?.unwrap_or(DefinitionStored::Created));
    }
    if stored.contains(&DefinitionStored::Different) {
        return Ok(stored);
    }
    // In one order, so that no two who store the same wait for each other.
    let mut order: Vec<usize> = (0..definitions.len()).filter(|at| stored[*at] == DefinitionStored::Created).collect();
    order.sort_by_key(|at| (&definitions[*at].name, &definitions[*at].version));
    for at in order {
        stored[at] = insert(transaction, &definitions[at]).await?;
        if stored[at] == DefinitionStored::Different && definitions.len() > 1 {
            // Another writer was first since the look above. What is here already must not stay alone.
            return Err(sqlx::Error::InvalidArgument("other content was stored at the same time".to_owned()));
        }
    }
    Ok(stored)
}

/// How a definition compares to the stored one of its name and version; nothing if there is none.
async fn find_same<T: Transaction>(
    transaction: &mut T,
    definition: &DefinitionRow,
) -> sqlx::Result<Option<DefinitionStored>> {
    let values = [NAMESPACE.into(), (&definition.name).into(), (&definition.version).into()];
    let Some(found) = transaction.row(sql::DEFINITION_BY_VERSION, values.into()).await? else { return Ok(None) };
    let same = bytes(&found, 5)? == definition.hash;
    Ok(Some(if same { DefinitionStored::Same } else { DefinitionStored::Different }))
}

async fn insert<T: Transaction>(transaction: &mut T, definition: &DefinitionRow) -> sqlx::Result<DefinitionStored> {
    let values = [
        NAMESPACE.into(),
        (&definition.name).into(),
        (&definition.version).into(),
        definition.version_order.as_slice().into(),
        definition.prerelease.into(),
        (&definition.hash).into(),
        definition.description.as_str().into(),
        definition.json.as_str().into(),
        definition.source.as_str().into(),
        definition.create_time.as_micros().into(),
    ];
    let inserted = transaction.returning(Change::DefinitionInserted, sql::DEFINITION_INSERT, values.into()).await?;
    let Some(inserted) = inserted.first() else {
        return find_same(transaction, definition).await?.ok_or(sqlx::Error::RowNotFound);
    };
    let key = inserted.integer(0)?;
    let contracts = List::of(definition.contracts.iter().map(|contract| {
        // A contract is `name@version`; the version has no `@`.
        let (name, version) = contract.rsplit_once('@').unwrap_or((contract, ""));
        [key.into(), NAMESPACE.into(), name.into(), version.into()]
    }));
    transaction.run_many(Change::ContractInserted, &sql::CONTRACTS_INSERT, contracts).await?;
    Ok(DefinitionStored::Created)
}

pub(crate) async fn definition<C: Connection>(
    connection: &mut C,
    find: &FindDefinition,
) -> sqlx::Result<Option<DefinitionRow>> {
    let (text, values) = match find {
        FindDefinition::Hash(hash) => (sql::DEFINITION_BY_HASH, vec![NAMESPACE.into(), hash.into()]),
        FindDefinition::Version(name, version) => {
            (sql::DEFINITION_BY_VERSION, vec![NAMESPACE.into(), name.into(), version.into()])
        }
        FindDefinition::Latest { name, prerelease } => {
            (sql::DEFINITION_LATEST, vec![NAMESPACE.into(), name.into(), (*prerelease).into()])
        }
    };
    let found = connection.rows(text, values.into()).await?;
    Ok(with_contracts(connection, found).await?.pop())
}

pub(crate) async fn definitions<C: Connection>(
    connection: &mut C,
    name: Option<&str>,
    after: Option<(&str, &[u8])>,
    most: usize,
) -> sqlx::Result<Vec<DefinitionRow>> {
    let values = [
        NAMESPACE.into(),
        name.into(),
        after.map(|(name, _)| name).into(),
        after.map(|(_, order)| order).into(),
        limit(most).into(),
    ];
    let found = connection.rows(sql::DEFINITIONS, values.into()).await?;
    with_contracts(connection, found).await
}

pub(crate) async fn contract_versions<C: Connection>(connection: &mut C, task_name: &str) -> sqlx::Result<Vec<String>> {
    let rows = connection.rows(sql::CONTRACT_VERSIONS, [NAMESPACE.into(), task_name.into()].into()).await?;
    rows.iter().map(|row| row.text(0).map(str::to_owned)).collect()
}

/// Adds the contracts, which were committed with their definition and never change: so a statement of its own sees them.
async fn with_contracts<C: Connection>(connection: &mut C, found: Vec<C::Row>) -> sqlx::Result<Vec<DefinitionRow>> {
    let keys: Vec<i64> = found.iter().map(|row| row.integer(0)).collect::<sqlx::Result<_>>()?;
    let mut contracts: BTreeMap<i64, BTreeSet<(String, String)>> = BTreeMap::new();
    let list = List::of(keys.iter().map(|key| [(*key).into()]));
    for row in connection.rows_of_many(&sql::CONTRACTS, list).await? {
        let contract = (row.text(1)?.to_owned(), row.text(2)?.to_owned());
        contracts.entry(row.integer(0)?).or_default().insert(contract);
    }
    let mut contracts_of = |key| -> Vec<Arc<str>> {
        let contracts = contracts.remove(&key).unwrap_or_default();
        contracts.iter().map(|(name, version)| format!("{name}@{version}").into()).collect()
    };
    found.iter().zip(keys).map(|(row, key)| definition_row(row, contracts_of(key))).collect()
}
