//! The auditor of a ledger's journal.
//!
//! [`verify`] recomputes the hash chain, decodes every record and derives every balance
//! independently: it shares neither the decoder nor the rules with the code that wrote the journal,
//! so the two do not share errors. [`proof`] proves single records and continued history to third
//! parties. [`check`] checks and exports a SQLite journal while it is in use.

mod books;
mod cell_names;
mod chain;
pub mod check;
pub mod export;
mod forms;
pub mod live;
mod malformed;
mod names;
mod node;
pub mod proof;
mod report;
mod segment;
pub mod source;
mod tail;
mod verify;

pub use live::LiveNumbers;
pub use report::{Problem, Report};
pub use source::{Batches, JournalSource, RawBatch, RawHead, Source, SourceError, SqliteSource};
pub use verify::{Progress, verify, verify_chain, verify_links};
