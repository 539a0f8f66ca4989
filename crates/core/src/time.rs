//! Time: integer milliseconds since 1970-01-01T00:00:00Z. No clock is read here.

use std::fmt;

/// Milliseconds in a day.
pub const DAY_MS: i64 = 86_400_000;

/// An instant, in milliseconds UTC.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest instant that has a four-digit year: 0000-01-01T00:00:00.000Z.
    pub const MIN: Timestamp = Timestamp(-62_167_219_200_000);
    /// The latest instant that has a four-digit year: 9999-12-31T23:59:59.999Z.
    pub const MAX: Timestamp = Timestamp(253_402_300_799_999);

    /// An instant from milliseconds since 1970, clamped to the years 0 to 9999.
    pub fn from_millis(millis: i64) -> Timestamp {
        Timestamp(millis).clamp(Timestamp::MIN, Timestamp::MAX)
    }

    /// Milliseconds since 1970.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The instant `millis` later (earlier if negative), clamped to the years 0 to 9999.
    pub fn plus_millis(self, millis: i64) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to this instant; zero if it is not later.
    pub fn millis_since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }

    /// The civil date of this instant as (year, month 1–12, day 1–31).
    pub fn civil_date(self) -> (i64, u32, u32) {
        civil_from_days(self.0.div_euclid(DAY_MS))
    }
}

/// Days since 1970-01-01 of a civil date in the proleptic Gregorian calendar.
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // Counted in years that begin in March, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`].
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    // Both are in range by construction: month 1..=12, day 1..=31.
    (year, u32::try_from(month).unwrap_or(1), u32::try_from(day).unwrap_or(1))
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with three decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil_date();
        let of_day = self.0.rem_euclid(DAY_MS);
        let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (seconds, millis) = (of_day / 1000 % 60, of_day % 1000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_print_as_rfc_3339_with_three_decimals() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (1_577_836_800_000, "2020-01-01T00:00:00.000Z"),
            (1_709_164_800_123, "2024-02-29T00:00:00.123Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        }
    }

    #[test]
    fn civil_dates_survive_the_round_trip_for_eight_centuries() {
        let mut previous = civil_from_days(-150_001);
        for days in -150_000..150_000 {
            let date = civil_from_days(days);
            assert!(date > previous, "{date:?} follows {previous:?}");
            assert_eq!(days_from_civil(date.0, date.1, date.2), days);
            previous = date;
        }
    }
}
