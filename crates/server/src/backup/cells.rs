//! The journals of cells: found beside the ledger's, verified by their hash chain and by replay.

use std::path::{Path, PathBuf};

use bursar_api::words::counted;
use bursar_audit::Report;
use bursar_core::ledger::Ledger;
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::{CellCodec, replay_from_genesis};
use bursar_journal::{Journal, backup as copies};

use super::{BackupError, Watch};

/// The cells of a store: the region and the file, by name.
pub fn cell_files(data: &Path) -> Result<Vec<(String, PathBuf)>, BackupError> {
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

/// The file of a region's cell.
pub fn cell_file(data: &Path, region: &str) -> Result<PathBuf, BackupError> {
    let all = cell_files(data)?;
    let names: Vec<String> = all.iter().map(|(region, _)| region.clone()).collect();
    let found = all.into_iter().find(|(known, _)| known == region).map(|(_, file)| file);
    found.ok_or_else(|| {
        let next = match names.as_slice() {
            [] => "give --data the folder that `bursar serve --data` was given".to_owned(),
            names => format!("its regions are: {}", names.join(", ")),
        };
        BackupError::new(data.display(), format!("there is no region {region} in this folder"))
            .with_next(next)
    })
}

/// Copies the cells of a store, each consistent as of one instant, to be read and then removed.
pub fn copy_cells(data: &Path, to: &Path) -> Result<Vec<(String, PathBuf)>, BackupError> {
    let mut copies = Vec::new();
    for (region, file) in cell_files(data)? {
        let copy = to.join(format!("cell-{region}.db"));
        copies::copy_to_read(&file, &copy)?;
        copies.push((region, copy));
    }
    Ok(copies)
}

/// Fails if the verification of a cell's chain found a problem.
pub fn conclude(region: &str, report: &Report) -> Result<(), BackupError> {
    match &report.problem {
        None => Ok(()),
        Some(problem) => {
            let why = format!("the journal cell-{region}: {problem}");
            let next = "keep this store as it is and restore the last good backup beside it";
            Err(BackupError::because(why).with_next(next))
        }
    }
}

/// Replays a cell, checks its invariants, and checks that it has received no message that the
/// ledger has not sent. Returns the cell's time and the generation of the store.
pub fn check(
    region: &str,
    journal: &dyn Journal,
    ledgers: &[Ledger],
    watch: &dyn Watch,
) -> Result<(Timestamp, u32), BackupError> {
    let cell = replay_from_genesis(journal, &CellCodec)?.machine;
    let broken = |why: String| {
        BackupError::because(format!("the journal cell-{region}: {why}"))
            .with_next("keep this store as it is and report what is said here")
    };
    cell.check().map_err(|violation| broken(violation.to_string()))?;
    let mut received = 0;
    for (shard, ledger) in (0..).zip(ledgers) {
        let sent =
            ledger.cells().find(|(_, book)| book.region == region).map_or(0, |(_, book)| book.sent);
        let own = cell.mark(shard).number;
        if own > sent {
            let why = format!("it has received {own} messages, but the ledger has sent {sent}");
            return Err(broken(why));
        }
        received += own;
    }
    let digest: String = cell.digest().0.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    // On standard error, so that the ledger's report stays one document.
    watch.note(&format!(
        "cell {region}: the chain and the laws hold; {received} messages received; state {digest}"
    ));
    Ok((cell.now(), cell.generation()))
}

/// Reports that a cell's journal was verified.
pub fn say(region: &str, report: &Report, watch: &dyn Watch) -> Result<(), BackupError> {
    conclude(region, report)?;
    watch.say(&format!("cell {region}: {}, the chain holds", counted(report.records, "record")))
}
