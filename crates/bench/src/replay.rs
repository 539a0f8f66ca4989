//! How fast a start without a snapshot replays the journal.

use std::path::Path;
use std::time::Duration;

use bursar_core::ledger::command::Policy;
use bursar_core::ledger::invariant;
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::{LedgerCodec, replay_from_genesis};
use bursar_journal::Journal;
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use serde::Serialize;

use crate::BenchError;
use crate::figure::{
    Figure, load_average, now, process_seconds, processor_seconds, resident_bytes,
};
use crate::load::BareLoop;

/// Pairs per batch, as a busy engine writes them.
const PAIRS: usize = 2_000;
/// 2026-01-01T00:00:00Z
const START: i64 = 1_767_225_600_000;

/// The cost of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplaySpeed {
    /// Events in the journal.
    pub events: u64,
    /// Records in the journal.
    pub records: u64,
    /// Size of the journal's file in bytes.
    pub file_bytes: u64,
    /// Seconds from opening the reader to the complete state.
    pub seconds: Figure,
    /// Events per second.
    pub events_per_second: Figure,
    /// Events per second of processor time of the busier of the two threads, the reader and the
    /// applier: the rate on an otherwise idle machine.
    pub events_per_processor_second: Figure,
    /// Memory of the replayed state.
    pub state_bytes: u64,
    /// Load average of the machine at the end.
    pub load: f64,
}

/// Writes a journal of at least `events` events, about one millisecond apart, and replays it.
/// Nothing is forgotten, so the state contains every hold.
pub fn replay_speed(
    directory: &Path,
    events: u64,
    accounts: usize,
    repetitions: usize,
) -> Result<ReplaySpeed, BenchError> {
    let file = directory.join("replay.db");
    let journal = SqliteJournal::open(&file, SqliteOptions::default())?;
    let lease = journal.acquire_lease("bench", Duration::from_secs(3600))?;
    let mut head = journal.head()?;
    let mut time = Timestamp::from_millis(START);
    let mut bare = BareLoop::new(accounts, Policy::default(), time);
    loop {
        if let Some(batch) = bare.take_records() {
            head = journal.append(lease.epoch, head, batch)?;
            journal.compact()?;
        }
        if bare.event_count >= events {
            break;
        }
        time = time.plus_millis(2 * PAIRS as i64);
        bare.pairs(PAIRS, time);
    }
    let (events, digest) = (bare.event_count, bare.ledger.digest());
    drop(bare);
    let (mut seconds, mut processor) = (Vec::new(), Vec::new());
    let mut state_bytes = 0;
    for _ in 0..repetitions {
        let before = resident_bytes();
        let (start, used, together) = (now(), processor_seconds(), process_seconds());
        let replayed = replay_from_genesis(&journal, &LedgerCodec)?;
        seconds.push(start.elapsed().as_secs_f64());
        let applying = processor_seconds() - used;
        let reading = process_seconds() - together - applying;
        processor.push(applying.max(reading));
        state_bytes = state_bytes.max(resident_bytes().saturating_sub(before));
        if replayed.machine.digest() != digest {
            return Err(BenchError::Wrong("L11: replay gives another state".into()));
        }
        invariant::check(&replayed.machine)
            .map_err(|broken| BenchError::Wrong(format!("{broken:?}")))?;
    }
    let rates = |seconds: &[f64]| {
        Figure::of(seconds.iter().map(|seconds| events as f64 / seconds).collect())
    };
    Ok(ReplaySpeed {
        events,
        records: head.position,
        file_bytes: std::fs::metadata(&file)?.len(),
        events_per_second: rates(&seconds),
        events_per_processor_second: rates(&processor),
        seconds: Figure::of(seconds),
        state_bytes,
        load: load_average(),
    })
}
