//! Marks a restored store, so that agents and journals notice that time was set back.

use std::path::Path;
use std::sync::Arc;

use bursar_audit::Report;
use bursar_core::cell::Origin;
use bursar_core::ledger::Ledger;
use bursar_core::time::Timestamp;
use bursar_engine::{CellCodec, Engine, EngineOptions, ManualClock};
use bursar_journal::sqlite;
use bursar_journal::{Head, Journal};

use super::check::{Checked, CheckedCell, Heads, check};
use super::cut::{cut_at, heads};
use super::error::BackupError;
use super::{Watch, open};
use crate::store::{GENERATIONS_FROM, MANIFEST};

/// The largest generation; above it are numbers for the incarnations of agents.
const MAX_GENERATION: u32 = u32::MAX - (1 << 24);

/// Copies that are ready to be a store of another generation.
pub(super) struct SetBack {
    pub(super) report: Report,
    pub(super) generation: u32,
    pub(super) heads: Heads,
    /// The state of the ledger at the cut.
    pub(super) books: Vec<Ledger>,
}

/// Removes records after an instant, if one is given, from the copies, verifies them, and journals
/// the restore in every cell. `last` is a generation that agents may have received.
pub(super) fn set_back(
    folder: &Path,
    until: Option<Timestamp>,
    last: u32,
    watch: &dyn Watch,
) -> Result<SetBack, BackupError> {
    if let Some(until) = until {
        cut_at(folder, until)?;
    }
    let Checked { report, cells, books, .. } = check(folder, watch)?;
    let known = cells.iter().map(|cell| cell.generation).max().unwrap_or_default();
    let generation = next_generation(known.max(last))?;
    for cell in &cells {
        rewind(folder, cell, generation)?;
    }
    Ok(SetBack { report, generation, heads: heads(folder)?, books })
}

/// Rejects a copy that lacks records from files beside the original. A backup has no such files.
pub(super) fn check_end(backup: &Path, copy: &Path, end: Option<Head>) -> Result<(), BackupError> {
    if sqlite::inspect(copy, None).is_ok_and(|copied| Some(copied.head) == end) {
        return Ok(());
    }
    let file = copy.file_name().unwrap_or_default().to_string_lossy();
    let reason = format!(
        "it is not a backup as it was made: {file} has records beside it (-wal, -tail), which a \
         restore would lose. Nothing was restored"
    );
    let next = "if it is the folder of a store, make a backup of it first: bursar admin backup \
                --data DIR BACKUP";
    Err(BackupError::new(backup.display(), reason).with_next(next))
}

/// The generation of a restored store: above every one that an agent may have received.
fn next_generation(last: u32) -> Result<u32, BackupError> {
    let next = last.checked_add(1).filter(|next| *next <= MAX_GENERATION);
    let Some(next) = next else {
        let reason =
            format!("its generation is {last}, and the highest possible one is {MAX_GENERATION}");
        return Err(BackupError::new(MANIFEST, reason).with_next(
            "use a backup that was made before; generations count seconds, so one so high was written \
             while a clock was wrong",
        ));
    };
    Ok(seconds_since_2020().clamp(next, MAX_GENERATION))
}

/// Journals the restore in a cell, so that no report of an agent is accepted before the agent
/// registers again. The cell's time stands still meanwhile.
fn rewind(folder: &Path, cell: &CheckedCell, generation: u32) -> Result<(), BackupError> {
    let name = format!("cell-{}", cell.region);
    let journal: Arc<dyn Journal> = Arc::new(open(folder, &name)?);
    let clock = Arc::new(ManualClock::new(cell.now));
    let options = EngineOptions { holder: "restore".to_owned(), ..EngineOptions::default() };
    let engine = Engine::start(journal, Arc::new(CellCodec), clock, options);
    let command = bursar_core::cell::Command::Rewind { generation, served: false };
    let failed = |reason: String| BackupError::because(format!("{name}.db: {reason}"));
    let done = engine.handle().execute(Origin::component("restore"), command);
    done.map_err(|error| failed(error.to_string()))?
        .value
        .map_err(|refusal| failed(refusal.to_string()))?;
    engine.stop();
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "no server runs whose time could be asked")]
fn seconds_since_2020() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs()).saturating_sub(GENERATIONS_FROM);
    u32::try_from(seconds).unwrap_or(u32::MAX / 2)
}
