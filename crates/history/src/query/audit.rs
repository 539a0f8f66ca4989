//! The audit trail: actors, commands and their outcomes.

use bursar_core::ledger::id::JobNo;
use bursar_core::time::Timestamp;
use bursar_journal::record::ledger::{CommandKind, RefusalCode};

use super::{Cursor, MAX_ROWS, Page};
use crate::blocks::{BlocksOf, Numbered, Reader};
use crate::database::{Columns, Database, Row};
use crate::error::HistoryError;
use crate::lists::{decision, decision_parts, newest_decisions};
use crate::project::History;

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its record in the journal.
    pub position: u64,
    /// Its index in the record: 0, or more in a group.
    pub item: u32,
    /// When it was made.
    pub at: Timestamp,
    /// The actor; `None` for a timer.
    pub actor: Option<String>,
    /// The command.
    pub command: Option<CommandKind>,
    /// The refusal; `None` if it was accepted.
    pub refusal: Option<RefusalCode>,
    /// The names of the events, in order.
    pub events: Vec<String>,
}

impl AuditEntry {
    /// The place after it, in a list with the newest first.
    pub fn cursor(&self) -> Cursor {
        Cursor { major: self.position.cast_signed(), minor: self.item.into() }
    }
}

impl Cursor {
    /// The place of a record and an item of it.
    pub fn of_record((position, item): (u64, u32)) -> Cursor {
        Cursor { major: position.cast_signed(), minor: item.into() }
    }

    /// The record and the item, if it is the cursor of an audit trail.
    pub fn record(self) -> Option<(u64, u32)> {
        Some((u64::try_from(self.major).ok()?, u32::try_from(self.minor).ok()?))
    }

    /// The place before all items of a record, in a list with the newest first.
    pub fn before_record(position: u64) -> Cursor {
        let next = position.saturating_add(1).min(i64::MAX.cast_unsigned());
        Cursor { major: next.cast_signed(), minor: 0 }
    }
}

/// Selects decisions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AuditFilter {
    /// Decisions that concern an account or one below it.
    Account(u32),
    /// Decisions that concern a job.
    Job(JobNo),
    /// Decisions of one record.
    Position(u64),
    /// All decisions.
    Everything,
}

impl<D: Database> History<D> {
    /// Decisions, newest first.
    pub fn audit(
        &self,
        filter: AuditFilter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<AuditEntry>, HistoryError> {
        let limit = limit.clamp(1, MAX_ROWS);
        let below = match after {
            None => i64::MAX,
            Some(Cursor { major, minor }) => {
                let item = u32::try_from(minor).map_err(|_| HistoryError::BadCursor)?;
                decision(u64::try_from(major).map_err(|_| HistoryError::BadCursor)?, item)
            }
        };
        let wanted = limit as usize + 1;
        let mut decisions = Reader::new(&self.database, BlocksOf::Decisions);
        let rows = match filter {
            AuditFilter::Everything => decisions.newest((0, below), wanted)?,
            AuditFilter::Position(position) => {
                let next = decision(position.saturating_add(1), 0);
                decisions.newest((decision(position, 0), below.min(next)), wanted)?
            }
            AuditFilter::Account(account) => {
                // Up to the committed position. A later decision could be in one list and not yet
                // in the other.
                let kept = decision(self.position()?.saturating_add(1), 0);
                let numbers = newest_decisions(&self.database, account, below.min(kept), wanted)?;
                rows_of(&mut decisions, numbers)?
            }
            AuditFilter::Job(job) => {
                let numbers = self.decisions_on_job(job, below, wanted)?;
                rows_of(&mut decisions, numbers)?
            }
        };
        audit_page(rows, limit)
    }

    /// The decisions below a number that concern a job, newest first.
    pub(super) fn decisions_on_job(
        &self,
        job: JobNo,
        below: i64,
        limit: usize,
    ) -> Result<Vec<i64>, HistoryError> {
        let (position, item) = decision_parts(below);
        let rows = self.database.query(
            "SELECT position, item FROM record_jobs
             WHERE job = ?1 AND (position, item) < (?2, ?3)
             ORDER BY position DESC, item DESC LIMIT ?4",
            &[
                job.0.cast_signed().into(),
                position.into(),
                item.into(),
                i64::try_from(limit).unwrap_or(i64::MAX).into(),
            ],
        )?;
        let number = |row: Row| {
            let mut row = Columns::of(row);
            Ok(decision(row.integer()?.cast_unsigned(), row.number()?))
        };
        rows.into_iter().map(number).collect()
    }
}

/// The decisions with these numbers.
pub(super) fn rows_of<D: Database>(
    decisions: &mut Reader<'_, D>,
    numbers: Vec<i64>,
) -> Result<Vec<Numbered>, HistoryError> {
    let row = |number: i64| {
        let missing = || HistoryError::inconsistent(format!("there is no decision {number}"));
        Ok((number, decisions.row(number)?.ok_or_else(missing)?))
    };
    numbers.into_iter().map(row).collect()
}

/// Makes a page of rows. One row more than `limit` means that there is a next page.
fn audit_page(rows: Vec<Numbered>, limit: u32) -> Result<Page<AuditEntry>, HistoryError> {
    let mut data = rows.into_iter().map(audit_entry).collect::<Result<Vec<_>, _>>()?;
    let more = data.len() > limit as usize;
    data.truncate(limit as usize);
    let next = data
        .last()
        .filter(|_| more)
        .map(|last| Cursor { major: last.position.cast_signed(), minor: last.item.into() });
    Ok(Page { data, next })
}

pub(super) fn audit_entry((number, row): Numbered) -> Result<AuditEntry, HistoryError> {
    let (position, item) = decision_parts(number);
    let mut row = Columns::of(row);
    let unknown = |what: &str| HistoryError::inconsistent(format!("an unknown {what}"));
    Ok(AuditEntry {
        position: position.cast_unsigned(),
        item: u32::try_from(item).map_err(HistoryError::inconsistent)?,
        at: Timestamp::from_millis(row.integer()?),
        actor: row.maybe_text()?,
        command: match row.maybe_number()? {
            None => None,
            Some(kind) => {
                Some(*CommandKind::ALL.get(kind as usize).ok_or_else(|| unknown("command"))?)
            }
        },
        refusal: match row.maybe_number()? {
            None => None,
            Some(code) => {
                Some(*RefusalCode::ALL.get(code as usize).ok_or_else(|| unknown("refusal"))?)
            }
        },
        events: row.text()?.split_whitespace().map(str::to_owned).collect(),
    })
}
