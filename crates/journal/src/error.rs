//! Errors of a journal. One enum for everything except the two calls whose failures the caller must
//! distinguish: appends and leases.

use std::fmt::Display;
use std::io;

use thiserror::Error;

use crate::chain::Epoch;
use crate::record::RecordError;
use crate::segment::SegmentDamage;

/// Why a journal cannot be opened or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JournalError {
    /// The first batch that is not as written. It and all later batches must not be used.
    #[error("batch {sequence} is corrupt: {reason}; restore the journal from a backup")]
    Corrupt {
        /// Number of the first bad batch.
        sequence: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A row beside the batches (identity, head, lease, schema) is not as written.
    #[error("the {part} of the journal is damaged: {reason}; restore it from a backup")]
    Damaged {
        /// The row.
        part: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A sealed segment cannot be read.
    #[error("segment {name} (batches {first} to {last}) {fault}")]
    Segment {
        /// The name of its file.
        name: String,
        /// Number of its first batch.
        first: u64,
        /// Number of its last batch.
        last: u64,
        /// What is wrong, and what to do.
        fault: SegmentFault,
    },
    /// A record cannot be decoded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Another process has it open.
    #[error("{journal} is in use by another process ({holder}); stop that one first")]
    Locked {
        /// The journal.
        journal: String,
        /// What is known about the other process.
        holder: String,
    },
    /// The store is not one that this build may use.
    #[error("{0}")]
    Refused(String),
    /// The store may lose acknowledged data, or does not grant the rights that this server needs.
    /// Found while running. Serving can continue once it is fixed.
    #[error("stepped down: {0}")]
    Unfit(String),
    /// A write or sync failed in this process. The contents of the disk are known only after a
    /// restart.
    #[error("the journal stopped after a failed write or sync ({0}); check the disk and restart")]
    Stopped(String),
    /// The store could not be reached or did not answer.
    #[error("{doing}: {reason}")]
    Storage {
        /// The failed action.
        doing: &'static str,
        /// The error of the store.
        reason: String,
    },
    /// No space is left on the disk. Nothing that was stored before is lost.
    #[error("{doing}: the disk is full ({reason})")]
    Full {
        /// The failed action.
        doing: &'static str,
        /// The error of the system.
        reason: String,
    },
}

impl JournalError {
    /// A [`JournalError::Storage`] with the text of `reason`.
    pub fn storage(doing: &'static str, reason: impl Display) -> JournalError {
        JournalError::Storage { doing, reason: reason.to_string() }
    }

    /// The error of an operation on a file.
    pub fn io(doing: &'static str, error: io::Error) -> JournalError {
        if is_full(&error) {
            return JournalError::full(doing, error);
        }
        JournalError::storage(doing, error)
    }

    pub(crate) fn full(doing: &'static str, reason: impl Display) -> JournalError {
        JournalError::Full { doing, reason: reason.to_string() }
    }

    /// Whether no space is left on the disk.
    pub fn is_full(&self) -> bool {
        matches!(self, JournalError::Full { .. })
    }

    /// Whether the same call may succeed later, in this process.
    pub fn is_retryable(&self) -> bool {
        match self {
            JournalError::Storage { .. } | JournalError::Full { .. } | JournalError::Unfit(_) => {
                true
            }
            JournalError::Segment { fault, .. } => match fault {
                // Its folder may be mounted again.
                SegmentFault::Missing { .. } | SegmentFault::Unreadable { .. } => true,
                SegmentFault::Altered { .. } => false,
            },
            JournalError::Corrupt { .. }
            | JournalError::Damaged { .. }
            | JournalError::Record(_)
            | JournalError::Locked { .. }
            | JournalError::Refused(_)
            | JournalError::Stopped(_) => false,
        }
    }
}

/// Whether an operation on a file failed because no space is left: on the disk, or of a quota.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Why a sealed segment cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SegmentFault {
    /// The file is not where it was stored.
    #[error(
        "is missing in {places}: mount that folder or put back the file; backups have the same file"
    )]
    Missing {
        /// The folders in which it was looked for.
        places: String,
    },
    /// The file is not the one that was sealed.
    #[error("was altered: {place}: {reason}; put back the file, of which backups have a copy")]
    Altered {
        /// The file.
        place: String,
        /// What is wrong with it.
        reason: SegmentDamage,
    },
    /// The system cannot read the file.
    #[error("cannot be read: {place}: {reason}; check the disk and the rights of that file")]
    Unreadable {
        /// The file.
        place: String,
        /// The error of the system.
        reason: String,
    },
}

/// Why a batch was not appended, or why the outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AppendError {
    /// Another server owns the journal or has written to it. Nothing was written.
    #[error("fenced: epoch {epoch} no longer owns the journal, or its head has moved")]
    Fenced {
        /// The epoch of the failed append.
        epoch: Epoch,
    },
    /// No space is left. Nothing was written. Reads are still served, and a later append may
    /// succeed.
    #[error("no space left for the journal: {0}")]
    Full(String),
    /// The batch may or may not be stored. The caller must drop its state and read the journal
    /// again.
    #[error("the outcome of an append is unknown: {0}")]
    Unknown(String),
    /// The store is inconsistent. Nothing may be written to it.
    #[error(transparent)]
    Corrupt(JournalError),
}

/// Why a lease was not granted or renewed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LeaseError {
    /// Another holder has it.
    #[error("the lease is held by {holder} for another {remaining_ms} ms")]
    Held {
        /// The holder.
        holder: String,
        /// The remaining time at most, by the store's clock.
        remaining_ms: u64,
    },
    /// It was taken over after it expired.
    #[error("the lease of epoch {epoch} was lost")]
    Lost {
        /// The epoch of the lost lease.
        epoch: Epoch,
    },
    /// The store returned an error.
    #[error(transparent)]
    Journal(#[from] JournalError),
}
