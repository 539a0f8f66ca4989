//! A pool of named resources, and groups that limit how many jobs run at once.
//!
//! Counting only: the caller handles clients, replies and ids.

use std::collections::{BTreeMap, VecDeque};

/// Amounts of named resources, each named once, in the requested order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts(Vec<(String, u64)>);

impl Amounts {
    /// Adds to an amount; `false`, and nothing changes, if the sum is too large to count.
    pub(super) fn add(&mut self, resource: &str, amount: u64) -> bool {
        if let Some((_, sum)) = self.0.iter_mut().find(|(name, _)| name == resource) {
            let Some(larger) = sum.checked_add(amount) else { return false };
            *sum = larger;
        } else {
            self.0.push((resource.into(), amount));
        }
        true
    }

    /// The resources and their amounts.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Whether there are no amounts.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A granted request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Allocation(pub(super) u64);

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AllocationAnswer {
    /// All resources were free.
    Allocated(Allocation),
    /// Some were not; the request is granted later unless it exceeds the capacity.
    Queued(Vec<Shortage>),
}

/// A resource that a request has to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    /// The resource.
    pub(super) resource: String,
    /// The free amount.
    pub(super) available: u64,
    /// The required amount.
    pub(super) required: u64,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Resource {
    capacity: u64,
    free: u64,
    /// The total of waiting requests. Each fits the pool, but the total may not.
    awaited: u128,
}

/// A pool that serves requests first come, first served.
///
/// A later request never takes resources that an earlier one waits for, but it need not wait for
/// resources that no earlier one lacks. A request above the capacity never blocks another.
#[derive(Clone, Debug)]
pub(super) struct Pool<T> {
    resources: BTreeMap<String, Resource>,
    held: BTreeMap<Allocation, Amounts>,
    waiting: VecDeque<(Amounts, T)>,
    next: u64,
}

impl<T> Pool<T> {
    /// A pool with this capacity, all free.
    pub(super) fn new(capacity: &Amounts) -> Pool<T> {
        let resource = |amount| Resource { capacity: amount, free: amount, awaited: 0 };
        let resources =
            capacity.iter().map(|(name, amount)| (name.into(), resource(amount))).collect();
        Pool { resources, held: BTreeMap::new(), waiting: VecDeque::new(), next: 0 }
    }

    /// Requests resources. `ticket` is returned when a queued request is granted; one that
    /// can never be granted is not kept.
    pub(super) fn allocate(&mut self, wanted: Amounts, ticket: T) -> AllocationAnswer {
        let lacks = |resource: &Resource, amount: u64| {
            u128::from(resource.free) < resource.awaited + u128::from(amount)
        };
        let mut shortages = Vec::new();
        let mut possible = true;
        for (name, required) in wanted.iter() {
            let resource = self.resources.get(name).copied().unwrap_or_default();
            possible &= required <= resource.capacity;
            if lacks(&resource, required) {
                let available = resource.free;
                shortages.push(Shortage { resource: name.into(), available, required });
            }
        }
        if shortages.is_empty() {
            return AllocationAnswer::Allocated(self.grant(wanted));
        }
        if possible {
            for (name, amount) in wanted.iter() {
                self.resource(name).awaited += u128::from(amount);
            }
            self.waiting.push_back((wanted, ticket));
        } else {
            // Resources that earlier requests wait for are not short.
            shortages.retain(|shortage| shortage.required > shortage.available);
        }
        AllocationAnswer::Queued(shortages)
    }

    /// Releases an allocation. Returns the freed amounts and the requests that are granted now, in
    /// order. `None` if it does not exist.
    pub(super) fn release(&mut self, allocation: Allocation) -> Option<(Amounts, Vec<Granted<T>>)> {
        let freed = self.held.remove(&allocation)?;
        for (name, amount) in freed.iter() {
            let resource = self.resource(name);
            resource.free += amount;
            assert!(resource.free <= resource.capacity, "more came back than there is");
        }
        Some((freed, self.grant_waiting()))
    }

    /// The amounts of an allocation.
    #[cfg(test)]
    pub(super) fn held(&self, allocation: Allocation) -> Option<&Amounts> {
        self.held.get(&allocation)
    }

    /// The free amount of a resource.
    pub(super) fn free(&self, resource: &str) -> u64 {
        self.resources.get(resource).map_or(0, |resource| resource.free)
    }

    /// The number of waiting requests.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn grant_waiting(&mut self) -> Vec<Granted<T>> {
        let mut granted = Vec::new();
        // The amounts that earlier requests still wait for, by resource.
        let mut promised: BTreeMap<String, u128> = BTreeMap::new();
        for (wanted, ticket) in std::mem::take(&mut self.waiting) {
            let fits = wanted.iter().all(|(name, amount)| {
                let ahead = promised.get(name).copied().unwrap_or(0);
                u128::from(self.free(name)) >= ahead + u128::from(amount)
            });
            if fits {
                for (name, amount) in wanted.iter() {
                    self.resource(name).awaited -= u128::from(amount);
                }
                let resources = wanted.clone();
                granted.push(Granted { allocation: self.grant(wanted), resources, ticket });
            } else {
                for (name, amount) in wanted.iter() {
                    *promised.entry(name.into()).or_default() += u128::from(amount);
                }
                self.waiting.push_back((wanted, ticket));
            }
        }
        granted
    }

    fn grant(&mut self, wanted: Amounts) -> Allocation {
        for (name, amount) in wanted.iter() {
            let resource = self.resource(name);
            resource.free = resource.free.checked_sub(amount).expect("it was found to be free");
        }
        let allocation = Allocation(self.next);
        self.next += 1;
        self.held.insert(allocation, wanted);
        allocation
    }

    fn resource(&mut self, name: &str) -> &mut Resource {
        self.resources.get_mut(name).expect("only resources of the pool are granted or awaited")
    }
}

/// A waiting request that is granted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Granted<T> {
    /// Its allocation.
    pub(super) allocation: Allocation,
    /// Its amounts.
    pub(super) resources: Amounts,
    /// The ticket of the request.
    pub(super) ticket: T,
}

/// Jobs of one category with a concurrency limit.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConcurrencyGroup {
    /// The most jobs that run at once.
    limit: u64,
    running: u64,
    waiting: u64,
}

impl ConcurrencyGroup {
    /// Adds jobs and sets the limit. Returns how many of the jobs have to wait.
    /// `None`, and nothing changes, if there would be too many to count.
    pub(super) fn submit(&mut self, jobs: u64, limit: u64) -> Option<u64> {
        self.running.checked_add(self.waiting)?.checked_add(jobs)?;
        self.waiting += jobs;
        self.limit = limit;
        self.start();
        Some(jobs.min(self.waiting))
    }

    /// Ends up to this many running jobs and starts waiting ones. Returns how many
    /// ended.
    pub(super) fn finish(&mut self, jobs: u64) -> u64 {
        let ended = jobs.min(self.running);
        self.running -= ended;
        self.start();
        ended
    }

    /// The number of running jobs.
    pub(super) fn running(self) -> u64 {
        self.running
    }

    /// The number of waiting jobs.
    pub(super) fn waiting(self) -> u64 {
        self.waiting
    }

    fn start(&mut self) {
        let started = self.limit.saturating_sub(self.running).min(self.waiting);
        self.running += started;
        self.waiting -= started;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amounts(list: &[(&str, u64)]) -> Amounts {
        let mut amounts = Amounts::default();
        list.iter().for_each(|(name, amount)| assert!(amounts.add(name, *amount)));
        amounts
    }

    fn pool() -> Pool<u32> {
        Pool::new(&amounts(&[("cpu", 8), ("memory", 16), ("gpu", 2)]))
    }

    fn allocated(answer: AllocationAnswer) -> Allocation {
        match answer {
            AllocationAnswer::Allocated(allocation) => allocation,
            AllocationAnswer::Queued(shortages) => panic!("queued for {shortages:?}"),
        }
    }

    fn shortage(resource: &str, available: u64, required: u64) -> Shortage {
        Shortage { resource: resource.into(), available, required }
    }

    #[test]
    fn the_same_resource_named_twice_is_asked_for_once() {
        assert_eq!(
            amounts(&[("cpu", 2), ("gpu", 1), ("cpu", 3)]),
            amounts(&[("cpu", 5), ("gpu", 1)])
        );
        assert!(!amounts(&[("cpu", u64::MAX)]).add("cpu", 1));
    }

    #[test]
    fn a_release_grants_what_waited_longest() {
        let mut pool = pool();
        let first = allocated(pool.allocate(amounts(&[("gpu", 2), ("cpu", 1)]), 1));
        let short = |required| AllocationAnswer::Queued(vec![shortage("gpu", 0, required)]);
        assert_eq!(pool.allocate(amounts(&[("gpu", 2)]), 2), short(2));
        assert_eq!(pool.allocate(amounts(&[("gpu", 1)]), 3), short(1));
        let (freed, granted) = pool.release(first).expect("it is held");
        assert_eq!(freed, amounts(&[("gpu", 2), ("cpu", 1)]));
        assert_eq!(granted.iter().map(|granted| granted.ticket).collect::<Vec<_>>(), [2]);
        let (_, granted) = pool.release(granted[0].allocation).expect("it is held");
        assert_eq!(granted.iter().map(|granted| granted.ticket).collect::<Vec<_>>(), [3]);
        assert_eq!(pool.release(first), None);
    }

    #[test]
    fn a_later_request_never_takes_a_resource_that_an_earlier_one_waits_for() {
        let mut pool = pool();
        allocated(pool.allocate(amounts(&[("gpu", 1)]), 1));
        assert!(matches!(
            pool.allocate(amounts(&[("gpu", 2), ("cpu", 6)]), 2),
            AllocationAnswer::Queued(_)
        ));
        // One GPU and eight CPUs are free, but a GPU and six CPUs are awaited.
        let behind = AllocationAnswer::Queued(vec![shortage("gpu", 1, 1)]);
        assert_eq!(pool.allocate(amounts(&[("gpu", 1)]), 3), behind);
        let behind = AllocationAnswer::Queued(vec![shortage("cpu", 8, 3)]);
        assert_eq!(pool.allocate(amounts(&[("cpu", 3)]), 4), behind);
        allocated(pool.allocate(amounts(&[("memory", 16)]), 5));
    }

    #[test]
    fn resources_that_no_request_lacks_are_granted() {
        let mut pool = pool();
        allocated(pool.allocate(amounts(&[("gpu", 2)]), 1));
        assert!(matches!(
            pool.allocate(amounts(&[("gpu", 1), ("cpu", 2)]), 2),
            AllocationAnswer::Queued(_)
        ));
        allocated(pool.allocate(amounts(&[("cpu", 6)]), 3));
        assert!(matches!(pool.allocate(amounts(&[("cpu", 1)]), 4), AllocationAnswer::Queued(_)));
    }

    #[test]
    fn more_than_there_is_blocks_no_request() {
        let mut pool = pool();
        let never = pool.allocate(amounts(&[("gpu", 4), ("cpu", 1)]), 1);
        assert_eq!(never, AllocationAnswer::Queued(vec![shortage("gpu", 2, 4)]));
        let unknown = pool.allocate(amounts(&[("tpu", 1)]), 1);
        assert_eq!(unknown, AllocationAnswer::Queued(vec![shortage("tpu", 0, 1)]));
        assert_eq!(pool.waiting(), 0);
        allocated(pool.allocate(amounts(&[("gpu", 2)]), 2));
    }

    #[test]
    fn a_group_runs_as_many_as_its_limit() {
        let mut heavy = ConcurrencyGroup::default();
        assert_eq!(heavy.submit(3, 2), Some(1));
        assert_eq!((heavy.running(), heavy.waiting()), (2, 1));
        assert_eq!(heavy.submit(2, 2), Some(2));
        assert_eq!((heavy.running(), heavy.waiting()), (2, 3));
        assert_eq!(heavy.finish(1), 1);
        assert_eq!((heavy.running(), heavy.waiting()), (2, 2));
        assert_eq!(heavy.submit(0, 5), Some(0));
        assert_eq!((heavy.running(), heavy.waiting()), (4, 0));
        assert_eq!(heavy.finish(9), 4);
        assert_eq!((heavy.running(), heavy.waiting()), (0, 0));
        assert_eq!(heavy.submit(u64::MAX, 1), Some(u64::MAX - 1));
        assert_eq!(heavy.submit(1, 1), None);
    }

    proptest! {
        #[test]
        fn no_resource_is_lost_and_every_possible_request_is_granted(
            steps in prop::collection::vec((0..4u64, 0..9u64, 0..4u64, any::<bool>(), any::<prop::sample::Index>()), 1..60),
        ) {
            let mut pool = pool();
            let mut held = Vec::new();
            for (gpu, cpu, memory, release, index) in steps {
                if release && !held.is_empty() {
                    let allocation = held.swap_remove(index.index(held.len()));
                    let (_, granted) = pool.release(allocation).expect("it is held");
                    held.extend(granted.into_iter().map(|granted| granted.allocation));
                } else {
                    let wanted = [("gpu", gpu), ("cpu", cpu), ("memory", memory)];
                    let wanted: Vec<_> = wanted.into_iter().filter(|(_, amount)| *amount > 0).collect();
                    if let AllocationAnswer::Allocated(allocation) = pool.allocate(amounts(&wanted), 0) {
                        held.push(allocation);
                    }
                }
                for (name, capacity) in [("gpu", 2), ("cpu", 8), ("memory", 16)] {
                    let in_use: u64 = held
                        .iter()
                        .flat_map(|allocation| pool.held(*allocation).expect("it is held").iter())
                        .filter(|(resource, _)| *resource == name)
                        .map(|(_, amount)| amount)
                        .sum();
                    prop_assert_eq!(in_use + pool.free(name), capacity);
                }
            }
            while let Some(allocation) = held.pop() {
                let (_, granted) = pool.release(allocation).expect("it is held");
                held.extend(granted.into_iter().map(|granted| granted.allocation));
            }
            prop_assert_eq!(pool.waiting(), 0);
        }
    }
}
