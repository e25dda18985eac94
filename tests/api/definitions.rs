//! Deploying, reading and listing definitions.

use crate::harness::*;
use orbit::proto::admin::{self as proto, deploy_definition_request::Content};
use orbit::proto::workflow;
use tonic::Code;

fn source(text: &str) -> proto::DeployDefinitionRequest {
    proto::DeployDefinitionRequest { content: Some(Content::Source(text.to_owned())), ..Default::default() }
}

#[tokio::test]
async fn a_definition_is_deployed_once_and_read_back() {
    let mut server = server().await;
    let first = server.admin.deploy_definition(source(ORDER)).await.unwrap().into_inner();
    assert_eq!((first.name.as_str(), first.version.as_str(), first.created), ("order", "1.0.0", true));
    let again = server.admin.deploy_definition(source(ORDER)).await.unwrap().into_inner();
    assert_eq!((again.created, &again.hash), (false, &first.hash));

    let request = proto::GetDefinitionRequest { name: "order".to_owned(), ..Default::default() };
    let read = server.admin.get_definition(request).await.unwrap().into_inner();
    let definition = read.definition.unwrap();
    assert_eq!((read.hash, read.source.as_str()), (first.hash.clone(), ORDER));
    assert_eq!(definition.steps.len(), 2);
    assert_eq!(definition.steps[0].timeout, Some(seconds(30)));

    // The message that was read is the same definition.
    let message =
        proto::DeployDefinitionRequest { content: Some(Content::Definition(definition)), ..Default::default() };
    let same = server.admin.deploy_definition(message).await.unwrap().into_inner();
    assert_eq!((same.created, same.hash), (false, first.hash));
    server.end().await;
}

fn files(texts: &[&str]) -> proto::DeployDefinitionsRequest {
    let file = |(index, text): (usize, &&str)| proto::DefinitionFile {
        content: Some(proto::definition_file::Content::Source((*text).to_owned())),
        file_name: format!("{index}.yaml"),
    };
    proto::DeployDefinitionsRequest { files: texts.iter().enumerate().map(file).collect(), validate_only: false }
}

#[tokio::test]
async fn parents_and_children_are_deployed_together_with_all_their_faults_told_at_once() {
    let mut server = server().await;
    let child = "name: child\nversion: 1.0.0\nsteps: [{id: a, compute: 1}]";
    let parent = "name: parent\nversion: 1.0.0\nsteps: [{id: a, workflow: child@^1}]";
    let orphan = "name: orphan\nversion: 1.0.0\nsteps:\n  - {id: a, workflow: child@^7}\n  - {id: b, workflow: none@*}";
    let refused = server.admin.deploy_definitions(files(&[parent, orphan, child])).await;
    let status = assert_refused(refused, Code::InvalidArgument, "DEFINITION_INVALID");
    assert_eq!(bad_fields(&status), ["files[1].steps[0].workflow", "files[1].steps[1].workflow"]);
    let request = proto::GetDefinitionRequest { name: "child".to_owned(), ..Default::default() };
    assert_refused(server.admin.get_definition(request).await, Code::NotFound, "DEFINITION_NOT_FOUND");
    let none = server.admin.deploy_definitions(files(&[])).await;
    assert_refused(none, Code::InvalidArgument, "FIELD_VIOLATION");

    let checked = proto::DeployDefinitionsRequest { validate_only: true, ..files(&[parent, child]) };
    let answer = server.admin.deploy_definitions(checked).await.unwrap().into_inner();
    assert!(answer.definitions.iter().all(|definition| !definition.created));
    let answer = server.admin.deploy_definitions(files(&[parent, child])).await.unwrap().into_inner();
    let told: Vec<_> = answer.definitions.iter().map(|it| (it.name.as_str(), it.created)).collect();
    assert_eq!(told, [("parent", true), ("child", true)]);

    // What it was pinned to stands in the stored definition, and stays when the child has a newer version.
    let newer = child.replace("1.0.0", "1.1.0");
    let answer = server.admin.deploy_definitions(files(&[parent, &newer])).await.unwrap().into_inner();
    assert_eq!(answer.definitions.iter().map(|it| it.created).collect::<Vec<_>>(), [false, true]);
    let request = proto::GetDefinitionRequest { name: "parent".to_owned(), ..Default::default() };
    let read = server.admin.get_definition(request).await.unwrap().into_inner();
    assert_eq!(read.definition.unwrap().steps[0].pin.as_ref().unwrap().version, "1.0.0");
    server.end().await;
}

#[tokio::test]
async fn checking_alone_stores_nothing() {
    let mut server = server().await;
    let request = proto::DeployDefinitionRequest { validate_only: true, ..source(ORDER) };
    assert!(!server.admin.deploy_definition(request).await.unwrap().into_inner().created);
    let request = proto::GetDefinitionRequest { name: "order".to_owned(), ..Default::default() };
    assert_refused(server.admin.get_definition(request).await, Code::NotFound, "DEFINITION_NOT_FOUND");
    server.end().await;
}

#[tokio::test]
async fn all_faults_are_reported_at_once_with_their_places() {
    let mut server = server().await;
    let faulty = ORDER.replace("timeout: 30s", "timeout: soon").replace("signal: approved", "signal: nope");
    let status = assert_refused(
        server.admin.deploy_definition(source(&faulty)).await,
        Code::InvalidArgument,
        "DEFINITION_INVALID",
    );
    let fields = bad_fields(&status);
    assert!(fields.iter().any(|field| field.contains("steps[0]")), "{fields:?}");
    assert!(fields.iter().any(|field| field.contains("steps[1]")), "{fields:?}");
    use tonic_types::StatusExt;
    let bad = status.get_details_bad_request().unwrap();
    assert!(bad.field_violations[0].description.starts_with("line "), "{bad:?}");
    server.end().await;
}

#[tokio::test]
async fn a_version_with_other_content_and_a_request_without_any_are_refused() {
    let mut server = server().await;
    server.deploy(ORDER).await;
    let other = ORDER.replace("max_attempts: 2", "max_attempts: 4");
    let status = assert_refused(
        server.admin.deploy_definition(source(&other)).await,
        Code::AlreadyExists,
        "DEFINITION_ALREADY_EXISTS",
    );
    assert_eq!(metadata(&status, "version"), "1.0.0");
    let none = proto::DeployDefinitionRequest { file_name: "a\nb".to_owned(), ..Default::default() };
    let status = assert_refused(server.admin.deploy_definition(none).await, Code::InvalidArgument, "FIELD_VIOLATION");
    assert_eq!(bad_fields(&status), ["file_name", "source"]);
    server.end().await;
}

#[tokio::test]
async fn definitions_are_listed_in_pages_from_the_highest_version_down() {
    let mut server = server().await;
    for version in ["1.0.0", "1.10.0", "1.9.0", "2.0.0-beta.1"] {
        server.deploy(&ORDER.replace("version: 1.0.0", &format!("version: {version}"))).await;
    }
    server.deploy(ECHO).await;
    let mut found = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = proto::ListDefinitionsRequest { page_size: 2, page_token, ..Default::default() };
        let page = server.admin.list_definitions(request).await.unwrap().into_inner();
        found.extend(page.definitions.into_iter().map(|summary| format!("{}@{}", summary.name, summary.version)));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(found, ["echo@1.0.0", "order@2.0.0-beta.1", "order@1.10.0", "order@1.9.0", "order@1.0.0"]);

    let latest = proto::GetDefinitionRequest { name: "order".to_owned(), ..Default::default() };
    let latest: workflow::Definition =
        server.admin.get_definition(latest).await.unwrap().into_inner().definition.unwrap();
    assert_eq!(latest.version, "1.10.0");

    let foreign = proto::ListDefinitionsRequest { page_token: "AAAA".to_owned(), ..Default::default() };
    assert_refused(server.admin.list_definitions(foreign).await, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    server.end().await;
}
