//! Which holds and charges each tenant has.
//!
//! Linked through tables of their own, so that a hold costs eight bytes and two writes more, and a
//! tenant's holds are found without a look at those of others. Derived: the order says nothing.

use super::id::{AccountNo, HoldNo};
use super::state::Ledger;

/// No hold.
const NONE: u32 = u32::MAX;

/// The neighbours of a hold among those of its tenant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Links {
    before: u32,
    behind: u32,
}

/// The holds of each tenant, the last entered first.
#[derive(Clone, Debug, Default)]
pub(super) struct Holdings {
    /// By tenant.
    first: Vec<u32>,
    /// How many each has.
    counts: Vec<u32>,
    /// By hold.
    links: Vec<Links>,
}

impl Holdings {
    /// Enters a hold that is not there yet.
    pub(super) fn insert(&mut self, tenant: AccountNo, hold: HoldNo) {
        let (owner, place) = (tenant.index(), hold.0 as usize);
        if owner >= self.first.len() {
            self.first.resize(owner + 1, NONE);
            self.counts.resize(owner + 1, 0);
        }
        self.counts[owner] += 1;
        if place >= self.links.len() {
            self.links.resize(place + 1, Links { before: NONE, behind: NONE });
        }
        let behind = std::mem::replace(&mut self.first[owner], hold.0);
        self.links[place] = Links { before: NONE, behind };
        if behind != NONE {
            self.links[behind as usize].before = hold.0;
        }
    }

    /// Takes a hold of a tenant out.
    pub(super) fn remove(&mut self, hold: HoldNo, tenant: AccountNo) {
        let Links { before, behind } = self.links[hold.0 as usize];
        self.counts[tenant.index()] -= 1;
        if before == NONE {
            self.first[tenant.index()] = behind;
        } else {
            self.links[before as usize].behind = behind;
        }
        if behind != NONE {
            self.links[behind as usize].before = before;
        }
    }

    /// How many holds a tenant has.
    pub(super) fn count(&self, tenant: AccountNo) -> usize {
        self.counts.get(tenant.index()).map_or(0, |count| *count as usize)
    }

    /// The hold of a tenant that was entered last.
    pub(super) fn first(&self, tenant: AccountNo) -> Option<HoldNo> {
        self.first.get(tenant.index()).copied().and_then(some)
    }

    /// The hold of the same tenant that was entered before a hold.
    pub(super) fn behind(&self, hold: HoldNo) -> Option<HoldNo> {
        some(self.links[hold.0 as usize].behind)
    }

    /// The holds of a tenant, the last entered first.
    pub(super) fn of(&self, tenant: AccountNo) -> impl Iterator<Item = HoldNo> {
        std::iter::successors(self.first(tenant), |hold| self.behind(*hold))
    }
}

fn some(hold: u32) -> Option<HoldNo> {
    (hold != NONE).then_some(HoldNo(hold))
}

impl Ledger {
    /// The tenant of a hold that is there.
    pub(super) fn tenant_of_hold(&self, hold: HoldNo) -> AccountNo {
        self.account(self.live_hold(hold).account).tenant
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_tenant_has_its_own_whatever_comes_and_goes(
            steps in proptest::collection::vec((0u32..4, 0u32..12), 0..200),
        ) {
            let mut holdings = Holdings::default();
            let mut owners = [None; 12];
            for (tenant, hold) in steps {
                match owners[hold as usize].take() {
                    Some(owner) => holdings.remove(HoldNo(hold), owner),
                    None => {
                        holdings.insert(AccountNo(tenant), HoldNo(hold));
                        owners[hold as usize] = Some(AccountNo(tenant));
                    }
                }
                for tenant in (0..5).map(AccountNo) {
                    let all = (0..12u32).filter(|hold| owners[*hold as usize] == Some(tenant));
                    let listed: Vec<u32> = holdings.of(tenant).map(|hold| hold.0).collect();
                    let found: BTreeSet<u32> = listed.iter().copied().collect();
                    prop_assert_eq!(found.len(), listed.len());
                    prop_assert_eq!(holdings.count(tenant), found.len());
                    prop_assert_eq!(found, all.collect());
                }
            }
        }
    }
}
