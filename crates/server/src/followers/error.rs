//! The error of followers of journals.

use bursar_engine::ReplayError;
use bursar_history::HistoryError;
use bursar_journal::JournalError;

/// Why a follower cannot start, go on or answer.
#[derive(Debug, thiserror::Error)]
pub enum FollowerError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The state of a machine cannot be rebuilt.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// History cannot be read or written.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A thread did not start.
    #[error("a thread did not start: {0}")]
    Thread(#[from] std::io::Error),
    /// The journal ends before a position that was already answered.
    #[error("the journal is shorter than the ledger's position")]
    Short,
}

impl FollowerError {
    /// Whether no space is left on the disk.
    pub fn is_full(&self) -> bool {
        match self {
            FollowerError::Journal(error) => error.is_full(),
            FollowerError::Replay(error) => error.is_full(),
            FollowerError::History(error) => error.is_full(),
            FollowerError::Thread(error) => bursar_journal::is_full(error),
            FollowerError::Short => false,
        }
    }
}
