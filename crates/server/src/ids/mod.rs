//! Ids that the server generates: prefixed, sortable by time, with their shard.

pub mod attempt;

use std::sync::{Mutex, PoisonError};

use axum::http::HeaderValue;
use bursar_core::ledger::id::Name;
use bursar_core::time::Timestamp;

/// Crockford's alphabet: no letters that look like digits; digits sort like the bits they encode.
pub(crate) const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Generates ids: 48 bits of milliseconds, 16 bits of shard, and 64 bits that are random in each
/// new millisecond and incremented within it.
#[derive(Debug)]
pub struct IdMaker {
    shard: u16,
    last: Mutex<(i64, u64)>,
}

impl IdMaker {
    /// Creates a generator for one shard.
    pub fn new(shard: u16) -> IdMaker {
        IdMaker { shard, last: Mutex::new((i64::MIN, 0)) }
    }

    /// A new id: `grant_01JAB…`.
    pub fn make(&self, prefix: &str, now: Timestamp) -> Name {
        let mut id = Name::with_capacity(prefix.len() + 1 + DIGITS);
        id.push_str(prefix);
        id.push('_');
        id.push_str(ascii(&base32_digits::<DIGITS>(self.bits(now))));
        id
    }

    /// The id of a new request.
    pub fn make_request_id(&self, now: Timestamp) -> RequestId {
        RequestId::from_bits(self.bits(now))
    }

    fn bits(&self, now: Timestamp) -> u128 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let millis = now.millis().max(0);
        *last = if last.0 == millis {
            (millis, last.1.wrapping_add(1))
        } else {
            // The top bit stays free, so that incrementing never wraps within one millisecond.
            (millis, random_bits() >> 1)
        };
        (u128::from(millis.unsigned_abs()) << 80)
            | (u128::from(self.shard) << 64)
            | u128::from(last.1)
    }
}

/// Whether an id has the form of the further holds of a job, `hold_01JAB….2`. The ledger makes them up in a decision, when
/// it cannot look in the archive. So no client may choose one.
pub(crate) fn is_of_job(id: &str) -> bool {
    let made = id.strip_prefix("hold_").and_then(|rest| rest.split_once('.'));
    made.is_some_and(|(digits, _)| {
        digits.len() == DIGITS && digits.bytes().all(|digit| ALPHABET.contains(&digit))
    })
}

/// Digits of an id: 128 bits.
const DIGITS: usize = 26;

/// The id of a request, `req_01JAB…`, as digits and as a number. Stored inline, because every
/// request has one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RequestId([u8; DIGITS], u128);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("req_")?;
        f.write_str(ascii(&self.0))
    }
}

impl RequestId {
    /// The id with this number.
    pub(crate) fn from_bits(bits: u128) -> RequestId {
        RequestId(base32_digits(bits), bits)
    }

    /// The id as a number.
    pub(crate) fn bits(&self) -> u128 {
        self.1
    }

    /// The id for a header.
    pub(crate) fn header(&self) -> HeaderValue {
        let mut text = *b"req_00000000000000000000000000";
        text[4..].copy_from_slice(&self.0);
        HeaderValue::from_bytes(&text).expect("letters and digits")
    }
}

fn ascii(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).expect("the alphabet is ASCII")
}

/// Encodes the lowest `length × 5` bits, most significant first.
pub(crate) fn base32(bits: u128, length: usize) -> String {
    let mut text = vec![0; length];
    write_base32(bits, &mut text);
    String::from_utf8(text).expect("the alphabet is ASCII")
}

fn base32_digits<const LENGTH: usize>(bits: u128) -> [u8; LENGTH] {
    let mut digits = [0; LENGTH];
    write_base32(bits, &mut digits);
    digits
}

fn write_base32(mut bits: u128, digits: &mut [u8]) {
    for place in digits.iter_mut().rev() {
        *place = ALPHABET[(bits & 31) as usize];
        bits >>= 5;
    }
}

/// The number of a request with this id, and when it arrived; `None` if it is not the id of a request.
pub(crate) fn request_of(id: &str) -> Option<(u128, Timestamp)> {
    let digits = id.strip_prefix("req_").filter(|digits| digits.len() == DIGITS)?;
    let digit = |byte: u8| ALPHABET.iter().position(|known| *known == byte);
    let bits = digits.bytes().try_fold(0u128, |bits, byte| {
        Some(bits.checked_mul(32)? | u128::try_from(digit(byte)?).ok()?)
    })?;
    Some((bits, Timestamp::from_millis(i64::try_from(bits >> 80).ok()?)))
}

/// Sixty-four bits from the operating system.
pub(crate) fn random_bits() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_request_is_in_its_id() {
        let at = Timestamp::from_millis(1_700_000_000_123);
        let id = IdMaker::new(3).make_request_id(at).to_string();
        assert_eq!(request_of(&id).map(|(_, at)| at), Some(at));
        for wrong in ["", "req_", "req_0", &id[1..], &id.replace("req", "job"), "req_ééééééééééééé"]
        {
            assert_eq!(request_of(wrong), None, "{wrong}");
        }
        assert_eq!(request_of(&format!("req_{}", "Z".repeat(26))), None, "too large");
    }

    #[test]
    fn ids_sort_by_time_and_never_repeat() {
        let maker = IdMaker::new(3);
        let mut made = Vec::new();
        for millis in [1, 1, 1, 2, 1_700_000_000_000, 1_700_000_000_000] {
            made.push(maker.make("hold", Timestamp::from_millis(millis)));
        }
        assert!(made.is_sorted_by(|a, b| a < b), "{made:?}");
        assert!(made.iter().all(|id| id.len() == 31 && id.starts_with("hold_")));
    }
}
