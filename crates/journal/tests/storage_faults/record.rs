//! Runs the child under strace and reads what it did.

use std::path::Path;
use std::process::Command;

use super::child::{JOURNAL, MODE, NOTES};

/// One step of the child that matters for what is on the disk.
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
    Sync {
        file: usize,
    },
    Remove {
        file: usize,
    },
    /// A line of the child's own log.
    Note(String),
    /// A call that strace let fail.
    Injected,
}

/// The files that a power loss may tear, by their number in [`Step`].
pub(crate) const FILES: [&str; 3] = ["journal.db", "journal.db-wal", "journal.db-journal"];

/// Runs the child in `directory` under strace, with further `options`, and gives its steps.
pub(crate) fn run(directory: &Path, sync: &str, appends: u64, options: &[&str]) -> Vec<Step> {
    let trace = directory.join("trace");
    let program = std::env::current_exe().expect("this very test");
    let output = Command::new("strace")
        .args(["-f", "-y", "-xx", "-s", "1000000"])
        .args(["-e", "trace=pwrite64,write,ftruncate,fsync,fdatasync,unlink"])
        .args(options)
        .arg("-o")
        .arg(&trace)
        .arg(program)
        .arg(MODE)
        .arg(directory)
        .args([sync, &appends.to_string()])
        .output()
        .expect("strace starts: install the Debian package `strace`");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the child failed: {text}");
    let trace = std::fs::read_to_string(trace).expect("strace wrote its record");
    trace.lines().filter_map(|line| parse(line, directory)).collect()
}

/// The bytes of `\x41\x42…`.
fn unescape(text: &str) -> Vec<u8> {
    let hex = |pair: &str| u8::from_str_radix(pair, 16).expect("strace -xx writes hex");
    text.split("\\x").skip(1).map(hex).collect()
}

fn parse(line: &str, directory: &Path) -> Option<Step> {
    // `PID name(arguments) = result`
    let (name, rest) = line.split_once(' ')?.1.trim_start().split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')')?;
    let path = match name {
        "unlink" => unescape(arguments.trim_matches('"')),
        _ => unescape(arguments.split_once('<')?.1.split_once('>')?.0),
    };
    let path = String::from_utf8(path).ok()?;
    let file = Path::new(&path).strip_prefix(directory).ok()?.to_str()?;
    if result.contains("INJECTED") {
        return Some(Step::Injected);
    }
    let data = || arguments.split('"').nth(1).map(unescape);
    if file == NOTES {
        return Some(Step::Note(String::from_utf8(data()?).ok()?));
    }
    debug_assert_eq!(FILES[0], JOURNAL);
    let file = FILES.iter().position(|known| *known == file)?;
    let last_number = || arguments.rsplit_once(", ")?.1.parse().ok();
    assert!(!result.starts_with("-1"), "a call failed by itself: {line}");
    match name {
        "pwrite64" => Some(Step::Write { file, offset: last_number()?, bytes: data()? }),
        "ftruncate" => Some(Step::Truncate { file, length: last_number()? }),
        "fsync" | "fdatasync" => Some(Step::Sync { file }),
        "unlink" => Some(Step::Remove { file }),
        _ => None,
    }
}
