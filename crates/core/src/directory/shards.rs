//! The ledger shards: their states, and the shard of each org.

use std::collections::BTreeMap;

use super::command::{Refusal, Reply};
use super::event::Event;
use super::state::Directory;
use crate::digest::Digester;
use crate::name::AccountPath;
use crate::shared_map::SharedMap;

/// The most shards of a store.
const MAX_SHARDS: u16 = 256;

/// Whether a shard takes new orgs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShardState {
    /// It takes new orgs.
    Open,
    /// It takes no new orgs and keeps those that it has.
    Draining,
    /// It has no orgs and takes none, because its machine does not exist yet.
    Closed,
}

impl ShardState {
    const NAMES: [(ShardState, &str); 3] = [
        (ShardState::Open, "open"),
        (ShardState::Draining, "draining"),
        (ShardState::Closed, "closed"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        ShardState::NAMES.iter().find(|(state, _)| *state == self).map_or("", |(_, name)| name)
    }

    /// The state with a name.
    pub fn named(name: &str) -> Option<ShardState> {
        ShardState::NAMES.iter().find(|(_, known)| *known == name).map(|(state, _)| *state)
    }
}

/// The shards and the orgs that are assigned to them. A store without records of shards has one, the first, with all
/// orgs.
#[derive(Clone, Debug, Default)]
pub(super) struct ShardMap {
    orgs: SharedMap<AccountPath, u16>,
    states: SharedMap<u16, ShardState>,
    /// The number of assigned orgs of each shard. Follows from `orgs`.
    loads: BTreeMap<u16, u64>,
}

impl ShardMap {
    pub(super) fn orgs(&self) -> &SharedMap<AccountPath, u16> {
        &self.orgs
    }

    /// The shard that an org is assigned to.
    pub(super) fn of(&self, org: &AccountPath) -> Option<u16> {
        self.orgs.get(org).copied()
    }

    pub(super) fn assign(&mut self, org: &AccountPath, shard: u16) {
        let load = |loads: &BTreeMap<u16, u64>, of| loads.get(&of).copied().unwrap_or(0);
        if let Some(before) = self.of(org) {
            self.loads.insert(before, load(&self.loads, before).saturating_sub(1));
        }
        self.orgs.insert(org.clone(), shard);
        self.loads.insert(shard, load(&self.loads, shard) + 1);
    }

    pub(super) fn set(&mut self, shard: u16, state: ShardState) {
        self.states.insert(shard, state);
    }

    /// Adds the states of shards to a digest. A store without any keeps the digest that it had before there were
    /// shards.
    pub(super) fn add_states(&self, digester: &mut Digester) {
        if self.states.iter().next().is_some() {
            digester.value(&self.states);
        }
    }

    fn count(&self) -> u16 {
        let last = self.states.iter().map(|(shard, _)| *shard).last().unwrap_or(0);
        last.saturating_add(1)
    }
}

impl Directory {
    /// The shard of an org; the first one until it is assigned.
    pub fn shard(&self, org: &str) -> u16 {
        self.assigned_shard(org).unwrap_or(0)
    }

    /// The shard that an org is assigned to.
    pub fn assigned_shard(&self, org: &str) -> Option<u16> {
        self.shards.of(&AccountPath::unchecked(org))
    }

    /// All shards with their states, by number.
    pub fn shards(&self) -> impl Iterator<Item = (u16, ShardState)> {
        let state = |shard| self.shards.states.get(&shard).copied().unwrap_or(ShardState::Open);
        (0..self.shards.count()).map(move |shard| (shard, state(shard)))
    }

    /// The highest number of a shard whose machine was made.
    pub fn last_made_shard(&self) -> u16 {
        let made = self.shards.states.iter().filter(|(_, state)| **state != ShardState::Closed);
        made.map(|(shard, _)| *shard).last().unwrap_or(0)
    }

    /// The number of orgs that are assigned to a shard.
    pub fn assigned_orgs(&self, shard: u16) -> u64 {
        self.shards.loads.get(&shard).copied().unwrap_or(0)
    }

    pub(super) fn decide_place_org(
        &self,
        org: &AccountPath,
        unassigned: u64,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        if let Some(shard) = self.shards.of(org) {
            return Ok(Reply::Shard { shard, created: false });
        }
        let open = self.shards().filter(|(_, state)| *state == ShardState::Open);
        let load = |shard: u16| match shard {
            0 => self.assigned_orgs(0).saturating_add(unassigned),
            other => self.assigned_orgs(other),
        };
        // The lowest number among equals.
        let least = open.map(|(shard, _)| shard).min_by_key(|shard| (load(*shard), *shard));
        let shard = least.ok_or(Refusal::NoOpenShard)?;
        events.push(Event::OrgAssigned { org: org.clone(), shard });
        Ok(Reply::Shard { shard, created: false })
    }

    pub(super) fn decide_add_shard(
        &self,
        shard: u16,
        state: ShardState,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let invalid = |reason| Refusal::InvalidField { field: "id", reason };
        if shard >= MAX_SHARDS {
            return Err(invalid("the limit of 256 shards is reached"));
        }
        match self.shards.count() {
            count if shard > count => Err(invalid("must be the next number")),
            count if shard < count => Ok(Reply::Shard { shard, created: false }),
            _ => {
                events.push(Event::ShardSet { shard, state });
                Ok(Reply::Shard { shard, created: true })
            }
        }
    }

    pub(super) fn decide_set_shard(
        &self,
        shard: u16,
        state: ShardState,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let (_, present) = self.shards().nth(shard.into()).ok_or(Refusal::UnknownShard)?;
        let mut others = self.shards().filter(|(other, _)| *other != shard);
        if state != ShardState::Open && !others.any(|(_, other)| other == ShardState::Open) {
            return Err(Refusal::NoOpenShard);
        }
        if present != state {
            events.push(Event::ShardSet { shard, state });
        }
        Ok(Reply::Shard { shard, created: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Command;
    use crate::ledger::Envelope;
    use crate::machine::{Machine, execute};
    use crate::time::Timestamp;

    fn run(directory: &mut Directory, command: Command) -> Result<Reply, Refusal> {
        let (now, envelope) = (Timestamp::from_millis(1), Envelope::default());
        execute(directory, now, &envelope, &command, &mut Vec::new())
            .map(|accepted| accepted.reply)
            .map_err(|refused| refused.refusal)
    }

    fn add(directory: &mut Directory, shard: u16) -> Result<Reply, Refusal> {
        run(directory, Command::AddShard { shard, state: ShardState::Open })
    }

    fn place(directory: &mut Directory, org: &str, unassigned: u64) -> Result<Reply, Refusal> {
        run(directory, Command::PlaceOrg { org: org.into(), unassigned })
    }

    fn at(shard: u16) -> Result<Reply, Refusal> {
        Ok(Reply::Shard { shard, created: false })
    }

    fn added(shard: u16) -> Result<Reply, Refusal> {
        Ok(Reply::Shard { shard, created: true })
    }

    #[test]
    fn a_store_without_records_has_one_open_shard_with_all_orgs_and_its_digest() {
        let directory = Directory::new();
        assert_eq!(directory.shards().collect::<Vec<_>>(), [(0, ShardState::Open)]);
        assert_eq!((directory.shard("acme"), directory.assigned_shard("acme")), (0, None));
        let mut other = Directory::new();
        assert_eq!(add(&mut other, 0), at(0));
        assert_eq!(other.digest(), directory.digest());
    }

    #[test]
    fn a_new_org_goes_to_the_open_shard_with_the_fewest_and_stays_there() {
        let mut directory = Directory::new();
        for shard in [1, 2] {
            assert_eq!(add(&mut directory, shard), added(shard));
        }
        // The first shard has an org from before.
        let placed: Vec<_> =
            ["a", "b", "c", "d"].iter().map(|org| place(&mut directory, org, 1)).collect();
        assert_eq!(placed, [at(1), at(2), at(0), at(1)]);
        assert_eq!(place(&mut directory, "b", 9), at(2), "it stays where it is");
        let state = ShardState::Draining;
        assert_eq!(run(&mut directory, Command::SetShard { shard: 2, state }), at(2));
        assert_eq!(place(&mut directory, "e", 1), at(0), "a draining shard takes none");
        assert_eq!(directory.shard("b"), 2, "and keeps what it has");
        assert_eq!(run(&mut directory, Command::SetShard { shard: 0, state }), at(0));
        let last = run(&mut directory, Command::SetShard { shard: 1, state });
        assert_eq!(last, Err(Refusal::NoOpenShard), "one stays open");
        assert_eq!(place(&mut directory, "f", 1), at(1));
        let loads: Vec<u64> = (0..3).map(|shard| directory.assigned_orgs(shard)).collect();
        assert_eq!(loads, [2, 3, 1]);
    }

    #[test]
    fn shards_are_numbered_without_gaps() {
        let mut directory = Directory::new();
        let gap = add(&mut directory, 2);
        assert!(matches!(gap, Err(Refusal::InvalidField { field: "id", .. })), "{gap:?}");
        assert_eq!(add(&mut directory, 1), added(1));
        assert_eq!(add(&mut directory, 1), at(1));
        let draining = Command::SetShard { shard: 2, state: ShardState::Draining };
        assert_eq!(run(&mut directory, draining), Err(Refusal::UnknownShard));
        assert_eq!((directory.shards().count(), directory.last_made_shard()), (2, 1));
        let closed = Command::AddShard { shard: 2, state: ShardState::Closed };
        assert_eq!(run(&mut directory, closed), added(2));
        assert_eq!((directory.shards().count(), directory.last_made_shard()), (3, 1));
    }
}
