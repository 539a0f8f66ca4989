//! Reads a journal after its writer and applies the records to a projection.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_journal::{Head, Journal, Record};
use bursar_seeded::{Bug, seeded};

use crate::codec::Codec;
use crate::error::ReplayError;
use crate::replay::Decoder;
use crate::vital::Vital;
use crate::writer::durable::Durable;

/// The pause after a failed read of the journal.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Data derived from a journal. Can be dropped and built again.
pub trait Projection<M: Machine>: Send + 'static {
    /// The last batch that the projection contains. Reading continues after it.
    fn head(&self) -> Head;

    /// Adds one record and its events.
    fn record(&mut self, record: &Record<'_>, events: &[M::Event]);

    /// Marks the end of a batch: all records up to `head` were added. The place to make them
    /// durable.
    fn batch(&mut self, head: Head);

    /// How long to let the journal grow before it is read again. Waking for every batch costs more
    /// than following it. A projection that requests wait for returns zero.
    fn pace(&self) -> Duration {
        Duration::ZERO
    }
}

/// A thread that follows one journal. Ends when the writer does.
pub struct Follower {
    thread: Option<JoinHandle<()>>,
    followed: Arc<Durable>,
    failure: Arc<Mutex<Option<ReplayError>>>,
}

impl Follower {
    /// Applies everything that `durable` reports to `projection`.
    pub fn start<C: Codec>(
        journal: Arc<dyn Journal>,
        codec: Arc<C>,
        durable: Arc<Durable>,
        mut projection: impl Projection<C::Machine>,
    ) -> Follower {
        let followed = Arc::new(Durable::new());
        let failure = Arc::new(Mutex::new(None));
        let (progress, failed) = (Arc::clone(&followed), Arc::clone(&failure));
        let work = move || {
            // Also after a panic, so that no thread waits for this one for ever.
            let _closing = Closing(&progress);
            let vital = Vital::new("a follower of the journal");
            let mut decoder = Decoder::new();
            progress.publish(projection.head());
            while durable.wait_beyond(projection.head().sequence) {
                // Batches beyond it may belong to an append whose outcome is unknown.
                let Some(until) = durable.head() else { continue };
                let batches = Batches { journal: &*journal, codec: &*codec, until };
                match batches.feed(&mut decoder, &mut projection, &progress) {
                    Ok(()) => match projection.pace() {
                        Duration::ZERO => {}
                        pace => durable.pause(pace),
                    },
                    // The store may become available again.
                    Err(error) if error.is_retryable() => durable.pause(RETRY_INTERVAL),
                    Err(error) => {
                        vital.fail(&error.to_string());
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        break;
                    }
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("bursar-follow".into())
            .spawn(work)
            .expect("the system can start a thread");
        Follower { thread: Some(thread), followed, failure }
    }

    /// How far the follower has read.
    pub fn followed(&self) -> Arc<Durable> {
        Arc::clone(&self.followed)
    }

    /// Why the follower stopped, if it failed.
    pub fn failure(&self) -> Option<ReplayError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the follower ends, which is after the writer has ended.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread has reported its own panic.
            let _ = thread.join();
        }
    }
}

/// Closes a [`Durable`] at the end of its scope.
struct Closing<'a>(&'a Durable);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Batches<'a, C> {
    journal: &'a dyn Journal,
    codec: &'a C,
    until: Head,
}

impl<C: Codec> Batches<'_, C> {
    fn feed(
        &self,
        decoder: &mut Decoder<<C::Machine as Machine>::Event>,
        projection: &mut impl Projection<C::Machine>,
        progress: &Durable,
    ) -> Result<(), ReplayError> {
        for batch in self.journal.read(projection.head())? {
            let batch = batch?;
            if batch.sequence > self.until.sequence && !seeded(Bug::FollowerShowsUnsynced) {
                break;
            }
            decoder
                .batch(self.codec, &batch, |record, events| projection.record(record, events))?;
            projection.batch(batch.head());
            progress.publish(batch.head());
        }
        Ok(())
    }
}
