//! Append-only, hash-chained storage of the machines' decisions.
//!
//! The journal of one machine is a sequence of *batches*, each written durably in one step. A batch
//! is one or more *records* ([`record`]). Records are numbered densely across batches. That number
//! is the `position` in the API. Every batch contains the hash of the one before ([`chain`]), so a
//! changed, missing or swapped batch is found and named.
//!
//! One trait, [`Journal`], has three implementations that pass one conformance suite: [`memory`]
//! with faults on demand, [`sqlite`] for one process, [`postgres`] for many. Old batches are sealed
//! into compressed [`segment`]s. [`merkle`] proves to third parties that history was not rewritten.
//! `docs/reference/journal-format.md` describes the stored form byte by byte.

pub mod archive;
pub mod chain;
mod error;
mod journal;
pub mod memory;
pub mod merkle;
pub mod postgres;
mod recent;
pub mod record;
pub mod segment;
pub mod snapshot;
pub mod sqlite;

pub use chain::{Chain, Epoch, Head, JournalId, StoredBatch};
pub use error::{AppendError, JournalError, LeaseError, SegmentFault, is_full};
pub use journal::{BatchReader, Journal, Lease, MaintenanceUrgency, Pending, RowSource};
pub use recent::Recent;
pub use record::{
    Batch, BatchBuilder, BuilderMark, Record, RecordError, RecordKind, RecordTooLarge,
};
pub use segment::{Sealing, SegmentMark};
pub use snapshot::{Snapshot, SnapshotMark};
pub use sqlite::backup;
