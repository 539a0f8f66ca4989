//! What sealing saves on disk, and what it costs the writer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bursar_core::ledger::command::Policy;
use bursar_journal::{Journal, JournalError, Sealing, SegmentMark, Snapshot};
use serde::Serialize;

use crate::BenchError;
use crate::engine::{Effort, percentiles};
use crate::figure::{Figure, load_average, now};
use crate::load::LoadedEngine;

/// How sealing was measured.
#[derive(Copy, Clone, Debug)]
pub struct SealingRun {
    /// Commands in flight at any time.
    pub in_flight: usize,
    /// Bytes of records in a segment.
    pub segment_bytes: u64,
    /// The level of the compression.
    pub level: i32,
}

/// Bytes of the journal for each pair, and the effect of sealing on answers.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentCost {
    /// Commands in flight at any time.
    pub in_flight: usize,
    /// The level of the compression.
    pub level: i32,
    /// Pairs of the journal that was not sealed, without the set-up.
    pub pairs: u64,
    /// Bytes of its records for each pair.
    pub record_bytes_per_pair: f64,
    /// Bytes of its files for each pair.
    pub unsealed_bytes_per_pair: f64,
    /// Bytes of segments for each sealed pair.
    pub sealed_bytes_per_pair: f64,
    /// Segments of the other journal.
    pub segments: usize,
    /// The live file of the other journal at the end, without segments.
    pub live_bytes: u64,
    /// Bytes of records that a sealing thread takes in a second.
    pub sealed_bytes_per_second: f64,
    /// Commands per second without sealing.
    pub off_per_second: Figure,
    /// Commands per second while another thread seals everything.
    pub on_per_second: Figure,
    /// `on_per_second` divided by `off_per_second`, by repetition.
    pub ratio: Figure,
    /// 99th percentile of the time to an answer, without sealing.
    pub off_p99_ms: Figure,
    /// The same while another thread seals.
    pub on_p99_ms: Figure,
    /// Load average of the machine at the end.
    pub load: f64,
}

fn file_bytes(file: &Path) -> u64 {
    ["", "-wal"]
        .iter()
        .map(|end| {
            let mut name = file.as_os_str().to_owned();
            name.push(end);
            std::fs::metadata(name).map_or(0, |file| file.len())
        })
        .sum()
}

/// Seals everything up to the end. A snapshot without a state says that a start needs nothing older.
pub(crate) fn seal(
    journal: &dyn Journal,
    sealing: &Sealing,
    going: &dyn Fn() -> bool,
) -> Result<Vec<SegmentMark>, JournalError> {
    for _ in 0..2 {
        let snapshot = Snapshot { head: journal.head()?, state: Vec::new() };
        journal.put_snapshot(&snapshot)?;
    }
    let mut sealed = Vec::new();
    while let Some(mark) = journal.seal(sealing, going)? {
        sealed.push(mark);
    }
    Ok(sealed)
}

/// Runs two engines on two journals in turns. A thread seals one of them all the time.
pub fn segment_cost(
    directory: &Path,
    run: SealingRun,
    effort: Effort,
) -> Result<SegmentCost, BenchError> {
    let [unsealed_file, sealed_file] = ["unsealed.db", "sealed.db"]
        .map(|name| directory.join(format!("{}-{name}", run.in_flight)));
    let open = |file| LoadedEngine::new(file, effort.accounts, run.in_flight, Policy::default());
    let (mut off, mut on) = (open(&unsealed_file)?, open(&sealed_file)?);
    let sealing = Sealing { segment_bytes: run.segment_bytes, level: run.level, signer: None };
    off.journal.compact()?;
    let (began, began_bytes) = (off.journal.head()?, file_bytes(&unsealed_file));
    let set_up = on.journal.head()?.position;
    let (stop, journal) = (AtomicBool::new(false), Arc::clone(&on.journal));
    let mut turns = Turns::default();
    let mut segments = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sealed = Vec::new();
            let going = || !stop.load(Ordering::Relaxed);
            while going() {
                let more = seal(&*journal, &sealing, &going)?;
                if more.is_empty() {
                    std::thread::park_timeout(std::time::Duration::from_millis(20));
                }
                sealed.extend(more);
            }
            Ok::<_, JournalError>(sealed)
        });
        let measured = turns.measure(&mut off, &mut on, effort);
        stop.store(true, Ordering::Relaxed);
        let sealed = thread.join().map_err(|_| BenchError::Wrong("sealing panicked".into()))?;
        measured.and(sealed.map_err(BenchError::from))
    })?;
    for loaded in [&off, &on] {
        loaded.journal.compact()?;
    }
    let (end, end_bytes) = (off.journal.head()?, file_bytes(&unsealed_file));
    let record_bytes = record_bytes(&*off.journal, began)?;
    let start = now();
    let rest = seal(&*off.journal, &sealing, &|| true)?;
    let took = start.elapsed().as_secs_f64();
    // Those with the set-up are not made of pairs.
    segments.extend(rest.iter().copied());
    segments.retain(|mark| mark.first_position > set_up.max(began.position));
    let sealed: u64 = segments.iter().map(|mark| mark.bytes).sum();
    let records: u64 = segments.iter().map(|m| m.last_position - m.first_position + 1).sum();
    let pairs = (end.position - began.position) / 2;
    let live_bytes = file_bytes(&sealed_file);
    off.finish()?;
    on.finish()?;
    Ok(SegmentCost {
        in_flight: run.in_flight,
        level: run.level,
        pairs,
        record_bytes_per_pair: record_bytes as f64 / pairs.max(1) as f64,
        unsealed_bytes_per_pair: (end_bytes - began_bytes) as f64 / pairs.max(1) as f64,
        sealed_bytes_per_pair: sealed as f64 * 2.0 / records.max(1) as f64,
        segments: segments.len(),
        live_bytes,
        sealed_bytes_per_second: rest.len() as f64 * run.segment_bytes as f64 / took,
        off_per_second: Figure::of(turns.rates[0].clone()),
        on_per_second: Figure::of(turns.rates[1].clone()),
        ratio: Figure::of(turns.ratios),
        off_p99_ms: Figure::of(turns.p99[0].clone()),
        on_p99_ms: Figure::of(turns.p99[1].clone()),
        load: load_average(),
    })
}

#[derive(Default)]
struct Turns {
    rates: [Vec<f64>; 2],
    p99: [Vec<f64>; 2],
    ratios: Vec<f64>,
}

impl Turns {
    fn measure(
        &mut self,
        off: &mut LoadedEngine,
        on: &mut LoadedEngine,
        effort: Effort,
    ) -> Result<(), BenchError> {
        for _ in 0..effort.repetitions {
            let mut rates = [0.0; 2];
            for (index, loaded) in [&mut *off, &mut *on].into_iter().enumerate() {
                loaded.latencies.clear();
                let turn = loaded.run(effort.time)?;
                rates[index] = turn.answered as f64 / turn.seconds;
                self.rates[index].push(rates[index]);
                self.p99[index].push(percentiles(&mut loaded.latencies).1);
            }
            self.ratios.push(rates[1] / rates[0]);
        }
        Ok(())
    }
}

/// Bytes of the records after a batch.
fn record_bytes(journal: &dyn Journal, after: bursar_journal::Head) -> Result<u64, JournalError> {
    journal.read(after)?.map(|batch| batch.map(|batch| batch.payload.len() as u64)).sum()
}
