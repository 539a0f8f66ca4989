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

use bursar_engine::{BootTime, Monotonic, Permit, wall_millis};
use bursar_journal::JournalError;
use bursar_journal::postgres::{Claim, PostgresLeader};
use tokio::sync::watch;

use crate::ids::random_bits;
use crate::telemetry::Metrics;

/// How long the store keeps the lead of a server that does not renew it.
const LEAD_TTL: Duration = Duration::from_secs(10);
/// How long a standby waits before it asks again, about: servers that start at once soon differ.
const CLAIM_EVERY: Duration = Duration::from_secs(1);
/// How long to wait before a renewal that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long a leader waits for what the store's clock says, which must not cost it the lead.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
/// How far the clocks of this server and of the store may be apart.
const MAX_GAP_MS: i64 = 2_000;

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
    /// Whether its time is that of the system's clock, which is compared with the store's.
    pub by_wall_clock: bool,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// The thread that claims and renews the lead.
pub(crate) struct Leader {
    trust: Arc<Trust>,
    role: watch::Receiver<Role>,
    gap: watch::Receiver<Option<String>>,
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How long the lead is believed.
struct Trust {
    clock: BootTime,
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

/// How long to wait after a renewal that was asked for so long ago: the next is asked for a third of
/// the lead's time after it, whatever was done meanwhile.
fn until_renewal(since_asked: Duration) -> Duration {
    (LEAD_TTL / 3).saturating_sub(since_asked)
}

/// How far the store's clock is ahead of ours at least, or behind it if negative, when its answer to a
/// question at `ours` took so long: it may have read it at any time between.
fn ahead_ms(ours: i64, theirs: i64, took: Duration) -> i64 {
    let most = theirs.saturating_sub(ours);
    let least = most.saturating_sub(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    if least > 0 { least } else { most.min(0) }
}

impl Leader {
    /// Starts to claim the lead.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(store: PostgresLeader, candidate: Candidate) -> std::io::Result<Leader> {
        let trust = Arc::new(Trust { clock: BootTime::new(), until_ms: AtomicU64::new(0) });
        let (show, role) = watch::channel(Role::Unknown);
        let (show_gap, gap) = watch::channel(None);
        let (stop, stopped) = channel();
        let mut campaign =
            Campaign { store, candidate, trust: Arc::clone(&trust), show, show_gap, term: None };
        let thread = std::thread::Builder::new().name("bursar-leader".into()).spawn(move || {
            let mut pause = campaign.step();
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = campaign.step();
            }
            campaign.give_up();
        })?;
        let (stop, thread) = (Mutex::new(Some(stop)), Mutex::new(Some(thread)));
        Ok(Leader { trust, role, gap, stop, thread })
    }

    /// Whether no other server can lead right now.
    pub(crate) fn leads(&self) -> bool {
        self.trust.holds()
    }

    /// What this server is, and every change of that.
    pub(crate) fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// What is wrong with the clocks of this server and of the store, if they differ too much.
    pub(crate) fn clock_gap(&self) -> Option<String> {
        self.gap.borrow().clone()
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
    show_gap: watch::Sender<Option<String>>,
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
        let jitter = u32::try_from(random_bits() % 500).unwrap_or(0);
        let later = CLAIM_EVERY * 3 / 4 + Duration::from_millis(jitter.into());
        match self.compare_clocks(LEAD_TTL / 3) {
            Ok((owner, Some(gap))) => {
                self.stand_by(owner, format!("it takes no machine: {gap}"));
                return later;
            }
            Ok((_, None)) => {}
            Err(error) => {
                self.stand_by(None, error.to_string());
                return later;
            }
        }
        let asked = self.trust.clock.elapsed();
        let Candidate { holder, url, .. } = &self.candidate;
        match self.store.claim(holder, url, LEAD_TTL) {
            Ok(Claim::Won { term }) => {
                self.term = Some(term);
                self.trust.extend(asked);
                tracing::info!(term, "this server leads");
                self.show.send_replace(Role::Leader);
                return self.until_renewal(asked);
            }
            Ok(Claim::Held { holder, url }) => {
                let owner = (!url.is_empty()).then_some(url);
                tracing::debug!(holder, "another server leads");
                self.stand_by(owner, "another server leads".into());
            }
            Err(error) => self.stand_by(None, error.to_string()),
        }
        later
    }

    /// Compares this server's clock with the store's; says where the leader is reached, and what is
    /// wrong if they differ too much. One that leads already keeps what it has.
    fn compare_clocks(
        &self,
        within: Duration,
    ) -> Result<(Option<String>, Option<String>), JournalError> {
        // In this order: a pause in between counts as time that the answer took.
        let (asked, ours) = (self.trust.clock.elapsed(), wall_millis());
        let (theirs, owner) = self.store.look(within)?;
        if !self.candidate.by_wall_clock {
            return Ok((owner, None));
        }
        let took = self.trust.clock.elapsed().saturating_sub(asked);
        let ahead = ahead_ms(ours, theirs, took);
        self.candidate.metrics.store_clock(ahead);
        let gap = (ahead.abs() > MAX_GAP_MS).then(|| {
            let side = if ahead > 0 { "behind" } else { "ahead of" };
            // Whole seconds, so that it is said again only when it has changed.
            format!(
                "the clock of this server is more than {} s {side} the clock of the database, which \
                 is too much; set both right",
                ahead.abs() / 1_000
            )
        });
        self.show_gap.send_replace(gap.clone());
        Ok((owner, gap))
    }

    fn renew(&mut self, term: u64) -> Duration {
        let asked = self.trust.clock.elapsed();
        match self.store.renew(term, LEAD_TTL) {
            Ok(true) => {
                self.trust.extend(asked);
                if let Err(error) = self.compare_clocks(LOOK_WITHIN) {
                    tracing::warn!(%error, "the clocks were not compared");
                }
                return self.until_renewal(asked);
            }
            Ok(false) => self.step_down("another server leads".into()),
            Err(error @ JournalError::Unfit(_)) => {
                self.step_down(error.to_string());
                self.release(term);
            }
            Err(error) if self.trust.holds() => {
                tracing::warn!(%error, "the lead was not renewed");
            }
            Err(error) => self.step_down(error.to_string()),
        }
        RETRY
    }

    fn until_renewal(&self, asked: Duration) -> Duration {
        until_renewal(self.trust.clock.elapsed().saturating_sub(asked))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_after_a_renewal_does_not_put_off_the_next() {
        for took in [Duration::ZERO, LOOK_WITHIN, LEAD_TTL / 3, LEAD_TTL] {
            let next = took + until_renewal(took);
            assert_eq!(next, took.max(LEAD_TTL / 3), "after {took:?}");
        }
        // A renewal and a look that both take as long as they may, and another renewal.
        let slow = LEAD_TTL / 3 + LOOK_WITHIN;
        assert!(slow + until_renewal(slow) < LEAD_TTL * 2 / 3, "it is still believed");
    }

    #[test]
    fn what_an_answer_took_is_not_held_against_a_clock() {
        let slow = Duration::from_secs(9);
        assert_eq!(ahead_ms(1_000, 1_000, Duration::ZERO), 0);
        assert_eq!(ahead_ms(1_000, 10_000, slow), 0, "it was read at the end");
        assert_eq!(ahead_ms(1_000, 1_000, slow), 0, "it was read at once");
        assert_eq!(ahead_ms(1_000, 13_000, slow), 3_000);
        assert_eq!(ahead_ms(10_000, 7_000, slow), -3_000);
        assert_eq!(ahead_ms(i64::MIN, i64::MAX, Duration::MAX), 0);
    }
}
