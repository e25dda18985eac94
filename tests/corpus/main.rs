//! Definitions as people write them, each run to its end by a scripted worker, on SQLite and on PostgreSQL.
//!
//! - `right/NAME.yaml` is a definition, `right/NAME.script.yaml` and `right/NAME.CASE.script.yaml` tell what happens in
//!   executions of it and what must come of it ([`script`] says how). Children are definitions of the same folder.
//! - The examples of `docs/workflows.md` are run in the same way; the script of one is the HTML comment before it.
//! - Time is tokio's, paused: it stands still while the database works, and leaps where everybody waits, so a script of
//!   thirty days takes milliseconds ([`stage`]).
//!
//! `CORPUS=trip cargo test --test corpus` plays the scripts whose name has `trip` in it.
#![allow(clippy::disallowed_methods, reason = "tokio's time is paused here, so a sleep moves it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod calls;
mod events;
mod pages;
mod play;
#[path = "../support/postgres.rs"]
mod postgres;
mod script;
mod stage;
mod worker;
#[path = "../support/yaml.rs"]
mod yaml;

use script::Story;
use std::{fs, path::Path};

/// A definition with the name of its file.
pub(crate) struct Text {
    pub(crate) file: String,
    pub(crate) text: String,
}

/// The definitions and the stories of `right/`, in order of their names.
fn right() -> (Vec<Text>, Vec<Story>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/right");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut definitions, mut stories) = (Vec::new(), Vec::new());
    for path in files {
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        match file.strip_suffix(".script.yaml") {
            Some(name) => stories.push(Story::read(name, &text)),
            None => definitions.push(Text { file, text }),
        }
    }
    (definitions, stories)
}

#[test]
fn every_right_definition_has_a_script_and_there_are_at_least_forty() {
    let (definitions, stories) = right();
    assert!(definitions.len() >= 40, "{}", definitions.len());
    for Text { file, .. } in &definitions {
        let name = file.strip_suffix(".yaml").expect("the folder has YAML only");
        assert!(stories.iter().any(|story| story.workflow == name), "{file} has no script");
    }
    for story in &stories {
        let file = format!("{}.yaml", story.workflow);
        assert!(definitions.iter().any(|definition| definition.file == file), "{} has no {file}", story.name);
    }
}

#[test]
fn every_right_definition_runs_to_its_end_on_sqlite() {
    let (definitions, stories) = right();
    stage::on_sqlite(&definitions, &stories);
}

#[test]
fn every_right_definition_runs_to_its_end_on_postgres() {
    let (definitions, stories) = right();
    stage::on_postgres(&definitions, &stories);
}

#[test]
fn every_example_of_the_page_on_workflows_runs_to_its_end_on_sqlite() {
    let (definitions, stories) = pages::workflows();
    stage::on_sqlite(&definitions, &stories);
}

#[test]
fn every_example_of_the_page_on_workflows_runs_to_its_end_on_postgres() {
    let (definitions, stories) = pages::workflows();
    stage::on_postgres(&definitions, &stories);
}

#[test]
fn the_example_of_the_readme_runs_to_its_end() {
    let (definitions, stories) = pages::readme();
    assert!(!stories.is_empty());
    stage::on_sqlite(&definitions, &stories);
}

#[test]
fn every_expression_of_the_page_on_workflows_gives_what_is_said() {
    let (definition, story) = pages::expressions();
    stage::on_sqlite(&[definition], &[story]);
}
