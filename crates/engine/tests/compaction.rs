//! A journal that is compacted by a separate thread.

use crate::support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bursar_engine::{Engine, EngineError};
use bursar_journal::memory::MemoryJournal;
use bursar_journal::{
    AppendError, Batch, BatchReader, Epoch, Head, Journal, JournalError, JournalId, Lease,
    LeaseError, MaintenanceUrgency, Pending, Snapshot, SnapshotMark,
};
use support::till::{Command, Till, TillCodec};
use support::{memory, till, wait_until};

/// A journal that always needs compaction. The test controls when a compaction ends and how.
struct AlwaysUrgent {
    inner: MemoryJournal,
    begun: AtomicU64,
    outcomes: Mutex<Receiver<Result<(), AppendError>>>,
}

impl AlwaysUrgent {
    fn new() -> (Arc<AlwaysUrgent>, Sender<Result<(), AppendError>>) {
        let (sender, outcomes) = channel();
        let outcomes = Mutex::new(outcomes);
        (Arc::new(AlwaysUrgent { inner: memory(1), begun: AtomicU64::new(0), outcomes }), sender)
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }
}

impl Journal for AlwaysUrgent {
    fn maintenance_urgency(&self) -> MaintenanceUrgency {
        MaintenanceUrgency::Now
    }

    fn compact(&self) -> Result<(), AppendError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        // After the test has ended there is nothing to fail.
        outcomes.recv().unwrap_or(Ok(()))
    }

    fn id(&self) -> JournalId {
        self.inner.id()
    }

    fn head(&self) -> Result<Head, JournalError> {
        self.inner.head()
    }

    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        self.inner.begin_append(epoch, expected, batch)
    }

    fn read(&self, after: Head) -> Result<BatchReader, JournalError> {
        self.inner.read(after)
    }

    fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        self.inner.head_at(sequence)
    }

    fn reopen(&self) -> Result<(), JournalError> {
        self.inner.reopen()
    }

    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        self.inner.acquire_lease(holder, ttl)
    }

    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.inner.renew_lease(lease)
    }

    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.inner.release_lease(lease)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        self.inner.put_snapshot(snapshot)
    }

    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        self.inner.list_snapshots()
    }

    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        self.inner.get_snapshot(mark)
    }
}

fn add(engine: &Engine<TillCodec>, id: u64) {
    let answer = engine.handle().execute((), Command::Add { id, amount: 1 });
    answer.expect("it serves").value.expect("it is accepted");
}

#[test]
fn no_request_waits_while_the_journal_is_compacted() {
    let (journal, outcomes) = AlwaysUrgent::new();
    let engine = till(Arc::<AlwaysUrgent>::clone(&journal));
    add(&engine, 1);
    wait_until("a compaction runs", || journal.begun() == 1);
    // The compaction ends only after these are answered.
    (2..=100).for_each(|id| add(&engine, id));
    assert_eq!(journal.begun(), 1, "one compaction at a time");
    outcomes.send(Ok(())).expect("the compaction waits");
    // The next append that finds it necessary starts another compaction.
    let mut id = 100;
    wait_until("another compaction runs", || {
        id += 1;
        add(&engine, id);
        journal.begun() == 2
    });
    drop(outcomes);
    engine.stop();
}

#[test]
fn an_idle_writer_reopens_a_journal_whose_compaction_failed() {
    let (journal, outcomes) = AlwaysUrgent::new();
    let engine = till(Arc::<AlwaysUrgent>::clone(&journal));
    add(&engine, 1);
    wait_until("a compaction runs", || journal.begun() == 1);
    let failure = AppendError::Unknown("disk error".into());
    outcomes.send(Err(failure)).expect("the compaction waits");
    // No request is sent meanwhile.
    wait_until("the state was rebuilt", || engine.stats().rebuilds == 2);
    let total = || engine.handle().read(|till: &Till| till.total).map(|seen| seen.value);
    let serving = |answer: &Result<i64, EngineError>| answer.is_ok();
    wait_until("it serves again", || serving(&total()));
    assert_eq!(total(), Ok(1), "the answered command is kept");
    drop(outcomes);
    add(&engine, 2);
    assert_eq!(total(), Ok(2));
    engine.stop();
}
