//! Accounts: their identity, which hardly changes, and their state, which changes often and has a
//! short row of its own.

use super::History;
use super::usage::Usage;
use crate::blocks::{Bytes, write_sum};
use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::sum;

/// The current state of an account.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AccountState {
    pub(super) available: i128,
    pub(super) held: i128,
    pub(super) uncollected: i128,
    /// The usage in the last hour with usage.
    pub(super) usage: Usage,
    pub(super) totals: Totals,
}

/// Totals of an account since it was opened.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Held by the subtree now, whichever account owns the credits.
    pub(crate) held_by: i128,
    /// Spent by the subtree, whichever account owns the credits.
    pub(crate) spent_by: i128,
    /// Its own credits that entered, less those that left: available, held and spent.
    pub(crate) funded: i128,
    /// Its own credits that expired.
    pub(crate) expired: i128,
}

impl AccountState {
    /// The fields that no query sorts by.
    fn encode_rest(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48);
        write_sum(&mut bytes, self.uncollected);
        self.usage.write(&mut bytes);
        let Totals { held_by, spent_by, funded, expired } = self.totals;
        for sum in [held_by, spent_by, funded, expired] {
            write_sum(&mut bytes, sum);
        }
        bytes
    }

    /// The index key: the classes of the available and the held amount.
    fn classes(&self) -> (i64, i64) {
        (sum::class(self.available), sum::class(self.held))
    }
}

/// The uncollected amount, the usage in the last hour, and the totals.
pub(crate) fn decode_rest(bytes: &[u8]) -> Result<(i128, Usage, Totals), HistoryError> {
    let mut bytes = Bytes(bytes);
    let (uncollected, usage) = (bytes.sum()?, Usage::read(&mut bytes)?);
    let (held_by, spent_by) = (bytes.sum()?, bytes.sum()?);
    let (funded, expired) = (bytes.sum()?, bytes.sum()?);
    Ok((uncollected, usage, Totals { held_by, spent_by, funded, expired }))
}

pub(super) struct AccountRow {
    pub(super) kind: u32,
    pub(super) parent: Option<u32>,
    pub(super) tenant: u32,
    pub(super) state: AccountState,
    /// The last hour with usage.
    pub(super) hour: Option<i64>,
    /// The stored values of the classes and the hour.
    indexed: ((i64, i64), Option<i64>),
    pub(super) dirty: bool,
}

impl AccountRow {
    fn load(database: &impl Database, number: u32) -> Result<AccountRow, HistoryError> {
        let rows = database.query(
            "SELECT kind, parent, tenant, hour, available, held, rest FROM accounts
             JOIN account_states ON account_states.number = accounts.number
             WHERE accounts.number = ?1",
            &[number.into()],
        )?;
        let missing = || HistoryError::inconsistent(format!("there is no account {number}"));
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(missing)?);
        let (kind, parent, tenant) = (row.number()?, row.maybe_number()?, row.number()?);
        let (hour, available, held) = (row.maybe_integer()?, row.sum()?, row.sum()?);
        let (uncollected, usage, totals) = decode_rest(&row.bytes()?)?;
        let state = AccountState { available, held, uncollected, usage, totals };
        let indexed = (state.classes(), hour);
        Ok(AccountRow { kind, parent, tenant, state, hour, indexed, dirty: false })
    }
}

impl<D: Database> History<D> {
    pub(super) fn account(&mut self, number: u32) -> Result<&mut AccountRow, HistoryError> {
        self.cache.accounts.touch(number, || AccountRow::load(&self.database, number))
    }

    /// Adds an account without credits.
    pub(super) fn add_account(
        &mut self,
        number: u32,
        path: &str,
        kind: u32,
        parent: Option<u32>,
    ) -> Result<(), HistoryError> {
        let tenant = match parent {
            None => number,
            Some(parent) => self.account(parent)?.tenant,
        };
        let state = AccountState::default();
        let (available_class, held_class) = state.classes();
        self.database.execute(
            "INSERT INTO accounts VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6, ?7)",
            &[
                number.into(),
                path.into(),
                kind.into(),
                parent.into(),
                tenant.into(),
                available_class.into(),
                held_class.into(),
            ],
        )?;
        self.database.execute(
            "INSERT INTO account_states VALUES (?1, ?2, ?2, ?3)",
            &[number.into(), 0i128.into(), state.encode_rest().into()],
        )?;
        let indexed = (state.classes(), None);
        let row = AccountRow { kind, parent, tenant, state, hour: None, indexed, dirty: false };
        self.cache.accounts.insert(number, row);
        Ok(())
    }

    /// Writes the accounts that changed.
    pub(super) fn flush_accounts(&mut self) -> Result<(), HistoryError> {
        let (mut states, mut indexed) = (Vec::new(), Vec::new());
        for number in self.cache.accounts.take_touched() {
            let row = self.cache.accounts.get_mut(number).filter(|row| row.dirty);
            let Some(row) = row else { continue };
            let state = &row.state;
            states.push([
                number.into(),
                state.available.into(),
                state.held.into(),
                state.encode_rest().into(),
            ]);
            let now = (row.state.classes(), row.hour);
            if now != row.indexed {
                let ((available, held), hour) = now;
                indexed.push([number.into(), hour.into(), available.into(), held.into()]);
                row.indexed = now;
            }
            row.dirty = false;
        }
        self.database.execute_each(
            "UPDATE account_states SET available = ?2, held = ?3, rest = ?4 WHERE number = ?1",
            &states,
        )?;
        self.database.execute_each(
            "UPDATE accounts SET hour = ?2, available_class = ?3, held_class = ?4
             WHERE number = ?1",
            &indexed,
        )
    }
}
