//! When to retry: a bounded number of times, with growing and randomized pauses.

use std::time::Duration;

/// How often a call is retried, and with which pauses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The number of attempts; 1 means no retry.
    pub attempts: u32,
    /// The longest pause after the first failure; doubled after each further one.
    pub first_pause: Duration,
    /// The longest pause that the client chooses.
    pub longest_pause: Duration,
    /// If the server asks for a longer pause than this, the call fails instead.
    pub timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts: 5,
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
        }
    }
}

impl RetryPolicy {
    /// Never retries.
    pub fn never() -> RetryPolicy {
        RetryPolicy { attempts: 1, ..RetryPolicy::default() }
    }

    /// The pause after `failures` failures in a row, or `None` to give up.
    ///
    /// `random` spreads the pause over the upper half of its range; a pause that the server requested
    /// is a lower bound.
    pub(crate) fn pause(
        &self,
        failures: u32,
        asked: Option<Duration>,
        random: u64,
    ) -> Option<Duration> {
        if failures >= self.attempts || asked.is_some_and(|asked| asked > self.timeout) {
            return None;
        }
        Some(asked.unwrap_or_default() + self.spread(failures, random))
    }

    /// The client's own pause after `failures` failures in a row.
    pub(crate) fn spread(&self, failures: u32, random: u64) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let longest = self.first_pause.saturating_mul(doubled).min(self.longest_pause);
        let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        let half = micros / 2;
        Duration::from_micros(half + random % (micros - half + 1))
    }
}

/// Random bits, to spread the retries of clients.
pub(crate) fn random() -> u64 {
    // Without a source of randomness all clients pause equally long, which is no reason to fail.
    getrandom::u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        attempts: 4,
        first_pause: Duration::from_millis(100),
        longest_pause: Duration::from_millis(300),
        timeout: Duration::from_secs(10),
    };

    #[test]
    fn pauses_double_up_to_the_longest_until_attempts_are_used_up() {
        let longest = |failures| POLICY.pause(failures, None, 50_000);
        assert_eq!(longest(1), Some(Duration::from_millis(100)));
        for (failures, low, high) in [(1, 50, 100), (2, 100, 200), (3, 150, 300)] {
            for random in [0, 1, 77_777, u64::MAX] {
                let pause = POLICY.pause(failures, None, random).expect("not given up yet");
                assert!((low..=high).contains(&pause.as_millis()), "{failures}: {pause:?}");
            }
        }
        assert_eq!(longest(4), None);
    }

    #[test]
    fn a_requested_pause_is_a_lower_bound_up_to_the_limit() {
        let asked = |seconds| POLICY.pause(1, Some(Duration::from_secs(seconds)), 0);
        assert_eq!(asked(2), Some(Duration::from_millis(2050)));
        assert_eq!(asked(10), Some(Duration::from_millis(10_050)));
        assert_eq!(asked(11), None);
    }

    #[test]
    fn very_many_failures_do_not_overflow() {
        assert!(POLICY.spread(u32::MAX, u64::MAX) <= POLICY.longest_pause);
    }
}
