//! Records as lines of JSON, for people and for other tools.

use std::io::{self, Write};

use bursar_core::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::cell_names;
use crate::chain::{RawRecord, bodies, first_record};
use crate::forms;
use crate::malformed::Malformed;
use crate::names::{COMMANDS, EVENTS, KINDS, Named, REFUSALS};
use crate::node::{self, Node};
use crate::source::{RawBatch, Source};
use crate::verify::Progress;

/// The kind of a journal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum JournalKind {
    /// A ledger's journal.
    Ledger,
    /// A cell's journal.
    Cell,
    /// The directory's journal.
    Directory,
}

impl JournalKind {
    fn events(self) -> &'static [Named] {
        match self {
            JournalKind::Ledger => EVENTS,
            JournalKind::Cell => cell_names::EVENTS,
            // Its records are JSON with names already.
            JournalKind::Directory => &[],
        }
    }

    /// Adds the author, the command and the outcome to a line.
    fn header(self, header: &Node, line: &mut Map<String, Value>) -> Result<(), Malformed> {
        match self {
            JournalKind::Ledger => ledger_header(header, line),
            JournalKind::Cell => cell_header(header, line),
            JournalKind::Directory => Ok(()),
        }
    }
}

/// Writes one line for each record: position, time, kind, and for each decision its author,
/// command, outcome and events. Returns the number of lines.
///
/// # Errors
/// A record cannot be decoded or a line cannot be written.
pub fn export(
    source: &dyn Source,
    of: JournalKind,
    out: &mut dyn Write,
    mut progress: impl FnMut(Progress),
) -> io::Result<u64> {
    let last = source.head().position;
    let mut written = 0;
    let mut failure: Option<io::Error> = None;
    let read = source.each(&mut |batch| match export_batch(&batch, of, out) {
        Ok(records) => {
            written += records;
            progress(Progress { records: written, of: last });
            true
        }
        Err(error) => {
            failure = Some(error);
            false
        }
    });
    match (failure, read) {
        (Some(error), _) => Err(error),
        (None, Err(words)) => Err(io::Error::other(words)),
        (None, Ok(())) => Ok(written),
    }
}

fn export_batch(batch: &RawBatch, of: JournalKind, out: &mut dyn Write) -> io::Result<u64> {
    let mut rest = &batch.payload[..];
    for offset in 0..u64::from(batch.records) {
        let position = batch.first_position.saturating_add(offset);
        let wrong = |detail: Malformed| io::Error::other(format!("record {position}: {detail}"));
        let (record, after) = first_record(rest).map_err(wrong)?;
        rest = after;
        let mut line = shown(position, &record, of).map_err(wrong)?;
        line.insert("batch".into(), batch.sequence.into());
        writeln!(out, "{}", Value::Object(line))?;
    }
    Ok(batch.records.into())
}

/// One record, from all of its bytes.
///
/// # Errors
/// The bytes are not those of one record.
pub fn one_record(position: u64, frame: &[u8], of: JournalKind) -> io::Result<Value> {
    let wrong = |detail: Malformed| io::Error::other(format!("record {position}: {detail}"));
    let (record, rest) = first_record(frame).map_err(wrong)?;
    if !rest.is_empty() {
        return Err(wrong("it is followed by other bytes".into()));
    }
    shown(position, &record, of).map(Value::Object).map_err(wrong)
}

fn shown(
    position: u64,
    record: &RawRecord<'_>,
    of: JournalKind,
) -> Result<Map<String, Value>, Malformed> {
    let decisions = bodies(record)?
        .into_iter()
        .map(|body| match of {
            JournalKind::Directory => lines(body),
            JournalKind::Ledger | JournalKind::Cell => {
                node::read(body).and_then(|body| decision(&body, of))
            }
        })
        .collect::<Result<Vec<Value>, Malformed>>()?;
    let mut line = Map::new();
    line.insert("position".into(), position.into());
    line.insert("at".into(), Timestamp::from_millis(record.time).to_string().into());
    line.insert("kind".into(), json!(KINDS.get(usize::from(record.kind))));
    line.insert("decisions".into(), decisions.into());
    Ok(line)
}

/// A decision of the directory: a line of JSON for each event.
fn lines(body: &[u8]) -> Result<Value, Malformed> {
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events = lines.map(|line| {
        serde_json::from_slice(line).map_err(|error| Malformed::from(format!("a line: {error}")))
    });
    Ok(json!({ "events": events.collect::<Result<Vec<Value>, Malformed>>()? }))
}

fn decision(body: &Node, of: JournalKind) -> Result<Value, Malformed> {
    let [_version, header, events] = body.list()? else {
        return Err("a body is [version, header, events]".into());
    };
    let events = events.list()?.iter().map(|one| event(one, of));
    let events: Result<Vec<Value>, Malformed> = events.collect();
    let mut line = Map::new();
    if *header != Node::Null {
        of.header(header, &mut line)?;
    }
    line.insert("events".into(), Value::Array(events?));
    Ok(Value::Object(line))
}

fn index(number: &Node) -> Result<usize, Malformed> {
    Ok(usize::try_from(number.unsigned()?).unwrap_or(usize::MAX))
}

fn ledger_header(header: &Node, line: &mut Map<String, Value>) -> Result<(), Malformed> {
    let outcome = match header.get(4) {
        None => Some("accepted"),
        Some(outcome) => REFUSALS.get(index(outcome.tagged()?.1)?).copied(),
    };
    line.insert("actor".into(), header.field(0)?.text()?.into());
    line.insert("command".into(), json!(COMMANDS.get(index(header.field(3)?)?)));
    line.insert("outcome".into(), json!(outcome));
    line.insert("fingerprint".into(), plain(header.field(1)?));
    line.insert("key".into(), header.get(2).map_or(Value::Null, plain));
    line.insert("request".into(), header.get(5).map_or(Value::Null, plain));
    Ok(())
}

/// The author of a cell's command is an actor or a ledger.
fn cell_header(header: &Node, line: &mut Map<String, Value>) -> Result<(), Malformed> {
    match header.field(0)?.tagged()? {
        (0, actor) => line.insert("actor".into(), actor.text()?.into()),
        (_, ledger) => line.insert("ledger".into(), plain(ledger.field(0)?)),
    };
    let command = cell_names::COMMANDS.get(index(header.field(1)?)?);
    line.insert("command".into(), json!(command));
    let refused = header.get(2).is_some();
    line.insert("outcome".into(), if refused { "refused" } else { "accepted" }.into());
    if let Some(node) = header.get(3) {
        line.insert("node".into(), plain(node));
    }
    Ok(())
}

/// An event with the names of its fields. A field without a name keeps its number.
fn event(event: &Node, of: JournalKind) -> Result<Value, Malformed> {
    let (tag, content) = event.tagged()?;
    let known = usize::try_from(tag).ok().and_then(|tag| of.events().get(tag));
    let (name, fields) = known.ok_or_else(|| format!("an event with the unknown tag {tag}"))?;
    let mut line = Map::from_iter([("type".to_owned(), json!(name))]);
    for (key, value) in content.map()? {
        let field = usize::try_from(*key).ok().and_then(|key| fields.get(key));
        match field {
            Some(field) => line.insert((*field).to_owned(), forms::named(of, name, field, value)),
            None => line.insert(key.to_string(), plain(value)),
        };
    }
    Ok(Value::Object(line))
}

/// A value without field names. Numbers beyond 53 bits are text, as JSON readers expect.
pub(crate) fn plain(node: &Node) -> Value {
    match node {
        Node::Number(number) => match i64::try_from(*number) {
            Ok(small) if small.unsigned_abs() < 1 << 53 => small.into(),
            _ => number.to_string().into(),
        },
        Node::Bytes(bytes) => {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
        }
        Node::Text(text) => text.as_str().into(),
        Node::List(list) => list.iter().map(plain).collect(),
        Node::Map(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.to_string(), plain(value))).collect())
        }
        Node::Bool(value) => (*value).into(),
        Node::Null => Value::Null,
    }
}
