//! Transfers and collections.

use super::{Books, FREE, LawResult, MOVED, SPENT, count, pieces, require};
use crate::node::Node;

impl Books {
    /// A refund (4), transfer (5) or collection (6) has a unique number and name.
    pub(super) fn name_movement(
        &mut self,
        what: u64,
        account: u32,
        movement: &Node,
    ) -> LawResult<()> {
        let tenant = self.accounts[account as usize].tenant;
        let (number, name) = (movement.field(0)?.index()?, movement.field(1)?.text()?);
        let new = self.memory.movement_made(number, (tenant, what, name.to_owned()));
        require(new, "L5", || format!("movement {name} is made twice"))
    }

    pub(super) fn credits_moved(&mut self, event: &Node) -> LawResult<()> {
        let (movement, from, to) =
            (event.field(0)?, event.field(1)?.index()?, event.field(2)?.index()?);
        self.require_account(from)?;
        self.require_account(to)?;
        self.require_thawed(from)?;
        let (source, target) = (&self.accounts[from as usize], &self.accounts[to as usize]);
        let inside = from != to && source.tenant == target.tenant;
        require(inside, "L13", || format!("{} transfers to {}", source.path, target.path))?;
        self.name_movement(5, from, movement)?;
        let units = pieces(movement.field(2)?)?;
        for units in &units {
            let own = self.buckets.get(units.bucket as usize).is_some_and(|b| b.account == from);
            require(own, "L13", || "a transfer of units that are not the sender's own".to_owned())?;
        }
        self.decision.moved += count(&units);
        self.decision.moved_to = Some(to);
        self.turn(&units, FREE, MOVED)
    }

    pub(super) fn uncollected_collected(&mut self, event: &Node) -> LawResult<()> {
        let (movement, account) = (event.field(0)?, event.field(1)?.index()?);
        self.require_account(account)?;
        self.require_thawed(account)?;
        self.name_movement(6, account, movement)?;
        let units = pieces(movement.field(2)?)?;
        for units in &units {
            let bucket = self.buckets.get(units.bucket as usize);
            let above = bucket.is_some_and(|bucket| self.is_above(bucket.account, account));
            require(above, "L13", || "another account's credits are collected".to_owned())?;
        }
        let owing = &mut self.accounts[account as usize];
        owing.uncollected -= i128::try_from(count(&units)).unwrap_or(i128::MAX);
        require(owing.uncollected >= 0, "L7", || {
            format!("{} repaid more than it owed", owing.path)
        })?;
        self.turn(&units, FREE, SPENT)
    }
}
