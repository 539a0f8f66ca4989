//! A machine with its journal: batches that survive a crash, and a state that does not.

use std::time::Duration;

use bursar_core::machine::{Machine, advance_from, execute, machine_time};
use bursar_core::time::Timestamp;
use bursar_engine::{Codec, RecordOrigin, replay, replay_from_genesis};
use bursar_journal::memory::{Fault, MemoryJournal, Survivors};
use bursar_journal::{
    AppendError, Batch, BatchBuilder, Epoch, Head, Journal, JournalId, Lease, RecordKind, Snapshot,
};

use super::members::Members;
use crate::auditor::AuditFinding;

/// The events of a codec's machine.
type EventOf<C> = <<C as Codec>::Machine as Machine>::Event;
/// The answer of a machine.
type AnswerOf<C> =
    Result<<<C as Codec>::Machine as Machine>::Reply, <<C as Codec>::Machine as Machine>::Refusal>;
type EnvelopeOf<C> = <<C as Codec>::Machine as Machine>::Envelope;
type CommandOf<C> = <<C as Codec>::Machine as Machine>::Command;

/// Events that became durable, with the position of their record.
pub(super) struct Fresh<C: Codec> {
    pub(super) position: u64,
    pub(super) events: Vec<EventOf<C>>,
}

/// What becomes of a batch whose writer dies while it appends.
#[derive(Copy, Clone, Debug)]
pub(super) enum LastBatch {
    /// It was never written.
    NotWritten,
    /// It was written, and the power fails before it is synced.
    LostWithPower,
    /// The same. Half of it stays.
    TornByPower,
    /// It was written and not synced. The next owner finds it.
    FoundByNextOwner,
    /// It is durable. Only the answer is lost.
    Durable,
}

/// The state of a machine in one member that owns it, or believes so.
struct Tenure<M> {
    machine: M,
    lease: Lease,
    head: Head,
}

/// A machine and its journal.
pub(super) struct MachineHost<C: Codec> {
    codec: C,
    pub(super) machine: C::Machine,
    journal: MemoryJournal,
    lease: Lease,
    head: Head,
    /// The member that owns it.
    pub(super) owner: usize,
    /// An earlier owner that does not know that it was replaced.
    deposed: Option<Tenure<C::Machine>>,
    /// The time of the last record.
    last: Timestamp,
    /// Whether the state has changed since the last check.
    changed: bool,
    /// Durable events that are not collected yet.
    pub(super) fresh: Vec<Fresh<C>>,
}

impl<C: Codec> MachineHost<C> {
    /// A machine of member `owner`. `number` is unique in its world.
    pub(super) fn new(codec: C, number: u8, owner: usize) -> MachineHost<C> {
        let journal = MemoryJournal::new(JournalId([number; 16]));
        let lease = acquire(&journal, owner);
        let (machine, head) = (codec.genesis(), Head::genesis(journal.id()));
        let (deposed, last, fresh) = (None, Timestamp::MIN, Vec::new());
        let changed = true;
        MachineHost { codec, machine, journal, lease, head, owner, deposed, last, changed, fresh }
    }

    /// Whether the invariants must be checked. An unchanged state was checked before.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The number of records.
    pub(super) fn records(&self) -> usize {
        usize::try_from(self.head.position).expect("few records")
    }

    /// Appends a batch as the owner, and collects its events.
    fn commit(&mut self, records: BatchBuilder) -> Result<(), AppendError> {
        let Some(batch) = records.finish() else { return Ok(()) };
        let (known, time) = (self.head, batch.time());
        self.head = self.journal.append(self.lease.epoch, known, batch)?;
        assert!(
            self.last <= time,
            "the time of a machine runs back: {time:?} after {:?}",
            self.last
        );
        (self.last, self.changed) = (time, true);
        self.collect_after(known).expect("a record that was just written can be read");
        Ok(())
    }

    /// Runs due timers.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let mut records = BatchBuilder::new();
        run_due(&self.codec, &mut self.machine, (self.last, now), &mut records);
        self.commit(records).expect("the owner appends");
    }

    /// Decides a command and writes one batch, as the engine does.
    pub(super) fn execute(
        &mut self,
        clock: Timestamp,
        envelope: &EnvelopeOf<C>,
        command: &CommandOf<C>,
    ) -> AnswerOf<C> {
        let (answer, records) =
            decide(&self.codec, &mut self.machine, (self.last, clock), envelope, command);
        self.commit(records).expect("the owner appends");
        answer
    }

    /// Decides a command and dies while the batch is appended. The answer is lost.
    pub(super) fn lose(
        &mut self,
        clock: Timestamp,
        envelope: &EnvelopeOf<C>,
        command: &CommandOf<C>,
        last_batch: LastBatch,
    ) -> Result<(), AuditFinding> {
        let before = self.machine.digest();
        let (_, records) =
            decide(&self.codec, &mut self.machine, (self.last, clock), envelope, command);
        let after = self.machine.digest();
        if records.records() > 0 {
            self.journal.inject(0, last_batch.fault());
            let Err(AppendError::Unknown(_)) = self.commit(records) else {
                return Err("an append of unknown outcome was acknowledged".into());
            };
        }
        match last_batch {
            LastBatch::LostWithPower => self.power_fails(false),
            LastBatch::TornByPower => self.power_fails(true),
            LastBatch::NotWritten | LastBatch::FoundByNextOwner | LastBatch::Durable => {}
        }
        let known = self.head;
        self.restart(clock)?;
        let expected = if last_batch.is_kept() { after } else { before };
        if self.machine.digest() != expected {
            return Err(format!("L11: {last_batch:?}, and the state is another"));
        }
        if last_batch.is_kept() {
            self.collect_after(known)?;
            // What an owner has shown stays, also if the power fails now.
            self.power_fails(false);
            self.crash(clock)?;
        }
        Ok(())
    }

    fn power_fails(&self, torn: bool) {
        self.journal.crash(Survivors { whole: 0, torn });
        self.journal.reopen().expect("memory is there");
    }

    /// Collects the events of batches after `known`, which a dead owner wrote.
    fn collect_after(&mut self, known: Head) -> Result<(), AuditFinding> {
        for batch in self.journal.read(known).expect("memory") {
            for record in batch.map_err(|error| error.to_string())?.frames() {
                let record = record.map_err(|error| error.to_string())?;
                if record.kind == RecordKind::Barrier {
                    continue;
                }
                let mut events = Vec::new();
                let decoded = self.codec.decode(record.body, &mut events);
                decoded.map_err(|error| error.to_string())?;
                self.fresh.push(Fresh { position: record.position, events });
            }
        }
        Ok(())
    }

    /// Loses the state and rebuilds it from the journal, after a power failure that must take
    /// nothing.
    pub(super) fn crash(&mut self, clock: Timestamp) -> Result<(), AuditFinding> {
        let before = self.machine.digest();
        self.power_fails(false);
        self.restart(clock)?;
        if self.machine.digest() != before {
            return Err("L11: replay(journal) is another state".into());
        }
        Ok(())
    }

    /// Starts again in the same member.
    fn restart(&mut self, clock: Timestamp) -> Result<(), AuditFinding> {
        self.deposed = None;
        self.take(clock, self.owner, |_| Ok(()))
    }

    /// Moves to another member. An owner that is paused wakes later, or at once with an append
    /// that arrives between the lease and the barrier of its successor.
    pub(super) fn move_to(
        &mut self,
        members: &Members,
        to: usize,
        now: Timestamp,
        append: Option<(&EnvelopeOf<C>, &CommandOf<C>)>,
    ) -> Result<(), AuditFinding> {
        let before = self.machine.digest();
        let (from, machine) =
            (self.owner, std::mem::replace(&mut self.machine, self.codec.genesis()));
        let mut paused = Tenure { machine, lease: self.lease.clone(), head: self.head };
        let in_flight = append.map(|(envelope, command)| {
            let clock = members.clock(from, now);
            decide(&self.codec, &mut paused.machine, (self.last, clock), envelope, command).1
        });
        let (epoch, head) = (paused.lease.epoch, paused.head);
        self.take(members.clock(to, now), to, |journal| match in_flight {
            Some(records) => refused(journal, (epoch, head), records),
            None => Ok(()),
        })?;
        self.deposed = append.is_none().then_some(paused);
        if self.machine.digest() != before {
            return Err("L11: the successor has another state".into());
        }
        Ok(())
    }

    /// Lets a deposed owner decide a command and append it. The journal must refuse it.
    pub(super) fn wake_deposed(
        &mut self,
        clock: Timestamp,
        envelope: &EnvelopeOf<C>,
        command: &CommandOf<C>,
    ) -> Result<(), AuditFinding> {
        let Some(mut old) = self.deposed.take() else { return Ok(()) };
        let (_, records) =
            decide(&self.codec, &mut old.machine, (self.last, clock), envelope, command);
        refused(&self.journal, (old.lease.epoch, old.head), records)
    }

    /// Takes the lease, rebuilds the state and appends the barrier. `between` happens after the
    /// state was rebuilt.
    fn take(
        &mut self,
        clock: Timestamp,
        owner: usize,
        between: impl FnOnce(&MemoryJournal) -> Result<(), AuditFinding>,
    ) -> Result<(), AuditFinding> {
        self.journal.expire_lease();
        (self.lease, self.owner) = (acquire(&self.journal, owner), owner);
        let replayed = replay(&self.journal, &self.codec).map_err(|error| error.to_string())?;
        between(&self.journal)?;
        // Timers that were due while no member owned it are journaled after the barrier.
        let due = replayed.machine.next_deadline().map_or(clock, |deadline| deadline.min(clock));
        let at = machine_time(&replayed.machine, due).max(self.last);
        let barrier = self.journal.append(self.lease.epoch, replayed.head, Batch::barrier(at));
        self.head = barrier.map_err(|error| format!("the new owner cannot append: {error}"))?;
        (self.machine, self.last, self.changed) = (replayed.machine, at, true);
        Ok(())
    }

    /// Makes a snapshot.
    pub(super) fn put_snapshot(&self) {
        let state = self.codec.encode_state(&self.machine);
        self.journal.put_snapshot(&Snapshot { head: self.head, state }).expect("memory");
    }

    /// Checks that the whole journal gives the state, without snapshots.
    pub(super) fn check_replay(&self) -> Result<(), AuditFinding> {
        let whole = replay_from_genesis(&self.journal, &self.codec);
        let whole = whole.map_err(|error| error.to_string())?;
        if (whole.machine.digest(), whole.head) != (self.machine.digest(), self.head) {
            return Err("L11: the whole journal gives another state".into());
        }
        Ok(())
    }
}

impl LastBatch {
    pub(super) const ALL: [LastBatch; 5] = [
        LastBatch::NotWritten,
        LastBatch::LostWithPower,
        LastBatch::TornByPower,
        LastBatch::FoundByNextOwner,
        LastBatch::Durable,
    ];

    fn fault(self) -> Fault {
        match self {
            LastBatch::NotWritten => Fault::UnknownNotWritten,
            LastBatch::LostWithPower | LastBatch::TornByPower | LastBatch::FoundByNextOwner => {
                Fault::UnknownNotSynced
            }
            LastBatch::Durable => Fault::UnknownDurable,
        }
    }

    fn is_kept(self) -> bool {
        match self {
            LastBatch::NotWritten | LastBatch::LostWithPower | LastBatch::TornByPower => false,
            LastBatch::FoundByNextOwner | LastBatch::Durable => true,
        }
    }
}

fn acquire(journal: &MemoryJournal, owner: usize) -> Lease {
    let ttl = Duration::from_secs(3);
    journal.acquire_lease(&format!("member {owner}"), ttl).expect("it is free")
}

/// Appends the batch of a deposed owner, which must be refused.
fn refused(
    journal: &MemoryJournal,
    (epoch, head): (Epoch, Head),
    records: BatchBuilder,
) -> Result<(), AuditFinding> {
    let Some(batch) = records.finish() else { return Ok(()) };
    match journal.append(epoch, head, batch) {
        Err(AppendError::Fenced { .. }) => Ok(()),
        other => Err(format!("the owner of epoch {epoch} was deposed and appended: {other:?}")),
    }
}

/// Runs due timers after a record of instant `last`, and adds a record for each step.
fn run_due<C: Codec>(
    codec: &C,
    machine: &mut C::Machine,
    (last, now): (Timestamp, Timestamp),
    records: &mut BatchBuilder,
) {
    advance_from(machine, last, now, |at, events| {
        records.push(RecordKind::Due, at, |body| codec.encode(RecordOrigin::Due, events, body));
    });
}

/// Decides a command with the timers that are due before and after it.
fn decide<C: Codec>(
    codec: &C,
    machine: &mut C::Machine,
    (last, clock): (Timestamp, Timestamp),
    envelope: &EnvelopeOf<C>,
    command: &CommandOf<C>,
) -> (AnswerOf<C>, BatchBuilder) {
    let now = machine_time(machine, clock).max(last);
    let (mut records, mut events) = (BatchBuilder::new(), Vec::new());
    run_due(codec, machine, (last, now), &mut records);
    let answer = execute(machine, now, envelope, command, &mut events);
    if !events.is_empty() {
        let accepted = answer.is_ok();
        let origin = RecordOrigin::Command { envelope, command, accepted };
        records.push(RecordKind::Decision, now, |body| codec.encode(origin, &events, body));
    }
    run_due(codec, machine, (last, now), &mut records);
    (answer, records)
}
