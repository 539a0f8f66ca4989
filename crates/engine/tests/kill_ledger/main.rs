//! `kill -9` of a real ledger under load, repeatedly, on one SQLite journal.
//!
//! The test runs itself again as a child: a ledger whose eight clients place and settle holds, and
//! a follower that makes snapshots, and an archiver that lets the ledger forget every closed hold. The child writes a line to its standard output before every
//! request and after every answer, which the parent keeps as the clients' log. Some children are
//! killed at a random moment, some by `strace` at a chosen system call of the write path. After
//! each kill, the state that a server would serve equals the journal's, byte for byte, the
//! independent auditor agrees, and every hold is as in the log. The next child first repeats the
//! requests without an answer, under the same keys.

mod books;
mod child;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../../journal/tests/support/temp_dir.rs"]
mod temp_dir;

use std::io::{BufRead, BufReader};
use std::path::Path;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use support::children;
use support::ledger_log::Log;
use temp_dir::TempDir;

const ROUNDS: u32 = 30;
/// A child that strace has not killed after this many answers is killed anyway.
const ENOUGH: u64 = 20_000;
const SEED: u64 = 20_261_116;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, first, directory] = &arguments[..]
        && mode == child::MODE
    {
        let first = first.parse().expect("the parent gives a number");
        return child::serve(Path::new(directory), first);
    }
    println!("seed {SEED}");
    let directory = TempDir::new();
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let (mut log, mut forgotten) = (Log::default(), 0);
    for round in 0..ROUNDS {
        let acknowledged = 10 + u64::from(random.next_u32() % 200);
        let number = 20 + random.next_u32() % 150;
        let call = ["pwrite64", "fsync,fdatasync"][(round / 3 % 2) as usize];
        let inject = format!("inject={call}:signal=KILL:when={number}");
        let point = (round % 3 == 2).then_some((call, inject.as_str()));
        kill_one(directory.path(), acknowledged, point, &mut log);
        books::compare(directory.path(), &mut log);
        forgotten = forgotten.max(log.forgotten());
        if round % 7 == 6 {
            // It is built again from the journal.
            for end in ["", "-wal", "-shm"] {
                let _ =
                    std::fs::remove_file(directory.path().join(format!("{}{end}", child::ARCHIVE)));
            }
        }
    }
    books::rehearse(directory.path());
    println!("{ROUNDS} kills: {log}");
    assert!(log.acknowledged() > 1_000, "hardly any load");
    assert!(log.repeated() > 0, "no outcome was ever unknown");
    assert!(forgotten > 500, "hardly anything was forgotten: {forgotten}");
}

/// Starts a child, lets it answer `acknowledged` requests, and kills it. Or strace kills it.
fn kill_one(directory: &Path, acknowledged: u64, point: Option<(&str, &str)>, log: &mut Log) {
    let first = log.next_id().to_string();
    let unknown = log.take_unknown();
    std::fs::write(directory.join(child::REPEAT), unknown).expect("the directory is ours");
    let mut child = children::start(&[child::MODE, &first], directory, point);
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let enough = if point.is_none() { acknowledged } else { ENOUGH };
    let (mut process, mut answered) = (0, 0);
    for line in lines {
        let line = line.expect("the child writes text");
        match line.strip_prefix("process ") {
            Some(number) => process = number.parse().expect("a process has a number"),
            None => answered += u64::from(log.read(&line)),
        }
        if answered >= enough && process != 0 {
            // Its output so far is still in the pipe and is read to the end.
            children::kill(std::mem::take(&mut process));
        }
    }
    child.wait().expect("it is ours");
}
