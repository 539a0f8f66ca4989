//! Why a store was not copied or restored.

use std::fmt::Display;
use std::path::PathBuf;

use bursar_engine::ReplayError;
use bursar_engine::cut::CutError;
use bursar_journal::backup::CopyError;
use bursar_journal::{JournalError, RecordError};
use thiserror::Error;

/// Why a store was not copied or restored.
#[derive(Debug, Error)]
pub enum BackupError {
    /// It cannot be done, in words for the operator.
    #[error("{why}")]
    Refused {
        /// Why.
        why: String,
        /// What to do next.
        next: Option<String>,
        /// Whether the call was wrong.
        is_misuse: bool,
    },
    /// There is something where the copy should go.
    #[error("{0} is not empty: nothing is ever overwritten, choose another place")]
    NotEmpty(PathBuf),
    /// The copy is not a good journal.
    #[error("the copy is not a good journal: {0}")]
    Bad(String),
    /// A journal could not be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The journals do not belong together.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// A journal could not be opened or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A journal could not be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

impl BackupError {
    /// An error with what was being done and why it did not work.
    pub(super) fn new(doing: impl Display, cause: impl Display) -> BackupError {
        BackupError::because(format!("{doing}: {cause}"))
    }

    /// An error in these words.
    pub fn because(why: impl Into<String>) -> BackupError {
        BackupError::Refused { why: why.into(), next: None, is_misuse: false }
    }

    /// Says what to do next.
    pub(super) fn with_next(self, then: impl Into<String>) -> BackupError {
        match self {
            BackupError::Refused { why, is_misuse, .. } => {
                BackupError::Refused { why, next: Some(then.into()), is_misuse }
            }
            other => BackupError::because(other.to_string()).with_next(then),
        }
    }

    /// Says that the call was wrong.
    pub(super) fn into_misuse(self) -> BackupError {
        match self {
            BackupError::Refused { why, next, .. } => {
                BackupError::Refused { why, next, is_misuse: true }
            }
            other => BackupError::because(other.to_string()).into_misuse(),
        }
    }

    /// What to do next, if that is known.
    pub fn next(&self) -> Option<&str> {
        match self {
            BackupError::Refused { next, .. } => next.as_deref(),
            _ => None,
        }
    }

    /// Whether the call was wrong.
    pub fn is_misuse(&self) -> bool {
        matches!(self, BackupError::Refused { is_misuse: true, .. })
    }
}
