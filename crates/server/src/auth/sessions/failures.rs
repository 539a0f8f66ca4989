//! Failed sign-ins and wrong codes. After several of them, further attempts wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bursar_api::Code;

use crate::auth::Principal;
use crate::request::Failure;
use crate::telemetry::monotonic::Stopwatch;

/// Failures are counted in windows of this length.
const COUNT_WINDOW: Duration = Duration::from_secs(60);
/// The most failures with one key id from one address in a window.
const MAX_OF_ID: u32 = 10;
/// The most failures from one address in a window.
const MAX_OF_ADDRESS: u32 = 100;
/// The most sign-ins from one address that an identity provider refused, in a window.
const MAX_CALLBACKS: u32 = 30;
/// The most wrong codes of one key or person, of one tenant, and of all, in a window.
const MAX_CODES_OF_KEY: u32 = 10;
const MAX_CODES_OF_TENANT: u32 = 60;
const MAX_CODES_OF_ALL: u32 = 600;
/// The most counts that are kept.
const MAX_COUNTS: usize = 20_000;

/// What failures are counted for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// A key id from an address.
    KeyId(IpAddr, Box<str>),
    Address(IpAddr),
    /// What an address brought back from an identity provider.
    Callback(IpAddr),
    /// A key or person that is signed in.
    SignedIn(Box<str>),
    /// A tenant; `None` is the platform.
    Tenant(Option<Box<str>>),
    All,
}

struct Count {
    failures: u32,
    until: Duration,
}

/// The part of an address that one client cannot change freely: of IPv6 the first 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address @ IpAddr::V4(_) => address,
    }
}

/// Counts of failures. Windows end by the time since the start.
struct FailureCounts {
    counts: Mutex<HashMap<Source, Count>>,
    watch: Stopwatch,
}

impl FailureCounts {
    fn new() -> FailureCounts {
        FailureCounts { counts: Mutex::default(), watch: Stopwatch::start() }
    }

    /// Refuses an attempt if one of its sources has its most failures.
    fn check(&self, sources: &[(Source, u32)], what: &str, now: Duration) -> Result<(), Failure> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (source, most) in sources {
            let Some(count) = counts.get(source) else { continue };
            if count.failures >= *most && now < count.until {
                let seconds = (count.until - now).as_secs() + 1;
                let detail = format!("too many {what}; try again in {seconds} s");
                return Err(Failure::new(Code::RateLimited, detail).retry_after(seconds));
            }
        }
        Ok(())
    }

    /// Counts a failure for each of its sources.
    fn note<const N: usize>(&self, sources: [(Source, u32); N], now: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() + N > MAX_COUNTS {
            counts.retain(|_, count| now < count.until);
        }
        for (source, _) in sources {
            // Beyond the bound only sources that are already known are counted.
            let is_known = source == Source::All || counts.contains_key(&source);
            if counts.len() >= MAX_COUNTS && !is_known {
                continue;
            }
            let count =
                counts.entry(source).or_insert(Count { failures: 0, until: now + COUNT_WINDOW });
            if count.until <= now {
                *count = Count { failures: 0, until: now + COUNT_WINDOW };
            }
            count.failures += 1;
        }
    }
}

/// Counts failed sign-ins.
pub struct FailedSignIns(FailureCounts);

fn sources(address: IpAddr, id: &str) -> [(Source, u32); 2] {
    let address = network(address);
    [(Source::KeyId(address, id.into()), MAX_OF_ID), (Source::Address(address), MAX_OF_ADDRESS)]
}

fn callbacks(address: IpAddr) -> (Source, u32) {
    (Source::Callback(network(address)), MAX_CALLBACKS)
}

impl FailedSignIns {
    /// Creates the counts of a server.
    pub fn new() -> FailedSignIns {
        FailedSignIns(FailureCounts::new())
    }

    /// Refuses an attempt after too many failures.
    pub(crate) fn check(&self, address: IpAddr, id: &str) -> Result<(), Failure> {
        self.check_at(address, id, self.0.watch.elapsed())
    }

    /// Counts a failure.
    pub(crate) fn note(&self, address: IpAddr, id: &str) {
        self.note_at(address, id, self.0.watch.elapsed());
    }

    /// Refuses a sign-in at the identity provider after too many that failed.
    pub(crate) fn check_callback(&self, address: IpAddr) -> Result<(), Failure> {
        self.0.check(&[callbacks(address)], "failed sign-ins", self.0.watch.elapsed())
    }

    /// Counts a sign-in at the identity provider that failed.
    pub(crate) fn note_callback(&self, address: IpAddr) {
        self.0.note([callbacks(address)], self.0.watch.elapsed());
    }

    fn check_at(&self, address: IpAddr, id: &str, now: Duration) -> Result<(), Failure> {
        self.0.check(&sources(address, id), "failed sign-ins", now)
    }

    fn note_at(&self, address: IpAddr, id: &str, now: Duration) {
        self.0.note(sources(address, id), now);
    }
}

impl Default for FailedSignIns {
    fn default() -> FailedSignIns {
        FailedSignIns::new()
    }
}

/// Counts wrong codes of command lines. Only signed-in callers can try codes.
pub(crate) struct WrongCodes(FailureCounts);

fn code_sources(address: IpAddr, principal: &Principal) -> [(Source, u32); 4] {
    let tenant = principal.tenant().map(Into::into);
    [
        (Source::SignedIn(principal.bucket().into()), MAX_CODES_OF_KEY),
        (Source::Tenant(tenant), MAX_CODES_OF_TENANT),
        (Source::Address(network(address)), MAX_OF_ADDRESS),
        (Source::All, MAX_CODES_OF_ALL),
    ]
}

impl WrongCodes {
    /// Creates the counts of a server.
    pub(super) fn new() -> WrongCodes {
        WrongCodes(FailureCounts::new())
    }

    /// Refuses another code after too many wrong ones.
    pub(crate) fn check(&self, address: IpAddr, principal: &Principal) -> Result<(), Failure> {
        self.check_at(address, principal, self.0.watch.elapsed())
    }

    /// Counts a wrong code.
    pub(crate) fn note(&self, address: IpAddr, principal: &Principal) {
        self.note_at(address, principal, self.0.watch.elapsed());
    }

    fn check_at(
        &self,
        address: IpAddr,
        principal: &Principal,
        now: Duration,
    ) -> Result<(), Failure> {
        self.0.check(&code_sources(address, principal), "wrong codes", now)
    }

    fn note_at(&self, address: IpAddr, principal: &Principal, now: Duration) {
        self.0.note(code_sources(address, principal), now);
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
        assert!(failures.check_at(from, "k", start + COUNT_WINDOW).is_ok());
        failures.note_at(from, "k", start + COUNT_WINDOW);
        assert!(failures.check_at(from, "k", start + COUNT_WINDOW).is_ok(), "a new window");
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
    fn an_address_with_many_refused_callbacks_waits_and_others_do_not() {
        let failures = FailedSignIns::new();
        let from = address("10.0.0.1");
        for _ in 0..MAX_CALLBACKS {
            assert!(failures.check_callback(from).is_ok());
            failures.note_callback(from);
        }
        assert!(failures.check_callback(from).is_err());
        assert!(failures.check_callback(address("10.0.0.2")).is_ok());
        assert!(failures.check(from, "k").is_ok(), "keys are counted by themselves");
    }

    #[test]
    fn the_counts_are_bounded() {
        let (failures, start) = (FailedSignIns::new(), Duration::ZERO);
        let from = |number: u32| IpAddr::V4(number.into());
        for number in 0..30_000 {
            failures.note_at(from(number), "k", start);
        }
        let count = || failures.0.counts.lock().unwrap_or_else(PoisonError::into_inner).len();
        assert!(count() <= MAX_COUNTS);
        failures.note_at(from(1), "k", start + COUNT_WINDOW);
        assert_eq!(count(), 2, "the windows have ended");
    }

    fn caller(id: &str, tenant: &str) -> Principal {
        Principal { id: id.into(), scope: Some(tenant.into()), ..Principal::root() }
    }

    #[test]
    fn wrong_codes_are_bounded_for_each_key_tenant_and_address() {
        let (codes, start) = (WrongCodes::new(), Duration::ZERO);
        let from = address("10.0.0.1");
        let tries = |id: &str, tenant: &str, from: IpAddr| {
            let caller = caller(id, tenant);
            let mut tried = 0;
            while tried < 1_000 && codes.check_at(from, &caller, start).is_ok() {
                codes.note_at(from, &caller, start);
                tried += 1;
            }
            tried
        };
        assert_eq!(tries("k", "acme", from), MAX_CODES_OF_KEY);
        assert_eq!(tries("k", "acme", address("10.0.0.2")), 0, "from anywhere");
        let others: u32 = (0..20).map(|key| tries(&format!("k{key}"), "acme", from)).sum();
        assert_eq!(others, MAX_CODES_OF_TENANT - MAX_CODES_OF_KEY);
        assert_eq!(tries("k", "umbra", address("10.0.0.3")), MAX_CODES_OF_KEY, "another tenant");
        let more: u32 = (0..20).map(|org| tries("k", &format!("org{org}"), from)).sum();
        assert_eq!(more, MAX_OF_ADDRESS - MAX_CODES_OF_TENANT);
        assert!(codes.check_at(from, &caller("k", "acme"), start + COUNT_WINDOW).is_ok());
    }

    #[test]
    fn wrong_codes_are_bounded_in_all() {
        let (codes, start) = (WrongCodes::new(), Duration::ZERO);
        let mut tried = 0;
        for number in 0..1_000_u32 {
            let caller = caller("k", &format!("org{number}"));
            let from = IpAddr::V4(number.into());
            if codes.check_at(from, &caller, start).is_ok() {
                codes.note_at(from, &caller, start);
                tried += 1;
            }
        }
        assert_eq!(tried, MAX_CODES_OF_ALL);
        let fresh = caller("k", "fresh");
        assert!(codes.check_at(address("10.1.0.1"), &fresh, start).is_err());
        assert!(codes.check_at(address("10.1.0.1"), &fresh, start + COUNT_WINDOW).is_ok());
    }
}
