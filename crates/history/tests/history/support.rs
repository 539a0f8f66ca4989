//! Feeds histories and dumps their content.

use std::collections::BTreeMap;
use std::path::Path;

use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::AccountNo;
use bursar_core::time::Timestamp;
use bursar_history::query::{AuditFilter, EntriesOf};
use bursar_history::{Cursor, Entry, FedRecord, History, Sqlite};
use bursar_journal::record::ledger::LedgerBody;

pub(crate) use crate::temp_dir::TempDir;
use crate::traffic::{Decided, World};

pub(crate) const ALWAYS: (Timestamp, Timestamp) = (Timestamp::MIN, Timestamp::MAX);

pub(crate) fn bodies(decided: &Decided) -> Vec<LedgerBody> {
    let body = |(header, events): &(_, Vec<_>)| LedgerBody {
        header: Option::clone(header),
        events: events.clone(),
    };
    decided.bodies.iter().map(body).collect()
}

/// Feeds decisions from position 1, `at_once` records at a time.
pub(crate) fn feed(history: &mut History<Sqlite>, decided: &[Decided], at_once: usize) {
    let decoded: Vec<Vec<LedgerBody>> = decided.iter().map(bodies).collect();
    let records: Vec<FedRecord<'_>> = (1..)
        .zip(decided.iter().zip(&decoded))
        .map(|(position, (decided, bodies))| FedRecord { position, at: decided.at, bodies })
        .collect();
    for some in records.chunks(at_once) {
        history.apply(some).expect("history takes what was decided");
    }
}

pub(crate) fn fed(file: &Path, world: &World, at_once: usize) -> History<Sqlite> {
    let mut history = History::new(Sqlite::open(file).expect("a new file"));
    feed(&mut history, &world.decided, at_once);
    history
}

pub(crate) fn accounts(ledger: &Ledger) -> Vec<(u32, String)> {
    (0..9).map(|number| (number, ledger.account(AccountNo(number)).path.to_string())).collect()
}

pub(crate) fn all_entries(history: &History<Sqlite>, of: EntriesOf, limit: u32) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut cursor: Option<Cursor> = None;
    loop {
        let page = history.entries(of, ALWAYS, cursor, limit).expect("a page");
        entries.extend(page.data);
        match page.next {
            // Cursors travel as text.
            Some(next) => cursor = Some(next.to_string().parse().expect("our own cursor")),
            None => return entries,
        }
    }
}

/// The numbers of each list, independent of how they are divided into parts.
pub(crate) fn lists(connection: &rusqlite::Connection) -> Vec<String> {
    let mut rows = connection
        .prepare("SELECT list, first, numbers FROM lists ORDER BY list, first")
        .expect("a table");
    let parts: rusqlite::Result<Vec<(i64, i64, Vec<u8>)>> = rows
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .and_then(Iterator::collect);
    let mut lines = Vec::new();
    for (list, first, bytes) in parts.expect("rows") {
        let mut steps = numbers(&bytes);
        let mut push_list = |list: i64, mut number: i64, steps: &[u128]| {
            lines.push(format!("lists {list} {number}"));
            for step in steps {
                number += i64::try_from(*step).expect("a step");
                lines.push(format!("lists {list} {number}"));
            }
        };
        if list % 16 == 1 {
            // Entries of accounts that spent their own credits. Their decisions could also be in
            // the list of decisions.
            let decisions = usize::try_from(steps.remove(0)).expect("a length");
            let entries = steps.split_off(decisions - 1);
            push_list(list, i64::try_from(entries[0]).expect("a number"), &entries[1..]);
            push_list(list + 3, first, &steps);
        } else {
            push_list(list, first, &steps);
        }
    }
    lines.sort();
    lines
}

/// Numbers with seven bits per byte.
fn numbers(bytes: &[u8]) -> Vec<u128> {
    let ends = bytes.split_inclusive(|byte| *byte < 0x80);
    let number = |bytes: &[u8]| {
        bytes.iter().rev().fold(0, |number, byte| number << 7 | u128::from(byte & 0x7f))
    };
    ends.map(number).collect()
}

/// The last level of each instant, independent of how levels are divided into rows.
fn levels(connection: &rusqlite::Connection, table: &str) -> Vec<String> {
    let mut rows =
        connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).expect("a table");
    let rows: rusqlite::Result<Vec<(i64, i64, Vec<u8>)>> = rows
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .and_then(Iterator::collect);
    let mut levels = BTreeMap::new();
    for (number, mut at, bytes) in rows.expect("rows") {
        let mut level = 0;
        for (place, step) in numbers(&bytes).into_iter().enumerate() {
            if place % 2 == 1 {
                at += i64::try_from(step).expect("a step");
                continue;
            }
            level += (step >> 1).cast_signed() ^ -(step & 1).cast_signed();
            levels.insert((number, at), level);
        }
    }
    levels.into_iter().map(|(key, level)| format!("{table} {key:?} {level}")).collect()
}

/// The content of the blocks of entries and decisions, independent of how they are divided.
pub(crate) fn blocks(file: &Path) -> Vec<String> {
    let history = History::new(Sqlite::open_read_only(file).expect("the file is there"));
    let mut lines: Vec<String> = all_entries(&history, EntriesOf::Everything, 1000)
        .into_iter()
        .map(|entry| format!("{entry:?}"))
        .collect();
    let mut cursor = None;
    loop {
        let page = history.audit(AuditFilter::Everything, cursor, 1000).expect("decisions");
        lines.extend(page.data.iter().map(|decision| format!("{decision:?}")));
        cursor = page.next;
        if cursor.is_none() {
            return lines;
        }
    }
}

/// Everything in the file, table by table.
pub(crate) fn dump(file: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open(file).expect("the file is there");
    let mut tables = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .expect("a schema");
    let names: Vec<String> = tables
        .query_map([], |row| row.get(0))
        .and_then(Iterator::collect)
        .expect("names of tables");
    let mut lines = lists(&connection);
    lines.extend(blocks(file));
    lines.extend(levels(&connection, "bucket_levels"));
    lines.extend(levels(&connection, "account_levels"));
    for name in names {
        // The division of these depends on how they were fed. Their content is added above.
        let divided = ["lists", "entries", "decisions", "bucket_levels", "account_levels"];
        if divided.contains(&name.as_str()) {
            continue;
        }
        let mut rows = connection.prepare(&format!("SELECT * FROM {name}")).expect("a table");
        let columns = rows.column_count();
        let content: rusqlite::Result<Vec<String>> = rows
            .query_map([], |row| {
                let value = |column| row.get::<_, rusqlite::types::Value>(column);
                let values = (0..columns).map(value).collect::<rusqlite::Result<Vec<_>>>()?;
                Ok(format!("{name} {values:?}"))
            })
            .and_then(Iterator::collect);
        lines.extend(content.expect("rows"));
    }
    lines
}
