//! The auditor of a ledger's journal.
//!
//! [`verify`] recomputes the hash chain, reads every record and re-derives every balance by code of
//! its own: it shares neither the decoder nor the rules with what wrote the journal, so that an
//! error there is not an error here. [`proof`] shows single records and continued history to
//! outsiders. [`check`] checks and exports a SQLite journal while it is in use.

mod books;
mod cell_names;
mod chain;
pub mod check;
pub mod export;
pub mod live;
mod names;
mod node;
pub mod proof;
mod report;
pub mod source;
mod tail;
mod verify;

pub use live::LiveNumbers;
pub use report::{Problem, Report};
pub use source::{Batches, JournalSource, RawBatch, RawHead, Source, SqliteSource};
pub use verify::{Progress, verify, verify_chain, verify_links};
