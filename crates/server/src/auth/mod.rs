//! Authentication: API keys and their scopes.
//!
//! A key has the form `bur_<id>_<secret><checksum>`. The id finds the key, the secret (160 random
//! bits) proves it, and the checksum detects a mistyped key without a request to the server. Only
//! the BLAKE3 hash of the whole key is stored.

pub mod last_used;
pub mod oidc;
pub mod permissions;
pub mod root_key;
pub mod sessions;

use bursar_api::Code;
use bursar_api::system::key::Role;
use bursar_core::cell::nodes::scope::covers;
use bursar_core::directory::{self, ApiKey, Capability, Directory};
use bursar_core::name::{AccountPath, KeyId, NodeName, Region};
pub use bursar_core::name::{is_at_or_below, tenant_of};
use bursar_core::time::Timestamp;
use subtle::ConstantTimeEq;

use crate::auth::permissions::{Authority, Reach};
use crate::auth::sessions::SessionId;
use crate::ids::{base32, random_bits};
use crate::operations::{Operation, OperationRow};
use crate::request::Failure;

const PREFIX: &str = "bur_";
/// The id of the root key.
const ROOT: &str = "root";
const SECRET_LETTERS: usize = 32;
const CHECKSUM_LETTERS: usize = 6;

/// The hash of a whole key.
pub fn hash(key: &str) -> [u8; 32] {
    *blake3::hash(key.as_bytes()).as_bytes()
}

fn checksum(text: &str) -> String {
    let digest = hash(text);
    let bits = u128::from_le_bytes(digest[..16].try_into().expect("sixteen of thirty-two bytes"));
    base32(bits, CHECKSUM_LETTERS)
}

/// Generates the bearer secret of a key.
pub fn make_key(id: &str) -> String {
    let bits = || (u128::from(random_bits()) << 64) | u128::from(random_bits());
    let secret = base32(bits(), SECRET_LETTERS / 2) + &base32(bits(), SECRET_LETTERS / 2);
    let text = format!("{PREFIX}{id}_{secret}");
    let checksum = checksum(&text);
    text + &checksum
}

/// Whether a text begins like a key of this program.
pub(crate) fn looks_like_key(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Whether a text is a whole key: its form and checksum are right.
pub(crate) fn is_key(text: &str) -> bool {
    key_id(text).is_some()
}

/// The id in a key, if its form and checksum are right.
pub(crate) fn key_id(key: &str) -> Option<&str> {
    let text = key.get(..key.len().checked_sub(CHECKSUM_LETTERS)?)?;
    if !key.is_ascii() || checksum(text) != key[text.len()..] {
        return None;
    }
    let (id, secret) = text.strip_prefix(PREFIX)?.rsplit_once('_')?;
    (secret.len() == SECRET_LETTERS).then_some(id)
}

/// The key, or the person of an identity provider, that authenticated a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The id of the key, for the audit trail.
    pub id: KeyId,
    /// The role of the key.
    pub role: Role,
    /// The account whose subtree the key is valid for; `None` is the whole platform.
    pub scope: Option<AccountPath>,
    /// The last instant at which the key is valid.
    pub expires_at: Option<Timestamp>,
    /// Agents: the region that the key is bound to.
    pub region: Option<Region>,
    /// Agents: the node that the key is bound to.
    pub node: Option<NodeName>,
    /// The hash of the key; `None` for the root key.
    pub secret_hash: Option<[u8; 32]>,
    /// Whether the key may issue credits within its scope.
    pub may_issue: bool,
    /// The session of the request; `None` with a bearer key.
    pub session: Option<SessionId>,
}

impl Principal {
    /// The principal of the root key.
    pub fn root() -> Principal {
        Principal {
            id: ROOT.into(),
            role: Role::Admin,
            scope: None,
            expires_at: None,
            region: None,
            node: None,
            secret_hash: None,
            may_issue: true,
            session: None,
        }
    }

    fn of(id: &str, key: &ApiKey) -> Principal {
        Principal {
            id: id.into(),
            role: role(key.role),
            scope: key.scope.clone(),
            expires_at: key.expires_at,
            region: key.region.clone(),
            node: key.node.clone(),
            secret_hash: Some(key.secret_hash),
            may_issue: key.scope.is_none() || key.capabilities.contains(&Capability::Issue),
            session: None,
        }
    }

    /// Whether an account is in the key's scope.
    pub fn sees(&self, account: &str) -> bool {
        self.scope.as_ref().is_none_or(|scope| is_at_or_below(account, scope))
    }

    /// Whether the key may see a node: the node runs jobs of accounts in the key's scope, or its
    /// scope is within the key's.
    pub fn sees_node(&self, scope: Option<&str>) -> bool {
        let own = self.scope.as_deref();
        covers(own, scope) || covers(scope, own)
    }

    /// Whether the key's scope covers every account whose jobs the node may run.
    pub fn owns_node(&self, scope: Option<&str>) -> bool {
        covers(self.scope.as_deref(), scope)
    }

    /// Whether the key of the request is still valid.
    pub fn works(&self, directory: &Directory, now: Timestamp) -> bool {
        let Some(secret_hash) = self.secret_hash else { return true };
        directory
            .keys_named(&self.id)
            .any(|key| key.secret_hash == secret_hash && !has_expired(key, now))
    }

    /// The tenant that the key is bound to.
    pub fn tenant(&self) -> Option<&str> {
        self.scope.as_deref().map(tenant_of)
    }

    /// The name of the key's rate limit bucket. Ids of keys are unique only within their tenant.
    pub fn bucket(&self) -> String {
        format!("{}/{}", self.tenant().unwrap_or("*"), self.id)
    }

    /// Whether the key is exempt from rate limits.
    pub fn is_exempt(&self) -> bool {
        self.role == Role::Admin && self.scope.is_none()
    }

    /// Refuses an operation that the key's role or scope does not allow.
    pub fn require(&self, operation: Operation) -> Result<(), Failure> {
        let OperationRow { roles, reach, .. } = operation.row();
        if !roles.contains(self.role) {
            let allowed: Vec<&str> = roles.list().map(role_name).collect();
            let detail = format!(
                "the role {} may not do this; use a key with one of: {}",
                role_name(self.role),
                allowed.join(", ")
            );
            return Err(Failure::forbidden(detail));
        }
        match reach {
            Reach::Tenant | Reach::Shared | Reach::Public => Ok(()),
            Reach::Issue => self.require_authority(Authority::Issue),
            Reach::Platform => {
                let detail = "this concerns the whole platform; use a key whose scope is \"*\"";
                if self.is_of_platform() { Ok(()) } else { Err(Failure::forbidden(detail)) }
            }
        }
    }

    /// Whether it is a person of an identity provider.
    pub fn is_person(&self) -> bool {
        self.secret_hash.is_none() && self.id != ROOT
    }

    /// Whether it is a platform key.
    pub fn is_of_platform(&self) -> bool {
        self.scope.is_none()
    }

    /// Refuses what only the platform, or a key that the platform authorized, may do.
    pub fn require_authority(&self, authority: Authority) -> Result<(), Failure> {
        let (is_enough, detail) = match authority {
            // The second is checked where the ledger is known.
            Authority::Role | Authority::IssueForJobs => return Ok(()),
            Authority::Issue => (
                self.may_issue,
                "credits enter only from the platform; use a key whose scope is \"*\", or one \
                 that such a key gave the capability `issue`",
            ),
            Authority::Platform => (
                self.is_of_platform(),
                "the weight and the quota of an org are set by the platform; use a key whose \
                 scope is \"*\", or set those of accounts below the org",
            ),
        };
        if is_enough { Ok(()) } else { Err(Failure::forbidden(detail)) }
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Admin => "admin",
        Role::Billing => "billing",
        Role::Operator => "operator",
        Role::Submitter => "submitter",
        Role::Viewer => "viewer",
        Role::Auditor => "auditor",
        Role::Agent => "agent",
    }
}

/// Whether an account is the root of its tenant.
pub fn is_org(account: &str) -> bool {
    !account.contains(':')
}

/// The role of a key, as the API names it.
pub fn role(role: directory::Role) -> Role {
    match role {
        directory::Role::Admin => Role::Admin,
        directory::Role::Billing => Role::Billing,
        directory::Role::Operator => Role::Operator,
        directory::Role::Submitter => Role::Submitter,
        directory::Role::Viewer => Role::Viewer,
        directory::Role::Auditor => Role::Auditor,
        directory::Role::Agent => Role::Agent,
    }
}

/// The role of a key, as the directory stores it.
pub fn stored_role(role: Role) -> directory::Role {
    match role {
        Role::Admin => directory::Role::Admin,
        Role::Billing => directory::Role::Billing,
        Role::Operator => directory::Role::Operator,
        Role::Submitter => directory::Role::Submitter,
        Role::Viewer => directory::Role::Viewer,
        Role::Auditor => directory::Role::Auditor,
        Role::Agent => directory::Role::Agent,
    }
}

fn has_expired(key: &ApiKey, now: Timestamp) -> bool {
    key.expires_at.is_some_and(|expires_at| expires_at < now)
}

/// The answer to a request whose key became invalid while it waited.
pub fn no_longer_works() -> Failure {
    let detail = "the key was revoked or has expired, or the session has ended; send a valid key or sign in \
                  again";
    Failure::new(Code::Unauthenticated, detail)
}

/// Finds the principal of a request. All invalid keys get the same answer.
pub fn authenticate(
    authorization: Option<&str>,
    root: &[u8; 32],
    directory: &Directory,
    now: Timestamp,
) -> Result<Principal, Failure> {
    let unknown = || {
        let detail = "send a valid key as `Authorization: Bearer <key>`";
        Failure::new(Code::Unauthenticated, detail)
    };
    let (scheme, key) =
        authorization.and_then(|value| value.split_once(' ')).ok_or_else(unknown)?;
    let key = key.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || key.is_empty() {
        return Err(unknown());
    }
    find(key, root, directory, now).ok_or_else(unknown)
}

/// The principal of a key; `None` if the key is unknown, expired or revoked.
pub(crate) fn find(
    key: &str,
    root: &[u8; 32],
    directory: &Directory,
    now: Timestamp,
) -> Option<Principal> {
    let hash = hash(key);
    if bool::from(hash.ct_eq(root)) {
        return Some(Principal::root());
    }
    let id = key_id(key)?;
    // Keys of several tenants may have the same id; the secret belongs to one of them.
    let mut known = None;
    let mut compared = false;
    for key in directory.keys_named(id) {
        compared = true;
        if bool::from(hash.ct_eq(&key.secret_hash)) {
            known = Some(key);
        }
    }
    if !compared {
        // An unknown id costs the same comparison as a known one.
        let _never = bool::from(hash.ct_eq(&[0; 32]));
    }
    known.filter(|known| !has_expired(known, now)).map(|known| Principal::of(id, known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_sees_nodes_that_run_its_jobs_and_owns_nodes_within_its_scope() {
        let mut principal = Principal::root();
        assert!(principal.owns_node(None) && principal.owns_node(Some("acme")));
        principal.scope = Some("acme:nlp".into());
        for (scope, seen, owned) in [
            (None, true, false),
            (Some("acme"), true, false),
            (Some("acme:nlp"), true, true),
            (Some("acme:nlp:x"), true, true),
            (Some("acme:vision"), false, false),
            (Some("zeta"), false, false),
        ] {
            let found = (principal.sees_node(scope), principal.owns_node(scope));
            assert_eq!(found, (seen, owned), "{scope:?}");
        }
    }

    #[test]
    fn a_key_contains_its_id_and_a_mistyped_key_is_detected() {
        for id in ["key_01", "my.own:key_id-1"] {
            let key = make_key(id);
            assert_eq!(key_id(&key), Some(id));
            for place in 0..key.len() {
                let mut wrong = key.clone().into_bytes();
                wrong[place] = if wrong[place] == b'0' { b'1' } else { b'0' };
                let wrong = String::from_utf8(wrong).expect("ascii");
                assert_eq!(key_id(&wrong), None, "{wrong}");
            }
        }
        for wrong in ["", "bur_", "bur_x_y", "é", "bur_a_ééééééééééééééééééé"] {
            assert_eq!(key_id(wrong), None);
        }
    }

    #[test]
    fn a_scope_covers_its_subtree_and_nothing_beside_it() {
        let mut principal = Principal::root();
        assert!(principal.sees("anything"));
        principal.scope = Some("acme:nlp".into());
        for (account, seen) in [
            ("acme:nlp", true),
            ("acme:nlp:x", true),
            ("acme", false),
            ("acme:nlp2", false),
            ("acme:vision", false),
            ("other", false),
        ] {
            assert_eq!(principal.sees(account), seen, "{account}");
        }
    }
}
