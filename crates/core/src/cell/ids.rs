//! Identifiers in a cell.

use std::fmt;

use super::index::interner::interned_id;

/// A job, unique over all shards: the shard and the shard's number of the job.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl JobId {
    /// How many bits the shard's number of the job has.
    const NUMBER_BITS: u32 = 48;

    /// The job of a shard with this number, which has at most 48 bits.
    pub fn new(shard: u16, number: u64) -> JobId {
        assert!(number >> JobId::NUMBER_BITS == 0, "a shard numbers its jobs in 48 bits");
        JobId(u64::from(shard) << JobId::NUMBER_BITS | number)
    }

    /// The ledger shard that has the job.
    pub fn shard(self) -> u16 {
        // The upper 16 of 64 bits.
        (self.0 >> JobId::NUMBER_BITS) as u16
    }

    /// The shard's number of the job.
    pub fn number(self) -> u64 {
        self.0 & ((1 << JobId::NUMBER_BITS) - 1)
    }
}

/// One start of a job. Numbers rise with every start, so a message about an earlier start is
/// recognised by its number.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The job that starts.
    pub job: JobId,
    /// Which start it is, from 1.
    pub number: u32,
}

/// As the audit trail writes it: `job #7`, and `job #7 of shard 2` of another than the first shard.
impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job #{}", self.number())?;
        if self.shard() == 0 { Ok(()) } else { write!(f, " of shard {}", self.shard()) }
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of {}", self.number, self.job)
    }
}

/// A priority class, by its rank. Jobs of a higher rank go first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassRank(pub u8);

impl ClassRank {
    /// Work that can wait.
    pub const BATCH: ClassRank = ClassRank(10);
    /// The default.
    pub const NORMAL: ClassRank = ClassRank(20);
    /// Work that goes before normal work.
    pub const HIGH: ClassRank = ClassRank(30);
    /// Work that goes before all other built-in classes.
    pub const URGENT: ClassRank = ClassRank(40);
}

interned_id!(
    /// An account that this cell knows. Number 0 is the root above all tenants.
    AccountId
);
interned_id!(
    /// An interned request: shape, number of nodes, longest runtime, and whether it may be a guest.
    RequestId
);
interned_id!(
    /// A concurrency group.
    GroupId
);
interned_id!(
    /// A node's hardware: everything in its spec except the rack.
    HardwareId
);

/// A planned maintenance window.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaintenanceId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_attempts_are_written_in_words() {
        let attempt = |shard| AttemptId { job: JobId::new(shard, 7), number: 3 };
        assert_eq!(attempt(0).to_string(), "attempt 3 of job #7");
        assert_eq!(attempt(2).to_string(), "attempt 3 of job #7 of shard 2");
    }
}
