//! The names of things in a cell.

use std::fmt;

use super::index::interner::interned_id;

/// A job, unique over all shards: the shard, and its own number for the job.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl JobId {
    /// How many of the bits are the shard's own number for the job.
    const NUMBER_BITS: u32 = 48;

    /// The job of a shard that has this number there, which takes no more than 48 bits.
    pub fn new(shard: u16, number: u64) -> JobId {
        assert!(number >> JobId::NUMBER_BITS == 0, "a shard numbers its jobs in 48 bits");
        JobId(u64::from(shard) << JobId::NUMBER_BITS | number)
    }

    /// The ledger shard that the job lives on.
    pub fn shard(self) -> u16 {
        // What is left of 64 bits without 48 fits in 16.
        (self.0 >> JobId::NUMBER_BITS) as u16
    }

    /// The shard's own number for the job.
    pub fn number(self) -> u64 {
        self.0 & ((1 << JobId::NUMBER_BITS) - 1)
    }
}

/// One start of a job. Numbers rise with every start, so a message about an earlier start is
/// recognised by its number alone.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The job that starts.
    pub job: JobId,
    /// Which start it is, from 1.
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job.0, self.number)
    }
}

/// A priority class, by its rank: the higher goes first, always.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassRank(pub u8);

impl ClassRank {
    /// Work that may wait.
    pub const BATCH: ClassRank = ClassRank(10);
    /// The default.
    pub const NORMAL: ClassRank = ClassRank(20);
    /// Work that goes before normal work.
    pub const HIGH: ClassRank = ClassRank(30);
    /// Work that goes before everything.
    pub const URGENT: ClassRank = ClassRank(40);
}

interned_id!(
    /// An account that this cell has heard of. Number 0 is the root above all tenants.
    AccountId
);
interned_id!(
    /// An interned request: a shape, how many nodes of it, and for how long.
    RequestId
);
interned_id!(
    /// A concurrency group.
    GroupId
);
interned_id!(
    /// A node's hardware: everything of its spec but the rack.
    HardwareId
);

/// A planned maintenance window.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaintenanceId(pub u64);
