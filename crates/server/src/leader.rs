//! Of several servers on one store one leads: it owns every machine, the others are standbys. A thread
//! claims and renews the lead; machines are taken only while it is held.
//!
//! As with the leases of machines, the store's clock decides which server leads and the monotonic
//! clock how long that is believed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_engine::{Monotonic, Permit, SystemMonotonic};
use bursar_journal::JournalError;
use bursar_journal::postgres::{Claim, PostgresLeader};
use tokio::sync::watch;

use crate::ids::random_bits;

/// How long the store keeps the lead of a server that does not renew it.
const LEAD_TTL: Duration = Duration::from_secs(10);
/// How long a standby waits before it asks again, about: servers that start at once soon differ.
const CLAIM_EVERY: Duration = Duration::from_secs(1);
/// How long to wait before a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What this server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Not known yet.
    Unknown,
    /// It owns the machines, or takes them over.
    Leader,
    /// It waits for the lead.
    Standby {
        /// Where the leader is reached, as far as is known.
        owner: Option<String>,
        /// Why it does not lead.
        reason: String,
    },
}

/// How this server takes part.
pub(crate) struct Candidate {
    /// Its name and the number of its start: two processes never share it.
    pub holder: String,
    /// Where it is reached.
    pub url: String,
}

/// The thread that claims and renews the lead.
pub(crate) struct Leader {
    trust: Arc<Trust>,
    role: watch::Receiver<Role>,
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How long the lead is believed.
struct Trust {
    clock: SystemMonotonic,
    until_ms: AtomicU64,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Trust {
    fn holds(&self) -> bool {
        millis(self.clock.elapsed()) < self.until_ms.load(Ordering::SeqCst)
    }

    /// Believed for two thirds of its time, counted from before it was asked for.
    fn extend(&self, asked: Duration) {
        self.until_ms.store(millis(asked + LEAD_TTL * 2 / 3), Ordering::SeqCst);
    }

    fn end(&self) {
        self.until_ms.store(0, Ordering::SeqCst);
    }
}

impl Leader {
    /// Starts to claim the lead.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(store: PostgresLeader, candidate: Candidate) -> std::io::Result<Leader> {
        let trust = Arc::new(Trust { clock: SystemMonotonic::new(), until_ms: AtomicU64::new(0) });
        let (show, role) = watch::channel(Role::Unknown);
        let (stop, stopped) = channel();
        let mut campaign =
            Campaign { store, candidate, trust: Arc::clone(&trust), show, term: None };
        let thread = std::thread::Builder::new().name("bursar-leader".into()).spawn(move || {
            let mut pause = campaign.step();
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = campaign.step();
            }
            campaign.give_up();
        })?;
        let (stop, thread) = (Mutex::new(Some(stop)), Mutex::new(Some(thread)));
        Ok(Leader { trust, role, stop, thread })
    }

    /// Whether no other server can lead right now.
    pub(crate) fn leads(&self) -> bool {
        self.trust.holds()
    }

    /// What this server is, and every change of that.
    pub(crate) fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// Machines may be owned while this server leads.
    pub(crate) fn permit(&self) -> Permit {
        let trust = Arc::clone(&self.trust);
        Permit::new(move || {
            if trust.holds() { Ok(()) } else { Err("this server does not lead".to_owned()) }
        })
    }

    /// Gives the lead back, once all machines were.
    pub(crate) fn stop(&self) {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic was shown by the thread itself; then the lead runs out.
            let _ = thread.join();
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Campaign {
    store: PostgresLeader,
    candidate: Candidate,
    trust: Arc<Trust>,
    show: watch::Sender<Role>,
    /// The term in which this server leads.
    term: Option<u64>,
}

impl Campaign {
    /// Asks the store once; says how long to wait before the next time.
    fn step(&mut self) -> Duration {
        match self.term {
            Some(term) => self.renew(term),
            None => self.claim(),
        }
    }

    fn claim(&mut self) -> Duration {
        let asked = self.trust.clock.elapsed();
        let Candidate { holder, url } = &self.candidate;
        match self.store.claim(holder, url, LEAD_TTL) {
            Ok(Claim::Won { term }) => {
                self.term = Some(term);
                self.trust.extend(asked);
                tracing::info!(term, "this server leads");
                self.show.send_replace(Role::Leader);
                return LEAD_TTL / 3;
            }
            Ok(Claim::Held { holder, url }) => {
                let owner = (!url.is_empty()).then_some(url);
                tracing::debug!(holder, "another server leads");
                self.stand_by(owner, "another server leads".into());
            }
            Err(error) => self.stand_by(None, error.to_string()),
        }
        let jitter = u32::try_from(random_bits() % 500).unwrap_or(0);
        CLAIM_EVERY * 3 / 4 + Duration::from_millis(jitter.into())
    }

    fn renew(&mut self, term: u64) -> Duration {
        let asked = self.trust.clock.elapsed();
        match self.store.renew(term, LEAD_TTL) {
            Ok(true) => {
                self.trust.extend(asked);
                return LEAD_TTL / 3;
            }
            Ok(false) => self.step_down("another server leads".into()),
            Err(error @ JournalError::Unfit(_)) => {
                self.release(term);
                self.step_down(error.to_string());
            }
            Err(error) if self.trust.holds() => {
                tracing::warn!(%error, "the lead was not renewed");
            }
            Err(error) => self.step_down(error.to_string()),
        }
        RETRY
    }

    fn step_down(&mut self, reason: String) {
        self.trust.end();
        self.term = None;
        self.stand_by(None, reason);
    }

    fn stand_by(&self, owner: Option<String>, reason: String) {
        let role = Role::Standby { owner, reason };
        if *self.show.borrow() != role {
            tracing::warn!(?role, "this server does not lead");
            self.show.send_replace(role);
        }
    }

    fn release(&self, term: u64) {
        if let Err(error) = self.store.release(term, LEAD_TTL) {
            tracing::warn!(%error, "the lead was not given back; it runs out");
        }
    }

    fn give_up(&mut self) {
        self.trust.end();
        if let Some(term) = self.term.take() {
            self.release(term);
        }
    }
}
