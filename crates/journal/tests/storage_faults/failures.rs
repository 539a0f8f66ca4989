//! Calls that fail: the journal stops at the first failed write or sync, and never retries a sync.
//! On a full disk appends are refused and reads are served until there is space.

use std::fmt;
use std::path::Path;

use super::child::Compaction;
use super::images::check;
use super::record::{Step, run};
use super::support::TempDir;

/// Short runs: every failing call needs a separate one.
const APPENDS: u64 = 20;

/// The tested runs.
pub(crate) struct Tried {
    runs: usize,
    acknowledged: u64,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs, {} batches acknowledged, none lost", self.runs, self.acknowledged)
    }
}

/// How often a clean run makes a call before it is ready, and in total.
fn calls(name: &str) -> (usize, usize) {
    calls_of(Compaction::Between, name)
}

fn calls_of(compaction: Compaction, name: &str) -> (usize, usize) {
    let directory = TempDir::in_memory();
    run(directory.path(), "full", compaction, APPENDS, &[]);
    let trace = std::fs::read_to_string(directory.path().join("trace")).expect("just recorded");
    // The note "ready" and its line end, as strace writes them.
    let (before, _) = trace.split_once(r"\x72\x65\x61\x64\x79\x0a").expect("the child came up");
    let count = |text: &str| text.matches(&format!(" {name}(")).count();
    (count(before), count(&trace))
}

/// The system call that this build of SQLite syncs with.
fn sync_call() -> &'static str {
    let (before, all) = calls("fdatasync");
    if all > before { "fdatasync" } else { "fsync" }
}

fn is_sync(step: &Step) -> bool {
    matches!(step, Step::Syncing { .. })
}

fn is_write(step: &Step) -> bool {
    matches!(step, Step::Write { .. })
}

fn acknowledged(steps: &[Step]) -> u64 {
    let acks =
        steps.iter().filter(|step| matches!(step, Step::Note(note) if note.starts_with("ack ")));
    u64::try_from(acks.count()).expect("small")
}

/// Makes one call fail and checks that nothing touches the journal afterwards.
fn stops_at_once(fault: &str) -> u64 {
    let directory = TempDir::in_memory();
    let steps = run(directory.path(), "full", Compaction::Between, APPENDS, &["-e", fault]);
    let failed = steps
        .iter()
        .position(|step| matches!(step, Step::Injected))
        .unwrap_or_else(|| panic!("{fault} never happened"));
    for step in &steps[failed + 1..] {
        assert!(!is_sync(step) && !is_write(step), "{fault}: the journal continued: {step:?}");
    }
    assert_eq!(last_note(&steps), Some("still stopped\n"), "{fault}");
    nothing_is_lost(directory.path(), &steps, fault)
}

fn last_note(steps: &[Step]) -> Option<&str> {
    steps.iter().rev().find_map(|step| match step {
        Step::Note(note) => Some(note.as_str()),
        _ => None,
    })
}

/// All acknowledged batches are stored. Returns their number.
fn nothing_is_lost(directory: &Path, steps: &[Step], fault: &str) -> u64 {
    let acknowledged = acknowledged(steps);
    let stored = check(directory, "full");
    assert!(
        (acknowledged..=acknowledged + 1).contains(&stored),
        "{fault}: {acknowledged} batches were acknowledged and {stored} are stored"
    );
    acknowledged
}

fn every_failed(call: &str, error: &str, step: usize) -> Tried {
    let (before, all) = calls(call);
    let mut tried = Tried { runs: 0, acknowledged: 0 };
    for number in (before + 1..=all).step_by(step) {
        tried.acknowledged += stops_at_once(&format!("inject={call}:error={error}:when={number}"));
        tried.runs += 1;
    }
    tried
}

/// EIO and ENOSPC from every sync after the start.
pub(crate) fn every_failed_sync_stops_the_journal() -> Tried {
    let mut tried = every_failed(sync_call(), "EIO", 1);
    let full = every_failed(sync_call(), "ENOSPC", 3);
    tried.runs += full.runs;
    tried.acknowledged += full.acknowledged;
    tried
}

/// EIO from every third write after the start.
pub(crate) fn every_failed_write_stops_the_journal() -> Tried {
    every_failed("pwrite64", "EIO", 3)
}

/// EIO from the calls of the compacting thread, while others append.
pub(crate) fn moving_the_log_fails() -> Tried {
    let mut tried = Tried { runs: 0, acknowledged: 0 };
    for call in [sync_call(), "pwrite64"] {
        let (before, _) = calls(call);
        for number in [1, 2, 3, 5, 8, 13].map(|number| before + number) {
            let fault = format!("inject={call}:error=EIO:when={number}");
            let directory = TempDir::in_memory();
            // Enough appends for the call to happen even if that thread seldom runs. The failure
            // ends them.
            let appends = super::APPENDS * 20;
            let steps =
                run(directory.path(), "full", Compaction::Meanwhile, appends, &["-e", &fault]);
            assert_eq!(last_note(&steps), Some("still stopped\n"), "{fault}");
            tried.acknowledged += nothing_is_lost(directory.path(), &steps, &fault);
            tried.runs += 1;
        }
    }
    tried
}

/// EIO from every third write and every sync of a run that seals. The journal stops, or the segment
/// is sealed later; nothing is lost.
pub(crate) fn sealing_fails() -> Tried {
    let mut tried = Tried { runs: 0, acknowledged: 0 };
    for (call, step) in [("pwrite64", 3), ("fsync", 1), ("fdatasync", 3), ("rename", 1)] {
        let (before, all) = calls_of(Compaction::Sealing, call);
        assert!(all > before, "{call} is never called");
        for number in (before + 1..=all).step_by(step) {
            let fault = format!("inject={call}:error=EIO:when={number}");
            let directory = TempDir::in_memory();
            let options = ["-e", fault.as_str()];
            let steps = run(directory.path(), "full", Compaction::Sealing, APPENDS, &options);
            assert!(steps.iter().any(|step| matches!(step, Step::Injected)), "{fault}");
            tried.acknowledged += nothing_is_lost(directory.path(), &steps, &fault);
            tried.runs += 1;
        }
    }
    tried
}

/// ENOSPC from some consecutive writes of a run that seals. Then there is space again.
pub(crate) fn a_full_disk_while_sealing_is_survived() -> Tried {
    full_disk(Compaction::Sealing, 5)
}

/// ENOSPC from some consecutive writes. Then there is space again.
pub(crate) fn a_full_disk_is_survived() -> Tried {
    full_disk(Compaction::Between, 9)
}

fn full_disk(compaction: Compaction, step: usize) -> Tried {
    let (before, all) = calls_of(compaction, "pwrite64");
    let mut tried = Tried { runs: 0, acknowledged: 0 };
    for first in (before + 1..=all).step_by(step) {
        let fault = format!("inject=pwrite64:error=ENOSPC:when={first}..{}", first + 3);
        let directory = TempDir::in_memory();
        let steps = run(directory.path(), "full", compaction, APPENDS, &["-e", &fault]);
        assert!(steps.iter().any(|step| matches!(step, Step::Injected)), "{fault} never happened");
        assert_eq!(acknowledged(&steps), APPENDS, "{fault}: the journal did not recover");
        assert_eq!(check(directory.path(), "full"), APPENDS, "{fault}");
        tried.acknowledged += APPENDS;
        tried.runs += 1;
    }
    tried
}
