//! Types of a programming language for what definitions declare: `generate task-types`.
//!
//! A definition's schemas become types, and each contract a function that registers a handler with exactly these types. So a
//! field that was renamed in the definition is an error of the compiler, not of the night after the deployment.
//!
//! The schemas are read into forms (`shape`) that every language can say; a file for each language writes them down.

mod document;
mod go;
mod name;
mod python;
mod shape;
#[cfg(test)]
mod tests;
mod typescript;

use super::{error::Error, output::Output};
use crate::domain::definition::{Definition, Schema};
use document::Document;
use name::Scope;
use shape::{Declaration, Reader};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Makes code from definitions. Needs no server.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Generate {
    TaskTypes(TaskTypes),
}

/// Turns the schemas of definitions into types, and their contracts into functions that register handlers
///
/// A field that is renamed in a definition is then an error when the worker is compiled or checked. Contracts that several
/// files declare must be the same in all.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct TaskTypes {
    /// Language to write
    #[arg(long, value_enum)]
    language: Language,
    /// File to write; without it the code goes to stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Name of the Go package
    #[arg(long, value_name = "NAME", default_value = "contracts")]
    package: String,
    /// Definitions, YAML or JSON; of a folder all `.yaml`, `.yml` and `.json` files in it and below
    #[arg(required = true, value_name = "FILE|FOLDER")]
    files: Vec<PathBuf>,
}

const HELP: &str = "Examples:
  orbit generate task-types --language go --package shop --out shop/contracts.go order.yaml
  orbit generate task-types --language python --out shop/contracts.py definitions/
  orbit generate task-types --language typescript --out src/contracts.ts order.yaml invoice.yaml";

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Language {
    /// A Go file; needs the module `orbit.example/sdk/go`.
    Go,
    /// A Python module; needs `orbit-sdk`.
    Python,
    /// A TypeScript module; needs `@orbit/sdk`.
    Typescript,
}

/// All that the files declare, in the order of names.
#[derive(Debug, Default)]
struct Declared {
    /// `name@version` of the definitions.
    definitions: Vec<String>,
    contracts: BTreeMap<Arc<str>, Contract>,
    workflows: BTreeMap<Arc<str>, Workflow>,
    declarations: Vec<Declaration>,
}

/// What is written for a contract.
#[derive(Debug)]
struct Contract {
    /// `PaymentsChargeV1`.
    stem: String,
    /// Name of the input's type.
    input: String,
    /// Name of the output's type.
    output: String,
    /// The schemas as text, to tell whether another file says the same.
    source: [String; 2],
}

/// What is written for a workflow: the types that its callers need. A later version takes the place of an earlier one.
#[derive(Debug)]
struct Workflow {
    version: semver::Version,
    schemas: Vec<(String, String)>,
}

impl Generate {
    pub(super) fn run(self, output: Output) -> Result<(), Error> {
        match self {
            Self::TaskTypes(types) => types.run(output),
        }
    }
}

impl TaskTypes {
    fn run(self, output: Output) -> Result<(), Error> {
        let definitions = super::definition::parse_all(&self.files, output)?;
        let code = self.write(&definitions)?;
        match &self.out {
            None => output.line(code.trim_end()),
            Some(path) => save(path, &code),
        }
    }

    fn write(&self, definitions: &[Definition]) -> Result<String, Error> {
        let declared = Declared::of(definitions)?;
        Ok(match self.language {
            Language::Go => go::write(&declared, &self.package),
            Language::Python => python::write(&declared),
            Language::Typescript => typescript::write(&declared),
        })
    }
}

/// Writes the file only if it changes, so that build tools see no news where there is none.
fn save(path: &Path, code: &str) -> Result<(), Error> {
    if fs::read_to_string(path).is_ok_and(|old| old == code) {
        return Ok(());
    }
    let failed = |error: std::io::Error| Error::usage(format!("cannot write {}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, code).map_err(failed)
}

impl Declared {
    fn of(definitions: &[Definition]) -> Result<Self, Error> {
        let mut declared = Self::default();
        let mut scope = Scope::default();
        for definition in definitions {
            declared.definitions.push(format!("{}@{}", definition.name, definition.version));
            for (contract, schemas) in &definition.tasks {
                let text = |schema: &Option<Arc<Schema>>| schema.as_ref().map_or_else(any, |schema| schema.to_json());
                let source = [text(&schemas.input), text(&schemas.output)];
                match declared.contracts.get(contract) {
                    Some(known) if known.source == source => {}
                    Some(_) => {
                        let message = format!("two definitions declare {contract} with different schemas");
                        return Err(Error::failure(message)
                            .hint("a contract is the same wherever it is used; give a new one another version"));
                    }
                    None => {
                        let stem = scope.unique(&name::of_contract(contract));
                        let [input, output] = [format!("{stem}Input"), format!("{stem}Output")];
                        let contract = Arc::clone(contract);
                        declared.contracts.insert(contract, Contract { stem, input, output, source });
                    }
                }
            }
            declared.add_workflow(definition);
        }
        declared.declare(&mut scope);
        Ok(declared)
    }

    fn add_workflow(&mut self, definition: &Definition) {
        if self.workflows.get(&definition.name).is_some_and(|known| known.version > definition.version) {
            return;
        }
        let stem = name::upper_camel(&definition.name);
        let mut schemas = Vec::new();
        let mut add = |name: String, schema: &Arc<Schema>| schemas.push((name, schema.to_json()));
        definition.input.iter().for_each(|schema| add(format!("{stem}Input"), schema));
        definition.output.iter().for_each(|schema| add(format!("{stem}Output"), schema));
        for (signal, schema) in &definition.signals {
            add(format!("{stem}{}Signal", name::upper_camel(signal)), schema);
        }
        self.workflows.insert(Arc::clone(&definition.name), Workflow { version: definition.version.clone(), schemas });
    }

    /// Reads all schemas, so that every name in the files is known before the first type is declared.
    fn declare(&mut self, scope: &mut Scope) {
        let contracts = self.contracts.values().flat_map(|contract| {
            let [input, output] = &contract.source;
            [(&contract.input, &contract.stem, input), (&contract.output, &contract.stem, output)]
        });
        let workflows = self.workflows.values().flat_map(|workflow| &workflow.schemas);
        let all = contracts.chain(workflows.map(|(name, text)| (name, name, text)));
        for (name, stem, text) in all {
            let schema: Document = serde_json::from_str(text).expect("a compiled schema is JSON");
            Reader::new(&schema, stem, scope, &mut self.declarations).declare(name);
        }
    }
}

/// The schema of any value.
fn any() -> String {
    "true".to_owned()
}

/// The first lines of every file.
fn header(declared: &Declared) -> String {
    format!("Code generated by `orbit generate task-types` from {}. DO NOT EDIT.", declared.definitions.join(", "))
}
