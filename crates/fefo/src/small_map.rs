//! An ordered map without overhead while it is small.
//!
//! A `BTreeMap` takes 1.7 times as long with one entry and 3 times as long with three for a removal
//! and an insertion, and allocates a node of about 200 bytes for the first entry. In the whole
//! ledger, place and settle take 0.7 of the time with this map (`docs/evidence/performance.md`).

use std::collections::{BTreeMap, btree_map};
use std::slice;

/// Above this many entries the sorted vector becomes a B-tree. At a third of it, the tree becomes a
/// vector again.
const FEW: usize = 24;

/// An ordered map: up to `INLINE` entries inline, a sorted vector up to two dozen, a B-tree beyond.
///
/// Most owners have one bucket and most buckets a few spans; some have a million. This map suits
/// both. Inline entries need neither an allocation nor another memory access.
#[derive(Clone, Debug, Default)]
pub enum SmallMap<K, V, const INLINE: usize = 1> {
    /// No entry.
    #[default]
    Empty,
    /// The number of entries, and the entries sorted by key. Elements beyond that number have no
    /// meaning.
    Inline(u8, [(K, V); INLINE]),
    /// A vector sorted by key.
    Few(Vec<(K, V)>),
    /// A B-tree.
    Many(Box<BTreeMap<K, V>>),
}

impl<K: Ord + Copy, V: Copy, const INLINE: usize> SmallMap<K, V, INLINE> {
    /// A map without entries.
    pub const fn new() -> SmallMap<K, V, INLINE> {
        SmallMap::Empty
    }

    /// A map with one entry.
    pub const fn with(key: K, value: V) -> SmallMap<K, V, INLINE> {
        SmallMap::Inline(1, [(key, value); INLINE])
    }

    /// The entries as a slice, or the tree.
    fn row(&self) -> Result<&[(K, V)], &BTreeMap<K, V>> {
        match self {
            SmallMap::Empty => Ok(&[]),
            SmallMap::Inline(used, entries) => Ok(&entries[..usize::from(*used)]),
            SmallMap::Few(entries) => Ok(entries),
            SmallMap::Many(tree) => Err(tree),
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        match self.row() {
            Ok(row) => row.len(),
            Err(tree) => tree.len(),
        }
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        matches!(self, SmallMap::Empty)
    }

    /// The value under `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        match self.row() {
            Ok(row) => position(row, key).ok().map(|at| &row[at].1),
            Err(tree) => tree.get(key),
        }
    }

    /// The value under `key`, to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let row = match self {
            SmallMap::Empty => return None,
            SmallMap::Inline(used, entries) => &mut entries[..usize::from(*used)],
            SmallMap::Few(entries) => &mut entries[..],
            SmallMap::Many(tree) => return tree.get_mut(key),
        };
        position(row, key).ok().map(|at| &mut row[at].1)
    }

    /// Puts `value` under `key` and returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            SmallMap::Empty => {
                *self = SmallMap::with(key, value);
                None
            }
            SmallMap::Inline(used, entries) => {
                let count = usize::from(*used);
                match position(&entries[..count], &key) {
                    Ok(at) => Some(std::mem::replace(&mut entries[at].1, value)),
                    Err(at) if count < INLINE => {
                        entries.copy_within(at..count, at + 1);
                        entries[at] = (key, value);
                        *used += 1;
                        None
                    }
                    Err(at) => {
                        let mut few = Vec::with_capacity((2 * INLINE).max(4));
                        few.extend_from_slice(&entries[..at]);
                        few.push((key, value));
                        few.extend_from_slice(&entries[at..]);
                        *self = SmallMap::Few(few);
                        None
                    }
                }
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

    /// Removes the entry under `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            SmallMap::Empty => None,
            SmallMap::Inline(used, entries) => {
                let count = usize::from(*used);
                let at = position(&entries[..count], key).ok()?;
                let value = entries[at].1;
                entries.copy_within(at + 1..count, at);
                *used -= 1;
                if *used == 0 {
                    *self = SmallMap::Empty;
                }
                Some(value)
            }
            SmallMap::Few(entries) => {
                let at = position(entries, key).ok()?;
                let (_, value) = entries.remove(at);
                if entries.len() <= INLINE / 2 {
                    *self = SmallMap::inline(entries);
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

    /// Stores entries inline; they must fit.
    fn inline(entries: &[(K, V)]) -> SmallMap<K, V, INLINE> {
        let Some(first) = entries.first() else { return SmallMap::Empty };
        let mut row = [*first; INLINE];
        row[..entries.len()].copy_from_slice(entries);
        // Called with at most `INLINE / 2` entries, which is small.
        SmallMap::Inline(u8::try_from(entries.len()).unwrap_or(u8::MAX), row)
    }

    /// The entry with the smallest key.
    pub fn first(&self) -> Option<(&K, &V)> {
        match self.row() {
            Ok(row) => row.first().map(|(key, value)| (key, value)),
            Err(tree) => tree.first_key_value(),
        }
    }

    /// The entry with the largest key.
    pub fn last(&self) -> Option<(&K, &V)> {
        match self.row() {
            Ok(row) => row.last().map(|(key, value)| (key, value)),
            Err(tree) => tree.last_key_value(),
        }
    }

    /// The entry with the largest key that is at most `key`.
    pub fn at_or_before(&self, key: &K) -> Option<(&K, &V)> {
        match self.row() {
            Ok(row) => {
                let after = row.partition_point(|(present, _)| present <= key);
                after.checked_sub(1).map(|at| (&row[at].0, &row[at].1))
            }
            Err(tree) => tree.range(..=key).next_back(),
        }
    }

    /// All entries in order of their keys.
    pub fn iter(&self) -> Iter<'_, K, V> {
        match self.row() {
            Ok(row) => Iter::Few(row.iter()),
            Err(tree) => Iter::Many(tree.range(..)),
        }
    }

    /// The entries whose key is at least `key`, in order.
    pub fn iter_from(&self, key: &K) -> Iter<'_, K, V> {
        match self.row() {
            Ok(row) => {
                let at = row.partition_point(|(present, _)| present < key);
                Iter::Few(row[at..].iter())
            }
            Err(tree) => Iter::Many(tree.range(key..)),
        }
    }
}

fn position<K: Ord, V>(entries: &[(K, V)], key: &K) -> Result<usize, usize> {
    entries.binary_search_by(|(present, _)| present.cmp(key))
}

/// Entries of a [`SmallMap`] in order.
#[derive(Clone, Debug)]
pub enum Iter<'a, K, V> {
    /// Entries of a slice.
    Few(slice::Iter<'a, (K, V)>),
    /// Entries of a tree.
    Many(btree_map::Range<'a, K, V>),
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        match self {
            Iter::Few(entries) => entries.next().map(|(key, value)| (key, value)),
            Iter::Many(range) => range.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_same<const INLINE: usize>(steps: &[(u8, u8, u8)]) {
        let mut small: SmallMap<u8, u8, INLINE> = SmallMap::new();
        let mut tree = BTreeMap::new();
        for (step, (kind, key, value)) in steps.iter().enumerate() {
            // Grows for a while, then shrinks for a while, so that every form is entered from both
            // sides.
            if (step / 60 + usize::from(*kind)) % 3 == 0 {
                assert_eq!(small.remove(key), tree.remove(key));
            } else {
                assert_eq!(small.insert(*key, *value), tree.insert(*key, *value));
            }
            if let (Some(one), Some(other)) = (small.get_mut(value), tree.get_mut(value)) {
                *one ^= 1;
                *other ^= 1;
            }
            assert!(small.iter().eq(&tree));
            assert!(small.iter_from(value).eq(tree.range(value..)));
            assert_eq!(small.at_or_before(value), tree.range(..=value).next_back());
            assert_eq!(small.get(key), tree.get(key));
            assert_eq!(
                (small.first(), small.last()),
                (tree.first_key_value(), tree.last_key_value())
            );
            assert_eq!((small.len(), small.is_empty()), (tree.len(), tree.is_empty()));
        }
        for key in 0..=u8::MAX {
            assert_eq!(small.remove(&key), tree.remove(&key));
        }
        assert!(small.is_empty());
    }

    proptest! {
        #[test]
        fn a_small_map_agrees_with_a_tree(
            steps in prop::collection::vec((0u8..3, 0u8..40, 0u8..40), 1..240),
        ) {
            assert_same::<1>(&steps);
            assert_same::<2>(&steps);
            assert_same::<4>(&steps);
        }
    }
}
