//! Runs tests with seeded bugs and requires that they fail.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::{Bug, VARIABLE};

/// The exit status of a test binary with a failed test.
const TESTS_FAILED: i32 = 101;
/// The pause between two looks at a running test.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A test that runs longer with a bug is stopped. It has not reported the bug.
const MAX_POLLS: u32 = 6_000;

/// A bug and the test of this binary that finds it.
pub type FoundBy = (Bug, &'static str);

/// What a test showed of a bug.
enum Shown {
    /// The first line of its failure.
    Failure(String),
    /// Why it showed nothing.
    Nothing(String),
}

/// Runs each test in a process of its own that has the bug, two at a time. Prints what each found.
///
/// # Panics
/// If a bug is not found, or a test does not exist. Without debug assertions there are no bugs, and
/// nothing is run.
pub fn assert_each_is_found(found_by: &[FoundBy]) {
    if !cfg!(debug_assertions) {
        println!("skipped: without debug assertions the program has no seeded bugs");
        return;
    }
    let binary = std::env::current_exe().expect("a test binary is a file");
    let logs = std::env::temp_dir().join(format!("bursar-seeded-{}", std::process::id()));
    std::fs::create_dir_all(&logs).expect("the folder of temporary files can be written");
    let waiting = Mutex::new(found_by.iter());
    let missed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("taking one does not panic").next();
                    let Some((bug, test)) = next else { return };
                    match run(&binary, *bug, test, &logs.join(bug.name())) {
                        Shown::Failure(said) => println!("{bug:?}: {test}: {said}"),
                        Shown::Nothing(why) => {
                            let line = format!("{bug:?}: {test}: {why}");
                            missed.lock().expect("adding does not panic").push(line);
                        }
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("adding does not panic");
    assert!(
        missed.is_empty(),
        "{} of {} bugs are not found:\n{}",
        missed.len(),
        found_by.len(),
        missed.join("\n")
    );
    // After a panic the output of the tests stays, to be read.
    let _ = std::fs::remove_dir_all(&logs);
}

fn run(binary: &Path, bug: Bug, test: &str, log: &Path) -> Shown {
    let ended = match wait(binary, bug, test, log) {
        Ok(ended) => ended,
        Err(error) => return Shown::Nothing(format!("it cannot be run: {error}")),
    };
    let said = std::fs::read_to_string(log).unwrap_or_default();
    if !said.contains("running 1 test\n") {
        return Shown::Nothing("there is no such test".into());
    }
    match ended {
        Some(status) if status.code() == Some(TESTS_FAILED) => Shown::Failure(failure_in(&said)),
        Some(status) => Shown::Nothing(format!("it ended with {status}")),
        None => Shown::Nothing("it did not end".into()),
    }
}

/// The outcome of the test, or `None` if it did not end in time.
fn wait(binary: &Path, bug: Bug, test: &str, log: &Path) -> io::Result<Option<ExitStatus>> {
    let log = File::create(log)?;
    let mut child = Command::new(binary)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, bug.name())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    for _ in 0..MAX_POLLS {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL_INTERVAL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// What the first panic says.
fn failure_in(said: &str) -> String {
    let mut lines = said.lines().skip_while(|line| !line.contains("panicked at"));
    let first = lines.nth(1).unwrap_or("it failed without a message").trim();
    first.chars().take(110).collect()
}
