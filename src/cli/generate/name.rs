//! Names that programs accept, made of names that definitions use.

use std::collections::HashSet;

/// Words that Go writes in capitals.
const INITIALISMS: [&str; 12] =
    ["Api", "Html", "Http", "Https", "Id", "Ip", "Json", "Sql", "Uri", "Url", "Uuid", "Xml"];

/// What a name must be unique in: a file, or a record.
#[derive(Debug, Default)]
pub(super) struct Scope(HashSet<String>);

impl Scope {
    /// The name, or with a number behind it if it is taken.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let mut candidate = name.to_owned();
        let mut number = 1;
        while !self.0.insert(candidate.clone()) {
            number += 1;
            candidate = format!("{name}{number}");
        }
        candidate
    }
}

/// `payments.charge@1` as `PaymentsChargeV1`: a type, and the stem of the names around it.
pub(super) fn of_contract(contract: &str) -> String {
    let (name, version) = contract.rsplit_once('@').unwrap_or((contract, ""));
    let version: String = version.chars().map(|char| if char.is_alphanumeric() { char } else { '_' }).collect();
    format!("{}V{}", upper_camel(name), version.trim_matches('_'))
}

/// `order_lines` as `OrderLines`.
pub(super) fn upper_camel(text: &str) -> String {
    starting_well(words(text).iter().map(|word| capitalized(word)).collect(), "X")
}

/// `OrderLines` as `orderLines`.
pub(super) fn lower_camel(text: &str) -> String {
    let camel =
        words(text).into_iter().enumerate().map(|(index, word)| if index == 0 { word } else { capitalized(&word) });
    starting_well(camel.collect(), "x")
}

/// `PaymentsChargeV1` as `payments_charge_v1`.
pub(super) fn snake(text: &str) -> String {
    starting_well(words(text).join("_"), "x")
}

/// `PaymentsChargeV1` as `PAYMENTS_CHARGE_V1`.
pub(super) fn shouty_snake(text: &str) -> String {
    snake(text).to_uppercase()
}

/// `order_id` as `OrderID`: a member of a Go record.
pub(super) fn go_member(text: &str) -> String {
    let word = |word: &String| {
        let word = capitalized(word);
        if INITIALISMS.contains(&word.as_str()) { word.to_uppercase() } else { word }
    };
    starting_well(words(text).iter().map(word).collect(), "X")
}

/// Whether Python and JavaScript take a text as the name of a member, words of the languages aside.
pub(super) fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|char| char.is_ascii_alphanumeric() || char == '_')
}

/// The words of a name, in lower case. What cannot be in a name parts them, and so does a capital after a small letter.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut previous = ' ';
    for char in text.chars() {
        if char.is_alphanumeric() {
            let begins = !previous.is_alphanumeric() || (char.is_uppercase() && !previous.is_uppercase());
            if begins {
                words.push(String::new());
            }
            words.last_mut().expect("the first letter begins a word").extend(char.to_lowercase());
        }
        previous = char;
    }
    words
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// A name that begins with a letter.
fn starting_well(name: String, first: &str) -> String {
    if name.chars().next().is_some_and(char::is_alphabetic) { name } else { format!("{first}{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_people_of_the_language_write() {
        assert_eq!(of_contract("payments.charge@1"), "PaymentsChargeV1");
        assert_eq!(of_contract("mail-send@1.0.2-rc"), "MailSendV1_0_2_rc");
        assert_eq!(go_member("order_id"), "OrderID");
        assert_eq!(go_member("callbackUrl"), "CallbackURL");
        assert_eq!(go_member("2nd"), "X2nd");
        assert_eq!(upper_camel("größe-in-cm"), "GrößeInCm");
        assert_eq!(snake("PaymentsChargeV1"), "payments_charge_v1");
        assert_eq!(shouty_snake("PaymentsChargeV1"), "PAYMENTS_CHARGE_V1");
        assert_eq!(lower_camel("PaymentsChargeV1"), "paymentsChargeV1");
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let mut scope = Scope::default();
        assert_eq!(scope.unique("Order"), "Order");
        assert_eq!(scope.unique("Order"), "Order2");
        assert_eq!(scope.unique("Order"), "Order3");
    }
}
