//! From questions to rows. Every list is read by key, never by offset, so that page 100 000 costs
//! what page 1 costs.

mod archive;
mod audit;
mod cursor;
mod entries;
mod past;
mod statement;
mod usage;

pub use archive::Archived;
pub use audit::{AuditEntry, AuditFilter};
pub use cursor::{Cursor, Page};
pub use entries::EntriesOf;
pub use statement::{AsOf, Statement};
pub use usage::{AccountUsage, BudgetHistory, BurnHour, Ranked, TopBy};

use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::project::History;

/// The most rows of one page.
pub const MOST_ROWS: u32 = 1000;

impl<D: Database> History<D> {
    /// The number of an account, if it exists.
    pub fn account_number(&self, path: &str) -> Result<Option<u32>, HistoryError> {
        let rows =
            self.database.query("SELECT number FROM accounts WHERE path = ?1", &[path.into()])?;
        rows.into_iter().next().map(|row| Columns::of(row).number()).transpose()
    }
}
