//! What can go wrong with a journal. One enum for everything but the two calls whose failures the
//! caller must tell apart: appends and leases.

use std::fmt::Display;

use thiserror::Error;

use crate::chain::Epoch;
use crate::record::RecordError;

/// Why a journal cannot be opened or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JournalError {
    /// The first batch that is not what was written. Nothing from it on may be used.
    #[error("batch {sequence} is corrupt: {reason}; restore the journal from a backup")]
    Corrupt {
        /// Number of the first bad batch.
        sequence: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A row beside the batches (identity, head, lease, schema) is not what was written.
    #[error("the {part} of the journal is damaged: {reason}; restore it from a backup")]
    Damaged {
        /// Which.
        part: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A record cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Another process has it open.
    #[error("{journal} is in use by another process ({holder}); stop that one first")]
    Locked {
        /// Which journal.
        journal: String,
        /// What is known about the other.
        holder: String,
    },
    /// The store is not one that this build may trust.
    #[error("{0}")]
    Refused(String),
    /// The store may lose what it acknowledges, or does not grant what this server needs. Found while
    /// running; serving may go on once it is put right.
    #[error("stepped down: {0}")]
    Unfit(String),
    /// A write or sync failed in this process. What the disk holds is known only after a restart.
    #[error("the journal stopped after a failed write or sync ({0}); check the disk and restart")]
    Stopped(String),
    /// The store could not be reached or did not answer.
    #[error("{doing}: {reason}")]
    Storage {
        /// What was tried.
        doing: &'static str,
        /// What the store said.
        reason: String,
    },
}

impl JournalError {
    /// A [`JournalError::Storage`] with the words of `reason`.
    pub fn storage(doing: &'static str, reason: impl Display) -> JournalError {
        JournalError::Storage { doing, reason: reason.to_string() }
    }

    /// Whether the same call may go well later, in this process.
    pub fn is_retryable(&self) -> bool {
        match self {
            JournalError::Storage { .. } | JournalError::Unfit(_) => true,
            JournalError::Corrupt { .. }
            | JournalError::Damaged { .. }
            | JournalError::Record(_)
            | JournalError::Locked { .. }
            | JournalError::Refused(_)
            | JournalError::Stopped(_) => false,
        }
    }
}

/// Why a batch was not appended, or why nobody can say.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AppendError {
    /// Somebody else owns the journal or has written to it. Nothing was written.
    #[error("fenced: epoch {epoch} no longer owns the journal, or its head has moved")]
    Fenced {
        /// The epoch that tried.
        epoch: Epoch,
    },
    /// There is no space. Nothing was written; reads go on; a later append may succeed.
    #[error("no space left for the journal: {0}")]
    Full(String),
    /// The batch may be there or not. The caller must drop its state and read the journal again.
    #[error("the outcome of an append is unknown: {0}")]
    Unknown(String),
    /// The store contradicts itself. Nothing may be written any more.
    #[error(transparent)]
    Corrupt(JournalError),
}

/// Why a lease was not given or kept.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LeaseError {
    /// Somebody else has it.
    #[error("the lease is held by {holder} for another {remaining_ms} ms")]
    Held {
        /// Who.
        holder: String,
        /// How long at most, by the store's clock.
        remaining_ms: u64,
    },
    /// It was taken over after it ran out.
    #[error("the lease of epoch {epoch} was lost")]
    Lost {
        /// The epoch that had it.
        epoch: Epoch,
    },
    /// The store could not say.
    #[error(transparent)]
    Journal(#[from] JournalError),
}
