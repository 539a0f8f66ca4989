//! Moves what a ledger has closed into its archive, and lets the ledger forget it.
//!
//! A step reads the oldest closed holds, movements and answers beyond the window, appends their records to the archive
//! durably, and only then sends the command that forgets them. The command carries the records and the position of the
//! archive. Whatever has changed in between stays in memory. A crash between the two leaves records in the archive that
//! the ledger still has; the ledger is asked first, so they are never used, and they are written again later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_core::ledger::command::{Command, Forget};
use bursar_core::ledger::holds::archive::{ArchivedAnswer, RecalledRecord};
use bursar_core::ledger::holds::forget::Forgettable;
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Envelope, Event, Ledger};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_journal::archive::{Archive, ArchiveEntry, ArchiveFamily};
use bursar_journal::record::ledger::{
    answer_key, archive_entries, decode_answer, decode_archived, decode_movement, object_key,
};
use bursar_journal::{Head, Journal, JournalError};
use thiserror::Error;

use crate::codec::{Codec, LedgerCodec};
use crate::error::{EngineError, ReplayError};
use crate::replay::Decoder;
use crate::vital::Vital;
use crate::writer::durable::Durable;
use crate::writer::handle::{Handle, Seen};

/// Entries that are written at once while an archive is built.
const BUILD_CHUNK: usize = 16_384;

/// What stays in memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClosedWindow {
    /// How many closed holds and charges, movements, and answers.
    pub keep: usize,
    /// The most of each kind that one step forgets.
    pub most: usize,
}

impl Default for ClosedWindow {
    fn default() -> ClosedWindow {
        ClosedWindow { keep: 65_536, most: 4_096 }
    }
}

/// Why a step failed. It is tried again.
#[derive(Debug, Error)]
pub enum ArchiveStepError {
    /// The ledger does not answer.
    #[error("the ledger: {0}")]
    Ledger(#[from] EngineError),
    /// The archive cannot be written.
    #[error("the archive: {0}")]
    Archive(#[from] JournalError),
    /// The archive cannot be built, because the journal cannot be read.
    #[error("building the archive: {0}")]
    Journal(#[from] ReplayError),
}

/// Archives and forgets once. Returns how many records were archived; fewer than the most of a step if no more is to be
/// done.
pub fn archive_step(
    ledger: &Handle<Ledger>,
    archive: &Archive,
    window: ClosedWindow,
) -> Result<usize, ArchiveStepError> {
    let ClosedWindow { keep, most } = window;
    let read = move |ledger: &Ledger| {
        let kept_from = ledger.now().plus_millis(-ledger.policy().retention_ms);
        let forget = ledger.forgettable(Forgettable { keep, kept_from, most });
        let tenants = ledger.tenants_of(&forget);
        (forget, tenants)
    };
    let Seen { value: (forget, tenants), position, .. } = ledger.read(read)?;
    if forget.is_empty() {
        return Ok(0);
    }
    let entries = archive_entries(&forget, &tenants);
    archive.put(&entries, position)?;
    let envelope = Envelope { actor: "archiver".into(), ..Envelope::default() };
    let command = Command::Forget(Box::new(Forget { through: position, ..forget }));
    // What is refused stays in memory, and is archived again.
    let _decided = ledger.execute(envelope, command)?;
    Ok(entries.len())
}

/// What an archive has under the key and the names of a command.
#[derive(Clone, Debug, Default)]
pub struct Recall {
    /// The position of the archive: nothing that was forgotten up to it was missed.
    pub position: u64,
    /// The records under the names.
    pub recalled: Vec<RecalledRecord>,
    /// The answer under the key, whether it is still promised or not.
    pub answer: Option<ArchivedAnswer>,
}

/// Looks up names and an idempotency key. A refund is found with all of its parts.
pub fn recall(
    archive: &Archive,
    names: &[(Resource, AccountNo, Name)],
    key: Option<u128>,
) -> Result<Recall, JournalError> {
    let mut recall = Recall { position: archive.position(), ..Recall::default() };
    for (what, tenant, name) in names {
        recall.recalled.extend(recall_named(archive, (*what, *tenant, name))?);
    }
    if let Some(key) = key {
        let (found, _) = archive.get(ArchiveFamily::Answers, &answer_key(key))?;
        recall.answer = found.map(|bytes| decode_answer(&bytes)).transpose().map_err(damaged)?;
    }
    Ok(recall)
}

fn damaged(error: impl std::fmt::Display) -> JournalError {
    JournalError::storage("reading the archive", format!("a record is damaged: {error}"))
}

fn recall_named(
    archive: &Archive,
    (what, tenant, name): (Resource, AccountNo, &str),
) -> Result<Option<RecalledRecord>, JournalError> {
    let get = |name: &str| archive.get(ArchiveFamily::Objects, &object_key(what, tenant, name));
    let Some(found) = get(name)?.0 else { return Ok(None) };
    match what {
        Resource::Hold | Resource::Charge => {
            Ok(Some(RecalledRecord::Hold(decode_archived(&found).map_err(damaged)?)))
        }
        Resource::Refund | Resource::Transfer | Resource::Collection => {
            let whole = decode_movement(&found).map_err(damaged)?;
            let mut parts = vec![whole];
            // The other parts of a refund of a job have names that no client can choose.
            while let Some(found) = get(&format!("{name}/{}", parts.len() + 1))?.0 {
                parts.push(decode_movement(&found).map_err(damaged)?);
            }
            Ok(Some(RecalledRecord::Movement(parts)))
        }
        Resource::Account
        | Resource::Grant
        | Resource::Budget
        | Resource::Job
        | Resource::Region
        | Resource::Quota => Ok(None),
    }
}

/// Builds an archive that has nothing, or only a part, from the first record of the journal on.
pub fn build_archive(journal: &dyn Journal, archive: &Archive) -> Result<(), ArchiveStepError> {
    archive.clear()?;
    let mut ledger = LedgerCodec.genesis();
    let mut decoder = Decoder::new();
    let mut entries: Vec<ArchiveEntry> = Vec::new();
    let until = journal.head()?;
    for batch in journal.read(Head::genesis(journal.id()))? {
        let batch = batch?;
        if batch.sequence > until.sequence {
            break;
        }
        decoder.batch(&LedgerCodec, &batch, |record, events| {
            for event in events {
                entries.extend(forgotten_entries(&ledger, record.time, event));
                ledger.apply(record.time, event);
            }
        })?;
        if entries.len() >= BUILD_CHUNK {
            // Position 0: it is not whole.
            archive.put(&entries, 0)?;
            entries.clear();
        }
    }
    Ok(archive.put(&entries, until.position.max(1))?)
}

/// The entries of what an event is about to remove.
pub fn forgotten_entries(ledger: &Ledger, at: Timestamp, event: &Event) -> Vec<ArchiveEntry> {
    let Some(forget) = ledger.forgotten_by(at, event) else { return Vec::new() };
    archive_entries(&forget, &ledger.tenants_of(&forget))
}

/// Whether an archive lacks something that the ledger has forgotten, or is of another journal's future.
pub fn must_build(
    journal: &dyn Journal,
    ledger: &Handle<Ledger>,
    archive: &Archive,
) -> Result<bool, ArchiveStepError> {
    let position = archive.position();
    let forgotten = ledger.read(Ledger::forgotten_through)?.value;
    Ok(position == 0 || position < forgotten || position > journal.head()?.position)
}

/// A thread that archives and forgets. Ends with the writer, or when it is stopped.
pub struct Archiver {
    thread: Option<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
}

impl Archiver {
    /// Builds the archive if that is needed, then keeps the window.
    pub fn start(
        journal: Arc<dyn Journal>,
        ledger: Handle<Ledger>,
        durable: Arc<Durable>,
        archive: Arc<Archive>,
        window: ClosedWindow,
        pace: Duration,
    ) -> Archiver {
        let stopping = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stopping);
        let work = move || {
            let _vital = Vital::new("the archiver");
            while !durable.is_closed() && !stops.load(Ordering::Relaxed) {
                let done = match must_build(&*journal, &ledger, &archive) {
                    Ok(true) => build_archive(&*journal, &archive).map(|()| window.most),
                    Ok(false) => archive_step(&ledger, &archive, window),
                    Err(error) => Err(error),
                };
                // After a failure the store may become available again; what is not archived stays in memory.
                if !done.is_ok_and(|done| done >= window.most) {
                    durable.pause(pace);
                }
            }
        };
        let thread = std::thread::Builder::new().name("bursar-archive".into()).spawn(work);
        Archiver { thread: Some(thread.expect("the system can start a thread")), stopping }
    }

    /// Ends the thread after its present step.
    pub fn stop(mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has reported its own panic.
            let _ = thread.join();
        }
    }
}
