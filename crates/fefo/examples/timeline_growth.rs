//! Measures the cost of one operation on a timeline as it grows, for several orders of arrival.
//!
//! `cargo run --release -p fefo --example timeline_growth`

use std::hint::black_box;
use std::time::{Duration, Instant};

use fefo::Timeline;

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const DAY: i64 = 86_400_000;

#[derive(Clone, Copy)]
enum Operation {
    Add { amount: u64, at: i64, expires_at: Option<i64> },
    Consume { amount: u64, at: i64 },
}

/// A small generator with a fixed seed, so that every run measures the same work.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn instant(&mut self, bound: i64) -> i64 {
        i64::try_from(self.below(bound.unsigned_abs())).expect("below an i64")
    }
}

/// A year of packs that are valid for up to 90 days, every tenth without expiry. Nearly all is
/// consumed.
fn year(size: usize, random: &mut Random) -> Vec<Operation> {
    let mut operations: Vec<(i64, Operation)> = (0..size)
        .map(|index| {
            let at = random.instant(365 * DAY);
            let operation = if index % 2 == 0 {
                let expires_at = (random.below(10) > 0).then(|| at + random.instant(90 * DAY));
                Operation::Add { amount: 1 + random.below(1_000), at, expires_at }
            } else {
                Operation::Consume { amount: 1 + random.below(900), at }
            };
            (at, operation)
        })
        .collect();
    operations.sort_by_key(|&(at, _)| at);
    operations.into_iter().map(|(_, operation)| operation).collect()
}

/// The worst case: `size` packs of one credit with as many expiries, then `swings` operations that
/// alternately consume all of them and return all of them.
fn pendulum(size: usize, swings: usize) -> Vec<Operation> {
    let amount = u64::try_from(size).expect("a size is a u64");
    let last = i64::try_from(size).expect("a size is an i64");
    let packs = (0..last).map(|at| Operation::Add { amount: 1, at: 0, expires_at: Some(at + 2) });
    let swings = (0..swings).map(|index| {
        if index % 2 == 0 {
            Operation::Consume { amount, at: 1 }
        } else {
            Operation::Add { amount, at: 0, expires_at: Some(1) }
        }
    });
    packs.chain(swings).collect()
}

fn record(timeline: &mut Timeline, operation: Operation) {
    match operation {
        Operation::Add { amount, at, expires_at } => {
            timeline.add_credits(amount, at, expires_at).expect("the pack is valid");
        }
        Operation::Consume { amount, at } => {
            timeline.consume_credits(amount, at).expect("the consumption is valid");
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a measurement has to read a clock")]
fn timed(mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Measures the last `tail` operations on a timeline that holds the others, then balances at random
/// instants.
fn measure(name: &str, operations: &[Operation], tail: usize, random: &mut Random) {
    let (first, last) = operations.split_at(operations.len() - tail);
    let mut timeline = Timeline::new();
    let filling = timed(|| first.iter().for_each(|&operation| record(&mut timeline, operation)));
    let adding = timed(|| last.iter().for_each(|&operation| record(&mut timeline, operation)));
    let looks: Vec<i64> = (0..1_000).map(|_| random.instant(365 * DAY)).collect();
    let looking = timed(|| {
        for &at in &looks {
            black_box(timeline.balance(at));
        }
    });
    let each = |duration: Duration, count: usize| duration.as_nanos() / count as u128;
    println!(
        "{name:<10} {:>8} {:>10} {:>10} {:>10}",
        first.len(),
        each(filling, first.len()),
        each(adding, last.len()),
        each(looking, looks.len()),
    );
}

fn main() {
    println!("nanoseconds per operation; a consumption also reads its shortfall");
    println!("{:<10} {:>8} {:>10} {:>10} {:>10}", "order", "n", "up to n", "at n", "balance");
    for size in SIZES {
        let mut random = Random(1);
        let mut operations = year(size + size / 10, &mut random);
        measure("in order", &operations, size / 10, &mut random);
        operations.reverse();
        measure("reverse", &operations, size / 10, &mut random);
        for index in (1..operations.len()).rev() {
            let other = random.below(index as u64 + 1) as usize;
            operations.swap(index, other);
        }
        measure("shuffled", &operations, size / 10, &mut random);
        measure("pendulum", &pendulum(size, size / 10), size / 10, &mut random);
    }
}
