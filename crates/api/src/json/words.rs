//! Errors of deserialisation in the words of the API: no names of Rust types.

/// The reason why a field was rejected, for its caller.
pub fn plain_reason(reason: &str) -> String {
    let quoted = |text: &str| text.split('`').nth(1).unwrap_or_default().to_owned();
    if reason.starts_with("missing field `") {
        return "is required".to_owned();
    }
    if let Some(rest) = reason.strip_prefix("unknown field `") {
        let known = names(rest);
        return match known.is_empty() {
            true => "is unknown; no fields are expected here".to_owned(),
            false => format!("is unknown; expected: {}", known.join(", ")),
        };
    }
    if let Some(rest) = reason.strip_prefix("unknown variant `") {
        let name = quoted(&format!("`{rest}"));
        return format!("`{name}` is unknown; expected: {}", names(rest).join(", "));
    }
    if reason.starts_with("duplicate field `") {
        return "appears twice".to_owned();
    }
    for start in ["invalid type: ", "invalid value: ", "invalid length "] {
        let Some((found, expected)) =
            reason.strip_prefix(start).and_then(|rest| rest.split_once(", expected "))
        else {
            continue;
        };
        return format!("must be {}, not {}", wanted(expected), given(found));
    }
    // Numbers in parameters.
    if reason.contains("found in string") || reason.starts_with("number too ") {
        return "must be a whole number of 0 or more".to_owned();
    }
    if reason.contains("provided string was not `true` or `false`") {
        return "must be true or false".to_owned();
    }
    reason.to_owned()
}

/// The names in backquotes after the first.
fn names(rest: &str) -> Vec<&str> {
    rest.split('`').skip(2).step_by(2).collect()
}

fn wanted(expected: &str) -> String {
    let known = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number of 0 or more",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" | "string" | "a borrowed string" => "text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" | "map" => "an object",
        "unit" => "null",
        other if other.starts_with("struct ") || other.starts_with("enum ") => "an object",
        other if other.starts_with("string or ") => "text",
        other => other,
    };
    known.to_owned()
}

fn given(found: &str) -> String {
    let bare = |text: &str| text.trim_matches('`').to_owned();
    match found.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer" | "boolean", text)) => bare(text),
        Some(("floating", text)) => bare(text.strip_prefix("point ").unwrap_or(text)),
        Some(("unit", _)) => "null".to_owned(),
        Some(_) | None => match found {
            "sequence" => "a list".to_owned(),
            "map" => "an object".to_owned(),
            other => other.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[allow(dead_code, reason = "only its errors are read")]
    enum Colour {
        Red,
        Blue,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors are read")]
    struct Body {
        small: Option<u8>,
        count: Option<u64>,
        offset: Option<i16>,
        ratio: Option<f64>,
        name: Option<String>,
        is_on: Option<bool>,
        list: Option<Vec<u64>>,
        map: Option<BTreeMap<String, u64>>,
        colour: Option<Colour>,
        inner: Option<Box<Body>>,
    }

    #[test]
    fn no_error_names_a_type_of_rust() {
        for (body, expected) in [
            (json!({"count": "x"}), "must be a whole number of 0 or more, not the text \"x\""),
            (json!({"count": -1}), "must be a whole number of 0 or more, not -1"),
            (json!({"count": 1.5}), "must be a whole number of 0 or more, not 1.5"),
            (json!({"small": 256}), "must be a whole number from 0 to 255, not 256"),
            (json!({"offset": true}), "must be a whole number, not true"),
            (json!({"ratio": []}), "must be a number, not a list"),
            (json!({"name": 7}), "must be text, not 7"),
            (json!({"is_on": "yes"}), "must be true or false, not the text \"yes\""),
            (json!({"list": {}}), "must be a list, not an object"),
            (json!({"map": 1}), "must be an object, not 1"),
            (json!({"inner": 1}), "must be an object, not 1"),
            (json!({"colour": "green"}), "`green` is unknown; expected: red, blue"),
        ] {
            let error = crate::json::convert::<Body>(body.clone()).expect_err("it is wrong");
            let crate::json::BodyError::Field { reason, .. } = error else { panic!("{body}") };
            assert_eq!(reason, expected, "{body}");
        }
        let unknown = crate::json::convert::<Body>(json!({"colours": 1})).expect_err("unknown");
        let crate::json::BodyError::Field { field, reason } = unknown else { panic!() };
        assert_eq!(field, "colours");
        assert!(reason.starts_with("is unknown; expected: small, count, "), "{reason}");
    }

    /// Every kind of value in every field.
    #[test]
    fn no_combination_leaks_a_word_of_rust() {
        let values = [
            json!(null),
            json!(true),
            json!(-1),
            json!(300),
            json!(1.5),
            json!("x"),
            json!([]),
            json!([[]]),
            json!({}),
            json!({"a": "b"}),
            json!(u64::MAX),
        ];
        let fields = [
            "small", "count", "offset", "ratio", "name", "is_on", "list", "map", "colour", "inner",
            "other",
        ];
        let leaks = [
            "u8",
            "u16",
            "u32",
            "u64",
            "i16",
            "i64",
            "f64",
            "struct",
            "variant",
            "enum",
            "sequence",
            "unit value",
            "boolean",
            "floating",
            "integer",
        ];
        let mut wrong = 0;
        for field in fields {
            for value in &values {
                let body: Value = json!({ field: value });
                let Err(crate::json::BodyError::Field { reason, .. }) =
                    crate::json::convert::<Body>(body.clone())
                else {
                    continue;
                };
                wrong += 1;
                for leak in leaks {
                    assert!(!reason.contains(leak), "{body}: {reason}");
                }
            }
        }
        assert!(wrong > 50, "{wrong}");
    }
}
