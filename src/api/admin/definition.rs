//! Deploys, reads and lists definitions.

use super::{Answer, cut_page};
use crate::api::status::Refusal;
use crate::domain::definition::{Definition, Fault};
use crate::engine::{self, Engine};
use crate::proto::{admin as proto, admin::deploy_definition_request::Content, json, workflow};
use crate::store::{self, DefinitionRow};
use crate::wire::{Invalid, Violations, event::hex, field, page, time};

/// Name of a file that the caller did not name.
const FILE_NAME: &str = "definition";

/// `DeployDefinition`.
pub(super) async fn deploy(
    engine: Engine,
    request: proto::DeployDefinitionRequest,
) -> Answer<proto::DeployDefinitionResponse> {
    let (definition, warnings, source) = parse(&request)?;
    let (name, version, hash) = (definition.name.to_string(), definition.version.to_string(), hex(&definition.hash));
    let created = if request.validate_only {
        engine.check_served(&definition).await?;
        false
    } else {
        engine.deploy(definition, source).await?
    };
    let warnings = warnings.into_iter().map(fault).collect();
    Ok(proto::DeployDefinitionResponse { name, version, hash, created, warnings })
}

/// The definition with its warnings, and the text that is kept.
fn parse(request: &proto::DeployDefinitionRequest) -> Answer<(Definition, Vec<Fault>, String)> {
    let mut violations = Violations::new();
    violations.take("file_name", field::line(&request.file_name, 255));
    if request.content.is_none() {
        violations.add("source", "is required, or `definition`");
    }
    violations.finish(Some(()))?;
    let file_name = if request.file_name.is_empty() { FILE_NAME } else { &request.file_name };
    let faulty = Refusal::DefinitionInvalid;
    match &request.content {
        Some(Content::Source(source)) => {
            let (definition, warnings) = Definition::parse(file_name, source).map_err(faulty)?;
            Ok((definition, warnings, source.clone()))
        }
        Some(Content::Definition(message)) => {
            let text = json::to_string_sparse(message)
                .map_err(|why| Invalid::field("definition", format!("has no JSON form: {why}")))?;
            // The places in a text that the caller never saw would only mislead.
            let without_places = |faults: Vec<Fault>| {
                faults.into_iter().map(|fault| Fault { line: 0, column: 0, ..fault }).collect::<Vec<_>>()
            };
            let (definition, warnings) =
                Definition::parse("definition.json", &text).map_err(|faults| faulty(without_places(faults)))?;
            Ok((definition, without_places(warnings), String::new()))
        }
        None => unreachable!("it was refused above"),
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
        let request =
            proto::DeployDefinitionRequest { content: Some(Content::Definition(message)), ..Default::default() };
        let (deployed, _, _) = parse(&request).unwrap();
        assert_eq!(deployed, definition);
        assert_eq!(deployed.hash, definition.hash);
    }
}
