//! Definitions: stored once, found by hash, by version, as the latest.

use crate::{make::*, on_every_store};
use orbit::store::{DefinitionRow, DefinitionStored, FindDefinition, Store};

on_every_store![
    a_definition_is_stored_once_and_never_changed,
    definitions_are_stored_all_or_none,
    a_definition_is_found_by_hash_and_by_version,
    the_latest_is_the_highest_release,
    definitions_are_listed_highest_first_in_pages,
    versions_of_a_contract_are_those_in_use,
];

async fn a_definition_is_stored_once_and_never_changed(store: &dyn Store) {
    let first = definition("order", "1.0.0", 1);
    assert_eq!(store.put_definition(&first).await.unwrap(), DefinitionStored::Created);
    let again = DefinitionRow { create_time: time(99), ..first.clone() };
    assert_eq!(store.put_definition(&again).await.unwrap(), DefinitionStored::Same);
    let other = DefinitionRow { hash: [9; 32], contracts: vec!["x@1".into()], ..first.clone() };
    assert_eq!(store.put_definition(&other).await.unwrap(), DefinitionStored::Different);
    let find = FindDefinition::Version("order".into(), "1.0.0".into());
    assert_eq!(store.definition(&find).await.unwrap(), Some(first));
    assert_eq!(store.contract_versions("x").await.unwrap(), [""; 0]);
}

async fn definitions_are_stored_all_or_none(store: &dyn Store) {
    use DefinitionStored::{Created, Different, Same};
    let (a, b, c) = (definition("a", "1.0.0", 1), definition("b", "1.0.0", 2), definition("c", "1.0.0", 3));
    assert_eq!(store.put_definitions(&[]).await.unwrap(), []);
    assert_eq!(store.put_definitions(&[b.clone(), a.clone()]).await.unwrap(), [Created, Created]);
    let other = DefinitionRow { hash: [9; 32], ..a.clone() };
    let stored = store.put_definitions(&[c.clone(), other, b.clone()]).await.unwrap();
    assert_eq!((stored[1], stored[2]), (Different, Same));
    let find = FindDefinition::Version("c".into(), "1.0.0".into());
    assert_eq!(store.definition(&find).await.unwrap(), None);
    assert_eq!(store.put_definitions(&[a, c.clone(), b]).await.unwrap(), [Same, Created, Same]);
    assert_eq!(store.definition(&find).await.unwrap(), Some(c));
}

async fn a_definition_is_found_by_hash_and_by_version(store: &dyn Store) {
    let row = DefinitionRow {
        contracts: vec!["b@2".into(), "a@1".into(), "b@2".into(), "b@10".into()],
        ..definition("order", "1.0.0", 1)
    };
    store.put_definition(&row).await.unwrap();
    let stored = DefinitionRow { contracts: vec!["a@1".into(), "b@10".into(), "b@2".into()], ..row };
    assert_eq!(store.definition(&FindDefinition::Hash([1; 32])).await.unwrap(), Some(stored.clone()));
    assert_eq!(store.definition(&FindDefinition::Hash([2; 32])).await.unwrap(), None);
    let version = |name: &str, version: &str| FindDefinition::Version(name.into(), version.into());
    assert_eq!(store.definition(&version("order", "1.0.0")).await.unwrap(), Some(stored));
    assert_eq!(store.definition(&version("order", "1.0.1")).await.unwrap(), None);
    assert_eq!(store.definition(&version("other", "1.0.0")).await.unwrap(), None);
}

async fn the_latest_is_the_highest_release(store: &dyn Store) {
    let latest = async |prerelease| {
        let found = store.definition(&FindDefinition::Latest { name: "order".into(), prerelease }).await.unwrap();
        found.map(|row| row.version.to_string())
    };
    assert_eq!(latest(true).await, None);
    store.put_definition(&definition("order", "1.0.0-a", 1)).await.unwrap();
    store.put_definition(&definition("order", "1.0.0-b", 2)).await.unwrap();
    assert_eq!((latest(false).await, latest(true).await.as_deref()), (None, Some("1.0.0-b")));
    store.put_definition(&definition("order", "1.0.0", 3)).await.unwrap();
    store.put_definition(&definition("order", "2.0.0", 5)).await.unwrap();
    store.put_definition(&definition("order", "1.5.0", 4)).await.unwrap();
    store.put_definition(&definition("order", "3.0.0-a", 6)).await.unwrap();
    assert_eq!((latest(false).await.as_deref(), latest(true).await.as_deref()), (Some("2.0.0"), Some("2.0.0")));
}

async fn definitions_are_listed_highest_first_in_pages(store: &dyn Store) {
    for (name, version, order) in
        [("b", "1.0.0", 1), ("a", "2.0.0", 2), ("a", "1.0.0", 1), ("b", "3.0.0-x", 3), ("c", "1.0.0", 1)]
    {
        store.put_definition(&definition(name, version, order)).await.unwrap();
    }
    let listed =
        |rows: &[DefinitionRow]| rows.iter().map(|row| format!("{}@{}", row.name, row.version)).collect::<Vec<_>>();
    let all = store.definitions(None, None, 10).await.unwrap();
    assert_eq!(listed(&all), ["a@2.0.0", "a@1.0.0", "b@3.0.0-x", "b@1.0.0", "c@1.0.0"]);
    for (index, row) in all.iter().enumerate() {
        let after = store.definitions(None, Some((&row.name, &row.version_order)), 2).await.unwrap();
        assert_eq!(listed(&after), listed(&all[index + 1..(index + 3).min(all.len())]));
    }
    assert_eq!(listed(&store.definitions(Some("b"), None, 10).await.unwrap()), ["b@3.0.0-x", "b@1.0.0"]);
    assert_eq!(listed(&store.definitions(Some("b"), Some(("b", &[3])), 10).await.unwrap()), ["b@1.0.0"]);
    assert_eq!(listed(&store.definitions(Some("d"), None, 10).await.unwrap()), [""; 0]);
}

async fn versions_of_a_contract_are_those_in_use(store: &dyn Store) {
    store
        .put_definition(&DefinitionRow { contracts: vec!["t@2".into(), "u@9".into()], ..definition("a", "1.0.0", 1) })
        .await
        .unwrap();
    store
        .put_definition(&DefinitionRow { contracts: vec!["t@1".into()], ..definition("b", "1.0.0", 2) })
        .await
        .unwrap();
    store
        .put_definition(&DefinitionRow { contracts: vec!["t@1".into()], ..definition("c", "1.0.0", 3) })
        .await
        .unwrap();
    assert_eq!(store.contract_versions("t").await.unwrap(), ["1", "2"]);
    assert_eq!(store.contract_versions("v").await.unwrap(), [""; 0]);
}
