//! What a member remembers of the journals, so that a store which has lost something is not served.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bursar_journal::JournalError;
use bursar_journal::postgres::{MachineHeads, PostgresLeader, StoredLoss};

/// Why a process ends after an operator accepted a loss.
const STOP_AFTER_ACCEPTED_LOSS: &str = "a loss of the store was accepted, and the state of this process contains what was lost: \
    start it again";
/// How often a standby compares the store with what it saw.
const COMPARE_INTERVAL: Duration = Duration::from_secs(1);

/// The heads of journals that this process knows to be durable.
pub(crate) type DurableHeads = Box<dyn Fn() -> MachineHeads + Send + Sync>;

/// What the threads of a member share about losses.
#[derive(Default)]
pub(crate) struct LossWatch {
    durable: OnceLock<DurableHeads>,
    outlived: AtomicBool,
    is_lost: AtomicBool,
}

impl LossWatch {
    /// Whether the store lacks something, so that no member serves it before an operator decides.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    /// From now on what this process knows to be durable must be in the store.
    pub(crate) fn remember(&self, durable: DurableHeads) {
        // Called once, at the start.
        let _ = self.durable.set(durable);
    }

    /// Why this process must end, if it must.
    pub(crate) fn ended(&self) -> Option<String> {
        self.outlived.load(Ordering::SeqCst).then(|| STOP_AFTER_ACCEPTED_LOSS.to_owned())
    }
}

/// What this member remembers of the journals.
pub(super) struct Losses {
    watch: Arc<LossWatch>,
    seen: MachineHeads,
    /// The newest acceptance of a loss that was seen.
    accepted: Option<u64>,
    /// When the store was compared with it.
    compared: Option<Duration>,
}

impl Losses {
    pub(super) fn new(watch: Arc<LossWatch>) -> Losses {
        Losses { watch, seen: MachineHeads::new(), accepted: None, compared: None }
    }

    /// Compares the store with what this member saw of it. Returns why this member must not lead, if it must not: the
    /// store lacks something, or this process contains what it lacks.
    ///
    /// # Errors
    /// The store does not answer within that time.
    pub(super) fn find(
        &mut self,
        store: &PostgresLeader,
        now: Duration,
        within: Duration,
    ) -> Result<Option<String>, JournalError> {
        let durable = self.watch.durable.get();
        for (machine, head) in durable.map(|durable| durable()).unwrap_or_default() {
            let seen = self.seen.entry(machine).or_insert(head);
            if head.sequence > seen.sequence {
                *seen = head;
            }
        }
        self.compared = Some(now);
        let before = self.accepted;
        let StoredLoss { noted, accepted, heads } = store.compare(&self.seen, before, within)?;
        // A lower one is of an older copy, which is not served: what was seen is not forgotten over it.
        self.accepted = before.max(Some(accepted));
        self.watch.is_lost.store(noted.is_some(), Ordering::SeqCst);
        if durable.is_some() && before.is_some_and(|before| before < accepted) {
            self.watch.outlived.store(true, Ordering::SeqCst);
        }
        let Some(lost) = noted else {
            self.seen = heads;
            return Ok(self.watch.ended());
        };
        Ok(Some(format!(
            "the store has lost something ({lost}). Put back the newest copy of the database; or see what is lost and \
             accept it: bursar cluster accept-loss --store URL"
        )))
    }

    /// Whether the store was not compared for a while.
    pub(super) fn are_old(&self, now: Duration) -> bool {
        self.compared.is_none_or(|last| now >= last + COMPARE_INTERVAL)
    }
}
