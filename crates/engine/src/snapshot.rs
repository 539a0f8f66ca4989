//! Snapshots, made from a copy of the state that follows the journal: the writer never waits.

use std::sync::Arc;

use bursar_core::machine::Machine;
use bursar_journal::{Head, Journal, Record, Snapshot};

use crate::codec::Codec;
use crate::error::ReplayError;
use crate::follower::Projection;
use crate::replay::replay;

/// A projection that is the machine's own state, and puts it away now and then.
pub struct Snapshotter<C: Codec> {
    journal: Arc<dyn Journal>,
    codec: Arc<C>,
    machine: C::Machine,
    head: Head,
    last: u64,
    every: u64,
}

impl<C: Codec> Snapshotter<C> {
    /// Starts where the journal is now; makes a snapshot after every `every` records.
    pub fn new(
        journal: Arc<dyn Journal>,
        codec: Arc<C>,
        every: u64,
    ) -> Result<Snapshotter<C>, ReplayError> {
        let replayed = replay(&*journal, &*codec)?;
        let last = journal.head_at(replayed.snapshot)?.position;
        let (machine, head) = (replayed.machine, replayed.head);
        Ok(Snapshotter { journal, codec, machine, head, last, every })
    }

    /// Puts a snapshot away now.
    pub fn put(&mut self) -> Result<(), ReplayError> {
        let state = self.codec.encode_state(&self.machine);
        self.journal.put_snapshot(&Snapshot { head: self.head, state })?;
        self.last = self.head.position;
        Ok(())
    }
}

impl<C: Codec> Projection<C::Machine> for Snapshotter<C> {
    fn head(&self) -> Head {
        self.head
    }

    fn record(&mut self, record: &Record<'_>, events: &[<C::Machine as Machine>::Event]) {
        for event in events {
            self.machine.apply(record.time, event);
        }
    }

    fn batch(&mut self, head: Head) {
        self.head = head;
        if head.position >= self.last.saturating_add(self.every) && self.put().is_err() {
            // Without a snapshot a start takes longer, nothing else. Try again that much later.
            self.last = head.position;
        }
    }
}
