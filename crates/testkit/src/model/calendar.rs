//! Budget periods, found by walking through the calendar.

use bursar_core::ledger::command::BudgetPeriod;

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

/// The period that contains an instant: its first instant and the first instant after it. `None`
/// for the period that never ends.
pub fn period_around(at: i64, period: BudgetPeriod, utc_offset_minutes: i16) -> Option<(i64, i64)> {
    let offset = i64::from(utc_offset_minutes) * MINUTE_MS;
    let day = (at + offset).div_euclid(DAY_MS);
    let (first_day, next_day) = match period {
        BudgetPeriod::Total => return None,
        BudgetPeriod::Day => (day, day + 1),
        BudgetPeriod::Week => {
            let mut monday = day;
            while weekday(monday) != 0 {
                monday -= 1;
            }
            (monday, monday + 7)
        }
        BudgetPeriod::Month => month_around(day),
    };
    Some((first_day * DAY_MS - offset, next_day * DAY_MS - offset))
}

/// 0 is Monday. Day 0, the first of January 1970, was a Thursday.
fn weekday(day: i64) -> i64 {
    (day + 3).rem_euclid(7)
}

/// The first day of the month around a day, and the first day of the next month.
fn month_around(day: i64) -> (i64, i64) {
    let mut year = 1970;
    let mut new_year = 0;
    while day < new_year {
        year -= 1;
        new_year -= days_in_year(year);
    }
    while day >= new_year + days_in_year(year) {
        new_year += days_in_year(year);
        year += 1;
    }
    let mut first = new_year;
    for length in month_lengths(year) {
        if day < first + length {
            return (first, first + length);
        }
        first += length;
    }
    unreachable!("the months of a year have all of its days")
}

fn days_in_year(year: i64) -> i64 {
    month_lengths(year).iter().sum()
}

fn month_lengths(year: i64) -> [i64; 12] {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_begin_at_midnight_on_mondays_and_on_the_first() {
        let noon = 1_709_208_000_000; // Thursday, 2024-02-29T12:00Z
        let day = 1_709_164_800_000;
        assert_eq!(period_around(noon, BudgetPeriod::Day, 0), Some((day, day + DAY_MS)));
        let monday = day - 3 * DAY_MS;
        assert_eq!(period_around(noon, BudgetPeriod::Week, 0), Some((monday, monday + 7 * DAY_MS)));
        let first = day - 28 * DAY_MS;
        assert_eq!(period_around(noon, BudgetPeriod::Month, 0), Some((first, first + 29 * DAY_MS)));
        assert_eq!(period_around(noon, BudgetPeriod::Total, 0), None);
    }

    #[test]
    fn an_offset_to_the_east_makes_midnight_earlier() {
        let midnight = 1_709_164_800_000;
        let (start, _) = period_around(midnight - 1, BudgetPeriod::Day, 60).expect("has a start");
        assert_eq!(start, midnight - 60 * MINUTE_MS);
    }
}
