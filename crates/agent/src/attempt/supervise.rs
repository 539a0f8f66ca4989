//! The supervisor of one attempt: a separate process, so that the attempt outlives the agent.
//!
//! It starts the job, measures its time, stores its output and its exit code, carries out the agent's
//! orders, and ends the job when the lease runs out. It is the reaper of all processes
//! below it: when it has no child, the attempt has ended.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, setsid};

use crate::attempt::output::{self, OutputWriter};
use crate::attempt::process::{Identity, descendants, kill_all, signal_group};
use crate::attempt::record::{AttemptLease, AttemptRecord, Exit, Launch, StopCause};
use crate::clock::{BootTime, boot_id};
use crate::folder::{AttemptFolder, claim_json, read_json, write_json};
use crate::isolation::{cgroup, privilege};

/// How often the record of a running attempt is updated.
const TOUCH_INTERVAL: Duration = Duration::from_secs(5);
/// How often remaining processes of a killed attempt are searched.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// How long output may take to arrive after the last process has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Events of a supervisor.
enum Event {
    /// Stop the attempt, and kill it at this instant.
    Stop(StopCause, BootTime),
    /// Add a line to its output.
    Note(String),
    /// Kill the attempt.
    Kill,
    /// The lease was renewed: the attempt is stopped at the first instant and killed at the
    /// second.
    Lease(BootTime, BootTime),
    /// The job's process ended.
    Exited(Exit),
    /// All processes of the attempt have ended.
    AllGone,
    /// All output is stored.
    OutputEnded,
}

/// Runs the attempt in this folder to its end. Does nothing if another supervisor has claimed it.
pub fn run(folder: &Path) -> io::Result<()> {
    privilege::close_inherited()?;
    // Fails only if this process already leads a session, apart from the agent's.
    let _ = setsid();
    prctl::set_child_subreaper(true)?;
    let folder = AttemptFolder::at(folder.to_owned());
    let launch: Launch = read_json(&folder.launch())?;
    let record = AttemptRecord::claimed(boot_id()?, Identity::own()?, BootTime::now());
    match claim_json(&folder.record(), &record) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    }
    let (sender, events) = channel();
    let output = OutputWriter::new(folder.path(), launch.output_limit);
    let mut supervisor = Supervisor {
        folder,
        launch,
        record,
        kill_at: None,
        gone: false,
        output_ended: false,
        lease_checked_at: BootTime::from_millis(0),
        sent_lease: None,
        output: Arc::new(Mutex::new(output)),
        output_lost: Arc::default(),
        is_collected: Arc::default(),
    };
    supervisor.start(&sender);
    drop(sender);
    supervisor.supervise_events(&events);
    Ok(())
}

struct Supervisor {
    folder: AttemptFolder,
    launch: Launch,
    record: AttemptRecord,
    /// When a stopped attempt is killed.
    kill_at: Option<BootTime>,
    gone: bool,
    output_ended: bool,
    /// The lease is not read again before this instant.
    lease_checked_at: BootTime,
    /// The lease that the agent sent when it could not write the file.
    sent_lease: Option<AttemptLease>,
    /// Its output.
    output: Arc<Mutex<OutputWriter>>,
    /// Bytes of output that were lost.
    output_lost: Arc<AtomicU64>,
    /// Whether the job's process was reaped. Until then its pid, and that of its group, is
    /// not reused; locked while a signal is sent to it.
    is_collected: Arc<Mutex<bool>>,
}

impl Supervisor {
    /// Starts the job and the threads that listen; a job that cannot start has ended.
    fn start(&mut self, events: &Sender<Event>) {
        match self.spawn(events) {
            Ok(child) => {
                self.record.child = Some(child);
                self.record.started = Some(BootTime::now());
            }
            Err(error) => {
                let why = format!("cannot start `{}`: {error}", self.launch.command.join(" "));
                self.record.exit = Some(Exit::NotStarted(why));
                self.gone = true;
                self.output_ended = true;
            }
        }
        self.write();
    }

    fn spawn(&self, events: &Sender<Event>) -> io::Result<Identity> {
        listen(&self.folder, events.clone())?;
        let (reader, writer) = io::pipe()?;
        // This program, even if the file was replaced by a newer version since.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("bursar").args(["agent-supervise", "--exec"]).arg(self.folder.path());
        // The job's environment is set after the change of user, not before.
        command.env_clear();
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        command.process_group(0);
        let child = command.spawn()?;
        // The command holds the write end of the pipe.
        drop(command);
        let pid = i32::try_from(child.id()).expect("Linux has no larger numbers");
        let identity = Identity::of(pid)?;
        let (output, lost) = (Arc::clone(&self.output), Arc::clone(&self.output_lost));
        keep_output(output, reader, lost, events.clone());
        collect(pid, Arc::clone(&self.is_collected), events.clone());
        Ok(identity)
    }

    /// Supervises the attempt until all its processes have ended, and records the end.
    fn supervise_events(&mut self, events: &Receiver<Event>) {
        let mut drained_by = None;
        loop {
            let now = BootTime::now();
            let over = self.gone && drained_by.is_some_and(|limit| now >= limit);
            if self.gone && (self.output_ended || over) {
                break;
            }
            let pause =
                self.on_time(now).min(if self.gone { DRAIN_TIMEOUT } else { TOUCH_INTERVAL });
            match events.recv_timeout(pause) {
                Ok(event) => self.on(event),
                // All senders have ended.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.gone && drained_by.is_none() {
                drained_by = Some(BootTime::now().plus(DRAIN_TIMEOUT));
            }
        }
        if let Some(group) = &self.launch.cgroup {
            cgroup::remove(group);
        }
        self.record.ended = true;
        self.record.output_lost = self.output_lost.load(Ordering::Relaxed);
        // Without this record the exit code would be lost. On a full disk, old output is removed for it;
        // without any output left, wait for free space.
        while !self.write() {
            if !output::give_up_oldest(self.folder.path()) {
                thread::sleep(TOUCH_INTERVAL);
            }
        }
    }

    /// Handles due timers, and returns the time until the next one.
    fn on_time(&mut self, now: BootTime) -> Duration {
        if self.gone {
            return DRAIN_TIMEOUT;
        }
        if self.record.exit.is_some() || self.record.killed {
            self.sweep();
            return SWEEP_INTERVAL;
        }
        self.check_lease(now);
        if self.kill_at.is_some_and(|kill_at| now >= kill_at) {
            self.kill();
            return SWEEP_INTERVAL;
        }
        if now.since(self.record.seen) >= TOUCH_INTERVAL {
            self.record.seen = now;
            self.save();
        }
        let due = [
            self.kill_at,
            Some(self.lease_checked_at),
            Some(self.record.seen.plus(TOUCH_INTERVAL)),
        ];
        let pauses = due.into_iter().flatten().filter(|due| *due > now).map(|due| due.since(now));
        pauses.min().unwrap_or(TOUCH_INTERVAL)
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Stop(cause, kill_at) => self.stop(cause, kill_at),
            Event::Note(line) => {
                let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
                let lost = output.write(format!("\n{line}\n").as_bytes());
                self.output_lost.fetch_add(lost, Ordering::Relaxed);
            }
            Event::Kill => {
                self.record.stop.get_or_insert(StopCause::Ordered);
                self.kill();
            }
            Event::Exited(exit) => {
                self.record.seen = BootTime::now();
                self.record.exit = Some(exit);
                self.write();
            }
            Event::Lease(stop_at, kill_at) => {
                let boot_id = self.record.boot_id.clone();
                self.sent_lease = Some(AttemptLease { boot_id, stop_at, kill_at });
            }
            Event::AllGone => self.gone = true,
            Event::OutputEnded => self.output_ended = true,
        }
    }

    /// Stops the attempt if the lease has run out. A lease that cannot be
    /// read counts as missing.
    fn check_lease(&mut self, now: BootTime) {
        if now < self.lease_checked_at {
            return;
        }
        let written = read_json::<AttemptLease>(&self.folder.state().lease()).ok();
        let written = written.filter(|lease| lease.boot_id == self.record.boot_id);
        // The agent sends the lease directly if it cannot write the file.
        let leases = [written, self.sent_lease.clone()].into_iter().flatten();
        match leases.max_by_key(|lease| lease.stop_at) {
            Some(lease) if now < lease.stop_at => self.lease_checked_at = lease.stop_at,
            Some(lease) => {
                self.lease_checked_at = lease.kill_at;
                self.stop(StopCause::LeaseRanOut, lease.kill_at);
            }
            None => self.stop(StopCause::LeaseRanOut, now),
        }
    }

    /// Stops the attempt. After several calls the earliest instant applies.
    fn stop(&mut self, cause: StopCause, kill_at: BootTime) {
        self.kill_at = Some(self.kill_at.map_or(kill_at, |known| known.min(kill_at)));
        if self.record.stop.is_some() || self.record.exit.is_some() {
            return;
        }
        // Written first: a later exit is then known to be a stop.
        self.record.stop = Some(cause);
        self.write();
        let is_collected = self.is_collected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = self.record.child.filter(|_| !*is_collected) {
            signal_group(child.pid, Signal::SIGTERM);
        }
    }

    fn kill(&mut self) {
        if !self.record.killed {
            self.record.killed = true;
            self.write();
        }
        self.sweep();
    }

    /// Kills the remaining processes. New ones are found by the next sweep.
    fn sweep(&self) {
        if let Some(group) = &self.launch.cgroup {
            cgroup::kill(group);
        }
        let left = descendants(Pid::this().as_raw()).unwrap_or_default();
        kill_all(&left);
    }

    /// Writes the record and notifies the agent, if there is one. Returns whether it was written.
    fn write(&self) -> bool {
        let written = self.save();
        let agent = OpenOptions::new()
            .write(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(self.folder.state().wake());
        if let Ok(mut agent) = agent {
            // A full pipe wakes the agent as well.
            let _ = agent.write(b".");
        }
        written
    }

    /// Writes the record. Returns whether it was written.
    fn save(&self) -> bool {
        write_json(&self.folder.record(), &self.record).is_ok()
    }
}

/// Reads the agent's orders.
fn listen(folder: &AttemptFolder, events: Sender<Event>) -> io::Result<()> {
    // Open for writing too, so that the pipe does not end with the agent.
    let control = OpenOptions::new().read(true).write(true).open(folder.control())?;
    thread::spawn(move || {
        for line in BufReader::new(control).lines().map_while(Result::ok) {
            if let Some(line) = line.strip_prefix("note ") {
                if events.send(Event::Note(line.to_owned())).is_err() {
                    return;
                }
                continue;
            }
            let mut words = line.split(' ');
            let word = words.next().unwrap_or_default();
            let at: Vec<BootTime> = words
                .map(|at| at.parse().map_or_else(|_| BootTime::now(), BootTime::from_millis))
                .collect();
            let event = match (word, at.as_slice()) {
                ("stop", [at]) => Event::Stop(StopCause::Ordered, *at),
                ("idle", [at]) => Event::Stop(StopCause::Idle, *at),
                ("lease", [stop_at, kill_at]) => Event::Lease(*stop_at, *kill_at),
                _ => Event::Kill,
            };
            if events.send(event).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Stores the output of the attempt until every writer has closed it.
fn keep_output(
    output: Arc<Mutex<OutputWriter>>,
    mut reader: io::PipeReader,
    lost: Arc<AtomicU64>,
    events: Sender<Event>,
) {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                // On a full disk the job continues and its output is lost.
                Ok(length) => {
                    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                    lost.fetch_add(output.write(&buffer[..length]), Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = events.send(Event::OutputEnded);
    });
}

/// Reaps all descendants until none is left.
fn collect(child: i32, is_collected: Arc<Mutex<bool>>, events: Sender<Event>) {
    thread::spawn(move || {
        let any_end = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while let Ok(_) | Err(nix::Error::EINTR) = waitid(Id::All, any_end) {
            // The lock prevents signals to the job's pid between the check and the reaping.
            let mut is_collected = is_collected.lock().unwrap_or_else(PoisonError::into_inner);
            let exit = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid.as_raw() == child => Exit::Code(code),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == child => {
                    Exit::Signal(signal as i32)
                }
                Ok(_) | Err(_) => continue,
            };
            *is_collected = true;
            drop(is_collected);
            let _ = events.send(Event::Exited(exit));
        }
        let _ = events.send(Event::AllGone);
    });
}
