//! The OpenAPI document of the server: its operations, and whether an answer matches its schema.

use serde_json::Value;

/// One operation of the description.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) method: String,
    /// With its parameters in braces.
    pub(crate) path: String,
    /// The location and the name of each parameter.
    pub(crate) parameters: Vec<(Place, String)>,
    /// The schema of the body, if it has one.
    pub(crate) body: Option<Value>,
    responses: Value,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
}

/// The document.
pub(crate) struct Description {
    document: Value,
    pub(crate) operations: Vec<Operation>,
}

impl Description {
    pub(crate) fn new(document: Value) -> Description {
        let mut operations = Vec::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                operations.push(read_operation(path, method, operation));
            }
        }
        assert!(operations.len() > 50, "a description of {} operations", operations.len());
        Description { document, operations }
    }

    /// The schema itself, if this is a reference to one.
    pub(crate) fn resolved<'a>(&'a self, mut schema: &'a Value) -> &'a Value {
        while let Some(reference) = schema["$ref"].as_str() {
            let pointer = reference.trim_start_matches('#');
            schema = self.document.pointer(pointer).expect("references are to what is there");
        }
        schema
    }

    /// The fault of an answer, if any.
    pub(crate) fn fault(
        &self,
        operation: &Operation,
        status: u16,
        content_type: Option<&str>,
        body: Option<&Value>,
    ) -> Option<String> {
        let response = &operation.responses[status.to_string()];
        if response.is_null() {
            return Some(format!("status {status} is not described"));
        }
        let response = self.resolved(response);
        let kinds = response["content"].as_object()?;
        let kind = content_type.unwrap_or("").split(';').next().unwrap_or("").trim();
        let Some(content) = kinds.get(kind) else {
            return Some(format!("content type `{kind}` is not described"));
        };
        if !kind.ends_with("json") {
            return None;
        }
        let Some(body) = body else { return Some("the body is not JSON".into()) };
        self.mismatch(&content["schema"], body, "")
    }

    /// Where a value differs from a schema.
    pub(crate) fn mismatch(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        let schema = self.resolved(schema);
        if let Some(choices) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            let fits = choices.iter().any(|choice| self.mismatch(choice, value, at).is_none());
            return (!fits).then(|| format!("{at}: no alternative fits {}", cut(value)));
        }
        let types = match &schema["type"] {
            Value::String(one) => vec![one.as_str()],
            Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !types.is_empty() && !types.iter().any(|kind| has_type(value, kind)) {
            return Some(format!("{at}: {} is not of type {types:?}", cut(value)));
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !value.is_null()
            && !allowed.contains(value)
        {
            return Some(format!("{at}: {} is not among {allowed:?}", cut(value)));
        }
        match value {
            Value::Object(fields) => self.object_mismatch(schema, fields, at),
            Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
                self.mismatch(&schema["items"], item, &format!("{at}/{index}"))
            }),
            _ => None,
        }
    }

    fn object_mismatch(
        &self,
        schema: &Value,
        fields: &serde_json::Map<String, Value>,
        at: &str,
    ) -> Option<String> {
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                return Some(format!("{at}: `{name}` is missing"));
            }
        }
        fields.iter().find_map(|(name, value)| {
            let at = format!("{at}/{name}");
            let known = &schema["properties"][name];
            let more = &schema["additionalProperties"];
            match (known.is_null(), more) {
                (false, _) => self.mismatch(known, value, &at),
                (true, Value::Bool(false)) => Some(format!("{at}: not described")),
                (true, more) => self.mismatch(more, value, &at),
            }
        })
    }
}

fn read_operation(path: &str, method: &str, operation: &Value) -> Operation {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let parameters = parameters.filter_map(|parameter| {
        let place = match parameter["in"].as_str()? {
            "path" => Place::Path,
            "query" => Place::Query,
            "header" => Place::Header,
            _ => return None,
        };
        Some((place, parameter["name"].as_str()?.to_owned()))
    });
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    Operation {
        id: operation["operationId"].as_str().expect("each operation has an id").to_owned(),
        method: method.to_ascii_uppercase(),
        path: path.to_owned(),
        parameters: parameters.collect(),
        body: (!body.is_null()).then(|| body.clone()),
        responses: operation["responses"].clone(),
    }
}

fn has_type(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn cut(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}
