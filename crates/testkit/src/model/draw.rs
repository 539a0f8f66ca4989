//! The grants that a draw takes from, their order, and the largest possible draw.

use std::cmp::Reverse;

use bursar_core::ledger::command::{Context, Restriction};

use super::Model;
use super::state::{Grant, Hold, Micros};

/// A grant that may be drawn from, and the available amount.
pub(super) struct Source {
    pub(super) grant: usize,
    units: Micros,
    /// The largest share of one hold that may come from it, in millionths.
    max_share: Option<Micros>,
}

/// The amount to take from each grant, in order.
pub(super) type DrawPlan = Vec<(usize, Micros)>;

impl Model {
    /// What an account can draw now in a context, in spend order.
    pub(super) fn sources_now(&self, account: usize, context: &Context) -> Vec<Source> {
        self.sources(
            account,
            |grant| {
                if admits(&grant.restriction, context) { grant.free } else { 0 }
            },
        )
    }

    /// What usage at an earlier instant can draw, including units that have expired unspent since
    /// then.
    pub(super) fn sources_at(&self, account: usize, context: &Context, at: i64) -> Vec<Source> {
        self.sources(account, |grant| {
            let valid = grant.effective_at <= at && grant.expires_at.is_none_or(|last| at <= last);
            if valid && !grant.is_revoked && admits(&grant.restriction, context) {
                grant.free + grant.expired
            } else {
                0
            }
        })
    }

    /// An account's own grants, restricted or not, for a transfer. Shares are not capped.
    pub(super) fn sources_own(&self, account: usize) -> Vec<Source> {
        let mut own =
            self.sources(account, |grant| if grant.account == account { grant.free } else { 0 });
        for source in &mut own {
            source.max_share = None;
        }
        own
    }

    fn sources(&self, account: usize, units: impl Fn(&Grant) -> Micros) -> Vec<Source> {
        let path = self.path_to_root(account);
        let mut ranked = Vec::new();
        for (number, grant) in self.grants.iter().enumerate() {
            let Some(distance) = path.iter().position(|on_path| *on_path == grant.account) else {
                continue;
            };
            let units = if grant.is_active { units(grant) } else { 0 };
            if units > 0 {
                let max_share = grant.restriction.max_share_micro.map(Micros::from);
                ranked.push((
                    rank(grant, distance, number),
                    Source { grant: number, units, max_share },
                ));
            }
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, source)| source).collect()
    }

    /// The largest amount that an account can draw at once in a context.
    pub(super) fn spendable(&self, account: usize, context: &Context) -> Micros {
        let sources = self.sources_now(account, context);
        largest(&sources, total(&sources), None)
    }
}

/// The spend order. `number` is the order of creation.
fn rank(grant: &Grant, distance: usize, number: usize) -> impl Ord + Copy + use<> {
    let Restriction { gpu_types, regions, classes, .. } = &grant.restriction;
    let lengths = [
        gpu_types.as_ref().map(Vec::len),
        regions.as_ref().map(Vec::len),
        classes.as_ref().map(Vec::len),
    ];
    let dimensions = lengths.iter().filter(|length| length.is_some()).count();
    let values: usize = lengths.into_iter().flatten().sum();
    (
        grant.priority,
        grant.expires_at.unwrap_or(i64::MAX),
        Reverse(dimensions),
        values,
        grant.kind,
        distance,
        grant.spendable_from,
        number,
    )
}

/// Whether a restriction admits everything that a context allows.
fn admits(restriction: &Restriction, context: &Context) -> bool {
    within(&restriction.gpu_types, context.gpu_types.as_deref().unwrap_or(&[]))
        && within(&restriction.regions, context.regions.as_deref().unwrap_or(&[]))
        && within(&restriction.classes, context.class.as_slice())
}

fn within<T: PartialEq>(allowed: &Option<Vec<T>>, wanted: &[T]) -> bool {
    match allowed {
        None => true,
        Some(allowed) => !wanted.is_empty() && wanted.iter().all(|value| allowed.contains(value)),
    }
}

/// The sum of all sources, regardless of share caps.
pub(super) fn total(sources: &[Source]) -> Micros {
    sources.iter().map(|source| source.units).sum()
}

/// The plan to draw exactly `amount`, as part of `hold` if there is one; `None` if impossible.
pub(super) fn plan(sources: &[Source], amount: Micros, hold: Option<&Hold>) -> Option<DrawPlan> {
    let plan = take(sources, amount, hold);
    (taken(&plan) == amount).then_some(plan)
}

/// The plan of a draw of `amount`, which may be smaller than that.
fn take(sources: &[Source], amount: Micros, hold: Option<&Hold>) -> DrawPlan {
    let all = amount + hold.map_or(0, Hold::amount);
    let mut left = amount;
    let mut plan = DrawPlan::new();
    for source in sources {
        let mut take = left.min(source.units);
        if let Some(share) = source.max_share {
            let already = hold.map_or(0, |hold| hold.drawn_from(source.grant));
            take = take.min((share * all / 1_000_000 - already).max(0));
        }
        if take > 0 {
            plan.push((source.grant, take));
            left -= take;
        }
    }
    plan
}

fn taken(plan: &DrawPlan) -> Micros {
    plan.iter().map(|(_, units)| units).sum()
}

/// The largest amount up to `wanted` that can be drawn.
///
/// A larger hold may take more from a capped grant, so an amount may be impossible although a
/// larger one is possible. The amount found never decreases with the amount requested. So any
/// possible amount is at most what a larger request finds, and descending from there cannot miss
/// the largest. After too many rounds, a bisection accepts a smaller amount.
pub(super) fn largest(sources: &[Source], wanted: Micros, hold: Option<&Hold>) -> Micros {
    let found = |amount: Micros| taken(&take(sources, amount, hold));
    let mut amount = wanted.min(total(sources)).max(0);
    for _ in 0..1000 {
        if found(amount) == amount {
            return amount;
        }
        amount = found(amount);
    }
    let (mut low, mut high) = (0, amount);
    while low < high {
        let middle = high - (high - low) / 2;
        if found(middle) == middle {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}
