//! The owner of a node, and its part in the node's name.
//!
//! A node belongs to the platform, or to the tenant of its scope. Node names and GPU uuids are
//! unique per owner, so different owners may use the same names.

use std::fmt;

use compact_str::CompactString;

use crate::cell::command::NodeOffer;
use crate::name::{AccountPath, NodeName, tenant_of};

/// Separates owner and name in the full name. Neither contains it.
const BETWEEN: char = '/';

/// The tenant that owns nodes with this scope. `None`: the platform.
pub fn owner_of(scope: Option<&str>) -> Option<&str> {
    scope.map(tenant_of)
}

/// A node's name and owner. Sorts by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey {
    /// Its name.
    pub name: NodeName,
    /// The tenant that owns it. `None`: the platform.
    pub owner: Option<AccountPath>,
}

impl NodeKey {
    /// The node of this name, as named by an agent with this scope.
    pub fn new(name: impl Into<NodeName>, scope: Option<&str>) -> NodeKey {
        NodeKey { name: name.into(), owner: owner_of(scope).map(AccountPath::unchecked) }
    }

    /// The key of an offered node.
    pub fn of(offer: &NodeOffer) -> NodeKey {
        NodeKey::new(offer.name.clone(), offer.scope.as_deref())
    }

    /// The full name: `n1` of the platform, `acme/n1` of a tenant.
    pub fn full(&self) -> CompactString {
        match &self.owner {
            None => self.name.clone().into(),
            Some(owner) => compact_str::format_compact!("{owner}{BETWEEN}{}", self.name),
        }
    }
}

/// The name without the owner, from a full name.
pub fn bare_name(full: &str) -> &str {
    full.rsplit_once(BETWEEN).map_or(full, |(_, name)| name)
}

/// The owner, from a full name. `None`: the platform.
pub(crate) fn full_owner(full: &str) -> Option<&str> {
    full.rsplit_once(BETWEEN).map(|(owner, _)| owner)
}

/// Whether a full name is that of a node of the platform.
pub fn is_platforms(full: &str) -> bool {
    !full.contains(BETWEEN)
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full())
    }
}

/// A node of the platform.
impl From<&str> for NodeKey {
    fn from(name: &str) -> NodeKey {
        NodeKey::new(name, None)
    }
}

/// A node of the platform.
impl From<String> for NodeKey {
    fn from(name: String) -> NodeKey {
        NodeKey::new(name, None)
    }
}

/// A node of the platform.
impl From<CompactString> for NodeKey {
    fn from(name: CompactString) -> NodeKey {
        NodeKey::new(name, None)
    }
}

impl From<&NodeKey> for NodeKey {
    fn from(key: &NodeKey) -> NodeKey {
        key.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_its_tenants_or_the_platforms() {
        for (scope, full) in
            [(None, "n1"), (Some("acme"), "acme/n1"), (Some("acme:nlp:ann"), "acme/n1")]
        {
            let key = NodeKey::new("n1", scope);
            assert_eq!(key.full(), full);
            assert_eq!(bare_name(&key.full()), "n1");
            assert_eq!(full_owner(&key.full()), owner_of(scope));
        }
    }
}
