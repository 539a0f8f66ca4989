//! Ids of attempts. Internally an attempt is a job, a cell and a consecutive number. Public ids are
//! a keyed permutation of these, so that an id does not reveal the number of jobs and no id can be
//! guessed from another. The key belongs to the store and is kept in the directory.

use bursar_core::cell::ids::{AttemptId, JobId};
use bursar_core::directory::{Directory, Secret};
use bursar_core::time::Timestamp;

use crate::ids::{ALPHABET, base32};

const PREFIX: &str = "att_";
/// The length of an id after its prefix: 128 bits.
const DIGITS: usize = 26;
/// The length of a stored id after its prefix: 64 bits of job, 16 of cell, 32 of number.
const STORED_DIGITS: usize = 23;
/// Four rounds with a good round function are enough for a permutation that looks random from both
/// sides. Two more cost a microsecond.
const ROUNDS: u8 = 6;

/// Encodes and decodes the ids of attempts.
#[derive(Copy, Clone)]
pub struct AttemptIds {
    secret: [u8; 32],
    /// When the secret was created. Earlier attempts were published under their stored ids.
    since: Timestamp,
}

#[cfg(test)]
thread_local! {
    /// Rounds of the permutation so far, on this thread.
    pub(crate) static ROUNDS_DONE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

impl std::fmt::Debug for AttemptIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AttemptIds")
    }
}

impl AttemptIds {
    /// Creates the encoder for a secret of the store.
    pub fn new(secret: &Secret, since: Timestamp) -> AttemptIds {
        AttemptIds { secret: secret.0, since }
    }

    /// Creates the encoder for the directory's secret, if there is one.
    pub fn of(directory: &Directory) -> Option<AttemptIds> {
        directory.attempt_secret().map(|(secret, since)| AttemptIds::new(secret, since))
    }

    /// When the secret was created.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    fn round(&self, round: u8, half: u64) -> u64 {
        #[cfg(test)]
        ROUNDS_DONE.set(ROUNDS_DONE.get() + 1);
        let mut message = [round; 9];
        message[1..].copy_from_slice(&half.to_le_bytes());
        let hash = blake3::keyed_hash(&self.secret, &message);
        let first = hash.as_bytes().first_chunk().expect("a hash has thirty-two bytes");
        u64::from_le_bytes(*first)
    }

    /// The id of an attempt.
    pub(crate) fn write(&self, cell: u16, attempt: AttemptId) -> String {
        let mut left = attempt.job.0;
        let mut right = (u64::from(cell) << 48) | (u64::from(attempt.number) << 16);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        let bits = (u128::from(left) << 64) | u128::from(right);
        format!("{PREFIX}{}", base32(bits, DIGITS))
    }

    /// The cell and the attempt of an id; `None` if it was not created by this store.
    pub(crate) fn read(&self, id: &str) -> Option<(u16, AttemptId)> {
        let bits = digits(id, DIGITS)?;
        let mut left = u64::try_from(bits >> 64).ok()?;
        let mut right = u64::try_from(bits & u128::from(u64::MAX)).ok()?;
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        if right & 0xffff != 0 {
            return None;
        }
        let cell = u16::try_from(right >> 48).ok()?;
        let number = u32::try_from((right >> 16) & 0xffff_ffff).ok()?;
        Some((cell, AttemptId { job: JobId(left), number }))
    }
}

/// The bits after the prefix of an id with `length` digits.
fn digits(id: &str, length: usize) -> Option<u128> {
    let text = id.strip_prefix(PREFIX).filter(|text| text.len() == length)?;
    let mut bits: u128 = 0;
    for byte in text.bytes() {
        let digit = ALPHABET.iter().position(|letter| *letter == byte)?;
        bits = bits.checked_mul(32)? | u128::try_from(digit).ok()?;
    }
    Some(bits)
}

/// The id of an attempt in file names, and as agents knew it before there was a secret. It sorts by
/// job, cell and number.
pub(crate) fn stored(cell: u16, attempt: AttemptId) -> String {
    let bits =
        (u128::from(attempt.job.0) << 48) | (u128::from(cell) << 32) | u128::from(attempt.number);
    format!("{PREFIX}{}", base32(bits, STORED_DIGITS))
}

/// The cell and the attempt of a stored id.
pub(crate) fn read_stored(id: &str) -> Option<(u16, AttemptId)> {
    let bits = digits(id, STORED_DIGITS)?;
    let job = JobId(u64::try_from(bits >> 48).ok()?);
    let cell = u16::try_from((bits >> 32) & 0xffff).ok()?;
    let number = u32::try_from(bits & 0xffff_ffff).ok()?;
    Some((cell, AttemptId { job, number }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn ids(byte: u8) -> AttemptIds {
        AttemptIds::new(&Secret([byte; 32]), Timestamp::MIN)
    }

    fn all() -> Vec<(u16, AttemptId)> {
        let of = |job, cell, number| (cell, AttemptId { job: JobId(job), number });
        vec![
            of(0, 0, 1),
            of(1, 0, 1),
            of(1, 0, 2),
            of(1, 7, 1),
            of(1 << 48, u16::MAX, 1),
            of(u64::MAX, u16::MAX, u32::MAX),
        ]
    }

    #[test]
    fn an_id_is_decoded_only_with_its_own_secret() {
        for (cell, attempt) in all() {
            let id = ids(1).write(cell, attempt);
            assert_eq!(id.len(), 30, "{id}");
            assert_eq!(ids(1).read(&id), Some((cell, attempt)), "{id}");
            assert_ne!(ids(2).read(&id), Some((cell, attempt)), "{id}");
            assert_eq!(read_stored(&id), None, "{id}");
            assert_eq!(ids(1).read(&stored(cell, attempt)), None, "{id}");
        }
    }

    /// The encoding never changes: agents keep ids, and stores are read by every later version.
    #[test]
    fn the_encoding_is_pinned() {
        let attempt = AttemptId { job: JobId(42), number: 3 };
        assert_eq!(ids(1).write(7, attempt), "att_689VNNWYP2QXCSRAV5K7SKV0BH");
        assert_eq!(stored(7, attempt), "att_000000000000AG00W000003");
    }

    /// Of many consecutive attempts no two ids look alike, and changing a digit gives no id of an
    /// existing attempt.
    #[test]
    fn ids_of_consecutive_attempts_have_nothing_in_common() {
        let ids = ids(3);
        let mut seen = BTreeSet::new();
        let mut alike = 0;
        for job in 0..500 {
            let id = ids.write(0, AttemptId { job: JobId(job), number: 1 });
            alike += usize::from(!seen.insert(id[..8].to_owned()));
            for place in [5, 17, 29] {
                let mut other = id.clone().into_bytes();
                other[place] = if other[place] == b'0' { b'1' } else { b'0' };
                let other = String::from_utf8(other).expect("the alphabet is ASCII");
                let read = ids.read(&other);
                assert!(read.is_none_or(|(_, attempt)| attempt.job.0 > 1 << 20), "{other}");
            }
        }
        // Four digits of five bits: among five hundred ids, about a tenth coincide by chance.
        assert!(alike < 125, "{alike}");
    }

    #[test]
    fn invalid_ids_are_not_decoded() {
        for wrong in [
            "",
            "att_",
            "att_0",
            "job_00000000000000000000000001",
            "att_ZZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "att_ZZZZZZZZZZZZZZZZZZZZZZZ",
            "att_0000000000000000000000000é",
        ] {
            assert_eq!((ids(1).read(wrong), read_stored(wrong)), (None, None), "{wrong}");
        }
    }

    #[test]
    fn a_stored_id_sorts_by_job_cell_and_number() {
        let written: Vec<String> = all().iter().map(|(cell, id)| stored(*cell, *id)).collect();
        assert!(written.is_sorted_by(|a, b| a < b), "{written:?}");
        for (id, meant) in written.iter().zip(all()) {
            assert_eq!(read_stored(id), Some(meant), "{id}");
        }
    }
}
