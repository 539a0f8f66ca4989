//! Names of the numbers in past events.

use bursar_core::ledger::id::JobNo;
use bursar_journal::record::ledger::decode_archived;

use super::audit::rows_of;
use crate::blocks::{BlocksOf, Reader};
use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::lists::decision;
use crate::project::{History, decode_holds};

/// The subject of an event: its name and its account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// The number of its account.
    pub account: u32,
}

impl<D: Database> History<D> {
    /// The holds of decisions, given by record and index in it. A decision has one hold for each
    /// event that [is about a hold](bursar_core::ledger::event::subject::Subject::Hold), in the order of
    /// these events.
    pub fn holds_of(&self, decided: &[(u64, u32)]) -> Result<Vec<Vec<Named>>, HistoryError> {
        let mut decisions = Reader::new(&self.database, BlocksOf::Decisions);
        let numbers = decided.iter().map(|(position, item)| decision(*position, *item)).collect();
        let rows = rows_of(&mut decisions, numbers)?;
        let holds = rows.into_iter().map(|(_, row)| {
            let holds = decode_holds(row.into_iter().nth(BlocksOf::HOLDS))?;
            holds.into_iter().map(|hold| self.named_hold(hold)).collect()
        });
        holds.collect()
    }

    fn named_hold(&self, hold: i64) -> Result<Named, HistoryError> {
        let sql = "SELECT record FROM holds WHERE hold = ?1";
        let missing = || HistoryError::inconsistent(format!("there is no hold {hold}"));
        let rows = self.database.query(sql, &[hold.into()])?;
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(missing)?);
        let hold = decode_archived(&row.bytes()?).map_err(HistoryError::inconsistent)?.hold;
        Ok(Named { name: hold.id.to_string(), account: hold.account.0 })
    }

    /// The name of a job, even if the ledger has forgotten it.
    pub fn named_job(&self, job: JobNo) -> Result<Option<Named>, HistoryError> {
        let sql = "SELECT name, account FROM jobs WHERE number = ?1";
        let rows = self.database.query(sql, &[job.0.cast_signed().into()])?;
        let named = |row| {
            let mut row = Columns::of(row);
            Ok(Named { name: row.text()?, account: row.number()? })
        };
        rows.into_iter().next().map(named).transpose()
    }
}
