//! The parts of the timeline, with segments and blocks so small that short histories reach every
//! path; the integration tests run the same comparisons at the real sizes.

#[path = "../../tests/timeline_model/random.rs"]
mod random;
#[path = "../../tests/timeline_model/mod.rs"]
mod timeline_model;

use proptest::prelude::*;
use random::histories;
use timeline_model::{Recorded, interesting, replay};

use super::points::{Point, difference, sum};
use super::profile::Profile;
use super::segment::{Operation, Place};
use super::tree::{Edit, Tree};
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

/// What overflows in a walk, step by step.
fn overflow(steps: &[Point]) -> Vec<Point> {
    let mut room = 0;
    let mut spilled = Vec::new();
    for &(instant, step) in steps {
        room -= step;
        if room < 0 {
            spilled.push((instant, -room));
            room = 0;
        }
    }
    spilled
}

fn sparse(longest: usize) -> impl Strategy<Value = Vec<Point>> {
    let points = prop::collection::btree_map(0..80_i64, -9..=9_i128, 0..longest);
    points.prop_map(|points| points.into_iter().filter(|point| point.1 != 0).collect())
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

    #[test]
    fn an_edit_moves_spare_credits_in_one_direction_and_by_its_amount_at_most(
        history in histories(60),
    ) {
        let mut tree = Tree::default();
        let instants = history.iter().map(|recorded| match *recorded {
            Recorded::Pack { at, .. } | Recorded::Consumption { at, .. } => at,
        });
        let end = instants.max().unwrap_or(0);
        for (arrival, recorded) in history.into_iter().enumerate() {
            let (amount, at, expires_at, consumes) = match recorded {
                Recorded::Pack { amount, at, expires_at } => (amount, at, expires_at, false),
                Recorded::Consumption { amount, at } => (amount, at, None, true),
            };
            let place = Place { at, consumes, arrival };
            let expires_at = expires_at.unwrap_or(i64::MAX);
            let edit = Edit::Insert(Operation { place, amount, expires_at });
            let change = tree.edit(&edit, end);
            let direction = if consumes { -1 } else { 1 };
            let moved: Vec<i128> = change.spare.iter().map(|point| point.1 * direction).collect();
            prop_assert!(moved.iter().all(|&amount| amount > 0));
            prop_assert!(moved.iter().sum::<i128>() <= i128::from(amount));
        }
    }

    #[test]
    fn a_profile_reports_exactly_how_its_overflow_changed(
        first in sparse(60),
        changes in prop::collection::vec(sparse(5), 0..30),
    ) {
        let mut profile = Profile::new(&first);
        let mut steps = first;
        for change in changes {
            let before = overflow(&steps);
            steps = sum(&steps, &change);
            let after = overflow(&steps);
            prop_assert_eq!(profile.apply(&change), difference(&after, &before));
            prop_assert_eq!(&profile.steps(), &steps);
            prop_assert_eq!(profile.overflow(), after.clone());
            for instant in -1..=81 {
                let earlier = after.iter().filter(|point| point.0 < instant);
                let expected: i128 = earlier.map(|point| point.1).sum();
                prop_assert_eq!(profile.overflow_before(instant), expected);
            }
        }
    }
}

#[test]
fn trees_stay_balanced_whatever_the_order() {
    let outside_in = |index: i64| if index % 2 == 0 { index } else { 10_000 - index };
    let inside_out = |index: i64| if index % 2 == 0 { index } else { -index };
    let scattered = |index: i64| index * 7_919 % 10_007;
    let orders: [fn(i64) -> i64; 5] =
        [|index| index, |index| -index, outside_in, inside_out, scattered];
    for instant in orders {
        let mut timeline = Timeline::new();
        for index in 0..3_000 {
            timeline.add_credits(1, instant(index), None).expect("the pack is valid");
            assert!(timeline.tree.is_balanced(), "after {index}");
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
