//! `bursar admin archive`: moves sealed segments of a store to another folder.

use std::path::Path;

use bursar_api::words::counted;
use bursar_journal::postgres::{PostgresJournal, PostgresStore};
use bursar_journal::segment::ArchiveTotals;
use bursar_journal::sqlite::archive as archive_journal;

use super::postgres::{OptionsOf, machines_in};
use super::{BackupError, Watch, check_folder, ledger_file, machines};
use crate::store::Manifest;

/// Moves the sealed segments of all journals of a store into `to`, also while a server has it open.
pub fn archive(data: &Path, to: &Path, watch: &dyn Watch) -> Result<(), BackupError> {
    ledger_file(data)?;
    check_folder(data)?;
    let same = |path: &Path| path.canonicalize().ok();
    if same(to).is_some() && same(to) == same(data) {
        let reason = "it is the folder of the store";
        let next = "give a folder elsewhere, for example on another disk or a mounted bucket";
        return Err(BackupError::new(to.display(), reason).with_next(next).into_misuse());
    }
    for machine in machines(data)? {
        say(&machine, archive_journal(&Manifest::file(data, &machine), to)?, watch)?;
    }
    Ok(())
}

/// Moves the sealed segments of a store in PostgreSQL into `to`. Its servers read them there afterwards.
pub fn archive_database(
    options: OptionsOf<'_>,
    to: &Path,
    watch: &dyn Watch,
) -> Result<(), BackupError> {
    // Names what a damaged store lacks before anything is moved.
    let _store = PostgresStore::open(options("store"))?;
    for machine in machines_in(options)? {
        let journal = PostgresJournal::open_to_read(options(&machine))?;
        say(&machine, journal.archive_segments(to)?, watch)?;
    }
    Ok(())
}

fn say(machine: &str, totals: ArchiveTotals, watch: &dyn Watch) -> Result<(), BackupError> {
    let ArchiveTotals { moved, bytes, before, kept } = totals;
    watch.say(&format!(
        "{machine}: {} moved ({bytes} bytes), {before} archived before, {kept} kept",
        counted(moved, "segment")
    ))?;
    Ok(())
}
