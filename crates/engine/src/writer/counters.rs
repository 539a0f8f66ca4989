//! The counters of a writer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar_journal::Batch;

/// Counters of the writer.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Durable writes.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// The largest number of records in one batch.
    pub largest_batch: u64,
    /// How often the state was rebuilt from the journal.
    pub rebuilds: u64,
    /// How many of these takeovers continued from a state that followed the journal.
    pub continued: u64,
    /// Requests, messages and steps that panicked. Each failed alone.
    pub panics: u64,
    /// Timers and messages that failed three times and were set aside since the start.
    pub set_aside: u64,
    /// The longest time that one turn of messages took, in microseconds. Other messages waited that
    /// long.
    pub longest_turn_micros: u64,
    /// The position reached while the state is being rebuilt.
    pub replayed: u64,
    /// The position at which the rebuild is complete.
    pub replay_until: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(super) batches: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) largest_batch: AtomicU64,
    pub(super) rebuilds: AtomicU64,
    pub(super) continued: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) set_aside: AtomicU64,
    pub(super) longest_turn_micros: AtomicU64,
    pub(super) replayed: AtomicU64,
    pub(super) replay_until: AtomicU64,
}

impl Counters {
    pub(crate) fn batch(&self, batch: &Batch) {
        let records = u64::from(batch.records());
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(batch.payload().len() as u64, Ordering::Relaxed);
        self.largest_batch.fetch_max(records, Ordering::Relaxed);
    }

    pub(crate) fn turn(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.longest_turn_micros.fetch_max(micros, Ordering::Relaxed);
    }
}
