//! Deploys, reads and lists definitions.

use super::{Answer, cut_page};
use crate::api::status::{FileFault, Refusal};
use crate::domain::definition::{Definition, Fault};
use crate::engine::{self, Deployment, Engine};
use crate::proto::{
    admin as proto,
    admin::{definition_file::Content, deploy_definition_request},
    json, workflow,
};
use crate::store::{self, DefinitionRow};
use crate::wire::{Invalid, Violations, event::hex, field, page, time};

/// Name of a file that the caller did not name.
const FILE_NAME: &str = "definition";

/// A definition with its warnings, or its faults.
type Checked = Result<(Deployment, Vec<Fault>), Vec<Fault>>;

/// Most definitions of one call.
const FILES_MAX: usize = 1_000;

/// `DeployDefinition`.
pub(super) async fn deploy(
    engine: Engine,
    request: proto::DeployDefinitionRequest,
) -> Answer<proto::DeployDefinitionResponse> {
    let content = request.content.map(|content| match content {
        deploy_definition_request::Content::Source(source) => Content::Source(source),
        deploy_definition_request::Content::Definition(definition) => Content::Definition(definition),
    });
    let file = proto::DefinitionFile { content, file_name: request.file_name };
    let mut violations = Violations::new();
    judge(&mut violations, "", &file);
    violations.finish(Some(()))?;
    let (checked, warnings) = check(file)?.map_err(Refusal::DefinitionInvalid)?;
    let name = described(&checked.definition, warnings);
    let only_one = |error| match error {
        engine::Error::DefinitionsInvalid { faults } => {
            Refusal::DefinitionInvalid(faults.iter().map(|(_, fault)| fault.clone()).collect())
        }
        error => error.into(),
    };
    let created = engine.deploy_all(vec![checked], request.validate_only).await.map_err(only_one)? == [true];
    let proto::DeployedDefinition { name, version, hash, warnings, .. } = name;
    Ok(proto::DeployDefinitionResponse { name, version, hash, created, warnings })
}

/// `DeployDefinitions`.
pub(super) async fn deploy_all(
    engine: Engine,
    request: proto::DeployDefinitionsRequest,
) -> Answer<proto::DeployDefinitionsResponse> {
    let mut violations = Violations::new();
    if request.files.is_empty() {
        violations.add("files", "is required");
    }
    if request.files.len() > FILES_MAX {
        violations.add("files", format!("has more than {FILES_MAX} entries"));
    }
    for (index, file) in request.files.iter().enumerate().take(FILES_MAX) {
        judge(&mut violations, &format!("files[{index}]."), file);
    }
    violations.finish(Some(()))?;
    let names: Vec<String> = request.files.iter().map(file_name).collect();
    let (mut checked, mut answers, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for (index, file) in request.files.into_iter().enumerate() {
        match check(file)? {
            Ok((deployment, warnings)) => {
                answers.push(described(&deployment.definition, warnings));
                checked.push(deployment);
            }
            Err(found) => faults.extend(found.into_iter().map(|fault| (index, fault))),
        }
    }
    let of_files = |faults: Vec<(usize, Fault)>| {
        let file = |(index, fault): (usize, Fault)| FileFault { index, file: names[index].clone(), fault };
        Refusal::DefinitionsInvalid(faults.into_iter().map(file).collect())
    };
    if !faults.is_empty() {
        return Err(of_files(faults));
    }
    let created = engine.deploy_all(checked, request.validate_only).await.map_err(|error| match error {
        engine::Error::DefinitionsInvalid { faults } => of_files(faults.to_vec()),
        error => error.into(),
    })?;
    for (answer, created) in answers.iter_mut().zip(created) {
        answer.created = created;
    }
    Ok(proto::DeployDefinitionsResponse { definitions: answers })
}

/// What is said of a definition that has no faults.
fn described(definition: &Definition, warnings: Vec<Fault>) -> proto::DeployedDefinition {
    proto::DeployedDefinition {
        name: definition.name.to_string(),
        version: definition.version.to_string(),
        hash: hex(&definition.hash),
        created: false,
        warnings: warnings.into_iter().map(fault).collect(),
    }
}

fn file_name(file: &proto::DefinitionFile) -> String {
    if file.file_name.is_empty() { FILE_NAME.to_owned() } else { file.file_name.clone() }
}

/// Judges the fields of a file, which stand behind `path`.
fn judge(violations: &mut Violations, path: &str, file: &proto::DefinitionFile) {
    violations.take(&format!("{path}file_name"), field::line(&file.file_name, 255));
    if file.content.is_none() {
        violations.add(&format!("{path}source"), "is required, or `definition`");
    }
}

/// The definition of a file and the text that is kept with it, with its warnings; or its faults.
fn check(file: proto::DefinitionFile) -> Answer<Checked> {
    let name = file_name(&file);
    match file.content {
        Some(Content::Source(source)) => {
            let parsed = Definition::parse(&name, &source);
            Ok(parsed.map(|(definition, warnings)| (Deployment { definition, source }, warnings)))
        }
        Some(Content::Definition(message)) => {
            let text = json::to_string_sparse(&message)
                .map_err(|why| Invalid::field("definition", format!("has no JSON form: {why}")))?;
            // The places in a text that the caller never saw would only mislead.
            let without_places = |faults: Vec<Fault>| {
                faults.into_iter().map(|fault| Fault { line: 0, column: 0, ..fault }).collect::<Vec<_>>()
            };
            let parsed = Definition::parse("definition.json", &text);
            let deployment = |definition| Deployment { definition, source: String::new() };
            Ok(match parsed {
                Ok((definition, warnings)) => Ok((deployment(definition), without_places(warnings))),
                Err(faults) => Err(without_places(faults)),
            })
        }
        None => unreachable!("it was refused before"),
    }
}

/// `GetDefinition`.
pub(super) async fn get(engine: &Engine, request: proto::GetDefinitionRequest) -> Answer<proto::GetDefinitionResponse> {
    let mut violations = Violations::new();
    violations.take("name", field::name(&request.name));
    let version = match request.version.as_str() {
        "" => None,
        text => violations.take("version", field::version(text)),
    };
    violations.finish(Some(()))?;
    let row = engine.definition(&request.name, version.as_deref()).await?;
    Ok(proto::GetDefinitionResponse {
        definition: Some(message(&row)?),
        hash: hex(&row.hash),
        source: row.source,
        create_time: Some(time::render(row.create_time)),
    })
}

/// The message of a stored definition.
fn message(row: &DefinitionRow) -> Result<workflow::Definition, engine::Error> {
    json::from_slice(row.json.as_bytes()).map_err(|faults| {
        let what = format!("definition {}@{}: {faults}", row.name, row.version);
        engine::Error::Store(store::Error::Damaged { what })
    })
}

/// `ListDefinitions`.
pub(super) async fn list(
    engine: &Engine,
    request: proto::ListDefinitionsRequest,
) -> Answer<proto::ListDefinitionsResponse> {
    let mut violations = Violations::new();
    let size = page::size(&mut violations, request.page_size);
    let name = match request.name.as_str() {
        "" => None,
        text => violations.take("name", field::name(text)),
    };
    let list = page::List { rpc: "ListDefinitions", arguments: &[&request.name] };
    let after = list.cursor(&mut violations, &request.page_token, read_cursor);
    violations.finish(Some(()))?;
    let after = after.as_ref().map(|(name, order)| (name.as_str(), order.as_slice()));
    let (rows, more) = cut_page(engine.store().definitions(name.as_deref(), after, size + 1).await?, size);
    let next = rows.last().filter(|_| more).map(|row| list.token(&write_cursor(&row.name, &row.version_order)));
    Ok(proto::ListDefinitionsResponse {
        definitions: rows.into_iter().map(summary).collect(),
        next_page_token: next.unwrap_or_default(),
    })
}

fn summary(row: DefinitionRow) -> proto::DefinitionSummary {
    proto::DefinitionSummary {
        name: row.name.to_string(),
        version: row.version.to_string(),
        hash: hex(&row.hash),
        description: row.description,
        create_time: Some(time::render(row.create_time)),
    }
}

fn fault(fault: Fault) -> proto::DefinitionFault {
    proto::DefinitionFault {
        code: fault.code.to_owned(),
        message: fault.message,
        hint: fault.hint,
        path: fault.path,
        line: i32::try_from(fault.line).unwrap_or(i32::MAX),
        column: i32::try_from(fault.column).unwrap_or(i32::MAX),
    }
}

/// Name and version order, with a byte between them that no name has.
fn write_cursor(name: &str, version_order: &[u8]) -> Vec<u8> {
    [name.as_bytes(), &[0], version_order].concat()
}

fn read_cursor(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((String::from_utf8(bytes[..end].to_vec()).ok()?, bytes[end + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = include_str!("../../domain/definition/tests/whole.yaml");

    #[test]
    fn the_whole_language_says_the_same_as_a_message() {
        let (definition, _) = Definition::parse("whole.yaml", WHOLE).unwrap();
        let message: workflow::Definition = json::from_slice(definition.to_json().as_bytes()).unwrap();
        let file = proto::DefinitionFile { content: Some(Content::Definition(message)), ..Default::default() };
        let deployed = check(file).unwrap().unwrap().0.definition;
        assert_eq!(deployed, definition);
        assert_eq!(deployed.hash, definition.hash);
    }
}
