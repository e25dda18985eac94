//! One codec for each kind of field: how a value is written, and how it is read from JSON or from plain text.

use std::{marker::PhantomData, str::FromStr};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};

use super::{Message, Reader, Source, Writer, document, nearest};

/// How one kind of value is read and written.
pub trait Codec<T> {
    /// Whether `null` is a value and not an absent field.
    const NULL: bool = false;
    /// Reads a value, or tells the reader what is wrong with it.
    fn read(into: &mut T, from: Source<'_>, reader: &mut Reader);
    /// Writes a value.
    fn write(value: &T, writer: &mut Writer);
}

/// A codec of a value without fields: one text says all of it.
pub trait Scalar {
    /// The value in Rust.
    type Value;
    /// What is expected, to follow "expected".
    const EXPECTED: &'static str;
    /// Whether a JSON number is read as its text.
    const NUMBER: bool = false;
    /// Reads the value from plain text: a query parameter, or the content of a JSON string.
    ///
    /// # Errors
    /// What is wrong with the text.
    fn text(text: &str) -> Result<Self::Value, String>;
    /// Reads the value from JSON text.
    ///
    /// # Errors
    /// What is wrong with the value.
    fn json(json: &str) -> Result<Self::Value, String> {
        if Self::NUMBER && document::is_number(json) {
            return Self::text(json);
        }
        match document::string(json) {
            Some(text) => Self::text(&text),
            None if json.starts_with('"') => Err("has an escape that is no character".to_owned()),
            None => Err(format!("expected {}, not {}", Self::EXPECTED, document::kind(json))),
        }
    }
    /// Writes the value.
    fn print(value: &Self::Value, writer: &mut Writer);
}

impl<S: Scalar> Codec<S::Value> for S {
    fn read(into: &mut S::Value, from: Source<'_>, reader: &mut Reader) {
        let read = match from {
            Source::Json(json) => S::json(json),
            Source::Text { rest: None, text } => S::text(text),
            Source::Text { rest: Some(rest), .. } => Err(format!("no such field; \"{rest}\" would be part of a value")),
        };
        match read {
            Ok(value) => *into = value,
            Err(why) => reader.fault(why),
        }
    }

    fn write(value: &S::Value, writer: &mut Writer) {
        S::print(value, writer);
    }
}

/// A message with fields.
#[derive(Debug)]
pub struct Msg;

impl<T: Message> Codec<T> for Msg {
    fn read(into: &mut T, from: Source<'_>, reader: &mut Reader) {
        reader.message(into, from);
    }

    fn write(value: &T, writer: &mut Writer) {
        writer.object(|writer| value.write(writer));
    }
}

/// Text.
#[derive(Debug)]
pub struct Str;

impl Scalar for Str {
    type Value = String;

    const EXPECTED: &'static str = "a string";

    fn text(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }

    fn print(value: &String, writer: &mut Writer) {
        writer.string(value);
    }
}

/// `true` or `false`, never quoted.
#[derive(Debug)]
pub struct Bool;

impl Scalar for Bool {
    type Value = bool;

    const EXPECTED: &'static str = "true or false";

    fn text(text: &str) -> Result<bool, String> {
        text.parse().map_err(|_| format!("expected true or false, not {text:?}"))
    }

    fn json(json: &str) -> Result<bool, String> {
        json.parse().map_err(|_| format!("expected true or false, not {}", document::kind(json)))
    }

    fn print(value: &bool, writer: &mut Writer) {
        writer.raw(if *value { "true" } else { "false" });
    }
}

macro_rules! integer {
    ($(#[$doc:meta])* $codec:ident, $type:ty, quoted = $quoted:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $codec;

        impl Scalar for $codec {
            type Value = $type;

            const EXPECTED: &'static str = "an integer, or one in a string";
            const NUMBER: bool = true;

            fn text(text: &str) -> Result<$type, String> {
                integer(text).ok_or_else(|| {
                    format!("expected an integer from {} to {}, not {text:?}", <$type>::MIN, <$type>::MAX)
                })
            }

            fn print(value: &$type, writer: &mut Writer) {
                let quote = if $quoted { "\"" } else { "" };
                writer.raw(quote);
                writer.raw(itoa::Buffer::new().format(*value));
                writer.raw(quote);
            }
        }
    };
}

integer!(
    /// A signed integer of 32 bits.
    I32, i32, quoted = false
);
integer!(
    /// An unsigned integer of 32 bits.
    U32, u32, quoted = false
);
integer!(
    /// A signed integer of 64 bits: a string in JSON, since many readers of JSON have doubles only.
    I64, i64, quoted = true
);
integer!(
    /// An unsigned integer of 64 bits: a string in JSON, since many readers of JSON have doubles only.
    U64, u64, quoted = true
);

/// An integer from a JSON number's text, exactly: also `1.0` and `1e3`, which are integers, never `1.5`.
fn integer<T: FromStr>(text: &str) -> Option<T> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !fraction.is_none_or(is_digits) || whole.len() > 1 && whole.starts_with('0') {
        return None;
    }
    let exponent: i64 = exponent.map_or(Some(0), |exponent| exponent.parse().ok())?;
    let fraction = fraction.unwrap_or_default();
    let all = format!("{whole}{fraction}");
    let digits = all.trim_end_matches('0');
    if digits.is_empty() {
        return "0".parse().ok();
    }
    // How many zeros follow the last digit that is none; negative if that digit is behind the point.
    let zeros = i64::try_from(all.len() - digits.len()).ok()? - i64::try_from(fraction.len()).ok()?;
    let zeros = usize::try_from(zeros.checked_add(exponent)?).ok()?;
    // A larger power than any integer's is not written out.
    (zeros <= 20).then(|| format!("{sign}{digits}{}", "0".repeat(zeros)).parse().ok())?
}

/// A double. `"NaN"`, `"Infinity"` and `"-Infinity"` are strings.
#[derive(Debug)]
pub struct F64;

impl Scalar for F64 {
    type Value = f64;

    const EXPECTED: &'static str = "a number, or one in a string";
    const NUMBER: bool = true;

    fn text(text: &str) -> Result<f64, String> {
        match text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => text
                .parse()
                // `parse` also takes names such as `inf`, and what is too large becomes infinite.
                .ok()
                .filter(|value: &f64| value.is_finite() && !text.starts_with('+'))
                .ok_or_else(|| format!("expected a number in the range of a double, not {text:?}")),
        }
    }

    fn print(value: &f64, writer: &mut Writer) {
        match *value {
            v if v.is_nan() => writer.raw("\"NaN\""),
            f64::INFINITY => writer.raw("\"Infinity\""),
            f64::NEG_INFINITY => writer.raw("\"-Infinity\""),
            v => {
                let text = serde_json::to_string(&v).expect("a finite number always has a JSON form");
                writer.raw(text.strip_suffix(".0").unwrap_or(&text));
            }
        }
    }
}

/// Bytes, as base64 with padding; read in the standard or the URL alphabet, with or without padding.
#[derive(Debug)]
pub struct B64;

impl Scalar for B64 {
    type Value = Vec<u8>;

    const EXPECTED: &'static str = "base64 in a string";

    fn text(text: &str) -> Result<Vec<u8>, String> {
        const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true);
        let alphabet = if text.contains(['-', '_']) { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
        GeneralPurpose::new(alphabet, CONFIG).decode(text).map_err(|why| format!("not base64: {why}"))
    }

    fn print(value: &Vec<u8>, writer: &mut Writer) {
        writer.string(&STANDARD.encode(value));
    }
}

/// The names of an enum's values. Implemented by generated code.
pub trait Names {
    /// All names, in the order of the proto file.
    const NAMES: &'static [&'static str];
    /// The number of a name.
    fn number(name: &str) -> Option<i32>;
    /// The name of a number.
    fn name(number: i32) -> Option<&'static str>;
}

/// An enum, by name or number; a number without a name, of a newer peer, stays a number.
#[derive(Debug)]
pub struct Enum<E>(PhantomData<E>);

impl<E: Names> Scalar for Enum<E> {
    type Value = i32;

    const EXPECTED: &'static str = "a name or number of an enum";
    const NUMBER: bool = true;

    fn text(text: &str) -> Result<i32, String> {
        E::number(text).or_else(|| integer(text)).ok_or_else(|| {
            let hint = nearest(text, E::NAMES.iter().copied()).map_or_else(
                || format!("expected one of {}", E::NAMES.join(", ")),
                |near| format!("did you mean {near}?"),
            );
            format!("no value is named {text:?}; {hint}")
        })
    }

    fn print(value: &i32, writer: &mut Writer) {
        match E::name(*value) {
            Some(name) => writer.string(name),
            None => I32::print(value, writer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn integers_are_read_exactly_or_not_at_all() {
        let read = integer::<i64>;
        assert_eq!(read("9007199254740993"), Some(9_007_199_254_740_993));
        assert_eq!(read("9007199254740993.0"), Some(9_007_199_254_740_993));
        assert_eq!(read("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(read("9.223372036854775807e18"), Some(i64::MAX));
        assert_eq!(read("1e3"), Some(1000));
        assert_eq!(read("1500E-2"), Some(15));
        assert_eq!(read("0.0e-5"), Some(0));
        assert_eq!(read("-0"), Some(0));
        for bad in
            ["", "-", "+1", "01", "1.", ".5", "1.5", "1e-1", "1e400", "9223372036854775808", " 1", "0x1", "1e", "NaN"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
