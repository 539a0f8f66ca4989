//! The thread that seals old records of all journals into segments.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_journal::{Journal, Sealing};
use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

/// How long the thread waits when there is nothing to seal. Snapshots, which make room for it, are
/// far less frequent.
const SEAL_INTERVAL: Duration = Duration::from_secs(5);
/// The least bytes of records in a segment.
const MIN_SEGMENT_BYTES: u64 = 1 << 20;
/// The most bytes of records in a segment: a reader has one in memory.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;

/// When old records are sealed, and how.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SegmentOptions {
    /// Whether records that no snapshot needs are sealed.
    pub seal: bool,
    /// Bytes of records in a segment, before compression.
    pub segment_bytes: u64,
    /// The level of the compression, 1 to 19.
    pub compression: i32,
}

impl Default for SegmentOptions {
    fn default() -> SegmentOptions {
        SegmentOptions {
            seal: true,
            segment_bytes: Sealing::DEFAULT_BYTES,
            compression: Sealing::DEFAULT_LEVEL,
        }
    }
}

impl SegmentOptions {
    /// Rejects numbers that make no sense.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&self.segment_bytes) {
            let must = format!(
                "[journal] segment_bytes must be {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}"
            );
            return Err(ConfigError::Contradiction(must));
        }
        if !(1..=19).contains(&self.compression) {
            let must = "[journal] compression must be 1 to 19".to_owned();
            return Err(ConfigError::Contradiction(must));
        }
        Ok(())
    }
}

/// The thread. Dropping it ends the thread after its current block.
pub(super) struct Sealer {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    asked: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Stop {
    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    fn wait(&self) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Whether it was woken or has waited long enough is asked by the caller.
        let _ = self.changed.wait_timeout_while(lock, SEAL_INTERVAL, |()| !self.is_asked());
    }

    fn ask(&self) {
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asked.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

impl Sealer {
    /// Seals the journals of these machines from now on.
    pub(super) fn start(
        machines: Vec<(String, Arc<dyn Journal>)>,
        sealing: Sealing,
    ) -> std::io::Result<Sealer> {
        let stop = Arc::new(Stop::default());
        let asked = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("bursar-sealer".into())
            .spawn(move || run(&machines, &sealing, &asked))?;
        Ok(Sealer { stop, thread: Some(thread) })
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic.
            let _ = thread.join();
        }
    }
}

fn run(machines: &[(String, Arc<dyn Journal>)], sealing: &Sealing, stop: &Stop) {
    // The last trouble of each machine, so that it is logged once.
    let mut troubles = vec![String::new(); machines.len()];
    while !stop.is_asked() {
        let mut is_idle = true;
        for ((machine, journal), trouble) in machines.iter().zip(&mut troubles) {
            match journal.seal(sealing, &|| !stop.is_asked()) {
                Ok(None) => {}
                Ok(Some(segment)) => {
                    trouble.clear();
                    is_idle = false;
                    let (name, bytes) = (segment.name(), segment.bytes);
                    tracing::info!(%machine, segment = %name, bytes, "sealed a segment");
                }
                Err(error) => {
                    let reason = error.to_string();
                    if reason != *trouble {
                        tracing::warn!(
                            %machine, %reason,
                            "no segment could be sealed; the records stay where they are, trying again"
                        );
                    }
                    *trouble = reason;
                }
            }
        }
        if is_idle {
            stop.wait();
        }
    }
}
