//! Generates the canonical JSON form of every message and enum, for the runtime in `src/proto/json.rs`.

use std::fmt::Write;

use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

use crate::{
    Error,
    names::{self, codec, ident},
};

/// The Rust text for all messages and enums of packages that begin with `orbit.`.
///
/// # Errors
/// A field's type has no codec.
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String, Error> {
    let mut out = String::new();
    let mut all = vec![];
    for m in
        pool.all_messages().filter(|m| ours(m.package_name()) && !m.is_map_entry() && m.full_name() != crate::PAYLOAD)
    {
        message(&m, &mut out).map_err(|why| format!("{}: {why}", m.full_name()))?;
        all.push(names::message(&m));
    }
    for e in pool.all_enums().filter(|e| ours(e.package_name())) {
        enumeration(&e, &mut out);
    }
    writeln!(out, "serde_of!({});", all.join(", "))?;
    Ok(out)
}

fn ours(package: &str) -> bool {
    package.starts_with("orbit.")
}

fn message(message: &MessageDescriptor, out: &mut String) -> Result<(), Error> {
    let mut fields: Vec<_> = message.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    let (mut list, mut read, mut write) = (String::new(), String::new(), String::new());
    for (place, f) in fields.iter().enumerate() {
        let (id, json) = (ident(f.name()), f.json_name());
        write!(list, "({:?}, {json:?}), ", f.name())?;
        if let Some(oneof) = f.containing_oneof().filter(|oneof| !oneof.is_synthetic()) {
            let (c, slot, variant) = (codec(&f.kind())?, ident(oneof.name()), names::variant(&oneof, f));
            writeln!(read, "{place} => reader.arm::<{c}, _, _>(&mut self.{slot}, {variant}, from),")?;
            writeln!(
                write,
                "if let Some({variant}(value)) = &self.{slot} {{ writer.always::<{c}, _>({json:?}, value); }}"
            )?;
            continue;
        }
        let (form, kind) = if f.is_map() {
            ("map", map_value(f)?)
        } else if f.is_list() {
            ("list", f.kind())
        } else if f.supports_presence() {
            ("optional", f.kind())
        } else {
            ("plain", f.kind())
        };
        let c = codec(&kind)?;
        writeln!(read, "{place} => reader.{form}::<{c}, _>(&mut self.{id}, from),")?;
        writeln!(write, "writer.{form}::<{c}, _>({json:?}, &self.{id});")?;
    }
    writeln!(
        out,
        "impl Message for {ty} {{
const NAME: &'static str = {name:?};
const FIELDS: &'static [(&'static str, &'static str)] = &[{list}];
fn read(&mut self, field: usize, from: Source<'_>, reader: &mut Reader) {{
match field {{
{read}_ => {{}}
}}
}}
fn write(&self, writer: &mut Writer) {{
{write}}}
}}",
        ty = names::message(message),
        name = message.full_name(),
    )?;
    Ok(())
}

fn map_value(field: &FieldDescriptor) -> Result<Kind, Error> {
    let Kind::Message(entry) = field.kind() else { unreachable!("a map is a list of entries") };
    if entry.map_entry_key_field().kind() != Kind::String {
        return Err(format!("{}: a map's key must be a string", field.name()).into());
    }
    Ok(entry.map_entry_value_field().kind())
}

fn enumeration(enumeration: &EnumDescriptor, out: &mut String) {
    let names: Vec<_> = enumeration.values().map(|v| format!("{:?}", v.name())).collect();
    write!(
        out,
        "impl Names for {ty} {{
const NAMES: &'static [&'static str] = &[{names}];
fn number(name: &str) -> Option<i32> {{ Self::from_str_name(name).map(|value| value as i32) }}
fn name(number: i32) -> Option<&'static str> {{ Self::try_from(number).ok().map(|value| value.as_str_name()) }}
}}
",
        ty = names::enumeration(enumeration),
        names = names.join(", "),
    )
    .expect("writing to a String does not fail");
}
