//! Looks up in an archive what a request names.

use bursar_core::ledger::holds::archive::{ArchivedAnswer, RecalledRecord};
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::jobs::ArchivedJob;
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::state::Movement;
use bursar_journal::JournalError;
use bursar_journal::archive::{Archive, ArchiveFamily};
use bursar_journal::record::ledger::{
    answer_key, decode_answer, decode_archived, decode_job, decode_movement, object_key,
};
use bursar_seeded::{Bug, seeded};

/// What an archive has under the key and the names of a command.
#[derive(Clone, Debug, Default)]
pub struct Recall {
    /// The position of the archive: nothing that was forgotten up to it was missed.
    pub position: u64,
    /// The records under the names.
    pub recalled: Vec<RecalledRecord>,
    /// The jobs under the names.
    pub jobs: Vec<ArchivedJob>,
    /// The answer under the key, whether it is still retained or not.
    pub answer: Option<ArchivedAnswer>,
}

/// Looks up names and an idempotency key. A refund is found with all of its parts.
pub fn recall(
    archive: &Archive,
    names: &[(Resource, AccountNo, impl AsRef<str>)],
    key: Option<u128>,
) -> Result<Recall, JournalError> {
    let mut recall = Recall { position: archive.position(), ..Recall::default() };
    for (what, tenant, name) in names {
        recall.add(archive, (*what, *tenant, name.as_ref()))?;
    }
    if let Some(key) = key {
        let (found, _) = archive.get(ArchiveFamily::Answers, &answer_key(key))?;
        recall.answer = found.map(|bytes| decode_answer(&bytes)).transpose().map_err(damaged)?;
    }
    Ok(recall)
}

/// Looks up names, and keys with what their answers show. The first result has what is under the names, each other one
/// what is under a key. What a name and an answer both refer to is read once.
pub fn recall_with_keys(
    archive: &Archive,
    names: &[(Resource, AccountNo, Name)],
    keys: &[u128],
) -> Result<Vec<Recall>, JournalError> {
    let mut by_name = Recall { position: archive.position(), ..Recall::default() };
    let mut places = Vec::with_capacity(names.len());
    for (what, tenant, name) in names {
        places.push(by_name.recalled.len());
        by_name.add(archive, (*what, *tenant, name))?;
    }
    places.push(by_name.recalled.len());
    let mut all = vec![by_name];
    for key in keys {
        let no_names: [(Resource, AccountNo, Name); 0] = [];
        let mut found = recall(archive, &no_names, Some(*key))?;
        // The answer shows something that may have been forgotten as well.
        if let Some(of) = found.answer.as_ref().and_then(|answer| answer.of.as_ref()) {
            let named = (of.what, of.tenant, of.name.clone());
            found.recalled = match names.iter().position(|name| *name == named) {
                Some(at) => all[0].recalled[places[at]..places[at + 1]].to_vec(),
                None => recall(archive, &[named], None)?.recalled,
            };
        }
        all.push(found);
    }
    Ok(all)
}

fn damaged(error: impl std::fmt::Display) -> JournalError {
    JournalError::storage("reading the archive", format!("a record is damaged: {error}"))
}

impl Recall {
    /// Adds what is under a name.
    fn add(
        &mut self,
        archive: &Archive,
        (what, tenant, name): (Resource, AccountNo, &str),
    ) -> Result<(), JournalError> {
        if seeded(Bug::SkipsLookUp) {
            return Ok(());
        }
        let key = object_key(what, tenant, name);
        let Some(found) = archive.get(ArchiveFamily::Objects, &key)?.0 else { return Ok(()) };
        match what {
            Resource::Hold | Resource::Charge => {
                let record = decode_archived(&found).map_err(damaged)?;
                self.recalled.push(RecalledRecord::Hold(record));
            }
            Resource::Refund | Resource::Transfer | Resource::Collection => {
                let mut parts = vec![decode_movement(&found).map_err(damaged)?];
                // The other parts of a refund of a job have names that no client can choose. In older journals they
                // have a dot, which clients can use as well: those of one request have one fingerprint.
                while let Some(part) = further_part(archive, (what, tenant, name), &parts)? {
                    parts.push(part);
                }
                self.recalled.push(RecalledRecord::Movement(parts));
            }
            Resource::Job => self.jobs.push(decode_job(&found).map_err(damaged)?),
            Resource::Account
            | Resource::Grant
            | Resource::Budget
            | Resource::Region
            | Resource::Quota => {}
        }
        Ok(())
    }
}

/// The next part of a movement of which these are known.
fn further_part(
    archive: &Archive,
    (what, tenant, name): (Resource, AccountNo, &str),
    parts: &[Movement],
) -> Result<Option<Movement>, JournalError> {
    for mark in ["/", "."] {
        let key = object_key(what, tenant, &format!("{name}{mark}{}", parts.len() + 1));
        let Some(found) = archive.get(ArchiveFamily::Objects, &key)?.0 else { continue };
        let part = decode_movement(&found).map_err(damaged)?;
        if part.movement.fingerprint == parts[0].movement.fingerprint {
            return Ok(Some(part));
        }
    }
    Ok(None)
}
