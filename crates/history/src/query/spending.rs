//! Spending of a subtree between any two instants.
//!
//! Whole hours come from the sums by hour, the rest of the first and the last hour from entries. So
//! a long period is as cheap as a report, and the sum is exact to the millisecond.

use std::collections::BTreeMap;

use bursar_core::time::Timestamp;

use super::entries::{Entries, Stored, is_within};
use super::spend::{Groups, HOUR_MS, MAX_READ, Periods, SpendBy, SpendReport, report};
use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::lists::{ListOf, newest};
use crate::project::{History, Purpose};

/// Of so many entries all are looked at, whatever account they are of.
const FEW_ENTRIES: usize = 4096;

impl<D: Database> History<D> {
    /// What an account and all below it spent, by period and group, exact to the millisecond. The `k`
    /// largest groups are listed. `starts` are the starts of the periods: the first any instant, the
    /// others whole hours; the last period ends before `to`.
    ///
    /// # Errors
    /// [`HistoryError::PartsOfHours`] if the account and all below it have too many entries in a part
    /// of an hour at an end. Whole hours, and the hour that has not ended, have no such bound.
    pub fn spending(
        &self,
        account: u32,
        by: &SpendBy,
        period: (&[Timestamp], Timestamp),
        k: usize,
    ) -> Result<SpendReport, HistoryError> {
        self.spending_within(account, by, period, k, MAX_READ)
    }

    /// Like [`History::spending`], with another bound on the entries of a part of an hour.
    ///
    /// # Errors
    /// As there.
    pub fn spending_within(
        &self,
        account: u32,
        by: &SpendBy,
        (starts, to): (&[Timestamp], Timestamp),
        k: usize,
        most: usize,
    ) -> Result<SpendReport, HistoryError> {
        let Some(from) = starts.first().copied() else {
            return Ok(report(Groups::default(), Vec::new(), k));
        };
        self.at_one_position(|history| {
            let periods = Periods(starts);
            let mut total = vec![0; starts.len()];
            let after = history.entry_bounds((to, Timestamp::MAX), None)?;
            // Nothing follows: the hour is whole as far as it is known.
            let to = if after.0 >= after.1 { next_hour(to) } else { to };
            let (first, last) = (next_hour(from), this_hour(to));
            let mut groups = Groups::default();
            let mut ends = vec![(from, to)];
            if first < last {
                let hours = (first, last.plus_millis(-1));
                for (hour, usage) in history.hours(account, hours)? {
                    total[periods.of(hour)] += usage.spent;
                }
                groups = history.groups(account, by, hours, &periods)?;
                ends = vec![(from, first), (last, to)];
            }
            let mut edge = Edge::new(history, account, by, most)?;
            for (from, to) in ends {
                edge.add(&mut groups, &mut total, &periods, (from, to))?;
            }
            Ok(report(groups, total, k))
        })
    }
}

fn this_hour(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.millis().div_euclid(HOUR_MS).saturating_mul(HOUR_MS))
}

fn next_hour(at: Timestamp) -> Timestamp {
    this_hour(at.plus_millis(HOUR_MS - 1))
}

/// Adds entries to groups.
struct Edge<'a, D> {
    history: &'a History<D>,
    account: u32,
    root: String,
    /// The most entries of one part of an hour.
    most: usize,
    by: &'a SpendBy,
    /// The paths of spenders in the subtree, `None` for others.
    spenders: BTreeMap<u32, Option<String>>,
    /// The groups of holds.
    holds: BTreeMap<i64, Option<String>>,
}

impl<'a, D: Database> Edge<'a, D> {
    fn new(
        history: &'a History<D>,
        account: u32,
        by: &'a SpendBy,
        most: usize,
    ) -> Result<Self, HistoryError> {
        let (spenders, holds) = (BTreeMap::new(), BTreeMap::new());
        let root = history.account_path(account)?;
        Ok(Edge { history, account, root, most, by, spenders, holds })
    }

    /// The entries between two numbers that may be of a spender in the subtree. Among few entries all
    /// are looked at; among many those of the subtree's own lists, so that entries of other tenants
    /// neither count nor cost.
    fn numbers(&self, (low, below): (i64, i64)) -> Result<Vec<i64>, HistoryError> {
        let range = usize::try_from(below.saturating_sub(low)).unwrap_or(0);
        if range <= self.most.min(FEW_ENTRIES) {
            return Ok((low..below).collect());
        }
        let spenders = self.history.subtree_within(self.account, MAX_READ)?;
        if range <= self.most && range / 4 <= spenders.len() {
            return Ok((low..below).collect());
        }
        let too_many = || HistoryError::PartsOfHours { most: self.most };
        if spenders.len() > MAX_READ {
            return Err(too_many());
        }
        let mut found = Vec::new();
        for spender in spenders {
            let lists = [ListOf::SpentOfOwn(spender), ListOf::SpentOfOthers(spender)];
            let room = self.most.saturating_sub(found.len());
            found.extend(newest(&self.history.database, &lists, (low, below), room + 1)?);
            if found.len() > self.most {
                return Err(too_many());
            }
        }
        // In their order, because neighbours are stored together.
        found.sort_unstable();
        Ok(found)
    }

    fn add(
        &mut self,
        groups: &mut Groups,
        total: &mut [i128],
        periods: &Periods<'_>,
        (from, to): (Timestamp, Timestamp),
    ) -> Result<(), HistoryError> {
        if to <= from {
            return Ok(());
        }
        let bounds = self.history.entry_bounds((from, to.plus_millis(-1)), None)?;
        let mut entries = Entries::of(self.history);
        for number in self.numbers(bounds)? {
            let entry = entries.get(number)?;
            let spent = entry.kind.spends() * entry.amount;
            let Some(spender) = entry.spender.filter(|_| spent != 0) else { continue };
            let Some(path) = self.spender(spender)? else { continue };
            let period = periods.at(entry.at);
            total[period] += spent;
            if let Some(key) = self.group(path, &entry)? {
                groups.add(key, period, spent);
            }
        }
        Ok(())
    }

    fn spender(&mut self, number: u32) -> Result<Option<String>, HistoryError> {
        if let Some(known) = self.spenders.get(&number) {
            return Ok(known.clone());
        }
        let path = self.history.account_path(number)?;
        let path = is_within(&path, &self.root).then_some(path);
        self.spenders.insert(number, path.clone());
        Ok(path)
    }

    fn group(&mut self, spender: String, entry: &Stored) -> Result<Option<String>, HistoryError> {
        match self.by {
            SpendBy::None => return Ok(None),
            SpendBy::Account => return Ok(Some(spender)),
            SpendBy::Subtree => return Ok(Some(branch(&spender, &self.root).to_owned())),
            SpendBy::Job
            | SpendBy::GpuType
            | SpendBy::Region
            | SpendBy::Class
            | SpendBy::Label(_) => {}
        }
        let Some(hold) = entry.hold else { return Ok(None) };
        if let Some(known) = self.holds.get(&hold) {
            return Ok(known.clone());
        }
        let found = self.group_of_hold(hold)?;
        self.holds.insert(hold, found.clone());
        Ok(found)
    }

    fn group_of_hold(&self, hold: i64) -> Result<Option<String>, HistoryError> {
        let label = match self.by {
            SpendBy::Label(name) => name.as_str(),
            _ => "",
        };
        let rows = self.history.database.query(
            "SELECT j.name, l.value, h.record FROM holds h
             LEFT JOIN jobs j ON j.number = h.job
             LEFT JOIN job_labels l ON l.job = h.job AND l.name = ?2
             WHERE h.hold = ?1",
            &[hold.into(), label.into()],
        )?;
        let missing = || HistoryError::inconsistent(format!("there is no hold {hold}"));
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(missing)?);
        let (job, label) = (row.maybe_text()?, row.maybe_text()?);
        let purpose = match job {
            Some(_) => self.history.stored_purpose(hold)?.unwrap_or_default(),
            None => Purpose::of_record(&row.bytes()?)?,
        };
        let name = match self.by {
            SpendBy::Job => return Ok(job),
            SpendBy::Label(_) => return Ok(label),
            SpendBy::GpuType => purpose.gpu_type,
            SpendBy::Region => purpose.region,
            SpendBy::Class => purpose.class.into_text(),
            SpendBy::None | SpendBy::Account | SpendBy::Subtree => return Ok(None),
        };
        Ok((!name.is_empty()).then(|| name.to_string()))
    }
}

/// The account directly below a root that contains an account, or the root itself.
fn branch<'a>(path: &'a str, root: &str) -> &'a str {
    let below = path.get(root.len() + 1..).unwrap_or_default();
    let first = below.split(':').next().unwrap_or_default();
    let length = if first.is_empty() { root.len() } else { root.len() + 1 + first.len() };
    &path[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spender_belongs_to_the_account_directly_below_the_root() {
        assert_eq!(branch("acme", "acme"), "acme");
        assert_eq!(branch("acme:nlp", "acme"), "acme:nlp");
        assert_eq!(branch("acme:nlp:alice", "acme"), "acme:nlp");
        assert_eq!(branch("acme:nlp:alice", "acme:nlp"), "acme:nlp:alice");
    }

    #[test]
    fn an_instant_lies_between_two_whole_hours_or_is_one() {
        let at = |minutes: i64| Timestamp::from_millis(minutes * 60_000);
        assert_eq!((this_hour(at(90)), next_hour(at(90))), (at(60), at(120)));
        assert_eq!((this_hour(at(60)), next_hour(at(60))), (at(60), at(60)));
        assert_eq!((this_hour(at(-30)), next_hour(at(-30))), (at(-60), at(0)));
    }
}
