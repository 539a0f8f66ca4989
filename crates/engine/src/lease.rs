//! The lease of a journal, and how long it may be trusted.
//!
//! The store's clock decides which server owns a journal. The local monotonic clock decides how
//! long the server trusts its lease. Trust ends after two thirds of the lease, counted from before
//! the renewal was sent: until then the store cannot have given the lease to another server.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bursar_journal::{Journal, JournalError, Lease, LeaseError};
use bursar_seeded::{Bug, seeded};

use crate::clock::{boot_time, monotonic_since, monotonic_start};
use crate::vital::Vital;
use crate::writer::observer::{Observer, Trouble};

/// How often the keeper checks during the length of one lease.
const CHECKS_PER_LEASE: u32 = 12;
/// The lease is renewed at every n-th check, and at every check after a failed renewal.
const CHECKS_PER_RENEWAL: u32 = 4;

/// A clock that is never set.
pub trait Monotonic: Send + Sync + 'static {
    /// Time since a fixed instant.
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

/// The system's clock that is never set and also counts while the system is suspended. Leases are
/// timed by it, because other servers continue meanwhile.
#[derive(Copy, Clone, Debug)]
pub struct BootClock(Duration);

impl BootClock {
    /// Counts from now.
    pub fn new() -> BootClock {
        BootClock(boot_time())
    }
}

impl Default for BootClock {
    fn default() -> BootClock {
        BootClock::new()
    }
}

impl Monotonic for BootClock {
    fn elapsed(&self) -> Duration {
        boot_time().saturating_sub(self.0)
    }
}

/// The reason why this process may not own machines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotPermitted(pub &'static str);

/// Whether this process may own machines. Of several servers on one store only the leader may. The
/// default always permits.
#[derive(Clone, Default)]
pub struct Permit(Option<Arc<dyn Fn() -> Result<(), NotPermitted> + Send + Sync>>);

impl Permit {
    /// `ask` is called before a lease is taken and whenever one is checked, so it must be cheap.
    /// Its error is the reason why the process may not own machines.
    pub fn new(ask: impl Fn() -> Result<(), NotPermitted> + Send + Sync + 'static) -> Permit {
        Permit(Some(Arc::new(ask)))
    }

    /// Whether the process needs a permit.
    pub fn is_needed(&self) -> bool {
        self.0.is_some()
    }

    /// Checks the permit.
    ///
    /// # Errors
    /// Why this process may not own machines.
    pub fn ask(&self) -> Result<(), NotPermitted> {
        self.0.as_ref().map_or(Ok(()), |ask| ask())
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.ask()).finish()
    }
}

/// How long a lease may be trusted.
pub struct LeaseTrust {
    lease: Lease,
    clock: Arc<dyn Monotonic>,
    until_ms: AtomicU64,
    ended: AtomicBool,
    permit: Permit,
}

impl LeaseTrust {
    /// Takes the lease of `journal`. Trust counts from before the request.
    pub fn acquire(
        journal: &dyn Journal,
        clock: Arc<dyn Monotonic>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseTrust, LeaseError> {
        LeaseTrust::acquire_under(journal, clock, holder, ttl, Permit::default())
    }

    /// Like [`LeaseTrust::acquire`], for a process that needs a permit. Without the permit the
    /// lease is not trusted.
    pub fn acquire_under(
        journal: &dyn Journal,
        clock: Arc<dyn Monotonic>,
        holder: &str,
        ttl: Duration,
        permit: Permit,
    ) -> Result<LeaseTrust, LeaseError> {
        let asked = clock.elapsed();
        let lease = journal.acquire_lease(holder, ttl)?;
        let until_ms = AtomicU64::new(trusted_until(asked, ttl));
        Ok(LeaseTrust { lease, clock, until_ms, ended: AtomicBool::new(false), permit })
    }

    /// The lease that is trusted.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Whether no other server can own the journal at this moment.
    pub fn holds(&self) -> bool {
        !self.has_ended()
            && whole_millis(self.clock.elapsed()) < self.until_ms.load(Ordering::SeqCst)
            && self.permit.ask().is_ok()
    }

    /// Whether trust has ended for good: another server took the lease, or the owner gave it up.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Ends trust for good.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Renews the lease once.
    ///
    /// # Errors
    /// Trust ends for good if the lease was lost or the store can no longer be trusted.
    pub fn renew(&self, journal: &dyn Journal) -> Result<(), LeaseError> {
        let asked = self.clock.elapsed();
        let renewed = journal.renew_lease(&self.lease);
        match &renewed {
            Ok(()) => self.until_ms.store(trusted_until(asked, self.lease.ttl), Ordering::SeqCst),
            Err(LeaseError::Lost { .. } | LeaseError::Journal(JournalError::Unfit(_))) => {
                self.end()
            }
            Err(LeaseError::Journal(_) | LeaseError::Held { .. }) => {}
        }
        renewed
    }

    /// Whether the lease holds, if necessary after one renewal. While the process was paused
    /// nothing was renewed, and a lease that can still be renewed never had another owner.
    pub(crate) fn holds_or_renews(&self, journal: &dyn Journal) -> bool {
        self.holds() || (!self.has_ended() && self.renew(journal).is_ok() && self.holds())
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn trusted_until(asked: Duration, ttl: Duration) -> u64 {
    let trusted = if seeded(Bug::TrustOutlivesLease) { ttl * 4 / 3 } else { ttl * 2 / 3 };
    whole_millis(asked + trusted)
}

/// Keeps a lease until dropped: renews it every third of its length, and ends trust when the lease
/// is no longer valid or when the journal cannot be appended to.
pub(crate) struct LeaseKeeper {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl LeaseKeeper {
    /// Calls `over` once when trust has ended.
    pub(crate) fn start(
        journal: Arc<dyn Journal>,
        trust: Arc<LeaseTrust>,
        observer: Observer,
        over: impl FnOnce() + Send + 'static,
    ) -> LeaseKeeper {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("bursar-lease".into()).spawn(move || {
            let _vital = Vital::new("the keeper of a lease");
            let (flag, woken) = &*stopped;
            let mut done = flag.lock().unwrap_or_else(PoisonError::into_inner);
            let mut looks = 0;
            loop {
                let wait =
                    woken.wait_timeout_while(done, trust.lease.ttl / CHECKS_PER_LEASE, |done| {
                        !*done
                    });
                done = wait.unwrap_or_else(PoisonError::into_inner).0;
                if *done {
                    return;
                }
                looks += 1;
                if looks >= CHECKS_PER_RENEWAL {
                    match trust.renew(&*journal) {
                        Ok(()) => looks = 0,
                        Err(error) => observer.trouble(Trouble::LeaseNotRenewed(error)),
                    }
                }
                let cut = journal.must_reopen();
                let failing = looks >= CHECKS_PER_RENEWAL;
                if cut.is_some() || (failing && !trust.holds()) || trust.permit.ask().is_err() {
                    trust.end();
                }
                if trust.has_ended() {
                    return over();
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
            // A panic was about renewing a lease that is no longer needed.
            let _ = thread.join();
        }
    }
}
