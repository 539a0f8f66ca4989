//! `--template`, `--jq` and `-o name`: what is printed of a JSON answer, for scripts.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use serde_json::{Deserializer, Value};

use super::format::{Format, shown};
use crate::exit::{Exit, Failure};

/// What `-o` takes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputKind {
    /// Aligned columns.
    #[default]
    Table,
    /// The server's answer, unchanged.
    Json,
    /// The same as YAML.
    Yaml,
    /// The columns of the table, for spreadsheets.
    Csv,
    /// The ids alone, one in a line.
    Name,
}

/// How answers are printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArguments {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, global = true)]
    output: OutputKind,
    /// Print a line for each object, such as '{id} {state} {spec.name}'.
    #[arg(long, value_name = "TEXT", global = true, conflicts_with = "jq")]
    template: Option<String>,
    /// Print what the program jq selects from the JSON answer, such as '.data[].id'.
    #[arg(long, value_name = "FILTER", global = true)]
    jq: Option<String>,
}

impl OutputArguments {
    /// Refuses a format that a filter would replace. Filters take JSON, so `-o json` is fine.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let filter = self.template.as_ref().map(|_| "--template");
        let Some(filter) = filter.or(self.jq.as_ref().map(|_| "--jq")) else { return Ok(()) };
        let other = match self.output {
            OutputKind::Table | OutputKind::Json => return Ok(()),
            OutputKind::Yaml => "yaml",
            OutputKind::Csv => "csv",
            OutputKind::Name => "name",
        };
        let why = format!("-o {other} and {filter} cannot be used together");
        Err(Failure::because(Exit::Usage, why).with_next("leave one of them out"))
    }

    /// The format in which the server's answer is taken; filters are applied when it is printed.
    pub(crate) fn format(self) -> Format {
        let filter = match (self.template, self.jq, self.output) {
            (Some(template), _, _) => Some(Filter::Template(template)),
            (None, Some(jq), _) => Some(Filter::Jq(jq)),
            (None, None, OutputKind::Name) => Some(Filter::Template("{id}".to_owned())),
            (
                None,
                None,
                OutputKind::Table | OutputKind::Json | OutputKind::Yaml | OutputKind::Csv,
            ) => None,
        };
        if let Some(filter) = filter {
            // Called once, at the start.
            let _ = FILTER.set(filter);
            return Format::Json;
        }
        match self.output {
            OutputKind::Table => Format::Table,
            OutputKind::Json | OutputKind::Name => Format::Json,
            OutputKind::Yaml => Format::Yaml,
            OutputKind::Csv => Format::Csv,
        }
    }

    /// Whether failures are printed as JSON.
    pub(crate) fn has_json_failures(&self) -> bool {
        self.output == OutputKind::Json
    }
}

enum Filter {
    Template(String),
    Jq(String),
}

static FILTER: OnceLock<Filter> = OnceLock::new();

/// What is printed of a text: all of it, unless a filter was given.
pub(crate) fn filtered(text: &str) -> Result<Option<String>, Failure> {
    match FILTER.get() {
        None => Ok(None),
        Some(Filter::Template(template)) => by_template(template, text).map(Some),
        Some(Filter::Jq(filter)) => by_jq(filter, text).map(Some),
    }
    .map(|text| text.map(shown))
}

fn by_template(template: &str, text: &str) -> Result<String, Failure> {
    let mut lines = String::new();
    for document in Deserializer::from_str(text).into_iter::<Value>() {
        let document = document?;
        let items = match document.get("data") {
            Some(Value::Array(items)) => items.as_slice(),
            Some(_) | None => std::slice::from_ref(&document),
        };
        for item in items {
            lines.push_str(&filled(template, item)?);
            lines.push('\n');
        }
    }
    Ok(lines)
}

/// The template with the fields of an object; a field that it does not have is empty.
fn filled(template: &str, item: &Value) -> Result<String, Failure> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, field)) = rest.split_once('{') {
        let unclosed = || {
            Failure::because(Exit::Usage, format!("a brace is not closed in: {template}"))
                .with_next("write fields as {id}, and fields of fields as {spec.name}")
        };
        let (field, after) = field.split_once('}').ok_or_else(unclosed)?;
        text.push_str(before);
        let value = field.split('.').try_fold(item, |value, name| match value {
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            other => other.get(name),
        });
        match value {
            None | Some(Value::Null) => {}
            Some(Value::String(value)) => text.push_str(value),
            Some(other) => text.push_str(&other.to_string()),
        }
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

fn by_jq(filter: &str, text: &str) -> Result<String, Failure> {
    let mut jq = Command::new("jq");
    let jq = jq.args(["-r", filter]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut jq = jq.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::because(Exit::Failed, "jq is not installed")
            .with_next("install jq, or use --template '{id}' or -o json"),
        _ => Failure::new("cannot start jq", error),
    })?;
    let mut input = jq.stdin.take().expect("it is piped");
    let text = text.to_owned();
    // Written beside the reading, because both pipes have a bound.
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = jq.wait_with_output()?;
    // A filter that ends early reads only a part.
    let _ = writing.join();
    if !output.status.success() {
        let why = format!("jq did not accept the filter {filter}");
        return Err(Failure::because(Exit::Usage, why).with_next("its reason is above"));
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_prints_a_line_for_each_object() {
        let list = r#"{"data":[{"id":"a","spec":{"name":"x"},"n":3},{"id":"b","spec":{}}]}"#;
        let print = |template: &str, text: &str| by_template(template, text).expect("it is whole");
        assert_eq!(print("{id} {spec.name} {n}", list), "a x 3\nb  \n");
        assert_eq!(print("{id}", r#"{"id":"one"}"#), "one\n");
        assert_eq!(print("{lots.1.grant}", r#"{"lots":[{"grant":"g"},{"grant":"h"}]}"#), "h\n");
        let pages = "{\"data\":[{\"id\":\"a\"}]}\n{\"data\":[{\"id\":\"b\"}]}\n";
        assert_eq!(print("{id}", pages), "a\nb\n");
        assert_eq!(print("{id}", r#"{"data":[]}"#), "");
        assert!(by_template("{id", list).is_err());
    }
}
