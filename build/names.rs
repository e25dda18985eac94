//! How descriptors are called in the generated Rust.

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, OneofDescriptor};

/// Path of the type that prost makes of a message.
pub(crate) fn message(message: &MessageDescriptor) -> String {
    path(message.package_name(), message.full_name())
}

/// Path of the module for the types inside of a message, such as its oneofs.
pub(crate) fn module(message: &MessageDescriptor) -> String {
    let ty = self::message(message);
    let (parent, name) = ty.rsplit_once("::").expect("a type's path has a parent");
    format!("{parent}::{}", name.to_snake_case())
}

/// Path of the type that prost makes of an enum.
pub(crate) fn enumeration(enumeration: &EnumDescriptor) -> String {
    path(enumeration.package_name(), enumeration.full_name())
}

/// Path of the variant for one field of a oneof.
pub(crate) fn variant(oneof: &OneofDescriptor, field: &FieldDescriptor) -> String {
    let module = module(oneof.parent_message());
    format!("{module}::{}::{}", oneof.name().to_upper_camel_case(), field.name().to_upper_camel_case())
}

/// Path of the module of a package.
pub(crate) fn package(package: &str) -> String {
    package.split('.').fold("crate::proto".to_owned(), |path, part| path + "::" + &part.to_snake_case())
}

/// A field, oneof or method as an identifier.
pub(crate) fn ident(name: &str) -> String {
    const KEYWORDS: [&str; 29] = [
        "as", "async", "await", "break", "const", "continue", "dyn", "else", "enum", "fn", "for", "if", "impl", "in",
        "let", "loop", "match", "mod", "move", "pub", "ref", "return", "static", "struct", "trait", "type", "use",
        "where", "while",
    ];
    let name = name.to_snake_case();
    if KEYWORDS.contains(&name.as_str()) { format!("r#{name}") } else { name }
}

/// The runtime's codec for the values of a field.
///
/// # Errors
/// Kinds and well-known types that no message uses so far have no codec: one has to be written first.
pub(crate) fn codec(kind: &Kind) -> Result<String, String> {
    Ok(match kind {
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "I32".into(),
        Kind::Uint32 | Kind::Fixed32 => "U32".into(),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "I64".into(),
        Kind::Uint64 | Kind::Fixed64 => "U64".into(),
        Kind::Double => "F64".into(),
        Kind::Bool => "Bool".into(),
        Kind::String => "Str".into(),
        Kind::Bytes => "B64".into(),
        Kind::Float => return Err("float has no JSON codec; use double".into()),
        Kind::Enum(e) => format!("Enum<{}>", enumeration(e)),
        Kind::Message(m) => match m.full_name() {
            crate::PAYLOAD => "Document".into(),
            "google.protobuf.Timestamp" => "Time".into(),
            "google.protobuf.Duration" => "Span".into(),
            "google.protobuf.FieldMask" => "Mask".into(),
            name if name.starts_with("google.") => return Err(format!("{name} has no JSON codec")),
            _ => "Msg".into(),
        },
    })
}

fn path(package: &str, full_name: &str) -> String {
    let inner = full_name.strip_prefix(package).expect("a name begins with its package").trim_start_matches('.');
    let (outer, name) = inner.rsplit_once('.').map_or((None, inner), |(outer, name)| (Some(outer), name));
    let mut path = self::package(package);
    for part in outer.into_iter().flat_map(|outer| outer.split('.')) {
        path = path + "::" + &part.to_snake_case();
    }
    path + "::" + &name.to_upper_camel_case()
}
