//! Instants on the wire: RFC 3339; answers use UTC with three decimals.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

const EARLIEST: i64 = -62_167_219_200_000;
const LATEST: i64 = 253_402_300_799_999;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// An instant in milliseconds since 1970, between the years 0 and 9999.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// An instant from milliseconds since 1970, clamped to the years that can be written.
    pub fn from_millis(millis: i64) -> Time {
        Time(millis.clamp(EARLIEST, LATEST))
    }

    /// Milliseconds since 1970.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text_of(&self.written()))
    }
}

fn text_of(written: &[u8; 24]) -> &str {
    std::str::from_utf8(written).expect("digits and the marks between them")
}

impl Time {
    /// Appends the instant to `out`.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.written());
    }

    /// The date and the time of day in UTC.
    fn civil(self) -> DateTime {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => Offset::UTC.to_datetime(instant),
            // Its instants end a day before the calendar does, so that each has a date everywhere.
            Err(_) => {
                let since = SignedDuration::from_millis(self.0);
                EPOCH.checked_add(since).unwrap_or(DateTime::MAX)
            }
        }
    }

    /// `2026-01-31T12:00:00.000Z`, without the formatter, because every answer contains some.
    fn written(self) -> [u8; 24] {
        let civil = self.civil();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |places: std::ops::Range<usize>, number: i16| {
            let mut number = number.unsigned_abs();
            for byte in text[places].iter_mut().rev() {
                *byte = b'0' + (number % 10) as u8;
                number /= 10;
            }
        };
        put(0..4, civil.year());
        put(5..7, civil.month().into());
        put(8..10, civil.day().into());
        put(11..13, civil.hour().into());
        put(14..16, civil.minute().into());
        put(17..19, civil.second().into());
        put(20..23, civil.millisecond());
        text
    }
}

/// The text is not an instant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TimeError;

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write an instant as RFC 3339, such as \"2026-01-31T12:00:00.000Z\"")
    }
}

impl std::error::Error for TimeError {}

impl FromStr for Time {
    type Err = TimeError;

    /// Accepts any offset; digits below a millisecond are cut off.
    fn from_str(text: &str) -> Result<Time, TimeError> {
        let plain = text.len() >= 20
            && text.is_ascii()
            && matches!(text.as_bytes()[10], b'T' | b't' | b' ')
            && !text.contains('[');
        if !plain {
            return Err(TimeError);
        }
        let pieces = Pieces::parse(text).map_err(|_| TimeError)?;
        let (date, time) = (pieces.date(), pieces.time().ok_or(TimeError)?);
        let offset = pieces.to_numeric_offset().ok_or(TimeError)?;
        let local = date.to_datetime(time).duration_since(EPOCH);
        let since = local - SignedDuration::from_secs(offset.seconds().into());
        let millis = since.as_nanos().div_euclid(1_000_000);
        match i64::try_from(millis) {
            Ok(millis) if (EARLIEST..=LATEST).contains(&millis) => Ok(Time(millis)),
            Ok(_) | Err(_) => Err(TimeError),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text_of(&self.written()))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        deserializer.deserialize_str(TimeVisitor)
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an instant such as \"2026-01-31T12:00:00.000Z\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
        text.parse().map_err(E::custom)
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("An instant as RFC 3339; answers use UTC with three decimals."))
            .examples(["2026-01-31T12:00:00.000Z"])
            .into()
    }
}

impl ToSchema for Time {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_in_any_offset_and_written_in_utc() {
        for (text, written) in [
            ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00.000Z"),
            ("2020-01-01T02:30:00.123456+02:30", "2020-01-01T00:00:00.123Z"),
            ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999Z"),
            ("9999-12-30T00:00:00.000Z", "9999-12-30T00:00:00.000Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999Z"),
            ("9999-12-31T23:59:59.999+01:00", "9999-12-31T22:59:59.999Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"),
            ("0000-01-01T00:00:00-00:30", "0000-01-01T00:30:00.000Z"),
            ("2016-12-31t23:59:60z", "2016-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(text.parse::<Time>().map(|time| time.to_string()), Ok(written.into()));
        }
    }

    #[test]
    fn instants_are_written_as_the_calendar_has_them() {
        let some = (EARLIEST..LATEST).step_by(999_999_937);
        for millis in some.chain([EARLIEST, -1, 0, LATEST]) {
            let calendar = EPOCH.checked_add(SignedDuration::from_millis(millis));
            let calendar = calendar.expect("in the calendar");
            assert_eq!(Time(millis).to_string(), format!("{calendar:.3}Z"));
        }
    }

    #[test]
    fn dates_numbers_and_zones_without_offset_are_rejected() {
        for text in [
            "2020-01-01",
            "now",
            "",
            "2020-01-01T00:00:00",
            "2020-13-01T00:00:00Z",
            "9999-12-31T23:59:59-00:01",
            "0000-01-01T00:00:00+00:01",
            "10000-01-01T00:00:00Z",
            "2020-01-01T00:00:00[UTC]",
            "2020-01-01T00:00:00.000 ",
        ] {
            assert_eq!(text.parse::<Time>(), Err(TimeError), "{text}");
        }
    }
}
