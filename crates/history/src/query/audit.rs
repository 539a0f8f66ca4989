//! Who asked for what.

use bursar_core::ledger::id::JobNo;
use bursar_core::time::Timestamp;
use bursar_journal::record::ledger::{CommandKind, RefusalCode};

use super::{Cursor, MOST_ROWS, Page};
use crate::database::{Columns, Database, Row};
use crate::error::HistoryError;
use crate::lists::{ListOf, decision, decision_parts, newest};
use crate::project::History;

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its record in the journal.
    pub position: u64,
    /// Its place in the record: 0, or more in a group.
    pub item: u32,
    /// When.
    pub at: Timestamp,
    /// Who asked; `None` if it fell due.
    pub actor: Option<String>,
    /// What was asked for.
    pub command: Option<CommandKind>,
    /// Why it was refused; `None` if it was not.
    pub refusal: Option<RefusalCode>,
    /// The names of the events, in order.
    pub events: Vec<String>,
}

/// Which decisions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AuditFilter {
    /// Those that concern an account or one below it.
    Account(u32),
    /// Those that concern a job.
    Job(JobNo),
    /// Those of one record.
    Position(u64),
    /// All.
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
        let limit = limit.clamp(1, MOST_ROWS);
        let after = after.unwrap_or(Cursor::START);
        let (sql, key): (&'static str, i64) = match filter {
            AuditFilter::Account(account) => return self.audit_of_account(account, after, limit),
            AuditFilter::Job(job) => (
                "SELECT r.position, r.item, r.at, r.actor, r.command, r.refusal, r.events
                 FROM record_jobs j
                 JOIN records r ON r.position = j.position AND r.item = j.item
                 WHERE j.job = ?1 AND (j.position, j.item) < (?2, ?3)
                 ORDER BY j.position DESC, j.item DESC LIMIT ?4",
                job.0.cast_signed(),
            ),
            AuditFilter::Position(position) => (
                "SELECT position, item, at, actor, command, refusal, events FROM records
                 WHERE position = ?1 AND (position, item) < (?2, ?3)
                 ORDER BY position DESC, item DESC LIMIT ?4",
                position.cast_signed(),
            ),
            AuditFilter::Everything => (
                "SELECT position, item, at, actor, command, refusal, events FROM records
                 WHERE ?1 = 0 AND (position, item) < (?2, ?3)
                 ORDER BY position DESC, item DESC LIMIT ?4",
                0,
            ),
        };
        let bounds =
            [key.into(), after.major.into(), after.minor.into(), i64::from(limit + 1).into()];
        let rows = self.database.query(sql, &bounds)?;
        audit_page(rows, limit)
    }

    fn audit_of_account(
        &self,
        account: u32,
        after: Cursor,
        limit: u32,
    ) -> Result<Page<AuditEntry>, HistoryError> {
        let below = match u64::try_from(after.major) {
            Ok(position) if after != Cursor::START => {
                decision(position, u32::try_from(after.minor).unwrap_or(u32::MAX))
            }
            _ => i64::MAX,
        };
        let list = [ListOf::Decisions(account)];
        let numbers = newest(&self.database, &list, (0, below), limit as usize + 1)?;
        let mut rows = Vec::with_capacity(numbers.len());
        for number in numbers {
            let (position, item) = decision_parts(number);
            rows.extend(self.database.query(
                "SELECT position, item, at, actor, command, refusal, events FROM records
                 WHERE position = ?1 AND item = ?2",
                &[position.into(), item.into()],
            )?);
        }
        audit_page(rows, limit)
    }
}

/// A page out of one row more than it has, if there are more.
fn audit_page(rows: Vec<Row>, limit: u32) -> Result<Page<AuditEntry>, HistoryError> {
    let mut data = rows.into_iter().map(audit_entry).collect::<Result<Vec<_>, _>>()?;
    let more = data.len() > limit as usize;
    data.truncate(limit as usize);
    let next = data
        .last()
        .filter(|_| more)
        .map(|last| Cursor { major: last.position.cast_signed(), minor: last.item.into() });
    Ok(Page { data, next })
}

fn audit_entry(row: Row) -> Result<AuditEntry, HistoryError> {
    let mut row = Columns::of(row);
    let unknown = |what: &str| HistoryError::inconsistent(format!("an unknown {what}"));
    Ok(AuditEntry {
        position: row.integer()?.cast_unsigned(),
        item: row.number()?,
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
