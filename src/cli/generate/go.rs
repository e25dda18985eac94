//! Go: records are structs for `encoding/json`, formatted as `gofmt` would.

use super::{
    Declared, header,
    name::{self, Scope},
    shape::{Body, Declaration, Field, Shape},
};
use std::fmt::Write as _;

pub(super) fn write(declared: &Declared, package: &str) -> String {
    let mut out = format!("// {}\n\npackage {package}\n", header(declared));
    imports(&mut out, declared);
    for (contract, types) in &declared.contracts {
        let (stem, input, output) = (&types.stem, &types.input, &types.output);
        write!(
            out,
            "\n// {stem} is the contract {contract}.\nconst {stem} = {contract:?}\n\n\
             // {stem}Handler does the tasks of {contract}.\n\
             type {stem}Handler = func(ctx context.Context, input {input}) ({output}, error)\n\n\
             // Handle{stem} has a worker do the tasks of {contract} with a function.\n\
             func Handle{stem}(w *orbit.Worker, handler {stem}Handler) {{\n\torbit.Handle(w, {stem}, handler)\n}}\n"
        )
        .expect("a string takes everything");
    }
    let mut constants = Scope::default();
    for declaration in &declared.declarations {
        declare(&mut out, declaration, &mut constants);
    }
    out
}

fn imports(out: &mut String, declared: &Declared) {
    let is_raw = |shape: &Shape| type_of(shape).contains("json.RawMessage");
    let needs_json = declared.declarations.iter().any(|declaration| match &declaration.body {
        Body::Record(fields) => fields.iter().any(|field| is_raw(&field.shape)),
        Body::Choice(_) => false,
        Body::Alias(shape) => is_raw(shape),
    });
    let mut packages: Vec<&str> = Vec::new();
    if !declared.contracts.is_empty() {
        packages.push("context");
    }
    if needs_json {
        packages.push("encoding/json");
    }
    let sdk = (!declared.contracts.is_empty()).then_some("orbit \"orbit.example/sdk/go\"");
    if packages.is_empty() {
        return;
    }
    out.push_str("\nimport (\n");
    for package in packages {
        writeln!(out, "\t{package:?}").expect("a string takes everything");
    }
    if let Some(sdk) = sdk {
        writeln!(out, "\n\t{sdk}").expect("a string takes everything");
    }
    out.push_str(")\n");
}

fn declare(out: &mut String, declaration: &Declaration, constants: &mut Scope) {
    let Declaration { name, doc, body } = declaration;
    out.push('\n');
    comment(out, "", name, doc);
    match body {
        // An alias, not a type of its own: whoever has the value needs no conversion.
        Body::Alias(shape) => writeln!(out, "type {name} = {}", type_of(shape)).expect("a string takes everything"),
        Body::Choice(values) => {
            write!(out, "type {name} string\n\nconst (\n").expect("a string takes everything");
            let names: Vec<String> =
                values.iter().map(|value| constants.unique(&format!("{name}{}", name::upper_camel(value)))).collect();
            let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
            for (constant, value) in names.iter().zip(values) {
                writeln!(out, "\t{constant:width$} {name} = {}", quoted(value)).expect("a string takes everything");
            }
            out.push_str(")\n");
        }
        Body::Record(fields) => {
            writeln!(out, "type {name} struct {{").expect("a string takes everything");
            members(out, fields);
            out.push_str("}\n");
        }
    }
}

/// The members in columns. A comment ends a block of lines that stand in the same columns.
fn members(out: &mut String, fields: &[Field]) {
    let mut scope = Scope::default();
    let rows: Vec<[String; 3]> = fields.iter().map(|field| row(field, &mut scope)).collect();
    let mut begin = 0;
    while begin < rows.len() {
        let end = (begin + 1..rows.len()).find(|&index| !fields[index].doc.is_empty()).unwrap_or(rows.len());
        let width =
            |column: usize| rows[begin..end].iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let (names, types) = (width(0), width(1));
        for (field, [name, kind, tag]) in fields[begin..end].iter().zip(&rows[begin..end]) {
            comment(out, "\t", "", &field.doc);
            writeln!(out, "\t{name:names$} {kind:types$} {tag}").expect("a string takes everything");
        }
        begin = end;
    }
}

/// Name, type and tag of a member.
fn row(field: &Field, scope: &mut Scope) -> [String; 3] {
    let name = scope.unique(&name::go_member(&field.key));
    let plain = type_of(&field.shape);
    // What may be absent must differ from what is empty; lists, maps and raw JSON have nil for that.
    let is_nil = plain.starts_with(['*', '[']) || plain.starts_with("map[") || plain == "json.RawMessage";
    let points = !field.is_required && !is_nil;
    let kind = if points { format!("*{plain}") } else { plain };
    let omit = if field.is_required { "" } else { ",omitempty" };
    [name, kind, format!("`json:{}`", quoted(&format!("{}{omit}", field.key)))]
}

fn type_of(shape: &Shape) -> String {
    match shape {
        Shape::Any | Shape::Null | Shape::Union(_) => "json.RawMessage".to_owned(),
        Shape::Bool => "bool".to_owned(),
        Shape::Integer => "int64".to_owned(),
        Shape::Number => "float64".to_owned(),
        Shape::Text => "string".to_owned(),
        Shape::List(item) => format!("[]{}", type_of(item)),
        Shape::Map(value) => format!("map[string]{}", type_of(value)),
        Shape::Named(name) => name.clone(),
        Shape::Nullable(inner) => match type_of(inner) {
            nil if nil == "json.RawMessage" || nil.starts_with(['[', '*']) || nil.starts_with("map[") => nil,
            other => format!("*{other}"),
        },
    }
}

fn comment(out: &mut String, indent: &str, name: &str, doc: &str) {
    if doc.is_empty() {
        return;
    }
    for (index, line) in doc.lines().enumerate() {
        let line = line.trim();
        let start = if index == 0 && !name.is_empty() { format!("{name}: ") } else { String::new() };
        writeln!(out, "{}", format!("{indent}// {start}{line}").trim_end()).expect("a string takes everything");
    }
}

/// A text as a literal: Go's escapes are those of JSON but for a few that JSON does not need.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text has a JSON form")
}
