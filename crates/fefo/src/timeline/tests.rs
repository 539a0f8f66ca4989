//! Tests of the timeline's parts. Cells are very short here, so that short histories have many of
//! them. The integration tests run the same comparisons at the real sizes.

#[path = "../../tests/timeline_model/random.rs"]
mod random;
#[path = "../../tests/timeline_model/mod.rs"]
mod timeline_model;

use proptest::prelude::*;
use random::histories;
use timeline_model::{Recorded, interesting, replay};

use super::cascade::Cascade;
use super::lengths::Lengths;
use super::peaks::{NEVER, Peaks};
use super::{ConsumptionId, MAX_SUM, Timeline, TimelineError, effort};

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

fn assert_every_prefix_equals_its_replay(history: &[Recorded]) {
    let mut timeline = Timeline::new();
    let mut ids = Vec::new();
    for (index, &recorded) in history.iter().enumerate() {
        ids.extend(record(&mut timeline, recorded));
        assert_equals_replay(&timeline, &ids, &history[..=index]);
    }
}

/// Small packs with as many expiries, and operations at random instants that consume all of them or
/// free them.
fn alternating_histories() -> impl Strategy<Value = Vec<Recorded>> {
    let small_pack = (0..40_i64, 0..40_i64, 1..3_u64)
        .prop_map(|(at, life, amount)| Recorded::Pack { amount, at, expires_at: Some(at + life) });
    let swing =
        (0..40_i64, 0..4_i64, 10..60_u64, any::<bool>()).prop_map(|(at, life, amount, takes)| {
            if takes {
                Recorded::Consumption { amount, at }
            } else {
                Recorded::Pack { amount, at, expires_at: Some(at + life) }
            }
        });
    (prop::collection::vec(small_pack, 1..60), prop::collection::vec(swing, 1..30))
        .prop_map(|(packs, swings)| packs.into_iter().chain(swings).collect())
}

/// The steps of work per operation that consumes or frees `packs` small packs.
fn effort_per_swing(packs: u32) -> usize {
    const SWINGS: usize = 64;
    let mut timeline = Timeline::new();
    for expiry in 0..i64::from(packs) {
        timeline.add_credits(1, 0, Some(expiry + 2)).expect("the pack is valid");
    }
    effort::take();
    for _ in 0..SWINGS / 2 {
        timeline.consume_credits(u64::from(packs), 1).expect("the consumption is valid");
        assert_eq!(timeline.balance(2), 0);
        timeline.add_credits(u64::from(packs), 0, Some(1)).expect("the pack is valid");
        assert_eq!(timeline.balance(2), u128::from(packs));
    }
    effort::take() / SWINGS
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn many_cells_equal_the_sorted_replay_after_every_operation(history in histories(60)) {
        assert_every_prefix_equals_its_replay(&history);
    }

    #[test]
    fn a_refused_attempt_leaves_many_cells_as_they_were(
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
    fn consuming_and_freeing_small_packs_equals_the_sorted_replay(history in alternating_histories()) {
        assert_every_prefix_equals_its_replay(&history);
    }

    #[test]
    fn an_amount_fills_its_basin_and_those_after_it(
        rooms in prop::collection::vec(0..20_u64, 0..40),
        pours in prop::collection::vec((0..40_usize, 0..40_u64, 0..6_u64), 0..60),
    ) {
        let (mut cascade, mut expected) = (Cascade::with_capacity(0), Vec::new());
        let mut rooms = rooms.into_iter();
        for (basin, mut amount, more) in pours {
            for room in rooms.by_ref().take(more as usize) {
                cascade.push(room);
                expected.push(room);
            }
            let basin = basin.min(expected.len());
            let over = cascade.pour(basin, amount);
            for room in &mut expected[basin..] {
                let poured = amount.min(*room);
                *room -= poured;
                amount -= poured;
            }
            prop_assert_eq!(over, amount);
            prop_assert_eq!(cascade.rooms().collect::<Vec<_>>(), expected.clone());
        }
    }

    #[test]
    fn the_maximum_is_correct_after_every_raise(
        heights in prop::collection::vec(-9..=9_i128, 0..20),
        raises in prop::collection::vec((0..20_usize, 0..=9_i128), 0..20),
    ) {
        let mut heights = heights;
        let highest = |heights: &[i128]| heights.iter().copied().max().unwrap_or(NEVER);
        let mut peaks = Peaks::new(heights.iter().copied());
        prop_assert_eq!(peaks.highest(), highest(&heights));
        for (index, by) in raises {
            if index < heights.len() {
                let before = highest(&heights);
                heights[..=index].iter_mut().for_each(|height| *height += by);
                prop_assert_eq!(peaks.raise_up_to(index, by), highest(&heights) - before);
                prop_assert_eq!(peaks.highest(), highest(&heights));
            }
        }
    }

    #[test]
    fn a_length_is_the_sum_of_packs_inside_its_interval(
        cells in 1..90_usize,
        first in prop::collection::vec((0..90_usize, 0..90_usize, 1..9_u64), 0..40),
        later in prop::collection::vec((0..90_usize, 0..90_usize, 1..9_u64), 0..40),
    ) {
        let fits = |&(start, expiry, _): &(usize, usize, u64)| start <= expiry && expiry < cells;
        let mut amounts: Vec<_> = first.into_iter().filter(fits).collect();
        let mut between = Lengths::new(cells, amounts.iter().copied());
        for (start, expiry, amount) in later.into_iter().filter(fits) {
            between.pass_over(start, expiry, i128::from(amount));
            amounts.push((start, expiry, amount));
        }
        for after in 0..cells {
            for before in after..cells {
                let inside = amounts.iter().filter(|lot| lot.0 > after && lot.1 < before);
                let expected: u64 = inside.map(|lot| lot.2).sum();
                prop_assert_eq!(between.from(after).to(before), i128::from(expected));
            }
        }
    }
}

/// Every operation changes what expires at every expiry. A replay would take sixteen times as much
/// on a timeline sixteen times as long. √(n log n) is 4.7 times as much from 1 000 to 16 000.
#[test]
fn the_work_of_an_operation_grows_with_the_root_of_the_history() {
    let sizes = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000];
    let efforts = sizes.map(effort_per_swing);
    for (size, steps) in sizes.into_iter().zip(efforts) {
        let bound = 18 * (size * size.ilog2()).isqrt() as usize;
        assert!(steps < bound, "{steps} steps at {size}, not below {bound}");
    }
    for (short, long) in efforts.into_iter().zip(&efforts[4..]) {
        assert!(*long < 5 * short, "{short} steps became {long}");
    }
}

#[test]
fn sums_out_of_range_are_refused() {
    let mut timeline = Timeline { recorded: MAX_SUM - 5, ..Timeline::new() };
    assert_eq!(timeline.add_credits(6, 0, None), Err(TimelineError::Overflow));
    assert_eq!(timeline.consume_credits(6, 0), Err(TimelineError::Overflow));
    assert_eq!(timeline.try_consume(6, 0), Err(TimelineError::Overflow));
    assert!(timeline.is_empty());
    timeline.add_credits(5, 0, None).expect("exactly the largest sum");
    assert_eq!(timeline.consume_credits(1, 0), Err(TimelineError::Overflow));
    assert_eq!(timeline.balance(0), 5);
}
