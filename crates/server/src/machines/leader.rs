//! Leader election: of several servers that share a store, one leads and owns every machine; the
//! others are standbys. A thread claims and renews leadership; machines are taken over only while
//! it is held.
//!
//! As with the leases of machines, the store's clock decides which server leads, and the monotonic
//! clock decides how long this server relies on it.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_engine::{Monotonic, NotPermitted, Permit, wall_millis};
use bursar_journal::JournalError;
use bursar_journal::postgres::{Announcement, Claim, MemberStanding, PostgresLeader};
use tokio::sync::watch;

use super::losses::{LossWatch, Losses};
use super::trust::{InProgress, Trust};
use crate::ids::random_bits;
use crate::telemetry::Metrics;

/// How long the store keeps a leader that does not renew.
const LEAD_TTL: Duration = Duration::from_secs(3);
/// How often a member writes its row.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two looks of a standby at the lead, and how much it is varied, so that servers started at
/// the same time do not claim together.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_JITTER_MS: u64 = 100;
/// The delay after a failed renewal.
const RETRY: Duration = Duration::from_millis(100);
/// How long a leader waits for the store's clock, its heads, and its announcement. Bounded so that
/// it does not lose leadership over them. It does neither after a renewal that took this long.
const LOOK_WITHIN: Duration = Duration::from_millis(350);
/// How long a leader that shall hand over waits for the requests in progress.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(1);
/// How often it looks whether they have ended.
const HAND_OVER_STEP: Duration = Duration::from_millis(5);
/// How long a request about the members may take in the store.
pub(crate) const ASK_WITHIN: Duration = Duration::from_secs(2);
/// How long its caller waits, behind others.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The largest accepted difference between the clocks of this server and of the store.
const MAX_GAP_MS: i64 = 2_000;

/// Why a member that is draining does not lead.
pub(crate) const DRAINING: &str = "this member is draining";

/// The role of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Not known yet.
    Unknown,
    /// It owns the machines, or takes them over.
    Leader,
    /// It waits for leadership.
    Standby {
        /// The URL of the leader, if known.
        owner: Option<String>,
        /// Why it does not lead.
        reason: String,
    },
}

/// How this server takes part in the election.
pub(crate) struct Candidate {
    /// What it says of itself. It holds leases under the random id of its start, which no two processes share.
    pub member: Announcement,
    /// Whether the server uses the wall clock, which is then compared with the store's clock.
    pub by_wall_clock: bool,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

/// The thread that claims and renews leadership.
pub(crate) struct Leader {
    member: Announcement,
    trust: Arc<Trust>,
    role: watch::Receiver<Role>,
    gap: watch::Receiver<Option<String>>,
    losses: Arc<LossWatch>,
    asks: Mutex<Option<Sender<Ask>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A request about the members.
type Ask = Box<dyn FnOnce(&PostgresLeader) + Send>;

/// Carries out requests on a connection of their own, so that none delays a renewal. Then the state of this member is
/// read at once: it may have been changed.
fn answer_asks(store: &PostgresLeader, asks: &Receiver<Ask>, look: &Sender<()>) {
    while let Ok(ask) = asks.recv() {
        ask(store);
        // The other thread ends after this one.
        let _ = look.send(());
    }
}

/// The delay before the next renewal: it is sent a third of the lease after the last one was sent,
/// whatever happened meanwhile.
fn until_renewal(since_asked: Duration) -> Duration {
    (LEAD_TTL / 3).saturating_sub(since_asked)
}

/// The smallest possible distance of the store's clock ahead of ours; negative if it is behind. The
/// store may have read its clock at any time during the request, which was sent at `ours` and took
/// `took`.
fn ahead_ms(ours: i64, theirs: i64, took: Duration) -> i64 {
    let most = theirs.saturating_sub(ours);
    let least = most.saturating_sub(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    if least > 0 { least } else { most.min(0) }
}

impl Leader {
    /// Starts to claim leadership.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(
        (store, of_asks): (PostgresLeader, PostgresLeader),
        candidate: Candidate,
    ) -> std::io::Result<Leader> {
        let trust = Arc::new(Trust::new());
        let (show, role) = watch::channel(Role::Unknown);
        let (show_gap, gap) = watch::channel(None);
        let (asks, asked) = channel();
        let member = candidate.member.clone();
        let losses = Arc::<LossWatch>::default();
        let campaign = Campaign {
            store,
            candidate,
            trust: Arc::clone(&trust),
            show,
            show_gap,
            term: None,
            announced: None,
            must_wait: false,
            losses: Losses::new(Arc::clone(&losses)),
        };
        let (look, looks) = channel();
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let members =
            named("bursar-members").spawn(move || answer_asks(&of_asks, &asked, &look))?;
        let campaign = named("bursar-leader").spawn(move || campaign.run(&looks))?;
        let (asks, threads) = (Mutex::new(Some(asks)), Mutex::new(vec![members, campaign]));
        Ok(Leader { member, trust, role, gap, losses, asks, threads })
    }

    /// What is known of losses.
    pub(crate) fn losses(&self) -> &LossWatch {
        &self.losses
    }

    /// What this server says of itself.
    pub(crate) fn member(&self) -> &Announcement {
        &self.member
    }

    /// Begins a request if this server leads and does not hand over.
    pub(crate) fn begin(&self) -> Option<InProgress> {
        Trust::begin(&self.trust)
    }

    /// Carries out a request about the members. `None` if the store does not answer.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PostgresLeader) -> T + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = tokio::sync::oneshot::channel();
        let ask: Ask = Box::new(move |store| {
            // The caller may have gone.
            let _ = done.send(work(store));
        });
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        asks?.send(ask).ok()?;
        tokio::time::timeout(ANSWER_WITHIN, answer).await.ok()?.ok()
    }

    /// Whether this server leads, so that no other server can.
    pub(crate) fn leads(&self) -> bool {
        self.trust.holds()
    }

    /// The role of this server, and its changes.
    pub(crate) fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// The error text if the clocks of this server and of the store differ too much.
    pub(crate) fn clock_gap(&self) -> Option<String> {
        self.gap.borrow().clone()
    }

    /// Permits the ownership of machines while this server leads.
    pub(crate) fn permit(&self) -> Permit {
        let trust = Arc::clone(&self.trust);
        Permit::new(move || {
            if trust.holds() { Ok(()) } else { Err(NotPermitted("this server does not lead")) }
        })
    }

    /// Gives up leadership. Call it after all machines were released.
    pub(crate) fn stop(&self) {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // The thread has reported its panic; the lease then expires.
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
    /// When this member was announced last, and whether it shall own nothing.
    announced: Option<Duration>,
    must_wait: bool,
    losses: Losses,
}

impl Campaign {
    /// Claims and renews until the other side of `looks` is dropped.
    fn run(mut self, looks: &Receiver<()>) {
        let mut due = Duration::ZERO;
        loop {
            let now = self.trust.clock.elapsed();
            if now >= due {
                let pause = self.step();
                due = self.trust.clock.elapsed() + pause;
                continue;
            }
            match looks.recv_timeout(due - now) {
                Ok(()) => {
                    self.announced = None;
                    due = Duration::ZERO;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.give_up();
        if let Err(error) = self.store.leave(&self.candidate.member.start, ASK_WITHIN) {
            tracing::warn!(%error, "this member is still listed; it is gone in 15 seconds");
        }
    }

    /// Sends one request to the store. Returns the delay before the next one.
    fn step(&mut self) -> Duration {
        match self.term {
            Some(term) => self.renew(term),
            None => self.claim(),
        }
    }

    /// Writes this member's row, unless it was written a moment ago. Returns whether it shall own nothing: it is
    /// draining, and another member can own the machines.
    fn announce(&mut self) -> bool {
        let now = self.trust.clock.elapsed();
        if self.announced.is_none_or(|last| now >= last + ANNOUNCE_EVERY) {
            self.announced = Some(now);
            self.must_wait = self.announce_now();
        }
        self.must_wait
    }

    fn announce_now(&self) -> bool {
        let member = &self.candidate.member;
        match self.store.announce(member, LOOK_WITHIN) {
            Ok(MemberStanding { draining, has_successor, has_namesake }) => {
                if has_namesake {
                    tracing::error!(member.name, "another process uses this name: set --member");
                }
                draining && has_successor
            }
            Err(error) => {
                tracing::warn!(%error, "this member was not announced");
                false
            }
        }
    }

    /// Why this member must not lead, by what it saw of the store.
    fn must_not_lead(&mut self) -> Option<String> {
        let found = self.losses.find(&self.store, self.trust.clock.elapsed(), LEAD_TTL / 3);
        found.unwrap_or_else(|error| Some(error.to_string()))
    }

    fn claim(&mut self) -> Duration {
        let later = LOOK_EVERY + Duration::from_millis(random_bits() % LOOK_JITTER_MS);
        let must_wait = self.announce();
        match self.compare_clocks(LEAD_TTL / 3) {
            Ok((owner, _)) if must_wait => {
                self.stand_by(owner, DRAINING.into());
                return later;
            }
            Ok((owner, Some(gap))) => {
                self.stand_by(owner, format!("it takes no machine: {gap}"));
                return later;
            }
            // A lead of its own that was not renewed in time is taken again.
            Ok((Some(url), None)) if url != self.candidate.member.url => {
                let are_old = self.losses.are_old(self.trust.clock.elapsed());
                match are_old.then(|| self.must_not_lead()).flatten() {
                    None => self.stand_by(Some(url), "another server leads".into()),
                    Some(reason) => self.stand_by(None, reason),
                }
                return later;
            }
            Ok((_, None)) => {}
            Err(error) => {
                self.stand_by(None, error.to_string());
                return later;
            }
        }
        if let Some(reason) = self.must_not_lead() {
            self.stand_by(None, reason);
            return later;
        }
        let asked = self.trust.clock.elapsed();
        let Announcement { start, url, .. } = &self.candidate.member;
        match self.store.claim(start, url, LEAD_TTL) {
            Ok(Claim::Won { term }) => {
                self.term = Some(term);
                self.trust.is_ending.store(false, Ordering::SeqCst);
                self.trust.extend(asked, LEAD_TTL);
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

    /// Compares this server's clock with the store's. Returns the URL of the leader, and the error
    /// text if the clocks differ too much. A server that already leads stays the leader.
    fn compare_clocks(
        &self,
        within: Duration,
    ) -> Result<(Option<String>, Option<String>), JournalError> {
        // In this order: a pause in between then counts as a part of the request's duration.
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
            // Whole seconds, so that it is logged again only when it has changed.
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
                self.trust.extend(asked, LEAD_TTL);
                if self.trust.clock.elapsed().saturating_sub(asked) > LOOK_WITHIN {
                    return self.until_renewal(asked);
                }
                if let Err(error) = self.compare_clocks(LOOK_WITHIN) {
                    tracing::warn!(%error, "the clocks were not compared");
                }
                match self.losses.find(&self.store, self.trust.clock.elapsed(), LOOK_WITHIN) {
                    Ok(None) => {}
                    Ok(Some(lost)) => {
                        self.step_down(lost);
                        self.release(term);
                        return LOOK_EVERY;
                    }
                    Err(error) => tracing::warn!(%error, "the journals were not compared"),
                }
                if self.announce() {
                    self.hand_over(term);
                    return LOOK_EVERY;
                }
                return self.until_renewal(asked);
            }
            Ok(false) => self.step_down("another server leads".into()),
            Err(error @ JournalError::Unfit(_)) => {
                self.step_down(error.to_string());
                self.release(term);
            }
            Err(error) if self.trust.holds() => {
                tracing::warn!(%error, "leadership was not renewed");
            }
            Err(error) => self.step_down(error.to_string()),
        }
        RETRY
    }

    /// Finishes the requests in progress, takes no more, and lets another member lead. What does not end in time is
    /// answered by its machine: it has no lease any more.
    fn hand_over(&mut self, term: u64) {
        tracing::info!(term, "this server hands over");
        self.trust.is_ending.store(true, Ordering::SeqCst);
        let begun = self.trust.clock.elapsed();
        while self.trust.in_progress.load(Ordering::SeqCst) > 0
            && self.trust.clock.elapsed() < begun + HAND_OVER_WITHIN
        {
            std::thread::sleep(HAND_OVER_STEP);
        }
        self.step_down(DRAINING.into());
        self.release(term);
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
        let (leader, why) = (owner.clone().unwrap_or_default(), reason.clone());
        let role = Role::Standby { owner, reason };
        if *self.show.borrow() != role {
            tracing::warn!(leader, reason = why, "this server does not lead");
            self.show.send_replace(role);
        }
    }

    fn release(&self, term: u64) {
        if let Err(error) = self.store.release(term, LEAD_TTL) {
            tracing::warn!(%error, "leadership was not given up; its lease will expire");
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
    fn work_after_a_renewal_does_not_delay_the_next_one() {
        for took in [Duration::ZERO, LOOK_WITHIN, LEAD_TTL / 3, LEAD_TTL] {
            let next = took + until_renewal(took);
            assert_eq!(next, took.max(LEAD_TTL / 3), "after {took:?}");
        }
        // A slow renewal; or one that is just not slow, with a clock read, a comparison and an announcement that all
        // take the longest allowed time. A quarter of the time of trust is left for the next renewal.
        for slow in [LEAD_TTL / 3, 4 * LOOK_WITHIN] {
            assert!(
                slow + until_renewal(slow) < LEAD_TTL / 2,
                "it is still believed after {slow:?}"
            );
        }
    }

    #[test]
    fn the_duration_of_a_request_is_not_counted_as_clock_difference() {
        let slow = Duration::from_secs(9);
        assert_eq!(ahead_ms(1_000, 1_000, Duration::ZERO), 0);
        assert_eq!(ahead_ms(1_000, 10_000, slow), 0, "it was read at the end");
        assert_eq!(ahead_ms(1_000, 1_000, slow), 0, "it was read at once");
        assert_eq!(ahead_ms(1_000, 13_000, slow), 3_000);
        assert_eq!(ahead_ms(10_000, 7_000, slow), -3_000);
        assert_eq!(ahead_ms(i64::MIN, i64::MAX, Duration::MAX), 0);
    }
}
