//! Queries. Every list is read by key, never by offset, so that page 100 000 costs as much as page
//! 1.

pub(crate) mod archive;
mod audit;
mod cursor;
mod entries;
mod entry_names;
mod holds;
mod jobs;
mod movements;
mod names;
mod past;
mod search;
mod series;
mod spend;
mod spending;
mod statement;
mod usage;

pub use archive::Archived;
pub use audit::{AuditEntry, AuditFilter};
pub use cursor::{Cursor, Page};
pub use entries::{EntriesOf, EntryFilter, MAX_SUBTREE};
pub use jobs::PastJob;
pub use movements::{ListPart, PastMovement, Refunded, RefundsOf};
pub use names::Named;
pub use search::FoundName;
pub use series::{Metric, SpenderTotals};
pub use spend::{Interval, SpendBy, SpendLine, SpendReport, whole_hours};
pub use statement::{AsOf, Statement};
pub use usage::{AccountUsage, BudgetHistory, BurnHour, Ranked, TopBy};

use bursar_core::ledger::id::JobNo;

use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::project::History;

/// The maximum number of rows of a page.
pub const MAX_ROWS: u32 = 1000;

impl<D: Database> History<D> {
    /// Runs several reads that see the same records.
    fn at_one_position<T>(
        &self,
        read: impl FnOnce(&History<D>) -> Result<T, HistoryError>,
    ) -> Result<T, HistoryError> {
        self.database.begin_read()?;
        let found = read(self);
        self.database.commit()?;
        found
    }

    /// The number of the newest job with this name, if there was one.
    pub fn job_number(&self, tenant: u32, name: &str) -> Result<Option<JobNo>, HistoryError> {
        let rows = self.database.query(
            "SELECT number FROM jobs WHERE tenant = ?1 AND name = ?2 ORDER BY number DESC LIMIT 1",
            &[tenant.into(), name.into()],
        )?;
        let number = rows.into_iter().next().map(|row| Columns::of(row).integer()).transpose()?;
        Ok(number.map(|number| JobNo(number.cast_unsigned())))
    }

    /// The number of an account, if it exists.
    pub fn account_number(&self, path: &str) -> Result<Option<u32>, HistoryError> {
        let rows =
            self.database.query("SELECT number FROM accounts WHERE path = ?1", &[path.into()])?;
        rows.into_iter().next().map(|row| Columns::of(row).number()).transpose()
    }
}
