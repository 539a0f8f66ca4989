//! The mailbox of the writer: three lanes. Under load, messages that free credits are handled
//! before messages that take credits, and both before reads.
//!
//! In each lane the senders take turns, one message each: a sender with a thousand messages delays
//! another sender by one message. Messages of one lane and one sender are handled in the order in
//! which they arrived. Between lanes the more urgent one is first, but each of the others always
//! gets an eighth of a round. A lane that used up a turn goes behind the other lanes until the
//! mailbox is empty.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::machine::Machine;

use crate::writer::handle::Message;

/// How soon a message is handled when many wait.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// Settlements and metering, which complete work in progress. They are accepted even when the
    /// mailbox is full for all others.
    Urgent,
    /// All other changes.
    #[default]
    Ordinary,
    /// Reads that can wait.
    Patient,
}

/// Messages taken out under one lock.
const ROUND_MESSAGES: usize = 256;
/// The part of a round that each lane always gets.
const LANE_MESSAGES: usize = ROUND_MESSAGES / 8;

/// The sender of a message, as a number. Messages with the same number share their turns. Zero for
/// the server itself.
pub type Sender = u64;

/// Emptied queues that are kept for reuse.
const MAX_SPARE: usize = 8;

/// The messages of one urgency, by sender.
struct Lane<M: Machine> {
    queues: HashMap<Sender, VecDeque<Message<M>>>,
    /// Senders with waiting messages, the next one first.
    turns: VecDeque<Sender>,
    spare: Vec<VecDeque<Message<M>>>,
    len: usize,
}

impl<M: Machine> Lane<M> {
    fn new() -> Lane<M> {
        Lane { queues: HashMap::new(), turns: VecDeque::new(), spare: Vec::new(), len: 0 }
    }

    fn queue(&mut self, sender: Sender) -> &mut VecDeque<Message<M>> {
        let (spare, turns) = (&mut self.spare, &mut self.turns);
        self.queues.entry(sender).or_insert_with(|| {
            turns.push_back(sender);
            spare.pop().unwrap_or_default()
        })
    }

    fn push(&mut self, sender: Sender, message: Message<M>) {
        self.queue(sender).push_back(message);
        self.len += 1;
    }

    /// Puts a message before all others of its sender.
    fn push_front(&mut self, sender: Sender, message: Message<M>) {
        self.queue(sender).push_front(message);
        self.len += 1;
    }

    /// The next message of the sender whose turn it is.
    fn pop(&mut self) -> Option<(Sender, Message<M>)> {
        let sender = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&sender)?;
        let message = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            let empty = self.queues.remove(&sender);
            if self.spare.len() < MAX_SPARE {
                self.spare.extend(empty);
            }
        } else {
            self.turns.push_back(sender);
        }
        Some((sender, message))
    }
}

/// A message that was taken out, with the lane and sender that it came from.
pub(crate) struct Taken<M: Machine> {
    urgency: Urgency,
    sender: Sender,
    pub(crate) message: Message<M>,
}

struct Lanes<M: Machine> {
    /// By [`Urgency`].
    waiting: [Lane<M>; 3],
    /// Wake-ups and the stop signal. They do not count towards the capacity.
    signals: VecDeque<Message<M>>,
    /// The writer waits to be woken.
    sleeping: bool,
    /// The writer has ended.
    closed: bool,
}

struct Shared<M: Machine> {
    lanes: Mutex<Lanes<M>>,
    /// Messages ever put in, readable without the lock.
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

/// Why a message was not accepted.
pub(crate) enum NotPosted<M: Machine> {
    Full(Message<M>),
    Gone(Message<M>),
}

/// The sending side. Cheap to clone.
pub(crate) struct Post<M: Machine>(Arc<Shared<M>>);

impl<M: Machine> Clone for Post<M> {
    fn clone(&self) -> Post<M> {
        Post(Arc::clone(&self.0))
    }
}

impl<M: Machine> Post<M> {
    /// Puts a message into its lane, or returns it at once.
    pub(crate) fn send(
        &self,
        (urgency, sender): (Urgency, Sender),
        message: Message<M>,
    ) -> Result<(), NotPosted<M>> {
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
        lanes.waiting[urgency as usize].push(sender, message);
        self.0.posted.fetch_add(1, Ordering::Release);
        self.wake(lanes);
        Ok(())
    }

    /// Sends the writer a message that does not count towards the capacity.
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

/// The receiving side.
pub(crate) struct Mailbox<M: Machine> {
    shared: Arc<Shared<M>>,
    /// Messages that were taken out and not handled yet.
    taken: Mutex<VecDeque<Taken<M>>>,
    /// The lane and sender of the message that was handed out last.
    last: Cell<(Urgency, Sender)>,
    /// The order in which the next round takes from the lanes.
    order: Cell<[Urgency; 3]>,
}

const BY_URGENCY: [Urgency; 3] = [Urgency::Urgent, Urgency::Ordinary, Urgency::Patient];

/// A mailbox for `capacity` messages, and its sending side.
pub(crate) fn mailbox<M: Machine>(capacity: usize) -> (Post<M>, Mailbox<M>) {
    let lanes = Lanes {
        waiting: [Lane::new(), Lane::new(), Lane::new()],
        signals: VecDeque::new(),
        sleeping: false,
        closed: false,
    };
    let lanes = Mutex::new(lanes);
    let shared =
        Arc::new(Shared { lanes, posted: AtomicUsize::new(0), arrived: Condvar::new(), capacity });
    let (taken, last, order) = (Mutex::default(), Cell::default(), Cell::new(BY_URGENCY));
    let mailbox = Mailbox { shared: Arc::clone(&shared), taken, last, order };
    (Post(shared), mailbox)
}

impl<M: Machine> Mailbox<M> {
    fn taken(&self) -> MutexGuard<'_, VecDeque<Taken<M>>> {
        // Only the writer's thread locks it.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the message that was handed out last the next one again.
    pub(crate) fn put_back(&self, message: Message<M>) {
        let (urgency, sender) = self.last.get();
        self.taken().push_front(Taken { urgency, sender, message });
    }

    /// Puts the message that was handed out last behind all others of its sender. The sender's next
    /// turn is after all other senders. Ignores the capacity, because the message was counted
    /// before.
    pub(crate) fn put_behind(&self, message: Message<M>) {
        let (urgency, sender) = self.last.get();
        self.shared.lanes().waiting[urgency as usize].push(sender, message);
    }

    /// Ends a turn that is used up. Returns the messages that were taken out and not handled yet to
    /// their lanes, so that senders that arrived meanwhile have their turns. The lane that used the
    /// turn up goes behind the others.
    pub(crate) fn give_back(&self) {
        let (spent, _) = self.last.get();
        let mut order = self.order.get();
        if let Some(place) = order.iter().position(|urgency| *urgency == spent) {
            order[place..].rotate_left(1);
        }
        self.order.set(order);
        let mut taken = self.taken();
        if taken.is_empty() {
            return;
        }
        let mut lanes = self.shared.lanes();
        while let Some(Taken { urgency, sender, message }) = taken.pop_back() {
            match message {
                Message::Wake | Message::Stop => lanes.signals.push_front(message),
                message => lanes.waiting[urgency as usize].push_front(sender, message),
            }
        }
    }

    fn hand_out(&self, taken: &mut VecDeque<Taken<M>>) -> Option<Message<M>> {
        let Taken { urgency, sender, message } = taken.pop_front()?;
        self.last.set((urgency, sender));
        Some(message)
    }

    /// The next message, if there is one.
    pub(crate) fn try_next(&self) -> Option<Message<M>> {
        let mut taken = self.taken();
        if taken.is_empty() {
            self.take_round(&mut self.shared.lanes(), &mut taken);
        }
        self.hand_out(&mut taken)
    }

    fn take_round(&self, lanes: &mut Lanes<M>, taken: &mut VecDeque<Taken<M>>) {
        if lanes.is_empty() {
            self.order.set(BY_URGENCY);
        }
        take_round(lanes, taken, self.order.get());
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
        self.take_round(&mut lanes, &mut taken);
        self.hand_out(&mut taken)
    }

    /// Whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken().is_empty() && self.shared.lanes().is_empty()
    }

    /// Messages ever put in.
    pub(crate) fn posted(&self) -> usize {
        self.shared.posted.load(Ordering::Acquire)
    }

    /// Accepts no more messages. Waiting messages are still handed out.
    pub(crate) fn close(&self) {
        self.shared.lanes().closed = true;
    }
}

impl<M: Machine> Lanes<M> {
    fn count(&self) -> usize {
        self.waiting.iter().map(|lane| lane.len).sum()
    }

    fn is_empty(&self) -> bool {
        self.signals.is_empty() && self.waiting.iter().all(|lane| lane.len == 0)
    }
}

/// Takes up to one round out of the lanes: each lane's share and as many more as fit, in the given
/// order. Signals are last, so that all messages sent before the stop signal are handled before it.
fn take_round<M: Machine>(
    lanes: &mut Lanes<M>,
    taken: &mut VecDeque<Taken<M>>,
    order: [Urgency; 3],
) {
    let waiting = |lane: &Lane<M>| lane.len.min(LANE_MESSAGES);
    let mut rest = ROUND_MESSAGES - lanes.waiting.iter().map(waiting).sum::<usize>();
    for urgency in order {
        let lane = &mut lanes.waiting[urgency as usize];
        let share = lane.len.min(LANE_MESSAGES);
        let more = (lane.len - share).min(rest);
        rest -= more;
        let turns = std::iter::from_fn(|| lane.pop()).take(share + more);
        taken.extend(turns.map(|(sender, message)| Taken { urgency, sender, message }));
    }
    if lanes.waiting.iter().all(|lane| lane.len == 0) {
        let (urgency, sender) = (Urgency::Ordinary, 0);
        let signals = lanes.signals.drain(..);
        taken.extend(signals.map(|message| Taken { urgency, sender, message }));
    }
}
