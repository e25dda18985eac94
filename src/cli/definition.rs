//! Checks and deploys definitions: `validate`, `deploy`.

use super::{
    client::{Connection, call},
    error::Error,
    output::{Output, Tone},
};
use crate::{
    domain::definition::{Definition, Fault},
    proto::{
        admin::{
            DefinitionFault, DefinitionFile, DeployDefinitionsRequest, DeployedDefinition, definition_file::Content,
        },
        json::pretty,
    },
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Longest name of a file that the server takes, in characters.
const FILE_NAME_CHARS_MAX: usize = 255;

/// Checks definitions, here and without a server. Shows all faults, each with its place.
#[derive(Debug, clap::Args)]
pub(super) struct Validate {
    /// Files to check, YAML or JSON
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Deploys definitions, those that refer to each other together: all of them, or none if one has a fault.
#[derive(Debug, clap::Args)]
pub(super) struct Deploy {
    /// Files to deploy, YAML or JSON; of a folder all `.yaml`, `.yml` and `.json` files in it and below
    #[arg(required = true, value_name = "FILE|FOLDER")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

/// A file and what a check of it found.
#[derive(Debug, serde::Serialize)]
struct Checked {
    file: String,
    #[serde(skip)]
    text: String,
    /// `name@version`; none if the file has faults.
    definition: Option<String>,
    faults: Vec<DefinitionFault>,
    warnings: Vec<DefinitionFault>,
}

impl Validate {
    pub(super) fn run(self, output: Output) -> Result<(), Error> {
        let checked = check_all(&self.files)?;
        if output.is_json() {
            let text = serde_json::to_string(&checked).map_err(|error| Error::failure(error.to_string()))?;
            output.line(&pretty(&text))?;
        } else {
            for file in &checked {
                for line in file.lines(output) {
                    output.line(&line)?;
                }
                if let Some(definition) = &file.definition {
                    output.line(&format!("{}: {definition} is valid", file.file))?;
                }
            }
        }
        match faults(&checked) {
            None => Ok(()),
            // The faults are the result, and the result is JSON.
            Some(_) if output.is_json() => Err(Error::Said(super::exit::Exit::Failure)),
            Some(error) => Err(error),
        }
    }
}

impl Deploy {
    pub(super) async fn run(self, output: Output) -> Result<(), Error> {
        let checked = check_all(&files_of(&self.files)?)?;
        for line in checked.iter().flat_map(|file| file.lines(output)) {
            output.note(&line);
        }
        if let Some(error) = faults(&checked) {
            return Err(error.hint("nothing was deployed"));
        }
        let mut client = self.connection.admin();
        let files = checked.iter().map(Checked::file).collect();
        let request = DeployDefinitionsRequest { files, validate_only: false };
        let deployed = client.deploy_definitions(call(request)).await?.into_inner().definitions;
        if output.is_json() {
            return output.json_array(&deployed);
        }
        for DeployedDefinition { name, version, created, .. } in &deployed {
            let what = if *created { "deployed" } else { "was deployed already" };
            output.line(&format!("{name}@{version} {what}"))?;
        }
        Ok(())
    }
}

impl Checked {
    fn file(&self) -> DefinitionFile {
        DefinitionFile {
            content: Some(Content::Source(self.text.clone())),
            file_name: self.file.chars().take(FILE_NAME_CHARS_MAX).collect(),
        }
    }

    /// `FILE:LINE:COLUMN: error: message [CODE]`, as editors can follow it, and the hint below.
    fn lines(&self, output: Output) -> Vec<String> {
        let faults = self.faults.iter().map(|fault| (fault, output.paint(Tone::Bad, "error")));
        let warnings = self.warnings.iter().map(|fault| (fault, output.paint(Tone::Warning, "warning")));
        let mut lines = Vec::new();
        for (DefinitionFault { code, message, hint, path, line, column }, kind) in faults.chain(warnings) {
            let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
            lines.push(format!("{}:{line}:{column}: {kind}: {at}{message} [{code}]", self.file));
            if !hint.is_empty() {
                lines.push(format!("  hint: {hint}"));
            }
        }
        lines
    }
}

/// Reads and checks the definitions in files and folders. Warnings go to stderr, and so do faults, which are an error.
pub(super) fn parse_all(paths: &[PathBuf], output: Output) -> Result<Vec<Definition>, Error> {
    let mut checked = Vec::new();
    let mut definitions = Vec::new();
    for path in files_of(paths)? {
        let (file, text) = read(&path)?;
        definitions.extend(Definition::parse(&file, &text).ok().map(|(definition, _)| definition));
        checked.push(check(file, text));
    }
    for line in checked.iter().flat_map(|file| file.lines(output)) {
        output.note(&line);
    }
    match faults(&checked) {
        Some(error) => Err(error),
        None => Ok(definitions),
    }
}

/// The files that are meant, in order: those named, and those of the folders named.
fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let found = files.len();
            files_below(path, &mut files)?;
            if files.len() == found {
                return Err(Error::usage(format!("no .yaml, .yml or .json file in {}", path.display())));
            }
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// Adds the definitions in a folder and below, in the order of their names. What begins with a dot is none.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let unreadable = |error: std::io::Error| Error::usage(format!("cannot read {}: {error}", folder.display()));
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).map_err(unreadable)?.collect();
    let mut paths: Vec<PathBuf> = entries.map_err(unreadable)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let has_text = path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known));
        match path.is_dir() {
            _ if is_hidden => {}
            true if path.is_symlink() => {}
            true => files_below(&path, files)?,
            false if has_text => files.push(path),
            false => {}
        }
    }
    Ok(())
}

/// Reads and checks all files. Fails only if one cannot be read.
fn check_all(files: &[PathBuf]) -> Result<Vec<Checked>, Error> {
    files.iter().map(|path| read(path).map(|(file, text)| check(file, text))).collect()
}

/// Name and text of a file.
fn read(path: &Path) -> Result<(String, String), Error> {
    let file = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => Ok((file, text)),
        Err(error) => Err(Error::usage(format!("cannot read {file}: {error}"))),
    }
}

fn check(file: String, text: String) -> Checked {
    let all = |faults: Vec<Fault>| faults.into_iter().map(to_proto).collect();
    match Definition::parse(&file, &text) {
        Ok((definition, warnings)) => {
            let name = format!("{}@{}", definition.name, definition.version);
            Checked { file, text, definition: Some(name), faults: Vec::new(), warnings: all(warnings) }
        }
        Err(faults) => Checked { file, text, definition: None, faults: all(faults), warnings: Vec::new() },
    }
}

fn to_proto(fault: Fault) -> DefinitionFault {
    let Fault { code, message, hint, path, line, column } = fault;
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    DefinitionFault { code: code.to_owned(), message, hint, path, line: number(line), column: number(column) }
}

/// How many faults there are, as an error; none if there is none.
fn faults(checked: &[Checked]) -> Option<Error> {
    let count: usize = checked.iter().map(|file| file.faults.len()).sum();
    let files = checked.iter().filter(|file| !file.faults.is_empty()).count();
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    (count > 0).then(|| Error::failure(format!("{count} fault{} in {files} file{}", plural(count), plural(files))))
}
