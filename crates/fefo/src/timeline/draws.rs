//! The packs that a consumption draws from.

use std::collections::BTreeMap;

use super::TimelinePackId;
use super::event::{Kind, Moment};
use super::grid::Grid;

/// A part of a consumption, taken from one pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineDraw {
    /// The pack drawn from.
    pub pack: TimelinePackId,
    /// The amount drawn from it.
    pub amount: u64,
}

/// The remaining amounts of the packs, by the moment at which they expire.
type Packs = BTreeMap<Moment, u64>;

/// Replays everything up to the consumption at `moment`.
pub(super) fn draws(grid: &Grid, moment: Moment) -> Vec<TimelineDraw> {
    let mut packs = Packs::new();
    let mut drawn = Vec::new();
    for event in grid.events().take_while(|event| event.moment <= moment) {
        let arrival = event.moment.arrival;
        match event.moment.kind {
            Kind::Starts => {
                packs.insert(grid.packs[arrival].expiry(arrival).moment, event.amount);
            }
            Kind::Consumes => drawn = take(&mut packs, event.amount),
            Kind::Expires => {
                packs.remove(&event.moment);
            }
        }
    }
    drawn
}

fn take(packs: &mut Packs, mut wanted: u64) -> Vec<TimelineDraw> {
    let mut drawn = Vec::new();
    while wanted > 0 {
        let Some(mut pack) = packs.first_entry() else { break };
        let amount = wanted.min(*pack.get());
        drawn.push(TimelineDraw { pack: TimelinePackId(pack.key().arrival), amount });
        *pack.get_mut() -= amount;
        wanted -= amount;
        if *pack.get() == 0 {
            pack.remove();
        }
    }
    drawn
}
