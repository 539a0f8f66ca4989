//! The rules of the timeline, one example each.

use fefo::Timeline;
use fefo::timeline::{ConsumptionId, TimelineError, TimelinePackId};

fn add(timeline: &mut Timeline, amount: u64, at: i64, expires_at: Option<i64>) -> TimelinePackId {
    timeline.add_credits(amount, at, expires_at).expect("the pack is valid")
}

fn consume(timeline: &mut Timeline, amount: u64, at: i64) -> ConsumptionId {
    timeline.consume_credits(amount, at).expect("the consumption is valid").id
}

fn draws(timeline: &Timeline, id: ConsumptionId) -> Vec<(TimelinePackId, u64)> {
    let draws = timeline.draws(id).expect("the consumption is recorded");
    draws.into_iter().map(|draw| (draw.pack, draw.amount)).collect()
}

#[test]
fn a_pack_is_spendable_from_its_first_to_its_last_instant() {
    let mut timeline = Timeline::new();
    add(&mut timeline, 7, 100, Some(200));
    let balances = [99, 100, 200, 201].map(|t| timeline.balance(t));
    assert_eq!(balances, [0, 7, 7, 0]);
    assert_eq!(
        [99, 100, 200, 201].map(|t| timeline.try_consume(1, t).is_ok()),
        [false, true, true, false]
    );
}

#[test]
fn the_pack_that_expires_first_is_spent_first_however_late_it_arrives() {
    let mut timeline = Timeline::new();
    let long = add(&mut timeline, 10, 0, None);
    let spent = consume(&mut timeline, 4, 50);
    assert_eq!(draws(&timeline, spent), [(long, 4)]);
    let short = add(&mut timeline, 3, 10, Some(50));
    assert_eq!(draws(&timeline, spent), [(short, 3), (long, 1)]);
    assert_eq!(timeline.balance(51), 9);
}

#[test]
fn packs_of_one_expiry_are_spent_by_start_then_by_arrival() {
    let mut timeline = Timeline::new();
    let third = add(&mut timeline, 1, 5, Some(9));
    let first = add(&mut timeline, 1, 4, Some(9));
    let fourth = add(&mut timeline, 1, 5, Some(9));
    let second = add(&mut timeline, 1, 4, Some(9));
    let spent = consume(&mut timeline, 4, 6);
    let order: Vec<TimelinePackId> =
        draws(&timeline, spent).into_iter().map(|draw| draw.0).collect();
    assert_eq!(order, [first, second, third, fourth]);
}

#[test]
fn a_late_consumption_moves_the_later_ones_to_other_packs() {
    let mut timeline = Timeline::new();
    let early = add(&mut timeline, 5, 0, Some(30));
    let lasting = add(&mut timeline, 5, 0, Some(90));
    let later = consume(&mut timeline, 4, 20);
    assert_eq!(draws(&timeline, later), [(early, 4)]);
    let late = consume(&mut timeline, 3, 10);
    assert_eq!(draws(&timeline, late), [(early, 3)]);
    assert_eq!(draws(&timeline, later), [(early, 2), (lasting, 2)]);
    assert_eq!([9, 10, 20, 31].map(|t| timeline.balance(t)), [10, 7, 3, 3]);
}

#[test]
fn a_late_consumption_of_expired_credits_causes_no_shortfall() {
    let mut timeline = Timeline::new();
    add(&mut timeline, 5, 0, Some(30));
    add(&mut timeline, 5, 40, Some(90));
    let later = timeline.try_consume(5, 50).expect("the second pack covers it");
    assert!(timeline.try_consume(5, 20).is_ok());
    assert_eq!(timeline.shortfall(later), Some(0));
    assert_eq!(timeline.total_shortfall(), 0);
}

#[test]
fn at_one_instant_packs_come_before_consumptions_and_those_in_order_of_arrival() {
    let mut timeline = Timeline::new();
    let first = timeline.consume_credits(6, 10).expect("valid");
    assert_eq!(first.shortfall, 6);
    let second = timeline.consume_credits(6, 10).expect("valid");
    add(&mut timeline, 8, 10, Some(10));
    assert_eq!(timeline.shortfall(first.id), Some(0));
    assert_eq!(timeline.shortfall(second.id), Some(4));
    assert_eq!(timeline.total_shortfall(), 4);
    assert_eq!(timeline.balance(10), 0);
}

#[test]
fn all_or_nothing_reports_the_missing_amount_and_new_shortfalls() {
    let mut timeline = Timeline::new();
    add(&mut timeline, 10, 0, Some(100));
    timeline.try_consume(8, 50).expect("ten are there");
    let insufficient = TimelineError::Insufficient { available: 2 };
    assert_eq!(timeline.try_consume(3, 60), Err(insufficient));
    assert_eq!(timeline.balance(20), 10);
    let committed = TimelineError::Committed { shortfall: 1 };
    assert_eq!(timeline.try_consume(3, 20), Err(committed));
    assert_eq!(timeline.len(), 2);
    assert!(timeline.try_consume(2, 20).is_ok());
    assert_eq!(timeline.total_shortfall(), 0);
}

#[test]
fn a_consumption_that_was_short_before_does_not_block_others() {
    let mut timeline = Timeline::new();
    add(&mut timeline, 10, 0, Some(10));
    add(&mut timeline, 10, 20, Some(30));
    let short = consume(&mut timeline, 15, 25);
    assert!(timeline.try_consume(10, 5).is_ok(), "no other consumption could use those");
    assert_eq!(timeline.shortfall(short), Some(5));
}

#[test]
fn invalid_operations_are_refused_and_change_nothing() {
    let mut timeline = Timeline::new();
    assert_eq!(timeline.add_credits(0, 5, None), Err(TimelineError::ZeroAmount));
    assert_eq!(timeline.consume_credits(0, 5), Err(TimelineError::ZeroAmount));
    assert_eq!(timeline.try_consume(0, 5), Err(TimelineError::ZeroAmount));
    let backwards = TimelineError::ExpiresBeforeStart { at: 5, expires_at: 4 };
    assert_eq!(timeline.add_credits(1, 5, Some(4)), Err(backwards));
    assert!(timeline.is_empty());
    assert!(backwards.to_string().contains("use an expiry of 5 or later"));
}

#[test]
fn ids_of_another_timeline_are_unknown() {
    let mut other = Timeline::new();
    let foreign = consume(&mut other, 1, 0);
    let timeline = Timeline::new();
    assert_eq!(timeline.shortfall(foreign), None);
    assert_eq!(timeline.draws(foreign), None);
}

#[test]
fn the_ends_of_time_and_the_largest_amounts_are_exact() {
    let mut timeline = Timeline::new();
    for _ in 0..200 {
        add(&mut timeline, u64::MAX, i64::MIN, None);
        add(&mut timeline, u64::MAX, i64::MAX, Some(i64::MAX));
        add(&mut timeline, u64::MAX, i64::MIN, Some(i64::MIN));
    }
    let largest = u128::from(u64::MAX);
    let balances = [i64::MIN, i64::MIN + 1, 0, i64::MAX - 1, i64::MAX].map(|t| timeline.balance(t));
    assert_eq!(balances, [400, 200, 200, 200, 400].map(|packs| packs * largest));
    for _ in 0..201 {
        consume(&mut timeline, u64::MAX, 0);
    }
    assert_eq!(timeline.balance(i64::MAX - 1), 0);
    assert_eq!(timeline.balance(i64::MAX), 200 * largest);
    assert_eq!(timeline.total_shortfall(), largest);
}
