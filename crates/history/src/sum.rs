//! Sums of micro-credits as bytes that sort like numbers. SQL integers have 64 bits, which is too
//! few for sums.
//!
//! The first byte has sign and length: 128 + n for n bytes of a positive number, 128 − n for a
//! negative one, 128 for zero. Then follows the magnitude, most significant byte first, with
//! inverted bits if negative.

/// The bytes of a sum, stored inline because nearly every row has some.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    bytes: [u8; 17],
    length: u8,
}

impl std::ops::Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Encodes a sum.
pub fn encode(sum: i128) -> Encoded {
    let magnitude = sum.unsigned_abs();
    let skipped = magnitude.leading_zeros() / 8;
    // At most 16 bytes of magnitude, shifted to the front. All are skipped if it is zero.
    let length = 16 - skipped as u8;
    let digits = magnitude.checked_shl(8 * skipped).unwrap_or(0).to_be_bytes();
    let mut bytes = [0; 17];
    bytes[0] = if sum < 0 { 128 - length } else { 128 + length };
    bytes[1..].copy_from_slice(&digits);
    if sum < 0 {
        bytes[1..=usize::from(length)].iter_mut().for_each(|digit| *digit = !*digit);
    }
    Encoded { bytes, length: length + 1 }
}

/// The leading digits of a sum as a number. Sums of different classes sort like their classes.
pub fn class(sum: i128) -> i64 {
    let bytes = encode(sum);
    i64::from(bytes[0]) << 8 | i64::from(bytes.get(1).copied().unwrap_or(0))
}

/// The inverse of [`encode`]; `None` if the bytes are not a sum.
pub fn decode(bytes: &[u8]) -> Option<i128> {
    let (first, digits) = bytes.split_first()?;
    let negative = *first < 128;
    if usize::from(first.abs_diff(128)) != digits.len() || digits.len() > 16 {
        return None;
    }
    let magnitude = digits.iter().fold(0u128, |sum, byte| {
        let digit = if negative { !byte } else { *byte };
        sum << 8 | u128::from(digit)
    });
    match i128::try_from(magnitude) {
        Ok(sum) if negative => Some(-sum),
        Ok(sum) => Some(sum),
        // The smallest number has no positive counterpart.
        Err(_) => (negative && magnitude == i128::MIN.unsigned_abs()).then_some(i128::MIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_sort_like_numbers_and_decode() {
        let mut sums = vec![0, 1, -1, 255, 256, -255, -256, i128::MAX, i128::MIN, 1 << 64, -7];
        sums.extend(
            (0..127).map(|bit| 1i128 << bit).chain((0..127).map(|bit| -(3i128 << bit) / 2)),
        );
        let mut encoded: Vec<Vec<u8>> = sums.iter().map(|sum| encode(*sum).to_vec()).collect();
        for (sum, bytes) in sums.iter().zip(&encoded) {
            assert_eq!(decode(bytes), Some(*sum));
        }
        sums.sort_unstable();
        assert!(sums.is_sorted_by_key(|sum| class(*sum)), "classes sort like their sums");
        encoded.sort_unstable();
        assert_eq!(encoded, sums.iter().map(|sum| encode(*sum).to_vec()).collect::<Vec<_>>());
    }

    #[test]
    fn other_bytes_are_not_sums() {
        for bytes in [&[][..], &[129], &[128, 0], &[130, 1], &[145; 18], &[100; 29]] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }
}
