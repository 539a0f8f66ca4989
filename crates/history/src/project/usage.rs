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

    pub(super) fn flush_usage(&mut self) -> Result<(), HistoryError> {
        for ((hour, account), added) in std::mem::take(&mut self.cache.usage) {
            let kind = self.account(account)?.kind;
            let key = [kind.into(), hour.into(), account.into()];
            let rows = self.database.query(
                "SELECT spent, drawn, gpu_ms, burned FROM usage_hours
                 WHERE kind = ?1 AND hour = ?2 AND account = ?3",
                &key,
            )?;
            let mut sums = added;
            if let Some(row) = rows.into_iter().next() {
                let mut row = Columns::of(row);
                sums.spent += row.sum()?;
                sums.drawn += row.sum()?;
                sums.gpu_ms += row.sum()?;
                sums.burned += row.sum()?;
            }
            let [kind, hour, account] = key;
            self.database.execute(
                "INSERT INTO usage_hours VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (kind, hour, account) DO UPDATE SET spent = excluded.spent,
                 drawn = excluded.drawn, gpu_ms = excluded.gpu_ms, burned = excluded.burned",
                &[
                    kind,
                    hour,
                    account,
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
