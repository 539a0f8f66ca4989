//! Rebuilds state from a journal, with the same `apply` that runs live.

use std::sync::mpsc::{channel, sync_channel};

use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_journal::{BatchReader, Head, Journal, JournalError, Record, RecordKind, StoredBatch};
use bursar_seeded::{Bug, seeded};
use thiserror::Error;

use crate::codec::{Codec, CodecError};
use crate::error::ReplayError;
use crate::writer::handle::Handle;

/// A machine rebuilt from its journal.
pub struct Replayed<M> {
    /// The state.
    pub machine: M,
    /// The last batch that the state contains.
    pub head: Head,
    /// The batch of the snapshot that the replay started from, or 0.
    pub snapshot: u64,
    /// Snapshots that were skipped, and why.
    pub skipped: Vec<String>,
}

/// Rebuilds the state from the newest valid snapshot and all batches after it.
///
/// # Errors
/// The journal itself cannot be read. An invalid snapshot is skipped.
pub fn replay<C: Codec>(
    journal: &dyn Journal,
    codec: &C,
) -> Result<Replayed<C::Machine>, ReplayError> {
    replay_watched(journal, codec, |_, _| {})
}

/// Like [`replay`], and reports progress: the position reached and the position to reach.
pub(crate) fn replay_watched<C: Codec>(
    journal: &dyn Journal,
    codec: &C,
    progress: impl Fn(Head, Head),
) -> Result<Replayed<C::Machine>, ReplayError> {
    let Replayed { machine, head, snapshot, skipped } = newest_snapshot(journal, codec)?;
    let until = journal.head()?;
    let progress = |head| progress(head, until);
    progress(head);
    let (machine, head) = catch_up(journal, codec, machine, head, progress)?;
    Ok(Replayed { machine, head, snapshot, skipped })
}

/// The state of the newest valid snapshot, or that before the first batch.
pub(crate) fn newest_snapshot<C: Codec>(
    journal: &dyn Journal,
    codec: &C,
) -> Result<Replayed<C::Machine>, ReplayError> {
    let mut skipped = Vec::new();
    for mark in journal.list_snapshots()? {
        match trusted_snapshot(journal, codec, mark) {
            Ok((machine, head)) => {
                return Ok(Replayed { machine, head, snapshot: head.sequence, skipped });
            }
            // It may be valid: an older one would only take longer.
            Err(UnusableSnapshot::Journal(error)) if is_unanswered(&error) => {
                return Err(error.into());
            }
            Err(reason) => skipped.push(reason.to_string()),
        }
    }
    let (machine, head) = (codec.genesis(), Head::genesis(journal.id()));
    Ok(Replayed { machine, head, snapshot: 0, skipped })
}

/// Applies the next batches, up to the size of a chunk. After an error the state is as it was.
pub(crate) fn advance<C: Codec>(
    journal: &dyn Journal,
    codec: &C,
    state: &mut Replayed<C::Machine>,
) -> Result<(), ReplayError> {
    let mut reader = journal.read(state.head)?;
    let mut chunk = Chunk::new(state.head);
    chunk.fill(codec, &mut reader)?;
    chunk.apply_to(&mut state.machine);
    state.head = chunk.head;
    Ok(())
}

/// Rebuilds the state from the first batch, without snapshots.
pub fn replay_from_genesis<C: Codec>(
    journal: &dyn Journal,
    codec: &C,
) -> Result<Replayed<C::Machine>, ReplayError> {
    let genesis = Head::genesis(journal.id());
    let (machine, head) = catch_up(journal, codec, codec.genesis(), genesis, |_| {})?;
    Ok(Replayed { machine, head, snapshot: 0, skipped: Vec::new() })
}

/// How often a copy is taken that may end inside a batch, before the journal is read instead.
const MAX_COPIES: usize = 2;

/// The durable state of a machine as its writer has it. Nothing is decoded, and what the state has behind reference
/// counts is shared with the writer. While the writer is too busy to be between two batches, or serves nothing, the
/// journal is replayed.
pub fn copy_or_replay<C: Codec<Machine: Clone>>(
    journal: &dyn Journal,
    codec: &C,
    writer: &Handle<C::Machine>,
) -> Result<Replayed<C::Machine>, ReplayError> {
    for _ in 0..MAX_COPIES {
        let Ok(copied) = writer.read(C::Machine::clone) else { break };
        // From the newest snapshot on nothing is sealed, so a start needs no segment.
        let snapshot = journal.list_snapshots()?.first().map_or(0, |mark| mark.sequence);
        let head = journal.head_before_from(journal.head_at(snapshot)?, copied.position + 1)?;
        if head.position == copied.position {
            return Ok(Replayed { machine: copied.value, head, snapshot, skipped: Vec::new() });
        }
    }
    replay(journal, codec)
}

/// Whether the store did not answer, so that the same read may succeed later. A segment that is away counts as gone: a
/// newer snapshot needs none.
pub(crate) fn is_unanswered(error: &JournalError) -> bool {
    matches!(
        error,
        JournalError::Storage { .. } | JournalError::Full { .. } | JournalError::Unfit(_)
    )
}

/// Why a snapshot is not used.
#[derive(Debug, Error)]
enum UnusableSnapshot {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the snapshot at batch {0} is of another history")]
    OtherHistory(u64),
    #[error(transparent)]
    State(#[from] CodecError),
}

fn trusted_snapshot<C: Codec>(
    journal: &dyn Journal,
    codec: &C,
    mark: bursar_journal::SnapshotMark,
) -> Result<(C::Machine, Head), UnusableSnapshot> {
    let snapshot = journal.get_snapshot(mark)?;
    // A snapshot of another history, for example of a journal restored from a backup, is not
    // usable.
    let is_of_past = journal.head_at(mark.sequence)? == snapshot.head;
    if !is_of_past && !seeded(Bug::TrustsForeignSnapshot) {
        return Err(UnusableSnapshot::OtherHistory(mark.sequence));
    }
    let machine = codec.decode_state(&snapshot.state)?;
    Ok((machine, snapshot.head))
}

fn catch_up<C: Codec>(
    journal: &dyn Journal,
    codec: &C,
    mut machine: C::Machine,
    head: Head,
    progress: impl Fn(Head),
) -> Result<(C::Machine, Head), ReplayError> {
    let mut reader = journal.read(head)?;
    let mut first = Chunk::new(head);
    let more = first.fill(codec, &mut reader)?;
    first.apply_to(&mut machine);
    let head = first.head;
    progress(head);
    // Most starts need one chunk. A second thread is worth its cost only for more.
    if more { follow(codec, reader, machine, head, progress) } else { Ok((machine, head)) }
}

/// Applies chunks that another thread reads, verifies and decodes meanwhile.
fn follow<C: Codec>(
    codec: &C,
    mut reader: BatchReader,
    mut machine: C::Machine,
    mut head: Head,
    progress: impl Fn(Head),
) -> Result<(C::Machine, Head), ReplayError> {
    let (filled, chunks) = sync_channel(CHUNKS_AHEAD);
    let (spent, empty) = channel::<Chunk<_>>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut more = true;
            while more {
                // Cleared here, so that the thread that allocated the events frees them.
                let mut chunk = empty.try_recv().unwrap_or_else(|_| Chunk::new(head));
                chunk.clear();
                let outcome = chunk.fill(codec, &mut reader);
                more = *outcome.as_ref().unwrap_or(&false);
                // The receiver is gone once the other thread has failed.
                if filled.send(outcome.map(|_| chunk)).is_err() {
                    return;
                }
            }
        });
        for chunk in chunks {
            let chunk = chunk?;
            chunk.apply_to(&mut machine);
            head = chunk.head;
            progress(head);
            // The reader may have ended and need no more chunks.
            let _ = spent.send(chunk);
        }
        Ok((machine, head))
    })
}

/// Events in one chunk. The batch that exceeds the limit still belongs to the chunk.
const CHUNK_EVENTS: usize = 8192;
/// Chunks that are decoded before they are applied.
const CHUNKS_AHEAD: usize = 2;

/// The events of consecutive batches.
struct Chunk<E> {
    events: Vec<E>,
    /// The time of each record, and where its events end.
    records: Vec<(Timestamp, usize)>,
    /// The last batch that the chunk contains.
    head: Head,
}

impl<E> Chunk<E> {
    fn new(head: Head) -> Chunk<E> {
        Chunk { events: Vec::new(), records: Vec::new(), head }
    }

    fn clear(&mut self) {
        self.events.clear();
        self.records.clear();
    }

    /// Adds batches until the chunk is full. Returns whether there may be more.
    fn fill<C>(&mut self, codec: &C, reader: &mut BatchReader) -> Result<bool, ReplayError>
    where
        C: Codec<Machine: Machine<Event = E>>,
    {
        let mut more = true;
        while more && self.events.len() < CHUNK_EVENTS {
            let batch = reader.next().transpose()?;
            for record in batch.iter().flat_map(StoredBatch::frames) {
                let record = record?;
                if seeded(Bug::ReplayDropsLastRecord) && is_last_of_several(&record, &batch) {
                    continue;
                }
                decode_record(codec, &record, &mut self.events)?;
                self.records.push((record.time, self.events.len()));
            }
            more = batch.is_some();
        }
        self.head = reader.head();
        Ok(more)
    }

    fn apply_to(&self, machine: &mut impl Machine<Event = E>) {
        let mut events = self.events.iter();
        let mut done = 0;
        for (time, end) in &self.records {
            for event in events.by_ref().take(end - done) {
                machine.apply(*time, event);
            }
            done = *end;
        }
    }
}

/// Whether a record is the last of a batch of more than one.
fn is_last_of_several(record: &Record<'_>, batch: &Option<StoredBatch>) -> bool {
    let several = batch.as_ref().filter(|batch| batch.records > 1);
    several.is_some_and(|batch| batch.head().position == record.position)
}

/// Decodes batches into events, in reused memory.
pub(crate) struct Decoder<E> {
    events: Vec<E>,
}

impl<E> Decoder<E> {
    pub(crate) fn new() -> Decoder<E> {
        Decoder { events: Vec::new() }
    }

    /// Calls `each` with every record of `batch` and its events.
    pub(crate) fn batch<C>(
        &mut self,
        codec: &C,
        batch: &StoredBatch,
        mut each: impl FnMut(&Record<'_>, &[E]),
    ) -> Result<(), ReplayError>
    where
        C: Codec<Machine: Machine<Event = E>>,
    {
        for record in batch.frames() {
            let record = record?;
            self.events.clear();
            decode_record(codec, &record, &mut self.events)?;
            each(&record, &self.events);
        }
        Ok(())
    }
}

/// Appends the events of a record to `events`.
fn decode_record<C: Codec>(
    codec: &C,
    record: &Record<'_>,
    events: &mut Vec<<C::Machine as Machine>::Event>,
) -> Result<(), ReplayError> {
    let body = |reason| ReplayError::Body { position: record.position, reason };
    match record.kind {
        RecordKind::Barrier => Ok(()),
        RecordKind::Decision | RecordKind::Due => codec.decode(record.body, events).map_err(body),
        RecordKind::Group => {
            group_items(record.body).try_for_each(|item| codec.decode(item?, events)).map_err(body)
        }
    }
}

/// Writes one item of a group: its length and its body.
pub(crate) fn write_group_item(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = u32::try_from(out.len() - start - 4).expect("a record is at most 64 MiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// The bodies of a group's items.
fn group_items(mut rest: &[u8]) -> impl Iterator<Item = Result<&[u8], crate::CodecError>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let item = rest.split_first_chunk::<4>().and_then(|(length, after)| {
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            after.split_at_checked(length)
        });
        match item {
            Some((item, after)) => {
                rest = after;
                Some(Ok(item))
            }
            None => {
                rest = &[];
                Some(Err(crate::CodecError("an item of the group is cut off".into())))
            }
        }
    })
}
