//! Compares the pool with a plain list of packs.

use fefo::{AddError, Draw, PackId, Pool};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Add { amount: u64, lives: i64 },
    Consume { amount: u64, partial: bool },
    GiveBack { draw: usize, amount: u64 },
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..20, -1i64..12).prop_map(|(amount, lives)| Step::Add { amount, lives }),
        (0u64..40, any::<bool>()).prop_map(|(amount, partial)| Step::Consume { amount, partial }),
        (0usize..8, 0u64..30).prop_map(|(draw, amount)| Step::GiveBack { draw, amount }),
        (0i64..4).prop_map(Step::Wait),
    ]
}

/// A list of packs that is drawn from unit by unit.
#[derive(Default)]
struct Naive {
    /// Expiry and free units of each pack.
    packs: Vec<(i64, u64)>,
}

impl Naive {
    fn balance(&self, now: i64) -> u128 {
        let valid = self.packs.iter().filter(|(expires_at, _)| *expires_at >= now);
        valid.map(|(_, free)| u128::from(*free)).sum()
    }

    /// Takes one unit from the pack that expires first, the oldest among equals.
    fn take(&mut self, now: i64) -> Option<usize> {
        let order = |pack: &usize| (self.packs[*pack].0, *pack);
        let valid = |pack: &usize| self.packs[*pack].0 >= now && self.packs[*pack].1 > 0;
        let pack = (0..self.packs.len()).filter(valid).min_by_key(order)?;
        self.packs[pack].1 -= 1;
        Some(pack)
    }
}

fn joined(units: &[usize]) -> Vec<(PackId, u64)> {
    let mut lots: Vec<(PackId, u64)> = Vec::new();
    for pack in units {
        let pack = PackId(*pack as u64);
        match lots.last_mut() {
            Some((last, amount)) if *last == pack => *amount += 1,
            _ => lots.push((pack, 1)),
        }
    }
    lots
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_pool_agrees_with_a_plain_list_of_packs(steps in prop::collection::vec(step(), 1..60)) {
        let mut pool = Pool::new();
        let mut naive = Naive::default();
        let mut draws: Vec<(Draw, Vec<usize>)> = Vec::new();
        let mut now = 0;
        prop_assert_eq!(pool.get_balance(now), 0);
        for step in steps {
            match step {
                Step::Add { amount, lives } => {
                    let added = pool.add_credits(amount, now + lives);
                    if amount == 0 {
                        prop_assert_eq!(added, Err(AddError::Zero));
                    } else if lives < 0 {
                        prop_assert_eq!(added, Err(AddError::AlreadyExpired));
                    } else {
                        prop_assert_eq!(added, Ok(PackId(naive.packs.len() as u64)));
                        naive.packs.push((now + lives, amount));
                    }
                }
                Step::Consume { amount, partial } => {
                    let available = naive.balance(now);
                    let draw = if partial {
                        pool.consume_up_to(amount, now)
                    } else {
                        match pool.consume_credits(amount, now) {
                            Ok(draw) => draw,
                            Err(shortage) => {
                                prop_assert!(available < u128::from(amount));
                                prop_assert_eq!(shortage.available, available);
                                continue;
                            }
                        }
                    };
                    let units: Vec<usize> = (0..amount).map_while(|_| naive.take(now)).collect();
                    prop_assert_eq!(draw.amount(), units.len() as u128);
                    prop_assert_eq!(pool.lots(&draw), joined(&units));
                    draws.push((draw, units));
                }
                Step::GiveBack { draw, amount } => {
                    let Some((draw, units)) = draws.get_mut(draw) else { continue };
                    let back = pool.give_back(draw, amount, now);
                    let (mut returned, mut expired) = (0, 0);
                    for _ in 0..amount {
                        let Some(pack) = units.pop() else { break };
                        if naive.packs[pack].0 >= now {
                            naive.packs[pack].1 += 1;
                            returned += 1;
                        } else {
                            expired += 1;
                        }
                    }
                    prop_assert_eq!((back.returned, back.expired), (returned, expired));
                    prop_assert_eq!(pool.lots(draw), joined(units));
                }
                Step::Wait(millis) => now += millis,
            }
            prop_assert_eq!(pool.get_balance(now), naive.balance(now));
            // An instant before the latest one counts as the latest.
            prop_assert_eq!(pool.get_balance(now - 1), naive.balance(now));
        }
    }
}

#[test]
fn one_expiry_holds_at_most_64_bits_and_a_pool_more() {
    let mut pool = Pool::new();
    pool.add_credits(u64::MAX, 10).unwrap();
    assert_eq!(pool.add_credits(1, 10), Err(AddError::Overflow));
    pool.add_credits(u64::MAX, 11).unwrap();
    assert_eq!(pool.get_balance(0), 2 * u128::from(u64::MAX));
    let draw = pool.consume_credits(u64::MAX, 0).unwrap();
    assert_eq!(pool.lots(&draw), vec![(PackId(0), u64::MAX)]);
}

#[test]
fn a_draw_over_a_hundred_thousand_packs_can_be_given_back() {
    let mut pool = Pool::new();
    for number in 0..100_000 {
        pool.add_credits(3, 100 + number % 5).unwrap();
    }
    let mut draw = pool.consume_credits(299_999, 0).unwrap();
    assert_eq!(pool.lots(&draw).len(), 100_000);
    assert_eq!(pool.get_balance(0), 1);
    let back = pool.give_back(&mut draw, 299_999, 0);
    assert_eq!((back.returned, draw.amount()), (299_999, 0));
    assert_eq!(pool.get_balance(100), 300_000);
    assert_eq!(pool.get_balance(101), 240_000);
}
