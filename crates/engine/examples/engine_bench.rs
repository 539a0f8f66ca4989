//! Durable commands per second, at several numbers in flight, against what the disk allows.
//!
//! `cargo run --release -p bursar-engine --example engine_bench -- [--json] [--seconds S] [DIR]`
//!
//! The limit is N / (t_sync + N · t_core): one sync of N records of the same size, by a bare loop of
//! write and fdatasync into a file of fixed size, and the machine's own work. Loop and engine take turns
//! of a tenth of the time, so that both meet the same disk. On a busy machine only the ratio means
//! something.

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bursar_core::machine::{Machine, execute};
use bursar_engine::{
    Codec, Engine, EngineOptions, Handle, Origin, Stats, WallClock, replay_from_genesis,
};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{BatchBuilder, Journal, RecordKind};
use support::till::{Command, Till, TillCodec};
use support::{TempDir, at};

const IN_FLIGHT: [u64; 5] = [1, 8, 64, 1_000, 8_000];
/// How often loop and engine take turns.
const TURNS: u32 = 10;
/// The raw loop writes over and over this many bytes.
const RAW_FILE_BYTES: u64 = 64 << 20;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

struct Arguments {
    json: bool,
    seconds: f64,
    directory: Option<PathBuf>,
}

fn arguments() -> Arguments {
    let mut parsed = Arguments { json: false, seconds: 1.0, directory: None };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--json" => parsed.json = true,
            "--seconds" => {
                let seconds = given.next().and_then(|seconds| seconds.parse().ok());
                parsed.seconds = seconds.expect("--seconds takes a number");
            }
            directory => parsed.directory = Some(directory.into()),
        }
    }
    parsed
}

struct Measured {
    in_flight: u64,
    per_second: f64,
    limit: f64,
    sync_ms: f64,
    stats: Stats,
    /// Records replayed per second, from the first one.
    replayed: f64,
}

fn main() {
    let arguments = arguments();
    let temporary = TempDir::new();
    let directory = arguments.directory.as_deref().unwrap_or(temporary.path());
    let time = Duration::from_secs_f64(arguments.seconds);
    let (core, record_bytes) = core_seconds();
    if !arguments.json {
        println!("machine alone {:.2} µs, {record_bytes} bytes a record", core * 1e6);
        println!(
            "{:>9} {:>12} {:>12} {:>6} {:>9} {:>9} {:>11} {:>9} {:>12}",
            "in flight",
            "commands/s",
            "limit/s",
            "ratio",
            "sync ms",
            "batches",
            "mean batch",
            "largest",
            "replayed/s"
        );
    }
    for in_flight in IN_FLIGHT {
        let mut raw = Raw::new(directory, in_flight * record_bytes);
        let mut bench = Bench::new(directory, in_flight);
        for _ in 0..TURNS {
            raw.run(time / TURNS / 2);
            bench.run(time / TURNS);
        }
        let sync = raw.seconds / raw.syncs as f64;
        let limit = in_flight as f64 / (sync + in_flight as f64 * core);
        let per_second = bench.answered as f64 / bench.seconds;
        let (stats, replayed) = bench.finish();
        print(
            &Measured { in_flight, per_second, limit, sync_ms: sync * 1e3, stats, replayed },
            arguments.json,
        );
    }
}

fn print(measured: &Measured, json: bool) {
    let Measured { in_flight, per_second, limit, sync_ms, stats, replayed } = measured;
    let ratio = per_second / limit;
    let mean = stats.records as f64 / stats.batches.max(1) as f64;
    let (batches, largest) = (stats.batches, stats.largest_batch);
    if json {
        println!(
            "{{\"in_flight\": {in_flight}, \"commands_per_second\": {per_second:.0}, \
             \"limit_per_second\": {limit:.0}, \"ratio\": {ratio:.3}, \"sync_ms\": {sync_ms:.3}, \
             \"batches\": {batches}, \"mean_batch\": {mean:.1}, \"largest_batch\": {largest}, \
             \"replayed_per_second\": {replayed:.0}}}"
        );
    } else {
        println!(
            "{in_flight:>9} {per_second:>12.0} {limit:>12.0} {ratio:>6.2} {sync_ms:>9.3} {batches:>9} \
             {mean:>11.1} {largest:>9} {replayed:>12.0}"
        );
    }
}

/// Seconds that the machine takes to decide, apply and encode one command, and bytes of its record.
fn core_seconds() -> (f64, u64) {
    const COMMANDS: u64 = 300_000;
    let mut machine = TillCodec.genesis();
    let mut events = Vec::new();
    let mut records = BatchBuilder::new();
    let start = now();
    for id in 1..=COMMANDS {
        let command = Command::Add { id, amount: 1 };
        events.clear();
        execute(&mut machine, at(0), &(), &command, &mut events).expect("amounts are positive");
        let origin = Origin::Command { envelope: &(), command: &command, accepted: true };
        records.push(RecordKind::Decision, at(0), |body| TillCodec.encode(origin, &events, body));
    }
    let seconds = start.elapsed().as_secs_f64() / COMMANDS as f64;
    (seconds, records.bytes() as u64 / COMMANDS)
}

/// Writes and syncs, by nothing but system calls.
struct Raw {
    file: File,
    block: Vec<u8>,
    offset: u64,
    syncs: u64,
    seconds: f64,
}

impl Raw {
    fn new(directory: &Path, bytes: u64) -> Raw {
        let path = directory.join("raw");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path);
        let file = file.expect("the directory is writable");
        for offset in (0..RAW_FILE_BYTES).step_by(1 << 20) {
            file.write_all_at(&vec![0; 1 << 20], offset).expect("there is space");
        }
        file.sync_all().expect("the disk works");
        Raw { file, block: vec![7; bytes as usize], offset: 0, syncs: 0, seconds: 0.0 }
    }

    fn run(&mut self, time: Duration) {
        let start = now();
        while start.elapsed() < time {
            self.file.write_all_at(&self.block, self.offset).expect("there is space");
            self.file.sync_data().expect("the disk works");
            self.syncs += 1;
            let bytes = self.block.len() as u64;
            let next = self.offset + bytes;
            self.offset = if next + bytes > RAW_FILE_BYTES { 0 } else { next };
        }
        self.seconds += start.elapsed().as_secs_f64();
    }
}

/// A whole engine on a new SQLite journal, with a fixed number of commands in flight.
struct Bench {
    journal: Arc<SqliteJournal>,
    engine: Engine<TillCodec>,
    in_flight: u64,
    done: Sender<bool>,
    answers: Receiver<bool>,
    sent: u64,
    answered: u64,
    seconds: f64,
}

impl Bench {
    fn new(directory: &Path, in_flight: u64) -> Bench {
        let path = directory.join(format!("bench-{in_flight}.db"));
        let journal = SqliteJournal::open(&path, SqliteOptions::default()).expect("a new file");
        let options = EngineOptions { mailbox: 32_768, ..EngineOptions::default() };
        let clock = Arc::new(WallClock::new());
        let journal = Arc::new(journal);
        let shared: Arc<dyn Journal> = Arc::clone(&journal) as Arc<dyn Journal>;
        let engine = Engine::start(shared, Arc::new(TillCodec), clock, options);
        engine.handle().settle().expect("it serves");
        let (done, answers) = channel();
        Bench { journal, engine, in_flight, done, answers, sent: 0, answered: 0, seconds: 0.0 }
    }

    fn submit(&mut self, handle: &Handle<Till>) {
        self.sent += 1;
        let done = self.done.clone();
        handle.submit((), Command::Add { id: self.sent, amount: 1 }, move |answer| {
            let accepted = answer.is_ok_and(|seen| seen.value.is_ok());
            done.send(accepted).expect("somebody counts");
        });
    }

    fn count(&mut self) {
        assert!(self.answers.recv().expect("the engine answers"), "a command failed");
        self.answered += 1;
    }

    /// Keeps commands in flight for a while, then waits for the last answers.
    fn run(&mut self, time: Duration) {
        let handle = self.engine.handle();
        let start = now();
        for _ in 0..self.in_flight {
            self.submit(&handle);
        }
        while start.elapsed() < time {
            self.count();
            self.submit(&handle);
        }
        while self.answered < self.sent {
            self.count();
        }
        self.seconds += start.elapsed().as_secs_f64();
    }

    /// What was written, and how many records a second a start reads again.
    fn finish(self) -> (Stats, f64) {
        let live = self.engine.handle().read(|till| (till.total, till.digest()));
        let (total, digest) = live.expect("it serves").value;
        assert_eq!(total, support::signed(self.sent), "every command happened once");
        let stats = self.engine.stats();
        self.engine.stop();
        let start = now();
        let replayed = replay_from_genesis(&*self.journal, &TillCodec).expect("whole");
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(replayed.machine.digest(), digest, "L11: replay(journal) = state");
        (stats, replayed.head.position as f64 / seconds)
    }
}
