//! What can go wrong with history.

use bursar_journal::RecordError;
use bursar_journal::record::codec::FormatError;
use thiserror::Error;

/// Why history cannot be fed or asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HistoryError {
    /// The store did not do what it was asked.
    #[error("{doing}: {reason}")]
    Storage {
        /// What was tried.
        doing: &'static str,
        /// What the store said.
        reason: String,
    },
    /// A record was left out.
    #[error("history is at position {applied} and was fed record {fed}")]
    Gap {
        /// The last record it has.
        applied: u64,
        /// The record that came.
        fed: u64,
    },
    /// The tables and the events contradict each other.
    #[error("history does not fit its journal: {0}; delete the file, it will be built anew")]
    Inconsistent(String),
    /// A record cannot be read.
    #[error("record {position}: {error}")]
    Record {
        /// Which.
        position: u64,
        /// Why.
        error: FormatError,
    },
    /// A batch cannot be read.
    #[error(transparent)]
    Batch(#[from] RecordError),
    /// The journal cannot be read, or is another one than history was made from.
    #[error(
        "{0}; if another journal was put in its place, delete the history file: it will be built anew"
    )]
    Journal(#[from] bursar_journal::JournalError),
    /// The cursor was not made here.
    #[error("the cursor is not one that this list has given out: start again without one")]
    BadCursor,
    /// The file is of another kind or version.
    #[error("{0}")]
    Refused(String),
}

impl HistoryError {
    pub(crate) fn inconsistent(what: impl ToString) -> HistoryError {
        HistoryError::Inconsistent(what.to_string())
    }
}
