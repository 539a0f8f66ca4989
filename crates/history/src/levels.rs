//! What something was from which instant on, many instants in a row: what was free in a bucket, what an account owed.
//!
//! A row is under its first instant and says by how much each level differs from the one before. What one slice of the
//! journal added is one row, unless it is much; a slice that goes on at the last instant of the one before has the last
//! word on it.

use crate::blocks::{Bytes, write_length, write_sum};
use crate::error::HistoryError;

/// Instants in one row at most.
pub(crate) const MOST_IN_A_ROW: usize = 256;

/// From when on, in milliseconds, and what it was.
pub(crate) type Level = (i64, i128);

/// The bytes of levels, in order of time; the first instant is not among them.
pub(crate) fn encode(levels: &[Level]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 * levels.len());
    let (mut before, mut level_before) = (levels.first().map_or(0, |(at, _)| *at), 0);
    for (place, (at, level)) in levels.iter().enumerate() {
        if place > 0 {
            write_length(&mut bytes, at.wrapping_sub(before).cast_unsigned());
        }
        write_sum(&mut bytes, level.wrapping_sub(level_before));
        (before, level_before) = (*at, *level);
    }
    bytes
}

/// What was at an instant, in a row that begins at or before it.
pub(crate) fn level_at(first: i64, bytes: &[u8], at: i64) -> Result<i128, HistoryError> {
    let mut bytes = Bytes(bytes);
    let (mut instant, mut level) = (first, bytes.sum()?);
    while !bytes.0.is_empty() {
        instant = instant.saturating_add_unsigned(bytes.length()?);
        if instant > at {
            break;
        }
        level = level.wrapping_add(bytes.sum()?);
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instant_has_the_last_level_before_it() {
        let levels = [(-5, 7), (0, i128::MAX), (3, 0), (1_700_000_000_000, -9), (i64::MAX, 4)];
        let bytes = encode(&levels);
        for (at, level) in levels {
            assert_eq!(level_at(-5, &bytes, at), Ok(level));
        }
        assert_eq!(level_at(-5, &bytes, 2), Ok(i128::MAX));
        assert_eq!(level_at(-5, &bytes, 1_800_000_000_000), Ok(-9));
        assert!(level_at(-5, &bytes[..bytes.len() - 1], i64::MAX).is_err());
        assert!(level_at(0, &[], 0).is_err());
    }
}
