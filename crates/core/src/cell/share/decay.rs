//! Decayed usage, in integers.
//!
//! Past usage loses half of its weight per half-life. Instead of reducing every account's usage
//! over time, new charges grow: a charge at `t` is scaled by 2^((t − epoch) / half-life). All
//! accounts share the factor, so their order never has to be sorted again, and an idle account
//! costs nothing. Before the factor becomes large, all usage is shifted down and the epoch
//! advances. Only integers are used, so every machine computes the same values.

use crate::cell::command::DEFAULT_WEIGHT;
use crate::time::Timestamp;

/// Usage in micro-credits, scaled by 2^32 and by the factor of its instant.
pub type ScaledUsage = u128;

/// Half-lives after which all usage is shifted down.
const REBASE_AFTER: u32 = 16;
/// Bits of the exponent's fraction that are used: a step of 82 ms at a half-life of a day.
const FRACTION_BITS: u32 = 20;
/// Fraction bits of the multipliers.
const ONE_BITS: u32 = 62;

/// 2^(1/2), 2^(1/4), 2^(1/8) … with [`ONE_BITS`] fraction bits, each the root of the one before.
const ROOTS: [u128; FRACTION_BITS as usize] = {
    let mut roots = [0; FRACTION_BITS as usize];
    let mut square: u128 = 2 << ONE_BITS;
    let mut index = 0;
    while index < roots.len() {
        square = (square << ONE_BITS).isqrt();
        roots[index] = square;
        index += 1;
    }
    roots
};

/// The half-life, and the instant from which the factor is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decay {
    half_life_ms: i64,
    epoch: Timestamp,
}

impl Decay {
    /// Decay by half in `half_life_ms`, counted from `epoch`.
    pub fn new(half_life_ms: i64, epoch: Timestamp) -> Decay {
        Decay { half_life_ms: half_life_ms.max(1), epoch }
    }

    /// The instant from which the factor is counted.
    pub fn epoch(&self) -> Timestamp {
        self.epoch
    }

    /// The time in which usage halves.
    pub fn half_life_ms(&self) -> i64 {
        self.half_life_ms
    }

    /// 2^((at − epoch) / half-life) with 32 fraction bits, also for instants before the epoch.
    pub fn factor(&self, at: Timestamp) -> u128 {
        let elapsed = at.millis() - self.epoch.millis();
        let whole = elapsed.div_euclid(self.half_life_ms);
        let rest = i128::from(elapsed.rem_euclid(self.half_life_ms));
        let fraction = (rest << FRACTION_BITS) / i128::from(self.half_life_ms);
        let mut factor: u128 = 1 << ONE_BITS;
        for (index, root) in ROOTS.iter().enumerate() {
            if fraction >> (FRACTION_BITS as usize - 1 - index) & 1 == 1 {
                factor = (factor * root) >> ONE_BITS;
            }
        }
        let factor = factor >> (ONE_BITS - 32);
        // At most REBASE_AFTER when usage is charged, because `rebase` is called first.
        match u32::try_from(whole) {
            Ok(whole) => factor << whole.min(48),
            Err(_) => factor.checked_shr(whole.unsigned_abs().min(127) as u32).unwrap_or(0),
        }
    }

    /// The scaled usage of `micros` at `at`.
    pub fn scale(&self, micros: u64, at: Timestamp) -> ScaledUsage {
        u128::from(micros).saturating_mul(self.factor(at))
    }

    /// The decayed usage at `at`, in micro-credits.
    pub fn unscale(&self, usage: ScaledUsage, at: Timestamp) -> u128 {
        usage / self.factor(at).max(1)
    }

    /// Advances the epoch if the factor has become large. The caller must then shift every usage
    /// down by the returned number of bits.
    pub fn rebase(&mut self, at: Timestamp) -> Option<u32> {
        let whole = at.millis_since(self.epoch) / self.half_life_ms;
        if whole < i64::from(REBASE_AFTER) {
            return None;
        }
        self.epoch = self.epoch.plus_millis(whole * self.half_life_ms);
        Some(u32::try_from(whole).unwrap_or(u32::MAX).min(127))
    }
}

/// The sort key of an account among its siblings: usage per weight, the lowest first. Accounts of
/// weight zero come after all others.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareKey {
    weightless: bool,
    usage: ScaledUsage,
}

impl ShareKey {
    /// The sort key of a usage with a weight.
    pub fn new(usage: ScaledUsage, weight: u32) -> ShareKey {
        // Weights are in thousandths, so the default weight leaves the usage unchanged.
        let usage = usage.saturating_mul(DEFAULT_WEIGHT.into()) / u128::from(weight.max(1));
        ShareKey { weightless: weight == 0, usage }
    }
}

/// The price of `gpu_ms` GPU-milliseconds at `price` micro-credits per GPU-hour, for `thousandths`
/// of each GPU. Rounded down: it orders jobs and is not charged.
pub fn usage_micros(price: u64, thousandths: u16, gpu_ms: u64) -> u64 {
    let per_ms = u128::from(price) * u128::from(thousandths);
    let exact = per_ms.saturating_mul(u128::from(gpu_ms));
    u64::try_from(exact / 3_600_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn usage_halves_every_half_life() {
        let decay = Decay::new(DAY, at(0));
        let usage = decay.scale(1_000_000, at(0));
        for (days, left) in [(0, 1_000_000), (1, 500_000), (2, 250_000), (10, 976)] {
            assert_eq!(decay.unscale(usage, at(days * DAY)), left);
        }
        let after_half_a_day = decay.unscale(usage, at(DAY / 2));
        assert!((707_106..=707_107).contains(&after_half_a_day), "{after_half_a_day}");
    }

    #[test]
    fn the_factor_never_decreases_with_time() {
        let decay = Decay::new(DAY, at(0));
        let mut last = 0;
        for step in 0..20_000 {
            let factor = decay.factor(at(step * 4321));
            assert!(factor >= last, "at {step}");
            last = factor;
        }
    }

    #[test]
    fn advancing_the_epoch_does_not_change_decayed_usage() {
        let mut decay = Decay::new(DAY, at(0));
        let usage = decay.scale(900_000_000, at(15 * DAY));
        let now = at(17 * DAY + 1234);
        let before = decay.unscale(usage, now);
        let shift = decay.rebase(now).expect("seventeen half-lives have passed");
        let after = decay.unscale(usage >> shift, now);
        assert!(before.abs_diff(after) <= 1, "{before} and {after}");
        assert_eq!(decay.rebase(now), None);
    }

    #[test]
    fn the_lowest_usage_over_weight_comes_first_and_weight_zero_last() {
        let mut keys = [
            ("weightless and idle", ShareKey::new(0, 0)),
            ("heavy", ShareKey::new(900, 3)),
            ("light", ShareKey::new(200, 1)),
            ("busy", ShareKey::new(400, 1)),
        ];
        keys.sort_by_key(|(_, key)| *key);
        let names: Vec<_> = keys.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["light", "heavy", "busy", "weightless and idle"]);
    }

    #[test]
    fn usage_is_priced_per_gpu_hour_and_share() {
        assert_eq!(usage_micros(2_000_000, 1000, 3_600_000), 2_000_000);
        assert_eq!(usage_micros(2_000_000, 250, 3_600_000), 500_000);
        assert_eq!(usage_micros(1, 1, 1), 0);
        assert_eq!(usage_micros(u64::MAX, 1000, u64::MAX), u64::MAX);
    }
}
