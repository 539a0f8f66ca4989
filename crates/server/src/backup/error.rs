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
    /// It cannot be done, as a text for the operator.
    #[error("{why}")]
    Refused {
        /// The reason.
        why: String,
        /// What to do next.
        next: Option<String>,
        /// Whether the command was used wrongly.
        is_misuse: bool,
    },
    /// The target is not empty.
    #[error("{0} is not empty: nothing is ever overwritten, choose another place")]
    NotEmpty(PathBuf),
    /// The copy is not a valid journal.
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
    /// An error with the operation and its cause.
    pub(super) fn new(doing: impl Display, cause: impl Display) -> BackupError {
        BackupError::because(format!("{doing}: {cause}"))
    }

    /// An error with this text.
    pub fn because(why: impl Into<String>) -> BackupError {
        BackupError::Refused { why: why.into(), next: None, is_misuse: false }
    }

    /// Adds what to do next.
    pub(super) fn with_next(self, then: impl Into<String>) -> BackupError {
        match self {
            BackupError::Refused { why, is_misuse, .. } => {
                BackupError::Refused { why, next: Some(then.into()), is_misuse }
            }
            other => BackupError::because(other.to_string()).with_next(then),
        }
    }

    /// Marks the error as a wrong use of the command.
    pub(super) fn into_misuse(self) -> BackupError {
        match self {
            BackupError::Refused { why, next, .. } => {
                BackupError::Refused { why, next, is_misuse: true }
            }
            other => BackupError::because(other.to_string()).into_misuse(),
        }
    }

    /// What to do next, if known.
    pub fn next(&self) -> Option<&str> {
        match self {
            BackupError::Refused { next, .. } => next.as_deref(),
            _ => None,
        }
    }

    /// Whether the command was used wrongly.
    pub fn is_misuse(&self) -> bool {
        matches!(self, BackupError::Refused { is_misuse: true, .. })
    }
}
