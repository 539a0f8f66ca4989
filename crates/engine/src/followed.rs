//! The state of a machine that another process owns. It follows the journal, so that a takeover continues from it
//! instead of reading the journal again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::digest::Digest;
use bursar_core::machine::Machine;
use bursar_journal::{Head, Journal, JournalError};
use bursar_seeded::{Bug, seeded};

use crate::codec::Codec;
use crate::error::ReplayError;
use crate::lease::{Monotonic, SystemMonotonic};
use crate::replay::{Replayed, advance, is_unanswered, newest_snapshot};

/// How long a state that was dropped is not begun again.
const RESTART_INTERVAL: Duration = Duration::from_secs(10);
/// A takeover reads as many batches rather than a newer snapshot.
const MAX_BEHIND_SNAPSHOT: u64 = 1_000;

/// How far a followed state is behind its journal.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowerLag {
    /// Batches of the journal that it does not contain.
    pub batches: u64,
    /// How long ago it contained all of them.
    pub behind: Duration,
}

/// Why a followed state was dropped. The next one begins with the newest snapshot.
pub(crate) struct Dropped(pub(crate) String);

/// Why a followed state was not taken.
pub(crate) enum NotTaken {
    /// The store does not answer. The state is as it was.
    Unread(JournalError),
    /// It cannot be used.
    Dropped(Dropped),
}

/// A state that follows a journal, while there is one.
pub struct Followed<M> {
    kept: Mutex<Kept<M>>,
    clock: SystemMonotonic,
}

struct Kept<M> {
    state: Option<Replayed<M>>,
    /// When the state last contained the whole journal.
    whole: Duration,
    /// No state is begun before.
    not_before: Duration,
}

/// How the journal is read in one step.
enum Stepped {
    /// This many batches are left.
    Behind(u64),
    /// The store did not answer. The state is as it was.
    NotRead,
}

impl<M: Machine> Followed<M> {
    pub(crate) fn new() -> Followed<M> {
        let kept = Kept { state: None, whole: Duration::ZERO, not_before: Duration::ZERO };
        Followed { kept: Mutex::new(kept), clock: SystemMonotonic::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Kept<M>> {
        // A state in which the machine panicked is dropped.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the state, if there is one. It may be behind the journal.
    pub fn look<T>(&self, look: impl FnOnce(&M, Head) -> T) -> Option<T> {
        self.lock().state.as_ref().map(|state| look(&state.machine, state.head))
    }

    /// Reads the journal to its end. Returns false if that failed, or the state was dropped.
    pub fn read_all<C: Codec<Machine = M>>(&self, journal: &dyn Journal, codec: &C) -> bool {
        if self.lock().drop_old(journal).is_err() {
            return false;
        }
        loop {
            match self.step(journal, codec) {
                Ok(Some(FollowerLag { batches: 0, .. })) => return true,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// Reads the next part of the journal. Without a state it begins one with the newest valid snapshot. Returns `None`
    /// if the journal was not read.
    pub(crate) fn step<C: Codec<Machine = M>>(
        &self,
        journal: &dyn Journal,
        codec: &C,
    ) -> Result<Option<FollowerLag>, Dropped> {
        let mut kept = self.lock();
        let now = self.clock.elapsed();
        if now < kept.not_before {
            return Ok(None);
        }
        match kept.step(journal, codec) {
            Ok(Stepped::Behind(batches)) => {
                if batches == 0 {
                    kept.whole = now;
                }
                Ok(Some(FollowerLag { batches, behind: now.saturating_sub(kept.whole) }))
            }
            Ok(Stepped::NotRead) => Ok(None),
            Err(dropped) => {
                kept.state = None;
                kept.not_before = now + RESTART_INTERVAL;
                Err(dropped)
            }
        }
    }

    /// Takes the state, with the whole journal in it, if there is one.
    pub(crate) fn take<C: Codec<Machine = M>>(
        &self,
        journal: &dyn Journal,
        codec: &C,
        progress: impl Fn(Head),
    ) -> Result<Option<Replayed<M>>, NotTaken> {
        let mut kept = self.lock();
        kept.not_before = Duration::ZERO;
        kept.drop_old(journal).map_err(NotTaken::Unread)?;
        let Some(state) = &kept.state else { return Ok(None) };
        progress(state.head);
        loop {
            match kept.step(journal, codec) {
                Ok(Stepped::Behind(0)) => return Ok(kept.state.take()),
                Ok(Stepped::Behind(_)) => {
                    kept.state.iter().for_each(|state| progress(state.head));
                }
                Ok(Stepped::NotRead) => {
                    let reason = "no answer; trying again";
                    let error = JournalError::storage("reading the journal", reason);
                    return Err(NotTaken::Unread(error));
                }
                Err(dropped) => {
                    kept.state = None;
                    return Err(NotTaken::Dropped(dropped));
                }
            }
        }
    }
}

impl<M: Machine> Kept<M> {
    /// Drops a state that is far behind the newest snapshot: to begin with that one is faster.
    fn drop_old(&mut self, journal: &dyn Journal) -> Result<(), JournalError> {
        let Some(state) = &self.state else { return Ok(()) };
        let newest = journal.list_snapshots()?.first().map_or(0, |mark| mark.sequence);
        if newest > state.head.sequence.saturating_add(MAX_BEHIND_SNAPSHOT) {
            self.state = None;
        }
        Ok(())
    }

    fn step<C: Codec<Machine = M>>(
        &mut self,
        journal: &dyn Journal,
        codec: &C,
    ) -> Result<Stepped, Dropped> {
        let stepped = catch_unwind(AssertUnwindSafe(|| self.read_on(journal, codec)));
        let stepped = stepped.map_err(|_| Dropped("the machine panicked".into()))?;
        match stepped {
            Ok(left) => Ok(Stepped::Behind(left)),
            Err(ReplayError::Journal(error)) if is_unanswered(&error) => Ok(Stepped::NotRead),
            Err(error) => Err(Dropped(error.to_string())),
        }
    }

    fn read_on<C: Codec<Machine = M>>(
        &mut self,
        journal: &dyn Journal,
        codec: &C,
    ) -> Result<u64, ReplayError> {
        let state = match &mut self.state {
            Some(state) => state,
            empty @ None => {
                let begun = newest_snapshot(journal, codec)?;
                if begun.snapshot == 0 && !begun.skipped.is_empty() {
                    // A later snapshot may be valid, and the whole journal takes too long.
                    let reason = begun.skipped.join("; ");
                    return Err(JournalError::Damaged { part: "snapshots", reason }.into());
                }
                empty.insert(begun)
            }
        };
        let until = journal.head()?;
        let is_other = until.sequence < state.head.sequence || differs(state.head, until);
        if is_other && !seeded(Bug::TakesOverLostHistory) {
            let reason =
                format!("the journal ends with batch {} of another history", until.sequence);
            return Err(JournalError::Corrupt { sequence: state.head.sequence, reason }.into());
        }
        if until != state.head {
            advance(journal, codec, state)?;
        }
        Ok(until.sequence.saturating_sub(state.head.sequence))
    }
}

/// Whether the journal ends with another batch of the same number.
fn differs(head: Head, until: Head) -> bool {
    let hash = |head: Head| -> (u64, Digest) { (head.position, head.hash) };
    until.sequence == head.sequence && hash(until) != hash(head)
}
