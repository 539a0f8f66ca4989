//! What a writer does while another process owns its machine: it follows the journal, and continues from there.

use std::sync::atomic::Ordering;

use bursar_journal::Head;

use super::Writer;
use crate::codec::Codec;
use crate::error::ReplayError;
use crate::followed::{Dropped, NotTaken};
use crate::replay::{Replayed, replay_watched};
use crate::writer::observer::Trouble;

impl<C: Codec> Writer<C> {
    /// Whether the machine was never owned here and may not be, which is no trouble.
    pub(super) fn is_standby(&self) -> bool {
        self.counters.rebuilds.load(Ordering::Relaxed) == 0 && self.options.permit.ask().is_err()
    }

    /// Follows the journal a step further while this process may not own the machine. Returns whether there is more.
    pub(super) fn follow(&self) -> bool {
        if !self.options.follow || self.options.permit.ask().is_ok() {
            return false;
        }
        self.journal.set_following(true);
        match self.followed.step(&*self.journal, &*self.codec) {
            Ok(Some(lag)) => {
                self.options.observer.lag(Some(lag));
                lag.batches > 0
            }
            Ok(None) => false,
            Err(Dropped(reason)) => {
                self.options.observer.lag(None);
                self.options.observer.trouble(Trouble::NotFollowed(reason));
                false
            }
        }
    }

    /// Continues from the state that followed the journal, or replays it.
    pub(super) fn rebuild(&self) -> Result<Replayed<C::Machine>, ReplayError> {
        let progress = |head: Head, until: Head| {
            self.counters.replayed.store(head.position, Ordering::Relaxed);
            self.counters.replay_until.store(until.position, Ordering::Relaxed);
        };
        let (journal, codec) = (&*self.journal, &*self.codec);
        match self.followed.take(journal, codec, |head| progress(head, head)) {
            Ok(Some(continued)) => {
                self.counters.continued.fetch_add(1, Ordering::Relaxed);
                self.options.observer.lag(None);
                return Ok(continued);
            }
            Ok(None) => {}
            Err(NotTaken::Unread(error)) => return Err(error.into()),
            Err(NotTaken::Dropped(Dropped(reason))) => {
                self.options.observer.lag(None);
                self.options.observer.trouble(Trouble::NotFollowed(reason));
            }
        }
        replay_watched(journal, codec, progress)
    }
}
