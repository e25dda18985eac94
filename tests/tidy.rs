//! Keeps what no compiler checks: which module may use which, that the rules stay pure, that files stay readable.
//!
//! Reads the sources as text. What it asks for is in `src/lib.rs` and in the `mod.rs` of each folder.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// What each module may use of the others; itself always. An arrow that is not here points back.
const ARROWS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("proto", &[]),
    ("config", &[]),
    ("telemetry", &[]),
    ("clock", &["domain"]),
    ("wire", &["domain", "proto"]),
    ("store", &["domain", "clock", "telemetry"]),
    ("egress", &["domain", "wire", "config"]),
    ("engine", &["domain", "store", "wire", "egress", "clock", "config", "telemetry"]),
    ("api", &["domain", "proto", "wire", "store", "engine", "clock", "config", "telemetry"]),
    ("gateway", &["proto", "api", "clock", "telemetry"]),
    ("cli", &["domain", "proto", "wire", "store", "engine", "api", "gateway", "clock", "config", "telemetry"]),
    ("main", &["cli"]),
    ("lib", &[]),
];

/// What the pure rules may not mention: they get time as a value, and nobody waits in them.
const IMPURE: &[&str] =
    &["async fn", ".await", "tokio::", "sqlx::", "tonic::", "prost::", "SystemTime", "Instant", "rand::", "std::fs"];

/// A file that grows beyond this many lines has a second concept in it.
const LINES_MAX: usize = 700;

#[test]
fn no_module_uses_one_that_builds_on_it() {
    let mut faults = Vec::new();
    for (path, text) in sources("src") {
        let module = module(&path);
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == module) else {
            faults.push(format!("{}: module `{module}` has no line in ARROWS", path.display()));
            continue;
        };
        for used in used_modules(&text) {
            if used != module && !allowed.contains(&used.as_str()) {
                faults.push(format!("{}: `{module}` may not use `{used}`", path.display()));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn the_domain_is_pure() {
    let mut faults = Vec::new();
    // Its tests may measure: they are cut off.
    for (path, text) in sources("src/domain").iter().filter(|(path, _)| !is_test(path)) {
        let rules = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (line, code) in code_lines(rules) {
            for word in IMPURE.iter().filter(|word| code.contains(**word)) {
                faults.push(format!("{}:{line}: `{word}`", path.display()));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn there_is_one_write_path() {
    let writers: BTreeSet<String> = sources("src")
        .iter()
        .filter(|(path, text)| {
            module(path) != "store" && code_lines(text).any(|(_, code)| code.contains("store.commit("))
        })
        .map(|(path, _)| path.strip_prefix(root()).expect("below the root").display().to_string())
        .collect();
    assert_eq!(writers, BTreeSet::from(["src/engine/committer.rs".to_owned()]));
}

#[test]
fn every_file_begins_by_saying_what_it_is_for_and_stays_readable() {
    let mut faults = Vec::new();
    for (path, text) in sources("src").into_iter().chain(sources("tests")).chain(sources("build")) {
        if !text.starts_with("//!") {
            faults.push(format!("{}: does not begin with `//!`", path.display()));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            faults.push(format!("{}: {lines} lines", path.display()));
        }
    }
    assert_none(&faults);
}

#[test]
fn nothing_is_left_for_later_in_a_comment() {
    // Spelled so that this file does not find itself.
    let words = ["TO".to_owned() + "DO", "FIX".to_owned() + "ME", "XX".to_owned() + "X"];
    let mut faults = Vec::new();
    for (path, text) in sources("src").into_iter().chain(sources("tests")).chain(sources("build")) {
        for (number, line) in text.lines().enumerate() {
            if words.iter().any(|word| line.split(|c: char| !c.is_alphanumeric()).any(|part| part == word)) {
                faults.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn protos_say_times_and_spans_with_messages() {
    let mut faults = Vec::new();
    for (path, text) in files("proto/orbit", "proto") {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            if ["_ms ", "_seconds ", "_millis "].iter().any(|unit| line.contains(unit)) {
                faults.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn migrations_are_numbered_without_gaps() {
    let mut names: Vec<String> = files("migrations/sqlite", "sql")
        .iter()
        .map(|(path, _)| path.file_name().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    for (index, name) in names.iter().enumerate() {
        assert!(name.starts_with(&format!("{:04}_", index + 1)), "{name} is not number {}", index + 1);
    }
    assert!(!names.is_empty(), "there is a first migration");
}

#[test]
fn every_metric_is_described_and_documented() {
    let telemetry = fs::read_to_string(root().join("src/telemetry.rs")).expect("it is there");
    let operations = fs::read_to_string(root().join("docs/operations.md")).expect("it is there");
    let mut faults = Vec::new();
    let mut count = 0;
    for line in telemetry.lines().filter_map(|line| line.strip_prefix("pub const ")) {
        let Some((constant, name)) = line.split_once(": &str = ") else { continue };
        let name = name.trim_matches(['"', ';']);
        count += 1;
        if !telemetry.contains(&format!("!({constant},")) {
            faults.push(format!("{constant} has no describe_… line"));
        }
        if !operations.contains(&format!("`{name}`")) {
            faults.push(format!("{name} is not in docs/operations.md"));
        }
    }
    assert!(count > 20, "the constants are found: {count}");
    assert_none(&faults);
}

#[test]
fn every_package_of_the_sdks_carries_the_licences() {
    let packages = ["go", "go/orbitotel", "python", "python/gen", "typescript/sdk", "typescript/gen"];
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let ours = fs::read_to_string(root().join(licence)).expect(licence);
        for package in packages {
            let path = root().join("sdk").join(package).join(licence);
            assert_eq!(fs::read_to_string(&path).ok().as_ref(), Some(&ours), "{}", path.display());
        }
    }
}

#[test]
fn every_stage_of_the_checks_is_documented() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("Makefile");
    let page = fs::read_to_string(root().join("docs/testing.md")).expect("docs/testing.md");
    // What installs or makes something checks nothing.
    let stages: BTreeSet<&str> = makefile
        .split("$(STAGE) ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .filter(|name| !name.starts_with("--") && !name.starts_with("install-") && *name != "generate")
        .collect();
    let section = page.split("## Stages").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("## Stages");
    let documented: BTreeSet<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert_eq!(documented, stages, "the table of docs/testing.md against the Makefile");
    assert!(stages.len() > 30);
}

#[test]
fn every_code_is_explained_to_people_who_write_workflows() {
    let page = fs::read_to_string(root().join("docs/workflows.md")).expect("it is there");
    let faults_page = fs::read_to_string(root().join("docs/definition-faults.md")).expect("it is there");
    let mut faults = Vec::new();
    for (source, pages) in [
        ("src/domain/failure.rs", vec![("docs/workflows.md", &page)]),
        (
            "src/domain/definition/fault.rs",
            vec![("docs/workflows.md", &page), ("docs/definition-faults.md", &faults_page)],
        ),
    ] {
        let text = fs::read_to_string(root().join(source)).expect("it is there");
        let codes: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub const ")?.split_once(": &str"))
            .map(|(name, _)| name)
            .collect();
        assert!(codes.len() > 10, "the constants of {source} are found: {codes:?}");
        for (name, page) in pages {
            let absent = codes.iter().filter(|code| !page.contains(&format!("`{code}`")));
            faults.extend(absent.map(|code| format!("{code} of {source} is not in {name}")));
        }
    }
    assert_none(&faults);
}

#[test]
fn uses_are_found_in_every_form() {
    let text = "use crate::store::Error;\nuse crate::{\n    domain::{self, Payload},\n    wire,\n};\n// crate::cli::x\nlet a = crate::engine::b();";
    let found: Vec<String> = used_modules(text).into_iter().collect();
    assert_eq!(found, ["domain", "engine", "store", "wire"]);
}

/// The modules that a text names as `crate::x` or inside `crate::{…}`.
fn used_modules(text: &str) -> BTreeSet<String> {
    let code: String = code_lines(text).map(|(_, line)| format!("{line}\n")).collect();
    let mut found = BTreeSet::new();
    for (start, _) in code.match_indices("crate::") {
        // `$crate::` and names such as `subcrate::` are not ours.
        if code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[start + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => found.extend(leading_name(rest)),
            Some(group) => found.extend(group_heads(group)),
        }
    }
    // Items of the root itself are no modules.
    found.retain(|name| name.starts_with(|c: char| c.is_lowercase()));
    found
}

/// The first names of a group's members, up to the brace that closes it.
fn group_heads(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut heads = Vec::new();
    let mut at_head = true;
    for (index, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_head = true,
            c if at_head && !c.is_whitespace() => {
                heads.extend(leading_name(&group[index..]));
                at_head = false;
            }
            _ => {}
        }
    }
    heads
}

fn leading_name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The lines of a text with their numbers, comments cut off.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
}

/// The top module that a file under `src/` belongs to.
fn module(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("src")).expect("a source file");
    let first = inside.components().next().expect("not empty").as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// Whether a file holds tests only.
fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "tests") || path.iter().any(|part| part == "tests")
}

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    files(folder, "rs")
}

/// All files below a folder with this extension, and their text. A folder that is not there has none.
fn files(folder: &str, extension: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("a folder that can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).expect("text in UTF-8");
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[track_caller]
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
