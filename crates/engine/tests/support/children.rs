//! Child processes that are killed: the test runs itself again, alone or inside `strace`.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts this test with `arguments`. `point` is a system call and the fault that strace injects
/// there.
pub fn start(arguments: &[&str], directory: &Path, point: Option<(&str, &str)>) -> Child {
    let program = std::env::current_exe().expect("this very test");
    let mut command = match point {
        None => Command::new(program),
        Some((call, inject)) => {
            let mut strace = Command::new("strace");
            strace
                .args(["-f", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", inject])
                .arg(program);
            strace
        }
    };
    command
        .args(arguments)
        .arg(directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts (strace: install the Debian package `strace`)")
}

/// Kills a process by the id that it printed: the child, not the strace around it.
pub fn kill(process: u64) {
    signal(process, "-KILL");
}

/// Sends a signal.
pub fn signal(process: u64, signal: &str) {
    assert_ne!(process, 0, "0 would signal this test's own process group");
    let killed = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()), "the child is ours");
}
