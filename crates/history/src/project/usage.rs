//! Usage by account and hour, kept as it happens: top lists and burn rates only add rows up.

use bursar_core::time::Timestamp;

use super::History;
use super::cache::UsageRow;
use crate::database::{Columns, Database};
use crate::error::HistoryError;

/// Milliseconds in an hour.
const HOUR_MS: i64 = 3_600_000;

/// The hour that contains an instant, counted from 1970.
pub(crate) fn hour_of(at: Timestamp) -> i64 {
    at.millis().div_euclid(HOUR_MS)
}

impl<D: Database> History<D> {
    /// Adds usage to an account and to all above it.
    pub(super) fn use_subtree(
        &mut self,
        at: Timestamp,
        account: u32,
        usage: UsageRow,
    ) -> Result<(), HistoryError> {
        let mut next = Some(account);
        while let Some(account) = next {
            next = self.account(account)?.parent;
            let row = self.cache.usage.entry((hour_of(at), account)).or_default();
            row.spent += usage.spent;
            row.drawn += usage.drawn;
            row.gpu_ms += usage.gpu_ms;
        }
        Ok(())
    }

    /// Adds what was spent of an account's own credits.
    pub(super) fn count_burned(&mut self, at: Timestamp, account: u32, amount: i128) {
        self.cache.usage.entry((hour_of(at), account)).or_default().burned += amount;
    }

    /// What is written of an hour.
    fn usage_of(&self, kind: u32, hour: i64, account: u32) -> Result<UsageRow, HistoryError> {
        let rows = self.database.query(
            "SELECT spent, drawn, gpu_ms, burned FROM usage_hours
             WHERE kind = ?1 AND hour = ?2 AND account = ?3",
            &[kind.into(), hour.into(), account.into()],
        )?;
        let Some(row) = rows.into_iter().next() else { return Ok(UsageRow::default()) };
        let mut row = Columns::of(row);
        let (spent, drawn) = (row.sum()?, row.sum()?);
        Ok(UsageRow { spent, drawn, gpu_ms: row.sum()?, burned: row.sum()? })
    }

    pub(super) fn flush_usage(&mut self) -> Result<(), HistoryError> {
        let mut all: Vec<_> = self.cache.usage.drain().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        for ((hour, account), added) in all {
            let kind = self.account(account)?.kind;
            let written = match self.cache.usage_written.get(&(hour, account)) {
                Some(written) => *written,
                None => self.usage_of(kind, hour, account)?,
            };
            let sums = UsageRow {
                spent: written.spent + added.spent,
                drawn: written.drawn + added.drawn,
                gpu_ms: written.gpu_ms + added.gpu_ms,
                burned: written.burned + added.burned,
            };
            self.cache.usage_written.insert((hour, account), sums);
            self.database.execute(
                "INSERT INTO usage_hours VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (kind, hour, account) DO UPDATE SET spent = excluded.spent,
                 drawn = excluded.drawn, gpu_ms = excluded.gpu_ms, burned = excluded.burned",
                &[
                    kind.into(),
                    hour.into(),
                    account.into(),
                    sums.spent.into(),
                    sums.drawn.into(),
                    sums.gpu_ms.into(),
                    sums.burned.into(),
                ],
            )?;
        }
        Ok(())
    }
}
