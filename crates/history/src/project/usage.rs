//! Usage by account and hour, maintained as records are applied. Top lists and burn rates only sum
//! rows.
//!
//! The last hour of an account is part of its state row, which changes anyway. Earlier hours have
//! their own rows.

use std::ops::AddAssign;

use bursar_core::time::Timestamp;

use super::History;
use crate::blocks::{Bytes, write_sum};
use crate::database::{Columns, Database};
use crate::error::HistoryError;

/// Milliseconds in an hour.
const HOUR_MS: i64 = 3_600_000;

/// The hour that contains an instant, counted from 1970.
pub(crate) fn hour_of(at: Timestamp) -> i64 {
    at.millis().div_euclid(HOUR_MS)
}

/// Usage in an hour: of the subtree, except `burned`, which counts the account's own grants.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) spent: i128,
    pub(crate) drawn: i128,
    pub(crate) gpu_ms: i128,
    pub(crate) burned: i128,
    /// The change of what the subtree holds. Counted in the totals, not by hour.
    pub(crate) held: i128,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.spent += other.spent;
        self.drawn += other.drawn;
        self.gpu_ms += other.gpu_ms;
        self.burned += other.burned;
        self.held += other.held;
    }
}

impl Usage {
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        for sum in [self.spent, self.drawn, self.gpu_ms, self.burned] {
            write_sum(bytes, sum);
        }
    }

    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Result<Usage, HistoryError> {
        let (spent, drawn) = (bytes.sum()?, bytes.sum()?);
        Ok(Usage { spent, drawn, gpu_ms: bytes.sum()?, burned: bytes.sum()?, held: 0 })
    }
}

impl<D: Database> History<D> {
    /// Adds usage to an account and all its ancestors.
    pub(super) fn use_subtree(
        &mut self,
        at: Timestamp,
        account: u32,
        usage: Usage,
    ) -> Result<(), HistoryError> {
        let mut next = Some(account);
        while let Some(account) = next {
            next = self.add_usage(at, account, usage)?;
        }
        Ok(())
    }

    /// Adds spending of an account's own credits.
    pub(super) fn count_burned(
        &mut self,
        at: Timestamp,
        account: u32,
        burned: i128,
    ) -> Result<(), HistoryError> {
        self.add_usage(at, account, Usage { burned, ..Usage::default() })?;
        Ok(())
    }

    /// Adds usage to an account. Returns its parent.
    fn add_usage(
        &mut self,
        at: Timestamp,
        account: u32,
        usage: Usage,
    ) -> Result<Option<u32>, HistoryError> {
        let hour = hour_of(at);
        let row = self.account(account)?;
        let parent = row.parent;
        row.state.totals.spent_by += usage.spent;
        row.state.totals.held_by += usage.held;
        row.dirty = true;
        let (before, used) = match row.hour {
            Some(last) if hour < last => (hour, usage),
            Some(last) if hour == last => {
                row.state.usage += usage;
                return Ok(parent);
            }
            last => {
                let used = std::mem::replace(&mut row.state.usage, usage);
                row.hour = Some(hour);
                let Some(last) = last else { return Ok(parent) };
                (last, used)
            }
        };
        *self.cache.usage.entry((before, account)).or_default() += used;
        Ok(parent)
    }

    /// The stored usage of a past hour.
    fn usage_of(&self, kind: u32, hour: i64, account: u32) -> Result<Usage, HistoryError> {
        let rows = self.database.query(
            "SELECT usage FROM usage_hours WHERE kind = ?1 AND hour = ?2 AND account = ?3",
            &[kind.into(), hour.into(), account.into()],
        )?;
        let Some(row) = rows.into_iter().next() else { return Ok(Usage::default()) };
        Usage::read(&mut Bytes(&Columns::of(row).bytes()?))
    }

    /// Writes usage added to past hours.
    pub(super) fn flush_usage(&mut self) -> Result<(), HistoryError> {
        let mut all: Vec<_> = self.cache.usage.drain().collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        let mut rows = Vec::with_capacity(all.len());
        for ((hour, account), added) in all {
            let kind = self.account(account)?.kind;
            let mut usage = self.usage_of(kind, hour, account)?;
            usage += added;
            let mut bytes = Vec::new();
            usage.write(&mut bytes);
            rows.push([kind.into(), hour.into(), account.into(), bytes.into()]);
        }
        self.database.execute_each(
            "INSERT INTO usage_hours VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (kind, hour, account) DO UPDATE SET usage = excluded.usage",
            &rows,
        )
    }
}
