//! Waiting requests: long polls, event streams, followed logs, reads that wait for a position. They
//! do not count as requests in flight. Their number is limited in total, per tenant, per key and
//! per node.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bursar_api::Code;
use bursar_core::cell::NodeKey;
use bursar_core::ledger::id::CellNo;
use bursar_core::name::AccountPath;
use tokio::sync::Notify;

use crate::auth::Principal;
use crate::net::limits::LimitOptions;
use crate::request::{Failure, meta};
use crate::telemetry::monotonic::Stopwatch;

/// The `Retry-After` of a request that found no place to wait, in seconds.
const RETRY_SECONDS: u64 = 2;

/// How a request waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// For one answer, for some seconds.
    Poll,
    /// For one item after another, without end.
    Stream,
}

/// How many requests may wait at once.
#[derive(Copy, Clone, Debug)]
struct Bounds {
    all: usize,
    /// All tenants together; the rest is kept for the platform's agents.
    tenants: usize,
    /// One tenant, over all of its keys.
    tenant: usize,
    /// Streams of one key.
    streams: usize,
}

impl Bounds {
    fn new(all: usize) -> Bounds {
        let part = |of: usize| (all / of).max(1);
        Bounds { all, tenants: (all - all / 4).max(1), tenant: part(4), streams: part(32) }
    }
}

#[derive(Default)]
struct Counts {
    all: usize,
    tenants: usize,
    tenant: HashMap<AccountPath, usize>,
    /// Streams only, by the name of the key's rate limit.
    key: HashMap<String, usize>,
}

/// The number of a node's poll, and the notification that ends it early.
type Newest = (u64, Arc<Notify>);

/// The node that polls.
type NodeOf = (CellNo, NodeKey);

/// All waiting requests.
pub struct Waits {
    bounds: Bounds,
    counts: Mutex<Counts>,
    polls: Mutex<(u64, HashMap<NodeOf, Newest>)>,
}

/// A waiting request. Dropping it frees its place.
pub struct WaitPlace {
    waits: Arc<Waits>,
    tenant: Option<AccountPath>,
    key: Option<String>,
    since: Stopwatch,
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        // Latency is what the server takes, not what the request waits for.
        meta::note_waited(self.since.elapsed());
        let mut counts = lock(&self.waits.counts);
        counts.all -= 1;
        if let Some(tenant) = &self.tenant {
            counts.tenants -= 1;
            give_back(&mut counts.tenant, tenant);
        }
        if let Some(key) = &self.key {
            give_back(&mut counts.key, key);
        }
    }
}

/// Decrements a count and removes it at zero.
fn give_back<K: Hash + Eq>(counts: &mut HashMap<K, usize>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}

/// The poll of a node. The next poll of the same node ends it.
pub struct NodePoll {
    waits: Arc<Waits>,
    node: NodeOf,
    number: u64,
    ended: Arc<Notify>,
}

impl NodePoll {
    /// Returns once a newer poll of the node has arrived.
    pub async fn replaced(&self) {
        self.ended.notified().await;
    }
}

impl Drop for NodePoll {
    fn drop(&mut self) {
        let mut polls = lock(&self.waits.polls);
        if polls.1.get(&self.node).is_some_and(|(number, _)| *number == self.number) {
            polls.1.remove(&self.node);
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waits {
    /// Creates limits with nothing waiting.
    pub fn new(options: LimitOptions) -> Arc<Waits> {
        Waits::bounded(options.waiting.get() as usize)
    }

    /// Creates limits with so many places.
    pub fn bounded(places: usize) -> Arc<Waits> {
        let bounds = Bounds::new(places);
        Arc::new(Waits { bounds, counts: Mutex::default(), polls: Mutex::default() })
    }

    /// The number of waiting requests.
    pub fn count(&self) -> usize {
        lock(&self.counts).all
    }

    /// Takes a place to wait, or returns the refusal.
    pub fn enter(
        self: &Arc<Waits>,
        principal: &Principal,
        wait: Wait,
    ) -> Result<WaitPlace, Failure> {
        let mut counts = lock(&self.counts);
        let tenant = principal.tenant().map(AccountPath::unchecked);
        let key = (wait == Wait::Stream).then(|| principal.bucket());
        let of_key = key.as_ref().and_then(|key| counts.key.get(key)).copied().unwrap_or(0);
        if of_key >= self.bounds.streams {
            return Err(refusal(Code::RateLimited, "this key", of_key));
        }
        if let Some(tenant) = &tenant {
            let of_tenant = counts.tenant.get(tenant).copied().unwrap_or(0);
            if of_tenant >= self.bounds.tenant {
                return Err(refusal(Code::RateLimited, "this tenant", of_tenant));
            }
            if counts.tenants >= self.bounds.tenants {
                return Err(refusal(Code::Unavailable, "the server", counts.all));
            }
        }
        if counts.all >= self.bounds.all {
            return Err(refusal(Code::Unavailable, "the server", counts.all));
        }
        counts.all += 1;
        if let Some(tenant) = &tenant {
            counts.tenants += 1;
            *counts.tenant.entry(tenant.clone()).or_default() += 1;
        }
        if let Some(key) = &key {
            *counts.key.entry(key.clone()).or_default() += 1;
        }
        Ok(WaitPlace { waits: Arc::clone(self), tenant, key, since: Stopwatch::start() })
    }

    /// Registers the poll of a node and ends its previous one.
    pub fn poll_of(self: &Arc<Waits>, cell: CellNo, node: &NodeKey) -> NodePoll {
        let (node, ended) = ((cell, node.clone()), Arc::new(Notify::new()));
        let mut polls = lock(&self.polls);
        polls.0 += 1;
        let number = polls.0;
        if let Some((_, older)) = polls.1.insert(node.clone(), (number, Arc::clone(&ended))) {
            // The notification is stored if the poll does not listen yet.
            older.notify_one();
        }
        NodePoll { waits: Arc::clone(self), node, number, ended }
    }
}

fn refusal(code: Code, of: &str, count: usize) -> Failure {
    let detail = format!(
        "{of} has {count} waiting requests and may have no more; end one, ask without waiting, or \
         try again in {RETRY_SECONDS} s"
    );
    Failure::new(code, detail).retry_after(RETRY_SECONDS)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use bursar_api::system::key::Role;
    use bursar_core::time::Timestamp;

    use super::*;
    use crate::ids::IdMaker;
    use crate::net::limits::Priority;
    use crate::request::meta::Meta;

    fn waits(all: u32) -> Arc<Waits> {
        let waiting = NonZeroU32::new(all).expect("not zero");
        Waits::new(LimitOptions { waiting, ..LimitOptions::default() })
    }

    fn of(id: &str, scope: &str) -> Principal {
        Principal {
            id: id.into(),
            role: Role::Viewer,
            scope: Some(scope.into()),
            ..Principal::root()
        }
    }

    fn fill(waits: &Arc<Waits>, principal: &Principal, wait: Wait) -> (Vec<WaitPlace>, Code) {
        let mut places = Vec::new();
        loop {
            match waits.enter(principal, wait) {
                Ok(place) => places.push(place),
                Err(refused) => {
                    assert!(refused.retry_after.is_some());
                    return (places, refused.problem.code);
                }
            }
        }
    }

    #[test]
    fn one_tenant_takes_a_quarter_of_the_places_and_all_tenants_leave_a_quarter() {
        let waits = waits(64);
        let (acme, refused) = fill(&waits, &of("k", "acme:nlp"), Wait::Poll);
        assert_eq!((acme.len(), refused), (16, Code::RateLimited));
        assert!(waits.enter(&of("l", "acme"), Wait::Poll).is_err(), "another key of the tenant");
        let mut others = Vec::new();
        for tenant in ["b", "c"] {
            let (places, _) = fill(&waits, &of("k", tenant), Wait::Poll);
            assert_eq!(places.len(), 16);
            others.extend(places);
        }
        let (none, refused) = fill(&waits, &of("k", "d"), Wait::Poll);
        assert_eq!((none.len(), refused), (0, Code::Unavailable));
        let (platform, refused) = fill(&waits, &Principal::root(), Wait::Poll);
        assert_eq!((platform.len(), refused), (16, Code::Unavailable));
        assert_eq!(waits.count(), 64);
        drop((acme, others, platform));
        assert_eq!(waits.count(), 0);
        let counts = lock(&waits.counts);
        assert!(counts.tenant.is_empty() && counts.key.is_empty(), "nothing is kept of them");
    }

    #[test]
    fn streams_are_limited_for_each_key() {
        let waits = waits(64);
        let (streams, refused) = fill(&waits, &of("k", "acme"), Wait::Stream);
        assert_eq!((streams.len(), refused), (2, Code::RateLimited));
        waits.enter(&of("k", "acme"), Wait::Poll).map(drop).expect("polls are not streams");
        waits.enter(&of("l", "acme"), Wait::Stream).map(drop).expect("another key");
        waits.enter(&of("k", "zeta"), Wait::Stream).map(drop).expect("another tenant's key");
    }

    #[tokio::test]
    async fn what_a_request_waits_for_on_purpose_is_no_latency() {
        let meta = Meta {
            request_id: IdMaker::new(0).make_request_id(Timestamp::from_millis(0)),
            base_url: "http://127.0.0.1:7070".into(),
            min_position: None,
            body_timeout: Duration::MAX,
            priority: Priority::Read,
            bodies: None,
        };
        let waits = waits(64);
        let work = async {
            let mut waited = Duration::ZERO;
            for _ in 0..2 {
                let place = waits.enter(&Principal::root(), Wait::Poll).map_err(drop);
                let watch = Stopwatch::start();
                tokio::task::yield_now().await;
                waited += watch.elapsed();
                drop(place.expect("there is room"));
            }
            waited
        };
        let (waited, ended) = meta::scope(meta, work).await;
        assert!(waited > Duration::ZERO && ended.waited >= waited, "{ended:?}");
        assert_eq!(ended.problem, None);
    }

    #[tokio::test]
    async fn a_newer_poll_of_a_node_ends_the_older_and_no_other_nodes() {
        let waits = waits(64);
        let node = |name: &str, scope| NodeKey::new(name, scope);
        let first = waits.poll_of(CellNo(0), &node("n", None));
        let others = [
            waits.poll_of(CellNo(0), &node("m", None)),
            waits.poll_of(CellNo(1), &node("n", None)),
            waits.poll_of(CellNo(0), &node("n", Some("acme"))),
        ];
        let second = waits.poll_of(CellNo(0), &node("n", None));
        first.replaced().await;
        drop(first);
        for other in others.iter().chain([&second]) {
            let waits = tokio::time::timeout(std::time::Duration::ZERO, other.replaced()).await;
            assert!(waits.is_err());
        }
        drop((second, others));
        assert!(lock(&waits.polls).1.is_empty());
    }
}
