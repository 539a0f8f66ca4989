//! Spending of a subtree by period, and what it was for.
//!
//! Credits count in the hour in which they were captured, charged or collected, a refund in the hour
//! in which it was made. So the sums equal those of the entries and of statements, and a past period
//! never changes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bursar_core::ledger::command::BudgetPeriod;
use bursar_core::time::{DAY_MS, Timestamp};

use super::usage::usage_of;
use crate::database::{Columns, Database, Row, Value};
use crate::error::HistoryError;
use crate::project::{History, hour_of};

pub(super) const HOUR_MS: i64 = 3_600_000;
/// The most rows that one report reads.
pub(super) const MAX_READ: usize = 300_000;

/// What spending is grouped by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpendBy {
    /// One line for all.
    None,
    /// The account that spent.
    Account,
    /// The account itself, and each account directly below it with all that lies below that.
    Subtree,
    /// The job.
    Job,
    /// The GPU type of the attempt, or the only one in the context of a hold.
    GpuType,
    /// The region of the attempt, or the only one in the context of a hold.
    Region,
    /// The class of the job, or of the context of a hold.
    Class,
    /// The value of a label of the job.
    Label(String),
}

/// The length of the periods of a report, in UTC.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Interval {
    /// Hours.
    Hour,
    /// Days.
    Day,
    /// Weeks that begin on Monday.
    Week,
    /// Calendar months.
    Month,
}

impl Interval {
    /// The start of the next period.
    fn next(self, at: Timestamp) -> Timestamp {
        let period = match self {
            Interval::Hour => return at.plus_millis(HOUR_MS),
            Interval::Day => BudgetPeriod::Day,
            Interval::Week => BudgetPeriod::Week,
            Interval::Month => BudgetPeriod::Month,
        };
        let next = period.days_of(at).map_or(i64::MAX, |(_, next)| next.saturating_mul(DAY_MS));
        Timestamp::from_millis(next)
    }

    /// The starts of the periods from one instant to another; the first may begin in the middle of
    /// its period. `None` if there are more than `most`.
    pub fn starts(self, (from, to): (Timestamp, Timestamp), most: usize) -> Option<Vec<Timestamp>> {
        let mut starts = Vec::new();
        let mut at = from;
        while at < to {
            if starts.len() == most {
                return None;
            }
            starts.push(at);
            at = self.next(at);
        }
        Some(starts)
    }
}

/// The whole hours that contain a period: from the start of the first to the end of the last.
pub fn whole_hours((from, to): (Timestamp, Timestamp)) -> (Timestamp, Timestamp) {
    let last = to.plus_millis(HOUR_MS - 1);
    let start = |at: Timestamp| Timestamp::from_millis(at.millis().div_euclid(HOUR_MS) * HOUR_MS);
    (start(from), start(last))
}

/// One line of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpendLine {
    /// The group; `None` for spending that belongs to no group.
    pub key: Option<String>,
    /// Its sum.
    pub total: i128,
    /// Its sums by period.
    pub amounts: Vec<i128>,
}

/// Spending by period and group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendReport {
    /// The largest groups, largest first.
    pub lines: Vec<SpendLine>,
    /// All other groups together.
    pub other: SpendLine,
    /// Everything.
    pub total: SpendLine,
}

/// The rows of spending on jobs and purposes in a subtree, with the value to group by.
macro_rules! rows_by {
    ($key:literal, $join:literal) => {
        concat!(
            "SELECT s.hour, s.spent, ",
            $key,
            " FROM accounts a JOIN spend_hours s ON s.account = a.number ",
            $join,
            " WHERE (a.number = ?1 OR a.path >= ?2 AND a.path < ?3)
             AND s.hour >= ?4 AND s.hour <= ?5 AND ?6 = ?6 LIMIT ?7"
        )
    };
}

/// The usage by hour of accounts in a subtree.
macro_rules! usage_rows {
    ($which:literal) => {
        concat!(
            "SELECT a.number, a.path, u.hour, u.usage, NULL
             FROM accounts a JOIN usage_hours u ON u.account = a.number
             WHERE (a.number = ?1 OR a.path >= ?2 AND a.path < ?3)
             AND u.hour >= ?4 AND u.hour <= ?5",
            $which,
            " UNION ALL SELECT a.number, a.path, a.hour, NULL, s.rest
             FROM accounts a JOIN account_states s ON s.number = a.number
             WHERE (a.number = ?1 OR a.path >= ?2 AND a.path < ?3)
             AND a.hour >= ?4 AND a.hour <= ?5",
            $which,
            " LIMIT ?6"
        )
    };
}

impl<D: Database> History<D> {
    /// What an account and all below it spent in whole hours, by period. The `k` largest groups are
    /// listed. `starts` are the starts of the periods; the last one ends before `to`.
    pub fn spend(
        &self,
        account: u32,
        by: &SpendBy,
        (starts, to): (&[Timestamp], Timestamp),
        k: usize,
    ) -> Result<SpendReport, HistoryError> {
        let Some(from) = starts.first().copied() else {
            let (lines, other, total) = Default::default();
            return Ok(SpendReport { lines, other, total });
        };
        let period = (from, to.plus_millis(-1));
        self.at_one_position(|history| {
            let periods = Periods(starts);
            let mut total = vec![0; starts.len()];
            for (hour, usage) in history.hours(account, period)? {
                total[periods.of(hour)] += usage.spent;
            }
            let groups = history.groups(account, by, period, &periods)?;
            Ok(report(groups, total, k))
        })
    }

    pub(super) fn groups(
        &self,
        account: u32,
        by: &SpendBy,
        (from, to): (Timestamp, Timestamp),
        periods: &Periods<'_>,
    ) -> Result<Groups, HistoryError> {
        let mut groups = Groups::default();
        let label = match by {
            SpendBy::Label(name) => name.as_str(),
            _ => "",
        };
        let sql = match by {
            SpendBy::None => return Ok(groups),
            SpendBy::Account => usage_rows!(""),
            SpendBy::Subtree => usage_rows!(" AND (a.number = ?1 OR a.parent = ?1)"),
            SpendBy::Job => rows_by!("j.name", "LEFT JOIN jobs j ON j.number = s.job"),
            SpendBy::GpuType => rows_by!("nullif(s.gpu_type, '')", ""),
            SpendBy::Region => rows_by!("nullif(s.region, '')", ""),
            SpendBy::Class => rows_by!("nullif(s.class, '')", ""),
            SpendBy::Label(_) => {
                rows_by!("l.value", "LEFT JOIN job_labels l ON l.job = s.job AND l.name = ?6")
            }
        };
        let path = self.account_path(account)?;
        let mut values: Vec<Value> = vec![
            account.into(),
            format!("{path}:").as_str().into(),
            // The first text after all that begin with the path and a colon.
            format!("{path};").as_str().into(),
            hour_of(from).into(),
            hour_of(to).into(),
        ];
        let by_account = matches!(by, SpendBy::Account | SpendBy::Subtree);
        if !by_account {
            values.push(label.into());
        }
        values.push(i64::try_from(MAX_READ + 1).unwrap_or(i64::MAX).into());
        let rows = self.database.query(sql, &values)?;
        if rows.len() > MAX_READ {
            return Err(HistoryError::TooMuch { most: MAX_READ });
        }
        for row in rows {
            if by_account {
                groups.add_account(row, account, periods)?;
            } else {
                groups.add_row(row, periods)?;
            }
        }
        Ok(groups)
    }
}

/// Periods by their starts. The first begins at or before all that is looked up.
pub(super) struct Periods<'a>(pub(super) &'a [Timestamp]);

impl Periods<'_> {
    pub(super) fn of(&self, hour: i64) -> usize {
        self.at(Timestamp::from_millis(hour.saturating_mul(HOUR_MS)))
    }

    pub(super) fn at(&self, at: Timestamp) -> usize {
        self.0.partition_point(|from| *from <= at).saturating_sub(1)
    }
}

/// Sums by group and period. Only the periods of a group in which something was spent take memory, so
/// there are no more sums than rows that were read.
#[derive(Default)]
pub(super) struct Groups {
    sums: BTreeMap<String, BTreeMap<usize, i128>>,
}

impl Groups {
    pub(super) fn add(&mut self, key: String, period: usize, amount: i128) {
        *self.sums.entry(key).or_default().entry(period).or_default() += amount;
    }

    /// Adds a row of spending under its own value.
    fn add_row(&mut self, row: Row, periods: &Periods<'_>) -> Result<(), HistoryError> {
        let mut row = Columns::of(row);
        let (hour, spent) = (row.integer()?, row.sum()?);
        if let Some(key) = row.maybe_text()? {
            self.add(key, periods.of(hour), spent);
        }
        Ok(())
    }

    /// Adds the usage of an account. It includes what lies below it, so it is subtracted from the
    /// account above it.
    fn add_account(
        &mut self,
        row: Row,
        root: u32,
        periods: &Periods<'_>,
    ) -> Result<(), HistoryError> {
        let mut row = Columns::of(row);
        let (number, path, hour) = (row.number()?, row.text()?, row.integer()?);
        let (spent, period) = (usage_of(&mut row)?.spent, periods.of(hour));
        if number != root {
            let above = path.rsplit_once(':').map_or(path.as_str(), |(above, _)| above);
            self.add(above.to_owned(), period, -spent);
        }
        self.add(path, period, spent);
        Ok(())
    }
}

/// Ranks groups. What belongs to none of them is a line without a key.
pub(super) fn report(groups: Groups, total: Vec<i128>, k: usize) -> SpendReport {
    let mut rest = total.clone();
    let mut ranked = Vec::new();
    for (key, sums) in groups.sums {
        for (period, sum) in &sums {
            rest[*period] -= sum;
        }
        if sums.values().any(|sum| *sum != 0) {
            ranked.push((Reverse(sums.values().sum::<i128>()), Some(key), sums));
        }
    }
    if rest.iter().any(|sum| *sum != 0) {
        ranked.push((Reverse(rest.iter().sum()), None, rest.into_iter().enumerate().collect()));
    }
    ranked.sort_by(|one, next| (one.0, &one.1).cmp(&(next.0, &next.1)));
    ranked.truncate(k);
    let mut other = total.clone();
    let lines = ranked.into_iter().map(|(Reverse(sum), key, sums)| {
        let mut amounts = vec![0; total.len()];
        for (period, sum) in sums {
            amounts[period] = sum;
            other[period] -= sum;
        }
        SpendLine { key, total: sum, amounts }
    });
    let lines = lines.collect();
    let line = |amounts: Vec<i128>| SpendLine { key: None, total: amounts.iter().sum(), amounts };
    SpendReport { lines, other: line(other), total: line(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(interval: Interval, from: &str, to: &str) -> Vec<String> {
        let at = |text: &str| {
            let mut parts = text.split('-').map(|part| part.parse::<i64>().unwrap_or(0));
            let mut next = || parts.next().unwrap_or(0);
            let (year, month, day, hour) = (next(), next(), next(), next());
            let number = |part: i64| u32::try_from(part).unwrap_or(1);
            let days = bursar_core::time::days_from_civil(year, number(month), number(day));
            Timestamp::from_millis(days * DAY_MS + hour * HOUR_MS)
        };
        let starts = interval.starts((at(from), at(to)), 100).expect("few periods");
        starts.iter().map(|start| start.to_string()[..13].to_owned()).collect()
    }

    #[test]
    fn periods_begin_at_calendar_boundaries_after_the_first() {
        let hours = starts(Interval::Hour, "2020-01-31-22", "2020-02-01-01");
        assert_eq!(hours, ["2020-01-31T22", "2020-01-31T23", "2020-02-01T00"]);
        let days = starts(Interval::Day, "2020-02-28-05", "2020-03-01-01");
        assert_eq!(days, ["2020-02-28T05", "2020-02-29T00", "2020-03-01T00"]);
        let weeks = starts(Interval::Week, "2020-01-01-00", "2020-01-14-00");
        assert_eq!(weeks, ["2020-01-01T00", "2020-01-06T00", "2020-01-13T00"]);
        let months = starts(Interval::Month, "2019-12-15-00", "2020-02-01-00");
        assert_eq!(months, ["2019-12-15T00", "2020-01-01T00"]);
        assert!(starts(Interval::Day, "2020-01-01-00", "2020-01-01-00").is_empty());
        let long = (Timestamp::MIN, Timestamp::MAX);
        assert_eq!(Interval::Hour.starts(long, 100), None);
        assert_eq!(Interval::Month.starts(long, 100), None);
    }

    #[test]
    fn a_report_lists_the_largest_groups_and_sums_up_the_others() {
        let sums = [("a", [1, 2]), ("b", [9, 0]), ("c", [0, 0]), ("d", [-1, 1])];
        let mut groups = Groups::default();
        for (key, amounts) in sums {
            (0..).zip(amounts).for_each(|(period, sum)| groups.add(key.to_owned(), period, sum));
        }
        let found = report(groups, vec![20, 3], 2);
        let keys: Vec<_> =
            found.lines.iter().map(|line| (line.key.as_deref(), line.total)).collect();
        assert_eq!(keys, [(None, 11), (Some("b"), 9)]);
        assert_eq!((found.other.total, found.other.amounts), (3, vec![0, 3]));
        assert_eq!(found.total.total, 23);
    }

    /// A caller asks by job and hour: many groups, each in one of many periods.
    #[test]
    fn many_groups_over_many_periods_take_memory_by_rows() {
        let (groups_read, periods) = (100_000, 100_000);
        let mut groups = Groups::default();
        for number in 0..groups_read {
            groups.add(format!("job-{number}"), number % periods, 1);
        }
        let sums: usize = groups.sums.values().map(BTreeMap::len).sum();
        assert_eq!(sums, groups_read);
        let found = report(groups, vec![1; periods], 3);
        assert_eq!(found.lines.len(), 3);
        assert_eq!(found.other.total, 99_997);
    }
}
