//! The right to write, and how long it may be trusted.
//!
//! The store's clock decides who owns a journal; our monotonic clock decides how long we believe it.
//! Trust ends after two thirds of the lease, counted from before the renewal was sent: by then nobody
//! else can have been given it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bursar_journal::{Journal, JournalError, Lease, LeaseError};

use crate::clock::{boot_time, monotonic_since, monotonic_start};
use crate::vital::Vital;
use crate::writer::observer::{Observer, Trouble};

/// How often the keeper of a lease looks around while the lease lasts.
const LOOKS: u32 = 12;
/// Every so many looks the lease is renewed; at every look after a renewal that failed.
const LOOKS_A_RENEWAL: u32 = 4;

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

/// The system's clock that is never set and also counts while the system is suspended. Leases are
/// believed by it: other servers go on meanwhile.
#[derive(Copy, Clone, Debug)]
pub struct BootTime(Duration);

impl BootTime {
    /// Counts from now.
    pub fn new() -> BootTime {
        BootTime(boot_time())
    }
}

impl Default for BootTime {
    fn default() -> BootTime {
        BootTime::new()
    }
}

impl Monotonic for BootTime {
    fn elapsed(&self) -> Duration {
        boot_time().saturating_sub(self.0)
    }
}

/// Whether this process may own machines at all: of several servers on one store only the leader may.
/// The default allows it always.
#[derive(Clone, Default)]
pub struct Permit(Option<Arc<dyn Fn() -> Result<(), String> + Send + Sync>>);

impl Permit {
    /// Asked before a lease is taken and whenever one is believed, so it must cost next to nothing.
    /// An error says why not.
    pub fn new(ask: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Permit {
        Permit(Some(Arc::new(ask)))
    }

    /// Asks.
    ///
    /// # Errors
    /// Why not.
    pub fn ask(&self) -> Result<(), String> {
        self.0.as_ref().map_or(Ok(()), |ask| ask())
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.ask()).finish()
    }
}

/// Whether a lease may still be believed.
pub struct LeaseTrust {
    lease: Lease,
    clock: Arc<dyn Monotonic>,
    until_ms: AtomicU64,
    ended: AtomicBool,
    permit: Permit,
}

impl LeaseTrust {
    /// Takes the lease of `journal`; trust counts from before it was asked for.
    pub fn acquire(
        journal: &dyn Journal,
        clock: Arc<dyn Monotonic>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseTrust, LeaseError> {
        LeaseTrust::acquire_under(journal, clock, holder, ttl, Permit::default())
    }

    /// The same for a process that needs a permit: without it nothing is believed.
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

    /// The lease.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Whether no other server can own the journal right now.
    pub fn holds(&self) -> bool {
        !self.has_ended()
            && whole_millis(self.clock.elapsed()) < self.until_ms.load(Ordering::SeqCst)
            && self.permit.ask().is_ok()
    }

    /// Whether it is over for good: another server took the lease, or the owner gave up.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Ends it for good.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Asks the store once for more time.
    ///
    /// # Errors
    /// Trust ends for good if the lease was lost or the store is not to be trusted any more.
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

    /// Whether it holds, if need be after one more renewal: while the process was paused nothing was
    /// renewed, and a lease that can still be renewed was never anybody else's.
    pub(crate) fn holds_or_renews(&self, journal: &dyn Journal) -> bool {
        self.holds() || (!self.has_ended() && self.renew(journal).is_ok() && self.holds())
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn trusted_until(asked: Duration, ttl: Duration) -> u64 {
    whole_millis(asked + ttl * 2 / 3)
}

/// Keeps a lease until dropped: renews it every third of its time, and ends its trust when it cannot be
/// believed any more or when the journal cannot be appended to.
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
                let wait = woken.wait_timeout_while(done, trust.lease.ttl / LOOKS, |done| !*done);
                done = wait.unwrap_or_else(PoisonError::into_inner).0;
                if *done {
                    return;
                }
                looks += 1;
                if looks >= LOOKS_A_RENEWAL {
                    match trust.renew(&*journal) {
                        Ok(()) => looks = 0,
                        Err(error) => observer.trouble(Trouble::LeaseNotRenewed(error)),
                    }
                }
                let cut = journal.must_reopen();
                let failing = looks >= LOOKS_A_RENEWAL;
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
            // Its panic, if any, was about renewing a lease that is no longer needed.
            let _ = thread.join();
        }
    }
}
