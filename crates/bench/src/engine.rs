//! Durable commands per second through the whole engine, against what group commit can give.

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

/// How often the engine, the raw loop and the bare machine take turns in one repetition.
const TURNS: u32 = 3;

/// How much to measure.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// Orgs, each with ten grants.
    pub accounts: usize,
    /// How often everything is repeated; at least three make a spread.
    pub repetitions: usize,
    /// How long one repetition keeps the engine busy.
    pub time: Duration,
}

/// What was measured at one number of commands in flight.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// Commands in flight at any time.
    pub in_flight: usize,
    /// Durable commands per second: places and settles in equal parts.
    pub commands_per_second: Figure,
    /// N / (t_fdatasync + N · t_core) of the same repetition.
    pub limit_per_second: Figure,
    /// The one by the other, for each repetition.
    pub ratio: Figure,
    /// One write of N records into a preallocated file, and its sync.
    pub fdatasync_ms: Figure,
    /// Decide, apply and encode one command, in the order that N in flight have.
    pub core_us: Figure,
    /// How long an answer takes, in the median.
    pub latency_ms: f64,
    /// How long all but one of a hundred take at most.
    pub latency_p99_ms: f64,
    /// Batches written, each by one commit and one sync of the log.
    pub batches: u64,
    /// Records in the average batch.
    pub mean_batch: f64,
    /// Records in the largest one.
    pub largest_batch: u64,
    /// The load of the machine at the end.
    pub load: f64,
    /// Memory of the process at the end.
    pub resident_bytes: u64,
}

/// Measures the engine at one number in flight. Ends by checking the laws, the sums and a replay.
pub fn rate(directory: &Path, in_flight: usize, effort: Effort) -> Result<Rate, BenchError> {
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

    fn rate(self, in_flight: usize, latency: (f64, f64), before: Stats, after: Stats) -> Rate {
        let batches = after.batches - before.batches;
        let records = after.records - before.records;
        Rate {
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

/// The median and the 99th percentile in milliseconds, of microseconds.
pub(crate) fn percentiles(latencies: &mut [u32]) -> (f64, f64) {
    latencies.sort_unstable();
    let at = |part: f64| {
        let index = (latencies.len() as f64 * part) as usize;
        latencies.get(index).map_or(0.0, |latency| f64::from(*latency) / 1e3)
    };
    (at(0.5), at(0.99))
}

/// What snapshots do to those who wait for an answer.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotCost {
    /// Commands in flight at any time.
    pub in_flight: usize,
    /// Records from one snapshot to the next.
    pub every: u64,
    /// Snapshots that were made meanwhile.
    pub snapshots: u64,
    /// Bytes of the last one.
    pub snapshot_bytes: u64,
    /// 99th percentile of an answer's time without snapshots.
    pub off_p99_ms: Figure,
    /// The same with a follower that makes them.
    pub on_p99_ms: Figure,
    /// Commands per second without.
    pub off_per_second: Figure,
    /// Commands per second with.
    pub on_per_second: Figure,
    /// The load of the machine at the end.
    pub load: f64,
}

/// Two engines on two journals take turns; one has a follower that makes snapshots.
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
        // What it has not read yet must not be read at the other's expense.
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
