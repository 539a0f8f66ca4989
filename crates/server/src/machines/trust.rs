//! Until when a server relies on its leadership, and the requests that it carries out meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bursar_engine::{BootClock, Monotonic};

/// Until when this server relies on its leadership.
pub(super) struct Trust {
    pub(super) clock: BootClock,
    until_ms: AtomicU64,
    /// Whether it hands its leadership over: it finishes the requests in progress and takes no more.
    pub(super) is_ending: AtomicBool,
    /// The requests in progress.
    pub(super) in_progress: AtomicUsize,
}

/// A request in progress. A leader that hands over waits until it is dropped.
pub(crate) struct InProgress(Arc<Trust>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::SeqCst);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Trust {
    pub(super) fn new() -> Trust {
        Trust {
            clock: BootClock::new(),
            until_ms: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            in_progress: AtomicUsize::new(0),
        }
    }

    /// Begins a request if this server leads and does not hand over.
    pub(super) fn begin(trust: &Arc<Trust>) -> Option<InProgress> {
        // Counted before the look: a hand-over that is decided later waits for it.
        trust.in_progress.fetch_add(1, Ordering::SeqCst);
        let begun = InProgress(Arc::clone(trust));
        (trust.holds() && !trust.is_ending.load(Ordering::SeqCst)).then_some(begun)
    }

    pub(super) fn holds(&self) -> bool {
        millis(self.clock.elapsed()) < self.until_ms.load(Ordering::SeqCst)
    }

    /// Extends it to two thirds of a lease, counted from before the request was sent.
    pub(super) fn extend(&self, asked: Duration, lease: Duration) {
        self.until_ms.store(millis(asked + lease * 2 / 3), Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.until_ms.store(0, Ordering::SeqCst);
    }
}
