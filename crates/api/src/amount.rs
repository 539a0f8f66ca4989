//! Amounts of credits on the wire: strings out, strings or whole numbers in, never floats.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// The pattern of an amount that is sent as a string.
pub const AMOUNT_PATTERN: &str = r"^(0|[1-9][0-9]*)(\.[0-9]{1,6})?$";

const MICROS: i128 = 1_000_000;
const MAX_MICROS: i128 = i64::MAX as i128;

/// A sum of micro-credits. Read from `"28.8"` or `28`, written as the shortest string.
///
/// Amounts of requests are never negative and at most 9223372036854.775807; sums of answers may be
/// larger, and differences may be negative.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

impl Amount {
    /// A sum of micro-credits.
    pub const fn from_micros(micros: i128) -> Amount {
        Amount(micros)
    }

    /// The sum in micro-credits.
    pub const fn micros(self) -> i128 {
        self.0
    }

    /// The number in thousandths; `None` if it has more than three decimals.
    pub fn thousandths(self) -> Option<i128> {
        (self.0 % 1000 == 0).then_some(self.0 / 1000)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Decimal::of(self.0).as_str())
    }
}

/// The longest sum: a sign, 39 digits and a point.
const MAX_SUM_CHARS: usize = 41;

/// The shortest text of a sum, written from the end. It avoids the formatter because every answer
/// contains many sums.
struct Decimal {
    text: [u8; MAX_SUM_CHARS],
    start: usize,
}

impl Decimal {
    fn of(micros: i128) -> Decimal {
        let mut decimal = Decimal { text: [0; MAX_SUM_CHARS], start: MAX_SUM_CHARS };
        let magnitude = micros.unsigned_abs();
        let unit = MICROS.unsigned_abs();
        let mut fraction = magnitude % unit;
        let mut whole = magnitude / unit;
        if fraction != 0 {
            let mut decimals = 6;
            while fraction.is_multiple_of(10) {
                fraction /= 10;
                decimals -= 1;
            }
            for _ in 0..decimals {
                decimal.digit(&mut fraction);
            }
            decimal.push(b'.');
        }
        loop {
            decimal.digit(&mut whole);
            if whole == 0 {
                break;
            }
        }
        if micros < 0 {
            decimal.push(b'-');
        }
        decimal
    }

    fn push(&mut self, byte: u8) {
        self.start -= 1;
        self.text[self.start] = byte;
    }

    /// Writes the last digit of a number and removes it.
    fn digit(&mut self, number: &mut u128) {
        // A 64-bit division costs a tenth of a 128-bit one.
        let digit = match u64::try_from(*number) {
            Ok(small) => {
                *number = u128::from(small / 10);
                small % 10
            }
            Err(_) => {
                let digit = *number % 10;
                *number /= 10;
                digit as u64
            }
        };
        self.push(b'0' + digit as u8);
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[self.start..]).expect("digits, a point and a sign")
    }
}

/// Micro-credits of up to six decimals.
fn decimals(digits: &str) -> i128 {
    let value = digits.bytes().fold(0, |value, digit| value * 10 + i128::from(digit - b'0'));
    (digits.len()..6).fold(value, |value, _| value * 10)
}

/// Why a text is not an amount.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AmountError {
    /// Not of the form `0`, `12` or `12.345678`.
    Form,
    /// More than 9223372036854.775807.
    TooLarge,
}

impl fmt::Display for AmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AmountError::Form => "write digits with at most six decimals, such as \"28.8\"",
            AmountError::TooLarge => "an amount is at most 9223372036854.775807",
        })
    }
}

impl std::error::Error for AmountError {}

impl FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Amount, AmountError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if !digits(whole) || leading_zero || !digits(fraction) || fraction.len() > 6 {
            return Err(AmountError::Form);
        }
        let whole: i128 = whole.parse().map_err(|_| AmountError::TooLarge)?;
        let micros = decimals(fraction);
        let sum = whole.checked_mul(MICROS).and_then(|whole| whole.checked_add(micros));
        sum.filter(|sum| *sum <= MAX_MICROS).map(Amount).ok_or(AmountError::TooLarge)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Decimal::of(self.0).as_str())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        deserializer.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount: a string such as \"28.8\" or a whole number of credits")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, whole: u64) -> Result<Amount, E> {
        let micros = i128::from(whole) * MICROS;
        if micros > MAX_MICROS { Err(E::custom(AmountError::TooLarge)) } else { Ok(Amount(micros)) }
    }

    fn visit_i64<E: de::Error>(self, whole: i64) -> Result<Amount, E> {
        match u64::try_from(whole) {
            Ok(whole) => self.visit_u64(whole),
            Err(_) => Err(E::custom("an amount is never negative")),
        }
    }
}

impl PartialSchema for Amount {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .pattern(Some(AMOUNT_PATTERN))
            .max_length(Some(20));
        let whole = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(0))
            .maximum(Some(9_223_372_036_854_i64));
        let description = "Credits: a string with at most six decimals or a whole number, at most \
                           9223372036854.775807. Floating-point numbers are refused. Answers carry \
                           the shortest string.";
        OneOfBuilder::new()
            .item(text)
            .item(whole)
            .description(Some(description))
            .examples(["28.8"])
            .into()
    }
}

impl ToSchema for Amount {}

/// A sum that the server computed: always a string, may be negative or larger than any amount.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sum(i128);

impl Sum {
    /// Appends the shortest text to `out`.
    pub fn write(self, out: &mut Vec<u8>) {
        let decimal = Decimal::of(self.0);
        out.extend_from_slice(&decimal.text[decimal.start..]);
    }

    /// A sum of micro-credits.
    pub const fn from_micros(micros: i128) -> Sum {
        Sum(micros)
    }

    /// A number of thousandths, such as those of a GPU.
    pub fn from_thousandths(thousandths: impl Into<i128>) -> Sum {
        Sum(thousandths.into().saturating_mul(1000))
    }

    /// A whole number, such as one of jobs.
    pub fn from_whole(number: impl Into<i128>) -> Sum {
        Sum(number.into().saturating_mul(1_000_000))
    }

    /// The sum in micro-credits.
    pub const fn micros(self) -> i128 {
        self.0
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Decimal::of(self.0).as_str())
    }
}

impl FromStr for Sum {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Sum, AmountError> {
        let (sign, magnitude) = match text.strip_prefix('-') {
            Some(magnitude) => (-1, magnitude),
            None => (1, text),
        };
        let (whole, fraction) = magnitude.split_once('.').unwrap_or((magnitude, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 6 {
            return Err(AmountError::Form);
        }
        let whole: i128 = whole.parse().map_err(|_| AmountError::TooLarge)?;
        let micros = decimals(fraction);
        let sum = whole.checked_mul(MICROS).and_then(|whole| whole.checked_add(micros));
        sum.map(|sum| Sum(sign * sum)).ok_or(AmountError::TooLarge)
    }
}

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Decimal::of(self.0).as_str())
    }
}

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sum, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl PartialSchema for Sum {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .pattern(Some(r"^-?(0|[1-9][0-9]*)(\.[0-9]{1,6})?$"))
            .description(Some("Credits, as the shortest decimal string."))
            .examples(["28.8"])
            .into()
    }
}

impl ToSchema for Sum {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(json: &str) -> Result<Amount, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn counts_are_shown_as_decimals() {
        assert_eq!(Sum::from_thousandths(1250_u16).to_string(), "1.25");
        assert_eq!(Sum::from_whole(3_u32).to_string(), "3");
        assert_eq!(Sum::from_whole(i128::MAX), Sum::from_micros(i128::MAX));
        assert_eq!(Amount::from_micros(250_000).thousandths(), Some(250));
        assert_eq!(Amount::from_micros(250_500).thousandths(), None);
    }

    #[test]
    fn strings_and_whole_numbers_are_amounts() {
        for (json, micros) in [
            ("\"0\"", 0),
            ("\"28.8\"", 28_800_000),
            ("\"9223372036854.775807\"", i128::from(i64::MAX)),
            ("40", 40_000_000),
            ("9223372036854", 9_223_372_036_854_000_000),
        ] {
            assert_eq!(read(json), Ok(Amount(micros)), "{json}");
        }
    }

    #[test]
    fn floats_signs_spaces_and_excess_are_rejected() {
        for json in [
            "1.5",
            "1.0",
            "1e3",
            "-1",
            "\"-1\"",
            "\"+1\"",
            "\" 1\"",
            "\"01\"",
            "\"1.\"",
            "\".5\"",
            "\"1e3\"",
            "\"0.1234567\"",
            "\"١\"",
            "\"\"",
            "9223372036855",
            "true",
            "null",
            "[1]",
            "\"9223372036854.775808\"",
            "18446744073709551616",
            "1e400",
        ] {
            assert!(read(json).is_err(), "{json}");
        }
    }

    #[test]
    fn sums_are_written_in_the_shortest_form() {
        for (micros, text) in [
            (0, "0"),
            (1, "0.000001"),
            (-1, "-0.000001"),
            (10, "0.00001"),
            (100_000, "0.1"),
            (1_000_000, "1"),
            (-28_800_000, "-28.8"),
            (10_000_000_000_000, "10000000"),
            (i128::MAX, "170141183460469231731687303715884.105727"),
            (i128::MIN, "-170141183460469231731687303715884.105728"),
        ] {
            assert_eq!(Sum(micros).to_string(), text);
            assert_eq!(serde_json::to_string(&Sum(micros)).expect("a string"), format!("{text:?}"));
        }
    }

    proptest! {
        #[test]
        fn written_amounts_are_read_back(micros in 0..=i64::MAX, sum in any::<i64>()) {
            let amount = Amount(micros.into());
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
            let sum = Sum(i128::from(sum) * 1_000);
            prop_assert_eq!(sum.to_string().parse(), Ok(sum));
        }
    }
}
