//! Splits the input into messages: one per line, or one over several lines.

use serde_json::Value;

/// A piece of the input.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// Any JSON.
    Json(Value),
    /// Text that is not JSON.
    NotJson(String),
}

/// The lines of an incomplete message.
#[derive(Default)]
pub(super) struct Input {
    begun: Vec<u8>,
    lines: usize,
}

/// A message over more lines than this is not waited for.
const MAX_LINES: usize = 1000;
/// Nor one of more bytes than this.
const MAX_BYTES: usize = 1 << 20;

impl Input {
    /// Takes one line, with its end.
    ///
    /// A line that is a complete message ends an incomplete one before it: a message that was
    /// cut off must not swallow the next.
    pub(super) fn take(&mut self, line: &[u8]) -> Vec<Line> {
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        let alone = serde_json::from_slice::<Value>(line);
        if self.begun.is_empty() {
            return match alone {
                Ok(value) => vec![Line::Json(value)],
                Err(error) if error.is_eof() => {
                    self.begin(line);
                    Vec::new()
                }
                Err(_) => vec![not_json(line)],
            };
        }
        if let Ok(value) = alone
            && value.get("body").is_some()
        {
            let mut parts = self.end();
            parts.push(Line::Json(value));
            return parts;
        }
        self.begin(line);
        match serde_json::from_slice(&self.begun) {
            Ok(value) => {
                self.begun.clear();
                self.lines = 0;
                vec![Line::Json(value)]
            }
            Err(error)
                if error.is_eof() && self.lines < MAX_LINES && self.begun.len() < MAX_BYTES =>
            {
                Vec::new()
            }
            Err(_) => self.end(),
        }
    }

    /// Ends the input and returns an incomplete message as text.
    pub(super) fn end(&mut self) -> Vec<Line> {
        self.lines = 0;
        let begun = std::mem::take(&mut self.begun);
        if begun.is_empty() { Vec::new() } else { vec![not_json(&begun)] }
    }

    fn begin(&mut self, line: &[u8]) {
        self.begun.extend_from_slice(line);
        self.lines += 1;
    }
}

/// The text on one line, so that it can be found in a log.
fn not_json(line: &[u8]) -> Line {
    let text = String::from_utf8_lossy(line);
    Line::NotJson(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parts(lines: &[&str]) -> Vec<Line> {
        let mut input = Input::default();
        let mut parts: Vec<Line> =
            lines.iter().flat_map(|line| input.take(format!("{line}\n").as_bytes())).collect();
        parts.extend(input.end());
        parts
    }

    fn bad(text: &str) -> Line {
        Line::NotJson(text.into())
    }

    #[test]
    fn a_message_may_be_on_one_line_or_on_several() {
        let message = json!({"src": "a", "body": {}});
        assert_eq!(parts(&[r#"{"src": "a", "body": {}}"#]), [Line::Json(message.clone())]);
        assert_eq!(
            parts(&["{", r#""src": "a","#, "", r#""body": {}"#, "}"]),
            [Line::Json(message)]
        );
    }

    #[test]
    fn each_line_that_is_not_json_is_reported() {
        assert_eq!(parts(&["hello", "2"]), [bad("hello"), Line::Json(json!(2))]);
        assert_eq!(parts(&["{", "]"]), [bad("{ ]")]);
        assert_eq!(parts(&["{"]), [bad("{")]);
    }

    #[test]
    fn a_message_that_was_cut_off_does_not_swallow_the_next() {
        let next = r#"{"src": "a", "body": {}}"#;
        let message = Line::Json(json!({"src": "a", "body": {}}));
        assert_eq!(parts(&[r#"{"src": "a", "bo"#, next]), [bad(r#"{"src": "a", "bo"#), message]);
    }
}
