//! Errors of history.

use bursar_journal::RecordError;
use bursar_journal::record::codec::FormatError;
use thiserror::Error;

/// The reason why records cannot be applied or a query fails.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HistoryError {
    /// The store failed.
    #[error("{doing}: {reason}")]
    Storage {
        /// The operation that failed.
        doing: &'static str,
        /// The error of the store.
        reason: String,
    },
    /// No space is left on the disk.
    #[error("{doing}: the disk is full ({reason})")]
    Full {
        /// The operation that failed.
        doing: &'static str,
        /// The error of the store.
        reason: String,
    },
    /// A record is missing.
    #[error("history is at position {applied} and was fed record {fed}")]
    Gap {
        /// The last applied record.
        applied: u64,
        /// The record that was fed.
        fed: u64,
    },
    /// The tables and the events contradict each other.
    #[error("history does not fit its journal: {0}; delete the file, it will be rebuilt")]
    Inconsistent(String),
    /// A record cannot be read.
    #[error("record {position}: {error}")]
    Record {
        /// The position of the record.
        position: u64,
        /// The error.
        error: FormatError,
    },
    /// A batch cannot be read.
    #[error(transparent)]
    Batch(#[from] RecordError),
    /// The journal cannot be read, or history was built from another journal.
    #[error(
        "{0}; if another journal was put in its place, delete the history file: it will be rebuilt"
    )]
    Journal(#[from] bursar_journal::JournalError),
    /// The cursor is not valid for this list.
    #[error("the cursor is not valid for this list; start again without a cursor")]
    BadCursor,
    /// A report would read too many rows.
    #[error(
        "the period has more than {most} rows; choose a shorter one, or an account further down"
    )]
    TooMuch {
        /// The most rows that a report reads.
        most: usize,
    },
    /// The parts of hours at the ends of a period have too many entries.
    #[error(
        "the first or the last hour of the period has more than {most} entries of this account and those \
         below it; choose whole hours"
    )]
    PartsOfHours {
        /// The most entries that are read.
        most: usize,
    },
    /// The file has another format or version.
    #[error("{0}")]
    Refused(String),
}

impl HistoryError {
    /// The files contradict each other or themselves.
    pub fn inconsistent(what: impl ToString) -> HistoryError {
        HistoryError::Inconsistent(what.to_string())
    }

    /// Whether no space is left on the disk.
    pub fn is_full(&self) -> bool {
        match self {
            HistoryError::Full { .. } => true,
            HistoryError::Journal(error) => error.is_full(),
            HistoryError::Storage { .. }
            | HistoryError::Gap { .. }
            | HistoryError::Inconsistent(_)
            | HistoryError::Record { .. }
            | HistoryError::Batch(_)
            | HistoryError::BadCursor
            | HistoryError::TooMuch { .. }
            | HistoryError::PartsOfHours { .. }
            | HistoryError::Refused(_) => false,
        }
    }
}
