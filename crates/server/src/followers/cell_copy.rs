//! A copy of a cell that follows its journal. It makes the snapshots, and answers hypothetical
//! questions that would take too much of the writer's time, such as the start of a job that is not
//! submitted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_api::Code;
use bursar_core::cell::nodes::node::NodeId;
use bursar_core::cell::{Cell, Event, NodeKey};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::follower::{Follower, Projection};
use bursar_engine::{CellCodec, Codec, Durable, Observer, SnapshotPace, Trouble, replay};
use bursar_journal::{Head, Journal, Record, Snapshot};
use tokio::sync::watch;

use crate::followers::error::FollowerError;
use crate::followers::region_samples::RegionSamples;
use crate::request::Failure;

/// How long a question waits for the copy to reach the cell's position.
const COPY_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle to the copy, for questions.
#[derive(Clone)]
pub(crate) struct CellCopy {
    cell: Arc<Mutex<Cell>>,
    samples: Arc<Mutex<RegionSamples>>,
    reached: watch::Receiver<u64>,
    removed_at: Arc<AtomicU64>,
}

/// The copy before the writer has started.
pub(crate) struct NewCellCopy {
    following: Following,
    copy: CellCopy,
}

impl NewCellCopy {
    /// Reads the present state of the cell from its journal. Snapshots are made after `every`
    /// records at the earliest.
    pub(crate) fn read(
        journal: Arc<dyn Journal>,
        every: u64,
        observer: Observer,
    ) -> Result<NewCellCopy, FollowerError> {
        let replayed = replay(&*journal, &CellCodec)?;
        NewCellCopy::of(journal, (replayed.machine, replayed.head), every, observer)
    }

    /// The same from a state of the cell and the last batch in it.
    pub(crate) fn of(
        journal: Arc<dyn Journal>,
        (cell, head): (Cell, Head),
        every: u64,
        observer: Observer,
    ) -> Result<NewCellCopy, FollowerError> {
        let snapshot = journal.list_snapshots()?.first().map_or(0, |mark| mark.sequence);
        let last = journal.head_at(snapshot)?.position;
        let (progress, reached) = watch::channel(head.position);
        let cell = Arc::new(Mutex::new(cell));
        let samples = Arc::<Mutex<RegionSamples>>::default();
        // What was removed before is not known.
        let removed_at = Arc::new(AtomicU64::new(head.position));
        let pace = SnapshotPace::new(every, last);
        let copy = CellCopy {
            cell: Arc::clone(&cell),
            samples: Arc::clone(&samples),
            reached,
            removed_at: Arc::clone(&removed_at),
        };
        let following =
            Following { journal, cell, samples, head, pace, progress, observer, removed_at };
        Ok(NewCellCopy { following, copy })
    }

    /// The generation of the store according to the journal.
    pub(crate) fn generation(&self) -> u32 {
        self.copy.cell.lock().unwrap_or_else(PoisonError::into_inner).generation()
    }

    /// The last batch in it.
    pub(crate) fn head(&self) -> Head {
        self.following.head
    }

    /// When the last record was made.
    pub(crate) fn last_at(&self) -> Timestamp {
        self.copy.cell.lock().unwrap_or_else(PoisonError::into_inner).now()
    }

    /// Follows the journal as far as it is durable.
    pub(crate) fn follow(self, durable: Arc<Durable>) -> (CellCopy, Follower) {
        let NewCellCopy { following, copy } = self;
        let journal = Arc::clone(&following.journal);
        (copy, Follower::start(journal, Arc::new(CellCodec), durable, following))
    }
}

impl CellCopy {
    /// Waits until the copy has reached a position.
    pub(crate) async fn reach(&self, position: u64) -> Result<(), Failure> {
        let mut reached = self.reached.clone();
        let arrived = reached.wait_for(|reached| *reached >= position);
        if !matches!(tokio::time::timeout(COPY_TIMEOUT, arrived).await, Ok(Ok(_))) {
            let detail = format!("the copy of the region has not reached {position}; try again");
            return Err(Failure::new(Code::Unavailable, detail));
        }
        Ok(())
    }

    /// The figures of the region over time.
    pub(crate) fn samples(&self) -> MutexGuard<'_, RegionSamples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that a number meant in a record, if that is certain: numbers of removed nodes are used
    /// again, so none was removed at the record or since.
    pub(crate) fn node_at(&self, cell: &Cell, node: NodeId, position: u64) -> Option<NodeKey> {
        let is_same = position > self.removed_at.load(Ordering::SeqCst);
        is_same.then(|| cell.node_numbered(node)).flatten().map(|node| NodeKey::of(node.offer))
    }

    /// Looks at it. Waits while the copy is being changed: not for an async thread.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Cell) -> T) -> T {
        look(&self.cell.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A copy for one question. It takes a while: not for an async thread.
    pub(crate) fn taken(&self) -> Cell {
        self.cell.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Following {
    journal: Arc<dyn Journal>,
    cell: Arc<Mutex<Cell>>,
    samples: Arc<Mutex<RegionSamples>>,
    head: Head,
    pace: SnapshotPace,
    progress: watch::Sender<u64>,
    observer: Observer,
    /// The last record that removed a node.
    removed_at: Arc<AtomicU64>,
}

impl Projection<Cell> for Following {
    fn head(&self) -> Head {
        self.head
    }

    fn record(&mut self, record: &Record<'_>, events: &[Event]) {
        let mut cell = self.cell.lock().unwrap_or_else(PoisonError::into_inner);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.before(&cell, record.time);
        for event in events {
            if matches!(event, Event::NodeRemoved { .. }) {
                self.removed_at.store(record.position, Ordering::SeqCst);
            }
            cell.apply(record.time, event);
        }
    }

    fn batch(&mut self, head: Head) {
        self.head = head;
        self.progress.send_replace(head.position);
        if !self.pace.is_due(head.position) {
            return;
        }
        let state =
            CellCodec.encode_state(&self.cell.lock().unwrap_or_else(PoisonError::into_inner));
        self.pace.made(head.position, state.len());
        if let Err(error) = self.journal.put_snapshot(&Snapshot { head, state }) {
            self.observer.trouble(Trouble::NoSnapshot(error.into()));
        }
    }
}
