//! Lets the copy share memory with the state of the writer again, some blocks at a time.
//!
//! The writer shows some of its blocks between two requests, and the copy takes them when it has
//! applied what they contain. It takes only blocks that are equal to its own, so an error of either
//! side does not pass to the other one.

use bursar_core::ledger::Ledger;
use bursar_core::ledger::sharing::{BlockPlace, Differs, SharedBlocks};
use bursar_engine::Handle;

/// The blocks that the copy takes next.
pub(super) struct Sharing {
    writer: Handle<Ledger>,
    next: BlockPlace,
    /// Blocks that the copy takes at this position, and their place.
    pending: Option<(u64, SharedBlocks, BlockPlace)>,
    /// Where a difference was found. The writer may have dropped what it showed, so it is asked
    /// again.
    differed: Option<BlockPlace>,
}

impl Sharing {
    pub(super) fn new(writer: Handle<Ledger>) -> Sharing {
        Sharing { writer, next: BlockPlace::default(), pending: None, differed: None }
    }

    /// Asks the writer for its next blocks, unless some are pending. Nothing is applied to the copy
    /// meanwhile, so it cannot pass their position.
    pub(super) fn ask(&mut self) {
        if self.pending.is_some() {
            return;
        }
        let from = self.next;
        // Later if the writer is too busy or does not serve.
        let Ok((shown, position)) =
            self.writer.peek_with_position(move |ledger| ledger.shared_blocks(from))
        else {
            return;
        };
        let (blocks, next) = shown;
        self.pending = Some((position, blocks, from));
        self.next = next;
    }

    /// Whether the next blocks are the first again.
    pub(super) fn begins_round(&self) -> bool {
        self.next == BlockPlace::default()
    }

    /// Takes the pending blocks if the copy is at their position. Returns whether it did.
    ///
    /// # Errors
    /// If the copy and the writer differ there, for the second time.
    pub(super) fn take(&mut self, copy: &mut Ledger, position: u64) -> Result<bool, Differs> {
        match self.pending.take() {
            Some((at, blocks, place)) if at == position => match copy.share(blocks) {
                Ok(()) => {
                    self.differed = None;
                    Ok(true)
                }
                Err(differs) if self.differed.take() == Some(place) => Err(differs),
                Err(Differs) => {
                    (self.differed, self.next) = (Some(place), place);
                    Ok(false)
                }
            },
            Some(pending) if pending.0 > position => {
                self.pending = Some(pending);
                Ok(false)
            }
            Some(_) | None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bursar_core::credits::Credits;
    use bursar_core::ledger::command::{AccountKind, AccountSettings, IssueGrant};
    use bursar_core::ledger::event::Event;
    use bursar_core::ledger::id::GrantNo;
    use bursar_core::ledger::{Command, Envelope};
    use bursar_core::machine::Machine;
    use bursar_engine::{Engine, EngineOptions, LedgerCodec, WallClock, replay};
    use bursar_journal::memory::MemoryJournal;
    use bursar_journal::{Journal, JournalId};

    use super::*;
    use crate::followers::feed::Feed;

    struct World {
        journal: Arc<dyn Journal>,
        engine: Engine<LedgerCodec>,
        issued: usize,
    }

    impl World {
        fn new() -> World {
            let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new(JournalId([7; 16])));
            let (codec, clock) = (Arc::new(LedgerCodec), Arc::new(WallClock::new()));
            let options = EngineOptions::default();
            let engine = Engine::start(Arc::clone(&journal), codec, clock, options);
            let world = World { journal, engine, issued: 0 };
            let (settings, kind) = (AccountSettings::default(), AccountKind::Org);
            world.execute(Command::OpenAccount { path: "acme".into(), kind, settings });
            world
        }

        /// Returns the position of the command.
        fn execute(&self, command: Command) -> u64 {
            let seen = self.engine.handle().execute(Envelope::default(), command);
            let seen = seen.expect("it serves");
            seen.value.expect("accepted");
            seen.position
        }

        /// Issues grants. Returns the position of the last.
        fn issue(&mut self, count: usize) -> u64 {
            let mut position = 0;
            for _ in 0..count {
                position = self.execute(Command::IssueGrant(IssueGrant::purchase(
                    format!("g{}", self.issued),
                    "acme",
                    Credits::from_micros(5).expect("positive"),
                )));
                self.issued += 1;
            }
            position
        }

        /// What the journal gives, which shares nothing with the writer.
        fn replayed(&self) -> (Ledger, u64) {
            let replayed = replay(&*self.journal, &LedgerCodec).expect("the journal is whole");
            (replayed.machine, replayed.head.position)
        }

        /// How many blocks of a copy the writer has, and of how many.
        fn shared(&self, copy: Ledger) -> (usize, usize) {
            let shared = move |ledger: &Ledger| copy.shared_with(ledger);
            self.engine.handle().peek_with_position(shared).expect("it serves").0
        }
    }

    #[test]
    fn blocks_are_taken_at_the_position_at_which_they_were_shown() {
        let mut world = World::new();
        world.issue(70);
        let (mut early, before) = world.replayed();
        let shown = world.issue(70);
        let (mut present, _) = world.replayed();
        let mut sharing = Sharing::new(world.engine.handle());
        sharing.ask();
        world.issue(1);
        sharing.ask();
        assert_eq!(sharing.take(&mut early, before), Ok(false), "it has not come to the position");
        let digest = present.digest();
        assert_eq!(sharing.take(&mut present, shown), Ok(true));
        assert_eq!(present.digest(), digest);
        assert_eq!(world.shared(present), (2, 3), "one has changed since");
        sharing.ask();
        let after = world.issue(1);
        let (mut late, _) = world.replayed();
        assert_eq!(sharing.take(&mut late, after), Ok(false), "it has passed the position");
        sharing.ask();
        assert_eq!(sharing.take(&mut late, after), Ok(true));
        assert_eq!(world.shared(late), (3, 3));
    }

    #[test]
    fn a_difference_is_reported_when_it_is_found_twice() {
        let mut world = World::new();
        world.issue(70);
        let (mut copy, position) = world.replayed();
        let right = copy.clone();
        let grant = GrantNo(3);
        copy.apply(copy.now(), &Event::GrantRevoked { grant, amount: 0 });
        let mut sharing = Sharing::new(world.engine.handle());
        let mut take = |copy: &mut Ledger| {
            sharing.ask();
            sharing.take(copy, position)
        };
        assert_eq!(take(&mut copy), Ok(false), "the writer may have dropped what it showed");
        assert_eq!(take(&mut copy), Err(Differs));
        assert!(copy.grant(grant).revoked, "nothing was taken");
        assert_eq!(take(&mut copy), Ok(false), "the next round begins");
        copy = right;
        assert_eq!(take(&mut copy), Ok(true), "and finds no difference any more");
    }

    #[test]
    fn a_writer_that_has_ended_is_not_waited_for() {
        let mut world = World::new();
        let position = world.issue(1);
        let (mut copy, _) = world.replayed();
        let mut sharing = Sharing::new(world.engine.handle());
        world.engine.stop();
        sharing.ask();
        assert_eq!(sharing.take(&mut copy, position), Ok(false));
    }

    #[tokio::test]
    async fn the_copy_of_a_feed_shares_again_what_both_sides_changed() {
        let mut world = World::new();
        world.issue(200);
        let observer = EngineOptions::default().observer;
        let journal = Arc::clone(&world.journal);
        let feed = Feed::start(journal, &world.engine, u64::MAX, observer).expect("a feed");
        assert_eq!(world.shared(feed.look(Ledger::clone).value), (4, 4));
        world.issue(300);
        loop {
            let position = world.issue(1);
            let mut reached = feed.reached();
            reached.wait_for(|reached| *reached >= position).await.expect("it follows");
            let (shared, all) = world.shared(feed.look(Ledger::clone).value);
            // The last block changes with every grant.
            if shared + 1 >= all {
                break;
            }
        }
    }
}
