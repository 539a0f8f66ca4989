//! When a member claims and renews the lead, for how long, and what it looks at in between.

use std::time::Duration;

use bursar_journal::postgres::LeadRow;

/// How long the store keeps a leader that does not renew, if it answers quickly.
pub(super) const LEAD_TTL: Duration = Duration::from_secs(3);
/// The same at most, if it answers slowly.
const MAX_LEAD_TTL: Duration = Duration::from_secs(10);
/// How often the slowest of the recent answers must fit into a lease.
const ANSWERS_PER_LEASE: u32 = 8;
/// For how long a member that was just started leaves the claim of a lead that was not given up to others, which
/// remember more: they compare what they saw every second, and connect within five.
const START_CLAIM_DELAY: Duration = Duration::from_secs(7);
/// How long a leader waits for the store's clock, its heads, and its announcement. Bounded so that
/// it does not lose leadership over them. After a renewal that took longer it does one of them, in turn.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_millis(350);

/// What a leader looks at after a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaderCheck {
    Clocks,
    Losses,
    Members,
}

const LEADER_CHECKS: [LeaderCheck; 3] =
    [LeaderCheck::Clocks, LeaderCheck::Losses, LeaderCheck::Members];

/// What to look at after a renewal that took so long, and how long each may take: all, or one in turn while a
/// renewal like this one still comes in time after it.
pub(super) fn checks_after(
    lease: Duration,
    took: Duration,
    turn: usize,
) -> (&'static [LeaderCheck], Duration) {
    if took <= CHECK_TIMEOUT {
        return (&LEADER_CHECKS, CHECK_TIMEOUT);
    }
    let spare = (lease * 2 / 3).saturating_sub(took * 2).min(CHECK_TIMEOUT);
    let turn = turn % LEADER_CHECKS.len();
    let looks = if spare.is_zero() { &[][..] } else { &LEADER_CHECKS[turn..=turn] };
    (looks, spare)
}

/// The delay before the next renewal: it is sent a third of the lease after the last one was sent,
/// whatever happened meanwhile.
pub(super) fn until_renewal(lease: Duration, since_asked: Duration) -> Duration {
    (lease / 3).saturating_sub(since_asked)
}

/// How long recent claims and renewals took, also those without an answer in time.
#[derive(Default)]
pub(super) struct Pace {
    recent: [Duration; 8],
    next: usize,
}

impl Pace {
    pub(super) fn note(&mut self, took: Duration) {
        self.recent[self.next] = took;
        self.next = (self.next + 1) % self.recent.len();
    }

    /// The lease to ask for: a database with slow commits has a leader as well.
    pub(super) fn lease(&self) -> Duration {
        let slowest = self.recent.iter().max().copied().unwrap_or_default();
        (slowest * ANSWERS_PER_LEASE).clamp(LEAD_TTL, MAX_LEAD_TTL)
    }
}

/// The row of the lead, and since when this member sees it unchanged, by its own clock. No clock of a database is
/// relied on: it may be set, and that of a promoted standby may differ.
#[derive(Default)]
pub(super) struct SeenLead {
    row: Option<LeadRow>,
    since: Duration,
    first: Option<Duration>,
}

impl SeenLead {
    /// Notes the row as it was read by `now`.
    pub(super) fn note(&mut self, row: LeadRow, now: Duration) {
        self.first.get_or_insert(now);
        if self.row.as_ref() != Some(&row) {
            self.row = Some(row);
            self.since = now;
        }
    }

    /// The row, if its leader is this start, gave it up, or has not renewed it for a whole lease.
    pub(super) fn claimable(
        &self,
        start: &str,
        now: Duration,
        has_others: bool,
    ) -> Option<&LeadRow> {
        let row = self.row.as_ref()?;
        // Others that remember more of the store compare it meanwhile.
        let is_fresh = has_others && now < self.first? + START_CLAIM_DELAY;
        let is_over = now >= self.since + row.lease && !is_fresh;
        (row.is_free || row.holder == start || is_over).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_after_a_renewal_does_not_delay_the_next_one() {
        for took in [Duration::ZERO, CHECK_TIMEOUT, LEAD_TTL / 3, LEAD_TTL] {
            let next = took + until_renewal(LEAD_TTL, took);
            assert_eq!(next, took.max(LEAD_TTL / 3), "after {took:?}");
        }
        // A slow renewal; or one that is just not slow, with a clock read, a comparison and an announcement that all
        // take the longest allowed time. A quarter of the time of trust is left for the next renewal.
        for slow in [LEAD_TTL / 3, 4 * CHECK_TIMEOUT] {
            assert!(
                slow + until_renewal(LEAD_TTL, slow) < LEAD_TTL / 2,
                "the lead is still valid after {slow:?}"
            );
        }
    }

    #[test]
    fn everything_is_looked_at_also_when_renewals_are_slow_and_none_comes_too_late_over_it() {
        assert_eq!(checks_after(LEAD_TTL, CHECK_TIMEOUT, 7), (&LEADER_CHECKS[..], CHECK_TIMEOUT));
        for took in [400, 600, 900].map(Duration::from_millis) {
            let looks: Vec<LeaderCheck> =
                (0..3).flat_map(|turn| checks_after(LEAD_TTL, took, turn).0).copied().collect();
            assert_eq!(looks, LEADER_CHECKS, "after {took:?}");
            let (_, within) = checks_after(LEAD_TTL, took, 0);
            let next = (took + within).max(LEAD_TTL / 3) + took;
            assert!(next <= LEAD_TTL * 2 / 3, "after {took:?}");
        }
        assert_eq!(checks_after(LEAD_TTL, LEAD_TTL / 3, 0).0, &[]);
    }

    #[test]
    fn a_lead_is_claimed_when_it_was_given_up_or_not_renewed_for_a_lease_of_the_own_clock() {
        let row = |term, until: &str| LeadRow {
            term,
            holder: "other".into(),
            lease: LEAD_TTL,
            until: until.into(),
            is_free: false,
        };
        let at = Duration::from_millis;
        let mut seen = SeenLead::default();
        assert_eq!(seen.claimable("me", at(0), false), None, "nothing was read");
        seen.note(row(1, "10"), at(1_000));
        seen.note(row(1, "10"), at(3_900));
        assert_eq!(seen.claimable("me", at(3_999), false), None);
        assert!(
            seen.claimable("me", at(4_000), false).is_some(),
            "a lease after it was seen first"
        );
        seen.note(row(1, "11"), at(4_100));
        assert_eq!(seen.claimable("me", at(7_000), false), None, "it was renewed");
        seen.note(row(1, "8"), at(7_050));
        assert_eq!(seen.claimable("me", at(9_000), false), None, "a clock that was set is no time");
        seen.note(LeadRow { is_free: true, ..row(1, "-Infinity") }, at(9_000));
        assert!(seen.claimable("me", at(9_000), true).is_some(), "it was given up");
    }

    #[test]
    fn a_member_that_was_just_started_leaves_a_lead_to_those_that_remember_more() {
        let (holder, until) = ("other".to_owned(), "10".to_owned());
        let row = LeadRow { term: 1, holder, lease: LEAD_TTL, until, is_free: false };
        let mut seen = SeenLead::default();
        seen.note(row, Duration::ZERO);
        assert!(seen.claimable("other", Duration::ZERO, true).is_some(), "it is its own");
        assert!(seen.claimable("me", LEAD_TTL, false).is_some(), "it is alone");
        assert_eq!(seen.claimable("me", LEAD_TTL, true), None);
        assert!(seen.claimable("me", START_CLAIM_DELAY, true).is_some());
    }

    #[test]
    fn the_lease_follows_the_slowest_recent_answer_and_a_statement_gets_a_third_of_it() {
        let mut pace = Pace::default();
        assert_eq!(pace.lease(), LEAD_TTL);
        // Commits take two seconds: every attempt is given more time until one succeeds.
        let commit = Duration::from_secs(2);
        let mut attempts = 0;
        while pace.lease() / 3 < commit {
            pace.note(pace.lease() / 3);
            attempts += 1;
        }
        assert_eq!(attempts, 1);
        pace.note(commit);
        let lease = pace.lease();
        assert_eq!(lease, MAX_LEAD_TTL);
        assert!(lease / 3 + commit < lease * 2 / 3, "a renewal comes before the trust ends");
        for _ in 0..8 {
            pace.note(Duration::from_millis(5));
        }
        assert_eq!(pace.lease(), LEAD_TTL);
    }
}
