//! A machine with its journal: stored bytes that survive a crash, and a state that does not.

use bursar_core::machine::{Machine, advance, execute, machine_time};
use bursar_core::time::Timestamp;
use bursar_engine::{Codec, RecordOrigin};

/// The events of a codec's machine.
type EventOf<C> = <<C as Codec>::Machine as Machine>::Event;
/// The answer of a machine.
type AnswerOf<C> =
    Result<<<C as Codec>::Machine as Machine>::Reply, <<C as Codec>::Machine as Machine>::Refusal>;

/// One record of a journal.
struct Stored {
    time: Timestamp,
    body: Vec<u8>,
}

/// Events that became durable, with the position of their record.
pub(super) struct Fresh<C: Codec> {
    pub(super) position: u64,
    pub(super) events: Vec<EventOf<C>>,
}

/// A machine and its journal.
pub(super) struct MachineHost<C: Codec> {
    codec: C,
    pub(super) machine: C::Machine,
    records: Vec<Stored>,
    /// A snapshot, and the number of records in it.
    snapshot: Option<(usize, Vec<u8>)>,
    /// Whether the state has changed since the last check.
    changed: bool,
    /// Durable events that are not collected yet.
    pub(super) fresh: Vec<Fresh<C>>,
}

impl<C: Codec> MachineHost<C> {
    pub(super) fn new(codec: C) -> MachineHost<C> {
        let machine = codec.genesis();
        let (records, fresh) = (Vec::new(), Vec::new());
        MachineHost { codec, machine, records, snapshot: None, changed: true, fresh }
    }

    /// Whether the invariants must be checked. An unchanged state was checked before.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The number of records.
    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    fn store(&mut self, time: Timestamp, body: Vec<u8>) {
        let mut events = Vec::new();
        self.codec.decode(&body, &mut events).expect("a record that was just written can be read");
        self.records.push(Stored { time, body });
        self.changed = true;
        let position = self.records.len() as u64;
        self.fresh.push(Fresh { position, events });
    }

    /// Runs due timers.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let codec = &self.codec;
        let mut stored = Vec::new();
        advance(&mut self.machine, now, |at, events| {
            let mut body = Vec::new();
            codec.encode(RecordOrigin::Due, events, &mut body);
            stored.push((at, body));
        });
        for (at, body) in stored {
            self.store(at, body);
        }
    }

    /// Decides a command, as the engine does.
    pub(super) fn execute(
        &mut self,
        clock: Timestamp,
        envelope: &<C::Machine as Machine>::Envelope,
        command: &<C::Machine as Machine>::Command,
    ) -> AnswerOf<C> {
        let now = machine_time(&self.machine, clock);
        self.advance(now);
        let mut events = Vec::new();
        let answer = execute(&mut self.machine, now, envelope, command, &mut events);
        if !events.is_empty() {
            let mut body = Vec::new();
            let accepted = answer.is_ok();
            let origin = RecordOrigin::Command { envelope, command, accepted };
            self.codec.encode(origin, &events, &mut body);
            self.store(now, body);
        }
        self.advance(now);
        answer
    }

    /// Decides a command and crashes before its events are durable.
    pub(super) fn lose(
        &mut self,
        clock: Timestamp,
        envelope: &<C::Machine as Machine>::Envelope,
        command: &<C::Machine as Machine>::Command,
    ) {
        let (records, fresh) = (self.records.len(), self.fresh.len());
        let before = self.machine.digest();
        // The answer is lost.
        let _ = self.execute(clock, envelope, command);
        self.records.truncate(records);
        self.fresh.truncate(fresh);
        self.rebuild();
        assert_eq!(
            self.machine.digest(),
            before,
            "L11: a decision that is not durable has no effect"
        );
    }

    /// Loses the state and rebuilds it from the journal.
    pub(super) fn crash(&mut self) {
        let before = self.machine.digest();
        self.rebuild();
        assert_eq!(self.machine.digest(), before, "L11: replay(journal) = state");
    }

    fn rebuild(&mut self) {
        let (from, mut machine) = match &self.snapshot {
            Some((records, bytes)) => {
                (*records, self.codec.decode_state(bytes).expect("the snapshot is whole"))
            }
            None => (0, self.codec.genesis()),
        };
        let mut events = Vec::new();
        for Stored { time, body } in &self.records[from..] {
            events.clear();
            self.codec.decode(body, &mut events).expect("the journal is whole");
            events.iter().for_each(|event| machine.apply(*time, event));
        }
        self.machine = machine;
        self.changed = true;
    }

    /// Makes a snapshot.
    pub(super) fn put_snapshot(&mut self) {
        self.snapshot = Some((self.records.len(), self.codec.encode_state(&self.machine)));
    }

    /// Drops the snapshot, so that the next crash replays the whole journal.
    pub(super) fn drop_snapshot(&mut self) {
        self.snapshot = None;
    }
}
