//! Lists of charges, refunds and transfers, also of those that the ledger has forgotten.

use bursar_core::ledger::event::Pieces;
use bursar_core::ledger::holds::hold::{Hold, HoldKind};
use bursar_core::ledger::refusal::Resource;
use bursar_core::time::Timestamp;

use super::entries::Entries;
use super::{Cursor, Page};
use crate::database::{Columns, Database, Row};
use crate::error::HistoryError;
use crate::lists::{EVERY_ACCOUNT, ListOf, newest};
use crate::project::{History, decode_pieces};

/// A refund or transfer as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastMovement {
    /// Whether it is a refund or a transfer.
    pub what: Resource,
    /// The number of its tenant.
    pub tenant: u32,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub at: Timestamp,
    /// The account that spent the refunded credits, or that the credits left.
    pub account: String,
    /// The account that received transferred credits.
    pub target: Option<String>,
    /// What was refunded.
    pub of: Option<Refunded>,
    /// The units of each part, in their order. Only the refund of a job has several parts.
    pub parts: Vec<Pieces>,
    /// Why it was refunded.
    pub reason: Option<String>,
    /// The caller's own reference.
    pub reference: Option<String>,
}

/// The hold or charge that a refund returned from; the newest, if there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refunded {
    /// Whether it is a hold or a charge.
    pub kind: HoldKind,
    /// Its name.
    pub name: String,
    /// The job that the hold paid for.
    pub job: Option<String>,
}

/// Selects refunds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefundsOf {
    /// Of a hold.
    Hold(String),
    /// Of a charge.
    Charge(String),
    /// Of a job, as a whole or of one of its holds.
    Job(String),
}

impl RefundsOf {
    fn admits(&self, refunded: &Refunded) -> bool {
        match self {
            RefundsOf::Hold(name) => refunded.kind == HoldKind::Hold && refunded.name == *name,
            RefundsOf::Charge(name) => refunded.kind == HoldKind::Charge && refunded.name == *name,
            RefundsOf::Job(name) => refunded.job.as_ref() == Some(name),
        }
    }
}

/// The part of a list between two instants, both included, after a cursor.
#[derive(Copy, Clone, Debug)]
pub struct ListPart {
    /// The instants.
    pub period: (Timestamp, Timestamp),
    /// The last row of the page before.
    pub after: Option<Cursor>,
    /// The most rows.
    pub limit: u32,
}

/// A movement and the names that it refers to.
const MOVEMENT: &str = "SELECT m.name, m.entry, a.path, t.path, m.pieces, m.reason, m.reference,
     h.kind, h.name, j.name
     FROM movements m
     JOIN accounts a ON a.number = m.account
     LEFT JOIN accounts t ON t.number = m.target
     LEFT JOIN holds h ON h.hold = m.hold
     LEFT JOIN jobs j ON j.number = h.job
     WHERE m.tenant = ?1 AND m.what = ?2 AND m.name = ?3";

impl<D: Database> History<D> {
    /// Charges of an account and all below it, or of all accounts, newest first.
    pub fn charges(
        &self,
        account: Option<u32>,
        part: ListPart,
    ) -> Result<Page<Hold>, HistoryError> {
        let list = ListOf::Charges(account.unwrap_or(EVERY_ACCOUNT));
        let mut entries = Entries::of(self);
        let charge = |number| {
            let missing = || HistoryError::inconsistent(format!("entry {number} has no charge"));
            let hold = entries.get(number)?.hold.ok_or_else(missing)?;
            self.hold_numbered(hold).map(Some)
        };
        self.page_of_list(list, part, charge)
    }

    /// Refunds of what an account and all below it spent, or all accounts, newest first.
    pub fn refunds(
        &self,
        account: Option<u32>,
        of: Option<&RefundsOf>,
        part: ListPart,
    ) -> Result<Page<PastMovement>, HistoryError> {
        let list = ListOf::Refunds(account.unwrap_or(EVERY_ACCOUNT));
        let admits = |made: &PastMovement| match (of, &made.of) {
            (Some(of), Some(refunded)) => of.admits(refunded),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let show = |number| Ok(Some(self.made_at(number)?).filter(admits));
        self.page_of_list(list, part, show)
    }

    /// Transfers from or to an account or one below it, or all accounts, newest first.
    pub fn transfers(
        &self,
        account: Option<u32>,
        part: ListPart,
    ) -> Result<Page<PastMovement>, HistoryError> {
        let list = ListOf::Transfers(account.unwrap_or(EVERY_ACCOUNT));
        self.page_of_list(list, part, |number| self.made_at(number).map(Some))
    }

    fn page_of_list<T>(
        &self,
        list: ListOf,
        ListPart { period, after, limit }: ListPart,
        show: impl FnMut(i64) -> Result<Option<T>, HistoryError>,
    ) -> Result<Page<T>, HistoryError> {
        let bounds = self.entry_bounds(period, after)?;
        let numbers = |bounds, limit| newest(&self.database, &[list], bounds, limit);
        self.page_of(numbers, bounds, limit, show)
    }

    /// The movement that an entry belongs to.
    fn made_at(&self, number: i64) -> Result<PastMovement, HistoryError> {
        let missing = || HistoryError::inconsistent(format!("entry {number} has no movement"));
        let entry = Entries::of(self).get(number)?;
        let (what, name) = (entry.kind.made_by(), entry.movement);
        let (what, name) = (what.ok_or_else(missing)?, name.ok_or_else(missing)?);
        let sql = "SELECT tenant FROM accounts WHERE number = ?1";
        let tenant = self.database.query(sql, &[entry.account.into()])?.into_iter().next();
        let tenant = Columns::of(tenant.ok_or_else(missing)?).number()?;
        self.movement(tenant, what, &name)?.ok_or_else(missing)
    }

    /// The refund or transfer of a tenant with this name.
    pub fn movement(
        &self,
        tenant: u32,
        what: Resource,
        name: &str,
    ) -> Result<Option<PastMovement>, HistoryError> {
        let rows =
            self.database.query(MOVEMENT, &[tenant.into(), (what as u32).into(), name.into()])?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let mut made = self.shown_movement(row, tenant, what)?;
        let parts = self.database.query(
            "SELECT pieces FROM movements WHERE tenant = ?1 AND what = ?2 AND name > ?3 AND name < ?4
             ORDER BY entry",
            &[
                tenant.into(),
                (what as u32).into(),
                format!("{name}/").as_str().into(),
                // The first text after all that begin with the name and a slash.
                format!("{name}0").as_str().into(),
            ],
        )?;
        for part in parts {
            made.parts.push(decode_pieces(&Columns::of(part).bytes()?)?);
        }
        Ok(Some(made))
    }

    fn shown_movement(
        &self,
        row: Row,
        tenant: u32,
        what: Resource,
    ) -> Result<PastMovement, HistoryError> {
        let mut row = Columns::of(row);
        let (name, entry) = (row.text()?, row.integer()?);
        let (account, target) = (row.text()?, row.maybe_text()?);
        let parts = vec![decode_pieces(&row.bytes()?)?];
        let (reason, reference) = (row.maybe_text()?, row.maybe_text()?);
        let (kind, hold, job) = (row.maybe_number()?, row.maybe_text()?, row.maybe_text()?);
        let of = match (kind, hold) {
            (Some(kind), Some(name)) if kind == HoldKind::Charge as u32 => {
                Some(Refunded { kind: HoldKind::Charge, name, job })
            }
            (Some(_), Some(name)) => Some(Refunded { kind: HoldKind::Hold, name, job }),
            (Some(_), None) | (None, _) => None,
        };
        let at = Entries::of(self).get(entry)?.at;
        Ok(PastMovement { what, tenant, name, at, account, target, of, parts, reason, reference })
    }
}
