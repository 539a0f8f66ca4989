//! Usage: top lists, burn rates, budgets of past periods.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bursar_core::ledger::command::{AccountKind, BudgetMode, BudgetPeriod, BudgetUnit};
use bursar_core::time::Timestamp;

use super::spend::MAX_READ;
use crate::blocks::Bytes;
use crate::database::{Columns, Database, Row, Value};
use crate::error::HistoryError;
use crate::project::{History, Usage, decode_rest, hour_of};

/// The sort key of a top list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TopBy {
    /// Credits spent by the subtree in the window. A refund is subtracted in the hour in which it
    /// was made.
    Spent,
    /// GPU time of the subtree in the window, in milliseconds.
    GpuMs,
    /// Free credits of the account's own grants, now.
    Available,
    /// Credits of the account's own grants that are held, now.
    Held,
}

/// One line of a top list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The account.
    pub account: String,
    /// The value of the sort key.
    pub value: i128,
}

/// The usage of an account in a window of whole hours.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountUsage {
    /// Credits spent by the subtree.
    pub spent: i128,
    /// Credits drawn by the subtree, held or spent, counted when they were drawn. Credit budgets
    /// count these.
    pub drawn: i128,
    /// GPU time of the subtree, in milliseconds.
    pub gpu_ms: i128,
    /// The account's own credits that were spent, by any account.
    pub burned: i128,
}

/// One hour of a burn rate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BurnHour {
    /// When the hour began.
    pub from: Timestamp,
    /// The account's own credits that were spent.
    pub burned: i128,
}

/// A budget as it was last set, and its alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetHistory {
    /// Its name.
    pub name: String,
    /// Its limit, in the unit's millionths.
    pub limit: i128,
    /// The unit that it counts.
    pub unit: BudgetUnit,
    /// The period after which it resets.
    pub period: BudgetPeriod,
    /// The effect of reaching the limit.
    pub mode: BudgetMode,
    /// Minutes added to UTC to find the calendar period.
    pub utc_offset_minutes: i64,
    /// When it was last set.
    pub set_at: Timestamp,
    /// When it was removed, if it was.
    pub removed_at: Option<Timestamp>,
    /// For each threshold, when it was reached, its percentage and the usage at that time; oldest
    /// first.
    pub alerts: Vec<(Timestamp, u32, i128)>,
}

impl<D: Database> History<D> {
    /// The `k` accounts of a kind with the highest values. The window consists of whole hours and
    /// ends with the one that contains `to`. It does not apply to values as of now.
    pub fn top(
        &self,
        kind: AccountKind,
        by: TopBy,
        (from, to): (Timestamp, Timestamp),
        k: u32,
    ) -> Result<Vec<Ranked>, HistoryError> {
        match by {
            TopBy::Available => self.top_now(
                "SELECT available_class FROM accounts WHERE kind = ?1
                 ORDER BY available_class DESC LIMIT ?2",
                "SELECT path, available FROM accounts a
                 JOIN account_states s ON s.number = a.number
                 WHERE kind = ?1 AND available_class >= ?2
                 ORDER BY available DESC, a.number LIMIT ?3",
                kind,
                k,
            ),
            TopBy::Held => self.top_now(
                "SELECT held_class FROM accounts WHERE kind = ?1
                 ORDER BY held_class DESC LIMIT ?2",
                "SELECT path, held FROM accounts a
                 JOIN account_states s ON s.number = a.number
                 WHERE kind = ?1 AND held_class >= ?2
                 ORDER BY held DESC, a.number LIMIT ?3",
                kind,
                k,
            ),
            TopBy::Spent => self.top_window(|usage| usage.spent, kind, (from, to), k),
            TopBy::GpuMs => self.top_window(|usage| usage.gpu_ms, kind, (from, to), k),
        }
    }

    /// Like [`History::top`], of an account and those below it. Reads nothing of other accounts.
    ///
    /// # Errors
    /// [`HistoryError::TooMuch`] if they have too many hours of usage in the window.
    pub fn top_below(
        &self,
        root: &str,
        kind: AccountKind,
        by: TopBy,
        (from, to): (Timestamp, Timestamp),
        k: u32,
    ) -> Result<Vec<Ranked>, HistoryError> {
        let below = format!("{root}:");
        // A semicolon follows the colon, so that the bound is above all paths below the root.
        let end = format!("{root};");
        let mut about: Vec<Value> =
            vec![root.into(), below.as_str().into(), end.as_str().into(), (kind as u32).into()];
        let counted: fn(Usage) -> i128 = match by {
            TopBy::Available => {
                about.push(k.into());
                return self.ranked(
                    "SELECT path, available FROM accounts a
                     JOIN account_states s ON s.number = a.number
                     WHERE (path = ?1 OR path >= ?2 AND path < ?3) AND kind = ?4
                     ORDER BY available DESC, a.number LIMIT ?5",
                    &about,
                );
            }
            TopBy::Held => {
                about.push(k.into());
                return self.ranked(
                    "SELECT path, held FROM accounts a
                     JOIN account_states s ON s.number = a.number
                     WHERE (path = ?1 OR path >= ?2 AND path < ?3) AND kind = ?4
                     ORDER BY held DESC, a.number LIMIT ?5",
                    &about,
                );
            }
            TopBy::Spent => |usage| usage.spent,
            TopBy::GpuMs => |usage| usage.gpu_ms,
        };
        let sql = "SELECT u.account, u.usage, NULL
                   FROM accounts a JOIN usage_hours u ON u.account = a.number
                   WHERE (a.path = ?1 OR a.path >= ?2 AND a.path < ?3) AND a.kind = ?4
                   AND u.hour >= ?5 AND u.hour <= ?6
                   UNION ALL SELECT a.number, NULL, rest FROM accounts a
                   JOIN account_states s ON s.number = a.number
                   WHERE (path = ?1 OR path >= ?2 AND path < ?3) AND a.kind = ?4
                   AND a.hour >= ?5 AND a.hour <= ?6 LIMIT ?7";
        let most = i64::try_from(MAX_READ + 1).unwrap_or(i64::MAX);
        about.extend([hour_of(from).into(), hour_of(to).into(), most.into()]);
        let rows = self.database.query(sql, &about)?;
        if rows.len() > MAX_READ {
            return Err(HistoryError::TooMuch { most: MAX_READ });
        }
        self.highest(rows, counted, k)
    }

    fn ranked(&self, sql: &'static str, about: &[Value]) -> Result<Vec<Ranked>, HistoryError> {
        let ranked = |row: Row| {
            let mut row = Columns::of(row);
            Ok(Ranked { account: row.text()?, value: row.sum()? })
        };
        self.database.query(sql, about)?.into_iter().map(ranked).collect()
    }

    /// The `k` accounts with the highest values now: first by the class of the `k`-th, then
    /// exactly.
    fn top_now(
        &self,
        classes: &'static str,
        exact: &'static str,
        kind: AccountKind,
        k: u32,
    ) -> Result<Vec<Ranked>, HistoryError> {
        let kind = kind as u32;
        let Some(last) = self.database.query(classes, &[kind.into(), k.into()])?.pop() else {
            return Ok(Vec::new());
        };
        let least = Columns::of(last).integer()?;
        self.ranked(exact, &[kind.into(), least.into(), k.into()])
    }

    fn top_window(
        &self,
        counted: fn(Usage) -> i128,
        kind: AccountKind,
        (from, to): (Timestamp, Timestamp),
        k: u32,
    ) -> Result<Vec<Ranked>, HistoryError> {
        let sql = "SELECT account, usage, NULL FROM usage_hours
                   WHERE kind = ?1 AND hour >= ?2 AND hour <= ?3
                   UNION ALL SELECT a.number, NULL, rest FROM accounts a
                   JOIN account_states s ON s.number = a.number
                   WHERE kind = ?1 AND hour >= ?2 AND hour <= ?3";
        let window = [(kind as u32).into(), hour_of(from).into(), hour_of(to).into()];
        self.highest(self.database.query(sql, &window)?, counted, k)
    }

    /// The `k` accounts with the highest sums of usage.
    fn highest(
        &self,
        rows: Vec<Row>,
        counted: fn(Usage) -> i128,
        k: u32,
    ) -> Result<Vec<Ranked>, HistoryError> {
        let mut sums: BTreeMap<u32, i128> = BTreeMap::new();
        for row in rows {
            let mut row = Columns::of(row);
            let (account, usage) = (row.number()?, usage_of(&mut row)?);
            *sums.entry(account).or_default() += counted(usage);
        }
        let mut ranked: Vec<(u32, i128)> = sums.into_iter().filter(|(_, sum)| *sum > 0).collect();
        ranked.sort_unstable_by_key(|(account, sum)| (Reverse(*sum), *account));
        ranked.truncate(k as usize);
        ranked
            .into_iter()
            .map(|(account, value)| Ok(Ranked { account: self.account_path(account)?, value }))
            .collect()
    }

    pub(super) fn account_path(&self, number: u32) -> Result<String, HistoryError> {
        let rows =
            self.database.query("SELECT path FROM accounts WHERE number = ?1", &[number.into()])?;
        let missing = || HistoryError::inconsistent(format!("there is no account {number}"));
        Columns::of(rows.into_iter().next().ok_or_else(missing)?).text()
    }

    /// The usage of an account in the whole hours from that of `from` to that of `to`.
    pub fn usage(
        &self,
        account: u32,
        (from, to): (Timestamp, Timestamp),
    ) -> Result<AccountUsage, HistoryError> {
        let mut sums = Usage::default();
        for (_, usage) in self.hours(account, (from, to))? {
            sums += usage;
        }
        let Usage { spent, drawn, gpu_ms, burned, held: _ } = sums;
        Ok(AccountUsage { spent, drawn, gpu_ms, burned })
    }

    /// The hours in which an account had usage, oldest first. The last one is in its state row.
    pub(super) fn hours(
        &self,
        account: u32,
        (from, to): (Timestamp, Timestamp),
    ) -> Result<Vec<(i64, Usage)>, HistoryError> {
        // One statement, because between two the last hour could move from one table to the other.
        let rows = self.database.query(
            "SELECT hour, usage, NULL FROM usage_hours
             WHERE account = ?1 AND hour >= ?2 AND hour <= ?3
             UNION ALL SELECT hour, NULL, rest FROM accounts a
             JOIN account_states s ON s.number = a.number
             WHERE a.number = ?1 AND hour >= ?2 AND hour <= ?3 ORDER BY hour",
            &[account.into(), hour_of(from).into(), hour_of(to).into()],
        )?;
        let hour = |row: Row| {
            let mut row = Columns::of(row);
            Ok((row.integer()?, usage_of(&mut row)?))
        };
        rows.into_iter().map(hour).collect()
    }

    /// The account's own credits that were spent, hour by hour, oldest first. Hours without
    /// spending are left out. The input of a forecast.
    pub fn burn(
        &self,
        account: u32,
        (from, to): (Timestamp, Timestamp),
    ) -> Result<Vec<BurnHour>, HistoryError> {
        let hours = self.hours(account, (from, to))?.into_iter();
        let burned = hours.filter(|(_, usage)| usage.burned != 0).map(|(hour, usage)| BurnHour {
            from: Timestamp::from_millis(hour.saturating_mul(3_600_000)),
            burned: usage.burned,
        });
        Ok(burned.collect())
    }

    /// The budgets that an account has or had, by name.
    pub fn budgets(&self, account: u32) -> Result<Vec<BudgetHistory>, HistoryError> {
        let rows = self.database.query(
            "SELECT name, budget_limit, unit, period, mode, utc_offset_minutes, set_at, removed_at
             FROM budgets WHERE account = ?1 ORDER BY name",
            &[account.into()],
        )?;
        rows.into_iter().map(|row| self.budget(account, row)).collect()
    }

    /// The accounts that have a budget, among an account and all below it; at most so many.
    pub fn accounts_with_budgets(&self, root: u32, most: usize) -> Result<Vec<u32>, HistoryError> {
        let path = self.account_path(root)?;
        let rows = self.database.query(
            "SELECT DISTINCT a.number FROM accounts a JOIN budgets b ON b.account = a.number
             WHERE (a.number = ?1 OR a.path >= ?2 AND a.path < ?3) AND b.removed_at IS NULL
             ORDER BY a.path LIMIT ?4",
            &[
                root.into(),
                format!("{path}:").as_str().into(),
                // The first text after all that begin with the path and a colon.
                format!("{path};").as_str().into(),
                i64::try_from(most).unwrap_or(i64::MAX).into(),
            ],
        )?;
        rows.into_iter().map(|row| Columns::of(row).number()).collect()
    }

    fn budget(&self, account: u32, row: Row) -> Result<BudgetHistory, HistoryError> {
        let mut row = Columns::of(row);
        let name = row.text()?;
        let unknown = || HistoryError::inconsistent("a budget of an unknown kind");
        let budget = BudgetHistory {
            limit: row.sum()?,
            unit: pick(&[BudgetUnit::Credits, BudgetUnit::GpuHours], row.number()?)
                .ok_or_else(unknown)?,
            period: pick(
                &[BudgetPeriod::Total, BudgetPeriod::Day, BudgetPeriod::Week, BudgetPeriod::Month],
                row.number()?,
            )
            .ok_or_else(unknown)?,
            mode: pick(&[BudgetMode::Hard, BudgetMode::Soft], row.number()?).ok_or_else(unknown)?,
            utc_offset_minutes: row.integer()?,
            set_at: Timestamp::from_millis(row.integer()?),
            removed_at: row.maybe_integer()?.map(Timestamp::from_millis),
            alerts: self.alerts(account, &name)?,
            name,
        };
        Ok(budget)
    }

    fn alerts(
        &self,
        account: u32,
        name: &str,
    ) -> Result<Vec<(Timestamp, u32, i128)>, HistoryError> {
        let rows = self.database.query(
            "SELECT at, percent, used FROM budget_alerts WHERE account = ?1 AND name = ?2
             ORDER BY position, percent",
            &[account.into(), name.into()],
        )?;
        let alert = |row: Row| {
            let mut row = Columns::of(row);
            Ok((Timestamp::from_millis(row.integer()?), row.number()?, row.sum()?))
        };
        rows.into_iter().map(alert).collect()
    }
}

/// The usage of a past hour, or of the last hour, which is part of the account's state row.
pub(super) fn usage_of(row: &mut Columns) -> Result<Usage, HistoryError> {
    match (row.maybe_bytes()?, row.maybe_bytes()?) {
        (Some(over), _) => Usage::read(&mut Bytes(&over)),
        (None, Some(rest)) => Ok(decode_rest(&rest)?.1),
        (None, None) => Err(HistoryError::inconsistent("an hour without usage")),
    }
}

fn pick<T: Copy>(choices: &[T], number: u32) -> Option<T> {
    choices.get(number as usize).copied()
}
