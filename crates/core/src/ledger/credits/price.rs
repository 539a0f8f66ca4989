//! Exact prices: cumulative usage times a pinned price, rounded once.

use bursar_seeded::{Bug, seeded};

use crate::credits::Credits;

/// GPU-milliseconds in a GPU-hour.
pub const HOUR_MS: u64 = 3_600_000;

/// A whole GPU, in thousandths.
pub const WHOLE_GPU: u16 = 1000;

/// The price of GPU time in a hold. Fixed for each attempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Micro-credits per hour of a whole GPU, class multiplier included.
    pub per_gpu_hour: Credits,
    /// The share of a GPU, in thousandths (1000 for whole GPUs).
    pub share_milli: u16,
    /// The most GPU time that is ever charged, in GPU-milliseconds.
    pub gpu_ms_limit: u64,
}

/// How a fraction of a micro-credit is treated.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// Down, while usage still grows.
    Floor,
    /// To the nearest, ties to even; once, at the end.
    HalfEven,
    /// Up, for holds, so that a charge never exceeds its hold.
    Ceil,
}

impl Rate {
    /// The cost of `gpu_ms` GPU-milliseconds; `None` if it exceeds [`Credits::MAX`].
    ///
    /// Always computed from the cumulative usage, so the total does not depend on the number of
    /// reports.
    pub fn charge(&self, gpu_ms: u64, rounding: Rounding) -> Option<Credits> {
        let gpu_ms = gpu_ms.min(self.gpu_ms_limit);
        let product = u128::from(self.per_gpu_hour.length())
            .checked_mul(u128::from(self.share_milli))?
            .checked_mul(u128::from(gpu_ms))?;
        let micros = divide(product, u128::from(HOUR_MS) * u128::from(WHOLE_GPU), rounding);
        u64::try_from(micros).ok().and_then(Credits::from_length)
    }

    /// The amount of a hold that covers the whole chargeable time.
    pub fn full_hold(&self) -> Option<Credits> {
        self.charge(self.gpu_ms_limit, Rounding::Ceil)
    }
}

/// The price of a class: a base price times a decimal multiplier, rounded half to even.
pub fn pinned_price(base: Credits, multiplier_milli: u32) -> Option<Credits> {
    let product = u128::from(base.length()) * u128::from(multiplier_milli);
    u64::try_from(divide(product, 1000, Rounding::HalfEven)).ok().and_then(Credits::from_length)
}

/// `numerator / denominator`, rounded.
fn divide(numerator: u128, denominator: u128, rounding: Rounding) -> u128 {
    let (quotient, remainder) = (numerator / denominator, numerator % denominator);
    let up = match rounding {
        Rounding::Floor => false,
        Rounding::HalfEven if seeded(Bug::RoundsChargeUp) => remainder > 0,
        Rounding::Ceil => remainder > 0,
        Rounding::HalfEven => match (remainder * 2).cmp(&denominator) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => quotient % 2 == 1,
            std::cmp::Ordering::Greater => true,
        },
    };
    quotient + u128::from(up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn micros(amount: i64) -> Credits {
        Credits::from_micros(amount).expect("not negative")
    }

    fn rate(per_gpu_hour: i64, share_milli: u16, gpu_ms_limit: u64) -> Rate {
        Rate { per_gpu_hour: micros(per_gpu_hour), share_milli, gpu_ms_limit }
    }

    #[test]
    fn one_gpu_hour_costs_the_price_and_half_an_hour_half_of_it() {
        let whole = rate(2_500_000, WHOLE_GPU, u64::MAX);
        assert_eq!(whole.charge(HOUR_MS, Rounding::Floor), Some(micros(2_500_000)));
        assert_eq!(whole.charge(HOUR_MS / 2, Rounding::Floor), Some(micros(1_250_000)));
        let quarter = rate(2_500_000, 250, u64::MAX);
        assert_eq!(quarter.charge(HOUR_MS, Rounding::Floor), Some(micros(625_000)));
    }

    #[test]
    fn ties_go_to_the_even_neighbour_only_at_the_end() {
        let rate = rate(1, WHOLE_GPU, u64::MAX);
        for (halves, floor, half_even, ceil) in [(1, 0, 0, 1), (3, 1, 2, 2), (5, 2, 2, 3)] {
            let gpu_ms = halves * HOUR_MS / 2;
            assert_eq!(rate.charge(gpu_ms, Rounding::Floor), Some(micros(floor)));
            assert_eq!(rate.charge(gpu_ms, Rounding::HalfEven), Some(micros(half_even)));
            assert_eq!(rate.charge(gpu_ms, Rounding::Ceil), Some(micros(ceil)));
        }
    }

    #[test]
    fn a_class_multiplier_is_rounded_half_even_once() {
        assert_eq!(pinned_price(micros(1), 500), Some(micros(0)));
        assert_eq!(pinned_price(micros(3), 500), Some(micros(2)));
        assert_eq!(pinned_price(micros(2_000_000), 1_500), Some(micros(3_000_000)));
        assert_eq!(pinned_price(Credits::MAX, 1_001), None);
    }

    proptest! {
        #[test]
        fn charges_grow_with_usage_and_never_exceed_the_hold(
            price in 0i64..=i64::MAX / 4000, share in 1u16..=1000, limit in 0u64..=3_600_000_000,
            a in any::<u64>(), b in any::<u64>(),
        ) {
            let rate = rate(price, share, limit);
            let (less, more) = (a.min(b), a.max(b));
            prop_assert!(rate.charge(less, Rounding::Floor) <= rate.charge(more, Rounding::Floor));
            prop_assert!(rate.charge(a, Rounding::Floor) <= rate.charge(a, Rounding::HalfEven));
            prop_assert!(rate.charge(a, Rounding::HalfEven) <= rate.full_hold());
        }
    }
}
