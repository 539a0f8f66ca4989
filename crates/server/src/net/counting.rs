//! Places for counts of what new budgets use. There are fewer than the ledger keeps counts, so that none
//! of them is forgotten while it goes on; and a tenant has a share of them, so that others need not wait
//! for what it has counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bursar_core::ledger::accounts::tally::MAX_COUNTED_IN_GROUP;
use bursar_core::name::AccountPath;
use bursar_engine::EngineError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::request::Failure;

/// Counts at once. The ledger keeps up to 64.
const MAX_COUNTS: usize = 48;

/// Counts of one tenant at once: as many as one atomic batch may need.
const MAX_COUNTS_OF_TENANT: usize = MAX_COUNTED_IN_GROUP;

/// Permits for counting, per tenant.
pub struct CountPlaces {
    all: Arc<Semaphore>,
    /// Of those that count or wait for a place. `None`: the platform.
    shares: Mutex<HashMap<Option<AccountPath>, Weak<Semaphore>>>,
}

/// Places that are taken. They are free when this is dropped.
pub struct CountPlace {
    _share: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Default for CountPlaces {
    fn default() -> CountPlaces {
        CountPlaces { all: Arc::new(Semaphore::new(MAX_COUNTS)), shares: Mutex::default() }
    }
}

impl CountPlaces {
    /// Waits for places to count what so many new budgets use.
    ///
    /// # Errors
    /// The server ends.
    pub async fn enter(&self, tenant: Option<&str>, budgets: usize) -> Result<CountPlace, Failure> {
        let share = self.share_of(tenant);
        let places = budgets.clamp(1, MAX_COUNTS_OF_TENANT) as u32;
        // The share comes first: what waits for the places of all is bounded for each tenant, too.
        let share = share.acquire_many_owned(places).await;
        let share = share.map_err(|_| EngineError::Internal)?;
        let place = Arc::clone(&self.all).acquire_many_owned(places).await;
        let place = place.map_err(|_| EngineError::Internal)?;
        Ok(CountPlace { _share: share, _place: place })
    }

    fn share_of(&self, tenant: Option<&str>) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let tenant = tenant.map(AccountPath::unchecked);
        if let Some(share) = shares.get(&tenant).and_then(Weak::upgrade) {
            return share;
        }
        // A share that nothing uses is full, and a new one is too.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(MAX_COUNTS_OF_TENANT));
        shares.insert(tenant, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn counts_of_one_tenant_leave_places_for_others() {
        let places = CountPlaces::default();
        let (mut taken, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..3 * MAX_COUNTS {
            let mut place = Box::pin(places.enter(Some("acme"), 1));
            match place.as_mut().now_or_never() {
                Some(place) => taken.push(place.expect("the server goes on")),
                None => waiting.push(place),
            }
        }
        assert_eq!(taken.len(), MAX_COUNTS_OF_TENANT);
        for tenant in [Some("umbra"), None] {
            let others = places.enter(tenant, MAX_COUNTED_IN_GROUP).now_or_never();
            assert!(others.is_some_and(|place| place.is_ok()), "{tenant:?} waits for acme");
        }
        taken.pop();
        let next = waiting[0].as_mut().now_or_never();
        assert!(next.is_some_and(|place| place.is_ok()), "the next one has its turn");
    }

    #[test]
    fn shares_that_nothing_uses_are_forgotten() {
        let places = CountPlaces::default();
        for number in 0..1000 {
            let tenant = format!("t{number}");
            let place = places.enter(Some(&tenant), 1).now_or_never();
            assert!(place.is_some_and(|place| place.is_ok()));
        }
        let shares = places.shares.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(shares.len(), 1);
    }
}
