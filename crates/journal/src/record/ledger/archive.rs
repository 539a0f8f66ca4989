//! The stored form of what an archive has: keys and records.

use bursar_core::ledger::command::Forget;
use bursar_core::ledger::holds::archive::{ArchivedAnswer, ArchivedHold};
use bursar_core::ledger::holds::forget::resource_of;
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::jobs::ArchivedJob;
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::state::Movement;
use bursar_core::time::Timestamp;

use crate::archive::{ArchiveEntry, ArchiveFamily};
use crate::record::codec::wire::{FormatError, Reader, Stored, Writer};

/// The key of a hold, charge, movement or job.
pub fn object_key(what: Resource, tenant: AccountNo, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(5 + name.len());
    // The same number as in journals.
    what.write(&mut Writer::new(&mut key));
    key.extend_from_slice(&tenant.0.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

/// The key of an answer.
pub fn answer_key(key: u128) -> Vec<u8> {
    key.to_be_bytes().to_vec()
}

fn encode(record: &impl Stored) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    record.write(&mut Writer::new(&mut bytes));
    bytes
}

fn decode<T: Stored>(bytes: &[u8]) -> Result<T, FormatError> {
    let mut input = Reader::new(bytes);
    let record = T::read(&mut input)?;
    input.finish()?;
    Ok(record)
}

/// Decodes a refund, transfer or collection.
pub fn decode_movement(bytes: &[u8]) -> Result<Movement, FormatError> {
    decode(bytes)
}

/// Decodes a job.
pub fn decode_job(bytes: &[u8]) -> Result<ArchivedJob, FormatError> {
    decode(bytes)
}

/// Decodes an answer.
pub fn decode_answer(bytes: &[u8]) -> Result<ArchivedAnswer, FormatError> {
    decode(bytes)
}

/// The entries of everything that is forgotten. `tenants` are those of the holds, in order, and then of the jobs.
pub fn archive_entries(forget: &Forget, tenants: &[AccountNo]) -> Vec<ArchiveEntry> {
    let Forget { answers, holds, old_holds, movements, jobs, .. } = forget;
    let object = |what, tenant, name: &str, at: i64, value| ArchiveEntry {
        family: ArchiveFamily::Objects,
        key: object_key(what, tenant, name),
        value,
        at,
    };
    let hold = |(record, tenant): (&ArchivedHold, &AccountNo)| {
        let ArchivedHold { hold, counted: _ } = record;
        let (what, at) = (resource_of(hold.kind), hold.moved_at.millis());
        object(what, *tenant, &hold.id, at, encode(record))
    };
    let (of_holds, of_jobs) = tenants.split_at(holds.len() + old_holds.len());
    let mut entries: Vec<ArchiveEntry> =
        holds.iter().chain(old_holds).zip(of_holds).map(hold).collect();
    entries.extend(jobs.iter().zip(of_jobs).map(|(record, tenant)| {
        let at = record.job.ended_at.map_or(i64::MIN, Timestamp::millis);
        object(Resource::Job, *tenant, &record.job.order.id, at, encode(record))
    }));
    entries.extend(
        movements
            .iter()
            .map(|made| object(made.what, made.tenant, &made.movement.id, i64::MIN, encode(made))),
    );
    entries.extend(answers.iter().map(|answer| ArchiveEntry {
        family: ArchiveFamily::Answers,
        key: answer_key(answer.key),
        value: encode(answer),
        at: answer.at.millis(),
    }));
    entries
}
