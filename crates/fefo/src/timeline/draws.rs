//! Which packs a consumption draws from.

use std::collections::BTreeMap;

use super::PackId;
use super::segment::{Operation, Place};
use super::tree::Tree;

/// A part of a consumption, taken from one pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The pack drawn from.
    pub pack: PackId,
    /// How much of it.
    pub amount: u64,
}

/// What is left of the packs, in the order in which they are spent: expiry, then place.
type Packs = BTreeMap<(i64, Place), u64>;

/// Replays everything before `consumption`, then the consumption itself.
pub(super) fn draws(tree: &Tree, consumption: &Operation) -> Vec<Draw> {
    let mut packs = Packs::new();
    tree.visit_before(consumption.place, &mut |operation| {
        if operation.place.consumes {
            take(&mut packs, operation);
        } else {
            packs.insert((operation.expires_at, operation.place), operation.amount);
        }
    });
    take(&mut packs, consumption)
}

fn take(packs: &mut Packs, consumption: &Operation) -> Vec<Draw> {
    // What has expired by now no later consumption can reach either.
    while packs.first_key_value().is_some_and(|(key, _)| key.0 < consumption.place.at) {
        packs.pop_first();
    }
    let mut wanted = consumption.amount;
    let mut drawn = Vec::new();
    while wanted > 0 {
        let Some(mut pack) = packs.first_entry() else { break };
        let amount = wanted.min(*pack.get());
        drawn.push(Draw { pack: PackId(pack.key().1.arrival), amount });
        *pack.get_mut() -= amount;
        wanted -= amount;
        if *pack.get() == 0 {
            pack.remove();
        }
    }
    drawn
}
