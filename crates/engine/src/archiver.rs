//! Moves what a ledger has closed into its archive, and lets the ledger forget it.
//!
//! A step reads the oldest closed holds, movements and answers beyond the window, appends their records to the archive
//! durably, and only then sends the command that forgets them. The command carries the records and the position of the
//! archive. Whatever has changed in between stays in memory. A crash between the two leaves records in the archive that
//! the ledger still has; the ledger is asked first, so they are never used, and they are written again later.

mod chunk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_core::ledger::command::{Command, Forget};
use bursar_core::ledger::holds::forgettable::Forgettable;
use bursar_core::ledger::{Envelope, Event, Ledger};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_journal::archive::{Archive, ArchiveEntry, ArchiveFamily, is_lost, is_of_past};
use bursar_journal::record::ledger::archive_entries;
use bursar_journal::{Epoch, Head, Journal, JournalError};
use bursar_seeded::{Bug, seeded};
use thiserror::Error;

use self::chunk::Chunk;
use crate::codec::{Codec, LedgerCodec};
use crate::error::{EngineError, ReplayError};
use crate::replay::Decoder;
use crate::vital::Vital;
use crate::writer::durable::Durable;
use crate::writer::handle::{Handle, Seen, Transaction};
use crate::writer::mailbox::Urgency;

/// How many times larger steps become while much is beyond the window.
const CATCH_UP_FACTOR: usize = 8;
/// The most idle pauses before a step runs, so that entries also leave memory by age.
const MAX_IDLE_PAUSES: u32 = 20;
/// The pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How long little may stay beyond the window: a step of few records costs a block of its own.
const MAX_STEP_DELAY: Duration = Duration::from_secs(1);
/// The least that is beyond the window before a step is made earlier.
const MIN_STEP_ENTRIES: usize = 256;
/// The bytes of a step that is a whole one.
const FULL_STEP_BYTES: usize = 2 << 20;

/// What stays in memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClosedWindow {
    /// How many closed holds and charges, movements, and answers.
    pub keep: usize,
    /// The most of each kind that one step forgets.
    pub most: usize,
}

impl ClosedWindow {
    /// What may be beyond the window for a while.
    fn slack(self) -> usize {
        if self.keep == 0 { 0 } else { MIN_STEP_ENTRIES.max(self.keep / 64).min(self.most) }
    }
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

/// Archives and forgets once, if more than `slack` of any kind is beyond the window. `head` is a batch that the journal
/// has: it marks the archive as one of this past. Returns how many records were
/// archived; fewer than the most of a step if no more is to be done.
pub fn archive_step(
    ledger: &Handle<Ledger>,
    archive: &Archive,
    window: ClosedWindow,
    (slack, head): (usize, Option<Head>),
) -> Result<usize, ArchiveStepError> {
    let ClosedWindow { keep, most } = window;
    let read = move |ledger: &Ledger, now: Timestamp| {
        let beyond = ledger.most_closed().saturating_sub(keep);
        // Far behind, larger steps: each waits for the ledger twice and for the disk once.
        let most = most.max((beyond / 2).min(most.saturating_mul(CATCH_UP_FACTOR)));
        let kept_from = now.plus_millis(-ledger.policy().retention_ms);
        let forget = match slack > 0 && ledger.most_closed() < keep.saturating_add(slack) {
            true => Forget::default(),
            false => ledger.forgettable(Forgettable { keep, kept_from, most }),
        };
        let tenants = ledger.tenants_of(&forget);
        (forget, tenants, retained_from(ledger, now))
    };
    let Seen { value: (forget, tenants, retained_from), position, .. } = read_at(ledger, read)?;
    if forget.is_empty() {
        return Ok(0);
    }
    // The batch in which the state that was read is durable.
    let head = head.filter(|head| head.position >= position);
    // A look-up at a position has seen everything of it: nothing more is ever added to one.
    let position = match seeded(Bug::ArchivesAtPastPosition) {
        true => position,
        false => position.max(archive.position() + 1),
    };
    let entries = archive_entries(&forget, &tenants);
    let kept = if seeded(Bug::ForgetsBeforeArchiving) { &[] } else { entries.as_slice() };
    archive.put_marked(kept, position, head)?;
    archive.drop_answers_before(retained_from.millis())?;
    let envelope = Envelope { actor: "archiver".into(), ..Envelope::default() };
    let command = Command::Forget(Box::new(Forget { through: position, ..forget }));
    // What is refused stays in memory, and is archived again.
    let _decided = ledger.execute(envelope, command)?;
    // What stays was only passed over: what follows it comes next.
    let bytes: usize = entries.iter().map(|entry| entry.value.len()).sum();
    // Jobs with large texts make a whole step, however few they are.
    Ok(if entries.is_empty() || bytes >= FULL_STEP_BYTES { most } else { entries.len() })
}

/// Reads the state with the time of the ledger. The state itself has that of its last record, which may be long ago.
fn read_at<T: Send + 'static>(
    ledger: &Handle<Ledger>,
    read: impl FnOnce(&Ledger, Timestamp) -> T + Send + 'static,
) -> Result<Seen<T>, EngineError> {
    let (sender, receiver) = sync_channel(1);
    let work = move |ledger: &mut dyn Transaction<Ledger>| read(ledger.machine(), ledger.now());
    ledger.transact(work, move |seen| drop(sender.send(seen)));
    receiver.recv().unwrap_or(Err(EngineError::OutcomeUnknown))
}

/// Answers that were given before this instant are no longer retained.
fn retained_from(ledger: &Ledger, now: Timestamp) -> Timestamp {
    // The retention is rounded up to a minute.
    now.plus_millis(-ledger.policy().idempotency_ttl_ms).plus_millis(-120_000)
}

/// Builds an archive that has nothing, or only a part, from the first record of the journal on. Answers that were given
/// before `retained_from` are left out.
pub fn build_archive(
    journal: &dyn Journal,
    archive: &Archive,
    retained_from: Timestamp,
) -> Result<(), ArchiveStepError> {
    build_with(journal, archive, (retained_from, None))
}

/// Builds an archive. `known` is what the ledger says of records that were forgotten by their age alone.
fn build_with(
    journal: &dyn Journal,
    archive: &Archive,
    (retained_from, known): (Timestamp, Option<Timestamp>),
) -> Result<(), ArchiveStepError> {
    let is_wanted = |entry: &ArchiveEntry| {
        entry.family == ArchiveFamily::Objects || entry.at >= retained_from.millis()
    };
    archive.clear()?;
    let until = journal.head()?;
    let wanted = |ledger: &Ledger, at: Timestamp, event: &Event| {
        forgotten_entries(ledger, at, event).into_iter().filter(is_wanted).collect()
    };
    // Position 0: it is not whole.
    let put = |entries: &[ArchiveEntry]| archive.put(entries, 0);
    let (ledger, mut entries) = replay_forgotten(journal, until, wanted, put)?;
    entries.extend(ledger.forgotten_by_age().max(known).map(whole_through));
    let position = until.position.max(ledger.forgotten_through()).max(1);
    Ok(archive.put_marked(&entries, position, Some(until))?)
}

/// Adds the jobs that were forgotten to an archive that has all else, in the order in which they were. It loses nothing
/// if the journal cannot be read.
fn add_jobs(
    journal: &dyn Journal,
    archive: &Archive,
    known: Option<Timestamp>,
) -> Result<(), ArchiveStepError> {
    let until = journal.head()?;
    // Nothing is added again and again while a segment is away.
    for batch in journal.read(Head::genesis(journal.id()))? {
        let _readable = batch?;
    }
    let jobs = |ledger: &Ledger, at: Timestamp, event: &Event| {
        let Some(forget) = ledger.forgotten_by(at, event) else { return Vec::new() };
        let forget = Forget { jobs: forget.jobs, ..Forget::default() };
        archive_entries(&forget, &ledger.tenants_of(&forget))
    };
    // A look-up at a position has seen everything of it: nothing more is ever added to one.
    let position = until.position.max(archive.mark().position + 1);
    let put = |entries: &[ArchiveEntry]| archive.put_marked(entries, position, Some(until));
    let (ledger, mut entries) = replay_forgotten(journal, until, jobs, put)?;
    entries.extend(ledger.forgotten_by_age().max(known).map(whole_through));
    Ok(put(&entries)?)
}

/// Replays the journal, and puts the entries of what it forgets as soon as there are many. Returns what is left.
fn replay_forgotten(
    journal: &dyn Journal,
    until: Head,
    entries_of: impl Fn(&Ledger, Timestamp, &Event) -> Vec<ArchiveEntry>,
    put: impl Fn(&[ArchiveEntry]) -> Result<(), JournalError>,
) -> Result<(Ledger, Vec<ArchiveEntry>), ArchiveStepError> {
    let mut ledger = LedgerCodec.genesis();
    let mut decoder = Decoder::new();
    let mut chunk = Chunk::new(put);
    for batch in journal.read(Head::genesis(journal.id()))? {
        let batch = batch?;
        if batch.sequence > until.sequence {
            break;
        }
        decoder.batch(&LedgerCodec, &batch, |record, events| {
            for event in events {
                chunk.add(entries_of(&ledger, record.time, event));
                ledger.apply(record.time, event);
            }
        })?;
        chunk.check()?;
    }
    Ok((ledger, chunk.rest()))
}

/// The key of the entry that an archive with jobs has. Its value is the last change of what had been forgotten by age
/// alone when the archive was built. Earlier releases forgot jobs so, also beside an archive.
const WHOLE_THROUGH: &[u8] = b"\xffwhole through";

fn whole_through(last: Timestamp) -> ArchiveEntry {
    let at = last.millis();
    let (key, value) = (WHOLE_THROUGH.to_vec(), at.to_be_bytes().to_vec());
    ArchiveEntry { family: ArchiveFamily::Objects, key, value, at }
}

/// Whether an archive has everything that was forgotten by its age alone.
fn has_aged(archive: &Archive, last: Option<Timestamp>) -> Result<bool, JournalError> {
    let Some(last) = last else { return Ok(true) };
    let found = match archive.get_unchecked(ArchiveFamily::Objects, WHOLE_THROUGH) {
        // It is written again.
        Err(error) if is_lost(&error) => None,
        found => found?,
    };
    let through = found.and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()).map(i64::from_be_bytes);
    Ok(through.is_some_and(|through| through >= last.millis()))
}

/// Builds the archive of a ledger, with the answers that are still kept for their idempotency keys.
fn build(
    journal: &dyn Journal,
    ledger: &Handle<Ledger>,
    archive: &Archive,
) -> Result<(), ArchiveStepError> {
    let now = ledger.read(|_| ())?.at;
    let read = move |ledger: &Ledger| (retained_from(ledger, now), ledger.forgotten_by_age());
    let (retained_from, known) = ledger.read(read)?.value;
    if has_archived(journal, ledger, archive)? {
        add_jobs(journal, archive, known)?;
        if has_aged(archive, known)? {
            return Ok(());
        }
    }
    build_with(journal, archive, (retained_from, known))
}

/// The entries of what an event is about to remove.
pub fn forgotten_entries(ledger: &Ledger, at: Timestamp, event: &Event) -> Vec<ArchiveEntry> {
    let Some(forget) = ledger.forgotten_by(at, event) else { return Vec::new() };
    archive_entries(&forget, &ledger.tenants_of(&forget))
}

/// Whether an archive lacks something that the ledger has forgotten, or is not of this journal's past.
pub fn must_build(
    journal: &dyn Journal,
    ledger: &Handle<Ledger>,
    archive: &Archive,
) -> Result<bool, ArchiveStepError> {
    let by_age = ledger.read(Ledger::forgotten_by_age)?.value;
    Ok(!has_archived(journal, ledger, archive)? || !has_aged(archive, by_age)?)
}

/// Whether an archive is of this journal's past, and has everything that the ledger has forgotten through it.
fn has_archived(
    journal: &dyn Journal,
    ledger: &Handle<Ledger>,
    archive: &Archive,
) -> Result<bool, ArchiveStepError> {
    let mark = archive.mark();
    let forgotten = ledger.read(Ledger::forgotten_through)?.value;
    Ok(mark.position >= forgotten && is_of_past(mark, journal.head()?, journal)?)
}

/// Writes as the owner of an epoch from now on, if it is not the one of the last step. What other owners wrote in
/// between is read, and compared with the journal before anything is looked up in it.
fn own_anew(
    archive: &Archive,
    epoch: &impl Fn() -> Option<Epoch>,
    owned: &mut Owned,
) -> Result<(), ArchiveStepError> {
    let present = epoch();
    if let Some(present) = present.filter(|present| owned.epoch != Some(*present)) {
        archive.set_checked(false);
        owned.is_checked = false;
        archive.own(present)?;
        owned.epoch = Some(present);
    }
    Ok(())
}

/// What the thread knows of the archive.
#[derive(Default)]
struct Owned {
    epoch: Option<Epoch>,
    /// Whether it was compared with the journal.
    is_checked: bool,
}

impl Owned {
    /// Whether the archive must be built. Asked of the journal once for each owner.
    fn must_build(
        &mut self,
        journal: &dyn Journal,
        ledger: &Handle<Ledger>,
        archive: &Archive,
    ) -> Result<bool, ArchiveStepError> {
        if self.is_checked {
            return Ok(archive.mark().position == 0);
        }
        let must_build = must_build(journal, ledger, archive)?;
        if !must_build {
            self.is_checked = true;
            archive.set_checked(true);
        }
        Ok(must_build)
    }
}

/// A thread that archives and forgets. Ends with the writer, or when it is stopped.
pub struct Archiver {
    thread: Option<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
}

impl Archiver {
    /// Builds the archive if that is needed, then keeps the window. Pauses after a step that had less to do than a whole
    /// one.
    pub fn start(
        journal: Arc<dyn Journal>,
        ledger: Handle<Ledger>,
        durable: Arc<Durable>,
        archive: Arc<Archive>,
        window: ClosedWindow,
        pace: Duration,
    ) -> Archiver {
        Archiver::watched((journal, durable), ledger, archive, (window, pace), || None, |_| {})
    }

    /// Starts the archiver. It writes as the owner of the epoch that `epoch` returns, where the store asks for one. `note` receives
    /// the outcome of every step.
    pub fn watched(
        (journal, durable): (Arc<dyn Journal>, Arc<Durable>),
        ledger: Handle<Ledger>,
        archive: Arc<Archive>,
        (window, pace): (ClosedWindow, Duration),
        epoch: impl Fn() -> Option<Epoch> + Send + 'static,
        mut note: impl FnMut(Result<ArchiveWork, &ArchiveStepError>) + Send + 'static,
    ) -> Archiver {
        let stopping = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stopping);
        archive.set_checked(false);
        // What waits for it takes memory: it does not wait behind what adds to that.
        let ledger = ledger.with_urgency(Urgency::Urgent);
        let work = move || {
            let _vital = Vital::new("the archiver");
            let (mut owned, mut waited) = (Owned::default(), MAX_STEP_DELAY);
            while !durable.is_closed() && !stops.load(Ordering::Relaxed) {
                let owns = own_anew(&archive, &epoch, &mut owned);
                let done = match owns.and_then(|()| owned.must_build(&*journal, &ledger, &archive))
                {
                    Ok(true) => {
                        note(Ok(ArchiveWork::Building));
                        build(&*journal, &ledger, &archive).map(|()| window.most)
                    }
                    Ok(false) => {
                        let slack = if waited < MAX_STEP_DELAY { window.slack() } else { 0 };
                        waited = if slack == 0 { Duration::ZERO } else { waited };
                        archive_step(&ledger, &archive, window, (slack, durable.head()))
                    }
                    Err(error) => Err(error),
                };
                if matches!(done, Err(ArchiveStepError::Ledger(EngineError::Stopped(_)))) {
                    // The writer ends, and this thread with it.
                    durable.pause(RETRY_INTERVAL);
                    continue;
                }
                note(done.as_ref().map(|_| ArchiveWork::Done));
                match done {
                    Ok(done) if done >= window.most => {}
                    Ok(_) => {
                        let seen = durable.head();
                        for _ in 0..MAX_IDLE_PAUSES {
                            durable.pause(pace);
                            waited += pace;
                            if durable.head() != seen || stops.load(Ordering::Relaxed) {
                                break;
                            }
                        }
                    }
                    // The store may become available again; what is not archived stays in memory.
                    Err(_) => durable.pause(RETRY_INTERVAL),
                }
            }
        };
        let thread = std::thread::Builder::new().name("bursar-archive".into()).spawn(work);
        Archiver { thread: Some(thread.expect("the system can start a thread")), stopping }
    }

    /// Ends the thread after its present step.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has reported its own panic.
            let _ = thread.join();
        }
    }
}

/// What the thread does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ArchiveWork {
    /// It builds the archive from the journal.
    Building,
    /// It has finished a step.
    Done,
}
