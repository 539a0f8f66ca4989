//! `bursar admin migrate`: moves the store of a folder into an empty PostgreSQL database. It stays
//! the same store: every record keeps its position and hash, agents and running attempts go on.

use std::path::Path;

use bursar_core::digest::Digest;
use bursar_core::machine::Machine;
use bursar_engine::{CellCodec, DirectoryCodec, LedgerCodec, ReplayError, replay_from_genesis};
use bursar_journal::Journal;
use bursar_journal::postgres::{PostgresJournal, PostgresStore};

use super::postgres::{LocalFiles, OptionsOf, Placed, is_unknown, read_again};
use super::{BackupError, Watch, read_backup};
use crate::machines::ledgers::shard_named;
use crate::store::{DIRECTORY, Store};

/// Moves a store that no server uses. The folder stays as it was, but for a mark in its manifest: it is not served again.
pub fn migrate(
    data: &Path,
    options: OptionsOf<'_>,
    local: &LocalFiles<'_>,
    watch: &dyn Watch,
) -> Result<(), BackupError> {
    super::ledger_file(data)?;
    // Locks the folder until the end: no server writes meanwhile.
    let source = Store::open(data)?;
    let (key, logs) = local.check(data, watch)?;
    // Journals are opened in a verified copy, because opening one creates files beside it.
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("store");
    super::backup(data, &copy, false, watch)?;
    let (manifest, _) = read_backup(&copy)?;
    let mut journals = Vec::new();
    for machine in super::machines(&copy)? {
        let journal = super::open(&copy, &machine)?;
        let digest = digest(&machine, &journal)?;
        journals.push((machine, journal, digest));
    }
    let mut placed = Placed::default();
    if let Some((key, bytes)) = key {
        placed.write_key(key, &bytes)?;
    }
    if let Some(logs) = &logs {
        placed.copy_every_log(data, logs)?;
    }
    let pairs: Vec<(&str, &dyn Journal)> = journals
        .iter()
        .map(|(name, journal, _)| (name.as_str(), journal as &dyn Journal))
        .collect();
    let (base, signer) = (manifest.incarnation_base, manifest.signer.as_deref());
    let store = options("store");
    let signers = (signer, &manifest.earlier_signers[..]);
    // Before the database can be served: at no instant may both be.
    let mark = || source.mark_moved(true);
    if let Err(error) = PostgresStore::migrate(&store, &pairs, base, signers, &mark) {
        let failure = BackupError::from(error.clone());
        if is_unknown(&error) {
            return Err(placed.leave(failure));
        }
        source.mark_moved(false)?;
        return Err(failure);
    }
    placed.keep()?;
    let mut heads = Vec::new();
    for (machine, journal, _) in &journals {
        heads.push((machine.clone(), journal.id(), journal.head()?));
    }
    read_again(options, &heads)?;
    for ((machine, _, known), (_, _, head)) in journals.iter().zip(&heads) {
        let found = digest(machine, &PostgresJournal::open_to_read(options(machine))?)?;
        if found != *known {
            let why = format!("{machine}: the state in the database has another digest");
            let next = "drop the database, make an empty one and migrate again";
            return Err(BackupError::because(why).with_next(next));
        }
        watch.say(&format!(
            "{machine}: record {}, the state in the database has the same digest {}",
            head.position,
            short(found)
        ))?;
    }
    Ok(())
}

/// The digest of the state that a journal replays to.
fn digest(machine: &str, journal: &dyn Journal) -> Result<Digest, ReplayError> {
    Ok(match machine {
        ledger if shard_named(ledger).is_some() => {
            replay_from_genesis(journal, &LedgerCodec)?.machine.digest()
        }
        DIRECTORY => replay_from_genesis(journal, &DirectoryCodec)?.machine.digest(),
        _ => replay_from_genesis(journal, &CellCodec)?.machine.digest(),
    })
}

fn short(digest: Digest) -> String {
    digest.0.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
