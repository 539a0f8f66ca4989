//! Operations, one JSON object each. Reading is strict: every field is known, given once and valid.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::error::Category;

use super::answer::{BadLine, Code};

/// An operation on the credits of one user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Operation {
    /// Lines without a user share the credits of one unnamed user.
    pub(super) user: Option<String>,
    pub(super) action: Action,
}

/// What to do with the credits. Instants are whole numbers of any unit.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Adds a pack that can be spent from `at` to `expiry_time`, both included.
    AddCredits { amount: u64, expiry_time: i64, at: Option<i64> },
    /// Takes an amount, soonest expiry first.
    ConsumeCredits { amount: u64, current_time: i64, allow_partial: bool },
    /// Asks for the amount that can be spent.
    GetBalance { current_time: i64 },
}

/// The name of an operation and its fields: the required ones, then the optional ones.
struct Form {
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    read: fn(&Fields) -> Result<Action, BadLine>,
}

static FORMS: [Form; 3] = [
    Form {
        name: "add_credits",
        required: &["amount", "expiry_time"],
        optional: &["at", "user"],
        read: |fields| {
            Ok(Action::AddCredits {
                amount: fields.amount()?,
                expiry_time: fields.instant("expiry_time")?,
                at: fields.has("at").then(|| fields.instant("at")).transpose()?,
            })
        },
    },
    Form {
        name: "consume_credits",
        required: &["amount", "current_time"],
        optional: &["allow_partial", "user"],
        read: |fields| {
            Ok(Action::ConsumeCredits {
                amount: fields.amount()?,
                current_time: fields.instant("current_time")?,
                allow_partial: fields.flag("allow_partial")?,
            })
        },
    },
    Form {
        name: "get_balance",
        required: &["current_time"],
        optional: &["user"],
        read: |fields| Ok(Action::GetBalance { current_time: fields.instant("current_time")? }),
    },
];

impl Operation {
    /// Reads a line.
    pub(super) fn read(line: &[u8]) -> Result<Operation, BadLine> {
        let mut fields: Fields = serde_json::from_slice(line).map_err(|error| bad_json(&error))?;
        let form = fields.form()?;
        let known = || form.required.iter().chain(form.optional).copied();
        let unknown: Vec<String> = fields
            .0
            .keys()
            .filter(|name| !known().any(|other| other == *name))
            .map(|name| format!("`{}`", shortened(name)))
            .collect();
        if !unknown.is_empty() {
            let noun = if unknown.len() == 1 { "field" } else { "fields" };
            let text = format!(
                "{} has no {noun} {}; its fields are {}",
                form.name,
                listed(unknown.iter().map(String::as_str)),
                listed(known())
            );
            return Err(BadLine::malformed(text));
        }
        if let Some(missing) = form.required.iter().find(|name| !fields.has(name)) {
            let text = format!(
                "`{missing}` is missing; {} needs {}",
                form.name,
                listed(form.required.iter().copied())
            );
            return Err(BadLine::malformed(text));
        }
        let user = fields.user()?;
        Ok(Operation { user, action: (form.read)(&fields)? })
    }
}

impl Action {
    /// Its instant, if it names one.
    pub(super) fn instant(&self) -> Option<i64> {
        match *self {
            Action::AddCredits { at, .. } => at,
            Action::ConsumeCredits { current_time, .. } | Action::GetBalance { current_time } => {
                Some(current_time)
            }
        }
    }
}

/// The fields of an object, each given once.
struct Fields(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object such as {"type": "get_balance", "current_time": 0}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if fields.contains_key(&name) {
                let text = format!("the field `{}` is given twice", shortened(&name));
                return Err(A::Error::custom(text));
            }
            fields.insert(name, value);
        }
        Ok(Fields(fields))
    }
}

impl Fields {
    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Takes the type and finds its form.
    fn form(&mut self) -> Result<&'static Form, BadLine> {
        let wrong = |what: String| {
            let [first, second, third] = FORMS.each_ref().map(|form| form.name);
            BadLine::malformed(format!("{what}; write {first}, {second} or {third}"))
        };
        match self.0.remove("type") {
            None => Err(wrong("`type` is missing".to_owned())),
            Some(Value::String(name)) => FORMS
                .iter()
                .find(|form| form.name == name)
                .ok_or_else(|| wrong(format!("there is no operation `{}`", shortened(&name)))),
            Some(other) => Err(wrong(format!("`type` is {}", written(&other)))),
        }
    }

    fn amount(&self) -> Result<u64, BadLine> {
        self.number("amount", 1, u64::MAX)
    }

    fn instant(&self, name: &str) -> Result<i64, BadLine> {
        let number = self.number(name, 0, i64::MAX.unsigned_abs())?;
        Ok(i64::try_from(number).expect("at most the largest instant"))
    }

    fn number(&self, name: &str, least: u64, most: u64) -> Result<u64, BadLine> {
        let value = self.0.get(name).unwrap_or(&Value::Null);
        let number = value.as_u64().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| {
            let text = format!(
                "`{name}` is {}; write a whole number from {least} to {most}",
                written(value)
            );
            BadLine::malformed(text)
        })
    }

    /// A field that is `false` if not given.
    fn flag(&self, name: &str) -> Result<bool, BadLine> {
        match self.0.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => {
                let text = format!("`{name}` is {}; write true or false", written(other));
                Err(BadLine::malformed(text))
            }
        }
    }

    fn user(&mut self) -> Result<Option<String>, BadLine> {
        match self.0.remove("user") {
            None => Ok(None),
            Some(Value::String(user)) => Ok(Some(user)),
            Some(other) => {
                let text = format!("`user` is {}; write a name in quotes", written(&other));
                Err(BadLine::malformed(text))
            }
        }
    }
}

fn bad_json(error: &serde_json::Error) -> BadLine {
    let text = error.to_string();
    // The parser counts lines within this one.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let cause = text.strip_suffix(&place).unwrap_or(&text);
    match error.classify() {
        Category::Data => BadLine::malformed(cause),
        Category::Syntax | Category::Eof | Category::Io => {
            // The parser took the word for `true`, `false` or `null`.
            let cause = cause.replace("expected ident", "expected value");
            let text = format!("not JSON: {cause} at column {}", error.column());
            BadLine::new(Code::NotJson, text)
        }
    }
}

/// `a, b and c`.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// A value as JSON, shortened.
fn written(value: &Value) -> String {
    shortened(&value.to_string())
}

/// The beginning of a text, for an error that quotes it.
fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Operation, BadLine> {
        Operation::read(line.as_bytes())
    }

    fn action(line: &str) -> Action {
        read(line).expect("the line is right").action
    }

    /// The code and the text of the error.
    fn error(line: &str) -> (Code, String) {
        let BadLine { code, text } = read(line).expect_err("the line is wrong");
        (code, text)
    }

    fn malformed(line: &str) -> String {
        let (code, text) = error(line);
        assert_eq!(code, Code::Malformed, "{text}");
        text
    }

    #[test]
    fn every_operation_is_read() {
        assert_eq!(
            action(r#"{"type": "add_credits", "amount": 5, "expiry_time": 9}"#),
            Action::AddCredits { amount: 5, expiry_time: 9, at: None }
        );
        assert_eq!(
            action(
                r#" {"at": 0, "expiry_time": 9223372036854775807, "amount": 18446744073709551615, "type": "add_credits"} "#
            ),
            Action::AddCredits { amount: u64::MAX, expiry_time: i64::MAX, at: Some(0) }
        );
        assert_eq!(
            action(r#"{"type": "consume_credits", "amount": 1, "current_time": 2}"#),
            Action::ConsumeCredits { amount: 1, current_time: 2, allow_partial: false }
        );
        assert_eq!(
            action(
                r#"{"type": "consume_credits", "amount": 1, "current_time": 2, "allow_partial": true}"#
            ),
            Action::ConsumeCredits { amount: 1, current_time: 2, allow_partial: true }
        );
        let operation = read(r#"{"type": "get_balance", "current_time": 3, "user": "ada"}"#);
        let action = Action::GetBalance { current_time: 3 };
        assert_eq!(operation, Ok(Operation { user: Some("ada".into()), action }));
    }

    #[test]
    fn unknown_and_missing_fields_are_named() {
        expect_test::expect!["get_balance has no field `at`; its fields are current_time and user"]
            .assert_eq(&malformed(r#"{"type": "get_balance", "current_time": 3, "at": 3}"#));
        expect_test::expect!["add_credits has no fields `b`, `c` and `expires`; its fields are amount, expiry_time, at and user"]
            .assert_eq(&malformed(
                r#"{"type": "add_credits", "amount": 1, "expiry_time": 3, "expires": 3, "c": 1, "b": 1}"#,
            ));
        expect_test::expect!["`amount` is missing; consume_credits needs amount and current_time"]
            .assert_eq(&malformed(r#"{"type": "consume_credits", "current_time": 3}"#));
        expect_test::expect![
            "`type` is missing; write add_credits, consume_credits or get_balance"
        ]
        .assert_eq(&malformed(r#"{"current_time": 3}"#));
        expect_test::expect![
            "there is no operation `burn`; write add_credits, consume_credits or get_balance"
        ]
        .assert_eq(&malformed(r#"{"type": "burn"}"#));
        expect_test::expect!["`type` is 3; write add_credits, consume_credits or get_balance"]
            .assert_eq(&malformed(r#"{"type": 3}"#));
    }

    #[test]
    fn a_field_given_twice_is_an_error() {
        expect_test::expect!["the field `amount` is given twice"].assert_eq(&malformed(
            r#"{"type": "add_credits", "amount": 1, "amount": 2, "expiry_time": 3}"#,
        ));
    }

    #[test]
    fn amounts_are_whole_and_positive() {
        for amount in
            ["0", "-1", "1.5", "1.0", "1e3", "18446744073709551616", "\"1\"", "null", "[1]"]
        {
            let line =
                format!(r#"{{"type": "add_credits", "amount": {amount}, "expiry_time": 3}}"#);
            let text = malformed(&line);
            assert!(text.starts_with("`amount` is "), "{text}");
            let advice = "; write a whole number from 1 to 18446744073709551615";
            assert!(text.ends_with(advice), "{text}");
        }
    }

    #[test]
    fn instants_are_whole_and_not_negative() {
        for instant in ["-1", "0.5", "9223372036854775808", "true", "\"2026-01-31\""] {
            let line = format!(r#"{{"type": "get_balance", "current_time": {instant}}}"#);
            let text = malformed(&line);
            assert!(text.starts_with("`current_time` is "), "{text}");
            let advice = "; write a whole number from 0 to 9223372036854775807";
            assert!(text.ends_with(advice), "{text}");
        }
    }

    #[test]
    fn flags_and_users_have_their_types() {
        expect_test::expect!["`allow_partial` is \"yes\"; write true or false"].assert_eq(&malformed(
            r#"{"type": "consume_credits", "amount": 1, "current_time": 3, "allow_partial": "yes"}"#,
        ));
        expect_test::expect!["`user` is 7; write a name in quotes"]
            .assert_eq(&malformed(r#"{"type": "get_balance", "current_time": 3, "user": 7}"#));
    }

    #[test]
    fn only_objects_are_operations() {
        let expected = r#"expected an object such as {"type": "get_balance", "current_time": 0}"#;
        for line in ["[]", "3", "\"get_balance\"", "null"] {
            let text = malformed(line);
            assert!(text.ends_with(expected), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_reported_with_its_column() {
        for (line, expected) in [
            ("hello", "not JSON: expected value at column 1"),
            ("nonsense", "not JSON: expected value at column 2"),
            (r#"{"type": "get_balance""#, "not JSON: EOF while parsing an object at column 22"),
            ("{} {}", "not JSON: trailing characters at column 4"),
        ] {
            assert_eq!(error(line), (Code::NotJson, expected.to_owned()));
        }
        let not_utf8 = Operation::read(b"{\"type\": \"\xff\"}").expect_err("not UTF-8");
        assert_eq!(not_utf8.code, Code::NotJson);
        let deep = format!("{{\"type\": {}", "[".repeat(100_000));
        assert_eq!(error(&deep).0, Code::NotJson);
    }

    #[test]
    fn long_values_are_shortened_in_errors() {
        let name = "é".repeat(1000);
        let text = malformed(&format!(r#"{{"type": "{name}"}}"#));
        assert!(text.contains(&format!("`{}…`", "é".repeat(40))), "{text}");
    }
}
