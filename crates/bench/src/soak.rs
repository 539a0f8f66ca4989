//! A long run at default settings: memory holds what is open and a window of what was closed, whatever was done before.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bursar_core::ledger::command::{Policy, RecalledHold, Refund, RefundOf};
use bursar_core::ledger::holds::archive::RecalledRecord;
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Command, Envelope, Ledger};
use bursar_core::name::{AccountPath, HoldId};
use bursar_core::time::DAY_MS;
use bursar_engine::archiver::{Archiver, ClosedWindow, recall};
use bursar_engine::{EngineError, Handle};
use bursar_journal::archive::{Archive, ArchiveFamily};
use bursar_journal::record::ledger::{answer_key, object_key};
use bursar_journal::{Journal, JournalError, Sealing, SegmentMark};
use compact_str::format_compact;
use serde::Serialize;

use crate::BenchError;
use crate::figure::{load_average, now, resident_bytes};
use crate::load::LoadedEngine;
use crate::segments::seal;
use crate::world::{place, settle};

/// How long the archiver waits when there is little to do.
const PACE: Duration = Duration::from_millis(20);
/// Requests about forgotten holds that are measured, of each kind.
const ASKED: u64 = 2_000;

/// Parameters of a soak.
#[derive(Copy, Clone, Debug)]
pub struct SoakRun {
    /// Number of orgs, each with ten grants.
    pub accounts: usize,
    /// Commands in flight at any time.
    pub in_flight: usize,
    /// Total number of pairs.
    pub pairs: u64,
    /// Pairs between two reports.
    pub step: u64,
    /// What stays in memory.
    pub window: ClosedWindow,
    /// Bytes of records in a segment.
    pub segment_bytes: u64,
    /// By how much each command advances the ledger's time. Answers are kept for seven days of it.
    pub command_ms: i64,
}

/// The state of a soak after one step.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct SoakStep {
    /// Pairs completed so far.
    pub pairs: u64,
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// Pairs per second since the previous step.
    pub pairs_per_second: f64,
    /// Bytes of the live journal: what is not sealed, and free space in its file.
    pub live_bytes: u64,
    /// Bytes of sealed segments.
    pub segment_bytes: u64,
    /// Bytes of the archive.
    pub archive_bytes: u64,
    /// Load average of the machine.
    pub load: f64,
}

/// The figures of a whole soak.
#[derive(Clone, Debug, Serialize)]
pub struct SoakFigures {
    /// Every step.
    pub steps: Vec<SoakStep>,
    /// Bytes of live journal, segments and archive for each pair, at the end.
    pub bytes_per_pair: f64,
    /// Bytes of records for each pair before they are sealed; 0 if nothing was.
    pub record_bytes_per_pair: f64,
    /// Bytes of segments for each pair that is sealed; 0 if nothing was.
    pub sealed_bytes_per_pair: f64,
    /// Bytes of the archive for each pair.
    pub archive_bytes_per_pair: f64,
    /// The days of the ledger's time that passed.
    pub days: f64,
    /// The most bytes of all files at one time.
    pub peak_disk_bytes: u64,
    /// The most resident memory after the first tenth.
    pub most_resident_bytes: u64,
    /// The least resident memory after the first tenth.
    pub least_resident_bytes: u64,
    /// The 99th percentile of settling a forgotten hold again, in milliseconds.
    pub settle_p99_ms: f64,
    /// The same of refunding one.
    pub refund_p99_ms: f64,
    /// The same of placing one again.
    pub repeat_p99_ms: f64,
    /// The same of saying that an id and a key are new, in microseconds.
    pub fresh_p99_us: f64,
}

/// Bytes of the files and folders whose names begin so.
fn bytes_of(folder: &Path, prefix: &str) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let own = files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix));
    let bytes = |file: std::fs::DirEntry| match file.metadata() {
        Ok(data) if data.is_dir() => bytes_of(&file.path(), ""),
        Ok(data) => data.len(),
        // It was removed meanwhile.
        Err(_) => 0,
    };
    own.map(bytes).sum()
}

/// A thread that seals what can be sealed, and watches how much of the disk is used.
struct SoakSealer {
    thread: JoinHandle<Result<(), JournalError>>,
    stopping: Arc<AtomicBool>,
    sealed: Arc<Mutex<Vec<SegmentMark>>>,
    peak_bytes: Arc<AtomicU64>,
}

impl SoakSealer {
    fn start(journal: Arc<dyn Journal>, directory: PathBuf, sealing: Sealing) -> SoakSealer {
        let (stopping, sealed, peak_bytes): (Arc<AtomicBool>, Arc<Mutex<Vec<_>>>, Arc<AtomicU64>) =
            Default::default();
        let (stops, marks, peak) =
            (Arc::clone(&stopping), Arc::clone(&sealed), Arc::clone(&peak_bytes));
        let thread = std::thread::spawn(move || {
            let going = || {
                peak.fetch_max(bytes_of(&directory, ""), Ordering::Relaxed);
                !stops.load(Ordering::Relaxed)
            };
            while going() {
                let more = seal(&*journal, &sealing, &|| !stops.load(Ordering::Relaxed))?;
                marks.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
                std::thread::park_timeout(Duration::from_millis(500));
            }
            Ok(())
        });
        SoakSealer { thread, stopping, sealed, peak_bytes }
    }

    /// Ends the thread. Returns the segments, and the most bytes that were used.
    fn stop(self) -> Result<(Vec<SegmentMark>, u64), BenchError> {
        self.stopping.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| BenchError::Wrong("sealing panicked".into()))??;
        let sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok((sealed, self.peak_bytes.load(Ordering::Relaxed)))
    }
}

/// Runs pairs through the engine with an archiver, and calls `each` after every step. Then asks for holds that were
/// forgotten, and checks that a replay gives the same state.
pub fn soak(
    directory: &Path,
    run: SoakRun,
    mut each: impl FnMut(SoakStep),
) -> Result<SoakFigures, BenchError> {
    let file = directory.join("ledger.db");
    let mut loaded = LoadedEngine::in_quick_motion(
        &file,
        run.accounts,
        run.in_flight,
        Policy::default(),
        run.command_ms,
    )?;
    let archive = Archive::open(&directory.join("archive.db"), loaded.journal.id())?;
    let archive = Arc::new(archive);
    let archiver = Archiver::start(
        Arc::clone(&loaded.journal),
        loaded.engine.handle(),
        loaded.engine.durable(),
        Arc::clone(&archive),
        run.window,
        PACE,
    );
    let sealing = Sealing { segment_bytes: run.segment_bytes, ..Sealing::default() };
    let sealer = SoakSealer::start(Arc::clone(&loaded.journal), directory.to_owned(), sealing);
    let (mut steps, mut done) = (Vec::new(), 0);
    while done < run.pairs {
        let turn = loaded.run_commands(2 * run.step.min(run.pairs - done))?;
        // Latencies are not needed here and would grow with the run.
        loaded.latencies = Vec::new();
        done += turn.answered / 2;
        let step = SoakStep {
            pairs: done,
            resident_bytes: resident_bytes(),
            pairs_per_second: turn.answered as f64 / 2.0 / turn.seconds,
            live_bytes: bytes_of(directory, "ledger.db")
                .saturating_sub(bytes_of(directory, "ledger.db.segments")),
            segment_bytes: bytes_of(directory, "ledger.db.segments"),
            archive_bytes: bytes_of(directory, "archive.db"),
            load: load_average(),
        };
        each(step);
        steps.push(step);
    }
    let (segments, peak_disk_bytes) = sealer.stop()?;
    let asked = Asked { ledger: loaded.engine.handle(), archive: &archive, window: run.window };
    let (settle_p99, refund_p99, repeat_p99, fresh_p99) = asked.all(&loaded, done)?;
    let late = steps.iter().filter(|step| step.pairs * 10 > done);
    let resident: Vec<u64> = late.map(|step| step.resident_bytes).collect();
    let archive_bytes = bytes_of(directory, "archive.db");
    let bytes = archive_bytes + bytes_of(directory, "ledger.db");
    // A pair is two records.
    let records: u64 = segments.iter().map(|m| m.last_position - m.first_position + 1).sum();
    let sealed_pairs = records.max(1) as f64 / 2.0;
    let sealed: u64 = segments.iter().map(|mark| mark.bytes).sum();
    let figures = SoakFigures {
        bytes_per_pair: bytes as f64 / done as f64,
        record_bytes_per_pair: segments.len() as f64 * run.segment_bytes as f64 / sealed_pairs,
        sealed_bytes_per_pair: sealed as f64 / sealed_pairs,
        archive_bytes_per_pair: archive_bytes as f64 / done as f64,
        days: 2.0 * done as f64 * run.command_ms as f64 / DAY_MS as f64,
        peak_disk_bytes,
        most_resident_bytes: resident.iter().copied().max().unwrap_or(0),
        least_resident_bytes: resident.iter().copied().min().unwrap_or(0),
        steps,
        settle_p99_ms: settle_p99 * 1e3,
        refund_p99_ms: refund_p99 * 1e3,
        repeat_p99_ms: repeat_p99 * 1e3,
        fresh_p99_us: fresh_p99 * 1e6,
    };
    archiver.stop();
    loaded.finish_refunded(ASKED as i64)?;
    Ok(figures)
}

/// Asks for what was forgotten, as a server does.
struct Asked<'a> {
    ledger: Handle<Ledger>,
    archive: &'a Archive,
    window: ClosedWindow,
}

impl Asked<'_> {
    /// The 99th percentiles of the four kinds of requests, in seconds.
    fn all(&self, loaded: &LoadedEngine, pairs: u64) -> Result<(f64, f64, f64, f64), BenchError> {
        // The archiver keeps the newest; all older ones are forgotten.
        let forgotten = pairs.saturating_sub(2 * (self.window.keep + self.window.most) as u64);
        if forgotten < 3 * ASKED {
            return Err(BenchError::Wrong("too few pairs: nothing is forgotten".into()));
        }
        // Spread over all of them, and each asked for once. Which org has placed it is known without a look into the
        // archive, which would leave it in a cache.
        let holds = (0..3 * ASKED).map(|number| number * (forgotten / (3 * ASKED)));
        let orgs = loaded.orgs_of(holds.clone());
        let mut took: [Vec<f64>; 4] = Default::default();
        for ((number, hold), org) in (0..3 * ASKED).zip(holds).zip(orgs) {
            let hold = HoldId::unchecked(format_compact!("hold{hold}"));
            let kind = (number % 3) as usize;
            let command = match kind {
                0 => settle(&org, hold),
                1 => Command::Refund(Refund {
                    id: format_compact!("refund-of-{hold}").into(),
                    tenant: org.clone(),
                    of: RefundOf::Hold(hold),
                    amount: None,
                    compensate: false,
                    note: None,
                    recalled: Vec::new(),
                }),
                _ => place(hold, &org),
            };
            took[kind].push(self.time(&org, command)?);
            if kind > 0 {
                continue;
            }
            let start = now();
            let (new, key) = (format_compact!("new{number}"), u128::MAX - u128::from(number));
            let tenant = AccountNo(0);
            let object = object_key(Resource::Hold, tenant, &new);
            for (family, key) in [
                (ArchiveFamily::Objects, object),
                (ArchiveFamily::Answers, answer_key(key).to_vec()),
            ] {
                // As a server asks: memory first.
                if self.archive.excludes(family, &key).is_none() {
                    std::hint::black_box(self.archive.get(family, &key)?);
                }
            }
            took[3].push(start.elapsed().as_secs_f64());
        }
        let p99 = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() * 99 / 100).copied().unwrap_or(0.0)
        };
        let [mut settles, mut refunds, mut repeats, mut fresh] = took;
        Ok((p99(&mut settles), p99(&mut refunds), p99(&mut repeats), p99(&mut fresh)))
    }

    /// How long one request takes: the look-up and the durable decision.
    fn time(&self, org: &AccountPath, mut command: Command) -> Result<f64, BenchError> {
        let start: Instant = now();
        let path = org.clone();
        let tenant = self.ledger.read(move |ledger| ledger.find_account(&path))?.value;
        let tenant = tenant.ok_or_else(|| BenchError::Wrong(format!("{org} is missing")))?;
        let names: Vec<_> =
            command.archived_names().into_iter().map(|(what, _, id)| (what, tenant, id)).collect();
        let found = recall(self.archive, &names, None)?;
        if !found.recalled.iter().any(|found| matches!(found, RecalledRecord::Hold(_))) {
            return Err(BenchError::Wrong(format!("{names:?} is not in the archive")));
        }
        if let Command::Refund(refund) = &mut command {
            let holds = found.recalled.iter().filter_map(|recalled| match recalled {
                RecalledRecord::Hold(record) => {
                    Some(RecalledHold { record: Box::new(record.clone()) })
                }
                RecalledRecord::Movement(_) => None,
            });
            refund.recalled = holds.collect();
        }
        let (archive, recalled) = (Some(found.position), found.recalled);
        let envelope = Envelope { archive, recalled, ..Envelope::default() };
        let answer: Result<_, EngineError> = self.ledger.execute(envelope, command);
        let decided = answer?.value;
        // A hold that was placed by another request exists already: the fingerprints differ.
        if let Err(refused) = &decided
            && !matches!(refused.refusal, bursar_core::ledger::Refusal::AlreadyExists { .. })
        {
            return Err(BenchError::Wrong(format!("{refused:?}")));
        }
        Ok(start.elapsed().as_secs_f64())
    }
}
