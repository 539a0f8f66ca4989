//! Where messages wait for the writer: three lanes, so that under load what frees credits goes before
//! what takes them, and both before what only looks.
//!
//! Messages of one lane are handled in the order in which they came. Between lanes the more urgent one
//! goes first, but never takes every place: the others keep an eighth each, so that nobody starves.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::machine::Machine;

use crate::handle::Message;

/// How soon a message is handled when many wait.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// Settlements and metering: they end what is under way. They still find a place when the mailbox
    /// is full for all others.
    Urgent,
    /// Everything else that changes something.
    #[default]
    Ordinary,
    /// Reads that can wait.
    Patient,
}

/// Messages taken out under one lock.
const ROUND: usize = 256;
/// The part of a round that each lane may count on.
const SHARE: usize = ROUND / 8;

struct Lanes<M: Machine> {
    /// By [`Urgency`].
    waiting: [VecDeque<Message<M>>; 3],
    /// Wake-ups and the end: they need no place.
    signals: VecDeque<Message<M>>,
    /// The writer waits to be told.
    sleeping: bool,
    /// The writer is gone.
    closed: bool,
}

struct Shared<M: Machine> {
    lanes: Mutex<Lanes<M>>,
    /// Messages that were ever put in, for who looks without the lock.
    posted: AtomicUsize,
    arrived: Condvar,
    capacity: usize,
}

impl<M: Machine> Shared<M> {
    fn lanes(&self) -> MutexGuard<'_, Lanes<M>> {
        // Nothing that holds this lock can panic half way.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a message was not taken.
pub(crate) enum NotPosted<M: Machine> {
    Full(Message<M>),
    Gone(Message<M>),
}

/// Where messages are put in. Cheap to clone.
pub(crate) struct Post<M: Machine>(Arc<Shared<M>>);

impl<M: Machine> Clone for Post<M> {
    fn clone(&self) -> Post<M> {
        Post(Arc::clone(&self.0))
    }
}

impl<M: Machine> Post<M> {
    /// Puts a message into its lane, or gives it back at once.
    pub(crate) fn send(&self, urgency: Urgency, message: Message<M>) -> Result<(), NotPosted<M>> {
        let mut lanes = self.0.lanes();
        if lanes.closed {
            return Err(NotPosted::Gone(message));
        }
        let waiting = lanes.count();
        let reserve = match urgency {
            Urgency::Urgent => self.0.capacity / 8,
            Urgency::Ordinary | Urgency::Patient => 0,
        };
        if waiting >= self.0.capacity + reserve {
            return Err(NotPosted::Full(message));
        }
        lanes.waiting[urgency as usize].push_back(message);
        self.0.posted.fetch_add(1, Ordering::Release);
        self.wake(lanes);
        Ok(())
    }

    /// Tells the writer something that needs no place.
    pub(crate) fn signal(&self, message: Message<M>) {
        let mut lanes = self.0.lanes();
        if !lanes.closed {
            lanes.signals.push_back(message);
            self.0.posted.fetch_add(1, Ordering::Release);
            self.wake(lanes);
        }
    }

    fn wake(&self, mut lanes: MutexGuard<'_, Lanes<M>>) {
        if std::mem::take(&mut lanes.sleeping) {
            drop(lanes);
            self.0.arrived.notify_one();
        }
    }
}

/// The writer's end.
pub(crate) struct Mailbox<M: Machine> {
    shared: Arc<Shared<M>>,
    /// What was taken out and is not handled yet.
    taken: Mutex<VecDeque<Message<M>>>,
}

/// A mailbox for `capacity` messages, and where to put them in.
pub(crate) fn mailbox<M: Machine>(capacity: usize) -> (Post<M>, Mailbox<M>) {
    let lanes = Lanes {
        waiting: [VecDeque::new(), VecDeque::new(), VecDeque::new()],
        signals: VecDeque::new(),
        sleeping: false,
        closed: false,
    };
    let lanes = Mutex::new(lanes);
    let shared =
        Arc::new(Shared { lanes, posted: AtomicUsize::new(0), arrived: Condvar::new(), capacity });
    let mailbox = Mailbox { shared: Arc::clone(&shared), taken: Mutex::default() };
    (Post(shared), mailbox)
}

impl<M: Machine> Mailbox<M> {
    fn taken(&self) -> MutexGuard<'_, VecDeque<Message<M>>> {
        // Only the writer's thread comes here.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `message` the next one.
    pub(crate) fn put_back(&self, message: Message<M>) {
        self.taken().push_front(message);
    }

    /// Shows what was taken out and is not handled yet: the messages that come next.
    pub(crate) fn show_taken<T>(&self, look: impl FnOnce(&VecDeque<Message<M>>) -> T) -> T {
        look(&self.taken())
    }

    /// The next message, if there is one.
    pub(crate) fn try_next(&self) -> Option<Message<M>> {
        let mut taken = self.taken();
        if taken.is_empty() {
            take_round(&mut self.shared.lanes(), &mut taken);
        }
        taken.pop_front()
    }

    /// Waits for the next message, at most for `limit` if one is given.
    pub(crate) fn next(&self, limit: Option<Duration>) -> Option<Message<M>> {
        if let Some(message) = self.try_next() {
            return Some(message);
        }
        let nothing = |lanes: &mut Lanes<M>| {
            lanes.sleeping = lanes.is_empty();
            lanes.sleeping
        };
        let (lanes, arrived) = (self.shared.lanes(), &self.shared.arrived);
        let mut lanes = match limit {
            None => arrived.wait_while(lanes, nothing).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = arrived.wait_timeout_while(lanes, limit, nothing);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        lanes.sleeping = false;
        let mut taken = self.taken();
        take_round(&mut lanes, &mut taken);
        taken.pop_front()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken().is_empty() && self.shared.lanes().is_empty()
    }

    /// Messages that were ever put in.
    pub(crate) fn posted(&self) -> usize {
        self.shared.posted.load(Ordering::Acquire)
    }

    /// Takes nothing more; whoever sends finds nobody. What waits is handed out still.
    pub(crate) fn close(&self) {
        self.shared.lanes().closed = true;
    }
}

impl<M: Machine> Lanes<M> {
    fn count(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.signals.is_empty() && self.waiting.iter().all(VecDeque::is_empty)
    }
}

/// Takes up to one round out of the lanes: each its share, then what fits, the urgent first. Signals
/// come last, so that all that was sent before the end is handled before it.
fn take_round<M: Machine>(lanes: &mut Lanes<M>, taken: &mut VecDeque<Message<M>>) {
    let waiting: [usize; 3] = std::array::from_fn(|lane| lanes.waiting[lane].len());
    let mut rest = ROUND - waiting.iter().map(|waiting| (*waiting).min(SHARE)).sum::<usize>();
    for (lane, waiting) in lanes.waiting.iter_mut().zip(waiting) {
        let share = waiting.min(SHARE);
        let more = (waiting - share).min(rest);
        rest -= more;
        taken.extend(lane.drain(..share + more));
    }
    if lanes.waiting.iter().all(VecDeque::is_empty) {
        taken.append(&mut lanes.signals);
    }
}
