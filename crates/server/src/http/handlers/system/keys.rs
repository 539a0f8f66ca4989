//! API keys.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bursar_api::credits::hold::Release;
use bursar_api::json::convert;
use bursar_api::list::{List, Page};
use bursar_api::system::key::{Capability, CreateKey, Key};
use bursar_core::directory::{self, ApiKey, Command, Directory, EndedKey, Reply};
use bursar_core::name::{AccountPath, KeyId, NodeName, Region};
use bursar_core::time::Timestamp;

use super::directory::{envelope, mark, platform_envelope};
use crate::app::App;
use crate::auth::{hash, make_key, role, stored_role};
use crate::change::{PLATFORM, ambiguous};
use crate::http::convert::{instant, name};
use crate::http::extract::{Params, Path, Tree};
use crate::http::list::page_size;
use crate::http::respond::{Answer, json, named};
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

fn shown(app: &App, id: &KeyId, key: &ApiKey, secret: Option<String>) -> Key {
    Key {
        id: id.to_string(),
        key: secret,
        role: role(key.role),
        scope: key.scope.as_ref().map_or_else(|| "*".to_owned(), AccountPath::to_string),
        name: key.name.to_string(),
        expires_at: key.expires_at.map(time),
        region: key.region.as_ref().map(Region::to_string),
        node: key.node.as_ref().map(NodeName::to_string),
        capabilities: key.capabilities.iter().map(|of| capability(*of)).collect(),
        created_at: time(key.created_at),
        last_used_at: app.last_uses.of(&key.secret_hash).map(time),
    }
}

fn capability(capability: directory::Capability) -> Capability {
    match capability {
        directory::Capability::Issue => Capability::Issue,
    }
}

fn stored_capabilities(given: Vec<Capability>) -> Vec<directory::Capability> {
    let mut stored: Vec<directory::Capability> = given
        .into_iter()
        .map(|capability| match capability {
            Capability::Issue => directory::Capability::Issue,
        })
        .collect();
    stored.sort_unstable();
    stored.dedup();
    stored
}

/// Whether a key's scope is within the caller's. No caller can see or create a key with a wider
/// scope.
fn covers(caller: &Caller, scope: Option<&AccountPath>) -> bool {
    match scope {
        Some(scope) => caller.principal.sees(scope),
        None => caller.principal.scope.is_none(),
    }
}

/// Creates a key. The secret is shown only once.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", operation_id = "create_key",
    request_body = CreateKey, responses(
        (status = 201, description = "The key, with its secret", body = Key),
        (status = 200, description = "The same request had created it before", body = Key)))]
pub(in crate::http) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let create: CreateKey = convert(body.clone())?;
    let scope = match create.scope.as_str() {
        "*" => None,
        path if AccountPath::is_valid(path) => Some(AccountPath::unchecked(path)),
        _ => return Err(Failure::invalid("scope", "must be an account path or \"*\"")),
    };
    let id = match create.id {
        Some(id) if !KeyId::is_valid(&id) => return Err(Failure::invalid("id", KeyId::FORM)),
        Some(id) => KeyId::unchecked(id),
        None => app.ids.make("key", app.clock.now()).into(),
    };
    let past = create.expires_at.is_some_and(|at| instant(at) < app.clock.now());
    if past {
        return Err(Failure::invalid("expires_at", "must not be in the past"));
    }
    if !covers(&caller, scope.as_ref()) {
        return match &scope {
            Some(scope) => Err(Failure::not_found("account", scope)),
            None => Err(Failure::forbidden("a key cannot create a wider key than itself")),
        };
    }
    caller.principal.require(Operation::CreateKey)?;
    if !create.capabilities.is_empty() && !caller.principal.is_of_platform() {
        let detail = "capabilities are given by the platform; use a key whose scope is \"*\"";
        return Err(Failure::forbidden(detail));
    }
    let own_end = caller.principal.expires_at;
    if own_end.is_some_and(|end| create.expires_at.is_none_or(|at| instant(at) > end)) {
        let end = own_end.map(|end| end.to_string()).unwrap_or_default();
        let detail = format!(
            "a key cannot create a wider key than itself: this one ends at {end}, so give \
             expires_at, and nothing later"
        );
        return Err(Failure::forbidden(detail));
    }
    if let Some(scope) = scope.clone() {
        let known = app.read(move |ledger| ledger.find_account(&scope).is_some()).await?;
        if !known.value {
            return Err(Failure::invalid("scope", "there is no such account: open it first"));
        }
    }
    let secret = make_key(&id);
    let key = ApiKey {
        secret_hash: hash(&secret),
        role: stored_role(create.role),
        scope,
        name: create.name.into(),
        expires_at: create.expires_at.map(instant),
        region: name(create.region, "region", Region::parse)?,
        node: name(create.node, "node", NodeName::parse)?,
        capabilities: stored_capabilities(create.capabilities),
        created_at: Timestamp::MIN,
        fingerprint: 0,
    };
    let tenant = key.tenant();
    let envelope = match tenant.as_deref() {
        Some(tenant) => envelope(&caller, tenant, &body),
        None => platform_envelope(&app, &caller, &body).await?,
    };
    let namespace = tenant.clone().unwrap_or_else(|| PLATFORM.into());
    let command = Command::CreateKey { id, key: Box::new(key) };
    let accepted = app.submit_to_directory(&namespace, envelope, command).await?;
    let Reply::Key { id, created } = accepted.reply.clone() else {
        unreachable!("a key is answered with its id")
    };
    let current = app.directory.current();
    let stored = current.key(&id, tenant.as_deref());
    let stored = stored.ok_or_else(|| Failure::not_found("key", &id))?;
    let fresh = created && !accepted.replayed;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let response = json(status, &shown(&app, &id, stored, fresh.then_some(secret)));
    Ok(mark(response, &accepted))
}

/// The place of a key in a list. Ids are unique only within their tenant.
fn place_of(id: &KeyId, key: &ApiKey) -> String {
    format!("{}/{id}", key.tenant().as_deref().unwrap_or("*"))
}

/// Keys in the caller's scope, newest first. No secrets.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", operation_id = "list_keys", params(Page),
    responses((status = 200, description = "A page of keys", body = List<Key>)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(asked): Params<Page>,
) -> Answer {
    caller.principal.require(Operation::ListKeys)?;
    let size = page_size(asked.limit)?;
    let current = app.directory.current();
    let own = caller.principal.tenant().map(|tenant| current.keys_of(tenant));
    let all = own.is_none().then(|| current.keys());
    let keys = own.into_iter().flatten().chain(all.into_iter().flatten());
    let mut keys: Vec<(&KeyId, &ApiKey)> =
        keys.filter(|(_, key)| covers(&caller, key.scope.as_ref())).collect();
    let order = |(id, key): &(&KeyId, &ApiKey)| (key.created_at, (*id).clone(), key.tenant());
    keys.sort_by_key(|key| std::cmp::Reverse(order(key)));
    let first = match &asked.cursor {
        Some(cursor) => {
            let place = keys.iter().position(|(id, key)| place_of(id, key) == *cursor);
            let reason = "pass the next_cursor of the page before";
            place.ok_or_else(|| Failure::invalid("cursor", reason))? + 1
        }
        None => 0,
    };
    let has_more = keys.len() > first + size;
    let page = keys.get(first..).unwrap_or_default();
    let page = page.get(..size).unwrap_or(page);
    let next_cursor = page.last().filter(|_| has_more).map(|(id, key)| place_of(id, key));
    let data = page.iter().map(|(id, key)| shown(&app, id, key, None)).collect();
    Ok(json(StatusCode::OK, &List { data, has_more, next_cursor, as_of: None, position: None }))
}

/// Revokes a key, immediately and permanently.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys", operation_id = "revoke_key",
    params(("id" = String, Path, description = "The key's id")),
    responses((status = 204, description = "The key was revoked")))]
pub(in crate::http) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body.clone())?;
    let id = KeyId::unchecked(named("key", id)?);
    let known = app.directory.current();
    let of_platform = platform_envelope(&app, &caller, &body).await?;
    let envelope = |tenant: Option<&str>| {
        tenant.map_or_else(|| of_platform.clone(), |tenant| envelope(&caller, tenant, &body))
    };
    // Another key of the tenant may have revoked it: its answer is for those that cover the scope.
    let is_answered = |scope: Option<&AccountPath>| {
        let tenant = scope.map(AccountPath::tenant);
        let answer = known.answered(&envelope(tenant.as_deref()));
        covers(&caller, scope) && answer.is_some_and(|kept| kept.is_ok())
    };
    let tenant = match ended_before(&known, &caller, &id, is_answered) {
        Some(tenant) => tenant,
        None => meant(&known, &caller, &id, is_answered)?,
    };
    caller.principal.require(Operation::RevokeKey)?;
    let envelope = envelope(tenant.as_deref());
    let by_platform = caller.principal.is_of_platform();
    let namespace = tenant.clone().unwrap_or_else(|| PLATFORM.into());
    let command = Command::RevokeKey { id, tenant, by_platform };
    let accepted = app.submit_to_directory(&namespace, envelope, command).await?;
    Ok(mark(StatusCode::NO_CONTENT.into_response(), &accepted))
}

/// The tenant of a key that the same request has revoked before. The key is gone, and another
/// tenant may have one with the same id by now; the directory has the answer. A caller that could
/// mean a key of any tenant does not receive the answer to a tenant's own request.
fn ended_before(
    known: &Directory,
    caller: &Caller,
    id: &KeyId,
    is_answered: impl Fn(Option<&AccountPath>) -> bool,
) -> Option<Option<AccountPath>> {
    if let Some(tenant) = caller.principal.tenant().or(caller.tenant.as_deref()) {
        let tenant = AccountPath::from(tenant);
        let mut ended =
            known.ended_keys(id).filter(|ended| ended.tenant().as_ref() == Some(&tenant));
        // Of a key that ended long ago only the tenant is known.
        let scope = ended.next().map_or(Some(&tenant), |ended| ended.scope.as_ref());
        return is_answered(scope).then_some(Some(tenant.clone()));
    }
    let mut ended = known.ended_keys(id).filter(|ended| ended.by_platform);
    ended.find(|ended| is_answered(ended.scope.as_ref())).map(EndedKey::tenant)
}

/// The tenant of the key that a caller means. A caller that could mean a key of any tenant must
/// name the tenant if one has revoked such a key under the same idempotency key and another one has
/// one.
fn meant(
    known: &Directory,
    caller: &Caller,
    id: &KeyId,
    is_answered: impl Fn(Option<&AccountPath>) -> bool,
) -> Result<Option<AccountPath>, Failure> {
    let mut keys = known.keys_named(id).filter(|key| {
        let tenant = key.tenant();
        let foreign = caller.tenant.as_ref().is_some_and(|own| Some(own) != tenant.as_ref());
        !foreign && covers(caller, key.scope.as_ref())
    });
    let any = caller.principal.is_of_platform() && caller.tenant.is_none();
    let mut ended = known.ended_keys(id).filter(|ended| any && is_answered(ended.scope.as_ref()));
    let ended = ended.next().map(EndedKey::tenant);
    let Some(key) = keys.next() else {
        // Only the key that a tenant has revoked before under this idempotency key can be meant.
        let ended = ended.ok_or_else(|| Failure::not_found("key", id))?;
        return Ok(ended);
    };
    let others: Vec<&ApiKey> = keys.collect();
    // A key of the platform comes first and is meant, because no header could name it.
    if key.scope.is_some() && !(others.is_empty() && ended.is_none()) {
        let scopes = std::iter::once(&key).chain(&others).filter_map(|key| key.scope.as_ref());
        return Err(ambiguous(id, ended.flatten().iter().chain(scopes)));
    }
    Ok(key.tenant())
}
