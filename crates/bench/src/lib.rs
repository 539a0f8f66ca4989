//! What Bursar costs, measured on the parts that are shipped.
//!
//! Every measurement is repeated and given as a median with its spread; where there is a limit or a
//! peer, both are measured in turns in the same run, so that they meet the same machine. Every
//! benchmark ends by checking the laws. Timings are returned, never asserted.

pub mod core;
pub mod engine;
mod figure;
pub mod history;
mod load;
pub mod memory;
mod raw;
pub mod replay;
pub mod store;
mod world;

pub use figure::{Figure, load_average, resident_bytes};
pub use raw::sync_seconds;

use bursar_engine::{EngineError, ReplayError};
use bursar_journal::{AppendError, JournalError, LeaseError};
use thiserror::Error;

/// Why a benchmark gave no figures.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A file cannot be used.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A journal belongs to somebody else.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// A journal did not take a batch.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A journal cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The engine gave no answer.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// History cannot be used.
    #[error(transparent)]
    History(#[from] bursar_history::HistoryError),
    /// What was measured was wrong.
    #[error("the result is wrong: {0}")]
    Wrong(String),
}
