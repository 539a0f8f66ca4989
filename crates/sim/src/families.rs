//! Families of synthetic traces: clusters, tasks and queues with the distributions of published
//! ones.
//!
//! The studies of `docs/evidence/placement.md` and `docs/evidence/queue-study.md` use traces of
//! production clusters, which are not part of this repository. These families replace them in tests and examples. They
//! follow the distributions that were published with the traces, and copy none of their rows:
//!
//! - [`cluster`]: machines and tasks like those of Alibaba's GPU cluster (2023; USENIX ATC 2023):
//!   few types of machines, most tasks with a share of a GPU or one GPU, few gangs, and the same
//!   variants as in the study (more CPU-only tasks, more shares, tasks that name models, more
//!   gangs);
//! - [`queue`]: jobs like those of the Philly cluster (USENIX ATC 2019), as the simulators of
//!   Tiresias and Muri use them: durations from seconds to weeks, arrivals in bursts, gangs of up
//!   to half the cluster; and a short one like Shockwave (NSDI 2023);
//! - [`load`]: jobs of four tenants at random instants, in bursts, by day, mostly gangs, or with a
//!   flood of tiny jobs. They follow no published trace.
//!
//! All draws are integers, so that a seed gives the same rows on every machine. [`files`] writes
//! them in the columns that [`crate::traces`] reads.

pub mod cluster;
pub mod files;
pub mod load;
pub mod queue;

use crate::random::Dice;

/// Draws one of several kinds by weight.
fn pick<T: Copy>(dice: &mut Dice, kinds: &[(u32, T)]) -> T {
    let total: u32 = kinds.iter().map(|(weight, _)| weight).sum();
    let mut drawn = dice.below(total as usize) as u32;
    for (weight, kind) in kinds {
        if drawn < *weight {
            return *kind;
        }
        drawn -= weight;
    }
    unreachable!("the drawn number is below the sum of the weights")
}

/// Draws from a distribution given by quantiles, in thousandths and in order. Between two of them
/// all values are equally likely.
fn quantile(dice: &mut Dice, quantiles: &[(i64, i64)]) -> i64 {
    let drawn = dice.below(1_000_000) as i64;
    for pair in quantiles.windows(2) {
        let ((from, low), (to, high)) = (pair[0], pair[1]);
        if drawn < to * 1000 {
            return low + (high - low) * (drawn - from * 1000) / ((to - from) * 1000);
        }
    }
    unreachable!("the last quantile is the thousandth")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_as_frequent_as_their_weights() {
        let mut dice = Dice::new(1, 0);
        let kinds = [(1, 'a'), (0, 'b'), (3, 'c')];
        let drawn: Vec<char> = (0..4000).map(|_| pick(&mut dice, &kinds)).collect();
        let count = |kind| drawn.iter().filter(|drawn| **drawn == kind).count();
        assert_eq!(count('b'), 0);
        assert!((900..1100).contains(&count('a')), "{}", count('a'));
    }

    #[test]
    fn values_lie_between_their_quantiles() {
        let mut dice = Dice::new(1, 0);
        let quantiles = [(0, 10), (500, 20), (1000, 1020)];
        let drawn: Vec<i64> = (0..4000).map(|_| quantile(&mut dice, &quantiles)).collect();
        let small = drawn.iter().filter(|value| **value < 20).count();
        assert!((1900..2100).contains(&small), "{small}");
        assert!(drawn.iter().all(|value| (10..1020).contains(value)));
    }
}
