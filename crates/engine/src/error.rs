//! What a caller is told when there is no answer, and why a journal could not be replayed.

use bursar_journal::{JournalError, RecordError};
use thiserror::Error;

use crate::codec::CodecError;

/// Why a command or a read has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EngineError {
    /// Nothing happened. Try again later: overloaded, starting, or not the owner.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// It happened or it did not. Repeat it under the same idempotency key.
    #[error("the outcome is unknown; repeat the request under the same idempotency key")]
    OutcomeUnknown,
    /// Nothing happened: there is no space to remember it. Reads go on.
    #[error("the journal's disk is full")]
    StorageFull,
    /// Nothing happened: the server failed while it handled this request. The machine goes on.
    #[error("the server failed while it handled this request; nothing of it happened")]
    Internal,
    /// Nothing happened: it would be more than one decision may be.
    #[error("{0}")]
    TooLarge(String),
    /// Nothing happened, and nothing will until the process is started again.
    #[error("stopped: {0}")]
    Stopped(String),
}

/// Why the state of a machine could not be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// The journal could not be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record could not be taken apart.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A record's body is not what the machine's codec writes.
    #[error("record {position}: {reason}")]
    Body {
        /// Where.
        position: u64,
        /// What the codec said.
        reason: CodecError,
    },
}

impl ReplayError {
    /// Whether trying again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            ReplayError::Journal(error) => error.is_retryable(),
            ReplayError::Record(_) | ReplayError::Body { .. } => false,
        }
    }
}
