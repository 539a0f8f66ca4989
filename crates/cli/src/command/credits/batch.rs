//! `bursar batch`: many operations from a file.

use std::fmt;
use std::path::{Path, PathBuf};

use bursar_client::api::credits::batch::{Batch, MAX_OPERATIONS, Operation, OperationResult};
use bursar_client::api::words::counted;
use bursar_client::credits::batches;
use clap::Args;

use crate::exit::{Exit, Failure};
use crate::render::format::{Format, print, print_styled, yaml};
use crate::render::progress;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, numbers, words};
use crate::session::connection::read_text;
use crate::session::{ChangeArguments, Session};

#[derive(Args)]
#[command(after_help = "The file holds one operation a line, or a whole batch:\n  \
    {\"method\": \"POST\", \"path\": \"/v1/charges\", \"body\": {\"account\": \"acme\", \"amount\": \"1\"}}\n\n\
    Examples:\n  bursar batch charges.jsonl --atomic\n  generate | bursar batch -")]
pub(crate) struct BatchArguments {
    /// The file; `-` for standard input.
    file: PathBuf,
    /// Apply all operations or none, within one tenant.
    #[arg(long)]
    atomic: bool,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, arguments: BatchArguments) -> Result<(), Failure> {
    let text = read(&arguments.file)?;
    let mut batch = parse(&text)
        .map_err(|why| Failure::new(format_args!("{}", arguments.file.display()), why))?;
    batch.atomic |= arguments.atomic;
    let count = batch.operations.len();
    if batch.atomic && count > MAX_OPERATIONS {
        let why = format!("{count} operations are too many for an atomic batch");
        let next = format!("at most {MAX_OPERATIONS} can; split the file, or leave out --atomic");
        return Err(Failure::because(Exit::Usage, why).with_next(next));
    }
    if arguments.change.is_dry_run() {
        let operations = counted(count, "operation");
        return print(&format!("would send {operations}, atomic: {}", batch.atomic));
    }
    let results = send(session, &batch, &arguments.change).await?;
    if matches!(session.format(), Format::Table | Format::Csv) {
        print_styled(&listed(&results, session.format())?)?;
    }
    outcome(&results)
}

/// Sends the operations in batches that the server accepts. JSON and YAML show each answer immediately.
async fn send(
    session: &Session,
    batch: &Batch,
    change: &ChangeArguments,
) -> Result<Vec<OperationResult>, Failure> {
    let parts: Vec<&[Operation]> = batch.operations.chunks(MAX_OPERATIONS).collect();
    let bar = (parts.len() > 1).then(|| progress(batch.operations.len() as u64));
    let mut results = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let part = Batch { operations: part.to_vec(), atomic: batch.atomic };
        let answer = session.send_change(batches::run(&part), &change.of_part(number)).await?;
        match session.format() {
            Format::Json => print(&answer.body)?,
            Format::Yaml => print(&format!("---\n{}", yaml(&answer.body)?))?,
            Format::Table | Format::Csv => {}
        }
        if let Some(bar) = &bar {
            bar.inc(part.operations.len() as u64);
        }
        results.extend(answer.value.results);
    }
    Ok(results)
}

fn read(file: &Path) -> Result<String, Failure> {
    let unreadable = |cause| Failure::new(format_args!("cannot read {}", file.display()), cause);
    read_text(file).map_err(unreadable)
}

/// Why a file is not a batch.
#[derive(Debug)]
enum BatchFileError {
    /// A line is not an operation.
    Line(usize, serde_json::Error),
    /// There is nothing in it.
    Empty,
}

impl fmt::Display for BatchFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchFileError::Line(number, error) => {
                write!(f, "line {number} is not an operation: {error}")
            }
            BatchFileError::Empty => f.write_str("the file has no operation"),
        }
    }
}

/// A whole batch, or one operation a line.
fn parse(text: &str) -> Result<Batch, BatchFileError> {
    if let Ok(batch) = serde_json::from_str::<Batch>(text) {
        return Ok(batch);
    }
    let mut operations = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let operation: Operation =
            serde_json::from_str(line).map_err(|error| BatchFileError::Line(index + 1, error))?;
        operations.push(operation);
    }
    if operations.is_empty() {
        Err(BatchFileError::Empty)
    } else {
        Ok(Batch { operations, atomic: false })
    }
}

struct Numbered<'a>(usize, &'a OperationResult);

impl Row for Numbered<'_> {
    const COLUMNS: &'static [Column] =
        &[numbers("operation"), numbers("status"), words("id"), words("code"), words("detail")];

    fn cells(&self) -> Vec<Cell> {
        let field = |name: &str| Cell::maybe(self.1.body[name].as_str());
        let tone = if self.1.status < 400 { Tone::Good } else { Tone::Bad };
        let status = Cell::new(self.1.status).with_tone(tone);
        vec![Cell::new(self.0), status, field("id"), field("code"), field("detail")]
    }
}

fn listed(results: &[OperationResult], format: Format) -> Result<String, Failure> {
    let rows: Vec<Numbered<'_>> =
        results.iter().enumerate().map(|(index, result)| Numbered(index + 1, result)).collect();
    let sheet = Sheet::list(&rows);
    match format {
        Format::Csv => sheet.csv(),
        Format::Table | Format::Json | Format::Yaml => {
            Ok(sheet.text(crate::render::format::colours()))
        }
    }
}

/// Fails with the exit code of the first operation that failed.
fn outcome(results: &[OperationResult]) -> Result<(), Failure> {
    let failed = results.iter().filter(|result| result.status >= 400).count();
    let first = results
        .iter()
        .enumerate()
        .find_map(|(index, result)| Exit::of_status(result.status).map(|exit| (index + 1, exit)));
    match first {
        None => Ok(()),
        Some((number, exit)) => {
            let why = format!("{failed} of {} failed", counted(results.len(), "operation"));
            let next =
                format!("look at operation {number} first; successful operations stay applied");
            Err(Failure::because(exit, why).with_next(next))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str =
        r#"{"method":"POST","path":"/v1/charges","body":{"account":"a","amount":"1"}}"#;

    #[test]
    fn lines_and_whole_batches_are_read() {
        let lines = parse(&format!("{LINE}\n\n{LINE}\n")).expect("two operations");
        assert_eq!((lines.operations.len(), lines.atomic), (2, false));
        let whole = parse(&format!("{{\"operations\":[{LINE}],\"atomic\":true}}")).expect("one");
        assert_eq!((whole.operations.len(), whole.atomic), (1, true));
        assert_eq!(parse(LINE).expect("one").operations.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let error = parse(&format!("{LINE}\nnot json")).expect_err("the second line");
        assert!(matches!(error, BatchFileError::Line(2, _)), "{error}");
        assert!(parse("").is_err());
        assert!(parse(r#"{"method":"POST","path":"/","colour":1}"#).is_err());
    }
}
