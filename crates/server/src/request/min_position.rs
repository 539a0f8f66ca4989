//! Positions that a read waits for: one number, of the home shard, or a vector of machines.

use std::sync::Arc;

use crate::machines::ledgers::shard_named;

/// The most machines of a vector.
const MAX_MACHINES: usize = 512;

/// The position to wait for before reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MinPosition {
    /// Of the ledger of the home shard.
    Home(u64),
    /// Of ledgers, by number. Cells are always read as they are now.
    Ledgers(Arc<[(u16, u64)]>),
}

impl MinPosition {
    /// Reads a number or a vector as answers carry it: `ledger-0:123,cell-eu:45`.
    pub(crate) fn read(text: &str) -> Option<MinPosition> {
        if let Ok(number) = text.parse() {
            return Some(MinPosition::Home(number));
        }
        let mut ledgers = Vec::new();
        for (place, part) in text.split(',').enumerate() {
            let (machine, position) = part.split_once(':')?;
            let position: u64 = position.parse().ok()?;
            match shard_named(machine) {
                Some(shard) => ledgers.push((shard, position)),
                None if machine == "directory" || machine.starts_with("cell-") => {}
                None => return None,
            }
            if place >= MAX_MACHINES {
                return None;
            }
        }
        Some(MinPosition::Ledgers(ledgers.into()))
    }

    /// The position of the ledger of a shard.
    pub(crate) fn of(&self, shard: u16) -> Option<u64> {
        match self {
            MinPosition::Home(position) => Some(*position),
            MinPosition::Ledgers(all) => {
                let own = all.iter().filter(|(known, _)| *known == shard);
                own.map(|(_, position)| *position).max()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_a_number_or_a_vector() {
        assert_eq!(MinPosition::read("7"), Some(MinPosition::Home(7)));
        let read = MinPosition::read("ledger-0:123,ledger-2:9,cell-eu:45").expect("a vector");
        assert_eq!([0, 1, 2].map(|shard| read.of(shard)), [Some(123), None, Some(9)]);
        assert_eq!(MinPosition::read("cell-eu:45").and_then(|read| read.of(0)), None);
        for wrong in ["", "x", "-1", "ledger-0", "ledger-0:x", "ledger-00:1", "eu:4", "ledger-0:1,"]
        {
            assert_eq!(MinPosition::read(wrong), None, "{wrong}");
        }
    }
}
