//! Checks the machines of a backup against each other.

use std::path::Path;

use bursar_api::words::counted;
use bursar_audit::{Report, Source, SqliteSource, verify, verify_chain, verify_links};
use bursar_core::ledger::Ledger;
use bursar_core::time::Timestamp;
use bursar_engine::cut::check_marks;
use bursar_engine::{DirectoryCodec, LedgerCodec, replay_from_genesis};
use bursar_journal::{Head, Journal, JournalId};

use super::error::BackupError;
use super::{Watch, as_journals, as_pairs, cells, machines, open, open_cells, open_ledgers};
use crate::machines::ledgers::{ledger_name, shard_named};
use crate::store::{DIRECTORY, LEDGER, Manifest};

/// The heads of all machines.
pub(super) type Heads = Vec<(String, JournalId, Head)>;

/// A verified cell.
pub(super) struct CheckedCell {
    pub(super) region: String,
    pub(super) now: Timestamp,
    pub(super) generation: u32,
}

/// The result of verifying a folder.
pub(super) struct Checked {
    /// The report on the first ledger.
    pub(super) report: Report,
    pub(super) heads: Heads,
    pub(super) cells: Vec<CheckedCell>,
    /// The ledgers, by number.
    pub(super) books: Vec<Ledger>,
}

/// Reports that the journal of a further ledger was verified.
pub fn say_ledger(machine: &str, report: &Report, watch: &dyn Watch) -> Result<(), BackupError> {
    if let Some(problem) = &report.problem {
        return Err(BackupError::Bad(format!("{machine}.db: {problem}")));
    }
    let records = counted(report.records, "record");
    watch.say(&format!("{machine}: {records}, the chain and every balance hold"))
}

/// Verifies the journal of the directory, and reports it.
pub fn check_directory(source: &dyn Source, watch: &dyn Watch) -> Result<(), BackupError> {
    let report = verify_links(source);
    if let Some(problem) = &report.problem {
        return Err(BackupError::Bad(format!("directory.db: {problem}")));
    }
    watch.say(&format!("directory: {}, the chain holds", counted(report.records, "record")))
}

/// Verifies every journal, that they fit together, and that a server could start with them.
pub(super) fn check(folder: &Path, watch: &dyn Watch) -> Result<Checked, BackupError> {
    let source = |machine: &str| {
        let file = Manifest::file(folder, machine);
        SqliteSource::open(&file).map_err(|reason| BackupError::new(file.display(), reason))
    };
    let mut heads = Vec::new();
    for machine in machines(folder)? {
        if let Some(region) = machine.strip_prefix("cell-") {
            cells::say(region, &verify_chain(&source(&machine)?, |_| {}), watch)?;
        } else if machine == DIRECTORY {
            check_directory(&source(&machine)?, watch)?;
        } else if shard_named(&machine).is_some_and(|shard| shard > 0) {
            let report = verify(&source(&machine)?, None, |progress| watch.verified(progress));
            say_ledger(&machine, &report, watch)?;
        }
    }
    let report = verify(&source(LEDGER)?, None, |progress| watch.verified(progress));
    if let Some(problem) = &report.problem {
        return Err(BackupError::Bad(problem.to_string()));
    }
    let (ledgers, cells) = (open_ledgers(folder)?, open_cells(folder)?);
    let directory = open(folder, DIRECTORY)?;
    check_marks(&as_journals(&ledgers), &as_pairs(&cells))
        .map_err(|error| BackupError::because(error.to_string()))?;
    replay_from_genesis(&directory, &DirectoryCodec)?;
    let mut books = Vec::new();
    for ledger in &ledgers {
        books.push(replay_from_genesis(ledger, &LedgerCodec)?.machine);
    }
    let mut checked = Vec::new();
    for (region, journal) in &cells {
        let (now, generation) = cells::check(region, journal, &books, watch)?;
        checked.push(CheckedCell { region: region.clone(), now, generation });
        heads.push((format!("cell-{region}"), journal.id(), journal.head()?));
    }
    for (shard, ledger) in (0..).zip(&ledgers) {
        heads.push((ledger_name(shard), ledger.id(), ledger.head()?));
    }
    heads.push((DIRECTORY.to_owned(), directory.id(), directory.head()?));
    Ok(Checked { report, heads, cells: checked, books })
}
