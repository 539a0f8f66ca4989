//! Seeded randomness: the same seed gives the same study on every machine.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A seeded source of random choices.
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The source of a seed. Each `purpose` has its own stream, so that drawing more for one
    /// purpose does not change another.
    pub fn new(seed: u64, purpose: u64) -> Dice {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(purpose);
        Dice(generator)
    }

    /// A number below `bound`, each equally likely. `bound` is at least one.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "the bound is at least one");
        let bound = bound as u64;
        // Draws beyond the last whole multiple of the bound would favour small numbers.
        let limit = u64::MAX - u64::MAX % bound;
        loop {
            let drawn = self.0.next_u64();
            if drawn < limit {
                return (drawn % bound) as usize;
            }
        }
    }

    /// Puts a list into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_purpose_fix_every_choice() {
        let draws = |seed, purpose| {
            let mut dice = Dice::new(seed, purpose);
            (0..50).map(|_| dice.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draws(42, 0), draws(42, 0));
        assert_ne!(draws(42, 0), draws(43, 0));
        assert_ne!(draws(42, 0), draws(42, 1));
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Dice::new(1, 0).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
