//! History: a projection of a ledger's journal into tables that answer questions.
//!
//! A follower feeds it journal records in order ([`History::apply`]); it keeps its position in the
//! same transaction, so feeding may stop anywhere and go on. It reads nothing but records, holds
//! nothing that is not in them, and lives in a file of its own: drop it, feed it again, and it has
//! the same content. Queries never touch the writer.
//!
//! Read in this order: [`entry`] (what a movement is), [`schema`] (the tables), [`project`] (from
//! events to rows), [`query`] (from questions to rows). [`database`] is the small trait behind which
//! a store is used; [`sqlite`] is the one there is.

mod blocks;
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

pub use entry::{Entry, EntryType};
pub use error::HistoryError;
pub use project::{Fed, History};
pub use query::{Cursor, Page};
pub use sqlite::Sqlite;
