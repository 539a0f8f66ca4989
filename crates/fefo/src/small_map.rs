//! An ordered map that costs nothing while it is small.

use std::collections::{BTreeMap, btree_map};
use std::slice;

/// Above this many entries the sorted vector becomes a B-tree; below a third of it, a vector again.
const FEW: usize = 24;

/// An ordered map: one entry inline, a sorted vector up to two dozen, a B-tree beyond.
///
/// Most owners have one bucket and most buckets one span; some have a million. This map is right
/// for both.
#[derive(Clone, Debug, Default)]
pub enum SmallMap<K, V> {
    /// No entry.
    #[default]
    Empty,
    /// One entry, without allocation.
    One(K, V),
    /// A vector sorted by key.
    Few(Vec<(K, V)>),
    /// A B-tree.
    Many(Box<BTreeMap<K, V>>),
}

impl<K: Ord, V> SmallMap<K, V> {
    /// A map without entries.
    pub const fn new() -> SmallMap<K, V> {
        SmallMap::Empty
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        match self {
            SmallMap::Empty => 0,
            SmallMap::One(..) => 1,
            SmallMap::Few(entries) => entries.len(),
            SmallMap::Many(tree) => tree.len(),
        }
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value under `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        match self {
            SmallMap::Empty => None,
            SmallMap::One(only, value) => (only == key).then_some(value),
            SmallMap::Few(entries) => position(entries, key).ok().map(|at| &entries[at].1),
            SmallMap::Many(tree) => tree.get(key),
        }
    }

    /// The value under `key`, to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self {
            SmallMap::Empty => None,
            SmallMap::One(only, value) => (only == key).then_some(value),
            SmallMap::Few(entries) => position(entries, key).ok().map(|at| &mut entries[at].1),
            SmallMap::Many(tree) => tree.get_mut(key),
        }
    }

    /// Puts `value` under `key` and returns what was there.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            SmallMap::Empty => {
                *self = SmallMap::One(key, value);
                None
            }
            SmallMap::One(only, present) if *only == key => Some(std::mem::replace(present, value)),
            SmallMap::One(..) => {
                let SmallMap::One(other, present) = std::mem::take(self) else { unreachable!() };
                let mut entries = Vec::with_capacity(4);
                entries.push((other, present));
                let at = usize::from(entries[0].0 < key);
                entries.insert(at, (key, value));
                *self = SmallMap::Few(entries);
                None
            }
            SmallMap::Few(entries) => match position(entries, &key) {
                Ok(at) => Some(std::mem::replace(&mut entries[at].1, value)),
                Err(at) if entries.len() < FEW => {
                    entries.insert(at, (key, value));
                    None
                }
                Err(_) => {
                    let mut tree: BTreeMap<K, V> = std::mem::take(entries).into_iter().collect();
                    tree.insert(key, value);
                    *self = SmallMap::Many(Box::new(tree));
                    None
                }
            },
            SmallMap::Many(tree) => tree.insert(key, value),
        }
    }

    /// Takes the entry under `key` out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            SmallMap::Empty => None,
            SmallMap::One(only, _) => {
                if only != key {
                    return None;
                }
                let SmallMap::One(_, value) = std::mem::take(self) else { unreachable!() };
                Some(value)
            }
            SmallMap::Few(entries) => {
                let at = position(entries, key).ok()?;
                let (_, value) = entries.remove(at);
                if entries.is_empty() {
                    *self = SmallMap::Empty;
                }
                Some(value)
            }
            SmallMap::Many(tree) => {
                let value = tree.remove(key)?;
                if tree.len() <= FEW / 3 {
                    *self = SmallMap::Few(std::mem::take(&mut **tree).into_iter().collect());
                }
                Some(value)
            }
        }
    }

    /// The entry with the smallest key.
    pub fn first(&self) -> Option<(&K, &V)> {
        match self {
            SmallMap::Empty => None,
            SmallMap::One(key, value) => Some((key, value)),
            SmallMap::Few(entries) => entries.first().map(|(key, value)| (key, value)),
            SmallMap::Many(tree) => tree.first_key_value(),
        }
    }

    /// The entry with the largest key.
    pub fn last(&self) -> Option<(&K, &V)> {
        match self {
            SmallMap::Empty => None,
            SmallMap::One(key, value) => Some((key, value)),
            SmallMap::Few(entries) => entries.last().map(|(key, value)| (key, value)),
            SmallMap::Many(tree) => tree.last_key_value(),
        }
    }

    /// The entry with the largest key that is at most `key`.
    pub fn at_or_before(&self, key: &K) -> Option<(&K, &V)> {
        match self {
            SmallMap::Empty => None,
            SmallMap::One(only, value) => (only <= key).then_some((only, value)),
            SmallMap::Few(entries) => {
                let after = entries.partition_point(|(present, _)| present <= key);
                after.checked_sub(1).map(|at| (&entries[at].0, &entries[at].1))
            }
            SmallMap::Many(tree) => tree.range(..=key).next_back(),
        }
    }

    /// All entries in order of their keys.
    pub fn iter(&self) -> Iter<'_, K, V> {
        match self {
            SmallMap::Empty => Iter::One(None),
            SmallMap::One(key, value) => Iter::One(Some((key, value))),
            SmallMap::Few(entries) => Iter::Few(entries.iter()),
            SmallMap::Many(tree) => Iter::Many(tree.range(..)),
        }
    }

    /// The entries whose key is at least `key`, in order.
    pub fn iter_from(&self, key: &K) -> Iter<'_, K, V> {
        match self {
            SmallMap::Empty => Iter::One(None),
            SmallMap::One(only, value) => Iter::One((only >= key).then_some((only, value))),
            SmallMap::Few(entries) => {
                let at = entries.partition_point(|(present, _)| present < key);
                Iter::Few(entries[at..].iter())
            }
            SmallMap::Many(tree) => Iter::Many(tree.range(key..)),
        }
    }
}

fn position<K: Ord, V>(entries: &[(K, V)], key: &K) -> Result<usize, usize> {
    entries.binary_search_by(|(present, _)| present.cmp(key))
}

/// Entries of a [`SmallMap`] in order.
#[derive(Clone, Debug)]
pub enum Iter<'a, K, V> {
    /// At most one entry.
    One(Option<(&'a K, &'a V)>),
    /// Entries of the vector.
    Few(slice::Iter<'a, (K, V)>),
    /// Entries of the tree.
    Many(btree_map::Range<'a, K, V>),
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        match self {
            Iter::One(entry) => entry.take(),
            Iter::Few(entries) => entries.next().map(|(key, value)| (key, value)),
            Iter::Many(range) => range.next(),
        }
    }
}
