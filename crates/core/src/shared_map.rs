//! A persistent ordered map: clones share their common nodes.
//!
//! A balanced tree of reference-counted nodes. A clone copies no nodes, and a change of one of two
//! clones copies the path to the changed node. The cost of publishing a state after each change is
//! therefore proportional to the change, not to the size of the state.
//!
//! `imbl::OrdMap` with 100 000 entries takes 0.6 of the time for a clone and an insertion (1.3
//! instead of 2.3 µs) and half for a look-up (0.3 instead of 0.6 µs). It adds eight crates to the
//! core. The directory changes rarely, and a request looks up one key.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A persistent ordered map: clones share their common nodes.
pub(crate) struct SharedMap<K, V> {
    root: Tree<K, V>,
    len: usize,
}

type Tree<K, V> = Option<Arc<Node<K, V>>>;

#[derive(Clone)]
struct Node<K, V> {
    key: K,
    value: V,
    /// The height of the subtree with this node as its root.
    height: u8,
    left: Tree<K, V>,
    right: Tree<K, V>,
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> SharedMap<K, V> {
        SharedMap { root: self.root.clone(), len: self.len }
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> SharedMap<K, V> {
        SharedMap { root: None, len: 0 }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut walk = Walk::default();
        walk.descend(self.root.as_deref());
        f.debug_map().entries(walk).finish()
    }
}

impl<K: Hash, V: Hash> Hash for SharedMap<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.len);
        let mut walk = Walk::default();
        walk.descend(self.root.as_deref());
        walk.for_each(|entry| entry.hash(state));
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> SharedMap<K, V> {
        let mut map = SharedMap::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let mut at = self.root.as_deref();
        while let Some(node) = at {
            at = match key.cmp(&node.key) {
                Ordering::Equal => return Some(&node.value),
                Ordering::Less => node.left.as_deref(),
                Ordering::Greater => node.right.as_deref(),
            };
        }
        None
    }

    /// Whether the map contains a key.
    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The last entry whose key is at most `key`.
    pub(crate) fn last_until(&self, key: &K) -> Option<(&K, &V)> {
        let (mut at, mut found) = (self.root.as_deref(), None);
        while let Some(node) = at {
            at = if node.key <= *key {
                found = Some((&node.key, &node.value));
                node.right.as_deref()
            } else {
                node.left.as_deref()
            };
        }
        found
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> Walk<'_, K, V> {
        let mut walk = Walk::default();
        walk.descend(self.root.as_deref());
        walk
    }

    /// The entries from a key on, in order.
    pub(crate) fn from(&self, key: &K) -> Walk<'_, K, V> {
        let mut walk = Walk::default();
        let mut at = self.root.as_deref();
        while let Some(node) = at {
            at = if node.key >= *key {
                walk.path.push(node);
                node.left.as_deref()
            } else {
                node.right.as_deref()
            };
        }
        walk
    }

    /// Sets the value of a key. Returns the previous value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let mut before = None;
        self.root = Some(insert(self.root.take(), key, value, &mut before));
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes a key. Returns its value.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        // An absent key copies no path.
        let value = self.get(key)?.clone();
        self.root = remove(self.root.take(), key);
        self.len -= 1;
        Some(value)
    }

    /// The number of nodes of this map that another map does not share.
    #[cfg(test)]
    pub(crate) fn unshared(&self, other: &SharedMap<K, V>) -> usize {
        fn nodes<K, V>(tree: &Tree<K, V>, found: &mut Vec<*const Node<K, V>>) {
            if let Some(node) = tree {
                found.push(Arc::as_ptr(node));
                nodes(&node.left, found);
                nodes(&node.right, found);
            }
        }
        let (mut own, mut others) = (Vec::new(), Vec::new());
        nodes(&self.root, &mut own);
        nodes(&other.root, &mut others);
        let others: std::collections::BTreeSet<_> = others.into_iter().collect();
        own.iter().filter(|node| !others.contains(node)).count()
    }
}

/// Iterates over a map in order.
pub(crate) struct Walk<'a, K, V> {
    /// The next node is last. Its right subtree is visited before the rest of the path.
    path: Vec<&'a Node<K, V>>,
}

impl<K, V> Default for Walk<'_, K, V> {
    fn default() -> Self {
        Walk { path: Vec::new() }
    }
}

impl<'a, K, V> Walk<'a, K, V> {
    fn descend(&mut self, mut tree: Option<&'a Node<K, V>>) {
        while let Some(node) = tree {
            self.path.push(node);
            tree = node.left.as_deref();
        }
    }
}

impl<'a, K, V> Iterator for Walk<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        let node = self.path.pop()?;
        self.descend(node.right.as_deref());
        Some((&node.key, &node.value))
    }
}

fn height<K, V>(tree: &Tree<K, V>) -> u8 {
    tree.as_ref().map_or(0, |node| node.height)
}

impl<K, V> Node<K, V> {
    fn measure(&mut self) {
        // A tree that fits into memory is less than a hundred levels high.
        self.height = height(&self.left).max(height(&self.right)) + 1;
    }
}

fn rotate_right<K: Clone, V: Clone>(mut root: Arc<Node<K, V>>) -> Arc<Node<K, V>> {
    let node = Arc::make_mut(&mut root);
    let Some(mut up) = node.left.take() else { return root };
    let top = Arc::make_mut(&mut up);
    node.left = top.right.take();
    node.measure();
    top.right = Some(root);
    top.measure();
    up
}

fn rotate_left<K: Clone, V: Clone>(mut root: Arc<Node<K, V>>) -> Arc<Node<K, V>> {
    let node = Arc::make_mut(&mut root);
    let Some(mut up) = node.right.take() else { return root };
    let top = Arc::make_mut(&mut up);
    node.right = top.left.take();
    node.measure();
    top.left = Some(root);
    top.measure();
    up
}

/// Rebalances a tree after one side grew or shrank by one level.
fn balance<K: Clone, V: Clone>(mut root: Arc<Node<K, V>>) -> Arc<Node<K, V>> {
    let node = Arc::make_mut(&mut root);
    node.measure();
    let (left, right) = (height(&node.left), height(&node.right));
    if left > right + 1 {
        let leans = |child: &Arc<Node<K, V>>| height(&child.right) > height(&child.left);
        let child = node.left.take();
        node.left = child.map(|it| if leans(&it) { rotate_left(it) } else { it });
        rotate_right(root)
    } else if right > left + 1 {
        let leans = |child: &Arc<Node<K, V>>| height(&child.left) > height(&child.right);
        let child = node.right.take();
        node.right = child.map(|it| if leans(&it) { rotate_right(it) } else { it });
        rotate_left(root)
    } else {
        root
    }
}

fn insert<K: Ord + Clone, V: Clone>(
    tree: Tree<K, V>,
    key: K,
    value: V,
    before: &mut Option<V>,
) -> Arc<Node<K, V>> {
    let Some(mut root) = tree else {
        return Arc::new(Node { key, value, height: 1, left: None, right: None });
    };
    let node = Arc::make_mut(&mut root);
    match key.cmp(&node.key) {
        Ordering::Equal => {
            *before = Some(std::mem::replace(&mut node.value, value));
            return root;
        }
        Ordering::Less => node.left = Some(insert(node.left.take(), key, value, before)),
        Ordering::Greater => node.right = Some(insert(node.right.take(), key, value, before)),
    }
    balance(root)
}

fn remove<K: Ord + Clone, V: Clone>(tree: Tree<K, V>, key: &K) -> Tree<K, V> {
    let mut root = tree?;
    let node = Arc::make_mut(&mut root);
    match key.cmp(&node.key) {
        Ordering::Less => node.left = remove(node.left.take(), key),
        Ordering::Greater => node.right = remove(node.right.take(), key),
        Ordering::Equal => {
            let (left, right) = (node.left.take(), node.right.take());
            let Some(right) = right else { return left };
            let (key, value, right) = take_first(right);
            return Some(balance(Arc::new(Node { key, value, height: 1, left, right })));
        }
    }
    Some(balance(root))
}

/// The first entry of a tree, and the rest.
fn take_first<K: Clone, V: Clone>(mut root: Arc<Node<K, V>>) -> (K, V, Tree<K, V>) {
    let node = Arc::make_mut(&mut root);
    match node.left.take() {
        None => (node.key.clone(), node.value.clone(), node.right.take()),
        Some(left) => {
            let (key, value, left) = take_first(left);
            node.left = left;
            (key, value, Some(balance(root)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Pseudo-random numbers, the same in each run.
    fn numbers(count: u64) -> impl Iterator<Item = u64> {
        let next = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            Some(*state >> 33)
        };
        (0..count).scan(7, move |state, _| next(state))
    }

    fn check(tree: &Tree<u64, u64>) {
        if let Some(node) = tree {
            let (left, right) = (height(&node.left), height(&node.right));
            assert!(left.abs_diff(right) <= 1 && node.height == left.max(right) + 1);
            check(&node.left);
            check(&node.right);
        }
    }

    #[test]
    fn it_behaves_like_an_ordinary_map() {
        let (mut map, mut model) = (SharedMap::default(), BTreeMap::new());
        for (step, number) in numbers(4000).enumerate() {
            let key = number % 300;
            if number % 3 == 0 {
                assert_eq!(map.remove(&key), model.remove(&key));
            } else {
                assert_eq!(map.insert(key, number), model.insert(key, number));
            }
            assert_eq!(map.len(), model.len());
            assert_eq!(map.get(&key), model.get(&key));
            if step % 50 == 0 {
                check(&map.root);
                assert!(map.iter().eq(model.iter()));
                assert!(map.from(&key).eq(model.range(key..)));
                assert_eq!(map.last_until(&key), model.range(..=key).next_back());
            }
        }
        assert_eq!(format!("{map:?}"), format!("{model:?}"));
    }

    #[test]
    fn a_change_copies_one_path_and_leaves_clones_unchanged() {
        let map: SharedMap<u64, u64> = (0..100_000).map(|number| (number, number)).collect();
        for number in numbers(50).map(|number| number % 100_000) {
            let mut added = map.clone();
            assert_eq!(added.unshared(&map), 0);
            added.insert(100_000 + number, 1);
            // A tree of 100 000 nodes is at most 24 levels high; a rotation touches a neighbour at
            // each level.
            assert!((1..=72).contains(&added.unshared(&map)), "{}", added.unshared(&map));
            let mut removed = map.clone();
            removed.remove(&number);
            assert!(removed.unshared(&map) <= 72, "{}", removed.unshared(&map));
            assert_eq!((map.len(), map.get(&number)), (100_000, Some(&number)));
            let mut untouched = map.clone();
            untouched.remove(&(100_000 + number));
            assert_eq!(untouched.unshared(&map), 0, "removing an absent key copies nothing");
        }
    }
}
