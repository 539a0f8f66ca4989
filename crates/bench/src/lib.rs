//! Benchmarks of Bursar, run on the shipped code.
//!
//! Every measurement is repeated and reported as a median with its spread. Where there is a limit
//! or a peer, both are measured in turns in the same run, so that both see the same machine. Every
//! benchmark ends with a check of the invariants. Timings are returned, never asserted.

pub mod core;
pub mod engine;
mod figure;
pub mod history;
mod load;
pub mod memory;
mod raw;
pub mod replay;
pub mod segments;
pub mod soak;
pub mod start;
pub mod store;
mod world;

pub use figure::{Figure, load_average, resident_bytes};
pub use raw::sync_seconds;

use bursar_engine::{EngineError, ReplayError};
use bursar_journal::{AppendError, JournalError, LeaseError};
use thiserror::Error;

/// The reason why a benchmark gave no figures.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A file cannot be used.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another owner has the lease of a journal.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// A journal rejected a batch.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A journal cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The engine did not answer.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// History cannot be used.
    #[error(transparent)]
    History(#[from] bursar_history::HistoryError),
    /// The measured code gave a wrong result.
    #[error("the result is wrong: {0}")]
    Wrong(String),
}
