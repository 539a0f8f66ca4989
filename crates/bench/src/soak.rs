//! A long run at default settings: memory holds what is open and a window of what was closed, whatever was done before.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bursar_core::ledger::command::{Policy, RecalledHold, Refund, RefundOf};

use bursar_core::ledger::holds::archive::RecalledRecord;
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Command, Envelope, Ledger};
use bursar_core::machine::Machine;
use bursar_core::name::{AccountPath, HoldId};
use bursar_core::time::DAY_MS;
use bursar_engine::archiver::{Archiver, ClosedWindow};
use bursar_engine::recall::{Recall, recall_with_keys};
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
use crate::world::{envelope, place, settle};

/// How long the archiver waits when there is little to do.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);
/// How often it is looked whether the archiver has caught up: five minutes.
const ARCHIVER_LOOKS: u32 = 15_000;
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
    /// Requests about holds that were forgotten.
    pub forgotten: LateRequests,
    /// The same requests about holds that are still in memory.
    pub in_memory: LateRequests,
    /// The 99th percentile of saying that an id and a key are new, in microseconds.
    pub fresh_p99_us: f64,
}

/// The 99th percentiles of requests about closed holds, in milliseconds.
#[derive(Copy, Clone, Debug, Serialize)]
pub struct LateRequests {
    /// Settling one again.
    pub settle_p99_ms: f64,
    /// Refunding one: it is durable.
    pub refund_p99_ms: f64,
    /// The request that placed one, again, under its idempotency key.
    pub repeat_p99_ms: f64,
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
    let mut loaded = LoadedEngine::start_with_fast_clock(
        &file,
        run.accounts,
        run.in_flight,
        Policy::default(),
        run.command_ms,
    )?;
    let archive = Archive::open(&directory.join("archive.db"), loaded.journal.id())?;
    let archive = Arc::new(archive);
    loaded.note(run.pairs / (6 * ASKED), run.pairs.saturating_sub(8 * ASKED));
    let archiver = Archiver::start(
        Arc::clone(&loaded.journal),
        loaded.engine.handle(),
        loaded.engine.durable(),
        Arc::clone(&archive),
        run.window,
        IDLE_INTERVAL,
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
    let asked = Asked { ledger: loaded.engine.handle(), archive: &archive };
    asked.wait_for_archiver(run.window)?;
    // The archiver keeps the newest; all older ones are forgotten.
    let old = done.saturating_sub(2 * (run.window.keep + run.window.most) as u64);
    let forgotten = asked.late(&loaded, 0..old, true)?;
    let open = 2 * run.in_flight as u64;
    let newest = done.saturating_sub(8 * ASKED)..done.saturating_sub(open);
    let in_memory = asked.late(&loaded, newest, false)?;
    let fresh_p99 = asked.fresh()?;
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
        forgotten,
        in_memory,
        fresh_p99_us: fresh_p99 * 1e6,
    };
    archiver.stop();
    loaded.finish_refunded(2 * ASKED as i64)?;
    Ok(figures)
}

/// A hold or a movement, by its kind, tenant and id.
type ArchivedId = (Resource, AccountNo, Name);

/// Asks for what was closed, as a server does.
struct Asked<'a> {
    ledger: Handle<Ledger>,
    archive: &'a Archive,
}

/// The number of an org: they were opened in order.
fn tenant_of(org: &AccountPath, orgs: &[AccountPath]) -> Result<AccountNo, BenchError> {
    let at = orgs.iter().position(|other| other == org);
    let at = at.ok_or_else(|| BenchError::Wrong(format!("{org} is missing")))?;
    Ok(AccountNo(u32::try_from(at).unwrap_or(u32::MAX)))
}

fn p99(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() * 99 / 100).copied().unwrap_or(0.0)
}

impl Asked<'_> {
    /// Waits until no more than the window and the least step is in memory.
    fn wait_for_archiver(&self, window: ClosedWindow) -> Result<(), BenchError> {
        let most = window.keep + window.most;
        for _ in 0..ARCHIVER_LOOKS {
            if self.ledger.read(Ledger::most_closed)?.value <= most {
                return Ok(());
            }
            std::thread::sleep(IDLE_INTERVAL);
        }
        Err(BenchError::Wrong("the archiver does not catch up".into()))
    }

    /// Asks for noted holds with these numbers, spread over all of them, each once.
    fn late(
        &self,
        loaded: &LoadedEngine,
        numbers: Range<u64>,
        is_forgotten: bool,
    ) -> Result<LateRequests, BenchError> {
        let mut noted = loaded.noted.clone();
        noted.retain(|(hold, _)| numbers.contains(hold));
        noted.sort_unstable();
        let every = noted.len() / (3 * ASKED as usize);
        if every == 0 {
            return Err(BenchError::Wrong("too few pairs: nothing is forgotten".into()));
        }
        let noted: Vec<_> = noted.into_iter().step_by(every).take(3 * ASKED as usize).collect();
        let orgs = loaded.orgs_of(noted.iter().map(|(hold, _)| *hold));
        let mut took: [Vec<f64>; 3] = Default::default();
        for (number, ((hold, request), org)) in noted.into_iter().zip(orgs).enumerate() {
            let hold = HoldId::unchecked(format_compact!("hold{hold}"));
            let (kind, asked) =
                (number % 3, Envelope { actor: "bench".into(), ..Envelope::default() });
            let (envelope, command) = match kind {
                0 => (asked, settle(&org, hold)),
                1 => (asked, refund(&org, hold)),
                _ => (envelope(request, true), place(hold, &org)),
            };
            let tenant = tenant_of(&org, &loaded.orgs)?;
            took[kind].push(self.time(tenant, envelope, command, is_forgotten)?);
        }
        let [settle, refund, repeat] = took.map(|times| p99(times) * 1e3);
        Ok(LateRequests { settle_p99_ms: settle, refund_p99_ms: refund, repeat_p99_ms: repeat })
    }

    /// How long it takes to say that an id and a key are new.
    fn fresh(&self) -> Result<f64, BenchError> {
        let mut took = Vec::new();
        for number in 0..ASKED {
            let start = now();
            let names = [(Resource::Hold, AccountNo(0), format_compact!("new{number}"))];
            let keys = [u128::MAX - u128::from(number)];
            std::hint::black_box(self.look_up(&names, &keys)?);
            took.push(start.elapsed().as_secs_f64());
        }
        Ok(p99(took))
    }

    /// Memory first; then the archive is read.
    fn look_up(&self, names: &[ArchivedId], keys: &[u128]) -> Result<Vec<Recall>, BenchError> {
        let mut objects = names.iter().map(|(what, tenant, name)| object_key(*what, *tenant, name));
        let mut answers = keys.iter().map(|key| answer_key(*key));
        let is_absent = |family, key: &[u8]| self.archive.excludes(family, key).is_some();
        if objects.all(|key| is_absent(ArchiveFamily::Objects, &key))
            && answers.all(|key| is_absent(ArchiveFamily::Answers, &key))
        {
            let position = self.archive.position();
            return Ok(vec![Recall { position, ..Recall::default() }]);
        }
        Ok(recall_with_keys(self.archive, names, keys)?)
    }

    /// How long one request takes: the look-up, and the decision or the answer that was kept.
    fn time(
        &self,
        tenant: AccountNo,
        envelope: Envelope,
        mut command: Command,
        is_forgotten: bool,
    ) -> Result<f64, BenchError> {
        let start: Instant = now();
        let names = command.archived_names().into_iter();
        let names: Vec<_> = names.map(|(what, _, id)| (what, tenant, id.into())).collect();
        let keys: Vec<u128> = envelope.key.into_iter().collect();
        let found = self.look_up(&names, &keys)?;
        let position = found.iter().map(|found| found.position).min();
        let is_archived = !found[0].recalled.is_empty();
        if is_forgotten != is_archived {
            let held = names.clone();
            let in_memory = move |ledger: &Ledger| {
                let kind = HoldKind::Hold;
                held.iter().all(|(_, tenant, id)| ledger.find_hold(*tenant, kind, id).is_some())
            };
            let in_memory = self.ledger.read(in_memory)?.value;
            return Err(BenchError::Wrong(format!(
                "{names:?}: forgotten should be {is_forgotten}, but in the archive is \
                 {is_archived}, in memory {in_memory}"
            )));
        }
        let answer = found.iter().find_map(|found| found.answer.as_ref());
        if let Some(answer) = answer {
            let (key, at) = (answer.key, answer.at);
            if answer.fingerprint != envelope.fingerprint {
                return Err(BenchError::Wrong(format!("{names:?}: the answer of another request")));
            }
            let is_kept = move |ledger: &Ledger| {
                ledger.promises_answer(ledger.now(), at) && ledger.kept_fingerprint(key).is_none()
            };
            if self.ledger.read(is_kept)?.value {
                return Ok(start.elapsed().as_secs_f64());
            }
        }
        let recalled: Vec<RecalledRecord> =
            found.into_iter().flat_map(|found| found.recalled).collect();
        if let Command::Refund(refund) = &mut command {
            let holds = recalled.iter().filter_map(|recalled| match recalled {
                RecalledRecord::Hold(record) => {
                    Some(RecalledHold { record: Box::new(record.clone()) })
                }
                RecalledRecord::Movement(_) => None,
            });
            refund.recalled = holds.collect();
        }
        let envelope = Envelope { archive: position, recalled, ..envelope };
        let answer: Result<_, EngineError> = self.ledger.execute(envelope, command);
        answer?.value.map_err(|refused| BenchError::Wrong(format!("{refused:?}")))?;
        Ok(start.elapsed().as_secs_f64())
    }
}

fn refund(org: &AccountPath, hold: HoldId) -> Command {
    Command::Refund(Refund {
        id: format_compact!("refund-of-{hold}").into(),
        tenant: org.clone(),
        of: RefundOf::Hold(hold),
        amount: None,
        compensate: false,
        note: None,
        recalled: Vec::new(),
    })
}
