//! Sessions of people: a cookie in place of a key.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::key::Role;
use crate::time::Time;

/// Signs in with a key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The bearer secret of a key.
    #[schema(max_length = 512)]
    pub key: String,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn").finish_non_exhaustive()
    }
}

/// Which sessions end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SignOutQuery {
    /// Whether to end every session of the key or person.
    pub everywhere: Option<bool>,
    /// Whose sessions an administrator ends: the id of a key, or subject and issuer of a person, as the
    /// audit trail has them. Only sessions whose scope is within the administrator's.
    pub actor: Option<String>,
}

/// A session that has not ended: a person or key that is signed in with a browser or a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActiveSession {
    /// The id of the key, or subject and issuer of the person.
    pub actor: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its role.
    pub role: Role,
    /// An account path, or `*`.
    pub scope: String,
    /// When a request last used it.
    pub last_used_at: Time,
    /// When it ends at the latest.
    pub expires_at: Time,
}

/// Redeems the code that the command line got from the browser.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RedeemCode {
    /// The code.
    #[schema(max_length = 128)]
    pub code: String,
    /// The text whose BLAKE3 hash was the `challenge`.
    #[schema(max_length = 256)]
    pub verifier: String,
}

impl std::fmt::Debug for RedeemCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedeemCode").finish_non_exhaustive()
    }
}

/// Begins to sign in a command line without a browser of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginDevice {
    /// What the command line calls itself, for the person who approves: letters, digits, space and `._-@`.
    #[schema(max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// The first answer to a command line that signs in without a browser of its own (RFC 8628).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceLogin {
    /// The secret of the command line.
    pub device_code: String,
    /// What the person compares and approves.
    pub user_code: String,
    /// The page where the code is approved, as this server knows its own address.
    pub verification_uri: String,
    /// The path of that page with the code filled in.
    pub path: String,
    /// How long the code can be approved, in seconds.
    pub expires_in: u32,
    /// How long the command line waits between its requests, in seconds.
    pub interval: u32,
}

impl std::fmt::Debug for DeviceLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceLogin").field("user_code", &self.user_code).finish_non_exhaustive()
    }
}

/// Asks whether a code was approved.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RedeemDevice {
    /// The secret of the command line.
    #[schema(max_length = 128)]
    pub device_code: String,
}

impl std::fmt::Debug for RedeemDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedeemDevice").finish_non_exhaustive()
    }
}

/// Whether a code was approved, and the token if so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceAnswer {
    /// It was not approved yet: ask again after `interval`.
    pub pending: bool,
    /// The token; shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_in: Option<SessionToken>,
}

/// The token of a session for the command line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionToken {
    /// Sent as a bearer token; shown this once.
    pub token: String,
    /// The session.
    pub session: SignedIn,
}

impl std::fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionToken").field("session", &self.session).finish_non_exhaustive()
    }
}

/// The caller: its name, role and scope, and its session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignedIn {
    /// The value of `X-CSRF-Token` in requests that change something; absent without a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csrf_token: Option<String>,
    /// What the caller may do.
    pub role: Role,
    /// An account path, or `*`.
    pub scope: String,
    /// The name of the caller in the audit trail: the id of its key, or subject and issuer.
    pub actor: String,
    /// The display name of the key or of the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When the session ends at the latest; without a session, when the key expires.
    pub expires_at: Option<Time>,
    /// The session ends earlier after this long without a request; absent without a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
    /// Whether the caller may issue credits within its scope.
    pub may_issue: bool,
    /// Where a person of an identity provider signs out there as well, after `DELETE /v1/session`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logout_url: Option<String>,
}

impl std::fmt::Debug for SignedIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("SignedIn");
        shown.field("role", &self.role).field("scope", &self.scope).field("actor", &self.actor);
        shown.finish_non_exhaustive()
    }
}
