//! Money: integer micro-credits, checked arithmetic, one textual form.

use std::fmt;
use std::str::FromStr;

/// Micro-credits in one credit.
pub const MICROS_PER_CREDIT: i64 = 1_000_000;

/// An amount of micro-credits, never negative. Sums of many amounts are plain `i128`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credits(i64);

impl Credits {
    /// No credits.
    pub const ZERO: Credits = Credits(0);
    /// The largest amount that one command may name: 9223372036854.775807 credits.
    pub const MAX: Credits = Credits(i64::MAX);

    /// An amount of micro-credits; `None` if negative.
    pub const fn from_micros(micros: i64) -> Option<Credits> {
        if micros < 0 { None } else { Some(Credits(micros)) }
    }

    /// A whole number of credits; `None` if negative or too large.
    pub const fn from_whole(credits: i64) -> Option<Credits> {
        match credits.checked_mul(MICROS_PER_CREDIT) {
            Some(micros) => Credits::from_micros(micros),
            None => None,
        }
    }

    /// The amount in micro-credits.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// The amount in micro-credits, as the unsigned length it has on a line.
    pub const fn length(self) -> u64 {
        self.0.unsigned_abs()
    }

    /// The inverse of [`Credits::length`]; `None` above [`Credits::MAX`].
    pub fn from_length(length: u64) -> Option<Credits> {
        i64::try_from(length).ok().map(Credits)
    }

    /// Whether the amount is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self + other`, or `None` on overflow.
    pub fn checked_add(self, other: Credits) -> Option<Credits> {
        self.0.checked_add(other.0).map(Credits)
    }

    /// `self - other`, or `None` if that would be negative.
    pub fn checked_sub(self, other: Credits) -> Option<Credits> {
        self.0.checked_sub(other.0).and_then(Credits::from_micros)
    }

    /// `self - other`, or zero if `other` is larger.
    pub fn saturating_sub(self, other: Credits) -> Credits {
        self.checked_sub(other).unwrap_or(Credits::ZERO)
    }
}

/// Writes a sum of micro-credits in its shortest decimal form: `28.8`, `40`, `0`.
pub fn format_micros(micros: i128, out: &mut impl fmt::Write) -> fmt::Result {
    if micros < 0 {
        out.write_char('-')?;
    }
    let magnitude = micros.unsigned_abs();
    let unit = u128::from(MICROS_PER_CREDIT.unsigned_abs());
    let (whole, fraction) = (magnitude / unit, magnitude % unit);
    if fraction == 0 {
        return write!(out, "{whole}");
    }
    let digits = format!("{fraction:06}");
    write!(out, "{whole}.{}", digits.trim_end_matches('0'))
}

impl fmt::Display for Credits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_micros(i128::from(self.0), f)
    }
}

/// Why a text is not an amount.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum AmountError {
    /// Not of the form `0`, `12` or `12.345678`: ASCII digits, no sign, no leading zero, no space.
    Form,
    /// More than 9223372036854.775807.
    TooLarge,
}

impl fmt::Display for AmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AmountError::Form => {
                "write an amount as digits with at most six decimals, such as \"28.8\""
            }
            AmountError::TooLarge => "an amount is at most 9223372036854.775807",
        })
    }
}

impl std::error::Error for AmountError {}

impl FromStr for Credits {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Credits, AmountError> {
        let (whole, fraction) = match text.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (text, None),
        };
        let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !all_digits(whole) || (whole.len() > 1 && whole.starts_with('0')) {
            return Err(AmountError::Form);
        }
        let mut micros: i64 = 0;
        if let Some(fraction) = fraction {
            if !all_digits(fraction) || fraction.len() > 6 {
                return Err(AmountError::Form);
            }
            for digit in fraction.bytes().chain(std::iter::repeat_n(b'0', 6 - fraction.len())) {
                micros = micros * 10 + i64::from(digit - b'0');
            }
        }
        let whole: i64 = whole.parse().map_err(|_| AmountError::TooLarge)?;
        whole
            .checked_mul(MICROS_PER_CREDIT)
            .and_then(|whole| whole.checked_add(micros))
            .map(Credits)
            .ok_or(AmountError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_print_in_their_shortest_form_and_parse_back() {
        for (micros, text) in [
            (0, "0"),
            (1, "0.000001"),
            (28_800_000, "28.8"),
            (40_000_000, "40"),
            (i64::MAX, "9223372036854.775807"),
        ] {
            let amount = Credits::from_micros(micros).expect("not negative");
            assert_eq!(amount.to_string(), text);
            assert_eq!(text.parse::<Credits>(), Ok(amount));
        }
        assert_eq!("1.500000".parse::<Credits>().map(Credits::micros), Ok(1_500_000));
    }

    #[test]
    fn anything_but_plain_digits_is_refused() {
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            " 1",
            "1 ",
            "01",
            "1e3",
            "0.1234567",
            "١",
            "1_0",
            "1.2.3",
        ] {
            assert_eq!(text.parse::<Credits>(), Err(AmountError::Form), "{text:?}");
        }
        for text in ["9223372036854.775808", "9223372036855", "99999999999999999999999"] {
            assert_eq!(text.parse::<Credits>(), Err(AmountError::TooLarge), "{text:?}");
        }
    }

    #[test]
    fn arithmetic_refuses_instead_of_wrapping() {
        let one = Credits::from_micros(1).expect("not negative");
        assert_eq!(Credits::MAX.checked_add(one), None);
        assert_eq!(Credits::ZERO.checked_sub(one), None);
        assert_eq!(Credits::from_micros(-1), None);
        assert_eq!(Credits::from_whole(i64::MAX), None);
        assert_eq!(Credits::from_length(u64::MAX), None);
    }
}
