//! API keys, and the ids of ended ones.
//!
//! The number of keys per tenant is limited. At the limit an expired key is replaced by a new one.
//! The ids of ended keys are not reused; the latest ones of each tenant are kept. The secret of an
//! ended key is removed with it, so it never authenticates another key of the same id.

use std::sync::Arc;

use super::state::ApiKey;
use crate::name::{AccountPath, KeyId};
use crate::shared_map::SharedMap;
use crate::time::Timestamp;

/// The most keys of one tenant: one for each of its nodes, and more for programs and people.
pub const MAX_TENANT_KEYS: usize = 5_000;
/// The most keys of the platform.
pub const MAX_PLATFORM_KEYS: usize = 100_000;
/// The most ids of ended keys that are kept per tenant, the latest ones.
pub const MAX_ENDED_KEYS: usize = 10_000;

/// A key's id and the tenant within which it is unique; none for keys of the platform.
type KeyName = (KeyId, Option<AccountPath>);

/// A key that ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndedKey {
    /// Its scope; `None` is the whole platform.
    pub scope: Option<AccountPath>,
    /// Whether a key of the platform revoked it.
    pub by_platform: bool,
}

impl EndedKey {
    /// The tenant that it belonged to; `None` is the platform.
    pub fn tenant(&self) -> Option<AccountPath> {
        self.scope.as_ref().map(AccountPath::tenant)
    }
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Counts {
    present: usize,
    ended: usize,
}

/// The keys of all tenants.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct KeyRing {
    keys: SharedMap<KeyName, Arc<ApiKey>>,
    /// The keys of each tenant.
    owned: SharedMap<(Option<AccountPath>, KeyId), ()>,
    /// The keys of each tenant that expire, by expiry.
    expiring: SharedMap<(Option<AccountPath>, Timestamp, KeyId), ()>,
    ended: SharedMap<KeyName, EndedKey>,
    /// The ended keys of each tenant, in the order in which they ended.
    ended_order: SharedMap<(Option<AccountPath>, u64), KeyId>,
    counts: SharedMap<Option<AccountPath>, Counts>,
    ended_so_far: u64,
}

/// The most keys of a tenant, or of the platform.
fn most_of(tenant: Option<&AccountPath>) -> usize {
    if tenant.is_some() { MAX_TENANT_KEYS } else { MAX_PLATFORM_KEYS }
}

impl KeyRing {
    pub(super) fn get(&self, id: &str, tenant: Option<&str>) -> Option<&ApiKey> {
        self.keys.get(&(KeyId::unchecked(id), tenant.map(AccountPath::unchecked))).map(|key| &**key)
    }

    /// The keys of all tenants with an id.
    pub(super) fn named(&self, id: &str) -> impl Iterator<Item = &ApiKey> {
        let first = (KeyId::unchecked(id), None);
        let named = self.keys.from(&first);
        named.take_while(move |((id, _), _)| *id == first.0).map(|(_, key)| &**key)
    }

    /// All keys, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&KeyId, &ApiKey)> {
        self.keys.iter().map(|((id, _), key)| (id, &**key))
    }

    /// The keys of a tenant, by id.
    pub(super) fn of(&self, tenant: &str) -> impl Iterator<Item = (&KeyId, &ApiKey)> {
        let tenant = Some(AccountPath::unchecked(tenant));
        let owned = self.owned.from(&(tenant.clone(), KeyId::default()));
        let owned = owned.map(|(name, ())| name).take_while(move |(of, _)| *of == tenant);
        owned.filter_map(|(of, id)| Some((id, &**self.keys.get(&(id.clone(), of.clone()))?)))
    }

    /// The keys with an id that ended, at most one of each tenant.
    pub(super) fn ended(&self, id: &str) -> impl Iterator<Item = &EndedKey> {
        let first = (KeyId::unchecked(id), None);
        let named = self.ended.from(&first).take_while(move |((id, _), _)| *id == first.0);
        named.map(|(_, ended)| ended)
    }

    /// Whether an id belonged to a key that has ended.
    pub(super) fn was_used(&self, id: &KeyId, tenant: Option<&AccountPath>) -> bool {
        self.ended.contains_key(&(id.clone(), tenant.cloned()))
    }

    fn counts(&self, tenant: Option<&AccountPath>) -> Counts {
        self.counts.get(&tenant.cloned()).copied().unwrap_or_default()
    }

    fn count(&mut self, tenant: Option<&AccountPath>, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts(tenant);
        change(&mut counts);
        if counts == Counts::default() {
            self.counts.remove(&tenant.cloned());
        } else {
            self.counts.insert(tenant.cloned(), counts);
        }
    }

    /// The expired key of a tenant that expired first, if there is one.
    fn expired(&self, tenant: Option<&AccountPath>, now: Timestamp) -> Option<KeyId> {
        let tenant = tenant.cloned();
        let from = (tenant.clone(), Timestamp::MIN, KeyId::default());
        let ((of, expires_at, id), ()) = self.expiring.from(&from).next()?;
        (*of == tenant && *expires_at < now).then(|| id.clone())
    }

    /// Whether a tenant may have one more key.
    pub(super) fn has_room(&self, tenant: Option<&AccountPath>, now: Timestamp) -> bool {
        self.counts(tenant).present < most_of(tenant) || self.expired(tenant, now).is_some()
    }

    /// Adds a key. At the limit it replaces one that has expired.
    pub(super) fn add(&mut self, id: &KeyId, key: &ApiKey, now: Timestamp) {
        let tenant = key.tenant();
        if self.counts(tenant.as_ref()).present >= most_of(tenant.as_ref())
            && let Some(expired) = self.expired(tenant.as_ref(), now)
        {
            self.end(&expired, tenant.as_ref(), false);
        }
        let before = self.keys.insert((id.clone(), tenant.clone()), Arc::new(key.clone()));
        if let Some(end) = before.as_ref().and_then(|before| before.expires_at) {
            self.expiring.remove(&(tenant.clone(), end, id.clone()));
        }
        if let Some(end) = key.expires_at {
            self.expiring.insert((tenant.clone(), end, id.clone()), ());
        }
        self.owned.insert((tenant.clone(), id.clone()), ());
        if before.is_none() {
            self.count(tenant.as_ref(), |counts| counts.present += 1);
        }
    }

    /// Ends a key and keeps its id. The oldest kept id of the tenant may be dropped for it.
    pub(super) fn end(&mut self, id: &KeyId, tenant: Option<&AccountPath>, by_platform: bool) {
        let name = (id.clone(), tenant.cloned());
        let mut scope = tenant.cloned();
        if let Some(key) = self.keys.remove(&name) {
            scope.clone_from(&key.scope);
            if let Some(end) = key.expires_at {
                self.expiring.remove(&(tenant.cloned(), end, id.clone()));
            }
            self.owned.remove(&(tenant.cloned(), id.clone()));
            self.count(tenant, |counts| counts.present -= 1);
        }
        if self.ended.contains_key(&name) {
            return;
        }
        let number = self.ended_so_far;
        self.ended_so_far += 1;
        self.ended.insert(name, EndedKey { scope, by_platform });
        self.ended_order.insert((tenant.cloned(), number), id.clone());
        self.count(tenant, |counts| counts.ended += 1);
        if self.counts(tenant).ended > MAX_ENDED_KEYS {
            self.forget_oldest(tenant);
        }
    }

    fn forget_oldest(&mut self, tenant: Option<&AccountPath>) {
        let mut ended = self.ended_order.from(&(tenant.cloned(), 0));
        let oldest = ended.next().filter(|((of, _), _)| of.as_ref() == tenant);
        let Some(((of, number), id)) = oldest.map(|(place, id)| (place.clone(), id.clone())) else {
            return;
        };
        self.ended_order.remove(&(of.clone(), number));
        self.ended.remove(&(id, of));
        self.count(tenant, |counts| counts.ended -= 1);
    }

    /// How many tree nodes of the tables are not shared with another ring.
    #[cfg(test)]
    pub(super) fn unshared(&self, other: &KeyRing) -> usize {
        self.keys.unshared(&other.keys)
            + self.owned.unshared(&other.owned)
            + self.expiring.unshared(&other.expiring)
            + self.ended.unshared(&other.ended)
            + self.ended_order.unshared(&other.ended_order)
            + self.counts.unshared(&other.counts)
    }

    /// The number of keys, and of ids of ended keys.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        assert_eq!(self.keys.len(), self.owned.len());
        assert_eq!(self.ended.len(), self.ended_order.len());
        assert!(self.expiring.len() <= self.keys.len());
        (self.keys.len(), self.ended.len())
    }
}
