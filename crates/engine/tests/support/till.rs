//! A till: adds amounts under ids, has timers, and sends messages to another machine.

use std::collections::{BTreeMap, BTreeSet};

use bursar_core::digest::{Digest, Digester};
use bursar_core::machine::{Machine, Stuck};
use bursar_core::time::Timestamp;
use bursar_engine::courier::Outbox;
use bursar_engine::{Codec, CodecError, RecordOrigin};

use super::{numbers, put, signed};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds once for each id.
    Add { id: u64, amount: i64 },
    /// Adds and sends a message to the other machine.
    Send { id: u64, amount: i64 },
    /// Arms a timer.
    Arm { at: Timestamp, id: u64 },
    /// Panics while it is decided.
    Panic,
    /// Panics when it is applied in part.
    PanicApplying,
    /// Arms this many timers in the far future.
    Flood { events: u64 },
}

/// A timer with this id panics while it is decided.
pub const PANICS_DECIDING: u64 = 1_000_001;
/// A timer with this id panics when it is applied in part.
pub const PANICS_APPLYING: u64 = 1_000_002;
/// A timer with this id panics and cannot be set aside.
pub const HOPELESS: u64 = 1_000_003;

/// Timers from this id on can wait while other messages have their turns.
pub const PATIENT: u64 = 2_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Added {
        id: u64,
        amount: i64,
    },
    Sent {
        number: u64,
        amount: i64,
    },
    Armed {
        at: Timestamp,
        id: u64,
    },
    Rang {
        at: Timestamp,
        id: u64,
    },
    /// A timer was set aside.
    SetAside {
        at: Timestamp,
        id: u64,
    },
    /// Panics when it is applied in part, so it is never stored.
    Broke,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Total(i64),
    /// This id was added before. Nothing happened.
    Known,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegativeAmount;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Till {
    pub total: i64,
    /// How often each id was applied. More than once is a bug.
    pub applied: BTreeMap<u64, u32>,
    pub sent: u64,
    pub armed: BTreeSet<(Timestamp, u64)>,
    pub rang: Vec<(Timestamp, u64)>,
    now: Timestamp,
    undo: Option<Box<Till>>,
}

impl Till {
    fn first_armed(&self, patient: bool) -> Option<(Timestamp, u64)> {
        self.armed.iter().copied().find(|(_, id)| (*id >= PATIENT) == patient)
    }

    pub fn applied_more_than_once(&self) -> Vec<u64> {
        self.applied.iter().filter(|(_, times)| **times != 1).map(|(id, _)| *id).collect()
    }
}

impl Machine for Till {
    type Command = Command;
    type Event = Event;
    type Reply = Reply;
    type Refusal = NegativeAmount;
    type Envelope = ();

    fn decide(
        &self,
        _now: Timestamp,
        (): &(),
        command: &Command,
        events: &mut Vec<Event>,
    ) -> Result<Reply, NegativeAmount> {
        match *command {
            Command::Add { id, amount } | Command::Send { id, amount } => {
                if amount < 0 {
                    return Err(NegativeAmount);
                }
                if self.applied.contains_key(&id) {
                    return Ok(Reply::Known);
                }
                events.push(Event::Added { id, amount });
                if matches!(command, Command::Send { .. }) {
                    events.push(Event::Sent { number: self.sent + 1, amount });
                }
                Ok(Reply::Total(self.total + amount))
            }
            Command::Arm { at, id } => {
                events.push(Event::Armed { at, id });
                Ok(Reply::Total(self.total))
            }
            Command::Panic => panic!("panic on demand"),
            Command::PanicApplying => {
                events.push(Event::Added { id: 999, amount: 1 });
                events.push(Event::Broke);
                Ok(Reply::Known)
            }
            Command::Flood { events: count } => {
                let at = Timestamp::MAX;
                events.extend((0..count).map(|id| Event::Armed { at, id }));
                Ok(Reply::Known)
            }
        }
    }

    fn apply(&mut self, at: Timestamp, event: &Event) {
        self.now = self.now.max(at);
        match *event {
            Event::Added { id, amount } => {
                self.total += amount;
                *self.applied.entry(id).or_default() += 1;
            }
            Event::Sent { number, .. } => self.sent = number,
            Event::Armed { at, id } => drop(self.armed.insert((at, id))),
            Event::Rang { at: due, id } => {
                self.armed.remove(&(due, id));
                self.rang.push((at, id));
                assert!(id != PANICS_APPLYING, "panic on demand");
            }
            Event::SetAside { at, id } => drop(self.armed.remove(&(at, id))),
            Event::Broke => {
                self.total += 1_000_000;
                panic!("panic on demand");
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.armed.first().map(|(at, _)| *at)
    }

    fn next_patient_deadline(&self) -> Option<Timestamp> {
        self.first_armed(true).map(|(at, _)| at)
    }

    fn next_pressing_deadline(&self) -> Option<Timestamp> {
        self.first_armed(false).map(|(at, _)| at)
    }

    fn decide_pressing_due(&self, now: Timestamp, events: &mut Vec<Event>) {
        let due = self.first_armed(false).filter(|(at, _)| *at <= now);
        events.extend(due.map(|(at, id)| Event::Rang { at, id }));
    }

    fn decide_due(&self, now: Timestamp, events: &mut Vec<Event>) {
        let due = self.armed.first().filter(|(at, _)| *at <= now);
        assert!(
            due.is_none_or(|(_, id)| ![PANICS_DECIDING, HOPELESS].contains(id)),
            "panic on demand"
        );
        events.extend(due.map(|(at, id)| Event::Rang { at: *at, id: *id }));
    }

    fn decide_set_aside(&self, stuck: Stuck<'_, Till>, events: &mut Vec<Event>) {
        let first = self.armed.first().filter(|(_, id)| *id != HOPELESS);
        match stuck {
            Stuck::Due => events.extend(first.map(|&(at, id)| Event::SetAside { at, id })),
            Stuck::Message(..) => {}
        }
    }

    fn begin_group(&mut self) {
        self.undo = Some(Box::new(self.clone()));
    }

    fn commit_group(&mut self) {
        self.undo = None;
    }

    fn rollback_group(&mut self) {
        if let Some(before) = self.undo.take() {
            *self = *before;
        }
    }

    fn digest(&self) -> Digest {
        let mut digester = Digester::new();
        digester.value(TillCodec.encode_state(self));
        digester.finish()
    }
}

/// Eight bytes for each number.
#[derive(Copy, Clone, Debug)]
pub struct TillCodec;

impl Codec for TillCodec {
    type Machine = Till;

    fn genesis(&self) -> Till {
        Till::default()
    }

    fn encode(&self, _origin: RecordOrigin<'_, Till>, events: &[Event], body: &mut Vec<u8>) {
        for event in events {
            match *event {
                Event::Added { id, amount } => put(body, &[1, signed(id), amount]),
                Event::Sent { number, amount } => put(body, &[2, signed(number), amount]),
                Event::Armed { at, id } => put(body, &[3, at.millis(), signed(id)]),
                Event::Rang { at, id } => put(body, &[4, at.millis(), signed(id)]),
                Event::SetAside { at, id } => put(body, &[5, at.millis(), signed(id)]),
                Event::Broke => put(body, &[6, 0, 0]),
            }
        }
    }

    fn decode(&self, body: &[u8], events: &mut Vec<Event>) -> Result<(), CodecError> {
        for event in numbers(body)?.chunks(3) {
            let &[kind, first, second] = event else {
                return Err(CodecError("an event is cut off".into()));
            };
            let (at, id) = (Timestamp::from_millis(first), second.cast_unsigned());
            events.push(match kind {
                1 => Event::Added { id: first.cast_unsigned(), amount: second },
                2 => Event::Sent { number: first.cast_unsigned(), amount: second },
                3 => Event::Armed { at, id },
                4 => Event::Rang { at, id },
                5 => Event::SetAside { at, id },
                _ => return Err(CodecError(format!("unknown event {kind}"))),
            });
        }
        Ok(())
    }

    fn encode_state(&self, till: &Till) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, &[till.total, signed(till.sent), till.now.millis()]);
        put(&mut out, &[till.applied.len(), till.armed.len()].map(|length| length as i64));
        for (id, times) in &till.applied {
            put(&mut out, &[signed(*id), i64::from(*times)]);
        }
        for (at, id) in till.armed.iter().chain(&till.rang) {
            put(&mut out, &[at.millis(), signed(*id)]);
        }
        out
    }

    fn decode_state(&self, bytes: &[u8]) -> Result<Till, CodecError> {
        let numbers = numbers(bytes)?;
        let cut = || CodecError("the state is cut off".into());
        let (head, rest) = numbers.split_first_chunk::<5>().ok_or_else(cut)?;
        let [total, sent, now, applied, armed] = *head;
        let pairs = |pairs: &[i64]| -> Vec<(i64, i64)> {
            pairs.as_chunks::<2>().0.iter().map(|[a, b]| (*a, *b)).collect()
        };
        let (applied, armed) = (applied as usize * 2, armed as usize * 2);
        let (applied, rest) = rest.split_at_checked(applied).ok_or_else(cut)?;
        let (armed, rang) = rest.split_at_checked(armed).ok_or_else(cut)?;
        let timed = |(at, id): (i64, i64)| (Timestamp::from_millis(at), id.cast_unsigned());
        Ok(Till {
            total,
            sent: sent.cast_unsigned(),
            now: Timestamp::from_millis(now),
            applied: pairs(applied)
                .into_iter()
                .map(|(id, times)| (id.cast_unsigned(), times as u32))
                .collect(),
            armed: pairs(armed).into_iter().map(timed).collect(),
            rang: pairs(rang).into_iter().map(timed).collect(),
            undo: None,
        })
    }
}

/// All messages go to the one parcel machine.
pub struct Parcels;

impl Outbox<Till> for Parcels {
    type Message = i64;

    fn message(&self, event: &Event) -> Option<(u64, i64)> {
        match *event {
            Event::Sent { number, amount } => Some((number, amount)),
            Event::Added { .. }
            | Event::Armed { .. }
            | Event::Rang { .. }
            | Event::SetAside { .. }
            | Event::Broke => None,
        }
    }
}
