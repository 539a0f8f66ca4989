//! Errors of requests to the engine and of replay.

use bursar_journal::{JournalError, RecordError};
use thiserror::Error;

use crate::codec::CodecError;

/// Why a command or a read was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EngineError {
    /// Nothing happened. Retry later: the server is overloaded, starting, or not the owner.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// Unknown whether it happened. Repeat it under the same idempotency key.
    #[error("the outcome is unknown; repeat the request under the same idempotency key")]
    OutcomeUnknown,
    /// Nothing happened: the disk is full. Reads are still served.
    #[error("the journal's disk is full")]
    StorageFull,
    /// Nothing happened: the server failed while it handled this request. The machine continues.
    #[error("the server failed while it handled this request; nothing of it happened")]
    Internal,
    /// Nothing happened: the request exceeds the limits of one decision.
    #[error("{0}")]
    TooLarge(String),
    /// Nothing happened, and nothing will until the process is restarted.
    #[error("stopped: {0}")]
    Stopped(String),
}

/// Why the state of a machine could not be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// The journal could not be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record could not be decoded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A record's body is not valid for the machine's codec.
    #[error("record {position}: {reason}")]
    Body {
        /// The position of the record.
        position: u64,
        /// The error of the codec.
        reason: CodecError,
    },
}

impl ReplayError {
    /// Whether no space is left on the disk.
    pub fn is_full(&self) -> bool {
        match self {
            ReplayError::Journal(error) => error.is_full(),
            ReplayError::Record(_) | ReplayError::Body { .. } => false,
        }
    }

    /// Whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            ReplayError::Journal(error) => error.is_retryable(),
            ReplayError::Record(_) | ReplayError::Body { .. } => false,
        }
    }
}
