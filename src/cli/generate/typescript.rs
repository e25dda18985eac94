//! TypeScript: records are interfaces with the keys of the JSON.

use super::{
    Declared, header, name,
    shape::{Body, Declaration, Field, Shape},
};
use std::fmt::Write as _;

pub(super) fn write(declared: &Declared) -> String {
    let mut out = format!("// {}\n", header(declared));
    if !declared.contracts.is_empty() {
        out.push_str("\nimport { type Handler, type Task, task } from \"@orbit/sdk\";\n");
    }
    for declaration in &declared.declarations {
        declare(&mut out, declaration);
    }
    for (contract, types) in &declared.contracts {
        let (stem, input, output) = (&types.stem, &types.input, &types.output);
        let function = name::lower_camel(stem);
        write!(
            out,
            "\n/** Does the tasks of `{contract}`. */\n\
             export type {stem}Handler = Handler<{input}, {output}>;\n\n\
             /** Makes a task of `{contract}`, for a worker. */\n\
             export function {function}(handler: {stem}Handler): Task<{input}, {output}> {{\n  \
             return task<{input}, {output}>({}, handler);\n}}\n",
            quoted(contract)
        )
        .expect("a string takes everything");
    }
    out
}

fn declare(out: &mut String, declaration: &Declaration) {
    let Declaration { name, doc, body } = declaration;
    out.push('\n');
    comment(out, "", doc);
    match body {
        Body::Record(fields) => {
            writeln!(out, "export interface {name} {{").expect("a string takes everything");
            fields.iter().for_each(|field| member(out, field));
            out.push_str("}\n");
        }
        Body::Choice(values) => {
            let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            writeln!(out, "export type {name} = {};", values.join(" | ")).expect("a string takes everything");
        }
        Body::Alias(shape) => {
            writeln!(out, "export type {name} = {};", type_of(shape)).expect("a string takes everything");
        }
    }
}

fn member(out: &mut String, field: &Field) {
    comment(out, "  ", &field.doc);
    let key = if name::is_identifier(&field.key) { field.key.clone() } else { quoted(&field.key) };
    let kind = type_of(&field.shape);
    // With `exactOptionalPropertyTypes` nobody could otherwise pass on what may be undefined.
    let (mark, kind) = if field.is_required { ("", kind) } else { ("?", format!("{kind} | undefined")) };
    writeln!(out, "  {key}{mark}: {kind};").expect("a string takes everything");
}

fn type_of(shape: &Shape) -> String {
    match shape {
        Shape::Any => "unknown".to_owned(),
        Shape::Null => "null".to_owned(),
        Shape::Bool => "boolean".to_owned(),
        Shape::Integer | Shape::Number => "number".to_owned(),
        Shape::Text => "string".to_owned(),
        Shape::List(item) => format!("{}[]", in_brackets(item)),
        Shape::Map(value) => format!("{{ [key: string]: {} }}", type_of(value)),
        Shape::Named(name) => name.clone(),
        Shape::Nullable(inner) => format!("{} | null", type_of(inner)),
        Shape::Union(parts) => parts.iter().map(type_of).collect::<Vec<_>>().join(" | "),
    }
}

fn in_brackets(item: &Shape) -> String {
    match item {
        Shape::Nullable(_) | Shape::Union(_) => format!("({})", type_of(item)),
        Shape::Any
        | Shape::Null
        | Shape::Bool
        | Shape::Integer
        | Shape::Number
        | Shape::Text
        | Shape::List(_)
        | Shape::Map(_)
        | Shape::Named(_) => type_of(item),
    }
}

fn comment(out: &mut String, indent: &str, doc: &str) {
    let lines: Vec<String> = doc.lines().map(|line| line.trim().replace("*/", "*\\/")).collect();
    match lines.as_slice() {
        [] => {}
        [line] => writeln!(out, "{indent}/** {line} */").expect("a string takes everything"),
        several => {
            writeln!(out, "{indent}/**").expect("a string takes everything");
            for line in several {
                writeln!(out, "{}", format!("{indent} * {line}").trim_end()).expect("a string takes everything");
            }
            writeln!(out, "{indent} */").expect("a string takes everything");
        }
    }
}

/// A text as a literal: JSON's escapes are JavaScript's, too.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text has a JSON form")
}
