//! The strict parser of request bodies: no unknown fields, no duplicate keys, no deep nesting.

pub mod flat;
pub mod flat_batch;
mod tree;
mod words;

use std::fmt;

use serde::de::{self, DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::json::tree::Tree;
pub use crate::json::words::plain_reason;

/// The deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 32;

/// The largest body that is read, in bytes.
pub const MAX_BODY: usize = 4 << 20;

/// Why a body was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The body is not strict JSON: 400.
    Malformed(String),
    /// A field is wrong: 422.
    Field {
        /// The field, with dots and indices.
        field: String,
        /// What it must be.
        reason: String,
    },
}

/// Parses a body into a tree; an empty body is an empty object.
pub fn parse(body: &[u8]) -> Result<Value, BodyError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Object(Map::new()));
    }
    let malformed = |error: serde_json::Error| {
        out_of_range(body, &error).unwrap_or_else(|| BodyError::Malformed(in_plain_words(&error)))
    };
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Strict { depth: 0 }.deserialize(&mut reader).map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(value)
}

/// The parser takes every word that begins with `t`, `f` or `n` for `true`, `false` or `null`.
fn in_plain_words(error: &serde_json::Error) -> String {
    error.to_string().replace("expected ident", "expected value")
}

/// Names the field of a number that is well-formed but out of range.
fn out_of_range(body: &[u8], error: &serde_json::Error) -> Option<BodyError> {
    const REASON: &str = "number out of range";
    if !error.to_string().starts_with(REASON) {
        return None;
    }
    // Parse again to find the path. Valid bodies do not pay for the tracking.
    let mut track = serde_path_to_error::Track::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let watched = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
    Strict { depth: 0 }.deserialize(watched).err()?;
    let field = match track.path().to_string() {
        path if path == "." || path.is_empty() => "body".to_owned(),
        path => path,
    };
    Some(BodyError::Field { field, reason: REASON.into() })
}

/// Converts a tree into a typed body; an error names the field.
pub fn convert<T: DeserializeOwned>(value: Value) -> Result<T, BodyError> {
    if !value.is_object() {
        let reason = "the body must be a JSON object".into();
        return Err(BodyError::Field { field: "body".into(), reason });
    }
    serde_path_to_error::deserialize(Tree(value)).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        let named = ["unknown field `", "missing field `", "duplicate field `"];
        let name = named
            .iter()
            .find_map(|start| reason.strip_prefix(start).and_then(|rest| rest.split('`').next()));
        let field = match (name, path.as_str()) {
            (Some(name), "." | "") => name.to_owned(),
            (Some(name), path) if path == name || path.ends_with(&format!(".{name}")) => {
                path.to_owned()
            }
            (Some(name), path) => format!("{path}.{name}"),
            (None, "." | "") => "body".to_owned(),
            (None, path) => path.to_owned(),
        };
        BodyError::Field { field, reason: plain_reason(&reason) }
    })
}

/// Writes the canonical form of a tree: independent of key order and spacing.
pub fn canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push(b'{');
            for key in keys {
                plain(key, out);
                out.push(b':');
                canonical(&map[key], out);
                out.push(b',');
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for item in items {
                canonical(item, out);
                out.push(b',');
            }
            out.push(b']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            plain(value, out);
        }
    }
}

fn plain(value: &impl serde::Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("writing to memory never fails");
}

struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: de::Error>(&self) -> Result<Strict, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format_args!("nested more than {MAX_DEPTH} levels deep")));
        }
        Ok(Strict { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self.deeper()?)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key `{key}` appears twice")));
            }
            let value = entries.next_value_seed(self.deeper()?)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        amount: crate::Amount,
        #[serde(default)]
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        list: Vec<String>,
    }

    fn read(body: &str) -> Result<Outer, BodyError> {
        parse(body.as_bytes()).and_then(convert)
    }

    fn field_of(body: &str) -> String {
        match read(body) {
            Err(BodyError::Field { field, .. }) => field,
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn a_wrong_field_is_named_with_its_path() {
        assert_eq!(field_of("{}"), "amount");
        assert_eq!(field_of(r#"{"amount": 1.5}"#), "amount");
        assert_eq!(field_of(r#"{"amount": 1, "colour": 2}"#), "colour");
        assert_eq!(field_of(r#"{"amount": 1, "inner": {"list": ["a", 7]}}"#), "inner.list[1]");
        assert_eq!(field_of(r#"{"amount": 1, "inner": {}}"#), "inner.list");
        assert_eq!(field_of(r#"{"amount": 1, "inner": {"list": [], "x": 1}}"#), "inner.x");
        assert_eq!(field_of("[]"), "body");
        let digits = "9".repeat(400);
        assert_eq!(field_of(r#"{"amount": 1e400}"#), "amount");
        assert_eq!(field_of(&format!(r#"{{"amount": {digits}}}"#)), "amount");
        assert_eq!(field_of(r#"{"inner": {"list": ["a", -1e999]}}"#), "inner.list[1]");
        assert_eq!(field_of("1e400"), "body");
    }

    #[test]
    fn an_array_is_rejected_where_an_object_is_expected() {
        assert_eq!(field_of(r#"{"amount": 1, "inner": [["a"]]}"#), "inner");
        assert_eq!(field_of(r#"{"amount": 1, "inner": []}"#), "inner");
        let batch = parse(br#"{"operations": [["POST", "/v1/holds"]]}"#).expect("valid");
        let read = convert::<crate::credits::batch::Batch>(batch);
        assert!(
            matches!(&read, Err(BodyError::Field { field, .. }) if field == "operations[0]"),
            "{read:?}"
        );
    }

    #[test]
    fn duplicate_keys_deep_nesting_and_invalid_json_are_malformed() {
        let deep = format!("{{\"amount\": {}1{}}}", "[".repeat(40), "]".repeat(40));
        for body in [
            "{",
            "{\"amount\": 1,}",
            "{\"amount\": 1} x",
            "{\"amount\": 1, \"amount\": 1}",
            "{\"inner\": {\"list\": [], \"list\": []}, \"amount\": 1}",
            "{\"amount\": NaN}",
            "\u{feff}{}",
            &deep,
        ] {
            assert!(matches!(read(body), Err(BodyError::Malformed(_))), "{body}");
        }
        assert!(matches!(parse(b"{\"a\": \"\xff\"}"), Err(BodyError::Malformed(_))));
        let Err(BodyError::Malformed(text)) = parse(b"nonsense") else { panic!("it is not JSON") };
        assert_eq!(text, "expected value at line 1 column 2");
    }

    #[test]
    fn equal_bodies_have_one_canonical_form() {
        let form = |body: &str| {
            let mut out = Vec::new();
            canonical(&parse(body.as_bytes()).expect("valid"), &mut out);
            out
        };
        assert_eq!(
            form(r#"{"a": 1, "b": [{"c": "é"}]}"#),
            form(r#"{ "b":[{"c":"\u00e9"}],"a":1}"#)
        );
        assert_ne!(form(r#"{"a": 1}"#), form(r#"{"a": "1"}"#));
        assert_eq!(form(""), form("{}"));
    }
}
