//! The trait of every machine, and the functions that run it.
//!
//! `decide` reads the state and returns events; `apply` changes the state. Events are journaled,
//! not commands, so replay does not depend on the decision code of an earlier release, and live
//! operation and replay share one `apply`. There are no side effects: the work outside the machine
//! (sending a message to another machine, waking a client) follows from the journaled events after
//! the commit.

use bursar_seeded::{Bug, seeded};

use crate::digest::Digest;
use crate::time::Timestamp;

/// A pure, deterministic state machine.
pub trait Machine {
    /// A request, named in the imperative: `PlaceHold`.
    type Command;
    /// A change, named in the past tense: `HoldPlaced`. Only events are stored.
    type Event;
    /// The answer to a command that was accepted.
    type Reply;
    /// The answer to a command that was refused.
    type Refusal;
    /// What accompanies a command from outside: its author and its idempotency key.
    type Envelope;

    /// Decides one command at `now` and pushes the resulting events onto `events`.
    ///
    /// A refusal may push events too, such as the record of the refusal for its idempotency key.
    /// Such an event never moves money or capacity. `now` is never earlier than [`Machine::now`],
    /// and no pressing deadline is overdue: see [`execute`].
    fn decide(
        &self,
        now: Timestamp,
        envelope: &Self::Envelope,
        command: &Self::Command,
        events: &mut Vec<Self::Event>,
    ) -> Result<Self::Reply, Self::Refusal>;

    /// Does a bounded part of the work that the decision of this command at `now` needs, for
    /// commands that need much work. Returns whether the preparation is complete; the command
    /// should then be decided without delay. Calling it or not never changes a decision, and its
    /// results are not part of the digest.
    fn prepare(&mut self, _now: Timestamp, _command: &Self::Command) -> bool {
        true
    }

    /// Prepares commands that are decided together, each in the state that those before it leave. In
    /// the group, [`Machine::prepare`] is asked once more before each.
    fn prepare_group(
        &mut self,
        _now: Timestamp,
        _commands: &[(Self::Envelope, Self::Command)],
    ) -> Preparation {
        Preparation::Finished
    }

    /// Applies one event to the state. Total: an event that was decided always applies.
    fn apply(&mut self, at: Timestamp, event: &Self::Event);

    /// The latest instant at which anything was applied.
    fn now(&self) -> Timestamp;

    /// The deadline of the earliest timer.
    fn next_deadline(&self) -> Option<Timestamp>;

    /// Pushes the events of the timers that are due at `now`, for the earliest deadline only. Never
    /// empty while `next_deadline() <= now`.
    fn decide_due(&self, now: Timestamp, events: &mut Vec<Self::Event>);

    /// The deadline of the earliest timer that may be postponed in favour of commands: no decision
    /// relies on it, and such timers may be many. [`Machine::next_deadline`] includes it.
    fn next_patient_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// The deadline of the earliest timer that may not be postponed.
    fn next_pressing_deadline(&self) -> Option<Timestamp> {
        self.next_deadline()
    }

    /// Like [`Machine::decide_due`], for timers that may not be postponed. Never empty while
    /// `next_pressing_deadline() <= now`.
    fn decide_pressing_due(&self, now: Timestamp, events: &mut Vec<Self::Event>) {
        self.decide_due(now, events);
    }

    /// Like [`Machine::decide_due`], for the first timer alone. Called after a step failed, so that
    /// the timer that fails is the one that [`Machine::decide_set_aside`] sets aside.
    fn decide_one_due(&self, now: Timestamp, events: &mut Vec<Self::Event>) {
        self.decide_due(now, events);
    }

    /// The name of a command that is sent again until it is taken, which is a message of another
    /// machine. `None` for all other commands.
    fn message_name(_envelope: &Self::Envelope, _command: &Self::Command) -> Option<(u64, u64)> {
        None
    }

    /// Pushes the event that makes the machine skip a timer or message that fails repeatedly.
    /// Pushes nothing if the machine cannot continue without it.
    fn decide_set_aside(&self, _stuck: Stuck<'_, Self>, _events: &mut Vec<Self::Event>)
    where
        Self: Sized,
    {
    }

    /// The number of timers and messages that were set aside so far.
    fn set_aside_count(&self) -> u64 {
        0
    }

    /// The number of parts of an event. The sum over one decision is bounded.
    fn parts(_event: &Self::Event) -> usize {
        1
    }

    /// Starts to record undo steps, for a group of commands that is applied completely or not at
    /// all.
    fn begin_group(&mut self);

    /// Drops the undo steps: the group is final.
    fn commit_group(&mut self);

    /// Undoes all changes since [`Machine::begin_group`].
    fn rollback_group(&mut self);

    /// One hash over the whole state, equal on replicas and after replay.
    fn digest(&self) -> Digest;
}

/// How far a group is prepared.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Preparation {
    /// There is no more to do: the group is decided, best at once.
    Finished,
    /// There is more to do.
    Unfinished,
    /// It is more than one group may need.
    TooMuch,
}

/// Something that comes again until it is done.
pub enum Stuck<'a, M: Machine> {
    /// The first due timer.
    Due,
    /// A message of another machine: see [`Machine::message_name`].
    Message(&'a M::Envelope, &'a M::Command),
}

/// The instant at which a machine decides when the clock reads `clock`. The time of a machine never
/// runs backwards.
pub fn machine_time<M: Machine>(machine: &M, clock: Timestamp) -> Timestamp {
    if seeded(Bug::TimeRunsBack) {
        return clock;
    }
    machine.now().max(clock)
}

/// Which of the due timers a step decides.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum DuePart {
    /// The first due timer.
    First,
    /// The first due timer that may not be postponed.
    Pressing,
}

/// The next step of the timers due up to `now`: its deadline and its part. While a timer is due
/// that may be postponed, each step takes one of `steps_left`. When none is left, only the other
/// timers run.
pub fn next_due<M: Machine>(
    machine: &M,
    now: Timestamp,
    steps_left: &mut usize,
) -> Option<(Timestamp, DuePart)> {
    let is_due = |deadline: &Timestamp| *deadline <= now;
    let first = machine.next_deadline().filter(is_due)?;
    if machine.next_patient_deadline().filter(is_due).is_none() {
        return Some((first, DuePart::First));
    }
    if let Some(left) = steps_left.checked_sub(1) {
        *steps_left = left;
        return Some((first, DuePart::First));
    }
    let pressing = machine.next_pressing_deadline().filter(is_due)?;
    Some((pressing, DuePart::Pressing))
}

/// Applies all timers due up to `now`, in order of deadline, and passes the events of each step to
/// `journal`. Each step is applied at its own deadline, not at `now`.
pub fn advance<M: Machine>(
    machine: &mut M,
    now: Timestamp,
    journal: impl FnMut(Timestamp, &[M::Event]),
) {
    advance_from(machine, Timestamp::MIN, now, journal);
}

/// Like [`advance`], after a record of instant `last`, which the machine need not have applied. A
/// step whose deadline is before `last` is applied at `last`, so that no record is earlier than its
/// predecessor.
pub fn advance_from<M: Machine>(
    machine: &mut M,
    last: Timestamp,
    now: Timestamp,
    journal: impl FnMut(Timestamp, &[M::Event]),
) {
    advance_some(machine, last, now, usize::MAX, journal);
}

/// Like [`advance_from`], with a limit on the steps taken while a timer is due that may be
/// postponed. The postponed timers stay due.
pub fn advance_some<M: Machine>(
    machine: &mut M,
    last: Timestamp,
    now: Timestamp,
    mut steps_left: usize,
    mut journal: impl FnMut(Timestamp, &[M::Event]),
) {
    let mut events = Vec::new();
    while let Some((deadline, part)) = next_due(machine, now, &mut steps_left) {
        let at = machine_time(machine, deadline).max(last);
        events.clear();
        match part {
            DuePart::First => machine.decide_due(at, &mut events),
            DuePart::Pressing => machine.decide_pressing_due(at, &mut events),
        }
        assert!(!events.is_empty(), "a due deadline without events would stay due for ever");
        for event in &events {
            machine.apply(at, event);
        }
        journal(at, &events);
    }
}

/// Decides one command, applies its events, and leaves them in `events`.
///
/// The caller has run [`advance`] to `now` first, or [`advance_some`].
pub fn execute<M: Machine>(
    machine: &mut M,
    now: Timestamp,
    envelope: &M::Envelope,
    command: &M::Command,
    events: &mut Vec<M::Event>,
) -> Result<M::Reply, M::Refusal> {
    debug_assert!(machine.next_pressing_deadline().is_none_or(|deadline| deadline > now));
    let first = events.len();
    let answer = machine.decide(now, envelope, command, events);
    for event in events.iter().skip(first) {
        machine.apply(now, event);
    }
    answer
}
