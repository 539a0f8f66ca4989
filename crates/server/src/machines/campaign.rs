//! How a member asks for the lead, keeps it and gives it up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use bursar_engine::{Monotonic, wall_millis};
use bursar_journal::JournalError;
use bursar_journal::postgres::{Announcement, Claim, MemberStanding, PostgresLeader, StoredLead};
use tokio::sync::watch;

use super::leader::{Candidate, DRAINING, MEMBER_REQUEST_TIMEOUT, Role};
use super::losses::Losses;
use super::pace::{
    CHECK_TIMEOUT, LEAD_TTL, LeaderCheck, Pace, SeenLead, checks_after, until_renewal,
};
use super::trust::Trust;
use crate::ids::random_bits;

/// How often a member writes its row.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time between two looks of a standby at the lead, and how much it is varied, so that servers started at
/// the same time do not claim together.
const LEAD_POLL_INTERVAL: Duration = Duration::from_millis(100);
const LEAD_POLL_JITTER_MS: u64 = 100;
/// Why a member does not claim yet.
const WAITING_REASON: &str = "the lease of the last leader may not have ended";
/// The delay after a failed renewal.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long a leader that shall hand over waits for the requests in progress.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(1);
/// How often it looks whether they have ended.
const HAND_OVER_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The largest accepted difference between the clocks of this server and of the store.
const MAX_GAP_MS: i64 = 2_000;

/// The smallest possible distance of the store's clock ahead of ours; negative if it is behind. The
/// store may have read its clock at any time during the request, which was sent at `ours` and took
/// `took`.
fn ahead_ms(ours: i64, theirs: i64, took: Duration) -> i64 {
    let most = theirs.saturating_sub(ours);
    let least = most.saturating_sub(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    if least > 0 { least } else { most.min(0) }
}

pub(super) struct Campaign {
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
    /// Why it must own nothing, if the store may contain what it cannot read.
    too_old: Option<String>,
    /// Whether other members are there, as far as is known.
    has_others: bool,
    losses: Losses,
    seen: SeenLead,
    pace: Pace,
    /// The lease of this term. It only grows: a statement without an answer may still be carried out, and must not
    /// shorten what this server relies on.
    lease: Duration,
    /// What is looked at after the next slow renewal.
    turn: usize,
}

impl Campaign {
    pub(super) fn new(
        store: PostgresLeader,
        candidate: Candidate,
        trust: Arc<Trust>,
        (show, show_gap): (watch::Sender<Role>, watch::Sender<Option<String>>),
        losses: Losses,
    ) -> Campaign {
        Campaign {
            store,
            candidate,
            trust,
            show,
            show_gap,
            term: None,
            announced: None,
            must_wait: false,
            too_old: None,
            has_others: true,
            losses,
            seen: SeenLead::default(),
            pace: Pace::default(),
            lease: LEAD_TTL,
            turn: 0,
        }
    }

    /// Claims and renews until the other side of `looks` is dropped.
    pub(super) fn run(mut self, looks: &Receiver<()>) {
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
        if let Err(error) = self.store.leave(&self.candidate.member.start, MEMBER_REQUEST_TIMEOUT) {
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
    fn announce(&mut self, within: Duration) -> bool {
        let now = self.trust.clock.elapsed();
        if self.announced.is_none_or(|last| now >= last + ANNOUNCE_INTERVAL) {
            self.announced = Some(now);
            self.must_wait = self.announce_now(within);
        }
        self.must_wait
    }

    fn announce_now(&mut self, within: Duration) -> bool {
        let member = &self.candidate.member;
        match self.store.announce(member, within) {
            Ok(MemberStanding { draining, has_successor, has_namesake, too_old }) => {
                self.too_old = too_old;
                if has_namesake {
                    tracing::error!(member.name, "another process uses this name: set --member");
                }
                self.has_others = has_successor;
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
        let later = LEAD_POLL_INTERVAL + Duration::from_millis(random_bits() % LEAD_POLL_JITTER_MS);
        let must_wait = self.announce(CHECK_TIMEOUT);
        if let Some(reason) = self.too_old.clone() {
            self.stand_by(None, reason);
            return later;
        }
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
        let now = self.trust.clock.elapsed();
        let start = self.candidate.member.start.as_str();
        let Some(row) = self.seen.claimable(start, now, self.has_others).cloned() else {
            let are_old = self.losses.are_old(now);
            let reason = are_old.then(|| self.must_not_lead()).flatten();
            self.stand_by(None, reason.unwrap_or_else(|| WAITING_REASON.into()));
            return later;
        };
        if let Some(reason) = self.must_not_lead() {
            self.stand_by(None, reason);
            return later;
        }
        let (asked, lease) = (self.trust.clock.elapsed(), self.pace.lease());
        let Announcement { start, url, .. } = &self.candidate.member;
        let claimed = self.store.claim((start, url), lease, &row);
        self.pace.note(self.trust.clock.elapsed().saturating_sub(asked));
        match claimed {
            Ok(Claim::Won { term }) => {
                self.term = Some(term);
                self.lease = lease;
                self.trust.is_ending.store(false, Ordering::SeqCst);
                self.trust.extend(asked, lease);
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
        &mut self,
        within: Duration,
    ) -> Result<(Option<String>, Option<String>), JournalError> {
        // In this order: a pause in between then counts as a part of the request's duration.
        let (asked, ours) = (self.trust.clock.elapsed(), wall_millis());
        let StoredLead { now_ms: theirs, owner, row } = self.store.look(within)?;
        // By the time of the answer: a leader that renewed asked before.
        self.seen.note(row, self.trust.clock.elapsed());
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
        let (asked, lease) = (self.trust.clock.elapsed(), self.lease.max(self.pace.lease()));
        let renewed = self.store.renew(term, lease);
        let took = self.trust.clock.elapsed().saturating_sub(asked);
        self.pace.note(took);
        match renewed {
            Ok(true) => {
                self.lease = lease;
                self.trust.extend(asked, lease);
                let (looks, within) = checks_after(lease, took, self.turn);
                self.turn = self.turn.wrapping_add(1);
                for look in looks.iter().copied() {
                    if let Some(later) = self.look(look, within, term) {
                        return later;
                    }
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
        RETRY_INTERVAL
    }

    /// Looks at one thing while leading. Returns when to go on if this server leads no more.
    fn look(&mut self, look: LeaderCheck, within: Duration, term: u64) -> Option<Duration> {
        match look {
            LeaderCheck::Clocks => {
                if let Err(error) = self.compare_clocks(within) {
                    tracing::warn!(%error, "the clocks were not compared");
                }
            }
            LeaderCheck::Losses => {
                match self.losses.find(&self.store, self.trust.clock.elapsed(), within) {
                    Ok(None) => {}
                    Ok(Some(lost)) => {
                        self.step_down(lost);
                        self.release(term);
                        return Some(LEAD_POLL_INTERVAL);
                    }
                    Err(error) => tracing::warn!(%error, "the journals were not compared"),
                }
            }
            LeaderCheck::Members => {
                if self.announce(within) {
                    self.hand_over(term);
                    return Some(LEAD_POLL_INTERVAL);
                }
            }
        }
        None
    }

    /// Finishes the requests in progress, takes no more, and lets another member lead. What does not end in time is
    /// answered by its machine: it has no lease any more.
    fn hand_over(&mut self, term: u64) {
        tracing::info!(term, "this server hands over");
        self.trust.is_ending.store(true, Ordering::SeqCst);
        let begun = self.trust.clock.elapsed();
        while self.trust.in_progress.load(Ordering::SeqCst) > 0
            && self.trust.clock.elapsed() < begun + HAND_OVER_TIMEOUT
        {
            std::thread::sleep(HAND_OVER_POLL_INTERVAL);
        }
        self.step_down(DRAINING.into());
        self.release(term);
    }

    fn until_renewal(&self, asked: Duration) -> Duration {
        until_renewal(self.lease, self.trust.clock.elapsed().saturating_sub(asked))
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
        if let Err(error) = self.store.release(term, self.lease) {
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
