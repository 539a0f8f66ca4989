//! Answers kept for their idempotency keys.

use std::collections::VecDeque;
use std::sync::Arc;

use super::hash_index::HashIndex;
use crate::credits::Credits;
use crate::ledger::holds::hold::HoldState;
use crate::ledger::id::HoldNo;
use crate::ledger::reply::{HoldReply, LedgerAnswer, Reply};
use crate::time::Timestamp;

/// An answer kept for its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeptAnswer {
    /// The hash of the request.
    pub fingerprint: u128,
    /// The answer.
    pub answer: Arc<LedgerAnswer>,
    /// The id of the request if it was refused or changed nothing; zero if it changed something or
    /// if that is not known.
    pub request: u128,
}

/// One answer, with its key and the instant at which it was given.
#[derive(Clone, Debug)]
pub struct KeptEntry {
    /// When it was given.
    pub at: Timestamp,
    /// The hash of tenant and key.
    pub key: u128,
    /// The answer.
    pub kept: KeptAnswer,
}

/// The compact form of a [`KeptEntry`]: a ledger has millions of them.
#[derive(Clone, Debug)]
struct Packed {
    key: u128,
    fingerprint: u128,
    at: Timestamp,
    answer: PackedAnswer,
}

/// An answer. The most common one is stored inline.
#[derive(Clone, Debug)]
enum PackedAnswer {
    /// A hold with a lease, all of whose usage was collected.
    Leased {
        hold: HoldNo,
        state: HoldState,
        slices: u32,
        amount: Credits,
        captured: Credits,
        expires_at: Timestamp,
    },
    /// The answer to a request that was refused or changed nothing, with its id.
    Refused(Box<(Arc<LedgerAnswer>, u128)>),
    /// Any other answer.
    Other(Arc<LedgerAnswer>),
}

impl PackedAnswer {
    fn of(answer: Arc<LedgerAnswer>, request: u128) -> PackedAnswer {
        if request != 0 {
            return PackedAnswer::Refused(Box::new((answer, request)));
        }
        match &*answer {
            Ok(Reply::Hold(HoldReply {
                hold,
                state,
                amount,
                captured,
                uncollected: Credits::ZERO,
                expires_at: Some(expires_at),
                slices,
            })) => PackedAnswer::Leased {
                hold: *hold,
                state: *state,
                slices: *slices,
                amount: *amount,
                captured: *captured,
                expires_at: *expires_at,
            },
            Ok(_) | Err(_) => PackedAnswer::Other(answer),
        }
    }

    fn unpacked(&self) -> Arc<LedgerAnswer> {
        match self {
            PackedAnswer::Leased { hold, state, slices, amount, captured, expires_at } => {
                Arc::new(Ok(Reply::Hold(HoldReply {
                    hold: *hold,
                    state: *state,
                    amount: *amount,
                    captured: *captured,
                    uncollected: Credits::ZERO,
                    expires_at: Some(*expires_at),
                    slices: *slices,
                })))
            }
            PackedAnswer::Refused(refused) => Arc::clone(&refused.0),
            PackedAnswer::Other(answer) => Arc::clone(answer),
        }
    }

    fn refers(&self) -> Option<Refers> {
        let answer = match self {
            PackedAnswer::Leased { hold, .. } => return Some(Refers::Hold(*hold)),
            PackedAnswer::Refused(refused) => &refused.0,
            PackedAnswer::Other(answer) => answer,
        };
        answer.as_ref().as_ref().ok()?.refers_to()
    }

    fn request(&self) -> u128 {
        match self {
            PackedAnswer::Refused(refused) => refused.1,
            PackedAnswer::Leased { .. } | PackedAnswer::Other(_) => 0,
        }
    }
}

impl Packed {
    fn kept(&self) -> KeptAnswer {
        KeptAnswer {
            fingerprint: self.fingerprint,
            answer: self.answer.unpacked(),
            request: self.answer.request(),
        }
    }
}

/// What an answer refers to by a number that is used again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refers {
    /// A hold or charge.
    Hold(HoldNo),
    /// A refund, transfer or collection.
    Movement(u32),
}

/// All kept answers.
///
/// They are stored in the order in which they were given and will be forgotten, and are found
/// through a table of small entries. Both take less memory traffic than a table of the answers
/// themselves.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    entries: VecDeque<Packed>,
    /// The number of the first entry; the others follow without gaps.
    first: u32,
    /// By key.
    numbers: HashIndex,
}

impl Answers {
    /// The answer under a key.
    pub fn get(&self, key: u128) -> Option<KeptAnswer> {
        let hash = self.numbers.hash_of(&key);
        let number = self.numbers.find(hash, |number| self.entry(number).key == key)?;
        Some(self.entry(number).kept())
    }

    fn entry(&self, number: u32) -> &Packed {
        &self.entries[number.wrapping_sub(self.first) as usize]
    }

    /// Adds an answer given now, under a new key.
    pub fn push(&mut self, entry: KeptEntry) {
        let KeptEntry { at, key, kept: KeptAnswer { fingerprint, answer, request } } = entry;
        let count = u32::try_from(self.entries.len()).expect("fewer than 2^32 answers are kept");
        let hash = self.numbers.hash_of(&key);
        self.numbers.insert(hash, self.first.wrapping_add(count));
        let answer = PackedAnswer::of(answer, request);
        self.entries.push_back(Packed { key, fingerprint, at, answer });
    }

    /// Removes the oldest answer. Returns its key.
    pub fn forget_oldest(&mut self) -> Option<u128> {
        let oldest = self.entries.pop_front()?;
        let hash = self.numbers.hash_of(&oldest.key);
        self.numbers.remove(hash, self.first);
        self.first = self.first.wrapping_add(1);
        Some(oldest.key)
    }

    /// The number of answers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What the answers from one on refer to by a number that is used again.
    pub fn references_from(&self, first: usize) -> impl Iterator<Item = Refers> {
        self.entries
            .range(first.min(self.entries.len())..)
            .filter_map(|packed| packed.answer.refers())
    }

    /// Undoes the last push.
    pub fn undo_push(&mut self) {
        if let Some(last) = self.entries.pop_back() {
            // Its number follows those of all remaining entries.
            let number = self.first.wrapping_add(self.entries.len() as u32);
            let hash = self.numbers.hash_of(&last.key);
            self.numbers.remove(hash, number);
        }
    }

    /// All answers, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = KeptEntry> {
        self.entries.iter().map(|packed| KeptEntry {
            at: packed.at,
            key: packed.key,
            kept: packed.kept(),
        })
    }

    /// Their keys, oldest first.
    pub fn keys(&self) -> impl Iterator<Item = u128> {
        self.entries.iter().map(|packed| packed.key)
    }

    /// The instants at which they were given, oldest first.
    pub fn times(&self) -> impl Iterator<Item = Timestamp> {
        self.entries.iter().map(|packed| packed.at)
    }

    /// When the oldest answer was given.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.times().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::refusal::Refusal;

    #[test]
    fn every_answer_is_returned_unchanged() {
        let hold = HoldReply {
            hold: HoldNo(7),
            state: HoldState::Lapsed,
            amount: Credits::MAX,
            captured: Credits::from_micros(5).expect("a small amount"),
            uncollected: Credits::ZERO,
            expires_at: Some(Timestamp::MAX),
            slices: 3,
        };
        let given: Vec<LedgerAnswer> = vec![
            Ok(Reply::Hold(hold)),
            Ok(Reply::Hold(HoldReply { expires_at: None, ..hold })),
            Ok(Reply::Hold(HoldReply { uncollected: hold.captured, ..hold })),
            Ok(Reply::Done),
            Err(Refusal::HoldClosed { state: HoldState::Settled }),
        ];
        let mut answers = Answers::default();
        for (number, answer) in (0..).zip(&given) {
            let request = if answer.is_err() { number } else { 0 };
            let answer = Arc::new(answer.clone());
            let kept = KeptAnswer { fingerprint: number + 1, answer, request };
            answers.push(KeptEntry { at: Timestamp::MIN, key: number, kept: kept.clone() });
            assert_eq!(answers.get(number), Some(kept));
        }
        let again: Vec<LedgerAnswer> =
            answers.iter().map(|entry| (*entry.kept.answer).clone()).collect();
        assert_eq!(again, given);
        let in_place = |packed: &&Packed| matches!(packed.answer, PackedAnswer::Leased { .. });
        assert_eq!(answers.entries.iter().filter(in_place).count(), 1);
        assert!(size_of::<Packed>() <= 80, "{} bytes", size_of::<Packed>());
    }

    #[test]
    fn answers_are_found_by_key_until_they_are_forgotten_or_undone() {
        let mut answers = Answers { first: u32::MAX - 500, ..Answers::default() };
        let entry = |number: u128| KeptEntry {
            at: Timestamp::from_millis(number as i64),
            key: number << 70 | number,
            kept: KeptAnswer { fingerprint: number, answer: Arc::new(Ok(Reply::Done)), request: 0 },
        };
        let found = |answers: &Answers, number: u128| {
            answers.get(entry(number).key).map(|kept| kept.fingerprint)
        };
        for number in 0..2000 {
            answers.push(entry(number));
            answers.push(entry(number + 10_000));
            answers.undo_push();
            assert_eq!(found(&answers, number), Some(number));
            assert_eq!(found(&answers, number + 10_000), None);
            if let Some(old) = number.checked_sub(100) {
                answers.forget_oldest();
                assert_eq!(found(&answers, old), None);
                assert_eq!(found(&answers, old + 1), Some(old + 1));
            }
        }
        assert_eq!(answers.oldest(), Some(entry(1900).at));
        assert!(answers.iter().map(|entry| entry.kept.fingerprint).eq(1900..2000));
    }
}
