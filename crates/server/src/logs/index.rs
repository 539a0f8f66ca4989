//! The index of the stored files by tenant and node, and which file is removed first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{LogLimits, NodeTag, TenantTag};

/// The name of a file.
pub(super) type FileName = Arc<str>;

/// The owner of a file. Names of earlier versions do not have it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) tenant: Option<TenantTag>,
    pub(super) node: Option<NodeTag>,
}

#[derive(Debug)]
struct Entry {
    /// Grows with each change of a file.
    order: u64,
    owner: Owner,
    bytes: u64,
}

/// The files of a tenant or node, the least recently written first.
#[derive(Debug, Default)]
struct Group {
    bytes: u64,
    order: BTreeMap<u64, FileName>,
}

impl Group {
    /// The least recently written file other than `but`.
    fn oldest(&self, but: &str) -> Option<&FileName> {
        self.order.values().find(|name| &***name != but)
    }

    /// How many files there are.
    fn files(&self) -> u64 {
        self.order.len() as u64
    }
}

/// Tenants by what they have, the one that has most first.
type Ranking = BTreeSet<(Reverse<u64>, Option<TenantTag>)>;

/// All files, and what they add up to.
#[derive(Debug, Default)]
pub(super) struct Index {
    files: BTreeMap<FileName, Entry>,
    tenants: BTreeMap<Option<TenantTag>, Group>,
    /// The tenants by bytes and by files: shedding removes thousands of files in a row, and must
    /// not look at every tenant for each.
    by_bytes: Ranking,
    by_files: Ranking,
    nodes: BTreeMap<NodeTag, Group>,
    bytes: u64,
    changes: u64,
}

impl Index {
    /// The size of all files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of files.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether a file exists.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Records the size of a file and makes it the most recently written one.
    pub(super) fn set(&mut self, name: &str, owner: Owner, bytes: u64) {
        self.remove(name);
        let name = FileName::from(name);
        let order = self.changes;
        self.changes += 1;
        self.unrank(owner.tenant);
        let tenant = self.tenants.entry(owner.tenant).or_default();
        let node = owner.node.map(|node| self.nodes.entry(node).or_default());
        for group in std::iter::once(tenant).chain(node) {
            group.bytes += bytes;
            group.order.insert(order, FileName::clone(&name));
        }
        self.rank(owner.tenant);
        self.bytes += bytes;
        self.files.insert(name, Entry { order, owner, bytes });
    }

    /// Takes a tenant out of the rankings, before what it has changes.
    fn unrank(&mut self, tenant: Option<TenantTag>) {
        if let Some(group) = self.tenants.get(&tenant) {
            self.by_bytes.remove(&(Reverse(group.bytes), tenant));
            self.by_files.remove(&(Reverse(group.files()), tenant));
        }
    }

    /// Puts a tenant into the rankings, unless nothing is left of it.
    fn rank(&mut self, tenant: Option<TenantTag>) {
        if let Some(group) = self.tenants.get(&tenant) {
            self.by_bytes.insert((Reverse(group.bytes), tenant));
            self.by_files.insert((Reverse(group.files()), tenant));
        }
    }

    /// A file is gone.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(Entry { order, owner, bytes }) = self.files.remove(name) else { return };
        self.bytes -= bytes;
        self.unrank(owner.tenant);
        take_out(&mut self.tenants, &owner.tenant, order, bytes);
        self.rank(owner.tenant);
        if let Some(node) = owner.node {
            take_out(&mut self.nodes, &node, order, bytes);
        }
    }

    /// The file to remove because a node exceeds its limit. Removal frees an eighth of the limit at
    /// once.
    pub(super) fn node_victim(
        &self,
        node: NodeTag,
        limits: &LogLimits,
        shedding: bool,
        current: &str,
    ) -> Option<FileName> {
        let group = self.nodes.get(&node)?;
        let is_over = group.bytes > target(limits.node_bytes, shedding);
        is_over.then(|| group.oldest(current).cloned()).flatten()
    }

    /// The file to remove because the total is too large: the least recently written file of the
    /// tenant that has most.
    pub(super) fn victim(
        &self,
        limits: &LogLimits,
        shedding: bool,
        current: &str,
    ) -> Option<FileName> {
        let ranking = if self.bytes > target(limits.total_bytes, shedding) {
            &self.by_bytes
        } else if self.files.len() as u64 > target(limits.files, shedding) {
            &self.by_files
        } else {
            return None;
        };
        // At most one tenant has no other file than the current one.
        let mut groups = ranking.iter().filter_map(|(_, tenant)| self.group_of(*tenant));
        groups.find_map(|group| group.oldest(current).cloned())
    }

    fn group_of(&self, tenant: Option<TenantTag>) -> Option<&Group> {
        #[cfg(test)]
        tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
        self.tenants.get(&tenant)
    }
}

/// The size to reach. Once files are removed, an eighth of the limit is freed.
fn target(bound: u64, shedding: bool) -> u64 {
    if shedding { bound - bound / 8 } else { bound }
}

fn take_out<K: Ord>(groups: &mut BTreeMap<K, Group>, of: &K, order: u64, bytes: u64) {
    if let Some(group) = groups.get_mut(of) {
        group.bytes -= bytes;
        group.order.remove(&order);
        if group.order.is_empty() {
            groups.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// How many groups were looked at.
        pub(super) static LOOKED_AT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }

    fn owner(tenant: &str, node: u64) -> Owner {
        Owner { tenant: Some(TenantTag::of(tenant)), node: Some(NodeTag(node)) }
    }

    fn shed(index: &mut Index, limits: &LogLimits, current: &str) -> Vec<String> {
        let mut gone = Vec::new();
        while let Some(name) = index.victim(limits, !gone.is_empty(), current) {
            index.remove(&name);
            gone.push(name.to_string());
        }
        gone
    }

    #[test]
    fn the_least_recently_written_file_of_the_largest_tenant_is_removed_first() {
        let limits = LogLimits { total_bytes: 1000, ..LogLimits::default() };
        let mut index = Index::default();
        for number in 0..3 {
            index.set(&format!("small{number}"), owner("small", 1), 50);
        }
        for number in 0..8 {
            index.set(&format!("large{number}"), owner("large", 2), 100);
        }
        assert_eq!(shed(&mut index, &limits, "large7"), [""; 0]);
        // It was written again, so it is no longer the oldest.
        index.set("large0", owner("large", 2), 200);
        assert_eq!(index.bytes(), 1050);
        assert_eq!(shed(&mut index, &limits, "large0"), ["large1", "large2"]);
        // A tenant with less than an equal share loses nothing, and the file being written stays.
        index.set("other", owner("other", 1), 500);
        let gone = ["large3", "large4", "large5", "large6", "large7"];
        assert_eq!(shed(&mut index, &limits, "other"), gone);
        assert_eq!(index.bytes(), 850);
        for number in 0..3 {
            assert!(index.contains(&format!("small{number}")));
        }
    }

    #[test]
    fn the_number_of_files_is_bounded_however_small_they_are() {
        let limits = LogLimits { files: 80, ..LogLimits::default() };
        let mut index = Index::default();
        index.set("one", owner("one", 1), 1 << 20);
        for number in 0..500 {
            let name = format!("many{number:03}");
            index.set(&name, owner("many", 1), 1);
            shed(&mut index, &limits, &name);
            assert!(index.len() <= 80);
        }
        assert!(index.contains("one") && index.contains("many499") && index.len() >= 70);
        for name in index.files.keys().cloned().collect::<Vec<_>>() {
            index.remove(&name);
        }
        assert!(index.tenants.is_empty() && index.nodes.is_empty() && index.bytes == 0);
    }

    #[test]
    fn shedding_does_not_look_at_every_tenant_for_each_file() {
        let limits = LogLimits { files: 4000, ..LogLimits::default() };
        let mut index = Index::default();
        for number in 0..4001 {
            index.set(&format!("f{number}"), owner(&format!("t{}", number % 2000), 1), 1);
        }
        LOOKED_AT.set(0);
        let gone = shed(&mut index, &limits, "f4000");
        assert_eq!(gone.len(), 501);
        let most = u32::try_from(gone.len()).expect("few") * 2;
        assert!(LOOKED_AT.get() <= most, "{} groups for {} files", LOOKED_AT.get(), gone.len());
    }

    #[test]
    fn rankings_follow_what_tenants_have() {
        let mut index = Index::default();
        let mut random = 7_u64;
        for _ in 0..3000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (file, tenant) = ((random >> 33) % 50, (random >> 40) % 7);
            match (random >> 50) % 3 {
                0 => index.remove(&format!("f{file}")),
                _ => {
                    let owner = owner(&format!("t{tenant}"), tenant);
                    index.set(&format!("f{file}"), owner, (random >> 20) % 100);
                }
            }
            let ranked = |weight: &dyn Fn(&Group) -> u64| -> Ranking {
                let groups = index.tenants.iter();
                groups.map(|(tenant, group)| (Reverse(weight(group)), *tenant)).collect()
            };
            assert_eq!(index.by_bytes, ranked(&|group| group.bytes));
            assert_eq!(index.by_files, ranked(&Group::files));
        }
    }
}
