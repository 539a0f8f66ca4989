//! Failed sign-ins. After several of them, further attempts wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bursar_api::Code;

use crate::request::Failure;
use crate::telemetry::monotonic::Stopwatch;

/// Failures are counted in windows of this length.
const WINDOW: Duration = Duration::from_secs(60);
/// The most failures with one key id from one address in a window.
const MAX_OF_ID: u32 = 10;
/// The most failures from one address in a window.
const MAX_OF_ADDRESS: u32 = 100;
/// The most counts that are kept.
const MAX_COUNTS: usize = 20_000;

/// What failures are counted for: an address, and a key id from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Source(IpAddr, Option<Box<str>>);

struct Count {
    failures: u32,
    until: Duration,
}

/// Counts failed sign-ins.
pub struct FailedSignIns {
    counts: Mutex<HashMap<Source, Count>>,
    /// Windows end by the time since the start.
    watch: Stopwatch,
}

/// The part of an address that one client cannot change freely: of IPv6 the first 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address @ IpAddr::V4(_) => address,
    }
}

fn sources(address: IpAddr, id: &str) -> [(Source, u32); 2] {
    let address = network(address);
    [(Source(address, Some(id.into())), MAX_OF_ID), (Source(address, None), MAX_OF_ADDRESS)]
}

impl FailedSignIns {
    /// Creates the counts of a server.
    pub fn new() -> FailedSignIns {
        FailedSignIns { counts: Mutex::default(), watch: Stopwatch::start() }
    }

    /// Refuses an attempt after too many failures.
    pub(crate) fn check(&self, address: IpAddr, id: &str) -> Result<(), Failure> {
        self.check_at(address, id, self.watch.elapsed())
    }

    /// Counts a failure.
    pub(crate) fn note(&self, address: IpAddr, id: &str) {
        self.note_at(address, id, self.watch.elapsed());
    }

    fn check_at(&self, address: IpAddr, id: &str, now: Duration) -> Result<(), Failure> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (source, most) in sources(address, id) {
            let Some(count) = counts.get(&source) else { continue };
            if count.failures >= most && now < count.until {
                let seconds = (count.until - now).as_secs() + 1;
                let detail = format!("too many failed sign-ins; try again in {seconds} s");
                return Err(Failure::new(Code::RateLimited, detail).retry_after(seconds));
            }
        }
        Ok(())
    }

    fn note_at(&self, address: IpAddr, id: &str, now: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() + 2 > MAX_COUNTS {
            counts.retain(|_, count| now < count.until);
        }
        for (source, _) in sources(address, id) {
            // Beyond the bound only sources that are already known are counted.
            if counts.len() >= MAX_COUNTS && !counts.contains_key(&source) {
                continue;
            }
            let count = counts.entry(source).or_insert(Count { failures: 0, until: now + WINDOW });
            if count.until <= now {
                *count = Count { failures: 0, until: now + WINDOW };
            }
            count.failures += 1;
        }
    }
}

impl Default for FailedSignIns {
    fn default() -> FailedSignIns {
        FailedSignIns::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn attempts_with_one_id_wait_after_ten_failures_until_the_window_ends() {
        let (failures, start) = (FailedSignIns::new(), Duration::ZERO);
        let from = address("10.0.0.1");
        for _ in 0..MAX_OF_ID {
            assert!(failures.check_at(from, "k", start).is_ok());
            failures.note_at(from, "k", start);
        }
        let refused = failures.check_at(from, "k", start).expect_err("ten failures");
        assert_eq!((refused.problem.code, refused.retry_after), (Code::RateLimited, Some(61)));
        assert!(failures.check_at(from, "other", start).is_ok());
        assert!(failures.check_at(address("10.0.0.2"), "k", start).is_ok());
        assert!(failures.check_at(from, "k", start + WINDOW).is_ok());
        failures.note_at(from, "k", start + WINDOW);
        assert!(failures.check_at(from, "k", start + WINDOW).is_ok(), "a new window");
    }

    #[test]
    fn an_address_with_many_ids_waits_too() {
        let (failures, start) = (FailedSignIns::new(), Duration::ZERO);
        for number in 0..MAX_OF_ADDRESS {
            let from = address(&format!("2001:db8::{number:x}"));
            assert!(failures.check_at(from, &number.to_string(), start).is_ok());
            failures.note_at(from, &number.to_string(), start);
        }
        assert!(failures.check_at(address("2001:db8::ffff"), "x", start).is_err(), "one network");
        assert!(failures.check_at(address("2001:db8:0:1::1"), "x", start).is_ok(), "another one");
    }

    #[test]
    fn the_counts_are_bounded() {
        let (failures, start) = (FailedSignIns::new(), Duration::ZERO);
        let from = |number: u32| IpAddr::V4(number.into());
        for number in 0..30_000 {
            failures.note_at(from(number), "k", start);
        }
        let count = || failures.counts.lock().unwrap_or_else(PoisonError::into_inner).len();
        assert!(count() <= MAX_COUNTS);
        failures.note_at(from(1), "k", start + WINDOW);
        assert_eq!(count(), 2, "the windows have ended");
    }
}
