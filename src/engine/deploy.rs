//! Deploys definitions, those that refer to each other together.
//!
//! - A child's range stands for the highest version that fits, among those that are stored and those that come with it;
//!   the parent keeps that version's hash for ever, whatever is deployed later.
//! - All faults of all definitions are told at once, and nothing is stored unless all are right.
//! - What is stored already keeps what it was pinned to: the same text again changes nothing.

use super::{Core, Engine, call::Error};
use crate::domain::{
    definition::{ChildStep, Definition, Fault, Pin, code},
    version,
};
use crate::store::{DefinitionRow, DefinitionStored, FindDefinition};
use semver::Version;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Stored versions of a workflow that are read at once.
const PAGE_LENGTH: usize = 100;
/// Versions that a message names.
const VERSIONS_NAMED_MAX: usize = 5;
/// Definitions of a cycle that a message names.
const CYCLE_NAMED_MAX: usize = 20;

/// A definition that was checked, and the text that is kept with it.
#[derive(Debug)]
pub struct Deployment {
    /// The definition.
    pub definition: Definition,
    /// Its text; may be empty.
    pub source: String,
}

/// The versions of workflows by name.
type Versions = BTreeMap<Arc<str>, BTreeMap<Version, Candidate>>;

/// A version that a child may be pinned to.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    hash: [u8; 32],
    /// Its place among the new definitions, if it is one of them.
    new: Option<usize>,
}

impl Engine {
    /// Stores a definition that was checked. Says whether it is new; the same content again changes nothing.
    ///
    /// # Errors
    /// `DefinitionsInvalid` if a child is not there; `DefinitionAlreadyExists` if its version has other content;
    /// `HttpDisabled` if no server runs its `http` steps; `Store`.
    pub async fn deploy(&self, definition: Definition, source: String) -> Result<bool, Error> {
        let stored = self.deploy_all(vec![Deployment { definition, source }], false).await?;
        Ok(stored == [true])
    }

    /// Stores definitions that were checked, in any order; with `validate_only` says what would come of it. Says of each
    /// whether this call stored it.
    ///
    /// # Errors
    /// `DefinitionsInvalid` with every fault; `DefinitionAlreadyExists` if a version has other content; `HttpDisabled` if
    /// no server runs the `http` steps of one; `Store`. Nothing was stored.
    pub async fn deploy_all(&self, deployments: Vec<Deployment>, validate_only: bool) -> Result<Vec<bool>, Error> {
        for deployment in &deployments {
            self.check_served(&deployment.definition).await?;
        }
        let core = self.core.clone();
        self.detached(async move { core.deploy_all(deployments, validate_only).await }).await
    }
}

impl Core {
    async fn deploy_all(&self, deployments: Vec<Deployment>, validate_only: bool) -> Result<Vec<bool>, Error> {
        let mut is_stored = Vec::with_capacity(deployments.len());
        for Deployment { definition, .. } in &deployments {
            is_stored.push(self.is_stored(definition).await?);
        }
        let mut versions = self.stored_children(&deployments, &is_stored).await?;
        let faults = add_new(&mut versions, &deployments, &is_stored);
        let (pins, faults) = pin_all(&versions, &deployments, &is_stored, faults);
        if !faults.is_empty() {
            return Err(Error::DefinitionsInvalid { faults: faults.into() });
        }
        if validate_only {
            return Ok(vec![false; deployments.len()]);
        }
        let names: Vec<(Arc<str>, Version)> =
            deployments.iter().map(|it| (it.definition.name.clone(), it.definition.version.clone())).collect();
        let pinned = deployments.into_iter().zip(pins);
        let rows: Vec<_> = pinned.map(|(deployment, pins)| self.row(deployment, &pins)).collect();
        let stored = self.store.put_definitions(&rows).await.map_err(Error::Store)?;
        for (name, _) in &names {
            self.definitions.forget_latest(name);
        }
        if let Some(different) = stored.iter().position(|stored| *stored == DefinitionStored::Different) {
            return Err(already_exists(&names[different].0, &names[different].1));
        }
        Ok(stored.iter().map(|stored| *stored == DefinitionStored::Created).collect())
    }

    /// Whether a definition is stored, so that its children have their pins; fails if other content has its name and
    /// version. Of one without children it does not matter.
    async fn is_stored(&self, definition: &Definition) -> Result<bool, Error> {
        if definition.children().next().is_none() {
            return Ok(false);
        }
        let find = FindDefinition::Version(definition.name.clone(), definition.version.to_string().into());
        match self.store.definition(&find).await.map_err(Error::Store)? {
            Some(row) if row.hash == definition.hash => Ok(true),
            Some(_) => Err(already_exists(&definition.name, &definition.version)),
            None => Ok(false),
        }
    }

    /// The stored versions of all workflows that new definitions start.
    async fn stored_children(&self, deployments: &[Deployment], is_stored: &[bool]) -> Result<Versions, Error> {
        let mut versions = Versions::new();
        for (deployment, _) in deployments.iter().zip(is_stored).filter(|(_, is_stored)| !**is_stored) {
            for (_, child) in deployment.definition.children() {
                if !versions.contains_key(&child.workflow) {
                    let stored = self.stored_versions(&child.workflow).await?;
                    versions.insert(child.workflow.clone(), stored);
                }
            }
        }
        Ok(versions)
    }

    async fn stored_versions(&self, name: &Arc<str>) -> Result<BTreeMap<Version, Candidate>, Error> {
        let mut versions = BTreeMap::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let place = after.as_ref().map(|order| (&**name, order.as_slice()));
            let rows = self.store.definitions(Some(name), place, PAGE_LENGTH).await.map_err(Error::Store)?;
            let is_last = rows.len() < PAGE_LENGTH;
            after = rows.last().map(|row| row.version_order.clone());
            for row in rows {
                let version = Version::parse(&row.version);
                let candidate = Candidate { hash: row.hash, new: None };
                versions.extend(version.ok().map(|version| (version, candidate)));
            }
            if is_last {
                return Ok(versions);
            }
        }
    }

    fn row(&self, deployment: Deployment, pins: &Pins) -> DefinitionRow {
        let Deployment { definition, source } = deployment;
        let definition = definition.with_pins(|child| pins.get(&key(child)).cloned());
        DefinitionRow {
            name: definition.name.clone(),
            version: definition.version.to_string().into(),
            version_order: version::order(&definition.version),
            prerelease: !definition.version.pre.is_empty(),
            hash: definition.hash,
            description: definition.description.to_string(),
            json: definition.to_json(),
            source,
            contracts: definition.contracts().into_iter().collect(),
            create_time: self.clock.now(),
        }
    }
}

fn already_exists(name: &str, version: &Version) -> Error {
    Error::DefinitionAlreadyExists { name: name.to_owned(), version: version.to_string() }
}

/// What the children of one definition stand for, by workflow and range.
type Pins = HashMap<(Arc<str>, String), Pin>;

/// A fault, and which of the definitions has it.
type Faults = Vec<(usize, Fault)>;

fn key(child: &ChildStep) -> (Arc<str>, String) {
    (child.workflow.clone(), child.range.as_str().to_owned())
}

/// Adds those that are deployed now to the versions that children may stand for. Two of one name and version are faults.
fn add_new(versions: &mut Versions, deployments: &[Deployment], is_stored: &[bool]) -> Faults {
    let mut faults = Vec::new();
    let mut first: HashMap<(Arc<str>, Version), usize> = HashMap::new();
    for (index, Deployment { definition, .. }) in deployments.iter().enumerate() {
        let (name, version) = (&definition.name, &definition.version);
        if first.insert((name.clone(), version.clone()), index).is_some() {
            let message = format!("{name}@{version} is among the definitions more than once");
            faults.push((index, of_whole(code::DEFINITION_DUPLICATE, message, "leave one of them out")));
            continue;
        }
        let candidate = Candidate { hash: definition.hash, new: (!is_stored[index]).then_some(index) };
        versions.entry(name.clone()).or_default().insert(version.clone(), candidate);
    }
    faults
}

fn of_whole(code: &'static str, message: String, hint: &str) -> Fault {
    Fault { code, message, hint: hint.to_owned(), path: String::new(), line: 0, column: 0 }
}

/// Finds what all children stand for. What is stored keeps its pins, so it gets none here.
fn pin_all(
    versions: &Versions,
    deployments: &[Deployment],
    is_stored: &[bool],
    mut faults: Faults,
) -> (Vec<Pins>, Faults) {
    let mut all = Vec::with_capacity(deployments.len());
    let mut edges: Vec<Vec<Edge<'_>>> = Vec::with_capacity(deployments.len());
    for (index, Deployment { definition, .. }) in deployments.iter().enumerate() {
        let (mut pins, mut to_new) = (Pins::new(), Vec::new());
        let children = definition.children().filter(|_| !is_stored[index]);
        for (_, child) in children {
            let known = versions.get(&child.workflow);
            let fitting = known.and_then(|known| known.iter().rev().find(|(version, _)| child.range.contains(version)));
            match fitting {
                Some((version, candidate)) => {
                    pins.insert(key(child), Pin { version: version.clone(), hash: candidate.hash });
                    to_new.extend(candidate.new.map(|to| Edge { to, child }));
                }
                None => faults.push((index, not_found(child, known))),
            }
        }
        all.push(pins);
        edges.push(to_new);
    }
    faults.extend(cycles(deployments, &edges));
    (all, faults)
}

/// A new definition that another one would start.
struct Edge<'a> {
    to: usize,
    child: &'a ChildStep,
}

fn not_found(child: &ChildStep, known: Option<&BTreeMap<Version, Candidate>>) -> Fault {
    let range = child.range.as_str();
    let named: Vec<String> =
        known.into_iter().flatten().rev().take(VERSIONS_NAMED_MAX).map(|(version, _)| version.to_string()).collect();
    let hint = if named.is_empty() {
        format!("deploy {} before, or together with this definition", child.workflow)
    } else {
        format!("there are: {}", named.join(", "))
    };
    let message = format!("no version of workflow `{}` fits `{range}`", child.workflow);
    child.place.fault(code::CHILD_NOT_FOUND, message, hint)
}

/// The children through which a new definition would start itself: each such definition has a fault at the first of them.
fn cycles(deployments: &[Deployment], edges: &[Vec<Edge<'_>>]) -> Faults {
    let mut faults = Vec::new();
    for start in 0..deployments.len() {
        let Some(path) = way_back(edges, start) else { continue };
        let name = |index: usize| {
            let definition = &deployments[index].definition;
            format!("{}@{}", definition.name, definition.version)
        };
        let mut names: Vec<String> = path.iter().take(CYCLE_NAMED_MAX).map(|index| name(*index)).collect();
        if path.len() > CYCLE_NAMED_MAX {
            names.push("…".to_owned());
        }
        names.push(name(start));
        let message = format!("the workflow would start itself: {}", names.join(" -> "));
        let next = path.get(1).copied().unwrap_or(start);
        let edge = edges[start].iter().find(|edge| edge.to == next).expect("the way goes over an edge");
        let hint = "a parent keeps the hash of its child's version, so no version can contain itself; name another one";
        faults.push((start, edge.child.place.fault(code::CHILD_CYCLE, message, hint)));
    }
    faults
}

/// A shortest way from a definition to itself.
fn way_back(edges: &[Vec<Edge<'_>>], start: usize) -> Option<Vec<usize>> {
    let mut came_from: Vec<Option<usize>> = vec![None; edges.len()];
    let mut front = std::collections::VecDeque::from([start]);
    while let Some(at) = front.pop_front() {
        for edge in &edges[at] {
            if edge.to == start {
                let mut path = vec![at];
                while let Some(before) = came_from[*path.last().expect("it begins with one")] {
                    path.push(before);
                }
                path.reverse();
                return Some(path);
            }
            if came_from[edge.to].is_none() {
                came_from[edge.to] = Some(at);
                front.push_back(edge.to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(name: &str, version: &str, children: &[&str]) -> Deployment {
        let steps: Vec<String> =
            children.iter().enumerate().map(|(n, child)| format!("{{id: c{n}, workflow: '{child}'}}")).collect();
        let steps = if steps.is_empty() { "{id: a, compute: 1}".to_owned() } else { steps.join(", ") };
        let source = format!("name: {name}\nversion: {version}\nsteps: [{steps}]");
        let (definition, _) = Definition::parse("test.yaml", &source).unwrap();
        Deployment { definition, source }
    }

    /// What children stand for, as `order: invoice@1.0.0`, or the faults' codes and messages.
    fn resolve(new: &[Deployment], stored: &[(&str, &str)]) -> Result<Vec<String>, Vec<String>> {
        let mut versions = Versions::new();
        for (name, version) in stored {
            let candidate = Candidate { hash: [0; 32], new: None };
            versions.entry(Arc::from(*name)).or_default().insert(Version::parse(version).unwrap(), candidate);
        }
        let is_stored = vec![false; new.len()];
        let faults = add_new(&mut versions, new, &is_stored);
        let (pins, faults) = pin_all(&versions, new, &is_stored, faults);
        if !faults.is_empty() {
            return Err(faults
                .iter()
                .map(|(index, fault)| format!("{index} {}: {}", fault.code, fault.message))
                .collect());
        }
        let line = |(name, pins): (&str, &Pins)| {
            let mut pins: Vec<String> =
                pins.iter().map(|((child, _), pin)| format!("{name}: {child}@{}", pin.version)).collect();
            pins.sort();
            pins
        };
        Ok(new.iter().map(|it| &*it.definition.name).zip(&pins).flat_map(line).collect())
    }

    #[test]
    fn a_range_stands_for_the_highest_version_that_fits_stored_or_new() {
        let order = || deployment("order", "1.0.0", &["invoice@^1"]);
        let stored = [("invoice", "1.2.0"), ("invoice", "1.10.0"), ("invoice", "2.0.0"), ("invoice", "1.11.0-rc.1")];
        assert_eq!(resolve(&[order()], &stored).unwrap(), ["order: invoice@1.10.0"]);
        let both = [order(), deployment("invoice", "1.11.0", &[])];
        assert_eq!(resolve(&both, &stored).unwrap(), ["order: invoice@1.11.0"]);
    }

    #[test]
    fn all_children_that_are_missing_are_told() {
        let new = [deployment("a", "1.0.0", &["b@^1", "c@^3"]), deployment("d", "1.0.0", &["e@*"])];
        let missing = resolve(&new, &[("c", "2.0.0")]).unwrap_err();
        assert_eq!(
            missing,
            [
                "0 CHILD_NOT_FOUND: no version of workflow `b` fits `^1`",
                "0 CHILD_NOT_FOUND: no version of workflow `c` fits `^3`",
                "1 CHILD_NOT_FOUND: no version of workflow `e` fits `*`"
            ]
        );
    }

    #[test]
    fn a_workflow_cannot_contain_itself_but_an_older_version() {
        let ring = [
            deployment("a", "1.0.0", &["b@*"]),
            deployment("b", "1.0.0", &["c@*"]),
            deployment("c", "1.0.0", &["a@*"]),
            deployment("d", "1.0.0", &["a@*"]),
        ];
        let faults = resolve(&ring, &[]).unwrap_err();
        assert_eq!(faults.len(), 3);
        assert_eq!(
            faults[0],
            "0 CHILD_CYCLE: the workflow would start itself: a@1.0.0 -> b@1.0.0 -> c@1.0.0 -> a@1.0.0"
        );
        let own = [deployment("a", "1.1.0", &["a@^1"])];
        assert_eq!(
            resolve(&own, &[]).unwrap_err(),
            ["0 CHILD_CYCLE: the workflow would start itself: a@1.1.0 -> a@1.1.0"]
        );
        let older = [deployment("a", "1.1.0", &["a@1.0.0"])];
        assert_eq!(resolve(&older, &[("a", "1.0.0")]).unwrap(), ["a: a@1.0.0"]);
    }

    #[test]
    fn one_name_and_version_stands_among_them_once() {
        let twice = [deployment("a", "1.0.0", &[]), deployment("a", "1.0.0", &[])];
        assert_eq!(
            resolve(&twice, &[]).unwrap_err(),
            ["1 DEFINITION_DUPLICATE: a@1.0.0 is among the definitions more than once"]
        );
    }
}
