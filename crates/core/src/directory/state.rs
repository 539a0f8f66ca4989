//! The state of the directory.

use std::collections::BTreeMap;

use super::command::{Refusal, Reply};
use super::key_ring::KeyRing;
use super::price::Versions;
use crate::digest::{Digest, Digester};
pub use crate::ledger::accounts::quota::Quota;
use crate::ledger::id::Name;
use crate::shared_map::SharedMap;
use crate::time::Timestamp;

/// What a key may do.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Everything.
    Admin,
    /// Money.
    Billing,
    /// Machines.
    Operator,
    /// Spending.
    Submitter,
    /// Reading.
    Viewer,
    /// Reading, and the audit trail.
    Auditor,
    /// A node's agent.
    Agent,
}

/// What a key may do beyond its role.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Credits enter: grants, compensation, overdraft limits and compensation times.
    Issue,
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// The BLAKE3 hash of the secret.
    pub secret_hash: [u8; 32],
    /// What it may do.
    pub role: Role,
    /// The account whose subtree it may touch; everything if absent.
    pub scope: Option<Name>,
    /// A name for people.
    pub name: Box<str>,
    /// The last instant at which it works.
    pub expires_at: Option<Timestamp>,
    /// The region that an agent is bound to.
    pub region: Option<Name>,
    /// The node that an agent is bound to.
    pub node: Option<Name>,
    /// What it may do beyond its role, sorted and without repeats.
    pub capabilities: Vec<Capability>,
    /// When it was made.
    pub created_at: Timestamp,
    /// The hash of the request that made it.
    pub fingerprint: u128,
}

impl ApiKey {
    /// The tenant within which the key's id is unique; none for keys of the platform.
    pub fn tenant(&self) -> Option<Name> {
        let scope = self.scope.as_deref()?;
        scope.split(':').next().map(Name::from)
    }
}

/// Thirty-two secret bytes, which are not shown by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The terms of a priority class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Higher goes first.
    pub rank: u32,
    /// The classes whose jobs may be stopped for this one.
    pub preempts: Vec<Name>,
    /// How long a stopped job has to save its work.
    pub grace_seconds: u32,
    /// Whether its jobs may be stopped unless they say otherwise.
    pub default_preemptible: bool,
    /// What its price is multiplied by, in thousandths.
    pub price_multiplier_milli: u32,
}

/// An answer kept for its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// The hash of the request.
    pub fingerprint: u128,
    /// The answer.
    pub answer: Result<Reply, Refusal>,
    /// The id of the request that was refused; zero if it was not.
    pub request: u128,
}

/// Keys, prices, classes, regions, quotas, shards. A copy shares what did not change.
#[derive(Clone, Debug)]
pub struct Directory {
    pub(super) now: Timestamp,
    pub(super) regions: SharedMap<Name, ()>,
    pub(super) shards: SharedMap<Name, u16>,
    pub(super) keys: KeyRing,
    pub(super) prices: SharedMap<(Name, Option<Name>), Versions>,
    pub(super) classes: SharedMap<Name, Class>,
    pub(super) quotas: SharedMap<(Name, Option<Name>), Quota>,
    /// The secret under which ids of attempts are written, and since when.
    pub(super) attempt_secret: Option<(Secret, Timestamp)>,
    pub(super) answers: SharedMap<u128, KeptAnswer>,
    /// The kept answers in the order in which they were given, by a number that grows.
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

/// The built-in classes: name, rank, whether their jobs may be stopped.
const BUILT_IN: [(&str, u32, bool); 4] =
    [("batch", 10, true), ("normal", 20, true), ("high", 30, false), ("urgent", 40, false)];

fn built_in_classes() -> BTreeMap<Name, Class> {
    let mut classes = BTreeMap::new();
    for (place, (name, rank, default_preemptible)) in BUILT_IN.into_iter().enumerate() {
        let lower = BUILT_IN.iter().take(place).map(|(name, _, _)| Name::from(*name));
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
    /// A directory with the built-in classes and nothing else.
    pub fn new() -> Directory {
        Directory {
            now: Timestamp::default(),
            regions: SharedMap::default(),
            shards: SharedMap::default(),
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
    pub fn regions(&self) -> impl Iterator<Item = &Name> {
        self.regions.iter().map(|(region, ())| region)
    }

    /// The shard of an org; the first one until it is told otherwise.
    pub fn shard(&self, org: &str) -> u16 {
        self.shards.get(&org.into()).copied().unwrap_or(0)
    }

    /// A tenant's key that was not revoked. Whether it has expired is for the caller to see.
    pub fn key(&self, id: &str, tenant: Option<&str>) -> Option<&ApiKey> {
        self.keys.get(id, tenant)
    }

    /// The keys of all tenants with this id that were not revoked.
    pub fn keys_named(&self, id: &str) -> impl Iterator<Item = &ApiKey> {
        self.keys.named(id)
    }

    /// The tenants, none for the platform, in which a key with this id ended, and whether a key of the
    /// platform ended it.
    pub fn ended_in(&self, id: &str) -> impl Iterator<Item = (Option<&Name>, bool)> {
        self.keys.ended_in(id)
    }

    /// All keys that were not revoked, by id.
    pub fn keys(&self) -> impl Iterator<Item = (&Name, &ApiKey)> {
        self.keys.iter()
    }

    /// The keys of a tenant that were not revoked, by id.
    pub fn keys_of(&self, tenant: &str) -> impl Iterator<Item = (&Name, &ApiKey)> {
        self.keys.of(tenant)
    }

    /// The secret under which ids of attempts are written, and since when.
    pub fn attempt_secret(&self) -> Option<(&Secret, Timestamp)> {
        self.attempt_secret.as_ref().map(|(secret, since)| (secret, *since))
    }

    /// A priority class.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(&name.into())
    }

    /// The classes whose jobs may be stopped for those of a class. `None`: every lower one, as it is
    /// with a built-in class until it is set anew.
    pub fn preempted_by(&self, name: &str) -> Option<&[Name]> {
        let class = self.classes.get(&name.into())?;
        (built_in_classes().get(name) != Some(class)).then_some(&class.preempts)
    }

    /// All priority classes, by name.
    pub fn classes(&self) -> impl Iterator<Item = (&Name, &Class)> {
        self.classes.iter()
    }

    pub(super) fn state_digest(&self) -> Digest {
        let mut digester = Digester::new();
        digester.integer(self.now.millis().into());
        // The debug form is fed in a fixed order: every collection here is ordered.
        let form = format!(
            "{:?}",
            (
                (&self.regions, &self.shards, &self.keys),
                (&self.prices, &self.classes, &self.quotas, &self.answers, &self.aging),
            )
        );
        digester.bytes(form.as_bytes());
        if let Some((secret, since)) = &self.attempt_secret {
            digester.bytes(&secret.0);
            digester.integer(since.millis().into());
        }
        digester.finish()
    }
}
