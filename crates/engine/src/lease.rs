//! The right to write, and how long it may be trusted.
//!
//! The store's clock decides who owns a journal; our monotonic clock decides how long we believe it.
//! Trust ends after two thirds of the lease, counted from before the renewal was sent: by then nobody
//! else can have been given it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bursar_journal::{Journal, Lease, LeaseError};

use crate::clock::{monotonic_since, monotonic_start};
use crate::vital::Vital;

/// A clock that is never set.
pub trait Monotonic: Send + Sync + 'static {
    /// Time since any fixed instant.
    fn elapsed(&self) -> Duration;
}

/// The system's monotonic clock.
#[derive(Copy, Clone, Debug)]
pub struct SystemMonotonic(Instant);

impl SystemMonotonic {
    /// Counts from now.
    pub fn new() -> SystemMonotonic {
        SystemMonotonic(monotonic_start())
    }
}

impl Default for SystemMonotonic {
    fn default() -> SystemMonotonic {
        SystemMonotonic::new()
    }
}

impl Monotonic for SystemMonotonic {
    fn elapsed(&self) -> Duration {
        monotonic_since(self.0)
    }
}

/// Whether a lease may still be believed.
pub struct LeaseTrust {
    lease: Lease,
    clock: Arc<dyn Monotonic>,
    until_ms: AtomicU64,
    lost: AtomicBool,
}

impl LeaseTrust {
    /// Takes the lease of `journal`; trust counts from before it was asked for.
    pub fn acquire(
        journal: &dyn Journal,
        clock: Arc<dyn Monotonic>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseTrust, LeaseError> {
        let asked = clock.elapsed();
        let lease = journal.acquire_lease(holder, ttl)?;
        let until_ms = AtomicU64::new(trusted_until(asked, ttl));
        Ok(LeaseTrust { lease, clock, until_ms, lost: AtomicBool::new(false) })
    }

    /// The lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Whether nobody else can own the journal right now.
    pub fn holds(&self) -> bool {
        !self.is_lost() && whole_millis(self.clock.elapsed()) < self.until_ms.load(Ordering::SeqCst)
    }

    /// Whether somebody else is known to have taken it.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Asks the store once for more time.
    pub fn renew(&self, journal: &dyn Journal) -> Result<(), LeaseError> {
        let asked = self.clock.elapsed();
        match journal.renew_lease(&self.lease) {
            Ok(()) => {
                self.until_ms.store(trusted_until(asked, self.lease.ttl), Ordering::SeqCst);
                Ok(())
            }
            Err(LeaseError::Lost { epoch }) => {
                self.lost.store(true, Ordering::SeqCst);
                Err(LeaseError::Lost { epoch })
            }
            Err(other) => Err(other),
        }
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn trusted_until(asked: Duration, ttl: Duration) -> u64 {
    whole_millis(asked + ttl * 2 / 3)
}

/// Renews a lease every third of its time, until dropped.
pub(crate) struct LeaseKeeper {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl LeaseKeeper {
    /// Calls `lost` once if somebody else has taken the lease.
    pub(crate) fn start(
        journal: Arc<dyn Journal>,
        trust: Arc<LeaseTrust>,
        lost: impl FnOnce() + Send + 'static,
    ) -> LeaseKeeper {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("bursar-lease".into()).spawn(move || {
            let _vital = Vital::new("the keeper of a lease");
            let (flag, woken) = &*stopped;
            let mut done = flag.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                let wait = woken.wait_timeout_while(done, trust.lease.ttl / 3, |done| !*done);
                done = wait.unwrap_or_else(PoisonError::into_inner).0;
                if *done {
                    return;
                }
                // A store that does not answer ends the trust by itself.
                let _ = trust.renew(&*journal);
                if trust.is_lost() {
                    return lost();
                }
            }
        });
        let thread = Some(thread.expect("the system can start a thread"));
        LeaseKeeper { stop, thread }
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        let (flag, woken) = &*self.stop;
        *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        woken.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, was about renewing a lease that is no longer needed.
            let _ = thread.join();
        }
    }
}
