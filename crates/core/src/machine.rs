//! The shape that every machine has, and the one way to run it.
//!
//! `decide` reads the state and says what would happen; `apply` makes it happen. Events, not
//! commands, are journaled, so replay never depends on yesterday's decision code, and live running
//! and replay share one `apply`. There are no side effects: what the world outside must do (send a
//! message to another machine, wake a client) is read off the journaled events after the commit.

use crate::digest::Digest;
use crate::time::Timestamp;

/// A pure, deterministic state machine.
pub trait Machine {
    /// What may be asked, named in the imperative: `PlaceHold`.
    type Command;
    /// What happened, named in the past tense: `HoldPlaced`. All that is ever stored.
    type Event;
    /// The answer to a command that was accepted.
    type Reply;
    /// The answer to a command that was not.
    type Refusal;
    /// What comes with a command from outside: who asks, and under which idempotency key.
    type Envelope;

    /// Decides one command at `now` and pushes what happens onto `events`.
    ///
    /// A refusal may push events too (the record that this request was refused, for its
    /// idempotency key); such an event never moves money or capacity. `now` is never earlier than
    /// [`Machine::now`], and nothing that presses is overdue: see [`execute`].
    fn decide(
        &self,
        now: Timestamp,
        envelope: &Self::Envelope,
        command: &Self::Command,
        events: &mut Vec<Self::Event>,
    ) -> Result<Self::Reply, Self::Refusal>;

    /// Does a bounded part of what deciding this command at `now` needs, where that is much. Says whether
    /// there is no more to do: then it is decided, best at once. Whether it is called never matters to
    /// any decision, and nothing of it is in the digest.
    fn prepare(&mut self, _now: Timestamp, _command: &Self::Command) -> bool {
        true
    }

    /// The same for commands that are decided together, each in the state that those before it leave. In
    /// the group, [`Machine::prepare`] is asked once more before each.
    fn prepare_group(
        &mut self,
        _now: Timestamp,
        _commands: &[(Self::Envelope, Self::Command)],
    ) -> Preparation {
        Preparation::Finished
    }

    /// Looks at what deciding these commands will look at, so that it is at hand by then. Changes
    /// nothing and says nothing: whether it is called, and whether the commands come, never matters to
    /// any decision.
    fn foresee(&self, _coming: &[(&Self::Envelope, &Self::Command)]) {}

    /// Makes one event happen. Total: an event that was decided always applies.
    fn apply(&mut self, at: Timestamp, event: &Self::Event);

    /// The latest instant at which anything was applied.
    fn now(&self) -> Timestamp;

    /// The earliest instant at which something is due without being asked for.
    fn next_deadline(&self) -> Option<Timestamp>;

    /// Pushes the events that are due at `now`, for the earliest deadline only. Never empty while
    /// `next_deadline() <= now`.
    fn decide_due(&self, now: Timestamp, events: &mut Vec<Self::Event>);

    /// The earliest instant at which something is due that may wait while others have their turns:
    /// no decision relies on it, and there may be much of it. [`Machine::next_deadline`] counts it.
    fn next_patient_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// The earliest instant at which anything else is due.
    fn next_pressing_deadline(&self) -> Option<Timestamp> {
        self.next_deadline()
    }

    /// Like [`Machine::decide_due`], for what cannot wait. Never empty while
    /// `next_pressing_deadline() <= now`.
    fn decide_pressing_due(&self, now: Timestamp, events: &mut Vec<Self::Event>) {
        self.decide_due(now, events);
    }

    /// Like [`Machine::decide_due`], for the first thing alone. Asked for after a step failed: what
    /// fails then is the thing that [`Machine::decide_set_aside`] sets aside.
    fn decide_one_due(&self, now: Timestamp, events: &mut Vec<Self::Event>) {
        self.decide_due(now, events);
    }

    /// Names a command that is sent again until it is taken: a message of another machine. `None` for
    /// everything else.
    fn message_name(_envelope: &Self::Envelope, _command: &Self::Command) -> Option<(u64, u64)> {
        None
    }

    /// Pushes the event after which the machine goes on without a thing that fails again and again.
    /// Pushes nothing where the machine cannot go on without it.
    fn decide_set_aside(&self, _stuck: Stuck<'_, Self>, _events: &mut Vec<Self::Event>)
    where
        Self: Sized,
    {
    }

    /// How many things were set aside so far.
    fn set_aside_count(&self) -> u64 {
        0
    }

    /// How many parts an event has: what one decision may have in all is bounded.
    fn parts(_event: &Self::Event) -> usize {
        1
    }

    /// Starts to remember how to undo, for a group of commands that happens whole or not at all.
    fn begin_group(&mut self);

    /// Forgets how to undo: the group has happened.
    fn commit_group(&mut self);

    /// Undoes everything since [`Machine::begin_group`].
    fn rollback_group(&mut self);

    /// One hash over the whole state, equal on replicas and after replay.
    fn digest(&self) -> Digest;
}

/// How far a group is prepared.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
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
    /// The first thing that is due.
    Due,
    /// A message of another machine: see [`Machine::message_name`].
    Message(&'a M::Envelope, &'a M::Command),
}

/// The instant at which a machine decides when the clock says `clock`: its time never runs back.
pub fn machine_time<M: Machine>(machine: &M, clock: Timestamp) -> Timestamp {
    machine.now().max(clock)
}

/// Which part of what is due a step decides.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DuePart {
    /// Whatever is due first.
    First,
    /// Whatever is due first and cannot wait.
    Pressing,
}

/// The next step of what is due up to `now`: its deadline and its part. While something is due that can
/// wait, each step takes one of `patience`; without any left only what presses happens.
pub fn next_due<M: Machine>(
    machine: &M,
    now: Timestamp,
    patience: &mut usize,
) -> Option<(Timestamp, DuePart)> {
    let is_due = |deadline: &Timestamp| *deadline <= now;
    let first = machine.next_deadline().filter(is_due)?;
    if machine.next_patient_deadline().filter(is_due).is_none() {
        return Some((first, DuePart::First));
    }
    if let Some(left) = patience.checked_sub(1) {
        *patience = left;
        return Some((first, DuePart::First));
    }
    let pressing = machine.next_pressing_deadline().filter(is_due)?;
    Some((pressing, DuePart::Pressing))
}

/// Applies all that is due up to `now`, in order of deadline, and hands each step's events to
/// `journal`. Each step happens at its own deadline, not at `now`.
pub fn advance<M: Machine>(
    machine: &mut M,
    now: Timestamp,
    journal: impl FnMut(Timestamp, &[M::Event]),
) {
    advance_from(machine, Timestamp::MIN, now, journal);
}

/// The same behind a record of `last`, which the machine need not have applied: what was due before
/// that happens at `last`, so that no record is earlier than the one before it.
pub fn advance_from<M: Machine>(
    machine: &mut M,
    last: Timestamp,
    now: Timestamp,
    journal: impl FnMut(Timestamp, &[M::Event]),
) {
    advance_some(machine, last, now, usize::MAX, journal);
}

/// The same with so much `patience` only: what can wait and is left over happens another time.
pub fn advance_some<M: Machine>(
    machine: &mut M,
    last: Timestamp,
    now: Timestamp,
    mut patience: usize,
    mut journal: impl FnMut(Timestamp, &[M::Event]),
) {
    let mut events = Vec::new();
    while let Some((deadline, part)) = next_due(machine, now, &mut patience) {
        let at = machine_time(machine, deadline).max(last);
        events.clear();
        match part {
            DuePart::First => machine.decide_due(at, &mut events),
            DuePart::Pressing => machine.decide_pressing_due(at, &mut events),
        }
        assert!(!events.is_empty(), "a deadline that nothing meets would be due for ever");
        for event in &events {
            machine.apply(at, event);
        }
        journal(at, &events);
    }
}

/// Decides one command and applies what it decided, leaving the events in `events`.
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
