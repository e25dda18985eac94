//! Definitions: deployed, found, and kept compiled while they are in use.

use super::{Core, Engine, call::Error};
use crate::domain::{Timestamp, definition::Definition, version};
use crate::store::{DefinitionRow, DefinitionStored, FindDefinition};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Compiled definitions that are kept; when there are more, all are dropped and compiled again as they are used.
const COMPILED_MAX: usize = 1_000;
/// How long "the latest version" is remembered: another node may deploy a newer one.
const LATEST_AGE_MAX: Duration = Duration::from_secs(1);

/// Name and version; no version for the latest.
type Name = (Arc<str>, Option<Arc<str>>);

#[derive(Default)]
struct Known {
    by_hash: HashMap<[u8; 32], Arc<Definition>>,
    /// The hash behind a name, and when it was looked up.
    by_name: HashMap<Name, ([u8; 32], Timestamp)>,
}

/// The definitions that this node has compiled.
#[derive(Default)]
pub(super) struct Definitions {
    known: Mutex<Known>,
}

impl Definitions {
    fn find(&self, name: &Arc<str>, version: Option<&Arc<str>>, now: Timestamp) -> Option<Arc<Definition>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (hash, since) = known.by_name.get(&(name.clone(), version.cloned()))?;
        let is_fresh = version.is_some() || now.since(*since) < LATEST_AGE_MAX;
        known.by_hash.get(hash).filter(|_| is_fresh).cloned()
    }

    fn keep(&self, name: Option<(Arc<str>, Option<Arc<str>>, Timestamp)>, definition: &Arc<Definition>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.by_hash.len() >= COMPILED_MAX || known.by_name.len() >= COMPILED_MAX {
            *known = Known::default();
        }
        known.by_hash.insert(definition.hash, definition.clone());
        if let Some((name, version, now)) = name {
            known.by_name.insert((name, version), (definition.hash, now));
        }
    }

    fn forget_latest(&self, name: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_name.retain(|(known, version), _| version.is_some() || **known != *name);
    }
}

impl Core {
    /// The definition of a start: this version, or the highest release.
    pub(super) async fn definition_for(
        &self,
        name: &Arc<str>,
        version: Option<&Arc<str>>,
    ) -> Result<Arc<Definition>, Error> {
        let now = self.clock.now();
        if let Some(definition) = self.definitions.find(name, version, now) {
            return Ok(definition);
        }
        let find = match version {
            Some(version) => FindDefinition::Version(name.clone(), version.clone()),
            None => FindDefinition::Latest { name: name.clone(), prerelease: false },
        };
        let row = self.store.definition(&find).await.map_err(Error::Store)?;
        let missing =
            || Error::DefinitionNotFound { name: name.to_string(), version: version.map(ToString::to_string) };
        let definition = compile(&row.ok_or_else(missing)?)?;
        self.definitions.keep(Some((name.clone(), version.cloned(), now)), &definition);
        Ok(definition)
    }

    /// The definition that a running execution keeps.
    pub(super) async fn definition_of(&self, hash: [u8; 32]) -> Result<Arc<Definition>, Error> {
        let found = self.definitions.known.lock().unwrap_or_else(PoisonError::into_inner).by_hash.get(&hash).cloned();
        if let Some(definition) = found {
            return Ok(definition);
        }
        let row = self.store.definition(&FindDefinition::Hash(hash)).await.map_err(Error::Store)?;
        let Some(row) = row else {
            tracing::error!("an execution's definition is not in the store");
            return Err(Error::Internal);
        };
        let definition = compile(&row)?;
        self.definitions.keep(None, &definition);
        Ok(definition)
    }
}

/// Compiles what was checked when it was deployed.
fn compile(row: &DefinitionRow) -> Result<Arc<Definition>, Error> {
    Definition::parse_stored(&row.json).map(Arc::new).map_err(|faults| {
        tracing::error!(definition = %row.name, version = %row.version, ?faults, "a stored definition does not compile");
        Error::Internal
    })
}

impl Engine {
    /// Stores a definition that was checked. Says whether it is new; the same content again changes nothing.
    ///
    /// # Errors
    /// `DefinitionAlreadyExists` if its version has other content; `HttpDisabled` if no server runs its `http` steps;
    /// `Store`.
    pub async fn deploy(&self, definition: Definition, source: String) -> Result<bool, Error> {
        self.check_served(&definition).await?;
        let name: Arc<str> = definition.name.clone();
        let version = definition.version.to_string();
        let row = DefinitionRow {
            name: name.clone(),
            version: version.as_str().into(),
            version_order: version::order(&definition.version),
            prerelease: !definition.version.pre.is_empty(),
            hash: definition.hash,
            description: definition.description.to_string(),
            json: definition.to_json(),
            source,
            contracts: definition.contracts().into_iter().collect(),
            create_time: self.core.clock.now(),
        };
        let core = self.core.clone();
        let stored = self.detached(async move { core.store.put_definition(&row).await.map_err(Error::Store) }).await?;
        self.core.definitions.forget_latest(&name);
        match stored {
            DefinitionStored::Created => Ok(true),
            DefinitionStored::Same => Ok(false),
            DefinitionStored::Different => Err(Error::DefinitionAlreadyExists { name: name.to_string(), version }),
        }
    }

    /// Reads a definition: this version, or the highest; a pre-release only if there is nothing else.
    ///
    /// # Errors
    /// `DefinitionNotFound`; `Store`.
    pub async fn definition(&self, name: &str, version: Option<&str>) -> Result<DefinitionRow, Error> {
        let find = match version {
            Some(version) => FindDefinition::Version(name.into(), version.into()),
            None => FindDefinition::Latest { name: name.into(), prerelease: true },
        };
        let row = self.core.store.definition(&find).await.map_err(Error::Store)?;
        row.ok_or_else(|| Error::DefinitionNotFound { name: name.into(), version: version.map(Into::into) })
    }
}
