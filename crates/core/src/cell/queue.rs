//! Who waits, and who is next.
//!
//! Each account has a lane per class: its own waiting jobs by request, and the accounts below it
//! that have waiting jobs, in the order of their shares. Who is next is found by walking down from
//! the root, at each level along the lowest share that still has a request worth trying. Requests
//! that were tried in vain are left out by one bit each, so a hundred thousand jobs that cannot
//! start now cost nothing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::account::{Accounts, ROOT};
use super::bits::Bits;
use super::ids::{AccountId, ClassRank, JobId, RequestId};
use super::intern::InternedId;
use super::share::ShareKey;

/// The order of submission, unique in a cell and kept over requeues.
pub(crate) type Ticket = u64;

/// Who waits in one class at and below one account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    /// Jobs at and below the account.
    pub(crate) waiting: u32,
    /// How many of them by request.
    counts: BTreeMap<RequestId, u32>,
    /// The requests in `counts`.
    mask: Bits,
    /// Children with waiting jobs, and the account itself if it has some of its own.
    order: BTreeSet<(ShareKey, AccountId)>,
    /// The account's own jobs.
    own: BTreeMap<RequestId, Line>,
}

/// Jobs with one request, in the order of submission. Never empty in a lane.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The first of them, kept here because it is what is asked for.
    first: (Ticket, JobId),
    pub(crate) jobs: BTreeSet<(Ticket, JobId)>,
}

impl Line {
    fn new(job: (Ticket, JobId)) -> Line {
        Line { first: job, jobs: BTreeSet::from([job]) }
    }

    fn insert(&mut self, job: (Ticket, JobId)) -> bool {
        self.first = self.first.min(job);
        self.jobs.insert(job)
    }

    /// Removes a job; answers whether any are left.
    fn remove(&mut self, job: (Ticket, JobId)) -> bool {
        assert!(self.jobs.remove(&job), "a waiting job is in its lane");
        match self.jobs.first() {
            Some(first) => {
                self.first = *first;
                true
            }
            None => false,
        }
    }
}

impl Lane {
    /// Moves a child to its new place, if it waits here.
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
        let count = self.counts.get_mut(&request).expect("what leaves a lane was counted in it");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&request);
            self.mask.remove(request.index());
        }
    }

    /// The account's own jobs by request.
    pub(crate) fn own(&self) -> &BTreeMap<RequestId, Line> {
        &self.own
    }

    /// Children in order, the account itself among them.
    pub(crate) fn order(&self) -> &BTreeSet<(ShareKey, AccountId)> {
        &self.order
    }

    /// How many jobs at and below the account wait with each request.
    pub(crate) fn counts(&self) -> &BTreeMap<RequestId, u32> {
        &self.counts
    }

    /// The requests that are waited with, one bit each.
    pub(crate) fn mask(&self) -> &Bits {
        &self.mask
    }

    /// The account's own job that was submitted first among the requests to be tried.
    fn first_own(&self, only: Option<&Bits>, except: &Bits) -> Option<(Ticket, JobId)> {
        let tried = self.own.iter().filter(|(request, _)| {
            let index = request.index();
            !except.contains(index) && only.is_none_or(|only| only.contains(index))
        });
        tried.map(|(_, line)| line.first).min()
    }
}

/// Where a job waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) account: AccountId,
    pub(crate) class: ClassRank,
    pub(crate) request: RequestId,
    pub(crate) ticket: Ticket,
    pub(crate) job: JobId,
}

impl Accounts {
    /// Lets a job wait its turn.
    pub(crate) fn enqueue(&mut self, waiter: Waiter) {
        let Waiter { account, class, request, ticket, job } = waiter;
        let own_key = self.get(account).own_key();
        let lane = self.get_mut(account).lane_mut(class);
        if lane.own.is_empty() {
            lane.order.insert((own_key, account));
        }
        match lane.own.entry(request) {
            Entry::Vacant(entry) => {
                entry.insert(Line::new((ticket, job)));
            }
            Entry::Occupied(mut entry) => {
                assert!(entry.get_mut().insert((ticket, job)), "a job waits once");
            }
        }
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

    /// Takes a waiting job out of its lane.
    pub(crate) fn dequeue(&mut self, waiter: Waiter) {
        let Waiter { account, class, request, ticket, job } = waiter;
        let own_key = self.get(account).own_key();
        let lane = self.get_mut(account).lane_mut(class);
        let line = lane.own.get_mut(&request).expect("a waiting job has a lane");
        if !line.remove((ticket, job)) {
            lane.own.remove(&request);
        }
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

    /// The next job of a class by fair share, among requests in `only` (if given), not in `except`
    /// and not blocked by a quota on the way.
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
                lane.first_own(only, except).map(|(_, job)| job)
            } else {
                self.next_below(*child, class, only, except)
            }
        })
    }

    /// Whether a job's account may start this request as far as blocked quotas and freezes on its
    /// path are known.
    pub(crate) fn is_open(&self, account: AccountId, request: RequestId) -> bool {
        self.path(account).all(|id| {
            let account = self.get(id);
            !account.frozen && !account.blocked.contains(request.index())
        })
    }

    /// How many jobs of the class would go before this one if all shares stayed as they are.
    pub(crate) fn ahead(&self, waiter: Waiter) -> u64 {
        let own = self.get(waiter.account);
        let Some(lane) = own.lane(waiter.class) else { return 0 };
        let earlier = |line: &Line| line.jobs.range(..(waiter.ticket, waiter.job)).count() as u64;
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
        self.own.values().map(|line| line.jobs.len() as u32).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::share::Decay;
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
    fn requests_that_are_left_out_block_nobody_else() {
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
    fn jobs_that_leave_are_gone_from_every_level() {
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
