//! Processes of this machine: identity, descent and signals.

use std::{fs, io};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The identity of a process. A later process with the same pid has another one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The pid.
    pub pid: i32,
    /// When it started, in the kernel's ticks since the boot.
    pub start_ticks: u64,
}

impl Identity {
    /// The process that has this pid now.
    pub fn of(pid: i32) -> io::Result<Identity> {
        let stat = Stat::read(pid)?;
        Ok(Identity { pid, start_ticks: stat.start_ticks })
    }

    /// This process.
    pub fn own() -> io::Result<Identity> {
        Identity::of(Pid::this().as_raw())
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        Stat::read(self.pid).is_ok_and(|stat| stat.start_ticks == self.start_ticks && !stat.is_dead)
    }

    /// Kills it, and never a later process with the same pid: a handle is opened first and the identity
    /// checked afterwards. Does nothing if the process has ended.
    pub fn kill(&self) {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_alive() {
            let _ = pidfd_send_signal(held, rustix::process::Signal::KILL);
        }
    }
}

/// The kernel's data about a process.
struct Stat {
    parent: i32,
    start_ticks: u64,
    is_dead: bool,
}

impl Stat {
    fn read(pid: i32) -> io::Result<Stat> {
        // A process chooses its name, which may be invalid UTF-8.
        let bytes = fs::read(format!("/proc/{pid}/stat"))?;
        Stat::parse(&String::from_utf8_lossy(&bytes))
            .ok_or_else(|| io::Error::other("/proc has an unknown form"))
    }

    /// The name is in parentheses and may contain any characters, including parentheses and spaces.
    fn parse(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let is_dead = matches!(*fields.first()?, "Z" | "X" | "x");
        let parent = fields.get(1)?.parse().ok()?;
        let start_ticks = fields.get(19)?.parse().ok()?;
        Some(Stat { parent, start_ticks, is_dead })
    }
}

/// The pids of all processes.
fn all() -> io::Result<Vec<i32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// All running descendants of a process.
pub fn descendants(root: i32) -> io::Result<Vec<Identity>> {
    // A process that has ended has no descendants: they were reparented.
    let read = |pid: i32| Some((pid, Stat::read(pid).ok()?));
    let processes: Vec<(i32, Stat)> = all()?.into_iter().filter_map(read).collect();
    let mut found = vec![(root, None)];
    let mut at = 0;
    while let Some((parent, _)) = found.get(at).copied() {
        let children = processes.iter().filter(|(_, stat)| stat.parent == parent);
        found.extend(children.map(|(pid, stat)| (*pid, Some(stat))));
        at += 1;
    }
    let alive = found.into_iter().filter_map(|(pid, stat)| {
        let stat = stat.filter(|stat| !stat.is_dead)?;
        Some(Identity { pid, start_ticks: stat.start_ticks })
    });
    Ok(alive.collect())
}

/// All processes that were started with this variable and value, whatever their parent is now.
pub fn marked(name: &str, value: &str) -> io::Result<Vec<Identity>> {
    let wanted = format!("{name}={value}");
    let carries = |process: &Identity| {
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    // Identified before it is inspected: a later process with its pid is not confused with it.
    Ok(all()?.into_iter().filter_map(|pid| Identity::of(pid).ok()).filter(carries).collect())
}

/// Kills each process that still runs.
pub fn kill_all(processes: &[Identity]) {
    processes.iter().for_each(Identity::kill);
}

/// Sends a signal to the process group of a leader that was not reaped yet: until then the pid
/// is not reused. Does nothing if the group has ended.
pub fn signal_group(leader: i32, signal: Signal) {
    let _ = killpg(Pid::from_raw(leader), signal);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_with_parentheses_is_parsed() {
        let text = "7 (a) R (b) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let stat = Stat::parse(text).expect("well formed");
        assert_eq!((stat.parent, stat.start_ticks, stat.is_dead), (3, 4711, false));
        assert!(Stat::parse("7 (a").is_none());
    }

    #[test]
    fn a_process_is_alive_until_it_ends_and_a_namesake_is_another() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat is there");
        let pid = i32::try_from(child.id()).expect("a small number");
        let identity = Identity::of(pid).expect("it runs");
        assert!(identity.is_alive());
        assert!(!Identity { start_ticks: identity.start_ticks + 1, ..identity }.is_alive());
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        assert!(!identity.is_alive());
    }

    #[test]
    fn children_and_marked_processes_are_found() {
        let mut child = Command::new("cat");
        child.env("BURSAR_TEST_MARK", "descendants").stdin(Stdio::piped());
        let mut child = child.spawn().expect("cat is there");
        let pid = i32::try_from(child.id()).expect("a small number");
        let below = descendants(Pid::this().as_raw()).expect("/proc is there");
        let is_child = |process: &Identity| process.pid == pid;
        assert!(below.iter().any(is_child));
        // The variable is visible once the program was executed.
        while !marked("BURSAR_TEST_MARK", "descendants").expect("/proc").iter().any(is_child) {
            std::thread::yield_now();
        }
        assert!(marked("BURSAR_TEST_MARK", "descendant").expect("/proc").is_empty());
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
    }

    #[test]
    fn a_signal_never_reaches_a_namesake() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat is there");
        let pid = i32::try_from(child.id()).expect("a small number");
        let identity = Identity::of(pid).expect("it runs");
        Identity { start_ticks: identity.start_ticks + 1, ..identity }.kill();
        assert!(identity.is_alive(), "the signal was for an earlier process with this pid");
        // It still runs: it ends at the end of its input.
        drop(child.stdin.take());
        assert!(child.wait().expect("it ends").success());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat is there");
        Identity::of(i32::try_from(child.id()).expect("small")).expect("it runs").kill();
        assert!(!child.wait().expect("it was killed").success());
        identity.kill();
    }
}
