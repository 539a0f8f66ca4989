//! Compares the timeline with a plain replay, on histories in random order.

#[path = "timeline_model/random.rs"]
mod random;
mod timeline_model;

use fefo::Timeline;
use fefo::timeline::{ConsumptionId, TimelineDraw, TimelineError, TimelinePackId};
use proptest::prelude::*;
use random::histories;
use timeline_model::{Recorded, interesting, replay};

/// A timeline and the history that the model replays.
#[derive(Default)]
struct Pair {
    timeline: Timeline,
    history: Vec<Recorded>,
    packs: Vec<TimelinePackId>,
    consumptions: Vec<ConsumptionId>,
}

impl Pair {
    fn record(&mut self, recorded: Recorded) {
        self.history.push(recorded);
        match recorded {
            Recorded::Pack { amount, at, expires_at } => {
                let id = self.timeline.add_credits(amount, at, expires_at);
                self.packs.push(id.expect("the pack is valid"));
            }
            Recorded::Consumption { amount, at } => {
                let consumed = self.timeline.consume_credits(amount, at);
                let consumed = consumed.expect("the consumption is valid");
                self.consumptions.push(consumed.id);
                let expected = replay(&self.history, &[]).shortfalls;
                assert_eq!(Some(&consumed.shortfall), expected.last());
            }
        }
    }

    /// Tries an all-or-nothing consumption on both and compares the results.
    fn try_consume(&mut self, amount: u64, at: i64) {
        let before = replay(&self.history, &[at]);
        let mut with_it = self.history.clone();
        with_it.push(Recorded::Consumption { amount, at });
        let mut after = replay(&with_it, &[]).shortfalls;
        let own = after.pop().expect("the new consumption is the last");
        let lost = after.iter().sum::<u64>() - before.shortfalls.iter().sum::<u64>();
        let verdict = self.timeline.try_consume(amount, at);
        if own > 0 {
            let available = u128::from(amount - own);
            assert_eq!(verdict, Err(TimelineError::Insufficient { available }));
        } else if lost > 0 {
            let shortfall = u128::from(lost);
            assert_eq!(verdict, Err(TimelineError::Committed { shortfall }));
        } else {
            assert_eq!(after, before.shortfalls, "an accepted consumption reduces no other");
            self.consumptions.push(verdict.expect("the model accepts it"));
            self.history = with_it;
        }
    }

    fn check(&self) {
        let instants = interesting(&self.history);
        let expected = replay(&self.history, &instants);
        let balances: Vec<u128> = instants.iter().map(|&t| self.timeline.balance(t)).collect();
        assert_eq!(balances, expected.balances, "balances at {instants:?}");
        let shortfall = |&id| self.timeline.shortfall(id).expect("the consumption is recorded");
        let shortfalls: Vec<u64> = self.consumptions.iter().map(shortfall).collect();
        assert_eq!(shortfalls, expected.shortfalls);
        let total: u128 = expected.shortfalls.iter().map(|&short| u128::from(short)).sum();
        assert_eq!(self.timeline.total_shortfall(), total);
        assert_eq!(self.timeline.len(), self.history.len());
    }

    fn check_draws(&self) {
        let expected = replay(&self.history, &[]).draws;
        for (&id, expected) in self.consumptions.iter().zip(expected) {
            let named = expected
                .iter()
                .map(|&(pack, amount)| TimelineDraw { pack: self.packs[pack], amount });
            assert_eq!(self.timeline.draws(id), Some(named.collect()));
        }
    }
}

/// The total that expires, computed without a replay: the maximum over disjoint intervals of time,
/// each ending at an expiry, of the packs added and expired inside one of them less the
/// consumptions inside.
fn expired_by_intervals(history: &[Recorded]) -> i128 {
    let mut sorted = history.to_vec();
    sorted.sort_by_key(|recorded| match *recorded {
        Recorded::Pack { at, .. } => (at, 0),
        Recorded::Consumption { at, .. } => (at, 1),
    });
    let instant = |recorded: &Recorded| match *recorded {
        Recorded::Pack { at, .. } | Recorded::Consumption { at, .. } => at,
    };
    let mut ends: Vec<i64> = sorted
        .iter()
        .filter_map(|recorded| match *recorded {
            Recorded::Pack { expires_at, .. } => expires_at,
            Recorded::Consumption { .. } => None,
        })
        .collect();
    ends.sort_unstable();
    // The maximum over all intervals that end before each operation.
    let mut best = vec![0_i128; sorted.len() + 1];
    for end in 1..=sorted.len() {
        best[end] = best[end - 1];
        let closes = |expiry: i64| sorted.partition_point(|one| instant(one) <= expiry) == end;
        for &expiry in ends.iter().filter(|&&expiry| closes(expiry)) {
            let mut inside = 0;
            for start in (0..end).rev() {
                inside += match sorted[start] {
                    Recorded::Pack { amount, expires_at: Some(at), .. } if at <= expiry => {
                        i128::from(amount)
                    }
                    Recorded::Pack { .. } => 0,
                    Recorded::Consumption { amount, .. } => -i128::from(amount),
                };
                best[end] = best[end].max(best[start] + inside);
            }
        }
    }
    best[sorted.len()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_arrival_equals_the_sorted_replay(history in histories(400)) {
        let mut pair = Pair::default();
        for recorded in history {
            pair.record(recorded);
        }
        pair.check();
        pair.check_draws();
    }

    #[test]
    fn the_expired_total_is_the_maximum_over_disjoint_intervals(history in histories(40)) {
        let mut pair = Pair::default();
        let (mut added, mut asked) = (0, 0);
        for recorded in &history {
            match *recorded {
                Recorded::Pack { amount, .. } => added += i128::from(amount),
                Recorded::Consumption { amount, .. } => asked += i128::from(amount),
            }
            pair.record(*recorded);
        }
        let short = i128::try_from(pair.timeline.total_shortfall()).expect("small");
        let left = i128::try_from(pair.timeline.balance(i64::MAX)).expect("small");
        prop_assert_eq!(added - (asked - short) - left, expired_by_intervals(&history));
    }

    #[test]
    fn every_prefix_of_a_history_equals_its_replay(history in histories(100)) {
        let mut pair = Pair::default();
        for recorded in history {
            pair.record(recorded);
            pair.check();
        }
    }

    #[test]
    fn all_or_nothing_refuses_exactly_new_shortfalls(history in histories(250)) {
        let mut pair = Pair::default();
        for recorded in history {
            match recorded {
                Recorded::Consumption { amount, at } if amount % 3 != 0 => pair.try_consume(amount, at),
                Recorded::Pack { .. } | Recorded::Consumption { .. } => pair.record(recorded),
            }
        }
        pair.check();
    }
}
