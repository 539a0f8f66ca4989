//! Lanes: waiting jobs, and the choice of the next one.
//!
//! Each account has a lane per class: its own waiting jobs by request, and the accounts below it
//! that have waiting jobs, in the order of their shares. The next job is found by descending from
//! the root, at each level into the lowest share that has a request worth trying. Parked requests
//! are excluded by one bit each, so a hundred thousand jobs that cannot start cost nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::accounts::{Accounts, ROOT};
use super::decay::ShareKey;
use crate::cell::ids::{AccountId, ClassRank, JobId, RequestId};
use crate::cell::index::bitset::Bits;
use crate::cell::index::interner::InternedId;

/// The order of submission in milliseconds, kept over requeues. Equal tickets are ordered by job
/// number.
pub(crate) type Ticket = u64;

/// The jobs that wait in one class at and below one account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    /// The number of jobs at and below the account.
    pub(crate) waiting: u32,
    /// The number of these jobs by request.
    counts: BTreeMap<RequestId, u32>,
    /// The requests in `counts`.
    mask: Bits,
    /// Children with waiting jobs, and the account itself if its own jobs wait.
    order: BTreeSet<(ShareKey, AccountId)>,
    /// The account's own jobs.
    own: BTreeMap<RequestId, BTreeSet<(Ticket, JobId)>>,
    /// The first of the account's own jobs with each request, in the order of submission.
    heads: BTreeSet<(Ticket, JobId, RequestId)>,
}

impl Lane {
    /// Moves a child to its new position, if it waits here.
    pub(crate) fn reorder(&mut self, child: AccountId, before: ShareKey, after: ShareKey) {
        if before != after && self.order.remove(&(before, child)) {
            self.order.insert((after, child));
        }
    }

    pub(crate) fn reorder_all(&mut self, key: impl Fn(AccountId) -> ShareKey) {
        let order = std::mem::take(&mut self.order);
        self.order = order.into_iter().map(|(_, child)| (key(child), child)).collect();
    }

    fn count(&mut self, request: RequestId) {
        self.waiting += 1;
        *self.counts.entry(request).or_insert(0) += 1;
        self.mask.insert(request.index());
    }

    fn uncount(&mut self, request: RequestId) {
        self.waiting -= 1;
        let count = self.counts.get_mut(&request).expect("a dequeued job was counted in its lane");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&request);
            self.mask.remove(request.index());
        }
    }

    /// The account's own jobs by request.
    pub(crate) fn own(&self) -> &BTreeMap<RequestId, BTreeSet<(Ticket, JobId)>> {
        &self.own
    }

    /// Children in order, including the account itself.
    pub(crate) fn order(&self) -> &BTreeSet<(ShareKey, AccountId)> {
        &self.order
    }

    /// How many jobs at and below the account wait with each request.
    pub(crate) fn counts(&self) -> &BTreeMap<RequestId, u32> {
        &self.counts
    }

    /// The requests in `counts`, one bit each.
    pub(crate) fn mask(&self) -> &Bits {
        &self.mask
    }

    /// The earliest submitted of the account's own jobs among the requests to be tried.
    fn first_own(&self, only: Option<&Bits>, except: &Bits) -> Option<JobId> {
        let mut heads = self.heads.iter();
        let head = heads.find(|(_, _, request)| {
            let index = request.index();
            !except.contains(index) && only.is_none_or(|only| only.contains(index))
        });
        head.map(|(_, job, _)| *job)
    }

    fn add_own(&mut self, request: RequestId, ticket: Ticket, job: JobId) {
        let jobs = self.own.entry(request).or_default();
        let head = jobs.first().copied();
        assert!(jobs.insert((ticket, job)), "a job waits once");
        if head.is_none_or(|head| (ticket, job) < head) {
            if let Some((ticket, job)) = head {
                self.heads.remove(&(ticket, job, request));
            }
            self.heads.insert((ticket, job, request));
        }
    }

    fn remove_own(&mut self, request: RequestId, ticket: Ticket, job: JobId) {
        let jobs = self.own.get_mut(&request).expect("a waiting job has a lane");
        assert!(jobs.remove(&(ticket, job)), "a waiting job is in its lane");
        if self.heads.remove(&(ticket, job, request))
            && let Some((ticket, job)) = jobs.first()
        {
            self.heads.insert((*ticket, *job, request));
        }
        if jobs.is_empty() {
            self.own.remove(&request);
        }
    }

    /// Whether `heads` has the first job of each request.
    pub(crate) fn has_right_heads(&self) -> bool {
        let mut heads: Vec<_> = self
            .own
            .iter()
            .filter_map(|(request, jobs)| {
                jobs.first().map(|(ticket, job)| (*ticket, *job, *request))
            })
            .collect();
        heads.sort_unstable();
        heads.len() == self.own.len() && heads.iter().eq(self.heads.iter())
    }
}

/// The position of a waiting job.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiter {
    pub(crate) account: AccountId,
    pub(crate) class: ClassRank,
    pub(crate) request: RequestId,
    pub(crate) ticket: Ticket,
    pub(crate) job: JobId,
}

impl Accounts {
    /// Adds a waiting job to its lane.
    pub(crate) fn enqueue(&mut self, waiter: Waiter) {
        let Waiter { account, class, request, ticket, job } = waiter;
        let own_key = self.get(account).own_key();
        let lane = self.get_mut(account).lane_mut(class);
        if lane.own.is_empty() {
            lane.order.insert((own_key, account));
        }
        lane.add_own(request, ticket, job);
        let mut next = Some(account);
        while let Some(id) = next {
            let account = self.get_mut(id);
            let (key, parent) = (account.key(), account.parent);
            let lane = account.lane_mut(class);
            lane.count(request);
            let first = lane.waiting == 1;
            if let Some(parent) = parent.filter(|_| first) {
                self.get_mut(parent).lane_mut(class).order.insert((key, id));
            }
            next = parent;
        }
    }

    /// Removes a waiting job from its lane.
    pub(crate) fn dequeue(&mut self, waiter: Waiter) {
        let Waiter { account, class, request, ticket, job } = waiter;
        let own_key = self.get(account).own_key();
        let lane = self.get_mut(account).lane_mut(class);
        lane.remove_own(request, ticket, job);
        if lane.own.is_empty() {
            lane.order.remove(&(own_key, account));
        }
        let mut next = Some(account);
        while let Some(id) = next {
            let account = self.get_mut(id);
            let (key, parent) = (account.key(), account.parent);
            let lane = account.lane_mut(class);
            lane.uncount(request);
            let empty = lane.waiting == 0;
            if let Some(parent) = parent.filter(|_| empty) {
                self.get_mut(parent).lane_mut(class).order.remove(&(key, id));
            }
            next = parent;
        }
    }

    /// The next job of a class by fair share, among requests that are in `only` (if given), not in
    /// `except` and not blocked by a quota on the path.
    pub(crate) fn next(
        &self,
        class: ClassRank,
        only: Option<&Bits>,
        except: &Bits,
    ) -> Option<JobId> {
        self.next_below(ROOT, class, only, except)
    }

    fn next_below(
        &self,
        id: AccountId,
        class: ClassRank,
        only: Option<&Bits>,
        except: &Bits,
    ) -> Option<JobId> {
        let account = self.get(id);
        let lane = account.lane(class)?;
        if account.frozen || !lane.mask.any_of(only, except) {
            return None;
        }
        let with_blocked;
        let except = if account.blocked.is_empty() {
            except
        } else {
            let mut all = except.clone();
            all.add_all(&account.blocked);
            with_blocked = all;
            &with_blocked
        };
        lane.order.iter().find_map(|(_, child)| {
            if *child == id {
                lane.first_own(only, except)
            } else {
                self.next_below(*child, class, only, except)
            }
        })
    }

    /// Whether no freeze or known quota block on an account's path excludes a request.
    pub(crate) fn is_open(&self, account: AccountId, request: RequestId) -> bool {
        self.path(account).all(|id| {
            let account = self.get(id);
            !account.frozen && !account.blocked.contains(request.index())
        })
    }

    /// How many jobs of the class are ahead of this one if all shares stayed as they are.
    pub(crate) fn ahead(&self, waiter: Waiter) -> u64 {
        let own = self.get(waiter.account);
        let Some(lane) = own.lane(waiter.class) else { return 0 };
        let earlier = |jobs: &BTreeSet<(Ticket, JobId)>| {
            jobs.range(..(waiter.ticket, waiter.job)).count() as u64
        };
        let mut ahead: u64 = lane.own.values().map(earlier).sum();
        let mut place = (own.own_key(), waiter.account);
        for id in self.path(waiter.account) {
            let account = self.get(id);
            let Some(lane) = account.lane(waiter.class) else { continue };
            for (_, sibling) in lane.order.range(..place) {
                ahead += u64::from(if *sibling == id {
                    lane.own_waiting()
                } else {
                    self.get(*sibling).lane(waiter.class).map_or(0, |lane| lane.waiting)
                });
            }
            place = (account.key(), id);
        }
        ahead
    }
}

impl Lane {
    fn own_waiting(&self) -> u32 {
        // A lane counts its jobs in 32 bits.
        self.own.values().map(|jobs| jobs.len() as u32).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::share::decay::Decay;
    use crate::time::Timestamp;

    const CLASS: ClassRank = ClassRank::NORMAL;

    fn tree() -> Accounts {
        Accounts::new(Decay::new(1000, Timestamp::from_millis(0)))
    }

    fn add(accounts: &mut Accounts, path: &str, request: u32, ticket: u64) -> Waiter {
        let waiter = Waiter {
            account: accounts.ensure(path),
            class: CLASS,
            request: RequestId(request),
            ticket,
            job: JobId(ticket),
        };
        accounts.enqueue(waiter);
        waiter
    }

    fn next(accounts: &Accounts) -> Option<u64> {
        accounts.next(CLASS, None, &Bits::default()).map(|job| job.0)
    }

    #[test]
    fn the_lowest_share_goes_first_at_every_level_and_then_the_earliest() {
        let mut accounts = tree();
        let first = add(&mut accounts, "a:x", 0, 1);
        add(&mut accounts, "a:y", 0, 2);
        add(&mut accounts, "b:z", 0, 3);
        add(&mut accounts, "b:z", 1, 4);
        assert_eq!(next(&accounts), Some(1));
        accounts.charge(first.account, 10, 0);
        assert_eq!(next(&accounts), Some(3), "tenant a has used more than b");
        accounts.charge(accounts.find("b:z").expect("added"), 20, 0);
        assert_eq!(next(&accounts), Some(2), "of a's users, y has used less");
    }

    #[test]
    fn an_account_with_jobs_of_its_own_competes_with_its_children() {
        let mut accounts = tree();
        let own = add(&mut accounts, "a", 0, 1);
        let child = add(&mut accounts, "a:x", 0, 2);
        assert_eq!(next(&accounts), Some(1));
        accounts.charge(own.account, 5, 0);
        assert_eq!(next(&accounts), Some(2));
        accounts.charge(child.account, 6, 0);
        assert_eq!(next(&accounts), Some(1));
        assert_eq!(accounts.get(own.account).usage, 11);
        assert_eq!(accounts.get(own.account).own_usage, 5);
    }

    #[test]
    fn excluded_requests_do_not_block_others() {
        let mut accounts = tree();
        add(&mut accounts, "a", 7, 1);
        add(&mut accounts, "a", 8, 2);
        add(&mut accounts, "b", 7, 3);
        let mut except = Bits::default();
        except.insert(7);
        assert_eq!(accounts.next(CLASS, None, &except), Some(JobId(2)));
        assert_eq!(accounts.next(CLASS, Some(&except), &Bits::default()), Some(JobId(1)));
        let a = accounts.find("a").expect("added");
        accounts.get_mut(a).blocked.insert(7);
        assert_eq!(accounts.next(CLASS, Some(&except), &Bits::default()), Some(JobId(3)));
        accounts.get_mut(ROOT).frozen = true;
        assert_eq!(next(&accounts), None);
    }

    #[test]
    fn dequeued_jobs_are_removed_from_every_level() {
        let mut accounts = tree();
        let waiters: Vec<_> = ["a:x", "a:x", "a", "b"]
            .iter()
            .zip(1..)
            .map(|(path, n)| add(&mut accounts, path, 0, n))
            .collect();
        assert_eq!(accounts.ahead(waiters[3]), 3);
        assert_eq!(accounts.ahead(waiters[1]), 2, "one of x and a's own");
        for waiter in waiters {
            accounts.dequeue(waiter);
        }
        assert_eq!(next(&accounts), None);
        for (_, account) in accounts.iter() {
            let lane = account.lane(CLASS).expect("was used");
            assert!(lane.waiting == 0 && lane.order.is_empty() && lane.mask.is_empty());
        }
    }
}
