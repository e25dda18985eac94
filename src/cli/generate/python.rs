//! Python: records are `TypedDict`s, which are what JSON gives, so that an absent member differs from one that is null.

use super::{
    Declared, header, name,
    shape::{Body, Declaration, Field, Shape},
};
use std::fmt::Write as _;

/// Words that Python does not take as the name of a member.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

pub(super) fn write(declared: &Declared) -> String {
    let mut out = format!("# {}\n", header(declared));
    imports(&mut out, declared);
    for declaration in in_order(&declared.declarations) {
        declare(&mut out, declaration);
    }
    for (contract, types) in &declared.contracts {
        let (stem, input, output) = (&types.stem, &types.input, &types.output);
        let (function, constant) = (name::snake(stem), name::shouty_snake(stem));
        write!(
            out,
            "\n\n{constant}: Final = {}\n\
             {stem}Handler = (\n    \
             Callable[[{input}], {output} | Awaitable[{output}]]\n    \
             | Callable[[{input}, TaskContext], {output} | Awaitable[{output}]]\n)\n\
             _{stem} = TypeVar(\"_{stem}\", bound={stem}Handler)\n\n\n\
             def {function}(handler: _{stem}) -> _{stem}:\n    \
             \"\"\"Says that a function does the tasks of {contract}.\"\"\"\n    \
             return task({constant})(handler)\n",
            quoted(contract)
        )
        .expect("a string takes everything");
    }
    out
}

/// What the code uses, and no more: linters complain otherwise.
fn imports(out: &mut String, declared: &Declared) {
    let uses = |test: &dyn Fn(&Shape) -> bool| declared.declarations.iter().any(|one| one.contains(test));
    let has_contracts = !declared.contracts.is_empty();
    let records = || {
        declared.declarations.iter().filter_map(|one| match &one.body {
            Body::Record(fields) => Some(fields),
            Body::Choice(_) | Body::Alias(_) => None,
        })
    };
    let names = |wanted: &[(&'static str, bool)]| -> String {
        wanted.iter().filter(|(_, is_used)| *is_used).map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let typing = names(&[
        ("Any", uses(&|shape| *shape == Shape::Any)),
        ("Final", has_contracts),
        ("Literal", declared.declarations.iter().any(|one| matches!(one.body, Body::Choice(_)))),
        ("TypeAlias", declared.declarations.iter().any(mentions_itself)),
        ("TypeVar", has_contracts),
    ]);
    let extensions = names(&[
        ("NotRequired", records().any(|fields| fields.iter().any(|field| !field.is_required))),
        ("TypedDict", records().next().is_some()),
    ]);
    let standard = if has_contracts { "from collections.abc import Awaitable, Callable\n" } else { "" };
    let orbit = if has_contracts { "from orbit import TaskContext, task\n" } else { "" };
    let typing = if typing.is_empty() { typing } else { format!("from typing import {typing}\n") };
    let extensions =
        if extensions.is_empty() { extensions } else { format!("from typing_extensions import {extensions}\n") };
    for block in [format!("{standard}{typing}"), format!("{orbit}{extensions}")] {
        if !block.is_empty() {
            write!(out, "\n{block}").expect("a string takes everything");
        }
    }
}

/// Whether an alias is a part of itself.
fn mentions_itself(declaration: &Declaration) -> bool {
    matches!(declaration.body, Body::Alias(_))
        && declaration.contains(&|shape| matches!(shape, Shape::Named(name) if *name == declaration.name))
}

/// The declarations so that an alias comes after what it mentions: unlike the members of a record, it is read at once, and
/// a name in quotes would later be looked up where the alias is used. Only what mentions itself needs quotes.
fn in_order(declarations: &[Declaration]) -> Vec<&Declaration> {
    let is_alias = |one: &&Declaration| matches!(one.body, Body::Alias(_));
    let (mut waiting, mut ordered): (Vec<&Declaration>, Vec<&Declaration>) = declarations.iter().partition(is_alias);
    while !waiting.is_empty() {
        let is_ready = |alias: &Declaration| {
            !alias.contains(&|shape| matches!(shape, Shape::Named(name) if waiting.iter().any(|one| one.name == *name)))
        };
        // Without any that is ready they mention each other: then the first goes first.
        let next = waiting.iter().position(|alias| is_ready(alias)).unwrap_or(0);
        ordered.push(waiting.remove(next));
    }
    ordered
}

fn declare(out: &mut String, declaration: &Declaration) {
    let Declaration { name, doc, body } = declaration;
    match body {
        Body::Record(fields) if fields.iter().all(|field| is_member(&field.key)) => {
            write!(out, "\n\nclass {name}(TypedDict):\n").expect("a string takes everything");
            if !doc.is_empty() {
                write!(out, "    \"\"\"{}\"\"\"\n\n", docstring(doc)).expect("a string takes everything");
            }
            for field in fields {
                comment(out, "    ", &field.doc);
                writeln!(out, "    {}: {}", field.key, member(field)).expect("a string takes everything");
            }
        }
        Body::Record(fields) => {
            out.push_str("\n\n");
            comment(out, "", doc);
            write!(out, "{name} = TypedDict(\n    \"{name}\",\n    {{\n").expect("a string takes everything");
            for field in fields {
                comment(out, "        ", &field.doc);
                writeln!(out, "        {}: {},", quoted(&field.key), member(field)).expect("a string takes everything");
            }
            out.push_str("    },\n)\n");
        }
        Body::Choice(values) => {
            out.push_str("\n\n");
            comment(out, "", doc);
            let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            writeln!(out, "{name} = Literal[{}]", values.join(", ")).expect("a string takes everything");
        }
        Body::Alias(shape) => {
            out.push_str("\n\n");
            comment(out, "", doc);
            let kind = type_of(shape);
            match mentions_itself(declaration) {
                true => writeln!(out, "{name}: TypeAlias = \"{kind}\"").expect("a string takes everything"),
                false => writeln!(out, "{name} = {kind}").expect("a string takes everything"),
            }
        }
    }
}

/// The annotation of a member. Names of declarations may come later, so a type that has one is a text; `NotRequired` must
/// stay outside of it, since it counts when the class is made.
fn member(field: &Field) -> String {
    let kind = type_of(&field.shape);
    let kind = match field.shape.contains(&|shape| matches!(shape, Shape::Named(_))) {
        true => format!("\"{kind}\""),
        false => kind,
    };
    if field.is_required { kind } else { format!("NotRequired[{kind}]") }
}

fn type_of(shape: &Shape) -> String {
    match shape {
        Shape::Any => "Any".to_owned(),
        Shape::Null => "None".to_owned(),
        Shape::Bool => "bool".to_owned(),
        Shape::Integer => "int".to_owned(),
        Shape::Number => "float".to_owned(),
        Shape::Text => "str".to_owned(),
        Shape::List(item) => format!("list[{}]", type_of(item)),
        Shape::Map(value) => format!("dict[str, {}]", type_of(value)),
        Shape::Named(name) => name.clone(),
        Shape::Nullable(value) => format!("{} | None", type_of(value)),
        Shape::Union(parts) => parts.iter().map(type_of).collect::<Vec<_>>().join(" | "),
    }
}

fn is_member(key: &str) -> bool {
    // What begins with two underscores would be renamed inside a class.
    name::is_identifier(key) && !KEYWORDS.contains(&key) && !key.starts_with("__")
}

fn comment(out: &mut String, indent: &str, doc: &str) {
    for line in doc.lines() {
        writeln!(out, "{}", format!("{indent}# {}", line.trim()).trim_end()).expect("a string takes everything");
    }
}

fn docstring(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let text = lines.join("\n    ").replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"");
    if text.ends_with('"') { format!("{} ", text) } else { text }
}

/// A text as a literal: JSON's escapes are Python's, too.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text has a JSON form")
}
