//! Compares a hundred thousand operations in random order with one sorted replay.

mod timeline_model;

use fefo::Timeline;
use fefo::timeline::ConsumptionId;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use timeline_model::{Recorded, interesting, replay};

const OPERATIONS: usize = 100_000;
const YEAR: i64 = 365 * 86_400_000;
const QUARTER: i64 = YEAR / 4;

/// Operations over a year in random order of time. Nearly all credits are consumed.
fn shuffled_year(runner: &mut TestRunner) -> Vec<Recorded> {
    let lifetime = prop_oneof![9 => (0..QUARTER).prop_map(Some), 1 => Just(None)];
    let pack = (1..=1_000_u64, 0..YEAR, lifetime).prop_map(|(amount, at, lifetime)| {
        Recorded::Pack { amount, at, expires_at: lifetime.map(|lifetime| at + lifetime) }
    });
    let consumption =
        (1..=900_u64, 0..YEAR).prop_map(|(amount, at)| Recorded::Consumption { amount, at });
    let operation = prop_oneof![pack, consumption];
    let draw = || operation.new_tree(runner).expect("nothing is filtered").current();
    std::iter::repeat_with(draw).take(OPERATIONS).collect()
}

#[test]
fn a_hundred_thousand_shuffled_operations_equal_their_sorted_replay() {
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let history = shuffled_year(&mut runner);
    let mut timeline = Timeline::new();
    let mut ids: Vec<ConsumptionId> = Vec::new();
    for (index, &recorded) in history.iter().enumerate() {
        match recorded {
            Recorded::Pack { amount, at, expires_at } => {
                timeline.add_credits(amount, at, expires_at).expect("the pack is valid");
            }
            Recorded::Consumption { amount, at } => {
                let consumed = timeline.consume_credits(amount, at);
                ids.push(consumed.expect("the consumption is valid").id);
            }
        }
        if (index + 1) % 25_000 == 0 {
            assert_equals_replay(&timeline, &ids, &history[..=index]);
        }
    }
}

fn assert_equals_replay(timeline: &Timeline, ids: &[ConsumptionId], history: &[Recorded]) {
    let mut instants = interesting(&history[history.len() - 150..]);
    // Also evenly spaced instants, from before the first operation to after the last expiry.
    instants.extend((-10..=650).map(|step| step * (YEAR / 500)));
    let expected = replay(history, &instants);
    assert!(
        expected.shortfalls.iter().any(|&short| short > 0),
        "some consumptions have a shortfall"
    );
    let balances: Vec<u128> = instants.iter().map(|&t| timeline.balance(t)).collect();
    assert_eq!(balances, expected.balances);
    let shortfalls: Option<Vec<u64>> = ids.iter().map(|&id| timeline.shortfall(id)).collect();
    assert_eq!(shortfalls, Some(expected.shortfalls));
}
