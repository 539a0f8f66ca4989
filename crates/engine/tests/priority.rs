//! The order of messages when many wait.

use crate::support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use bursar_engine::{Engine, EngineError, EngineOptions, Handle, Urgency};
use bursar_journal::memory::MemoryJournal;
use support::till::{Command, Till, TillCodec};
use support::{manual_clock, memory, options};

/// More than the writer takes out of its mailbox at once.
const MANY: u64 = 1_000;
/// As many as the writer takes out at once.
const ROUND: u64 = 256;

/// An engine whose append is blocked until it is released: all messages wait.
fn stuck(mailbox: usize) -> (MemoryJournal, Engine<TillCodec>) {
    let journal = memory(1);
    let options = EngineOptions { mailbox, batch_bytes: 1, ..options("test") };
    let engine =
        Engine::start(Arc::new(journal.clone()), Arc::new(TillCodec), manual_clock(), options);
    engine.handle().settle().expect("it serves");
    journal.hold_appends();
    (journal, engine)
}

/// Sends `count` commands from the id `first` on. Their positions arrive in the order of sending.
fn send(handle: &Handle<Till>, first: u64, count: u64) -> Receiver<Result<u64, EngineError>> {
    let (sender, receiver) = channel();
    for id in first..first + count {
        let sender = sender.clone();
        handle.submit((), Command::Add { id, amount: 1 }, move |answer| {
            // A test that failed no longer listens.
            let _ = sender.send(answer.map(|seen| seen.position));
        });
    }
    receiver
}

fn next(positions: &Receiver<Result<u64, EngineError>>) -> u64 {
    positions.recv().expect("an answer").expect("it serves")
}

#[test]
fn urgent_messages_overtake_waiting_ones() {
    let (journal, engine) = stuck(4_096);
    let ordinary = send(&engine.handle(), 1, MANY);
    let urgent = send(&engine.handle().with_urgency(Urgency::Urgent), MANY + 1, 1);
    journal.release_appends();
    let position = next(&urgent);
    let last = ordinary.iter().last().expect("an answer").expect("it serves");
    assert_eq!(last, MANY + 2, "all happened, after the barrier");
    assert!(position <= 2 * ROUND + 2, "position {position} of {last}");
}

#[test]
fn no_lane_starves_behind_urgent_messages() {
    let (journal, engine) = stuck(4_096);
    let urgent = send(&engine.handle().with_urgency(Urgency::Urgent), 1, MANY);
    let ordinary = send(&engine.handle(), MANY + 1, 1);
    let (seen, read) = channel();
    let patient = engine.handle().with_urgency(Urgency::Patient);
    patient.query(|_| (), move |answer| drop(seen.send(answer)));
    journal.release_appends();
    let position = next(&ordinary);
    let read = read.recv().expect("an answer").expect("it serves").position;
    let last = urgent.iter().last().expect("an answer").expect("it serves");
    assert!(position <= 2 * ROUND + 2, "position {position} of {last}");
    assert!(read <= 2 * ROUND + 2, "the read saw {read} of {last}");
}

#[test]
fn a_full_mailbox_still_accepts_urgent_messages() {
    let (journal, engine) = stuck(64);
    let ordinary = send(&engine.handle(), 1, MANY);
    let refused = ordinary.recv().expect("most are refused");
    assert_eq!(refused, Err(EngineError::Unavailable("the mailbox is full".into())));
    let urgent = send(&engine.handle().with_urgency(Urgency::Urgent), MANY + 1, 1);
    journal.release_appends();
    next(&urgent);
}

#[test]
fn one_lane_keeps_its_order() {
    let (journal, engine) = stuck(4_096);
    let handles = [Urgency::Urgent, Urgency::Ordinary, Urgency::Patient]
        .map(|urgency| engine.handle().with_urgency(urgency));
    let lanes: Vec<_> = handles
        .iter()
        .zip([0, 1, 2])
        .map(|(handle, lane)| send(handle, 1 + lane * MANY, MANY))
        .collect();
    journal.release_appends();
    for lane in lanes {
        let positions: Vec<u64> = (0..MANY).map(|_| next(&lane)).collect();
        assert!(positions.is_sorted(), "commands of one lane were reordered");
    }
}
