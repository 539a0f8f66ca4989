//! Random amounts: mostly small, sometimes the largest possible.

use bursar_core::credits::Credits;

use super::random::Random;

/// The magnitude of amounts in a world.
#[derive(Copy, Clone, Debug)]
pub(super) enum Scale {
    /// Every rounding has a visible effect.
    Tiny,
    /// Holds span many grants.
    Small,
    /// Whole credits.
    Large,
    /// Near the largest amount.
    Huge,
}

impl Scale {
    pub(super) fn choose(random: &mut Random) -> Scale {
        match random.index(20) {
            0..=6 => Scale::Tiny,
            7..=15 => Scale::Small,
            16..=18 => Scale::Large,
            _ => Scale::Huge,
        }
    }

    /// A random amount, at least one.
    pub(super) fn amount(self, random: &mut Random) -> i64 {
        match self {
            Scale::Tiny => random.between(1, 12),
            Scale::Small => random.between(1, 400),
            Scale::Large => random.between(1, 400) * 250_000 + random.between(0, 1),
            Scale::Huge => match random.index(6) {
                0 => i64::MAX,
                1 => i64::MAX - random.between(0, 3),
                2 => i64::MAX / 2 + random.between(0, 3),
                3 => i64::MAX / 1000,
                _ => random.between(1, i64::MAX),
            },
        }
    }
}

/// An amount near `middle`: equal, one less, one more, a part of it, or more. Rarely zero.
pub(super) fn near(random: &mut Random, middle: i128, scale: Scale) -> i64 {
    let top = i128::from(i64::MAX);
    let amount = match random.index(10) {
        0 | 1 => middle,
        2 => middle - 1,
        3 => middle + 1,
        4 | 5 => middle / 2,
        6 | 7 => middle / 4,
        8 => middle + i128::from(scale.amount(random)),
        _ => i128::from(scale.amount(random)),
    };
    let least = i128::from(!random.once_in(50));
    i64::try_from(amount.clamp(least, top)).unwrap_or(i64::MAX)
}

/// A number of micro-credits, which is not negative.
pub(super) fn credits(micros: i64) -> Credits {
    Credits::from_micros(micros.max(0)).unwrap_or(Credits::ZERO)
}
