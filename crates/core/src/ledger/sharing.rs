//! Memory that the state of a writer and the copy that follows it share.
//!
//! Grants lie in blocks that a clone shares. What both sides have changed since then is in memory twice. When the copy
//! is at the position at which the writer has shown some of its blocks, it takes them in the place of its own equal
//! ones.

use super::credits::grant::Grant;
use super::index::blocks::BlockRange;
use super::state::{GRANTS, Ledger};

/// Blocks that are shown at once. The writer then writes a reference count for each of them.
const PIECE: usize = 64;

/// A block of grants, by its number.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockPlace(usize);

/// Some consecutive blocks of grants, as they were at one position.
#[derive(Clone, Debug)]
pub struct SharedBlocks(BlockRange<Grant, GRANTS>);

/// The copy is not equal to the state that it follows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Differs;

impl Ledger {
    /// Some blocks from a place on, and the place of the next ones. After the last comes the first.
    pub fn shared_blocks(&self, from: BlockPlace) -> (SharedBlocks, BlockPlace) {
        let next = from.0 + PIECE;
        let next = if next < self.grants.block_count() { next } else { 0 };
        (SharedBlocks(self.grants.piece(from.0, PIECE)), BlockPlace(next))
    }

    /// Takes blocks of another state, which is at the same position, in the place of its own.
    ///
    /// # Errors
    /// If they are not equal. Then nothing is taken.
    pub fn share(&mut self, blocks: SharedBlocks) -> Result<(), Differs> {
        let equal = self.grants.share(blocks.0, |grant, all| _ = all.value(grant));
        if equal { Ok(()) } else { Err(Differs) }
    }

    /// The number of blocks that both states have in one piece of memory, and the number of all blocks.
    pub fn shared_with(&self, other: &Ledger) -> (usize, usize) {
        (self.grants.shared_with(&other.grants), self.grants.block_count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credits::Credits;
    use crate::ledger::command::{AccountKind, AccountSettings, Command, Envelope, IssueGrant};
    use crate::machine::execute;
    use crate::time::Timestamp;

    fn run(ledger: &mut Ledger, command: &Command) {
        let at = Timestamp::from_millis(1);
        execute(ledger, at, &Envelope::default(), command, &mut Vec::new()).expect("accepted");
    }

    fn with_grants(count: usize) -> Ledger {
        let mut ledger = Ledger::new();
        let (settings, kind) = (AccountSettings::default(), AccountKind::Org);
        run(&mut ledger, &Command::OpenAccount { path: "acme".into(), kind, settings });
        for number in 0..count {
            run(
                &mut ledger,
                &Command::IssueGrant(IssueGrant::purchase(
                    format!("g{number}"),
                    "acme",
                    Credits::from_micros(5).expect("positive"),
                )),
            );
        }
        ledger
    }

    #[test]
    fn the_copy_takes_nothing_from_a_state_that_differs() {
        let count = GRANTS * 5;
        let mut ledger = with_grants(count);
        let mut copy = ledger.clone();
        ledger.grants[70].start += 1;
        let (wrong, _) = ledger.shared_blocks(BlockPlace::default());
        assert_eq!(copy.share(wrong), Err(Differs));
        assert!(copy.grants[70].start < ledger.grants[70].start);
        assert_eq!(copy.shared_with(&ledger), (4, 5));
        let (short, _) = with_grants(count - 1).shared_blocks(BlockPlace::default());
        assert_eq!(copy.share(short), Err(Differs));
        let (long, _) = with_grants(count + 1).shared_blocks(BlockPlace::default());
        assert_eq!(copy.share(long), Err(Differs));
    }

    #[test]
    fn a_clone_shares_every_block_and_a_change_copies_one() {
        let mut ledger = with_grants(GRANTS * 5);
        let copy = ledger.clone();
        assert_eq!(copy.shared_with(&ledger), (5, 5));
        ledger.grants[70].revoked = true;
        assert_eq!(copy.shared_with(&ledger), (4, 5));
        assert!(!copy.grants[70].revoked);
    }

    #[test]
    fn a_round_comes_to_every_block_once() {
        let ledger = with_grants(PIECE * GRANTS + 1);
        let mut copy = Ledger::new();
        copy.clone_from(&ledger);
        for number in [0, PIECE * GRANTS - 1, PIECE * GRANTS] {
            copy.grants[number] = copy.grants[number].clone();
        }
        let (shared, all) = copy.shared_with(&ledger);
        assert_eq!((shared, all), (PIECE + 1 - 3, PIECE + 1));
        let (first, next) = ledger.shared_blocks(BlockPlace::default());
        assert_eq!((copy.share(first), next), (Ok(()), BlockPlace(PIECE)));
        assert_eq!(copy.shared_with(&ledger), (all - 1, all));
        let (last, next) = ledger.shared_blocks(next);
        assert_eq!((copy.share(last), next), (Ok(()), BlockPlace(0)));
        assert_eq!(copy.shared_with(&ledger), (all, all));
    }
}
