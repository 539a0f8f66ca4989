//! Lists of holds, also of those that the ledger has forgotten.

use bursar_core::ledger::holds::hold::Hold;

use super::archive::read;
use super::entries::visit;
use super::{Cursor, Page};
use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::lists::{EVERY_ACCOUNT, ListOf, newest};
use crate::project::History;

impl<D: Database> History<D> {
    /// Holds of an account and all below it, or of all accounts, newest first, filtered. A page may be short: a scan
    /// visits a bounded number of rows.
    pub fn holds(
        &self,
        account: Option<u32>,
        (after, limit): (Option<Cursor>, u32),
        admits: impl Fn(&Hold) -> bool,
    ) -> Result<Page<Hold>, HistoryError> {
        let list = ListOf::Holds(account.unwrap_or(EVERY_ACCOUNT));
        let numbers = |bounds, limit| newest(&self.database, &[list], bounds, limit);
        let below = after.map_or(i64::MAX, |after| after.minor);
        let show = |number| Ok(Some(self.hold_numbered(number)?).filter(&admits));
        let (data, next) = visit(numbers, (0, below), limit, show)?;
        Ok(Page { data, next: next.map(|minor| Cursor { major: 0, minor }) })
    }

    /// The hold or charge with this number in history.
    pub(super) fn hold_numbered(&self, number: i64) -> Result<Hold, HistoryError> {
        let sql = "SELECT record, digest FROM holds WHERE hold = ?1";
        let rows = self.database.query(sql, &[number.into()])?;
        let missing = || HistoryError::inconsistent(format!("there is no hold {number}"));
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(missing)?);
        let record = read(&row.bytes()?, &row.bytes()?, || format!("hold {number}"))?;
        Ok(record.hold)
    }
}
