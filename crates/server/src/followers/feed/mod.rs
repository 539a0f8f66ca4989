//! What happens, as it happens: a copy of the ledger follows the journal and tells each event in
//! the interface's words. The same copy makes the snapshots.

mod describe;
mod past;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bursar_api::system::audit::FeedEvent;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::event::Event;
use bursar_core::machine::Machine;
use bursar_engine::follower::{Follower, Projection};
use bursar_engine::{Codec, Durable, LedgerCodec, Observer, Seen, SnapshotPace, Trouble, replay};
use bursar_journal::{Head, Journal, Record, Snapshot};
use tokio::sync::{Semaphore, watch};

use crate::telemetry::monotonic::Stopwatch;
use describe::tell;

/// Events that are kept ready; older ones are read from the journal.
const KEPT: usize = 65_536;

/// The most events that are handed out at once.
const MAX_READY: usize = 256;

/// How many readings of old events go on at once. Each keeps some records in memory.
const MAX_PAST_READINGS: usize = 4;

/// The place of an event: its record and its number there.
pub type Place = (u64, u32);

/// An event's id.
pub fn event_id(place: Place) -> String {
    format!("evt_{:012}_{:04}", place.0, place.1)
}

/// The place that an id stands for; `0` is before the first.
pub fn read_event_id(id: &str) -> Option<Place> {
    if id == "0" {
        return Some((0, u32::MAX));
    }
    let (position, number) = id.strip_prefix("evt_")?.split_once('_')?;
    Some((position.parse().ok()?, number.parse().ok()?))
}

/// How long events are kept ready after the last listener has gone: long enough to come back.
const LINGER: Duration = Duration::from_secs(600);

/// How long the journal grows before the copy follows, while nobody listens. Those who look at the
/// copy do not mind if it is this old.
const PACE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Ring {
    events: VecDeque<(Place, Arc<FeedEvent>)>,
    /// Everything behind this position is in the ring.
    complete_after: u64,
    listeners: usize,
    /// Runs since the last listener has gone.
    left: Option<Stopwatch>,
}

impl Ring {
    /// Whether a record is told. If nobody listens, and nobody is about to come back, it is not:
    /// telling costs more than following.
    fn tells(&mut self, position: u64) -> bool {
        let awaited = self.left.as_ref().is_some_and(|left| left.elapsed() < LINGER);
        if self.listeners > 0 || awaited {
            return true;
        }
        self.events.clear();
        self.complete_after = position;
        false
    }

    /// The next events behind a place. Of the last record that is not in the ring some may be
    /// missing, so a listener that has seen only a part of it reads the journal.
    fn behind(&self, place: Place) -> Behind {
        if place < (self.complete_after, u32::MAX) {
            return Behind::Older(self.complete_after);
        }
        let first = self.events.partition_point(|(at, _)| *at <= place);
        Behind::Ready(self.events.range(first..).take(MAX_READY).cloned().collect())
    }
}

fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody who wants to be told: of every record that is decided after it came.
pub struct Listener(Arc<Mutex<Ring>>);

impl Drop for Listener {
    fn drop(&mut self) {
        let mut ring = lock(&self.0);
        ring.listeners -= 1;
        if ring.listeners == 0 {
            ring.left = Some(Stopwatch::start());
        }
    }
}

/// The latest events, and where to get older ones.
pub struct Feed {
    journal: Arc<dyn Journal>,
    ring: Arc<Mutex<Ring>>,
    copy: Arc<RwLock<(Ledger, u64)>>,
    reached: watch::Receiver<u64>,
    /// Places for readings of old events.
    past_readings: Semaphore,
    _follower: Follower,
}

/// What the feed has behind a place.
pub enum Behind {
    /// The next of them; none if all were seen.
    Ready(Vec<(Place, Arc<FeedEvent>)>),
    /// More than is kept: read the journal up to this position first.
    Older(u64),
}

impl Feed {
    /// Starts to follow a journal from where it is.
    pub fn start(
        journal: Arc<dyn Journal>,
        durable: Arc<Durable>,
        snapshot_every: u64,
        observer: Observer,
    ) -> Result<Feed, String> {
        let replayed = replay(&*journal, &LedgerCodec).map_err(|error| error.to_string())?;
        let last = journal.head_at(replayed.snapshot).map_err(|error| error.to_string())?.position;
        let ring = Ring { complete_after: replayed.head.position, ..Ring::default() };
        let ring = Arc::new(Mutex::new(ring));
        let (told, reached) = watch::channel(replayed.head.position);
        let ledger = Arc::new(RwLock::new((replayed.machine, replayed.head.position)));
        let copy = Copy {
            journal: Arc::clone(&journal),
            ledger: Arc::clone(&ledger),
            head: replayed.head,
            pace: SnapshotPace::new(snapshot_every, last),
            ring: Arc::clone(&ring),
            told,
            observer,
        };
        let codec = Arc::new(LedgerCodec);
        let follower = Follower::start(Arc::clone(&journal), codec, durable, copy);
        let past_readings = Semaphore::new(MAX_PAST_READINGS);
        Ok(Feed { journal, ring, copy: ledger, reached, past_readings, _follower: follower })
    }

    /// Looks at the copy: everything in it is durable, and the latest may not be in it yet.
    pub fn look<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Seen<T> {
        let copy = self.copy.read().unwrap_or_else(PoisonError::into_inner);
        let (ledger, position) = &*copy;
        Seen { value: read(ledger), position: *position, at: ledger.now() }
    }

    /// Has events told from now on, for as long as what is returned lives.
    pub fn listen(&self) -> Listener {
        lock(&self.ring).listeners += 1;
        Listener(Arc::clone(&self.ring))
    }

    /// How far it has come; changes as it goes on.
    pub fn reached(&self) -> watch::Receiver<u64> {
        self.reached.clone()
    }

    /// The next events behind a place. Older ones are those that the copy has, so that it knows all
    /// that they name.
    pub fn behind(&self, place: Place) -> Behind {
        let behind = lock(&self.ring).behind(place);
        match behind {
            Behind::Older(until) => Behind::Older(until.min(*self.reached.borrow())),
            ready @ Behind::Ready(_) => ready,
        }
    }
}

/// A copy of the ledger that follows the journal.
struct Copy {
    journal: Arc<dyn Journal>,
    /// The ledger, and the last record that is in it.
    ledger: Arc<RwLock<(Ledger, u64)>>,
    head: Head,
    pace: SnapshotPace,
    ring: Arc<Mutex<Ring>>,
    told: watch::Sender<u64>,
    observer: Observer,
}

impl Projection<Ledger> for Copy {
    fn head(&self) -> Head {
        self.head
    }

    fn record(&mut self, record: &Record<'_>, events: &[Event]) {
        let tells = lock(&self.ring).tells(record.position);
        let mut told = Vec::new();
        let mut copy = self.ledger.write().unwrap_or_else(PoisonError::into_inner);
        let (ledger, position) = &mut *copy;
        for (number, event) in (0..).zip(events) {
            ledger.apply(record.time, event);
            if tells {
                let place = (record.position, number);
                told.extend(tell(ledger, record, place, event).map(|event| (place, event)));
            }
        }
        *position = record.position;
        drop(copy);
        let mut ring = lock(&self.ring);
        for (place, event) in told {
            ring.events.push_back((place, Arc::new(event)));
        }
        while ring.events.len() > KEPT {
            if let Some(((position, _), _)) = ring.events.pop_front() {
                ring.complete_after = position;
            }
        }
    }

    fn pace(&self) -> Duration {
        if lock(&self.ring).listeners > 0 { Duration::ZERO } else { PACE }
    }

    fn batch(&mut self, head: Head) {
        self.head = head;
        self.told.send_replace(head.position);
        if !self.pace.is_due(head.position) {
            return;
        }
        let state = {
            let copy = self.ledger.read().unwrap_or_else(PoisonError::into_inner);
            LedgerCodec.encode_state(&copy.0)
        };
        self.pace.made(head.position, state.len());
        if let Err(error) = self.journal.put_snapshot(&Snapshot { head, state }) {
            self.observer.trouble(Trouble::NoSnapshot(error.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_told_while_somebody_listens_and_a_while_longer() {
        let ring = Arc::new(Mutex::new(Ring::default()));
        assert!(!lock(&ring).tells(7));
        assert_eq!(lock(&ring).complete_after, 7);
        lock(&ring).listeners += 1;
        let listener = Listener(Arc::clone(&ring));
        assert!(lock(&ring).tells(8));
        drop(listener);
        assert!(lock(&ring).tells(9), "whoever has gone may come back");
        assert_eq!(lock(&ring).complete_after, 7);
        lock(&ring).left = None;
        assert!(!lock(&ring).tells(10));
        assert_eq!(lock(&ring).complete_after, 10);
    }

    #[test]
    fn whoever_saw_a_part_of_a_record_that_was_not_told_reads_the_rest_in_the_journal() {
        let mut ring = Ring::default();
        assert!(!ring.tells(7));
        for (place, older) in
            [((6, 3), true), ((7, 0), true), ((7, u32::MAX), false), ((8, 0), false)]
        {
            assert_eq!(matches!(ring.behind(place), Behind::Older(7)), older, "{place:?}");
        }
    }

    #[test]
    fn an_event_id_is_read_back_and_sorts_by_place() {
        for place in [(1, 0), (999_999_999_999, 7)] {
            assert_eq!(read_event_id(&event_id(place)), Some(place));
        }
        assert!(event_id((9, 3)) < event_id((10, 0)));
        assert_eq!(read_event_id("0"), Some((0, u32::MAX)));
        for wrong in ["", "evt_", "evt_1", "evt_x_1", "5"] {
            assert_eq!(read_event_id(wrong), None);
        }
    }
}
