//! The parts of the timeline, with segments and blocks so small that short histories reach every
//! path; the integration tests run the same comparisons at the real sizes.

#[path = "../../tests/timeline_model/random.rs"]
mod random;
#[path = "../../tests/timeline_model/mod.rs"]
mod timeline_model;

use proptest::prelude::*;
use random::histories;
use timeline_model::{Recorded, interesting, replay};

use super::{ConsumptionId, LARGEST_SUM, Timeline, TimelineError};

fn record(timeline: &mut Timeline, recorded: Recorded) -> Option<ConsumptionId> {
    match recorded {
        Recorded::Pack { amount, at, expires_at } => {
            timeline.add_credits(amount, at, expires_at).expect("the pack is valid");
            None
        }
        Recorded::Consumption { amount, at } => {
            let consumed = timeline.consume_credits(amount, at);
            Some(consumed.expect("the consumption is valid").id)
        }
    }
}

fn assert_equals_replay(timeline: &Timeline, ids: &[ConsumptionId], history: &[Recorded]) {
    let instants = interesting(history);
    let expected = replay(history, &instants);
    let balances: Vec<u128> = instants.iter().map(|&t| timeline.balance(t)).collect();
    assert_eq!(balances, expected.balances, "balances at {instants:?}");
    let shortfalls: Option<Vec<u64>> = ids.iter().map(|&id| timeline.shortfall(id)).collect();
    assert_eq!(shortfalls, Some(expected.shortfalls));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn deep_trees_equal_the_sorted_replay_after_every_operation(history in histories(60)) {
        let mut timeline = Timeline::new();
        let mut ids = Vec::new();
        for (index, &recorded) in history.iter().enumerate() {
            ids.extend(record(&mut timeline, recorded));
            assert_equals_replay(&timeline, &ids, &history[..=index]);
        }
    }

    #[test]
    fn a_refused_attempt_leaves_deep_trees_as_they_were(
        history in histories(40),
        attempts in prop::collection::vec((1..20_u64, 0..60_i64), 1..20),
    ) {
        let mut timeline = Timeline::new();
        let mut ids = Vec::new();
        for &recorded in &history {
            ids.extend(record(&mut timeline, recorded));
        }
        let mut accepted = history;
        for (amount, at) in attempts {
            if let Ok(id) = timeline.try_consume(amount, at) {
                ids.push(id);
                accepted.push(Recorded::Consumption { amount, at });
            }
            assert_equals_replay(&timeline, &ids, &accepted);
        }
    }
}

#[test]
fn sums_out_of_range_are_refused() {
    let mut timeline = Timeline { recorded: LARGEST_SUM - 5, ..Timeline::new() };
    assert_eq!(timeline.add_credits(6, 0, None), Err(TimelineError::Overflow));
    assert_eq!(timeline.consume_credits(6, 0), Err(TimelineError::Overflow));
    assert_eq!(timeline.try_consume(6, 0), Err(TimelineError::Overflow));
    assert!(timeline.is_empty());
    timeline.add_credits(5, 0, None).expect("exactly the largest sum");
    assert_eq!(timeline.consume_credits(1, 0), Err(TimelineError::Overflow));
    assert_eq!(timeline.balance(0), 5);
}
