//! Numbers and names.
//!
//! Inside the ledger every resource has a small number, assigned in order and written into the
//! event that creates it, so that replay assigns the same numbers. Clients use names.

use std::fmt;

use compact_str::CompactString;

use crate::cell::ids::JobId;

/// A name whose kind is in a field beside it, or a text without a grammar. Where the kind is fixed, the
/// types of [`crate::name`] are used.
pub type Name = CompactString;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The index in its table.
            pub fn index(self) -> usize {
                // Every supported platform has at least 32-bit addresses.
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number!(
    /// An account. Never reused.
    AccountNo
);
number!(
    /// A grant. Never reused.
    GrantNo
);
number!(
    /// A bucket of grants of equal rank. Never reused.
    BucketNo
);
number!(
    /// A hold or a charge. Reused after it is forgotten (see retention).
    HoldNo
);

/// A job. Never reused.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobNo(pub u64);

impl JobNo {
    /// The number of bits of a cell's job id that are the ledger's number. The shard is in the bits
    /// above.
    const BITS: u32 = 48;

    /// The id of the job in cells.
    pub fn in_cell(self, shard: u16) -> JobId {
        JobId(u64::from(shard) << JobNo::BITS | self.0)
    }

    /// The inverse of [`JobNo::in_cell`] within one shard.
    pub fn of_cell(job: JobId) -> JobNo {
        JobNo(job.0 & ((1 << JobNo::BITS) - 1))
    }
}

impl fmt::Display for JobNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A cell of this ledger. Never reused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellNo(pub u16);

impl CellNo {
    /// The index in its table.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for CellNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The most jobs of one array.
pub const MAX_JOBS: u32 = 1000;
