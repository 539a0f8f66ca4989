//! Statistics of a world.

use super::host::MachineHost;
use super::{START, World};

/// Statistics of a world.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records of all journals.
    pub records: usize,
    /// Jobs that were submitted.
    pub jobs: usize,
    /// Attempts confirmed by the ledgers.
    pub attempts: usize,
    /// Jobs that ended.
    pub ended: usize,
    /// Crashes of machines.
    pub crashes: u32,
    /// Failures of members, whose machines moved to another one.
    pub takeovers: u32,
    /// Messages that were delivered more than once or too early.
    pub repeated: u32,
    /// Lost heartbeats, and heartbeats whose answer was lost.
    pub lost_reports: u32,
    /// Simulated milliseconds.
    pub millis: i64,
}

impl Summary {
    /// Adds the statistics of another world.
    pub fn add(&mut self, other: Summary) {
        self.records += other.records;
        self.jobs += other.jobs;
        self.attempts += other.attempts;
        self.ended += other.ended;
        self.crashes += other.crashes;
        self.takeovers += other.takeovers;
        self.repeated += other.repeated;
        self.lost_reports += other.lost_reports;
        self.millis += other.millis;
    }
}

impl World {
    pub(super) fn summary(&self) -> Summary {
        let jobs = || self.ledgers.iter().flat_map(|host| host.machine.jobs_before(None));
        Summary {
            records: self.ledgers.iter().map(MachineHost::records).sum::<usize>()
                + self.cells.iter().map(MachineHost::records).sum::<usize>(),
            jobs: jobs().count(),
            attempts: jobs().map(|(_, job)| job.attempts.len()).sum(),
            ended: jobs().filter(|(_, job)| job.state.is_ended()).count(),
            crashes: self.crashes,
            takeovers: self.takeovers,
            repeated: self.repeated,
            lost_reports: self.lost_reports,
            millis: self.now - START,
        }
    }
}
