//! Output formats.

use std::io::{ErrorKind, IsTerminal, Write};

use bursar_client::api::terminal::escaped_lines;

use super::filter::filtered;
use crate::exit::Failure;

/// An output format.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Aligned columns.
    Table,
    /// The server's answer, unchanged.
    Json,
    /// The same as YAML.
    Yaml,
    /// The columns of the table, for spreadsheets.
    Csv,
}

/// JSON as YAML, in the same order.
pub(crate) fn yaml(json: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let mut reader = serde_json::Deserializer::from_str(json);
    let mut writer = serde_saphyr::Serializer::new(&mut text);
    serde_transcode::transcode(&mut reader, &mut writer)
        .map_err(|error| Failure::new("cannot write YAML", error))?;
    Ok(text)
}

/// JSON with a line for each field, in the same order.
pub(crate) fn pretty(json: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let mut reader = serde_json::Deserializer::from_str(json);
    let mut writer = serde_json::Serializer::pretty(&mut bytes);
    serde_transcode::transcode(&mut reader, &mut writer)?;
    Ok(String::from_utf8(bytes)?)
}

/// Whether standard output is a terminal with colours enabled.
pub(crate) fn colours() -> bool {
    let choice = anstream::AutoStream::choice(&std::io::stdout());
    !matches!(choice, anstream::ColorChoice::Never)
}

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Plain text for printing: escaped on a terminal, unchanged elsewhere.
pub(crate) fn shown(text: String) -> String {
    shown_on(is_terminal(), text)
}

fn shown_on(terminal: bool, text: String) -> String {
    if terminal { escaped_lines(&text).into_owned() } else { text }
}

/// Prints plain text to standard output, ending the last line.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_styled(&shown(text.to_owned()))
}

/// Prints text with colours to standard output, ending the last line. Text of other users in it is
/// already escaped.
pub(crate) fn print_styled(text: &str) -> Result<(), Failure> {
    let filtered = filtered(text)?;
    let text = filtered.as_deref().unwrap_or(text);
    let mut out = std::io::stdout().lock();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        // The reader has closed the pipe, as `head` does: not a failure.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new("cannot write the output", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    const BODY: &str = r#"{"id":"hold_1","amount":"28.8","on":"yes","count":3,"lots":[{"grant":"g","amount":"0"}],"expires_at":null,"context":{}}"#;

    #[test]
    fn yaml_keeps_the_order_and_quotes_ambiguous_strings() {
        expect![[r#"
            id: hold_1
            amount: "28.8"
            "on": "yes"
            count: 3
            lots:
            - grant: g
              amount: "0"
            expires_at: null
            context: {}
        "#]]
        .assert_eq(&yaml(BODY).expect("plain"));
    }

    #[test]
    fn only_a_terminal_is_protected() {
        let hostile = "{\"name\": \"a\u{7f}\u{9b}2J\u{202e}\"}\n".to_owned();
        assert_eq!(shown_on(false, hostile.clone()), hostile);
        let shown = shown_on(true, hostile.clone());
        assert_eq!(shown, "{\"name\": \"a\\u007f\\u009b2J\\u202e\"}\n");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(read(&shown), read(&hostile));
    }

    #[test]
    fn pretty_json_keeps_the_order() {
        expect![[r#"
            {
              "b": "1",
              "a": []
            }"#]]
        .assert_eq(&pretty(r#"{"b":"1","a":[]}"#).expect("plain"));
    }
}
