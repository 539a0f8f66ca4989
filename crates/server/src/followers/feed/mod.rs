//! The live event feed: a copy of the ledger follows the journal, and each event is rendered for
//! the API. The same copy makes the snapshots.

mod describe;
mod past;
mod sharing;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bursar_api::system::audit::FeedEvent;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::event::Event;
use bursar_core::ledger::sharing::Differs;
use bursar_core::machine::Machine;
use bursar_engine::follower::{Follower, Projection};
use bursar_engine::{
    Codec, Engine, LedgerCodec, Observer, Seen, SnapshotPace, Trouble, copy_or_replay,
};
use bursar_journal::{Head, Journal, Record, Snapshot};
use tokio::sync::watch;

use crate::followers::error::FollowerError;
use crate::net::turns::Turns;
use crate::telemetry::monotonic::Stopwatch;
use describe::describe;
use sharing::Sharing;

/// The number of events kept in memory; older ones are read from the journal.
const MAX_KEPT_EVENTS: usize = 65_536;

/// The most events that are returned at once.
const MAX_READY: usize = 256;

/// The most concurrent reads of old events. Each keeps some records in memory.
const MAX_PAST_READINGS: usize = 4;

/// The place of an event: the position of its record and its number there.
pub type Place = (u64, u32);

/// Formats the id of an event.
pub fn event_id(place: Place) -> String {
    format!("evt_{:012}_{:04}", place.0, place.1)
}

/// Parses the id of an event; `0` is the place before the first.
pub fn read_event_id(id: &str) -> Option<Place> {
    if id == "0" {
        return Some((0, u32::MAX));
    }
    let (position, number) = id.strip_prefix("evt_")?.split_once('_')?;
    Some((position.parse().ok()?, number.parse().ok()?))
}

/// The id of an event of a shard, `evt_1.000000000012_0003`. That of an event of the first one is older than shards and has
/// no number.
pub fn id_in_shard(shard: u16, id: &str) -> String {
    match (shard, id.strip_prefix("evt_")) {
        (0, _) | (_, None) => id.to_owned(),
        (shard, Some(place)) => format!("evt_{shard}.{place}"),
    }
}

/// Reads the id of an event of a shard. That of another shard's event is not valid.
pub fn read_event_id_in(shard: u16, id: &str) -> Option<Place> {
    if shard == 0 || id == "0" {
        return read_event_id(id);
    }
    let place = id.strip_prefix("evt_")?.strip_prefix(&shard.to_string())?.strip_prefix('.')?;
    read_event_id(&format!("evt_{place}"))
}

/// How long events are still collected after the last listener has left, so that it can resume.
const RESUME_GRACE: Duration = Duration::from_secs(600);

/// How long the journal grows before the copy follows, while there is no listener. Readers of the
/// copy accept this delay.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(10);

/// How long the copy waits before it shares further blocks with the writer. A shared block is copied when it changes
/// next, so this limits what sharing costs the writer.
const SHARING_INTERVAL: Duration = Duration::from_millis(50);

/// How often blocks are shared without a pause, while the copy has all that the writer has.
const MAX_SHARED_AT_ONCE: usize = 16;

#[derive(Default)]
struct Ring {
    events: VecDeque<(Place, Arc<FeedEvent>)>,
    /// The ring has every event after this position.
    complete_after: u64,
    listeners: usize,
    /// Runs since the last listener has left.
    left: Option<Stopwatch>,
}

impl Ring {
    /// Whether to render a record. Without a listener, present or expected to resume, it is
    /// skipped: rendering costs more than following.
    fn must_render(&mut self, position: u64) -> bool {
        let awaited = self.left.as_ref().is_some_and(|left| left.elapsed() < RESUME_GRACE);
        if self.listeners > 0 || awaited {
            return true;
        }
        self.events.clear();
        self.complete_after = position;
        false
    }

    /// The next events after a place. Of the last record that is not in the ring some events may be
    /// missing, so a listener that has seen only a part of it reads the journal.
    fn behind(&self, place: Place) -> EventsAfter {
        if place < (self.complete_after, u32::MAX) {
            return EventsAfter::Older(self.complete_after);
        }
        let first = self.events.partition_point(|(at, _)| *at <= place);
        EventsAfter::Ready(self.events.range(first..).take(MAX_READY).cloned().collect())
    }
}

fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A listener: while it lives, all later records are rendered.
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

/// The latest events, and where to read older ones.
pub struct Feed {
    journal: Arc<dyn Journal>,
    ring: Arc<Mutex<Ring>>,
    copy: Arc<RwLock<(Ledger, u64)>>,
    reached: watch::Receiver<u64>,
    /// Turns at reading old events.
    past_readings: Arc<Turns>,
    _follower: Follower,
}

/// The events after a place.
pub enum EventsAfter {
    /// The next events; empty if there are none.
    Ready(Vec<(Place, Arc<FeedEvent>)>),
    /// Older than the ring: read the journal up to this position first.
    Older(u64),
}

impl Feed {
    /// Starts to follow a journal from the present state of its writer.
    pub fn start(
        journal: Arc<dyn Journal>,
        writer: &Engine<LedgerCodec>,
        snapshot_every: u64,
        observer: Observer,
    ) -> Result<Feed, FollowerError> {
        let durable = writer.durable();
        let replayed = copy_or_replay(&*journal, &LedgerCodec, &writer.handle())?;
        let last = journal.head_at(replayed.snapshot)?.position;
        let ring = Ring { complete_after: replayed.head.position, ..Ring::default() };
        let ring = Arc::new(Mutex::new(ring));
        let (progress, reached) = watch::channel(replayed.head.position);
        let ledger = Arc::new(RwLock::new((replayed.machine, replayed.head.position)));
        let copy = Copy {
            journal: Arc::clone(&journal),
            ledger: Arc::clone(&ledger),
            head: replayed.head,
            pace: SnapshotPace::new(snapshot_every, last),
            ring: Arc::clone(&ring),
            progress,
            observer,
            sharing: Sharing::new(writer.handle()),
            shared: Stopwatch::start(),
        };
        let codec = Arc::new(LedgerCodec);
        let follower = Follower::start(Arc::clone(&journal), codec, durable, copy);
        let past_readings = Turns::unhurried("readings of old events", MAX_PAST_READINGS);
        Ok(Feed { journal, ring, copy: ledger, reached, past_readings, _follower: follower })
    }

    /// Reads the copy. Everything in it is durable; the newest records may be missing.
    pub fn look<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Seen<T> {
        let copy = self.copy.read().unwrap_or_else(PoisonError::into_inner);
        let (ledger, position) = &*copy;
        Seen { value: read(ledger), position: *position, at: ledger.now() }
    }

    /// Collects events while the returned listener lives.
    pub fn listen(&self) -> Listener {
        lock(&self.ring).listeners += 1;
        Listener(Arc::clone(&self.ring))
    }

    /// The position of the copy, and its changes.
    pub fn reached(&self) -> watch::Receiver<u64> {
        self.reached.clone()
    }

    /// The next events after a place. Older ones are limited to those in the copy, so that it can
    /// resolve all names in them.
    pub fn behind(&self, place: Place) -> EventsAfter {
        let behind = lock(&self.ring).behind(place);
        match behind {
            EventsAfter::Older(until) => EventsAfter::Older(until.min(*self.reached.borrow())),
            ready @ EventsAfter::Ready(_) => ready,
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
    progress: watch::Sender<u64>,
    observer: Observer,
    sharing: Sharing,
    /// Runs since blocks were last shared.
    shared: Stopwatch,
}

impl Copy {
    /// Shares blocks with the writer, now or when the copy has what the writer has.
    fn share(&mut self) {
        if self.shared.elapsed() < SHARING_INTERVAL {
            return;
        }
        self.shared = Stopwatch::start();
        for _ in 0..MAX_SHARED_AT_ONCE {
            self.sharing.ask();
            let mut copy = self.ledger.write().unwrap_or_else(PoisonError::into_inner);
            let (ledger, position) = &mut *copy;
            let taken = self.sharing.take(ledger, *position);
            drop(copy);
            if !self.note(taken) || self.sharing.begins_round() {
                return;
            }
        }
    }

    /// Returns whether blocks were taken.
    fn note(&self, taken: Result<bool, Differs>) -> bool {
        taken.unwrap_or_else(|Differs| {
            self.observer.trouble(Trouble::CopyDiffers);
            false
        })
    }
}

impl Projection<Ledger> for Copy {
    fn head(&self) -> Head {
        self.head
    }

    fn record(&mut self, record: &Record<'_>, events: &[Event]) {
        let must_render = lock(&self.ring).must_render(record.position);
        let mut described = Vec::new();
        let mut copy = self.ledger.write().unwrap_or_else(PoisonError::into_inner);
        let (ledger, position) = &mut *copy;
        for (number, event) in (0..).zip(events) {
            ledger.apply(record.time, event);
            if must_render {
                let place = (record.position, number);
                described
                    .extend(describe(ledger, record, place, event).map(|event| (place, event)));
            }
        }
        *position = record.position;
        let taken = self.sharing.take(ledger, record.position);
        drop(copy);
        self.note(taken);
        let mut ring = lock(&self.ring);
        for (place, event) in described {
            ring.events.push_back((place, Arc::new(event)));
        }
        while ring.events.len() > MAX_KEPT_EVENTS {
            if let Some(((position, _), _)) = ring.events.pop_front() {
                ring.complete_after = position;
            }
        }
    }

    fn pace(&self) -> Duration {
        if lock(&self.ring).listeners > 0 { Duration::ZERO } else { FOLLOW_INTERVAL }
    }

    fn batch(&mut self, head: Head) {
        self.head = head;
        self.progress.send_replace(head.position);
        self.share();
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
    fn events_are_collected_while_there_is_a_listener_and_for_a_while_after() {
        let ring = Arc::new(Mutex::new(Ring::default()));
        assert!(!lock(&ring).must_render(7));
        assert_eq!(lock(&ring).complete_after, 7);
        lock(&ring).listeners += 1;
        let listener = Listener(Arc::clone(&ring));
        assert!(lock(&ring).must_render(8));
        drop(listener);
        assert!(lock(&ring).must_render(9), "a listener that has left may resume");
        assert_eq!(lock(&ring).complete_after, 7);
        lock(&ring).left = None;
        assert!(!lock(&ring).must_render(10));
        assert_eq!(lock(&ring).complete_after, 10);
    }

    #[test]
    fn a_listener_that_saw_part_of_a_skipped_record_reads_the_rest_from_the_journal() {
        let mut ring = Ring::default();
        assert!(!ring.must_render(7));
        for (place, older) in
            [((6, 3), true), ((7, 0), true), ((7, u32::MAX), false), ((8, 0), false)]
        {
            assert_eq!(matches!(ring.behind(place), EventsAfter::Older(7)), older, "{place:?}");
        }
    }

    #[test]
    fn an_event_id_is_read_back_and_sorts_by_place() {
        for place in [(1, 0), (999_999_999_999, 7)] {
            assert_eq!(read_event_id(&event_id(place)), Some(place));
        }
        assert!(event_id((9, 3)) < event_id((10, 0)));
        let id = id_in_shard(3, &event_id((9, 3)));
        assert_eq!((read_event_id_in(3, &id), read_event_id_in(2, &id)), (Some((9, 3)), None));
        assert_eq!(read_event_id_in(0, &id), None);
        assert_eq!(read_event_id_in(3, &event_id((9, 3))), None);
        assert_eq!(id_in_shard(0, "evt_1_2"), "evt_1_2");
        assert_eq!(read_event_id("0"), Some((0, u32::MAX)));
        for wrong in ["", "evt_", "evt_1", "evt_x_1", "5"] {
            assert_eq!(read_event_id(wrong), None);
        }
    }
}
