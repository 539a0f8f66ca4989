//! Rate limits and load shedding.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use bursar_api::Code;
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use serde::{Deserialize, Serialize};

use crate::auth::Principal;
use crate::request::Failure;

/// Rate limits and concurrency limits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitOptions {
    /// Requests per second of one key, with a burst of twice that.
    pub per_key: NonZeroU32,
    /// Requests per second of one tenant, with a burst of twice that.
    pub per_tenant: NonZeroU32,
    /// Operations per second of one tenant in batches, with a burst of twice that. Each job of an
    /// array is one operation.
    pub operations: NonZeroU32,
    /// Requests in flight: reads are shed at half of it, changes at three quarters, and metering
    /// when metering alone reaches it.
    pub in_flight: NonZeroU32,
    /// Waiting requests: long polls, streams, reads that wait for a position. A tenant has a
    /// quarter of these places; the streams of one key have a thirty-second part.
    pub waiting: NonZeroU32,
}

impl Default for LimitOptions {
    fn default() -> LimitOptions {
        let rate = |number| NonZeroU32::new(number).expect("not zero");
        LimitOptions {
            per_key: rate(2_000),
            per_tenant: rate(5_000),
            operations: rate(50_000),
            in_flight: rate(8_192),
            waiting: rate(8_192),
        }
    }
}

/// What a request is for. The last variant is shed first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Health checks. They are never shed: a monitor must not mistake load for a dead process.
    Health,
    /// Captures, settlements, releases, heartbeats: usage must be recorded.
    Metering,
    /// All other changes.
    Change,
    /// Reads.
    Read,
}

type Limiter =
    RateLimiter<String, DashMapStateStore<String>, DefaultClock, StateInformationMiddleware>;

fn limiter(rate: NonZeroU32) -> Limiter {
    let burst = rate.saturating_mul(NonZeroU32::new(2).expect("not zero"));
    let quota = Quota::per_second(rate).allow_burst(burst);
    RateLimiter::dashmap(quota).with_middleware::<StateInformationMiddleware>()
}

/// The rate limits of every key and tenant.
pub struct Limits {
    options: LimitOptions,
    keys: [Limiter; 2],
    tenants: [Limiter; 2],
    operations: Limiter,
    /// Records of usage. They have a bucket of their own, as metering does.
    records: Limiter,
}

impl Limits {
    /// Creates full buckets.
    pub fn new(options: LimitOptions) -> Limits {
        let pair = |rate| [limiter(rate), limiter(rate)];
        Limits {
            options,
            keys: pair(options.per_key),
            tenants: pair(options.per_tenant),
            operations: limiter(options.operations),
            records: limiter(options.operations),
        }
    }

    /// Takes a token from each bucket of the request. Metering has its own buckets.
    pub fn take(&self, principal: &Principal, priority: Priority) -> Result<HeaderMap, Failure> {
        if principal.is_exempt() {
            return Ok(HeaderMap::new());
        }
        let set = usize::from(priority == Priority::Metering);
        let key = ("key", &self.keys[set], principal.bucket(), self.options.per_key);
        let tenant = principal.tenant().map(|tenant| {
            ("tenant", &self.tenants[set], tenant.to_owned(), self.options.per_tenant)
        });
        let buckets = || std::iter::once(&key).chain(&tenant);
        let policies: Vec<String> =
            buckets().map(|(name, _, _, rate)| format!("\"{name}\";q={rate};w=1")).collect();
        let mut left: Option<(u32, &str)> = None;
        for (name, limiter, bucket, _) in buckets() {
            match limiter.check_key(bucket) {
                Ok(state) => {
                    let remaining = state.remaining_burst_capacity();
                    if left.is_none_or(|(least, _)| remaining < least) {
                        left = Some((remaining, name));
                    }
                }
                Err(until) => {
                    let wait = until.wait_time_from(DefaultClock::default().now());
                    let seconds = wait.as_secs() + 1;
                    let headers = rate_limit_headers(&policies, name, 0, seconds);
                    return Err(refusal(name, seconds).with_headers(headers));
                }
            }
        }
        let (remaining, name) = left.expect("every key has a bucket");
        Ok(rate_limit_headers(&policies, name, remaining, 1))
    }

    /// Takes tokens from the bucket of operations: the tenant's, or that of a platform key.
    pub fn take_operations(&self, principal: &Principal, count: u64) -> Result<(), Failure> {
        self.take_many(&self.operations, ("operations", principal), count)
    }

    /// Takes tokens from the bucket of records of usage, which is apart from that of operations.
    pub fn take_records(&self, principal: &Principal, count: u64) -> Result<(), Failure> {
        self.take_many(&self.records, ("records", principal), count)
    }

    fn take_many(
        &self,
        limiter: &Limiter,
        (what, principal): (&'static str, &Principal),
        count: u64,
    ) -> Result<(), Failure> {
        let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
        let (Some(count), false) = (count, principal.is_exempt()) else { return Ok(()) };
        let bucket = principal.tenant().map_or_else(|| principal.bucket(), str::to_owned);
        match limiter.check_key_n(&bucket, count) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(until)) => {
                let wait = until.wait_time_from(DefaultClock::default().now());
                let seconds = wait.as_secs() + 1;
                let detail = format!(
                    "the tenant has used up its {} {what} a second; try again in {seconds} s",
                    self.options.operations
                );
                Err(Failure::new(Code::RateLimited, detail).retry_after(seconds))
            }
            Err(_) => {
                let most = u64::from(self.options.operations.get()) * 2;
                let reason =
                    format!("are {count}, with the jobs of arrays; at most {most} at once");
                Err(Failure::invalid(what, reason))
            }
        }
    }

    /// Drops buckets that are full again. Called periodically.
    pub fn remove_idle(&self) {
        let all = self.keys.iter().chain(&self.tenants).chain([&self.operations, &self.records]);
        all.for_each(RateLimiter::retain_recent);
    }
}

/// The rate limit headers of an answer: all policies, and the bucket with the fewest tokens left.
fn rate_limit_headers(policies: &[String], name: &str, remaining: u32, seconds: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut insert = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    insert("ratelimit-policy", policies.join(", "));
    insert("ratelimit", format!("\"{name}\";r={remaining};t={seconds}"));
    headers
}

fn refusal(bucket: &str, seconds: u64) -> Failure {
    let detail = format!("the {bucket} has used up its requests; try again in {seconds} s");
    Failure::new(Code::RateLimited, detail).retry_after(seconds)
}

/// Counts requests in flight and decides which to shed.
#[derive(Debug)]
pub struct Load {
    in_flight: AtomicUsize,
    /// Of these, the metering requests.
    metering: AtomicUsize,
    most: usize,
    /// Shed requests whose answer is delayed.
    held_back: AtomicUsize,
}

/// Shed requests are answered after 200 ms, a fifth of their `Retry-After`.
const SHED_DELAY: Duration = Duration::from_millis(200);

/// The most delayed answers at once, because each of them occupies a connection.
const MAX_HELD_BACK: usize = 4096;

/// A shed request whose answer is delayed.
struct HeldBack<'a>(&'a Load);

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.0.held_back.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A waiting request: not counted as in flight until it is dropped.
pub struct PausedRequest<'a> {
    load: &'a Load,
    priority: Priority,
}

impl Drop for PausedRequest<'_> {
    fn drop(&mut self) {
        for count in self.load.counts(self.priority) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A request in flight. Health checks are not counted.
pub struct Admitted<'a> {
    load: &'a Load,
    priority: Priority,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        for count in self.load.counts(self.priority) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Load {
    /// Creates a load with no request in flight.
    pub fn new(options: LimitOptions) -> Load {
        let most = options.in_flight.get() as usize;
        let [in_flight, metering, held_back] = [0; 3].map(AtomicUsize::new);
        Load { in_flight, metering, most, held_back }
    }

    /// The counters that a request of this priority is counted in.
    fn counts(&self, priority: Priority) -> impl Iterator<Item = &AtomicUsize> {
        let in_flight = (priority != Priority::Health).then_some(&self.in_flight);
        let metering = (priority == Priority::Metering).then_some(&self.metering);
        in_flight.into_iter().chain(metering)
    }

    /// Stops counting an admitted request while it waits for something that costs nothing.
    pub fn aside(&self, priority: Priority) -> PausedRequest<'_> {
        for count in self.counts(priority) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        PausedRequest { load: self, priority }
    }

    /// Delays the answer to a shed request. A client that retries at once would be shed again and
    /// again, which takes more time from admitted requests than they need.
    pub async fn hold_back(&self) {
        if let Some(_held_back) = self.try_hold_back() {
            tokio::time::sleep(SHED_DELAY).await;
        }
    }

    /// Counts one more delayed answer, unless there are too many.
    fn try_hold_back(&self) -> Option<HeldBack<'_>> {
        let held_back = HeldBack(self);
        (self.held_back.fetch_add(1, Ordering::Relaxed) < MAX_HELD_BACK).then_some(held_back)
    }

    /// The number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Admits a request or sheds it: reads at half the limit, changes at three quarters. Metering
    /// is shed only when metering alone has reached the limit, so that no other traffic displaces
    /// it.
    pub fn admit(&self, priority: Priority) -> Option<Admitted<'_>> {
        let before = match priority {
            Priority::Health => 0,
            Priority::Metering | Priority::Change | Priority::Read => {
                self.in_flight.fetch_add(1, Ordering::Relaxed)
            }
        };
        let room = match priority {
            Priority::Health => true,
            Priority::Metering => self.metering.fetch_add(1, Ordering::Relaxed) < self.most,
            Priority::Change => before < (self.most / 4 * 3).max(1),
            Priority::Read => before < (self.most / 2).max(1),
        };
        let admitted = Admitted { load: self, priority };
        room.then_some(admitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(scope: &str) -> Principal {
        let role = bursar_api::system::key::Role::Viewer;
        Principal { id: "k".into(), role, scope: Some(scope.into()), ..Principal::root() }
    }

    fn limits(per_key: u32, per_tenant: u32) -> Limits {
        let rate = |number| NonZeroU32::new(number).expect("not zero");
        let options = LimitOptions {
            per_key: rate(per_key),
            per_tenant: rate(per_tenant),
            ..LimitOptions::default()
        };
        Limits::new(options)
    }

    #[test]
    fn an_exhausted_key_gets_retry_after_and_may_still_meter() {
        let limits = limits(1, 100);
        let asks = principal("acme");
        let first = limits.take(&asks, Priority::Read).expect("the bucket is full");
        assert_eq!(first["ratelimit-policy"], "\"key\";q=1;w=1, \"tenant\";q=100;w=1");
        limits.take(&asks, Priority::Change).expect("the burst is two");
        let refused = limits.take(&asks, Priority::Read).expect_err("nothing is left");
        assert_eq!(refused.problem.code, Code::RateLimited);
        assert!(refused.retry_after.is_some());
        limits.take(&asks, Priority::Metering).expect("metering has its own bucket");
    }

    #[test]
    fn keys_of_one_tenant_share_its_bucket_and_root_has_none() {
        let limits = limits(100, 1);
        for _ in 0..2 {
            limits.take(&principal("acme:a"), Priority::Read).expect("the burst is two");
        }
        assert!(limits.take(&principal("acme:b"), Priority::Read).is_err());
        limits.take(&principal("other"), Priority::Read).expect("another tenant");
        for _ in 0..10 {
            let headers = limits.take(&Principal::root(), Priority::Read).expect("exempt");
            assert!(headers.is_empty());
        }
    }

    #[test]
    fn operations_have_a_bucket_of_their_own_that_a_tenant_shares() {
        let rate = NonZeroU32::new(100).expect("not zero");
        let limits = Limits::new(LimitOptions { operations: rate, ..LimitOptions::default() });
        limits.take_operations(&principal("acme:a"), 150).expect("the burst is 200");
        let refused = limits.take_operations(&principal("acme:b"), 100).expect_err("50 are left");
        assert_eq!(refused.problem.code, Code::RateLimited);
        assert!(refused.retry_after.is_some());
        limits.take(&principal("acme:a"), Priority::Change).expect("requests have their own");
        limits.take_operations(&principal("other"), 100).expect("another tenant");
        let never = limits.take_operations(&principal("third"), 201).expect_err("never so many");
        assert_eq!(never.problem.code, Code::InvalidField);
        limits.take_operations(&Principal::root(), 1_000_000).expect("exempt");
        // Records of usage are counted one by one too, and have their own bucket.
        limits.take_records(&principal("acme:a"), 150).expect("operations do not count");
        let refused = limits.take_records(&principal("acme:b"), 100).expect_err("50 are left");
        assert_eq!(refused.problem.code, Code::RateLimited);
        assert!(refused.problem.detail.contains("100 records"), "{}", refused.problem.detail);
    }

    #[test]
    fn reads_are_shed_before_changes_and_changes_before_metering() {
        let rate = NonZeroU32::new(8).expect("not zero");
        let load = Load::new(LimitOptions { in_flight: rate, ..LimitOptions::default() });
        let mut inside = Vec::new();
        // Metering has all eight places for itself, whatever else is in flight.
        for (priority, most) in
            [(Priority::Read, 4), (Priority::Change, 6), (Priority::Metering, 6 + 8)]
        {
            while let Some(admitted) = load.admit(priority) {
                inside.push(admitted);
            }
            assert_eq!(inside.len(), most, "{priority:?}");
        }
        drop(inside);
        assert_eq!(load.in_flight(), 0);
    }

    #[test]
    fn a_request_that_waits_gives_up_every_place_that_it_took() {
        let two = NonZeroU32::new(2).expect("not zero");
        let load = Load::new(LimitOptions { in_flight: two, ..LimitOptions::default() });
        for priority in [Priority::Metering, Priority::Change, Priority::Read] {
            let polls = [(); 4].map(|()| {
                let admitted = load.admit(priority).expect("those that wait are not counted");
                (load.aside(priority), admitted)
            });
            let next = load.admit(Priority::Metering).expect("there is room for a settlement");
            drop((polls, next));
        }
        assert_eq!(load.in_flight(), 0);
        assert_eq!(load.metering.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn delayed_answers_are_bounded() {
        let load = Load::new(LimitOptions::default());
        let mut held_back: Vec<_> = (0..MAX_HELD_BACK).map(|_| load.try_hold_back()).collect();
        assert!(held_back.iter().all(Option::is_some));
        assert!(load.try_hold_back().is_none(), "the next one is answered at once");
        held_back.pop();
        assert!(load.try_hold_back().is_some());
    }
}
