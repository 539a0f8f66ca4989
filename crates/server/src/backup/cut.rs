//! Cuts journals back to the end of a backup.

use std::fs;
use std::path::Path;

use bursar_core::time::Timestamp;
use bursar_engine::cut::largest_cut;
use bursar_journal::{Head, Journal, backup as copies};

use super::check::Heads;
use super::error::BackupError;
use super::{
    OPEN_JOURNAL_SUFFIXES, as_journals, as_pairs, machines, open, open_cells, open_ledgers,
    remove_archive,
};
use crate::machines::ledgers::{ledger_name, shard_named};
use crate::store::{Manifest, archive_file};

/// The heads of all machines of a folder.
pub(super) fn heads(folder: &Path) -> Result<Heads, BackupError> {
    let mut heads = Vec::new();
    for machine in machines(folder)? {
        let journal = open(folder, &machine)?;
        heads.push((machine, journal.id(), journal.head()?));
    }
    Ok(heads)
}

/// Removes from each copy the records after an instant, and then those after the largest consistent
/// cut. A region that did not exist yet is left out.
pub(super) fn cut_at(folder: &Path, until: Timestamp) -> Result<(), BackupError> {
    for machine in machines(folder)? {
        let journal = open(folder, &machine)?;
        let (head, mut end) = (journal.head()?, Head::genesis(journal.id()));
        for batch in journal.read(end)? {
            let batch = batch?;
            let mut is_late = false;
            for record in batch.frames() {
                is_late |= record?.time > until;
            }
            if is_late {
                break;
            }
            end = batch.head();
        }
        drop(journal);
        if end.sequence > 0 {
            cut_off(folder, &machine, head, end)?;
        } else if machine.starts_with("cell-") || shard_named(&machine).is_some_and(|of| of > 0) {
            if let Some(shard) = shard_named(&machine) {
                remove_archive(&folder.join(archive_file(shard)));
            }
            let file = Manifest::file(folder, &machine);
            fs::remove_file(&file)?;
            remove_beside(&file);
            remove_segments(&file)?;
        } else {
            let reason = format!("{machine}.db has no record that is so old");
            return Err(BackupError::because(format!("--until: {reason}")).into_misuse());
        }
    }
    trim(folder)
}

/// Removes the files that an open journal has beside its own.
pub(super) fn remove_beside(file: &Path) {
    for end in OPEN_JOURNAL_SUFFIXES {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        // A missing file need not be removed.
        let _ = fs::remove_file(name);
    }
}

/// Removes the segments of a copy that is removed.
fn remove_segments(file: &Path) -> Result<(), BackupError> {
    let mut folder = file.as_os_str().to_owned();
    folder.push(".segments");
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed?),
    }
}

/// Removes from a copy the records after `end`.
fn cut_off(folder: &Path, machine: &str, head: Head, end: Head) -> Result<(), BackupError> {
    if head != end {
        let file = Manifest::file(folder, machine);
        let mut tail = file.as_os_str().to_owned();
        tail.push("-tail");
        // The tail holds a copy of the removed records.
        let _ = fs::remove_file(tail);
        copies::truncate(&file, end)?;
    }
    Ok(())
}

/// Removes from each copy the records after the largest consistent cut.
pub(super) fn trim(folder: &Path) -> Result<(), BackupError> {
    let (ledgers, cells) = (open_ledgers(folder)?, open_cells(folder)?);
    let cut = largest_cut(&as_journals(&ledgers), &as_pairs(&cells))?;
    let mut ends = Vec::new();
    for (shard, (journal, end)) in (0..).zip(ledgers.iter().zip(cut.ledgers)) {
        ends.push((ledger_name(shard), journal.head()?, end));
    }
    for ((region, journal), end) in cells.iter().zip(cut.cells) {
        ends.push((format!("cell-{region}"), journal.head()?, end));
    }
    drop((ledgers, cells));
    ends.into_iter().try_for_each(|(machine, head, end)| cut_off(folder, &machine, head, end))
}
