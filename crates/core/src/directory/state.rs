//! The state of the directory.

use std::collections::BTreeMap;

use super::command::{Refusal, Reply};
use super::key_ring::{EndedKey, KeyRing};
use super::price::Versions;
use super::shards::ShardMap;
use crate::digest::{Digest, Digester};
pub use crate::ledger::accounts::quota::Quota;
use crate::name::{AccountPath, ClassName, GpuModel, KeyId, NodeName, Region};
use crate::shared_map::SharedMap;
use crate::time::Timestamp;

/// The role of a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Everything.
    Admin,
    /// Manages credits.
    Billing,
    /// Manages nodes.
    Operator,
    /// Spends credits.
    Submitter,
    /// Read access.
    Viewer,
    /// Read access, including the audit trail.
    Auditor,
    /// A node's agent.
    Agent,
}

/// Permissions of a key beyond its role.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Issue credits: grants, compensation, overdraft limits and compensation times.
    Issue,
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApiKey {
    /// The BLAKE3 hash of the secret.
    pub secret_hash: [u8; 32],
    /// Its role.
    pub role: Role,
    /// The account whose subtree it may access; absent: everything.
    pub scope: Option<AccountPath>,
    /// A display name.
    pub name: Box<str>,
    /// The last instant at which it is valid.
    pub expires_at: Option<Timestamp>,
    /// The region that an agent's key is bound to.
    pub region: Option<Region>,
    /// The node that an agent's key is bound to.
    pub node: Option<NodeName>,
    /// Permissions beyond its role, sorted and without duplicates.
    pub capabilities: Vec<Capability>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The hash of the request that created it.
    pub fingerprint: u128,
}

impl ApiKey {
    /// The tenant within which the key's id is unique; none for keys of the platform.
    pub fn tenant(&self) -> Option<AccountPath> {
        self.scope.as_ref().map(AccountPath::tenant)
    }
}

/// Thirty-two secret bytes that `Debug` does not print.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The terms of a priority class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// Jobs of a higher rank go first.
    pub rank: u32,
    /// The classes that this class may preempt.
    pub preempts: Vec<ClassName>,
    /// The time between the stop signal and the kill.
    pub grace_seconds: u32,
    /// Whether its jobs are preemptible unless they state otherwise.
    pub default_preemptible: bool,
    /// The price multiplier, in thousandths.
    pub price_multiplier_milli: u32,
}

/// An answer stored for its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DirectoryKeptAnswer {
    /// The hash of the request.
    pub fingerprint: u128,
    /// The answer.
    pub answer: Result<Reply, Refusal>,
    /// The id of the refused request; zero if it was accepted.
    pub request: u128,
}

/// Keys, prices, classes, regions, quotas of older journals, and shards. Copies share unchanged
/// parts.
#[derive(Clone, Debug)]
pub struct Directory {
    pub(super) now: Timestamp,
    pub(super) regions: SharedMap<Region, ()>,
    pub(super) shards: ShardMap,
    pub(super) keys: KeyRing,
    pub(super) prices: SharedMap<(GpuModel, Option<Region>), Versions>,
    pub(super) classes: SharedMap<ClassName, Class>,
    pub(super) quotas: SharedMap<(AccountPath, Option<Region>), Quota>,
    /// The secret that encrypts attempt ids, and since when.
    pub(super) attempt_secret: Option<(Secret, Timestamp)>,
    pub(super) answers: SharedMap<u128, DirectoryKeptAnswer>,
    /// The stored answers in the order in which they were given, by a growing number.
    pub(super) aging: SharedMap<u64, (Timestamp, u128)>,
    pub(super) answers_so_far: u64,
    /// The state before the current group.
    pub(super) before_group: Option<Box<Directory>>,
}

impl Default for Directory {
    fn default() -> Directory {
        Directory::new()
    }
}

/// The built-in classes: name, rank, whether their jobs are preemptible.
const BUILT_IN: [(&str, u32, bool); 4] =
    [("batch", 10, true), ("normal", 20, true), ("high", 30, false), ("urgent", 40, false)];

fn built_in_classes() -> BTreeMap<ClassName, Class> {
    let mut classes = BTreeMap::new();
    for (place, (name, rank, default_preemptible)) in BUILT_IN.into_iter().enumerate() {
        let lower = BUILT_IN.iter().take(place).map(|(name, _, _)| ClassName::unchecked(*name));
        let class = Class {
            rank,
            preempts: lower.collect(),
            grace_seconds: 60,
            default_preemptible,
            price_multiplier_milli: 1000,
        };
        classes.insert(name.into(), class);
    }
    classes
}

impl Directory {
    /// A directory with only the built-in classes.
    pub fn new() -> Directory {
        Directory {
            now: Timestamp::default(),
            regions: SharedMap::default(),
            shards: ShardMap::default(),
            keys: KeyRing::default(),
            prices: SharedMap::default(),
            classes: built_in_classes().into_iter().collect(),
            quotas: SharedMap::default(),
            attempt_secret: None,
            answers: SharedMap::default(),
            aging: SharedMap::default(),
            answers_so_far: 0,
            before_group: None,
        }
    }

    /// The regions, in order.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().map(|(region, ())| region)
    }

    /// A tenant's key that was not revoked. The caller checks its expiry.
    pub fn key(&self, id: &str, tenant: Option<&str>) -> Option<&ApiKey> {
        self.keys.get(id, tenant)
    }

    /// The keys of all tenants with this id that were not revoked.
    pub fn keys_named(&self, id: &str) -> impl Iterator<Item = &ApiKey> {
        self.keys.named(id)
    }

    /// The keys with this id that ended, at most one of each tenant.
    pub fn ended_keys(&self, id: &str) -> impl Iterator<Item = &EndedKey> {
        self.keys.ended(id)
    }

    /// All keys that were not revoked, by id.
    pub fn keys(&self) -> impl Iterator<Item = (&KeyId, &ApiKey)> {
        self.keys.iter()
    }

    /// The keys of a tenant that were not revoked, by id.
    pub fn keys_of(&self, tenant: &str) -> impl Iterator<Item = (&KeyId, &ApiKey)> {
        self.keys.of(tenant)
    }

    /// The secret that encrypts attempt ids, and since when.
    pub fn attempt_secret(&self) -> Option<(&Secret, Timestamp)> {
        self.attempt_secret.as_ref().map(|(secret, since)| (secret, *since))
    }

    /// A priority class.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(&ClassName::unchecked(name))
    }

    /// The classes that a class may preempt. `None`: every lower one, which applies to a built-in
    /// class until it is set.
    pub fn preempted_by(&self, name: &str) -> Option<&[ClassName]> {
        let class = self.classes.get(&ClassName::unchecked(name))?;
        (built_in_classes().get(name) != Some(class)).then_some(&class.preempts)
    }

    /// All priority classes, by name.
    pub fn classes(&self) -> impl Iterator<Item = (&ClassName, &Class)> {
        self.classes.iter()
    }

    pub(super) fn state_digest(&self) -> Digest {
        let mut digester = Digester::new();
        digester.value((self.now, &self.regions, self.shards.orgs(), &self.keys));
        digester.value((&self.prices, &self.classes, &self.quotas, &self.answers, &self.aging));
        digester.value(&self.attempt_secret);
        self.shards.add_states(&mut digester);
        digester.finish()
    }
}
