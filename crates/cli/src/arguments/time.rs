//! Instants, days, months and durations on the command line.

use std::time::Duration;

use bursar_client::api::Time;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::render::times::{local, zone};

const SECOND: u64 = 1;
const MINUTE: u64 = 60;
const HOUR: u64 = 3600;
const DAY: u64 = 86_400;

/// The longest time from now on after which something expires: a hundred years.
const MAX_FROM_NOW_MS: i64 = 36_500 * 86_400_000;

/// The units of a duration in the order in which they are written.
const UNITS: [(char, u64); 4] = [('d', DAY), ('h', HOUR), ('m', MINUTE), ('s', SECOND)];

/// An instant as RFC 3339. Without an offset it is in the local time zone, or in UTC with --utc; a day
/// stands for its first instant.
pub(crate) fn instant(text: &str) -> Result<Time, String> {
    instant_in(text, zone())
}

fn instant_in(text: &str, zone: &TimeZone) -> Result<Time, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let wrong = || "write it as 2026-01-31, 2026-01-31T12:00 or 2026-01-31T12:00:00Z".to_owned();
    let civil: DateTime = text.parse().map_err(|_| wrong())?;
    local_instant(civil, zone).ok_or_else(wrong)
}

/// The instant of a local date and time. At the ends of the calendar only UTC has one.
fn local_instant(civil: DateTime, zone: &TimeZone) -> Option<Time> {
    match civil.to_zoned(zone.clone()) {
        Ok(zoned) => Some(Time::from_millis(zoned.timestamp().as_millisecond())),
        Err(_) => format!("{civil}Z").parse().ok(),
    }
}

/// The last instant at which something is valid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    at: Time,
    given: ExpiryForm,
}

/// How an expiry was given.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum ExpiryForm {
    Instant,
    Day,
    FromNow,
}

/// An instant, a day for its last instant (what expires on a day is valid on that day), or a duration
/// from now on.
pub(crate) fn expiry(text: &str) -> Result<Expiry, String> {
    match duration(text) {
        Ok(length) => from_now(length, jiff::Timestamp::now().as_millisecond()),
        Err(_) => expiry_in(text, zone()).map_err(|_| {
            "write it as 30d, 2026-01-31, 2026-01-31T12:00 or 2026-01-31T12:00:00Z".into()
        }),
    }
}

fn from_now(length: Duration, now_ms: i64) -> Result<Expiry, String> {
    let millis = i64::try_from(length.as_millis()).ok();
    let millis = millis.filter(|millis| *millis <= MAX_FROM_NOW_MS);
    let millis = millis.ok_or("at most 36500d; or write a day, such as 2126-01-31")?;
    Ok(Expiry { at: Time::from_millis(now_ms + millis), given: ExpiryForm::FromNow })
}

fn expiry_in(text: &str, zone: &TimeZone) -> Result<Expiry, String> {
    let first = instant_in(text, zone)?;
    // No instant is as short as a day.
    let day = text.parse::<Date>().ok().filter(|_| text.len() == 10);
    let last = day.and_then(|day| local_instant(day.at(23, 59, 59, 999_000_000), zone));
    let given = if last.is_some() { ExpiryForm::Day } else { ExpiryForm::Instant };
    Ok(Expiry { at: last.unwrap_or(first), given })
}

impl From<Time> for Expiry {
    fn from(at: Time) -> Expiry {
        Expiry { at, given: ExpiryForm::Instant }
    }
}

impl Expiry {
    /// The instant.
    pub(crate) fn at(self) -> Time {
        self.at
    }

    /// How a day or a duration was understood; `None` if an instant was given.
    pub(crate) fn remark(self) -> Option<String> {
        let at = local(self.at);
        let day = at.split('T').next().unwrap_or_default();
        match self.given {
            ExpiryForm::Instant => None,
            ExpiryForm::Day => Some(format!("{day} is its last day, until {at}")),
            ExpiryForm::FromNow => {
                Some(format!("until {at}; write that instant if you repeat the command"))
            }
        }
    }
}

/// A month such as `2026-01`: its first instant, and that of the next month.
pub(crate) fn month(text: &str) -> Result<(Time, Time), String> {
    let wrong = || "write a month as 2026-01".to_owned();
    let (year, month) = text.split_once('-').ok_or_else(wrong)?;
    let (year, month): (u16, u16) =
        (year.parse().map_err(|_| wrong())?, month.parse().map_err(|_| wrong())?);
    if year > 9998 || !(1..=12).contains(&month) {
        return Err(wrong());
    }
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    let first = |year: u16, month: u16| instant(&format!("{year:04}-{month:02}-01"));
    Ok((first(year, month).map_err(|_| wrong())?, first(next_year, next_month)?))
}

/// A duration: numbers with units, `90s`, `30m`, `1h30m`, `2d`, or hours, minutes and seconds,
/// `01:30:00`. A number alone is refused, because readers disagree on its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if is_number(text) {
        return Err(format!("{text} what? write {text}m, {text}h or {text}d"));
    }
    let seconds = if text.contains(':') { clock_seconds(text) } else { unit_seconds(text) };
    let wrong = || "write it as 90s, 30m, 1h30m, 2d or 01:30:00".to_owned();
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

/// The time between two refreshes: a number of seconds, as `watch` takes it, or a duration.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = if is_number(text) { unit_seconds(&format!("{text}s")) } else { None };
    let interval =
        seconds.map_or_else(|| duration(text), |seconds| Ok(Duration::from_secs(seconds)))?;
    let allowed = Duration::from_secs(SECOND)..=Duration::from_secs(DAY);
    if allowed.contains(&interval) { Ok(interval) } else { Err("write 1s to 1d".to_owned()) }
}

/// A duration as one number with the largest unit that needs no fraction: `90m`.
pub(crate) fn in_one_unit(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let whole = UNITS.iter().find(|(_, unit)| seconds.is_multiple_of(*unit));
    let (name, unit) = whole.expect("a second divides every number of seconds");
    format!("{}{name}", seconds / unit)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The seconds of `1h30m`: each unit at most once, the largest first.
fn unit_seconds(text: &str) -> Option<u64> {
    let mut units = UNITS.iter();
    let mut rest = text;
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let unit = tail.chars().next()?;
        let (_, seconds) = units.find(|(name, _)| *name == unit)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*seconds)?)?;
        rest = &tail[unit.len_utf8()..];
    }
    (!text.is_empty()).then_some(sum)
}

/// The seconds of `01:30:00`. Two numbers are refused: `01:30` has two readings.
fn clock_seconds(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else { return None };
    let sixtieth = |part: &str| {
        let number = (part.len() == 2 && is_number(part)).then(|| part.parse::<u64>().ok())?;
        number.filter(|number| *number < 60)
    };
    let hours = is_number(hours).then(|| hours.parse::<u64>().ok())??;
    let within = sixtieth(minutes)? * MINUTE + sixtieth(seconds)?;
    hours.checked_mul(HOUR)?.checked_add(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_instants_are_understood() {
        let written = |text| instant(text).map(|time| time.to_string());
        assert_eq!(written("2026-01-31"), Ok("2026-01-31T00:00:00.000Z".into()));
        assert_eq!(written("2026-01-31T12:00:00+01:00"), Ok("2026-01-31T11:00:00.000Z".into()));
        for wrong in ["tomorrow", "2026-02-30", "", "2026-01-31T25:00", "12:00"] {
            assert!(instant(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_an_offset_the_time_zone_decides() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let written = |text| instant_in(text, &zone).map(|time| time.to_string());
        assert_eq!(written("2026-01-31"), Ok("2026-01-30T22:00:00.000Z".into()));
        assert_eq!(written("2026-01-31T12:00"), Ok("2026-01-31T10:00:00.000Z".into()));
        assert_eq!(written("2026-01-31T12:00:00Z"), Ok("2026-01-31T12:00:00.000Z".into()));
        let last = expiry_in("2026-01-31", &zone).expect("a day");
        assert_eq!(last.at().to_string(), "2026-01-31T21:59:59.999Z");
        assert_eq!(last.given, ExpiryForm::Day);
    }

    #[test]
    fn a_day_expires_at_its_end_and_says_so() {
        for (text, at, remark) in [
            (
                "2026-01-31",
                "2026-01-31T23:59:59.999Z",
                Some("2026-01-31 is its last day, until 2026-01-31T23:59:59.999Z"),
            ),
            (
                "9999-12-31",
                "9999-12-31T23:59:59.999Z",
                Some("9999-12-31 is its last day, until 9999-12-31T23:59:59.999Z"),
            ),
            ("2026-01-31T00:00:00Z", "2026-01-31T00:00:00.000Z", None),
            ("2026-01-31T12:00:00+01:00", "2026-01-31T11:00:00.000Z", None),
        ] {
            let expiry = expiry(text).expect("an instant");
            assert_eq!(expiry.at().to_string(), at);
            assert_eq!(expiry.remark().as_deref(), remark, "{text}");
        }
        for wrong in ["tomorrow", "2026-02-30", "", "2026-01-31T25:00", "30"] {
            let advice = "write it as 30d, 2026-01-31, 2026-01-31T12:00 or 2026-01-31T12:00:00Z";
            assert_eq!(expiry(wrong), Err(advice.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn a_duration_expires_that_long_from_now() {
        let days = |days: u64| from_now(Duration::from_secs(days * DAY), 1000);
        let month = days(30).expect("it is short");
        assert_eq!(month.at().to_string(), "1970-01-31T00:00:01.000Z");
        assert_eq!(expiry("30d").map(|one| one.given), Ok(ExpiryForm::FromNow));
        assert!(month.remark().is_some_and(|remark| remark.contains("repeat")));
        assert!(days(36_500).is_ok() && days(36_501).is_err());
    }

    #[test]
    fn a_month_ends_where_the_next_begins() {
        let ends = |text| month(text).map(|(from, to)| format!("{from} {to}"));
        let december = "2026-12-01T00:00:00.000Z 2027-01-01T00:00:00.000Z";
        assert_eq!(ends("2026-12"), Ok(december.into()));
        for wrong in ["2026", "2026-13", "2026-00", "x-1", "2026-1-1", "65535-12", "9999-12"] {
            assert!(month(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lengths_of_time_have_units() {
        for (text, seconds) in [
            ("90s", 90),
            ("15m", 900),
            ("2h", 7200),
            ("7d", 604_800),
            ("0s", 0),
            ("1h30m", 5400),
            ("1d12h", 129_600),
            ("2d3h4m5s", 183_845),
            ("1h90m", 9000),
            ("01:00:00", 3600),
            ("1:30:05", 5405),
            ("100:00:59", 360_059),
            ("00:00:00", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_refused() {
        for number in ["4", "0", "90", "007", "99999999999999999999999"] {
            let advice = format!("{number} what? write {number}m, {number}h or {number}d");
            assert_eq!(duration(number), Err(advice));
        }
    }

    #[test]
    fn other_texts_are_no_durations() {
        for wrong in [
            "",
            "h",
            "1.5h",
            "-1s",
            "+1s",
            "1y",
            "1é",
            "1H",
            "1h30",
            "30m1h",
            "1h1h",
            "1h 30m",
            " 1h",
            "99999999999999999d",
            "18446744073709551615d1s",
            "01:00",
            "01:60:00",
            "01:00:60",
            "1:2:3",
            ":00:00",
            "01:00:00:00",
            "1d01:00:00",
            "1:+1:00",
            "9999999999999999:00:00",
        ] {
            let advice = "write it as 90s, 30m, 1h30m, 2d or 01:30:00";
            assert_eq!(duration(wrong), Err(advice.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn a_refresh_may_be_a_number_of_seconds() {
        for (text, seconds) in
            [("1", 1), ("10", 10), ("86400", 86_400), ("1m30s", 90), ("1d", 86_400)]
        {
            assert_eq!(interval(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["0", "0s", "86401", "2d"] {
            assert_eq!(interval(wrong), Err("write 1s to 1d".to_owned()), "{wrong}");
        }
        assert!(interval("often").is_err());
        assert!(interval("99999999999999999999999").is_err());
    }

    #[test]
    fn one_unit_is_the_largest_that_fits() {
        for (text, expected) in [
            ("1h30m", "90m"),
            ("01:00:00", "1h"),
            ("24h", "1d"),
            ("36h", "36h"),
            ("90s", "90s"),
            ("7d", "7d"),
        ] {
            assert_eq!(in_one_unit(duration(text).expect("a duration")), expected);
        }
    }
}
