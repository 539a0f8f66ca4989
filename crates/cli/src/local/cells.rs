//! The journals of cells: found beside the ledger's, verified by their chain and by their replay.

use std::path::{Path, PathBuf};

use bursar_audit::{Report, admin};
use bursar_core::ledger::Ledger;
use bursar_core::machine::Machine;
use bursar_engine::{CellCodec, replay_from_genesis};
use bursar_journal::Journal;

use crate::exit::{Exit, Failure};
use crate::render::format::print;

/// The cells of a store: the region and the file, by name.
pub(super) fn cell_files(data: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(data)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let region = name.strip_prefix("cell-").and_then(|name| name.strip_suffix(".db"));
        if let Some(region) = region {
            found.push((region.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

/// Copies the cells of a store, each consistent as of one instant.
pub(super) fn copy_cells(data: &Path, to: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut copies = Vec::new();
    for (region, file) in cell_files(data)? {
        let copy = to.join(format!("cell-{region}.db"));
        admin::copy(&file, &copy)?;
        copies.push((region, copy));
    }
    Ok(copies)
}

/// Says what came of a cell's chain.
pub(super) fn conclude(region: &str, report: &Report) -> Result<(), Failure> {
    match &report.problem {
        None => Ok(()),
        Some(problem) => {
            let why = format!("the journal cell-{region}: {problem}");
            let next = "keep this store as it is and restore the last good backup beside it";
            Err(Failure::because(Exit::Failed, why).with_next(next))
        }
    }
}

/// Replays a cell, checks its laws, and that it has heard nothing that the ledger has not said.
pub(super) fn check(region: &str, journal: &dyn Journal, ledger: &Ledger) -> Result<(), Failure> {
    let cell = replay_from_genesis(journal, &CellCodec)?.machine;
    let broken = |why: String| {
        Failure::because(Exit::Failed, format!("the journal cell-{region}: {why}"))
            .with_next("keep this store as it is and report what is said here")
    };
    cell.check().map_err(broken)?;
    let said =
        ledger.cells().find(|(_, book)| book.region == region).map_or(0, |(_, book)| book.told);
    let shard = ledger.cells().next().map_or(0, |(_, book)| book.shard);
    let heard = cell.mark(shard).number;
    if heard > said {
        let why = format!("it has heard {heard} messages of the {said} that the ledger has sent");
        return Err(broken(why));
    }
    let digest: String = cell.digest().0.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // On the error stream, so that the ledger's report stays one document.
    eprintln!("cell {region}: the chain and the laws hold; {heard} messages heard; state {digest}");
    Ok(())
}

/// Says that a cell's journal was looked at.
pub(super) fn told(region: &str, report: &Report) -> Result<(), Failure> {
    conclude(region, report)?;
    print(&format!("cell {region}: {} records, the chain holds\n", report.records))
}
