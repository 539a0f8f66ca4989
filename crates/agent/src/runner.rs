//! Starts and stops attempts through their supervisors, and reads their state.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::OFlag;

use crate::attempt::environment;
use crate::attempt::process::{Identity, kill_all, marked};
use crate::attempt::record::{AttemptLease, AttemptRecord, Launch};
use crate::clock::{BootTime, Offset, boot_id};
use crate::folder::{AttemptFolder, StateFolder, claim_json, read_json, write_json};
use crate::isolation::cgroup;
use crate::reconcile::Local;

/// A supervisor without a record after this time was never started.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The present state of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The attempt.
    pub attempt: String,
    /// What it does.
    pub local: Local,
    /// What to start; `None` if it was declined.
    pub launch: Option<Launch>,
    /// Its record; `None` if its supervisor has not written one yet.
    pub record: Option<AttemptRecord>,
    /// How long it has run.
    pub running_time: Duration,
}

/// Starts and stops attempts.
#[derive(Debug)]
pub struct Runner {
    folder: StateFolder,
    /// The program whose `agent-supervise` is the supervisor.
    program: PathBuf,
    boot_id: String,
    /// The attempts that this agent started, and when.
    launched: BTreeMap<String, BootTime>,
}

impl Runner {
    /// A runner for the attempts in a folder, supervised by a program.
    pub fn new(folder: StateFolder, program: PathBuf) -> io::Result<Runner> {
        Ok(Runner { folder, program, boot_id: boot_id()?, launched: BTreeMap::new() })
    }

    /// The state of every attempt that is not forgotten. Ends attempts that lost their supervisor.
    pub fn observe(&self, now: BootTime) -> io::Result<Vec<Observed>> {
        let all = self.folder.all_attempts()?;
        all.into_iter().map(|(attempt, place)| self.observe_one(now, attempt, &place)).collect()
    }

    fn observe_one(
        &self,
        now: BootTime,
        attempt: String,
        place: &AttemptFolder,
    ) -> io::Result<Observed> {
        let launch: Option<Launch> = read_json(&place.launch()).ok();
        let Some(record) = self.record_of(now, &attempt, place)? else {
            let local = Local::Launching;
            return Ok(Observed {
                attempt,
                local,
                launch,
                record: None,
                running_time: Duration::ZERO,
            });
        };
        let supervisor = record.supervisor.filter(|_| record.boot_id == self.boot_id);
        let is_supervised = supervisor.is_some_and(|supervisor| supervisor.is_alive());
        let record = if is_supervised || record.ended {
            record
        } else {
            // It may have ended normally between the two reads.
            let last: AttemptRecord = read_json(&place.record()).unwrap_or(record);
            if last.ended { last } else { end_unsupervised(launch.as_ref(), place, last) }
        };
        let local = if record.ended {
            Local::Ended
        } else if record.killed || record.exit.is_some() {
            Local::Killing
        } else if record.stop.is_some() {
            Local::Stopping
        } else if record.started.is_none() {
            Local::Launching
        } else {
            Local::Running
        };
        let running_time = record.running_time(now, is_supervised);
        Ok(Observed { attempt, local, launch, record: Some(record), running_time })
    }

    /// The record of an attempt. One whose supervisor never started is declined, so that it never starts.
    fn record_of(
        &self,
        now: BootTime,
        attempt: &str,
        place: &AttemptFolder,
    ) -> io::Result<Option<AttemptRecord>> {
        match read_json(&place.record()) {
            Ok(record) => return Ok(Some(record)),
            // It will not become readable: the attempt is ended.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!(attempt, %error, "its record cannot be read");
                let now = BootTime::now();
                return Ok(Some(AttemptRecord::unknown(self.boot_id.clone(), now)));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        let launched = self.launched.get(attempt);
        if launched.is_some_and(|launched| now.since(*launched) < LAUNCH_TIMEOUT) {
            return Ok(None);
        }
        if let Err(error) = self.decline_place(place, "its supervisor did not start") {
            // Retried by the next call.
            tracing::error!(attempt, %error, "cannot record that the attempt did not start");
            return Ok(None);
        }
        read_json(&place.record()).map(Some)
    }

    /// The state of one attempt.
    pub fn local(&self, attempt: &str, observed: &[Observed]) -> Local {
        match observed.iter().find(|known| known.attempt == attempt) {
            Some(known) => known.local,
            None if self.folder.is_forgotten(attempt) => Local::Forgotten,
            None => Local::Absent,
        }
    }

    /// Starts an attempt, at most once: creating its folder is the decision.
    pub fn launch(&mut self, launch: &Launch) -> io::Result<()> {
        let place = self.folder.create(&launch.attempt, |new| write_json(&new.launch(), launch))?;
        self.launched.insert(launch.attempt.clone(), BootTime::now());
        let mut command = Command::new(&self.program);
        command.arg0("bursar").arg("agent-supervise").arg(place.path());
        if let Some(offset) = Offset::of_process() {
            command.arg(format!("--unsafe-clock-offset={offset}"));
        }
        // It may run as root: only its arguments may affect it.
        command.env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(mut child) => {
                // Reaped when it ends; it may outlive this process.
                std::thread::spawn(move || child.wait());
                Ok(())
            }
            Err(error) => self.decline_place(&place, &format!("no supervisor: {error}")),
        }
    }

    /// Records that an attempt never ran here and never will.
    pub fn decline(&mut self, attempt: &str) -> io::Result<()> {
        let record =
            AttemptRecord::declined(self.boot_id.clone(), "it never ran here", BootTime::now());
        self.folder.create(attempt, |new| write_json(&new.record(), &record))?;
        Ok(())
    }

    /// Records that an attempt could not be started, and why.
    pub fn fail(&mut self, attempt: &str, why: &str) -> io::Result<()> {
        let place = self.folder.attempt(attempt);
        if !place.path().exists() {
            self.folder.create(attempt, |_| Ok(()))?;
        }
        self.decline_place(&place, why)
    }

    fn decline_place(&self, place: &AttemptFolder, why: &str) -> io::Result<()> {
        let mut record = AttemptRecord::declined(self.boot_id.clone(), why, BootTime::now());
        record.stop = None;
        match claim_json(&place.record(), &record) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Stops an attempt, and kills it after its grace period.
    pub fn stop(&self, attempt: &str, grace: Duration) -> io::Result<()> {
        let kill_at = BootTime::now().plus(grace);
        self.send_line(attempt, &format!("stop {}\n", kill_at.as_millis())).map(drop)
    }

    /// Stops an attempt because its GPUs are idle, and kills it after its grace period. Returns
    /// whether its supervisor gets the order.
    pub fn stop_idle(&self, attempt: &str, grace: Duration) -> io::Result<bool> {
        let kill_at = BootTime::now().plus(grace);
        self.send_line(attempt, &format!("idle {}\n", kill_at.as_millis()))
    }

    /// Adds a line to the output of an attempt. Returns whether its supervisor gets it.
    pub fn note(&self, attempt: &str, line: &str) -> io::Result<bool> {
        self.send_line(attempt, &format!("note {line}\n"))
    }

    /// Kills an attempt and everything that it started.
    pub fn kill(&self, attempt: &str) -> io::Result<()> {
        self.send_line(attempt, "kill\n").map(drop)
    }

    /// Sends a line to the supervisor, and returns whether it gets it. It does not if it is not
    /// running yet, or no longer, or reads nothing; the server repeats its orders.
    fn send_line(&self, attempt: &str, line: &str) -> io::Result<bool> {
        let control = self.folder.attempt(attempt).control();
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
        let pipe = OpenOptions::new().write(true).custom_flags(flags.bits()).open(control);
        match pipe.and_then(|mut pipe| pipe.write_all(line.as_bytes())) {
            Ok(()) => Ok(true),
            // The pipe is full.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.raw_os_error() == Some(nix::Error::ENXIO as i32) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the state of an attempt and keeps its id.
    pub fn erase(&mut self, attempt: &str) -> io::Result<()> {
        self.launched.remove(attempt);
        self.folder.forget(attempt)
    }

    /// Renews the lease: a heartbeat that was sent at `sent` was accepted. If the file cannot
    /// be written, because the disk is full, every supervisor receives it by its pipe.
    pub fn renew(&self, sent: BootTime, length: Duration) -> io::Result<()> {
        let lease = AttemptLease::granted(self.boot_id.clone(), sent, length);
        let Err(error) = write_json(&self.folder.lease(), &lease) else { return Ok(()) };
        tracing::error!(%error, "the lease cannot be written; it is sent to the supervisors");
        let line = format!("lease {} {}\n", lease.stop_at.as_millis(), lease.kill_at.as_millis());
        for (attempt, _) in self.folder.all_attempts()? {
            if let Err(error) = self.send_line(&attempt, &line) {
                tracing::error!(attempt, %error, "cannot pass the lease to the supervisor");
            }
        }
        Ok(())
    }

    /// The state folder.
    pub fn folder(&self) -> &StateFolder {
        &self.folder
    }

    /// The folder of an attempt's output.
    pub fn output(&self, attempt: &str) -> PathBuf {
        self.folder.attempt(attempt).path().to_owned()
    }
}

/// Ends the remaining processes of an attempt without a supervisor, and writes its last record.
fn end_unsupervised(
    launch: Option<&Launch>,
    place: &AttemptFolder,
    mut record: AttemptRecord,
) -> AttemptRecord {
    record.killed = true;
    let group = launch.and_then(|launch| launch.cgroup.as_deref()).filter(|group| group.exists());
    if end_rest(group, place).unwrap_or(false) {
        if let Some(group) = group {
            cgroup::remove(group);
        }
        record.ended = true;
        if let Err(error) = write_json(&place.record(), &record) {
            // Retried by the next call; until then it counts as being killed.
            tracing::error!(place = %place.path().display(), %error, "its end cannot be written");
            record.ended = false;
        }
    }
    record
}

/// Kills the remaining processes of an attempt. Returns whether none is left.
fn end_rest(group: Option<&Path>, place: &AttemptFolder) -> io::Result<bool> {
    if let Some(group) = group {
        // No process leaves a group, so their environment need not be searched.
        cgroup::kill(group);
        let left = cgroup::members(group);
        let known: Vec<Identity> = left.iter().filter_map(|pid| Identity::of(*pid).ok()).collect();
        kill_all(&known);
        return Ok(left.is_empty());
    }
    let left = marked(environment::PLACE, &place.path().display().to_string())?;
    kill_all(&left);
    Ok(left.is_empty())
}
