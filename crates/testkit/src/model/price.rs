//! The cost of GPU time, by long multiplication and division.

use bursar_core::ledger::credits::price::Rate;

use super::state::Micros;

/// The rounding of a fraction of a micro-credit.
#[derive(Copy, Clone)]
pub(super) enum Round {
    Down,
    HalfEven,
}

/// The cost of `gpu_ms` at a rate; `None` if it exceeds the largest amount.
pub(super) fn cost(rate: &Rate, gpu_ms: u64, round: Round) -> Option<Micros> {
    let credited = u128::from(gpu_ms.min(rate.gpu_ms_limit));
    let price = rate.per_gpu_hour.micros().unsigned_abs();
    // Thousandths of a GPU times milliseconds: 1000 × 3 600 000 of them are a GPU-hour.
    let unit: u128 = 3_600_000_000;
    let thousandths = u128::from(rate.share_milli) * credited;
    // price × thousandths / unit. Whole GPU-hours are separated first to avoid an overflow: both
    // products stay below 2^64 × 2^42.
    let hours = thousandths / unit;
    let rest = thousandths % unit;
    let whole = u128::from(price).checked_mul(hours)?;
    let product = u128::from(price) * rest;
    let mut cost = whole.checked_add(product / unit)?;
    let twice = 2 * (product % unit);
    let up = match round {
        Round::Down => false,
        Round::HalfEven => twice > unit || (twice == unit && cost % 2 == 1),
    };
    if up {
        cost += 1;
    }
    i64::try_from(cost).ok().map(Micros::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_core::credits::Credits;

    #[test]
    fn halves_are_rounded_to_even_when_settled() {
        let rate = Rate {
            per_gpu_hour: Credits::from_micros(3).expect("not negative"),
            share_milli: 500,
            gpu_ms_limit: u64::MAX,
        };
        assert_eq!(cost(&rate, 3_600_000, Round::Down), Some(1));
        assert_eq!(cost(&rate, 3_600_000, Round::HalfEven), Some(2));
        assert_eq!(cost(&rate, 1_200_000, Round::HalfEven), Some(0));
        assert_eq!(cost(&rate, u64::MAX, Round::Down), Some(7_686_143_364_045));
    }
}
