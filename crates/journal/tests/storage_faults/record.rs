//! Runs the child under strace and parses its trace.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use super::child::{Compaction, JOURNAL, MODE, NOTES};

/// One step of the child that affects the disk.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write {
        file: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        file: usize,
        length: usize,
    },
    /// A sync begins. Later writes may not be part of it.
    Syncing {
        file: usize,
        thread: u32,
    },
    /// The sync that this thread began has ended.
    Synced {
        file: usize,
        thread: u32,
    },
    Remove {
        file: usize,
    },
    /// A new segment gets its name.
    Rename {
        to: String,
    },
    /// The names of segments so far are durable.
    SyncedNames,
    /// A line of the child's own log.
    Note(String),
    /// A call that strace made fail.
    Injected,
}

/// The files that a power loss may tear, by their number in [`Step`].
pub(crate) const FILES: [&str; 8] = [
    "journal.db",
    "journal.db-wal",
    "journal.db-journal",
    "journal.db-tail",
    NEXT_SEGMENT,
    "archive.db",
    "archive.db-wal",
    "archive.db-journal",
];
/// The folder of segments.
pub(crate) const SEGMENTS: &str = "journal.db.segments";
/// A segment that is being written.
const NEXT_SEGMENT: &str = "journal.db.segments/next.tmp";
/// Its number in [`FILES`].
pub(crate) const NEXT: usize = 4;

/// Runs the child in `directory` under strace, with further `options`, and returns its steps.
pub(crate) fn run(
    directory: &Path,
    sync: &str,
    compaction: Compaction,
    appends: u64,
    options: &[&str],
) -> Vec<Step> {
    let trace = directory.join("trace");
    let program = std::env::current_exe().expect("this very test");
    let output = Command::new("strace")
        .args(["-f", "-y", "-xx", "-s", "1000000"])
        .args(["-e", "trace=pwrite64,write,ftruncate,fsync,fdatasync,unlink,rename"])
        .args(options)
        .arg("-o")
        .arg(&trace)
        .arg(program)
        .arg(MODE)
        .arg(directory)
        .args([sync, compaction.name(), &appends.to_string()])
        .output()
        .expect("strace starts: install the Debian package `strace`");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the child failed: {text}");
    let trace = std::fs::read_to_string(trace).expect("strace wrote its record");
    Record::default().read(&trace, directory)
}

/// Parses the trace of several threads. A call during which another thread made one takes two
/// lines. Writes count when they end, and syncs cover what was written when they began, so that
/// nothing counts as durable that may not be.
#[derive(Default)]
struct Record {
    steps: Vec<Step>,
    /// The first lines of calls that have not ended.
    unfinished: HashMap<u32, String>,
}

impl Record {
    fn read(mut self, trace: &str, directory: &Path) -> Vec<Step> {
        for line in trace.lines() {
            // `PID name(arguments) = result`
            let Some((thread, call)) = line.split_once(' ') else { continue };
            let Ok(thread) = thread.parse() else { continue };
            let call = call.trim_start();
            if let Some(begun) = call.strip_suffix(" <unfinished ...>") {
                self.begin(thread, begun, directory);
                self.unfinished.insert(thread, begun.to_owned());
            } else if let Some((_, rest)) = call.split_once(" resumed>") {
                let begun = self.unfinished.remove(&thread).expect("what is resumed was begun");
                self.end(thread, &format!("{begun}{rest}"), directory);
            } else {
                self.begin(thread, call, directory);
                self.end(thread, call, directory);
            }
        }
        self.steps
    }

    fn begin(&mut self, thread: u32, call: &str, directory: &Path) {
        if let Some((name @ ("fsync" | "fdatasync"), arguments)) = call.split_once('(')
            && let Some(file) = traced_file(name, arguments, directory)
            && let Some(file) = FILES.iter().position(|known| *known == file)
        {
            self.steps.push(Step::Syncing { file, thread });
        }
    }

    fn end(&mut self, thread: u32, call: &str, directory: &Path) {
        self.steps.extend(parse(thread, call, directory));
    }
}

/// The file of a call, by its name in `directory`.
fn traced_file(name: &str, arguments: &str, directory: &Path) -> Option<String> {
    let path = match name {
        "unlink" | "rename" => unescape(arguments.split('"').nth(1)?),
        _ => unescape(arguments.split_once('<')?.1.split_once('>')?.0),
    };
    let path = String::from_utf8(path).ok()?;
    Some(Path::new(&path).strip_prefix(directory).ok()?.to_str()?.to_owned())
}

/// The bytes of `\x41\x42…`.
fn unescape(text: &str) -> Vec<u8> {
    let hex = |pair: &str| u8::from_str_radix(pair, 16).expect("strace -xx writes hex");
    text.split("\\x").skip(1).map(hex).collect()
}

fn parse(thread: u32, call: &str, directory: &Path) -> Option<Step> {
    let (name, rest) = call.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')')?;
    let file = traced_file(name, arguments, directory)?;
    if result.contains("INJECTED") {
        return Some(Step::Injected);
    }
    let data = || arguments.split('"').nth(1).map(unescape);
    if file == NOTES {
        return Some(Step::Note(String::from_utf8(data()?).ok()?));
    }
    debug_assert_eq!(FILES[0], JOURNAL);
    if file == SEGMENTS && name == "fsync" {
        return Some(Step::SyncedNames);
    }
    let file = FILES.iter().position(|known| *known == file)?;
    let last_number = || arguments.rsplit_once(", ")?.1.parse().ok();
    if name == "unlink" && result.starts_with("-1") {
        // It was not there.
        return None;
    }
    assert!(!result.starts_with("-1"), "a call failed without injection: {call}");
    match name {
        "pwrite64" => Some(Step::Write { file, offset: last_number()?, bytes: data()? }),
        "ftruncate" => Some(Step::Truncate { file, length: last_number()? }),
        "fsync" | "fdatasync" => Some(Step::Synced { file, thread }),
        "unlink" => Some(Step::Remove { file }),
        "rename" => {
            let to = String::from_utf8(unescape(arguments.split('"').nth(3)?)).ok()?;
            Some(Step::Rename { to: Path::new(&to).file_name()?.to_str()?.to_owned() })
        }
        _ => None,
    }
}
