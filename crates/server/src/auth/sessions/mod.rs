//! Sessions of people in a browser.
//!
//! A session stands for the key, or the person of an identity provider, that signed in. It is found
//! by the hash of the secret in its cookie. Sessions are kept in memory: they end with the process
//! and when another server leads. See `docs/adr/0017-sessions-in-memory.md`.

pub mod cookie;
pub mod device;
pub mod failures;
pub mod handoff;
mod list;

pub(crate) use list::ListedSession;

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, HeaderName, Method};
use bursar_api::Code;
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::{Principal, hash};
use crate::ids::{base32, random_bits};
use crate::request::Failure;

/// The most sessions of one key or person. Another one ends the least recently used.
const MAX_OF_KEY: usize = 16;
/// The most sessions of one tenant, and of the platform.
const MAX_OF_TENANT: usize = 1024;

/// The beginning of a bearer token that is the secret of a session.
pub(crate) const TOKEN: &str = "bus_";

/// Proves that a change was requested by a page of this server.
const CSRF_TOKEN: HeaderName = HeaderName::from_static("x-csrf-token");
/// Sent by pages with requests that no person caused, such as a refresh: they do not keep the session
/// from ending.
const BACKGROUND: HeaderName = HeaderName::from_static("bursar-background");
/// Sent by browsers: where a request came from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// How long sessions last.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionOptions {
    /// A session ends after this long without a request that a person caused.
    pub idle_seconds: NonZeroU64,
    /// A session ends this long after its begin.
    pub max_seconds: NonZeroU64,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        let hours = |count: u64| NonZeroU64::new(count * 3600).expect("not zero");
        SessionOptions { idle_seconds: hours(4), max_seconds: hours(24) }
    }
}

/// The hash of a session's secret.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionId([u8; 32]);

impl SessionId {
    fn of(secret: &str) -> SessionId {
        SessionId(hash(secret))
    }

    /// The session that a cookie names, live or not.
    pub(crate) fn in_cookie(headers: &HeaderMap, cookie: &str) -> Option<SessionId> {
        cookie::read(headers, cookie).map(SessionId::of)
    }
}

/// A session as it is shown to its owner.
#[derive(Clone, Debug)]
pub(crate) struct LiveSession {
    /// The caller that it stands for.
    pub(crate) principal: Principal,
    /// The display name of the key or person.
    pub(crate) name: Option<String>,
    /// What changes must send along.
    pub(crate) csrf_token: String,
    /// When it ends at the latest.
    pub(crate) ends_at: Timestamp,
}

#[cfg(test)]
impl LiveSession {
    /// A session of the root key, for tests.
    pub(super) fn of_root() -> LiveSession {
        let (principal, ends_at) = (Principal::root(), Timestamp::from_millis(0));
        LiveSession { principal, name: None, csrf_token: String::new(), ends_at }
    }
}

struct Kept {
    session: LiveSession,
    used_at: Timestamp,
    /// The number of its last use among those of all sessions.
    last_use: u64,
}

impl Kept {
    /// Whether it is a session of the same key or person.
    fn is_of(&self, principal: &Principal) -> bool {
        let of = &self.session.principal;
        of.id == principal.id && of.secret_hash == principal.secret_hash
    }
}

/// The sessions of one tenant.
type TenantSessions = HashMap<SessionId, Kept>;

#[derive(Default)]
struct Table {
    /// The tenant of each session; `None` is the platform.
    tenants: HashMap<SessionId, Option<AccountPath>>,
    sessions: HashMap<Option<AccountPath>, TenantSessions>,
    /// How often sessions were used.
    uses: u64,
}

/// All sessions.
pub struct Sessions {
    options: SessionOptions,
    table: Mutex<Table>,
}

/// A new session and the secret for its cookie.
pub(crate) struct NewSession {
    pub(crate) secret: String,
    pub(crate) session: LiveSession,
}

/// A text with 256 random bits.
pub(crate) fn random_text() -> String {
    let bits = || (u128::from(random_bits()) << 64) | u128::from(random_bits());
    base32(bits(), 26) + &base32(bits(), 26)
}

impl Sessions {
    /// Creates an empty table.
    pub fn new(options: SessionOptions) -> Sessions {
        Sessions { options, table: Mutex::default() }
    }

    /// How long a session lasts without a request, in seconds.
    pub(crate) fn idle_seconds(&self) -> u64 {
        self.options.idle_seconds.get()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session of a caller, which ends at `until` at the latest. It never outlives the
    /// caller's key.
    pub(crate) fn begin(
        &self,
        principal: Principal,
        name: Option<String>,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> NewSession {
        let secret = random_text();
        let id = SessionId::of(&secret);
        let latest = now.plus_millis(millis(self.options.max_seconds));
        let latest = until.map_or(latest, |until| until.min(latest));
        let ends_at = principal.expires_at.map_or(latest, |key_ends| key_ends.min(latest));
        let principal = Principal { session: Some(id), ..principal };
        let session = LiveSession { principal, name, csrf_token: random_text(), ends_at };
        let mut table = self.table();
        table.make_room(&session.principal);
        let last_use = table.count_use();
        table.insert(id, Kept { session: session.clone(), used_at: now, last_use });
        NewSession { secret, session }
    }

    /// The session of a cookie's secret, used now.
    fn used(&self, secret: &str, now: Timestamp) -> Option<LiveSession> {
        let id = SessionId::of(secret);
        let mut table = self.table();
        let last_use = table.count_use();
        let kept = table.get_mut(&id)?;
        if !self.lasts(kept, now) {
            table.remove(&id);
            return None;
        }
        (kept.used_at, kept.last_use) = (kept.used_at.max(now), last_use);
        Some(kept.session.clone())
    }

    /// The session of a cookie's secret. It is not used: it ends when it would have ended.
    fn found(&self, secret: &str, now: Timestamp) -> Option<LiveSession> {
        self.get(SessionId::of(secret), now)
    }

    /// The caller with a session's secret as its bearer token.
    pub(crate) fn of_token(&self, secret: &str, now: Timestamp) -> Result<Principal, Failure> {
        self.used(secret, now).map(|session| session.principal).ok_or_else(ended)
    }

    /// The session of a caller.
    pub(crate) fn get(&self, id: SessionId, now: Timestamp) -> Option<LiveSession> {
        let mut table = self.table();
        let kept = table.get_mut(&id)?;
        self.lasts(kept, now).then(|| kept.session.clone())
    }

    /// Whether a session has not ended.
    pub(crate) fn is_live(&self, id: SessionId, now: Timestamp) -> bool {
        self.table().get_mut(&id).is_some_and(|kept| self.lasts(kept, now))
    }

    fn lasts(&self, kept: &Kept, now: Timestamp) -> bool {
        let idle_until = kept.used_at.plus_millis(millis(self.options.idle_seconds));
        now <= kept.session.ends_at && now <= idle_until
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: SessionId) {
        self.table().remove(&id);
    }

    /// Ends every session of a caller's key or person. A person is the same in every tenant; keys of
    /// other tenants may have the same id.
    pub(crate) fn end_all_of(&self, principal: &Principal) {
        let tenant = principal.tenant().map(AccountPath::from);
        let is_person = principal.is_person();
        self.end_where(|of, kept| (is_person || *of == tenant) && kept.is_of(principal));
    }

    /// Ends every session of a key or person whose scope a caller covers. Returns how many.
    pub(crate) fn end_within(&self, caller: &Principal, actor: &str) -> usize {
        self.end_where(|_, kept| kept.is_within(caller) && kept.session.principal.id == actor)
    }

    fn end_where(&self, is_meant: impl Fn(&Option<AccountPath>, &Kept) -> bool) -> usize {
        let mut table = self.table();
        let all = table.sessions.iter().flat_map(|(tenant, sessions)| {
            sessions.iter().map(move |(id, kept)| (tenant, id, kept))
        });
        let meant = all.filter(|(tenant, _, kept)| is_meant(tenant, kept));
        let ended: Vec<SessionId> = meant.map(|(_, id, _)| *id).collect();
        for id in &ended {
            table.remove(id);
        }
        ended.len()
    }

    /// Ends the session of a cookie, if it has one.
    pub(crate) fn end_of(&self, headers: &HeaderMap, cookie: &str) {
        if let Some(id) = SessionId::in_cookie(headers, cookie) {
            self.end(id);
        }
    }

    /// Drops sessions that have ended. Called periodically.
    pub fn remove_ended(&self, now: Timestamp) {
        let mut table = self.table();
        let all = table.sessions.values().flatten();
        let ended: Vec<SessionId> =
            all.filter(|(_, kept)| !self.lasts(kept, now)).map(|(id, _)| *id).collect();
        for id in ended {
            table.remove(&id);
        }
    }

    /// The caller of a request with a session's cookie; `None` without the cookie.
    ///
    /// # Errors
    /// If the session has ended, or a change was not requested by a page of this server.
    pub(crate) fn authenticate(
        &self,
        (method, headers): (&Method, &HeaderMap),
        cookie: &str,
        now: Timestamp,
    ) -> Option<Result<Principal, Failure>> {
        let secret = cookie::read(headers, cookie)?;
        Some(self.check(method, headers, secret, now))
    }

    fn check(
        &self,
        method: &Method,
        headers: &HeaderMap,
        secret: &str,
        now: Timestamp,
    ) -> Result<Principal, Failure> {
        let is_background = headers.contains_key(BACKGROUND);
        let session = if is_background { self.found(secret, now) } else { self.used(secret, now) };
        let session = session.ok_or_else(ended)?;
        check_origin(headers)?;
        if method != Method::GET && method != Method::HEAD {
            let sent = headers.get(CSRF_TOKEN).map_or(&b""[..], |token| token.as_bytes());
            if !bool::from(sent.ct_eq(session.csrf_token.as_bytes())) {
                let detail = "a change with a session needs its csrf_token in the header \
                              X-CSRF-Token; GET /v1/session shows the token";
                return Err(Failure::forbidden(detail));
            }
        }
        Ok(session.principal)
    }
}

/// Refuses what a browser sends for another site.
pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(site) = headers.get(SEC_FETCH_SITE) else { return Ok(()) };
    if site == "same-origin" || site == "none" {
        return Ok(());
    }
    let detail = "a page of another site sent this; open the dashboard of this server";
    Err(Failure::forbidden(detail))
}

/// The answer to a cookie without a session.
fn ended() -> Failure {
    let detail = "the session has ended; sign in again";
    Failure::new(Code::Unauthenticated, detail)
}

fn millis(seconds: NonZeroU64) -> i64 {
    i64::try_from(seconds.get().saturating_mul(1000)).unwrap_or(i64::MAX)
}

impl Table {
    fn count_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn get_mut(&mut self, id: &SessionId) -> Option<&mut Kept> {
        let tenant = self.tenants.get(id)?;
        self.sessions.get_mut(tenant)?.get_mut(id)
    }

    fn insert(&mut self, id: SessionId, kept: Kept) {
        let tenant = kept.session.principal.tenant().map(AccountPath::from);
        self.tenants.insert(id, tenant.clone());
        self.sessions.entry(tenant).or_default().insert(id, kept);
    }

    fn remove(&mut self, id: &SessionId) {
        let Some(tenant) = self.tenants.remove(id) else { return };
        if let Some(sessions) = self.sessions.get_mut(&tenant) {
            sessions.remove(id);
            if sessions.is_empty() {
                self.sessions.remove(&tenant);
            }
        }
    }

    /// Ends the least recently used sessions where there are too many.
    fn make_room(&mut self, principal: &Principal) {
        let tenant = principal.tenant().map(AccountPath::from);
        let Some(sessions) = self.sessions.get(&tenant) else { return };
        let oldest = |own: bool| {
            let all = sessions.iter().filter(|(_, kept)| !own || kept.is_of(principal));
            all.min_by_key(|(_, kept)| kept.last_use).map(|(id, _)| *id)
        };
        let of_key = sessions.values().filter(|kept| kept.is_of(principal)).count();
        let ended = match (of_key >= MAX_OF_KEY, sessions.len() >= MAX_OF_TENANT) {
            (true, _) => oldest(true),
            (false, true) => oldest(false),
            (false, false) => None,
        };
        if let Some(id) = ended {
            self.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests;
