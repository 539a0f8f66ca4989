//! The fast path for most batches: operations of plain strings whose bodies are [`Flat`].
//!
//! Any other or invalid batch takes the slow path of [`crate::json`]. Both paths give the same
//! operations and the same canonical form.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::flat::{Flat, quoted};

/// A batch, read from a body without copying it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlatBatch<'a> {
    #[serde(borrow)]
    operations: Vec<Object<FlatOperation<'a>>>,
    #[serde(default, deserialize_with = "present")]
    atomic: Option<bool>,
}

/// One operation of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlatOperation<'a> {
    /// The method.
    pub method: &'a str,
    /// The path.
    pub path: &'a str,
    #[serde(borrow, default, deserialize_with = "present")]
    body: Option<&'a RawValue>,
    /// The idempotency key of the operation.
    #[serde(borrow, default, deserialize_with = "present")]
    pub idempotency_key: Option<&'a str>,
}

/// Accepts only an object; a derived structure would accept an array too.
#[derive(Debug)]
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object<T>, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData)).map(Object)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(entries))
    }
}

/// A field that is present must not be `null`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl<'a> FlatBatch<'a> {
    /// Parses a body, if it is flat; the operations' bodies are parsed later.
    pub fn read(body: &'a [u8]) -> Option<FlatBatch<'a>> {
        let batch: Object<FlatBatch<'a>> = serde_json::from_slice(body).ok()?;
        Some(batch.0)
    }

    /// The operations, in order.
    pub fn operations(&self) -> impl ExactSizeIterator<Item = &FlatOperation<'a>> {
        self.operations.iter().map(|operation| &operation.0)
    }

    /// Whether the batch is atomic.
    pub fn is_atomic(&self) -> bool {
        self.atomic.unwrap_or(false)
    }

    /// The same as [`crate::json::canonical`] of the same body, if every operation's body is flat.
    pub fn canonical(&self, out: &mut Vec<u8>) -> Option<()> {
        out.push(b'{');
        if let Some(atomic) = self.atomic {
            out.extend_from_slice(if atomic { b"\"atomic\":true," } else { b"\"atomic\":false," });
        }
        out.extend_from_slice(b"\"operations\":[");
        for operation in self.operations() {
            operation.canonical(out)?;
            out.push(b',');
        }
        out.extend_from_slice(b"],}");
        Some(())
    }
}

impl<'a> FlatOperation<'a> {
    /// The bytes of its body.
    pub fn body(&self) -> Option<&'a [u8]> {
        self.body.map(|body| body.get().as_bytes())
    }

    fn canonical(&self, out: &mut Vec<u8>) -> Option<()> {
        let text = |name: &str, value: &str, out: &mut Vec<u8>| {
            quoted(name, out);
            out.push(b':');
            quoted(value, out);
            out.push(b',');
        };
        out.push(b'{');
        if let Some(body) = self.body() {
            out.extend_from_slice(b"\"body\":");
            Flat::read(body)?.canonical(out);
            out.push(b',');
        }
        if let Some(key) = self.idempotency_key {
            text("idempotency_key", key, out);
        }
        text("method", self.method, out);
        text("path", self.path, out);
        out.push(b'}');
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::credits::batch::Batch;
    use crate::json;

    /// Method, path, key and body of each operation, whether it is atomic, and the canonical form.
    type Read = (Vec<(String, String, Option<String>, Option<Value>)>, bool, Vec<u8>);

    fn long(body: &[u8]) -> Option<Read> {
        let tree = json::parse(body).ok()?;
        let mut form = Vec::new();
        json::canonical(&tree, &mut form);
        let batch: Batch = json::convert(tree).ok()?;
        let operations = batch.operations.into_iter();
        let operations =
            operations.map(|one| (one.method, one.path, one.idempotency_key, one.body)).collect();
        Some((operations, batch.atomic, form))
    }

    fn short(body: &[u8]) -> Option<Read> {
        let batch = FlatBatch::read(body)?;
        let mut form = Vec::new();
        batch.canonical(&mut form)?;
        let operations = batch.operations().map(|one| {
            let body = one.body().map(|body| json::parse(body).expect("it is flat"));
            (one.method.into(), one.path.into(), one.idempotency_key.map(str::to_owned), body)
        });
        Some((operations.collect(), batch.is_atomic(), form))
    }

    #[test]
    fn usual_bodies_take_the_fast_path_and_give_the_same_result() {
        for body in [
            r#"{"operations":[]}"#,
            r#"{"operations":[{"method":"POST","path":"/v1/holds","body":{"id":"h","amount":"1.5","ttl_seconds":3},
                "idempotency_key":"k"},{"path":"/v1/holds/h/settle","method":"POST","body":{"total":1}}]}"#,
            r#" { "atomic" : true, "operations" : [ { "method":"é", "path":"", "body": {} } ] } "#,
            r#"{"operations":[{"method":"DELETE","path":"/v1/accounts/a/budgets/b"}],"atomic":false}"#,
        ] {
            let found = short(body.as_bytes());
            assert!(found.is_some(), "{body}");
            assert_eq!(found, long(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn invalid_or_unusual_bodies_take_the_slow_path() {
        let with = |fields: &str| format!(r#"{{"operations":[{{{fields}}}]}}"#);
        let plain = r#""method":"POST","path":"/v1/x""#;
        for body in [
            String::new(),
            "[]".into(),
            "{}".into(),
            "[[]]".into(),
            r#"{"operations":[["POST","/v1/x",{},"k"]]}"#.into(),
            r#"{"operations":[]} x"#.into(),
            r#"{"operations":[],"operations":[]}"#.into(),
            r#"{"operations":[],"atomic":null}"#.into(),
            r#"{"operations":[],"colour":1}"#.into(),
            with(r#""method":"POST""#),
            with(r#""method":"PO\u0053T","path":"/v1/x""#),
            with(&format!("{plain},{plain}")),
            with(&format!(r#"{plain},"idempotency_key":null"#)),
            with(&format!(r#"{plain},"body":null"#)),
            with(&format!(r#"{plain},"body":[]"#)),
            with(&format!(r#"{plain},"body":{{"a":1,"a":1}}"#)),
            with(&format!(r#"{plain},"body":{{"a":1.5}}"#)),
            with(&format!(r#"{plain},"body":{{"a":{{}}}}"#)),
            with(&format!(r#"{plain},"body":{{"a":"\n"}}"#)),
            with(&format!(r#"{plain},"body":{{"a":1"#)),
        ] {
            assert_eq!(short(body.as_bytes()), None, "{body}");
        }
        assert_eq!(short(b"{\"operations\":[{\"method\":\"\xff\",\"path\":\"\"}]}"), None);
    }

    proptest! {
        #[test]
        fn the_fast_path_gives_the_result_of_the_slow_path(
            operations in proptest::collection::vec(proptest::collection::vec((
                prop_oneof![
                    8 => Just("method"), 8 => Just("path"), 4 => Just("idempotency_key"),
                    4 => Just("body"), 1 => Just("x"),
                ],
                prop_oneof![
                    6 => "[a-zé:. ]{0,5}".prop_map(|text| format!("\"{text}\"")),
                    2 => "[a-z]{0,2}".prop_map(|key| format!("{{\"{key}\":7,\"b\":\"x\"}}")),
                    1 => Just("null".to_owned()), 1 => Just("{\"a\":[1]}".to_owned()),
                    1 => Just("1e3".to_owned()), 1 => Just("\"a\\nb\"".to_owned()),
                ],
            ), 1..5), 0..3),
            end in prop_oneof![Just(""), Just(",\"atomic\":true"), Just(",\"atomic\":1"), Just(",")],
        ) {
            let operations: Vec<String> = operations.iter().map(|fields| {
                let fields: Vec<String> =
                    fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }).collect();
            let body = format!("{{\"operations\":[{}]{end}}}", operations.join(","));
            if let Some(found) = short(body.as_bytes()) {
                prop_assert_eq!(Some(found), long(body.as_bytes()), "{}", body);
            }
        }
    }
}
