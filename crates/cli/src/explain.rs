//! `bursar explain`: what a resource or a field of the API means, without a server.

use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::render::format::{Format, colours, print, print_styled, yaml};
use crate::render::sheet::{Cell, Column, Row, Sheet, words};

/// The description of the API that this build serves.
const DESCRIPTION: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/v1.json"));
/// How many similar names are proposed.
const MAX_PROPOSED: usize = 5;

/// A field of a resource.
#[derive(serde::Serialize)]
struct Field {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    detail: String,
}

impl Row for Field {
    const COLUMNS: &'static [Column] = &[words("field"), words("type"), words("detail")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::new(&self.name), Cell::new(short(&self.kind)), Cell::new(&self.detail)]
    }
}

/// Explains a resource such as `job`, or a field such as `job.attempts.gpu_ms`; without a path, lists
/// the resources.
pub(crate) fn run(path: Option<&str>, format: Format) -> Result<(), Failure> {
    let document: Value = serde_json::from_str(DESCRIPTION)?;
    let schemas = &document["components"]["schemas"];
    let Some(path) = path else { return show(None, &resources(schemas), format) };
    let found = found(schemas, path)?;
    let about = Field {
        name: path.to_owned(),
        kind: kind(found),
        detail: one_line(found["description"].as_str().unwrap_or_default()),
    };
    show(Some(&about), &fields(schemas, found), format)
}

fn show(about: Option<&Field>, fields: &[Field], format: Format) -> Result<(), Failure> {
    let json = || match about {
        Some(about) => serde_json::json!({ "about": about, "fields": fields }).to_string(),
        None => serde_json::json!({ "resources": fields }).to_string(),
    };
    match format {
        Format::Json => print(&json()),
        Format::Yaml => print(&yaml(&json())?),
        Format::Csv => print(&Sheet::list(fields).csv()?),
        Format::Table => {
            if let Some(about) = about {
                print(&format!("{}  {}\n{}", about.name, about.kind, about.detail))?;
            }
            let list = (!fields.is_empty()).then(|| Sheet::list(fields).text(colours()));
            list.map_or(Ok(()), |list| print_styled(&format!("\n{list}")))
        }
    }
}

/// All resources, with the first sentence about each.
fn resources(schemas: &Value) -> Vec<Field> {
    let all = schemas.as_object().into_iter().flatten();
    all.map(|(name, schema)| Field {
        name: name.to_lowercase(),
        kind: kind(schema),
        detail: one_line(schema["description"].as_str().unwrap_or_default()),
    })
    .collect()
}

/// The schema at a path. Names of resources are written without case and underscores.
fn found<'a>(schemas: &'a Value, path: &str) -> Result<&'a Value, Failure> {
    let mut parts = path.split('.');
    let mut known = String::new();
    let first = parts.next().unwrap_or_default();
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    let all: Vec<&String> =
        schemas.as_object().into_iter().flatten().map(|(name, _)| name).collect();
    let singular = first.strip_suffix('s').unwrap_or(first);
    let by_name = |wanted: &str| all.iter().find(|name| plain(name) == plain(wanted));
    let named = by_name(first).or_else(|| by_name(singular));
    let mut schema = match named {
        Some(name) => &schemas[name.as_str()],
        None => {
            let near = all.iter().filter(|name| plain(name).contains(&plain(singular)));
            let near: Vec<String> = near.take(MAX_PROPOSED).map(|name| plain(name)).collect();
            return Err(unknown(first, &near, "bursar explain lists all resources"));
        }
    };
    known.push_str(first);
    for part in parts {
        let resolved = object(schemas, schema);
        schema = match resolved["properties"].get(part) {
            Some(field) => {
                known = format!("{known}.{part}");
                field
            }
            None => {
                let deeper = deeper(schemas, resolved, part);
                if let Some(field) = deeper {
                    let next = format!("bursar explain {known}.{field}.{part}");
                    return Err(unknown(part, &[], &next));
                }
                let names = resolved["properties"].as_object().into_iter().flatten();
                let near: Vec<String> = names.map(|(name, _)| name.clone()).collect();
                return Err(unknown(part, &near, "write one of these fields"));
            }
        };
    }
    Ok(schema)
}

/// The field of an object whose own fields have this name.
fn deeper<'a>(schemas: &'a Value, resolved: &'a Value, name: &str) -> Option<&'a str> {
    let mut fields = resolved["properties"].as_object().into_iter().flatten();
    let has = |field: &Value| object(schemas, field)["properties"].get(name).is_some();
    fields.find(|(_, field)| has(field)).map(|(field, _)| field.as_str())
}

fn unknown(name: &str, near: &[String], next: &str) -> Failure {
    let failure = Failure::because(Exit::NotFound, format!("the API has no `{name}`"));
    let near = near.join(", ");
    let next = if near.is_empty() { next.to_owned() } else { format!("{next}: {near}") };
    failure.with_next(next)
}

/// The object behind references, optional values and lists.
fn object<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    // A description that refers to itself would be followed without an end.
    for _ in 0..16 {
        let alternatives =
            ["oneOf", "anyOf", "allOf"].iter().find_map(|name| schema[*name].as_array());
        let is_null = |one: &&Value| one["type"] != "null";
        schema = match (schema["$ref"].as_str(), alternatives) {
            (Some(name), _) => &schemas[name.rsplit('/').next().unwrap_or(name)],
            (None, Some(all)) => match all.iter().find(is_null) {
                Some(one) => one,
                None => return schema,
            },
            (None, None) if schema["items"].is_object() => &schema["items"],
            (None, None) => return schema,
        };
    }
    schema
}

/// The fields of a schema.
fn fields(schemas: &Value, schema: &Value) -> Vec<Field> {
    let properties = object(schemas, schema)["properties"].as_object().into_iter().flatten();
    properties
        .map(|(name, field)| Field {
            name: name.clone(),
            kind: kind(field),
            detail: one_line(field["description"].as_str().unwrap_or_default()),
        })
        .collect()
}

/// The most words of an enumeration in a table.
const MAX_WORDS: usize = 6;

/// A type in a table: of a long enumeration only the first words.
fn short(kind: &str) -> String {
    let words: Vec<&str> = kind.split(", ").collect();
    match words.get(..MAX_WORDS).filter(|first| first.len() < words.len()) {
        Some(first) => format!("{}, … ({} words)", first.join(", "), words.len()),
        None => kind.to_owned(),
    }
}

/// The type in a few words: `string (date-time)`, `list of Attempt`, `one of queued, running`.
fn kind(schema: &Value) -> String {
    let texts = |list: &Value| -> Vec<String> {
        let all = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        all.filter(|word| *word != "null").map(str::to_owned).collect()
    };
    if let Some(name) = schema["$ref"].as_str() {
        return name.rsplit('/').next().unwrap_or(name).to_owned();
    }
    if schema["enum"].is_array() {
        return format!("one of {}", texts(&schema["enum"]).join(", "));
    }
    let alternatives = ["oneOf", "anyOf", "allOf"].iter().find_map(|name| schema[*name].as_array());
    if let Some(all) = alternatives {
        let kinds: Vec<String> = all.iter().map(kind).filter(|kind| kind != "null").collect();
        return kinds.join(" or ");
    }
    if schema["items"].is_object() {
        return format!("list of {}", kind(&schema["items"]));
    }
    let name = match &schema["type"] {
        Value::String(name) => name.clone(),
        list => texts(list).join(" or "),
    };
    match schema["format"].as_str() {
        Some(format) => format!("{name} ({format})"),
        None => name,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schemas() -> Value {
        serde_json::from_str::<Value>(DESCRIPTION).expect("JSON")["components"]["schemas"].clone()
    }

    #[test]
    fn fields_are_found_through_lists_and_references() {
        let schemas = schemas();
        let field = found(&schemas, "job.attempts.gpu_ms").expect("a field");
        assert!(kind(field).starts_with("integer"), "{field}");
        assert!(field["description"].as_str().is_some_and(|text| text.contains("GPU")), "{field}");
        let grant = found(&schemas, "grant").expect("a resource");
        let names: Vec<String> =
            fields(&schemas, grant).into_iter().map(|field| field.name).collect();
        assert!(names.contains(&"expires_at".to_owned()), "{names:?}");
        assert!(found(&schemas, "job.attemps").is_err());
        assert!(found(&schemas, "gran").is_err());
        assert!(found(&schemas, "jobs").is_ok(), "people write the plural");
        let deeper = found(&schemas, "job.gpus").expect_err("it is a field of a field");
        assert_eq!(deeper.next(), Some("bursar explain job.spec.gpus"));
    }

    #[test]
    fn every_resource_can_be_explained() {
        let schemas = schemas();
        for resource in resources(&schemas) {
            let schema = found(&schemas, &resource.name).expect("it is listed");
            assert!(!kind(schema).is_empty(), "{} has no type", resource.name);
            assert!(short(&resource.kind).len() < 150, "{}: {}", resource.name, resource.kind);
        }
    }
}
