//! Buckets: grants of equal rank on one line, and what their credits may be spent on.

use fefo::Line;

use super::spend_order::SpendRank;
use crate::ledger::command::{Context, Restriction};
use crate::ledger::id::{AccountNo, GrantNo};

impl Restriction {
    /// The lengths of the three lists.
    pub fn lengths(&self) -> [Option<usize>; 3] {
        let gpu_types = self.gpu_types.as_ref().map(Vec::len);
        let regions = self.regions.as_ref().map(Vec::len);
        [gpu_types, regions, self.classes.as_ref().map(Vec::len)]
    }

    /// Whether it restricts nothing.
    pub fn is_empty(&self) -> bool {
        self.lengths().iter().all(Option::is_none) && self.max_share_micro.is_none()
    }

    /// Whether it allows everything that the context still allows.
    pub fn admits(&self, context: &Context) -> bool {
        let class = context.class.as_ref().map(std::slice::from_ref);
        lists_all(self.gpu_types.as_deref(), context.gpu_types.as_deref())
            && lists_all(self.regions.as_deref(), context.regions.as_deref())
            && lists_all(self.classes.as_deref(), class)
    }
}

/// Whether a list contains everything that is still allowed. An absent list contains everything.
fn lists_all<T: PartialEq>(listed: Option<&[T]>, allowed: Option<&[T]>) -> bool {
    match (listed, allowed) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(listed), Some(allowed)) => allowed.iter().all(|value| listed.contains(value)),
    }
}

/// Grants of one account with equal rank and restriction, laid on one line.
///
/// Eight words, without further allocations while its line is orderly, so that a draw usually costs
/// one cache miss.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// The account that has the grants.
    pub account: AccountNo,
    /// Its place in the order of spending.
    pub rank: SpendRank,
    /// Whether it has expired.
    pub expired: bool,
    /// Whether some grant on it was revoked.
    pub has_revoked: bool,
    /// What its credits may be spent on.
    pub restriction: Option<Box<Restriction>>,
    /// The grants and the states of their units.
    pub line: Line<GrantNo>,
}

impl Bucket {
    /// Whether a draw with this context may take from it.
    pub fn admits(&self, context: &Context) -> bool {
        self.restriction.as_ref().is_none_or(|restriction| restriction.admits(context))
    }

    /// The largest part of one hold that may come from it, in millionths, if there is a limit.
    pub fn max_share(&self) -> Option<u32> {
        self.restriction.as_ref().and_then(|restriction| restriction.max_share_micro)
    }

    /// Whether draws may take from it.
    pub fn is_open(&self) -> bool {
        !self.expired && self.line.free() > 0
    }
}

/// The most that `share_micro` millionths of `amount` allow, rounded down.
pub fn share_of(share_micro: u32, amount: u128) -> u128 {
    // Amounts are sums of at most 2^63; the product stays far below 2^127.
    amount * u128::from(share_micro) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<T: From<&'static str>>(list: &[&'static str]) -> Option<Vec<T>> {
        Some(list.iter().copied().map(T::from).collect())
    }

    #[test]
    fn a_restricted_grant_admits_only_contexts_that_stay_inside_it() {
        let h100 = Restriction { gpu_types: names(&["A100", "H100"]), ..Restriction::default() };
        let context =
            |types: &[&'static str]| Context { gpu_types: names(types), ..Context::default() };
        assert!(h100.admits(&context(&["H100"])));
        assert!(h100.admits(&context(&["H100", "A100"])));
        assert!(!h100.admits(&context(&["H100", "L40"])), "the job might still get an L40");
        assert!(!h100.admits(&Context::default()), "an empty context allows everything");
        let both = Restriction { regions: names(&["eu"]), ..h100 };
        assert!(!both.admits(&context(&["H100"])), "the job might still run in any region");
    }

    #[test]
    fn a_bucket_takes_eight_words() {
        assert_eq!(size_of::<Bucket>(), 64);
    }
}
