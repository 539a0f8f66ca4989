//! `kill -9` under load, repeatedly, on one SQLite journal.
//!
//! The test runs itself again as a child: a till with eight clients, a follower that makes snapshots,
//! and a thread that seals old batches. The child writes every attempt and every answer to its standard output, which the
//! parent keeps as the clients' log. Some children are killed at a random moment, some by `strace`
//! at a chosen system call of the write path. After each kill the journal is compared with the log.

#[path = "../support/mod.rs"]
mod support;
#[path = "../../../journal/tests/support/temp_dir.rs"]
mod temp_dir;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_engine::follower::Follower;
use bursar_engine::{Engine, EngineError, Snapshotter, WallClock, replay, replay_from_genesis};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Journal, Sealing, backup};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use support::till::{Command as Till, TillCodec};
use support::{children, options};
use temp_dir::TempDir;

/// First argument of the child.
const MODE: &str = "serve-until-killed";
const ROUNDS: u64 = 36;
const CLIENTS: u64 = 8;
/// A child that strace has not killed after this many answers is killed anyway.
const ENOUGH: u64 = 20_000;
const SEED: u64 = 20_261_115;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, first, directory] = &arguments[..]
        && mode == MODE
    {
        return serve(Path::new(directory), first.parse().expect("the parent gives a number"));
    }
    println!("seed {SEED}");
    println!("{}", a_full_disk_is_outlived());
    let directory = TempDir::new();
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut log = Log::default();
    for round in 0..ROUNDS {
        let acknowledged = 10 + u64::from(random.next_u32() % 300);
        let point = match round % 3 {
            0 | 1 => None,
            _ => Some(match round / 3 % 3 {
                0 => ("pwrite64", 20 + random.next_u32() % 200),
                1 => ("fsync,fdatasync", 20 + random.next_u32() % 200),
                // Of a snapshot or of a segment.
                _ => ("rename", 1 + random.next_u32() % 4),
            }),
        };
        kill_one(directory.path(), acknowledged, point, &mut log);
        log.compare(directory.path());
    }
    rehearse(directory.path());
    let segments = open(directory.path()).segments().len();
    assert!(segments > 10, "hardly anything was sealed");
    println!(
        "{ROUNDS} kills, {segments} segments, {} commands acknowledged, {} with unknown outcome of which {} had happened; \
         none lost, none twice",
        log.acknowledged.len(),
        log.unknown,
        log.unknown_happened
    );
    assert!(log.acknowledged.len() > 1_000, "hardly any load");
}

/// A copy of the journal replays to the same state.
fn rehearse(directory: &Path) {
    let folder = TempDir::new();
    let (journal, copy) = (directory.join("journal.db"), folder.path().join("journal.db"));
    backup::copy(&journal, &copy, |_| {}).expect("it is whole");
    let [was, is] = [directory, folder.path()].map(|directory| {
        let whole = replay_from_genesis(&*open(directory), &TillCodec).expect("it is whole");
        whole.machine.digest()
    });
    assert_eq!(is, was, "the copy replays to another state");
}

/// Some hundred consecutive writes find no space. Clients get an error, reads are still served, and
/// the same process serves writes again as soon as there is space.
fn a_full_disk_is_outlived() -> String {
    let directory = TempDir::new();
    let mut log = Log::default();
    let full = "inject=pwrite64:error=ENOSPC:when=300..600";
    let mut child = children::start(&[MODE, "1"], directory.path(), Some(("pwrite64", full)));
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut afterwards = 0;
    for line in lines {
        let line = line.expect("the child writes text");
        afterwards += u64::from(afterwards < 500 && log.full > 0 && line.starts_with("ack"));
        log.read(&line);
        if afterwards == 500 && log.process != 0 {
            // Later lines are still read, but not counted.
            log.kill();
        }
    }
    child.wait().expect("it is ours");
    log.compare(directory.path());
    assert!(log.full > 0, "no answer said that the disk is full");
    assert_eq!(afterwards, 500, "it did not serve again");
    format!("full disk: {} answers said so, {afterwards} commands afterwards", log.full)
}

/// The state that the clients know.
#[derive(Default)]
struct Log {
    tried: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    /// The process id of the child itself, which may run inside strace.
    process: u64,
    /// Answers that said that the disk is full.
    full: usize,
    unknown: usize,
    unknown_happened: usize,
}

impl Log {
    fn kill(&mut self) {
        children::kill(std::mem::take(&mut self.process));
    }

    fn read(&mut self, line: &str) {
        let (what, id) = line.split_once(' ').expect("every line has two words");
        let id = id.parse().expect("every line names an id");
        match what {
            "try" => drop(self.tried.insert(id)),
            "ack" => drop(self.acknowledged.insert(id)),
            "full" => self.full += 1,
            "process" => self.process = id,
            other => panic!("the child printed {other}"),
        }
    }

    /// Opens the journal as a new process would and compares it with the clients' log.
    fn compare(&mut self, directory: &Path) {
        let journal = open(directory);
        let whole = replay_from_genesis(&*journal, &TillCodec).expect("the journal is whole");
        let till = &whole.machine;
        assert_eq!(till.applied_more_than_once(), [0; 0], "a command happened twice");
        for id in &self.acknowledged {
            assert!(till.applied.contains_key(id), "command {id} was acknowledged and is lost");
        }
        for id in till.applied.keys() {
            assert!(self.tried.contains(id), "command {id} was never sent");
        }
        let open = self.tried.difference(&self.acknowledged);
        let (happened, not): (Vec<u64>, Vec<u64>) =
            open.partition(|id| till.applied.contains_key(id));
        self.unknown += happened.len() + not.len();
        self.unknown_happened += happened.len();
        // From here on the journal is authoritative.
        self.acknowledged.extend(happened);
        self.tried.retain(|id| !not.contains(id));
        let quick = replay(&*journal, &TillCodec).expect("the journal is whole");
        assert_eq!(
            quick.machine.digest(),
            till.digest(),
            "L11: from a snapshot and from the start"
        );
    }
}

fn open(directory: &Path) -> Arc<SqliteJournal> {
    let path = directory.join("journal.db");
    // A low limit, so that kills also hit checkpoints.
    let options = SqliteOptions { checkpoint_pages: 60, ..SqliteOptions::default() };
    Arc::new(SqliteJournal::open(&path, options).expect("the lock died with its holder"))
}

/// Starts a child, lets it answer `acknowledged` commands, and kills it. Or strace kills it at the
/// n-th call of a system call.
fn kill_one(directory: &Path, acknowledged: u64, point: Option<(&str, u32)>, log: &mut Log) {
    let first = log.tried.last().map_or(1, |last| last + 1);
    let inject =
        point.map(|(call, number)| (call, format!("inject={call}:signal=KILL:when={number}")));
    let point = inject.as_ref().map(|(call, inject)| (*call, inject.as_str()));
    log.process = 0;
    let mut child = children::start(&[MODE, &first.to_string()], directory, point);
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut answered = 0;
    for line in lines {
        let line = line.expect("the child writes text");
        answered += u64::from(line.starts_with("ack"));
        log.read(&line);
        let enough = if point.is_none() { acknowledged } else { ENOUGH };
        if answered >= enough && log.process != 0 {
            // Its output so far is still in the pipe and is read to the end.
            log.kill();
        }
    }
    child.wait().expect("it is ours");
}

/// The child: serves its own clients until it is killed.
fn serve(directory: &Path, first: u64) {
    // A client that fails ends the child. The parent notices that its log is too short.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let journal: Arc<dyn Journal> = open(directory);
    let codec = Arc::new(TillCodec);
    let clock = Arc::new(WallClock::new());
    let engine = Engine::start(Arc::clone(&journal), Arc::clone(&codec), clock, options("child"));
    let sealed = Arc::clone(&journal);
    // Ends with the process. Segments are small, so that kills also hit sealing.
    std::thread::spawn(move || {
        let sealing = Sealing { segment_bytes: 8 << 10, level: 3, signer: None };
        loop {
            match sealed.seal(&sealing, &|| true) {
                Ok(Some(_)) => {}
                // A full disk, which is outlived: the batches are where they were.
                Ok(None) | Err(_) => std::thread::park_timeout(Duration::from_millis(1)),
            }
        }
    });
    let snapshotter = Snapshotter::new(Arc::clone(&journal), Arc::clone(&codec), 200);
    let snapshotter = snapshotter.expect("the journal is whole");
    let _follower = Follower::start(journal, codec, engine.durable(), snapshotter);
    let next = AtomicU64::new(first);
    let output = Mutex::new(std::io::stdout());
    let say = |what: &str, id: u64| {
        let mut output = output.lock().expect("no panic");
        // One write for each line. If the parent is gone, the line is not needed.
        if output
            .write_all(format!("{what} {id}\n").as_bytes())
            .and_then(|()| output.flush())
            .is_err()
        {
            std::process::exit(1);
        }
    };
    say("process", std::process::id().into());
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    say("try", id);
                    let handle = engine.handle();
                    let mut answer = handle.execute((), Till::Add { id, amount: 1 });
                    while let Err(error) = &answer {
                        match error {
                            EngineError::Unavailable(_) => {}
                            EngineError::StorageFull => {
                                say("full", id);
                                while let Err(error) = handle.settle() {
                                    let rebuilding = matches!(error, EngineError::Unavailable(_));
                                    assert!(rebuilding, "reads are still served: {error}");
                                }
                            }
                            EngineError::OutcomeUnknown
                            | EngineError::Internal
                            | EngineError::TooLarge(_)
                            | EngineError::Stopped(_) => break,
                        }
                        answer = handle.execute((), Till::Add { id, amount: 1 });
                    }
                    answer.expect("the disk works").value.expect("accepted");
                    say("ack", id);
                }
            });
        }
    });
}
