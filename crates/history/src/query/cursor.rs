//! The position at which a list continues. Opaque to clients, which receive it as text and send it
//! back.

use std::fmt;
use std::str::FromStr;

use crate::error::HistoryError;

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows, newest first.
    pub data: Vec<T>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
}

/// The last row of a page: its time (or position) and its number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) major: i64,
    pub(crate) minor: i64,
}

/// A checksum that detects mistyped cursors.
fn check(major: i64, minor: i64) -> u16 {
    let mixed = major.cast_unsigned().rotate_left(17) ^ minor.cast_unsigned() ^ 0x6275_7273_6172;
    // Folds the four 16-bit parts; the cast keeps the lowest.
    (mixed ^ mixed >> 16 ^ mixed >> 32 ^ mixed >> 48) as u16
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cursor { major, minor } = *self;
        write!(f, "{major:016x}{minor:016x}{:04x}", check(major, minor))
    }
}

impl FromStr for Cursor {
    type Err = HistoryError;

    fn from_str(text: &str) -> Result<Cursor, HistoryError> {
        let digits = text.len() == 36 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if !digits {
            return Err(HistoryError::BadCursor);
        }
        let number = |part: &str| u64::from_str_radix(part, 16).unwrap_or(0);
        let (major, minor) =
            (number(&text[..16]).cast_signed(), number(&text[16..32]).cast_signed());
        if number(&text[32..]) != u64::from(check(major, minor)) {
            return Err(HistoryError::BadCursor);
        }
        Ok(Cursor { major, minor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_parses_and_other_text_does_not() {
        let cursor = Cursor { major: 1_767_225_600_000, minor: 41 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "7", "zz", &"0".repeat(36), &format!("{cursor}0"), &"é".repeat(18)] {
            assert_eq!(text.parse::<Cursor>(), Err(HistoryError::BadCursor), "{text}");
        }
    }
}
