//! Messages between two machines, with a crash, a repetition or a reordering at every step.

use crate::support;

use std::sync::Arc;

use bursar_core::machine::Machine;
use bursar_core::message::Mark;
use bursar_engine::courier::{Courier, CourierError, EngineInbox, Inbox, SentMessage};
use bursar_engine::{Engine, EngineError, Status, replay_from_genesis};
use bursar_journal::Journal;
use bursar_journal::memory::{Fault, MemoryJournal, Survivors};
use support::parcel::{Parcel, ParcelCodec, Take};
use support::till::{Command, Parcels, Till, TillCodec};
use support::{manual_clock, memory, options, till, wait_until};

const MESSAGES: u64 = 6;

fn parcel(journal: &MemoryJournal) -> Engine<ParcelCodec> {
    let journal = Arc::new(journal.clone());
    Engine::start(journal, Arc::new(ParcelCodec), manual_clock(), options("parcel"))
}

type ParcelInbox = EngineInbox<Parcel, fn(SentMessage<i64>) -> ((), Take), fn(&Parcel) -> Mark>;

fn inbox(receiver: &Engine<ParcelCodec>) -> ParcelInbox {
    EngineInbox::new(receiver.handle(), |sent| ((), Take(sent)), |parcel| parcel.mark)
}

fn courier<I: Inbox<i64>>(sender: &MemoryJournal, inbox: I) -> Courier<TillCodec, Parcels, I> {
    Courier::new(Arc::new(sender.clone()), Arc::new(TillCodec), Parcels, inbox)
}

/// Sends until the sender's journal has one message for each id up to [`MESSAGES`].
fn send_all(sender: &Engine<TillCodec>) {
    for id in 1..=MESSAGES {
        let command = Command::Send { id, amount: support::signed(id) };
        loop {
            match sender.handle().execute((), command.clone()) {
                Ok(seen) => {
                    seen.value.expect("accepted");
                    break;
                }
                Err(EngineError::Stopped(reason)) => panic!("{reason}"),
                // With its id the command happens once, however often it is sent.
                Err(_) => {}
            }
        }
    }
}

fn arrived(receiver: &MemoryJournal) -> Parcel {
    replay_from_genesis(receiver, &ParcelCodec).expect("the journal is whole").machine
}

fn assert_each_once_in_order(receiver: &MemoryJournal) {
    let expected: Vec<_> = (1..=MESSAGES).map(support::signed).collect();
    assert_eq!(arrived(receiver).amounts, expected);
}

/// A fault of one delivery.
#[derive(Copy, Clone, Debug, PartialEq)]
enum DeliveryFault {
    /// It never arrives.
    Lost,
    /// It arrives, but the answer does not.
    AnswerLost,
    /// It arrives twice.
    Twice,
    /// Only its last message arrives, before the others.
    Reordered,
    /// An older delivery arrives once more, late.
    Stale,
    /// The receiver's append has an unknown outcome.
    Receiver(Fault),
}

const DELIVERY_FAULTS: [DeliveryFault; 9] = [
    DeliveryFault::Lost,
    DeliveryFault::AnswerLost,
    DeliveryFault::Twice,
    DeliveryFault::Reordered,
    DeliveryFault::Stale,
    DeliveryFault::Receiver(Fault::UnknownNotWritten),
    DeliveryFault::Receiver(Fault::UnknownNotSynced),
    DeliveryFault::Receiver(Fault::UnknownDurable),
    DeliveryFault::Receiver(Fault::Full),
];

/// An inbox in which the delivery number `step` fails.
struct Troubled {
    inner: ParcelInbox,
    receiver: MemoryJournal,
    trouble: DeliveryFault,
    step: usize,
    deliveries: usize,
    first: Vec<SentMessage<i64>>,
}

fn lost() -> EngineError {
    EngineError::Unavailable("injected".into())
}

impl Inbox<i64> for Troubled {
    fn mark(&mut self) -> Result<Mark, EngineError> {
        self.inner.mark()
    }

    fn deliver(&mut self, messages: Vec<SentMessage<i64>>) -> Result<Mark, EngineError> {
        let now = self.deliveries == self.step;
        self.deliveries += 1;
        if self.first.is_empty() {
            self.first.clone_from(&messages);
        }
        if !now {
            return self.inner.deliver(messages);
        }
        match self.trouble {
            DeliveryFault::Lost => Err(lost()),
            DeliveryFault::AnswerLost => {
                let _ = self.inner.deliver(messages);
                Err(lost())
            }
            DeliveryFault::Twice => {
                let _ = self.inner.deliver(messages.clone());
                self.inner.deliver(messages)
            }
            DeliveryFault::Reordered => {
                let last = messages.last().cloned();
                let mut early = last.expect("a delivery has messages");
                // Never the next number.
                early.number += 1;
                let _ = self.inner.deliver(vec![early]);
                Err(lost())
            }
            DeliveryFault::Stale => {
                let answer = self.inner.deliver(messages);
                let _ = self.inner.deliver(self.first.clone());
                answer
            }
            DeliveryFault::Receiver(fault) => {
                self.receiver.inject(0, fault);
                self.inner.deliver(messages)
            }
        }
    }
}

/// Steps until everything has arrived, and retries after errors.
fn carry_all<I: Inbox<i64>>(courier: &mut Courier<TillCodec, Parcels, I>, sender: &MemoryJournal) {
    let until = sender.head().expect("memory");
    let mut tries = 0;
    loop {
        tries += 1;
        assert!(tries < 5_000, "not all messages arrived");
        match courier.step(until) {
            Ok(0) => return,
            Ok(_) => {}
            Err(CourierError::Undelivered(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn every_fault_at_every_delivery_loses_nothing_and_repeats_nothing() {
    for trouble in DELIVERY_FAULTS {
        for step in 0..3 {
            let (sent, received) = (memory(1), memory(2));
            let sender = till(Arc::new(sent.clone()));
            let receiver = parcel(&received);
            receiver.handle().settle().expect("it serves");
            let mut carrier = courier(
                &sent,
                Troubled {
                    inner: inbox(&receiver),
                    receiver: received.clone(),
                    trouble,
                    step,
                    deliveries: 0,
                    first: Vec::new(),
                },
            );
            for id in 1..=MESSAGES {
                let command = Command::Send { id, amount: support::signed(id) };
                sender.handle().execute((), command).expect("it serves").value.expect("accepted");
                if id % 2 == 0 {
                    carry_all(&mut carrier, &sent);
                }
            }
            assert_each_once_in_order(&received);
            wait_until("the receiver serves", || receiver.status() == Status::Serving);
            let live = receiver.handle().read(|parcel: &Parcel| parcel.digest());
            assert_eq!(live.expect("it serves").value, arrived(&received).digest(), "{trouble:?}");
        }
    }
}

#[test]
fn a_new_courier_without_state_continues_after_any_step() {
    let (sent, received) = (memory(1), memory(2));
    let sender = till(Arc::new(sent.clone()));
    let receiver = parcel(&received);
    receiver.handle().settle().expect("it serves");
    for id in 1..=MESSAGES {
        let command = Command::Send { id, amount: support::signed(id) };
        sender.handle().execute((), command).expect("it serves").value.expect("accepted");
        // A new courier each time. The receiver's mark is all that it needs.
        let mut fresh = courier(&sent, inbox(&receiver));
        assert_eq!(fresh.step(sent.head().expect("memory")), Ok(1));
    }
    assert_each_once_in_order(&received);
}

#[test]
fn crashes_of_both_machines_at_every_append_lose_and_repeat_nothing() {
    let faults = [Fault::UnknownNotWritten, Fault::UnknownNotSynced, Fault::UnknownDurable];
    for (skip, fault, of_sender) in (0..8)
        .flat_map(|skip| faults.map(|fault| (skip, fault)))
        .flat_map(|(skip, fault)| [true, false].map(|of_sender| (skip, fault, of_sender)))
    {
        let (sent, received) = (memory(1), memory(2));
        let sender = till(Arc::new(sent.clone()));
        let receiver = parcel(&received);
        receiver.handle().settle().expect("it serves");
        let broken = if of_sender { &sent } else { &received };
        broken.inject(skip, fault);
        let running = courier(&sent, inbox(&receiver)).start(sender.durable());
        send_all(&sender);
        sender.stop();
        running.join().expect("no panic").expect("only errors that a retry resolves");
        receiver.stop();
        // Power loss on both sides. Unsynced writes are gone.
        sent.crash(Survivors { whole: 0, torn: true });
        received.crash(Survivors { whole: 0, torn: false });
        let sender = till(Arc::new(sent.clone()));
        let receiver = parcel(&received);
        wait_until("both serve", || {
            sender.status() == Status::Serving && receiver.status() == Status::Serving
        });
        send_all(&sender);
        carry_all(&mut courier(&sent, inbox(&receiver)), &sent);
        assert_each_once_in_order(&received);
        let till = replay_from_genesis(&sent, &TillCodec).expect("whole").machine;
        assert_eq!(till.applied_more_than_once(), [0; 0]);
        let live = sender.handle().read(|till: &Till| till.digest()).expect("it serves").value;
        assert_eq!(live, till.digest());
    }
}

#[test]
fn a_courier_on_its_own_thread_delivers_thousands_of_messages() {
    let (sent, received) = (memory(1), memory(2));
    let sender = till(Arc::new(sent.clone()));
    let receiver = parcel(&received);
    let running = courier(&sent, inbox(&receiver)).start(sender.durable());
    for id in 1..=5_000 {
        sender.handle().submit((), Command::Send { id, amount: 1 }, |answer| {
            answer.expect("it serves").value.expect("accepted");
        });
    }
    wait_until("all have arrived", || {
        receiver
            .handle()
            .read(|parcel: &Parcel| parcel.mark.number)
            .is_ok_and(|seen| seen.value == 5_000)
    });
    sender.stop();
    running.join().expect("no panic").expect("no error");
    assert_eq!(arrived(&received).amounts, vec![1; 5_000]);
}
