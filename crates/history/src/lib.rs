//! History: a projection of a ledger's journal into tables for queries.
//!
//! A follower feeds it journal records in order ([`History::apply`]). It stores its position in the
//! same transaction, so feeding can stop at any record and continue. It reads only records,
//! contains only what follows from them, and has its own file: if the file is deleted and the
//! journal is fed again, the content is the same. Queries never touch the writer.
//!
//! Read in this order: [`entry`] (what a movement is), [`schema`] (the tables), [`project`] (from
//! events to rows), [`query`] (from queries to rows). [`database`] is the trait of a store;
//! [`sqlite`] implements it.

mod blocks;
mod burn_rate;
pub mod database;
pub mod entry;
mod error;
mod levels;
mod lists;
pub mod project;
pub mod query;
pub mod schema;
pub mod sqlite;
pub mod sum;

pub use burn_rate::BurnRate;
pub use entry::{Changes, Entry, EntryType};
pub use error::HistoryError;
pub use project::{FedRecord, History};
pub use query::{Cursor, Page};
pub use sqlite::Sqlite;
