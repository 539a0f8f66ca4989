//! Durable commands per second through the whole engine, compared with the limit of group commit.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_core::ledger::command::Policy;
use bursar_engine::follower::Follower;
use bursar_engine::{Clock, LedgerCodec, Snapshotter, Stats, WallClock};
use serde::Serialize;

use crate::BenchError;
use crate::figure::{Figure, load_average, resident_bytes};
use crate::load::{BareLoop, LoadedEngine};
use crate::raw::RawLoop;

/// How often the engine, the raw loop and the bare machine alternate in one repetition.
const TURNS: u32 = 3;

/// The size of a measurement.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// Number of orgs, each with ten grants.
    pub accounts: usize,
    /// Number of repetitions. A spread needs at least three.
    pub repetitions: usize,
    /// How long one repetition loads the engine.
    pub time: Duration,
}

/// Results at one number of commands in flight.
#[derive(Clone, Debug, Serialize)]
pub struct EngineRate {
    /// Commands in flight at any time.
    pub in_flight: usize,
    /// Durable commands per second: places and settles in equal parts.
    pub commands_per_second: Figure,
    /// The limit N / (t_fdatasync + N · t_core), from the same repetition.
    pub limit_per_second: Figure,
    /// `commands_per_second` divided by `limit_per_second`, per repetition.
    pub ratio: Figure,
    /// Time to write N records to a preallocated file and sync it.
    pub fdatasync_ms: Figure,
    /// Time to decide, apply and encode one command, in the order that N commands in flight
    /// produce.
    pub core_us: Figure,
    /// Median time to an answer.
    pub latency_ms: f64,
    /// 99th percentile of the time to an answer.
    pub latency_p99_ms: f64,
    /// Batches written, each by one commit and one sync of the log.
    pub batches: u64,
    /// Records in the average batch.
    pub mean_batch: f64,
    /// Records in the largest batch.
    pub largest_batch: u64,
    /// Load average of the machine at the end.
    pub load: f64,
    /// Resident memory of the process at the end.
    pub resident_bytes: u64,
}

/// Measures the engine at one number of commands in flight. Ends with a check of the invariants,
/// the sums and a replay.
pub fn rate(directory: &Path, in_flight: usize, effort: Effort) -> Result<EngineRate, BenchError> {
    let clock = WallClock::new();
    let mut bare = BareLoop::new(effort.accounts, Policy::default(), clock.now());
    let (_, record_bytes) = bare.run(in_flight, Duration::from_millis(20), &clock);
    let block = (record_bytes * in_flight as f64) as usize;
    let mut raw = RawLoop::new(directory, block)?;
    let file = directory.join(format!("engine-{in_flight}.db"));
    let mut loaded = LoadedEngine::new(&file, effort.accounts, in_flight, Policy::default())?;
    let before = loaded.stats();
    let mut repetitions = Repetitions::default();
    for _ in 0..effort.repetitions {
        let (mut sync, mut core, mut answered, mut seconds) = (0.0, 0.0, 0.0, 0.0);
        for _ in 0..TURNS {
            sync += raw.run(effort.time / TURNS / 2)? / f64::from(TURNS);
            core += bare.run(in_flight, effort.time / TURNS / 4, &clock).0 / f64::from(TURNS);
            let turn = loaded.run(effort.time / TURNS)?;
            answered += turn.answered as f64;
            seconds += turn.seconds;
        }
        repetitions.add(in_flight, sync, core, answered / seconds);
    }
    let after = loaded.stats();
    let latency = percentiles(&mut loaded.latencies);
    loaded.finish()?;
    Ok(repetitions.rate(in_flight, latency, before, after))
}

#[derive(Default)]
struct Repetitions {
    rates: Vec<f64>,
    limits: Vec<f64>,
    ratios: Vec<f64>,
    syncs: Vec<f64>,
    cores: Vec<f64>,
}

impl Repetitions {
    fn add(&mut self, in_flight: usize, sync: f64, core: f64, rate: f64) {
        let limit = in_flight as f64 / (sync + in_flight as f64 * core);
        self.rates.push(rate);
        self.limits.push(limit);
        self.ratios.push(rate / limit);
        self.syncs.push(sync * 1e3);
        self.cores.push(core * 1e6);
    }

    fn rate(
        self,
        in_flight: usize,
        latency: (f64, f64),
        before: Stats,
        after: Stats,
    ) -> EngineRate {
        let batches = after.batches - before.batches;
        let records = after.records - before.records;
        EngineRate {
            in_flight,
            commands_per_second: Figure::of(self.rates),
            limit_per_second: Figure::of(self.limits),
            ratio: Figure::of(self.ratios),
            fdatasync_ms: Figure::of(self.syncs),
            core_us: Figure::of(self.cores),
            latency_ms: latency.0,
            latency_p99_ms: latency.1,
            batches,
            mean_batch: records as f64 / batches.max(1) as f64,
            largest_batch: after.largest_batch,
            load: load_average(),
            resident_bytes: resident_bytes(),
        }
    }
}

/// The median and the 99th percentile in milliseconds of latencies in microseconds.
pub(crate) fn percentiles(latencies: &mut [u32]) -> (f64, f64) {
    latencies.sort_unstable();
    let at = |part: f64| {
        let index = (latencies.len() as f64 * part) as usize;
        latencies.get(index).map_or(0.0, |latency| f64::from(*latency) / 1e3)
    };
    (at(0.5), at(0.99))
}

/// The effect of snapshots on latency and throughput.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotCost {
    /// Commands in flight at any time.
    pub in_flight: usize,
    /// Records from one snapshot to the next.
    pub every: u64,
    /// Snapshots made during the run.
    pub snapshots: u64,
    /// Size of the last snapshot in bytes.
    pub snapshot_bytes: u64,
    /// 99th percentile of the time to an answer, without snapshots.
    pub off_p99_ms: Figure,
    /// The same, with a follower that makes snapshots.
    pub on_p99_ms: Figure,
    /// Commands per second without snapshots.
    pub off_per_second: Figure,
    /// Commands per second with snapshots.
    pub on_per_second: Figure,
    /// Load average of the machine at the end.
    pub load: f64,
}

/// Runs two engines on two journals in turns. One of them has a follower that makes snapshots.
pub fn snapshot_cost(
    directory: &Path,
    in_flight: usize,
    every: u64,
    effort: Effort,
) -> Result<SnapshotCost, BenchError> {
    let open = |name: &str| {
        let file = directory.join(name);
        LoadedEngine::new(&file, effort.accounts, in_flight, Policy::default())
    };
    let (mut off, mut on) = (open("without.db")?, open("with.db")?);
    let codec = Arc::new(LedgerCodec);
    let snapshots = Snapshotter::new(Arc::clone(&on.journal), Arc::clone(&codec), every)?;
    let durable = on.engine.durable();
    let first = durable.head().map_or(0, |head| head.position);
    let follower = Follower::start(Arc::clone(&on.journal), codec, durable, snapshots);
    let (mut p99, mut rates) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..effort.repetitions {
        for (index, loaded) in [&mut off, &mut on].into_iter().enumerate() {
            loaded.latencies.clear();
            let turn = loaded.run(effort.time)?;
            p99[index].push(percentiles(&mut loaded.latencies).1);
            rates[index].push(turn.answered as f64 / turn.seconds);
        }
        // The follower catches up first. Otherwise it would slow the next turn of the other engine.
        let head = on.engine.durable().head().map_or(0, |head| head.sequence);
        follower.followed().wait_beyond(head.saturating_sub(1));
    }
    let last = on.engine.durable().head().map_or(0, |head| head.position);
    let marks = on.journal.list_snapshots()?;
    let newest = marks.first().map(|mark| on.journal.get_snapshot(*mark)).transpose()?;
    off.finish()?;
    on.finish()?;
    follower.join();
    let [off_p99, on_p99] = p99;
    let [off_rate, on_rate] = rates;
    Ok(SnapshotCost {
        in_flight,
        every,
        snapshots: (last - first) / every,
        snapshot_bytes: newest.map_or(0, |snapshot| snapshot.state.len() as u64),
        off_p99_ms: Figure::of(off_p99),
        on_p99_ms: Figure::of(on_p99),
        off_per_second: Figure::of(off_rate),
        on_per_second: Figure::of(on_rate),
        load: load_average(),
    })
}
