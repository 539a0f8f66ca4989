//! Manifests that an operator has to answer for: one that was lost, and one with the mark of a move.

use std::fs;
use std::path::Path;

use bursar_engine::{DirectoryCodec, replay_from_genesis};
use bursar_journal::JournalError;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions, inspect};

use super::{
    DIRECTORY, LEDGER, MANIFEST, Manifest, has_records, journal_files, lock, named, refuse,
};
use crate::machines::ledgers::ledger_name;

/// Writes the manifest of a store that has none: it was lost, or a build before manifests made the
/// store. Returns the machines. What such a manifest cannot know is how far the journals had come.
pub fn adopt(folder: &Path) -> Result<Vec<String>, JournalError> {
    let _lock = lock(folder)?;
    if Manifest::read(folder)?.is_some() {
        let reason = "it is there, so there is nothing to adopt";
        let file = folder.join(MANIFEST);
        return Err(JournalError::Refused(format!("{}: {reason}", file.display())));
    }
    if !has_records(folder)? {
        let folder = folder.display();
        return Err(JournalError::Refused(format!("{folder}: there is no journal in it")));
    }
    let mut manifest = Manifest::new()?;
    let mut names = journal_files(folder)?;
    names.extend([LEDGER.to_owned(), DIRECTORY.to_owned()]);
    names.extend(known_machines(folder)?);
    names.sort();
    names.dedup();
    for name in names {
        let file = Manifest::file(folder, &name);
        let inspected = inspect(&file, None).map_err(|error| named(&file, error))?;
        manifest.note(&name, inspected.id, inspected.head, None);
    }
    manifest.write(folder)?;
    Ok(manifest.machines.into_iter().map(|machine| machine.name).collect())
}

/// Removes the mark of a move that did not take place, so that the folder is served again.
///
/// # Errors
/// The folder is in use, or has no such mark.
pub fn adopt_not_moved(folder: &Path) -> Result<(), JournalError> {
    let _lock = lock(folder)?;
    match Manifest::read(folder)? {
        Some(mut manifest) if manifest.moved => {
            manifest.set_moved(false);
            manifest.write(folder)
        }
        _ => {
            let folder = folder.display();
            Err(JournalError::Refused(format!("{folder}: it is not marked as moved")))
        }
    }
}

/// The ledgers and cells of which the directory knows: each has its file before the directory knows it, but
/// for a ledger that was just added. It is read in a copy, because opening a journal writes.
fn known_machines(folder: &Path) -> Result<Vec<String>, JournalError> {
    let file = Manifest::file(folder, DIRECTORY);
    inspect(&file, None).map_err(|error| named(&file, error))?;
    let failed = |error: std::io::Error| JournalError::io("reading the directory", error);
    let copy = tempfile::tempdir().map_err(failed)?;
    for end in ["", "-wal", "-tail"] {
        let name = format!("{DIRECTORY}.db{end}");
        match fs::copy(folder.join(&name), copy.path().join(&name)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            copied => drop(copied.map_err(failed)?),
        }
    }
    let journal =
        SqliteJournal::open(&Manifest::file(copy.path(), DIRECTORY), SqliteOptions::default())?;
    let replayed = replay_from_genesis(&journal, &DirectoryCodec);
    let known = replayed.or_else(|error| refuse(&file, &error.to_string()))?.machine;
    let cells = known.regions().map(|region| format!("cell-{region}"));
    Ok((0..=known.last_made_shard()).map(ledger_name).chain(cells).collect())
}
