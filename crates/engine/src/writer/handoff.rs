//! The handoff from the deciding thread to the appending thread.
//!
//! There is one slot. While the appender is busy the writer takes the load back and adds to it, so
//! that a slow disk makes larger batches, not longer queues.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_journal::{AppendError, BatchBuilder};
use bursar_seeded::{Bug, seeded};

use crate::error::EngineError;
use crate::writer::handle::{CommandAnswer, GroupAnswer, ReadRelease, Responder};

/// An answer that waits until the state that it saw is durable.
pub(crate) enum PendingAnswer<M: Machine> {
    Command {
        respond: Responder<CommandAnswer<M>>,
        answer: CommandAnswer<M>,
        /// Whether it wrote a record. If not, it is a read.
        wrote: bool,
    },
    Group {
        respond: Responder<GroupAnswer<M>>,
        answer: GroupAnswer<M>,
        wrote: bool,
    },
    /// A read, and whether anything was written on the way.
    Read {
        release: ReadRelease,
        wrote: bool,
    },
}

impl<M: Machine> PendingAnswer<M> {
    /// Sends the answer. The answer to a write is valid whichever server owns the journal by now.
    /// The answer to a read is valid only while no other server can have written.
    pub(crate) fn release(self, owner: bool) {
        // A responder that panics fails only its own request.
        let _panicked = catch_unwind(AssertUnwindSafe(|| self.answer(owner)));
    }

    fn answer(self, owner: bool) {
        let owner = owner || seeded(Bug::ReadsWithoutLease);
        let not_owner = || EngineError::Unavailable("the lease of this server ran out".into());
        match self {
            PendingAnswer::Command { respond, answer, wrote } => {
                respond(if wrote || owner { answer } else { Err(not_owner()) });
            }
            PendingAnswer::Group { respond, answer, wrote } => {
                respond(if wrote || owner { answer } else { Err(not_owner()) });
            }
            PendingAnswer::Read { release, wrote } => {
                release(if wrote || owner { Ok(()) } else { Err(not_owner()) });
            }
        }
    }

    fn reject(self, error: &AppendError) {
        let _panicked = catch_unwind(AssertUnwindSafe(|| self.refuse(error)));
    }

    fn refuse(self, error: &AppendError) {
        let (written, read) = explained(error);
        match self {
            PendingAnswer::Command { respond, wrote, .. } => {
                respond(Err(if wrote { written } else { read }));
            }
            PendingAnswer::Group { respond, wrote, .. } => {
                respond(Err(if wrote { written } else { read }));
            }
            PendingAnswer::Read { release, wrote } => {
                release(Err(if wrote { written } else { read }))
            }
        }
    }
}

/// The errors for writes and for reads after a failed append.
fn explained(error: &AppendError) -> (EngineError, EngineError) {
    let read = EngineError::Unavailable("the state is being rebuilt".into());
    let written = match error {
        AppendError::Unknown(_) => EngineError::OutcomeUnknown,
        AppendError::Full(_) => EngineError::StorageFull,
        AppendError::Fenced { .. } => {
            EngineError::Unavailable("another server owns this machine".into())
        }
        AppendError::Corrupt(reason) => EngineError::Stopped(reason.to_string()),
    };
    (written, read)
}

/// Records for one durable write and the answers that wait for it.
pub(crate) struct Load<M: Machine> {
    pub(crate) records: BatchBuilder,
    pub(crate) waiting: Vec<PendingAnswer<M>>,
}

impl<M: Machine> Load<M> {
    /// An empty load, in reused memory, with capacity for `bytes` bytes of records.
    fn within(waiting: Vec<PendingAnswer<M>>, bytes: usize) -> Load<M> {
        Load { records: BatchBuilder::reusing(Vec::with_capacity(bytes)), waiting }
    }

    /// A load without records and answers.
    pub(crate) fn empty() -> Load<M> {
        Load::within(Vec::new(), 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.records() == 0 && self.waiting.is_empty()
    }

    pub(crate) fn reject(self, error: &AppendError) {
        reject_all(self.waiting, error);
    }
}

pub(crate) fn reject_all<M: Machine>(waiting: Vec<PendingAnswer<M>>, error: &AppendError) {
    for waiting in waiting {
        waiting.reject(error);
    }
}

struct Slot<M: Machine> {
    load: Option<Load<M>>,
    /// Reused memory for answers: of the load that is written, and of the load that is collected
    /// meanwhile.
    spare: [Vec<PendingAnswer<M>>; 2],
    /// Bytes of the records of the last load.
    bytes: usize,
    /// How many answers the appender waits for.
    wanted: usize,
    /// Answers in the load that the writer has taken back.
    taken_back: usize,
    /// Loads that the appender has taken and not completed.
    in_flight: usize,
    failure: Option<AppendError>,
    closed: bool,
}

/// The slot between the two threads.
pub(crate) struct Handoff<M: Machine> {
    slot: Mutex<Slot<M>>,
    changed: Condvar,
}

impl<M: Machine> Handoff<M> {
    pub(crate) fn new() -> Handoff<M> {
        let slot = Slot {
            load: None,
            spare: [Vec::new(), Vec::new()],
            bytes: 0,
            wanted: 0,
            taken_back: 0,
            in_flight: 0,
            failure: None,
            closed: false,
        };
        Handoff { slot: Mutex::new(slot), changed: Condvar::new() }
    }

    fn slot(&self) -> MutexGuard<'_, Slot<M>> {
        // Nothing that holds this lock can panic half way.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the load that the appender has not taken yet, or an empty one. Called by the writer.
    pub(crate) fn take_back(&self) -> Load<M> {
        let mut slot = self.slot();
        let load = slot.load.take();
        let load = load.unwrap_or_else(|| {
            // A little more than the last load: growing means copying.
            let bytes = slot.bytes + slot.bytes / 8;
            slot.spare.sort_by_key(Vec::capacity);
            Load::within(std::mem::take(&mut slot.spare[1]), bytes)
        });
        slot.taken_back = load.waiting.len();
        load
    }

    /// Offers a load to the appender. A load without records is returned if nothing is in progress,
    /// to be answered at once. Blocks for a load of `limit` bytes or more until it is taken, so
    /// that memory stays bounded.
    ///
    /// # Errors
    /// The failure of an append. The load was rejected with it.
    pub(crate) fn offer(
        &self,
        load: Load<M>,
        limit: usize,
    ) -> Result<Option<Load<M>>, AppendError> {
        let mut slot = self.slot();
        if let Some(failure) = slot.failure.clone() {
            drop(slot);
            load.reject(&failure);
            return Err(failure);
        }
        if load.is_empty() || (load.records.records() == 0 && slot.in_flight == 0) {
            return Ok(Some(load));
        }
        let large = load.records.bytes() >= limit;
        slot.taken_back = 0;
        if large || load.waiting.len() >= slot.wanted {
            self.changed.notify_all();
        }
        slot.load = Some(load);
        while large && slot.load.is_some() && slot.failure.is_none() {
            slot = self.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(None)
    }

    /// Lets the writer append one load itself, if no append is in progress and no load waits.
    pub(crate) fn begin_here(&self) -> bool {
        let mut slot = self.slot();
        let idle = slot.in_flight == 0 && slot.load.is_none() && slot.failure.is_none();
        if idle {
            slot.in_flight = 1;
            slot.taken_back = 0;
        }
        idle
    }

    /// The failure of an append, if one failed.
    pub(crate) fn failure(&self) -> Option<AppendError> {
        self.slot().failure.clone()
    }

    /// Announces that no more loads will come.
    pub(crate) fn close(&self) {
        self.slot().closed = true;
        self.changed.notify_all();
    }

    /// Takes the next load. Waits for one if `wait`. Called by the appender.
    pub(crate) fn take(&self, wait: bool) -> Option<Load<M>> {
        let mut slot = self.slot();
        loop {
            if let Some(load) = slot.load.take() {
                slot.in_flight += 1;
                self.changed.notify_all();
                return Some(load);
            }
            if slot.closed || !wait {
                return None;
            }
            slot = self.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks one load as completed. Returns how many answers wait for the next one.
    pub(crate) fn landed(&self) -> usize {
        let mut slot = self.slot();
        slot.in_flight -= 1;
        slot.load.as_ref().map_or(slot.taken_back, |load| load.waiting.len())
    }

    /// Waits until `answers` answers wait, for at most `limit`. Returns whether that many came.
    pub(crate) fn gather(&self, answers: usize, limit: Duration) -> bool {
        let fewer = |slot: &mut Slot<M>| {
            !slot.closed && slot.load.as_ref().is_none_or(|load| load.waiting.len() < answers)
        };
        let mut slot = self.slot();
        slot.wanted = answers;
        let gathered = self.changed.wait_timeout_while(slot, limit, fewer);
        let (mut slot, waited) = gathered.unwrap_or_else(PoisonError::into_inner);
        slot.wanted = 0;
        !waited.timed_out()
    }

    /// Keeps the emptied memory of a load for the next one.
    pub(crate) fn reuse(&self, waiting: Vec<PendingAnswer<M>>, bytes: usize) {
        let mut slot = self.slot();
        slot.bytes = bytes;
        let smallest = slot.spare.iter_mut().min_by_key(|spare| spare.capacity());
        if let Some(spare) = smallest.filter(|spare| spare.capacity() < waiting.capacity()) {
            *spare = waiting;
        }
    }

    /// Records a failure and rejects everything that is not durable.
    pub(crate) fn fail(&self, failure: AppendError) {
        let mut slot = self.slot();
        let load = slot.load.take();
        slot.failure = Some(failure.clone());
        self.changed.notify_all();
        drop(slot);
        if let Some(load) = load {
            load.reject(&failure);
        }
    }
}
