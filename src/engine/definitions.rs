//! Definitions: found, and kept compiled while they are in use. [`deploy`](super::deploy) stores them.

use super::{Core, Engine, call::Error};
use crate::domain::{Timestamp, definition::Definition};
use crate::store::{DefinitionRow, FindDefinition};
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

    pub(super) fn forget_latest(&self, name: &str) {
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
        self.find_definition(hash).await?.ok_or_else(|| {
            tracing::error!("an execution's definition is not in the store");
            Error::Internal
        })
    }

    /// The definition of this hash, if there is one.
    pub(super) async fn find_definition(&self, hash: [u8; 32]) -> Result<Option<Arc<Definition>>, Error> {
        let found = self.definitions.known.lock().unwrap_or_else(PoisonError::into_inner).by_hash.get(&hash).cloned();
        if let Some(definition) = found {
            return Ok(Some(definition));
        }
        let row = self.store.definition(&FindDefinition::Hash(hash)).await.map_err(Error::Store)?;
        let Some(row) = row else { return Ok(None) };
        let definition = compile(&row)?;
        self.definitions.keep(None, &definition);
        Ok(Some(definition))
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
