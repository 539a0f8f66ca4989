//! Whether memory stays constant when as many holds are forgotten as are placed.

use std::path::Path;

use bursar_core::ledger::command::Policy;
use bursar_core::time::Timestamp;
use serde::Serialize;

use crate::BenchError;
use crate::figure::{load_average, now, resident_bytes};
use crate::load::{BareLoop, LoadedEngine};

/// The state of a long run after one step.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct MemoryStep {
    /// Pairs completed so far.
    pub pairs: u64,
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// Pairs per second since the previous step.
    pub pairs_per_second: f64,
    /// Load average of the machine.
    pub load: f64,
}

/// Parameters of a long run.
#[derive(Copy, Clone, Debug)]
pub struct LongRun {
    /// Number of orgs, each with ten grants.
    pub accounts: usize,
    /// Commands in flight at any time.
    pub in_flight: usize,
    /// Total number of pairs.
    pub pairs: u64,
    /// Pairs between two reports.
    pub step: u64,
    /// How long answers and closed holds are retained.
    pub retention_ms: i64,
    /// Whether records are written to a journal. If not, one thread encodes and drops them, without
    /// the engine: for runs that would not fit on the disk.
    pub written: bool,
}

impl LongRun {
    fn policy(&self) -> Policy {
        let (idempotency_ttl_ms, retention_ms) = (self.retention_ms, self.retention_ms);
        Policy { idempotency_ttl_ms, retention_ms, ..Policy::default() }
    }
}

/// 2026-01-01T00:00:00Z
const START: i64 = 1_767_225_600_000;

/// Runs pairs and calls `each` after every step. Each pair advances the ledger's time by two
/// milliseconds, whatever the speed of the disk. The ledger forgets at full minutes, which is every
/// 30 000 pairs.
pub fn long_run(
    directory: &Path,
    run: LongRun,
    each: impl FnMut(MemoryStep),
) -> Result<(), BenchError> {
    if run.written { written(directory, run, each) } else { unwritten(run, each) }
}

/// Runs on the machine alone.
fn unwritten(run: LongRun, mut each: impl FnMut(MemoryStep)) -> Result<(), BenchError> {
    let mut time = Timestamp::from_millis(START);
    let mut bare = BareLoop::new(run.accounts, run.policy(), time);
    let mut done = 0;
    while done < run.pairs {
        let start = now();
        let end = run.pairs.min(done + run.step);
        let pairs = end - done;
        while done < end {
            let wave = (end - done).min(run.in_flight as u64);
            time = time.plus_millis(2 * wave as i64);
            bare.pairs(wave as usize, time);
            drop(bare.take_records());
            done += wave;
        }
        each(MemoryStep {
            pairs: done,
            resident_bytes: resident_bytes(),
            pairs_per_second: pairs as f64 / start.elapsed().as_secs_f64(),
            load: load_average(),
        });
    }
    bare.check_sums(done)
}

/// Runs through the engine; every record is durable.
fn written(
    directory: &Path,
    run: LongRun,
    mut each: impl FnMut(MemoryStep),
) -> Result<(), BenchError> {
    let file = directory.join("long.db");
    let mut loaded =
        LoadedEngine::start_with_fast_clock(&file, run.accounts, run.in_flight, run.policy(), 1)?;
    let mut done = 0;
    while done < run.pairs {
        let turn = loaded.run_commands(2 * run.step.min(run.pairs - done))?;
        // Latencies are not needed here and would grow with the run.
        loaded.latencies = Vec::new();
        done += turn.answered / 2;
        each(MemoryStep {
            pairs: done,
            resident_bytes: resident_bytes(),
            pairs_per_second: turn.answered as f64 / 2.0 / turn.seconds,
            load: load_average(),
        });
    }
    loaded.finish()
}
