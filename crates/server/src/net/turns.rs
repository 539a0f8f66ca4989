//! Turns at work that occupies a thread for a while, such as queries of history and look-ups in the
//! archive. So many run at once, and one tenant has at most a quarter of them. The others wait
//! without a thread, for a bounded time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_api::Code;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::request::{Failure, meta};

/// How long a request waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// The `Retry-After` of a request that did not get a turn, in seconds.
const RETRY_SECONDS: u64 = 2;

/// The places of one tenant, and how many requests of it wait for one or have one.
type TenantTurns = (usize, Arc<Semaphore>);

/// Work of one kind that runs on threads of the blocking pool.
pub(crate) struct Turns {
    /// Named in the refusal.
    what: &'static str,
    all: Arc<Semaphore>,
    of_tenant: usize,
    timeout: Duration,
    tenants: Mutex<HashMap<u64, TenantTurns>>,
}

/// A turn. The work keeps it until it is done, even if its caller goes away.
pub(crate) struct Turn {
    _own: OwnedSemaphorePermit,
    _one: OwnedSemaphorePermit,
    counted: Counted,
}

impl Turn {
    /// Whether others of the same tenant wait for a turn or have one.
    fn is_shared(&self) -> bool {
        let Counted { turns, tenant } = &self.counted;
        turns.lock().get(tenant).is_some_and(|(count, _)| *count > 1)
    }

    /// Ends a turn that took so long. If others of the same tenant wait, the next one begins after as long a pause: of
    /// the time, half is left to other tenants.
    pub(crate) fn end_after(self, taken: Duration) {
        if self.is_shared() {
            let Turn { _own: own, _one: one, counted } = self;
            // During the pause the place is free for other tenants.
            drop(one);
            tokio::spawn(async move {
                tokio::time::sleep(taken).await;
                drop((own, counted));
            });
        }
    }
}

/// A request that waits for a turn or has one.
struct Counted {
    turns: Arc<Turns>,
    tenant: u64,
}

impl Counted {
    fn of(turns: &Arc<Turns>, tenant: u64) -> (Counted, Arc<Semaphore>) {
        let new = || (0, Arc::new(Semaphore::new(turns.of_tenant)));
        let mut tenants = turns.lock();
        let (count, places) = tenants.entry(tenant).or_insert_with(new);
        *count += 1;
        (Counted { turns: Arc::clone(turns), tenant }, Arc::clone(places))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut tenants = self.turns.lock();
        if let Some((count, _)) = tenants.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                tenants.remove(&self.tenant);
            }
        }
    }
}

impl Turns {
    /// So many turns at once.
    pub(crate) fn new(what: &'static str, places: usize) -> Arc<Turns> {
        Turns::within(what, places, TURN_TIMEOUT)
    }

    fn within(what: &'static str, places: usize, timeout: Duration) -> Arc<Turns> {
        let (all, of_tenant) = (Arc::new(Semaphore::new(places)), (places / 4).max(1));
        Arc::new(Turns { what, all, of_tenant, timeout, tenants: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, TenantTurns>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for work that nothing waits for in vain: a turn comes at some time.
    pub(crate) fn unhurried(what: &'static str, places: usize) -> Arc<Turns> {
        Turns::within(what, places, Duration::MAX)
    }

    /// Waits for a turn of the tenant of this request, or of the server itself outside of one.
    pub(crate) async fn take(self: &Arc<Turns>) -> Result<Turn, Failure> {
        self.take_for(meta::sender()).await
    }

    /// Waits for a turn of a tenant.
    pub(crate) async fn take_for(self: &Arc<Turns>, tenant: u64) -> Result<Turn, Failure> {
        let (counted, places) = Counted::of(self, tenant);
        let taken = async {
            // The tenant's own place first: so no tenant has more than its share in the queue of all.
            let own = places.acquire_owned().await?;
            let one = Arc::clone(&self.all).acquire_owned().await?;
            Ok::<_, AcquireError>(Turn { _own: own, _one: one, counted })
        };
        match tokio::time::timeout(self.timeout, taken).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(error)) => Err(Failure::new(Code::Internal, error.to_string())),
            Err(_) => Err(self.refusal()),
        }
    }

    fn refusal(&self) -> Failure {
        let (seconds, what) = (self.timeout.as_secs(), self.what);
        let detail = format!(
            "this request waited {seconds} s for other {what}; send fewer at once, or try again in \
             {RETRY_SECONDS} s"
        );
        Failure::new(Code::Unavailable, detail).retry_after(RETRY_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn turns(places: usize) -> Arc<Turns> {
        Turns::within("queries", places, Duration::ZERO)
    }

    async fn refused(turns: &Arc<Turns>, tenant: u64) -> Option<Code> {
        let failure = turns.take_for(tenant).await.err()?;
        assert!(failure.retry_after.is_some());
        Some(failure.problem.code)
    }

    #[tokio::test]
    async fn one_tenant_has_a_quarter_of_the_turns_and_the_others_the_rest() {
        let turns = turns(16);
        let mut kept = Vec::new();
        for tenant in 0..4 {
            for _ in 0..4 {
                kept.push(turns.take_for(tenant).await.map_err(|_| tenant).expect("its share"));
            }
            assert_eq!(refused(&turns, tenant).await, Some(Code::Unavailable), "{tenant}");
        }
        assert_eq!(refused(&turns, 4).await, Some(Code::Unavailable), "all are taken");
        drop(kept.pop());
        assert_eq!(refused(&turns, 4).await, None, "the next one is any tenant's");
        drop(kept);
        assert!(turns.lock().is_empty(), "nothing is kept of them");
        assert_eq!(turns.all.available_permits(), 16);
    }

    #[tokio::test]
    async fn a_tenant_with_many_requests_pauses_between_its_turns() {
        let (turns, taken) = (Turns::unhurried("readings", 4), Duration::from_millis(1));
        let first = turns.take_for(1).await.map_err(|_| ()).expect("free");
        let mut second = Box::pin(turns.take_for(1));
        assert!(second.as_mut().now_or_never().is_none(), "one at a time");
        assert!(turns.take_for(2).now_or_never().is_some(), "another tenant is served at once");
        first.end_after(taken);
        // The pause cannot pass before this task waits.
        assert!(second.as_mut().now_or_never().is_none(), "a pause comes first");
        let second = second.await.map_err(|_| ()).expect("its turn comes");
        second.end_after(taken);
        assert!(turns.take_for(1).now_or_never().is_some(), "no pause: no other waits");
    }

    #[tokio::test]
    async fn a_pause_of_one_tenant_leaves_the_place_to_another() {
        let turns = Turns::unhurried("readings", 1);
        let first = turns.take_for(1).await.map_err(|_| ()).expect("free");
        let mut second = Box::pin(turns.take_for(1));
        assert!(second.as_mut().now_or_never().is_none(), "one at a time");
        first.end_after(Duration::from_secs(3_600));
        assert!(turns.take_for(2).now_or_never().is_some(), "the place is free during the pause");
        assert!(second.as_mut().now_or_never().is_none(), "a pause comes first");
    }

    #[tokio::test]
    async fn a_tenant_with_many_requests_has_only_its_share_in_the_queue() {
        let turns = Turns::new("queries", 8);
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(turns.take_for(1))).collect();
        let taken = waiting.iter_mut().filter_map(FutureExt::now_or_never);
        let taken: Vec<_> = taken.map(|turn| turn.map_err(|_| ()).expect("free")).collect();
        assert_eq!(taken.len(), 2);
        assert!(turns.take_for(2).now_or_never().is_some(), "another tenant is served at once");
        drop((waiting, taken));
        assert!(turns.lock().is_empty());
    }
}
