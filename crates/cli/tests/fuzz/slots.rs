//! Where a hostile value can go: every parameter, header and body field of every operation.

use serde_json::{Value, json};

use crate::description::{Description, Operation, Place};

/// Headers that every operation is tried with.
const HEADERS: [&str; 6] = [
    "Idempotency-Key",
    "Bursar-Tenant",
    "Last-Event-ID",
    "traceparent",
    "Content-Type",
    "Authorization",
];

/// The depth to which bodies are searched for slots.
const MAX_DEPTH: usize = 4;

/// One place for a hostile value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Path(String),
    Query(String),
    Header(String),
    /// The path to a field: names, and `[]` for the first item of a list.
    Field(Vec<String>),
    /// A name beside those of an object.
    Unknown,
    Body,
}

pub(crate) fn slots(description: &Description, operation: &Operation) -> Vec<Slot> {
    let mut slots = Vec::new();
    for (place, name) in &operation.parameters {
        slots.push(match place {
            Place::Path => Slot::Path(name.clone()),
            Place::Query => Slot::Query(name.clone()),
            Place::Header => continue,
        });
    }
    slots.extend(HEADERS.map(|name| Slot::Header(name.into())));
    if let Some(schema) = &operation.body {
        slots.push(Slot::Body);
        slots.push(Slot::Unknown);
        fields(description, schema, &[], &mut slots);
    }
    slots
}

fn fields(description: &Description, schema: &Value, way: &[String], slots: &mut Vec<Slot>) {
    if way.len() >= MAX_DEPTH {
        return;
    }
    let schema = concrete(description, schema);
    let below = |step: &str| [way, &[step.to_owned()]].concat();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        slots.push(Slot::Field(below(name)));
        fields(description, field, &below(name), slots);
    }
    if !schema["items"].is_null() {
        slots.push(Slot::Field(below("[]")));
        fields(description, &schema["items"], &below("[]"), slots);
    }
    if schema["additionalProperties"].is_object() {
        slots.push(Slot::Field(below("any")));
    }
}

/// The first alternative that is not null.
fn concrete<'a>(description: &'a Description, schema: &'a Value) -> &'a Value {
    let mut schema = description.resolved(schema);
    while let Some(first) = schema["oneOf"].as_array().and_then(|all| all.first()) {
        schema = description.resolved(first);
    }
    schema
}

/// A minimal value that fits a schema.
pub(crate) fn sample(description: &Description, schema: &Value, name: &str) -> Value {
    let top = description.resolved(schema);
    if let Some(example) = top["example"].as_object() {
        return example.clone().into();
    }
    if let Some(example) = top["examples"].as_array().and_then(|all| all.first()) {
        return example.clone();
    }
    let schema = concrete(description, schema);
    if let Some(choice) = schema["enum"].as_array().and_then(|all| all.first()) {
        return choice.clone();
    }
    if let Some(example) = schema["examples"].as_array().and_then(|all| all.first()) {
        return example.clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[0].as_str(),
        kind => kind.as_str(),
    };
    match kind {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten();
            let fields = required.filter_map(Value::as_str).map(|name| {
                (name.to_owned(), sample(description, &schema["properties"][name], name))
            });
            Value::Object(fields.collect())
        }
        Some("array") => json!([sample(description, &schema["items"], name)]),
        Some("integer") => schema["minimum"].as_i64().unwrap_or(1).max(1).into(),
        Some("boolean") => true.into(),
        _ => match name {
            "account" => "acme:nlp".into(),
            "region" | "regions" => "default".into(),
            "types" | "gpu_types" | "type" => "H100".into(),
            _ => "fuzz".into(),
        },
    }
}

/// Sets a value at a path in a body, and creates missing parents.
pub(crate) fn put(
    description: &Description,
    schema: &Value,
    body: &mut Value,
    way: &[String],
    value: Value,
) {
    let Some((step, rest)) = way.split_first() else {
        *body = value;
        return;
    };
    let schema = concrete(description, schema);
    let (below, inner) = if step == "[]" {
        if body.as_array().is_none_or(|items| items.is_empty()) {
            *body = json!([sample(description, &schema["items"], "")]);
        }
        (&mut body[0], &schema["items"])
    } else {
        if !body.is_object() {
            *body = sample(description, schema, "");
        }
        let known = &schema["properties"][step];
        let inner = if known.is_null() { &schema["additionalProperties"] } else { known };
        if !body.is_object() {
            *body = json!({});
        }
        if body[step.as_str()].is_null() && !rest.is_empty() {
            body[step.as_str()] = sample(description, inner, step);
        }
        (&mut body[step.as_str()], inner)
    };
    put(description, inner, below, rest, value);
}
