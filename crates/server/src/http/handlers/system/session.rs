//! Signing in and out.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bursar_api::Code;
use bursar_api::json;
use bursar_api::list::{List, Page};
use bursar_api::system::key::Role;
use bursar_api::system::session::{ActiveSession, SignIn, SignOutQuery, SignedIn};

use crate::app::App;
use crate::auth::sessions::{ListedSession, LiveSession, NewSession, check_origin};
use crate::auth::{self, Principal};
use crate::http::extract::{Params, receive};
use crate::http::list::{page_size, read_cursor, write_cursor};
use crate::http::respond::{Answer, json as json_response};
use crate::net::limits::Priority;
use crate::net::serve::PeerAddress;
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

/// Signs in with a key: sets the cookie of a new session.
///
/// The session is authorised exactly like the key and ends with it. Requests that change something
/// send the `csrf_token` in `X-CSRF-Token`. An earlier session of the same cookie ends.
#[utoipa::path(post, path = "/v1/session", tag = "sessions", operation_id = "create_session",
    request_body = SignIn, security(()), responses(
        (status = 201, description = "Signed in", body = SignedIn,
            headers(("Set-Cookie" = String, description = "The session")))))]
pub(in crate::http) async fn create(State(app): State<Arc<App>>, request: Request) -> Answer {
    let address = PeerAddress::of(request.extensions());
    let (parts, body) = request.into_parts();
    check_origin(&parts.headers)?;
    let sent: SignIn = json::convert(json::parse(&receive(&parts, body).await?)?)?;
    let principal = verified(&app, sent.key.trim(), address).await?;
    let limits = app.limits.take(&principal, Priority::Change)?;
    app.sessions.end_of(&parts.headers, &app.cookies.session);
    let current = app.directory.current();
    let key = principal.secret_hash.and_then(|_| current.key(&principal.id, principal.tenant()));
    let name = key.map(|key| key.name.to_string());
    tracing::info!(key = %principal.id, "signed in");
    let new = app.sessions.begin(principal, name, None, app.clock.now());
    let cookie = session_cookie(&app, &new);
    let mut response = json_response(StatusCode::CREATED, &shown(&app, &new.session));
    let headers = response.headers_mut();
    headers.extend(limits);
    headers.append(header::SET_COOKIE, cookie);
    Ok(response)
}

/// The principal of a key, if the key is valid and its id has not failed too often.
async fn verified(app: &App, key: &str, address: IpAddr) -> Result<Principal, Failure> {
    let id = auth::key_id(key).unwrap_or("");
    app.failed_sign_ins.check(address, id)?;
    app.directory.follow().await?;
    let found = auth::find(key, &app.root, &app.directory.current(), app.clock.now());
    found.ok_or_else(|| {
        app.failed_sign_ins.note(address, id);
        let detail = "this is not a valid key: it may be mistyped, expired or revoked";
        Failure::new(Code::Unauthenticated, detail)
    })
}

/// The cookie of a new session.
pub(super) fn session_cookie(app: &App, new: &NewSession) -> HeaderValue {
    let lasts = new.session.ends_at.millis().saturating_sub(app.clock.now().millis());
    let seconds = u64::try_from(lasts).unwrap_or(0) / 1000;
    app.cookies.set_session(&new.secret, seconds)
}

pub(super) fn shown(app: &App, session: &LiveSession) -> SignedIn {
    SignedIn {
        csrf_token: Some(session.csrf_token.clone()),
        name: session.name.clone(),
        expires_at: Some(time(session.ends_at)),
        idle_seconds: Some(app.sessions.idle_seconds()),
        ..caller_shown(&session.principal)
    }
}

pub(in crate::http) fn caller_shown(principal: &Principal) -> SignedIn {
    SignedIn {
        csrf_token: None,
        role: principal.role,
        scope: principal.scope.as_ref().map_or_else(|| "*".to_owned(), ToString::to_string),
        actor: principal.id.to_string(),
        name: None,
        expires_at: principal.expires_at.map(time),
        idle_seconds: None,
        may_issue: principal.may_issue,
        logout_url: None,
    }
}

/// The display name of the caller's key; none for the root key.
fn key_name(app: &App, principal: &Principal) -> Option<String> {
    let secret_hash = principal.secret_hash?;
    let directory = app.directory.current();
    let key = directory.keys_named(&principal.id).find(|key| key.secret_hash == secret_hash)?;
    Some(key.name.to_string())
}

/// Where a person signs out of the identity provider as well.
fn logout_url(app: &App, principal: &Principal) -> Option<String> {
    let provider = app.provider.as_ref().filter(|_| principal.is_person())?;
    provider.sign_out_url(&format!("{}/", app.base_url))
}

/// The caller's session, or with a key the role and scope of the key.
#[utoipa::path(get, path = "/v1/session", tag = "sessions", operation_id = "get_session",
    responses((status = 200, description = "The caller", body = SignedIn)))]
pub(in crate::http) async fn get(State(app): State<Arc<App>>, caller: Caller) -> Answer {
    let principal = &caller.principal;
    principal.require(Operation::GetSession)?;
    let shown = match principal.session {
        Some(id) => {
            let session = app.sessions.get(id, app.clock.now());
            let mut shown = shown(&app, &session.ok_or_else(auth::no_longer_works)?);
            shown.logout_url = logout_url(&app, principal);
            shown
        }
        None => SignedIn { name: key_name(&app, principal), ..caller_shown(principal) },
    };
    Ok(json_response(StatusCode::OK, &shown))
}

/// Sessions in the caller's scope that have not ended, the last used first.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", operation_id = "list_sessions",
    params(Page),
    responses((status = 200, description = "A page of sessions", body = List<ActiveSession>)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(asked): Params<Page>,
) -> Answer {
    caller.principal.require(Operation::ListSessions)?;
    let size = page_size(asked.limit)?;
    let before = read_cursor(asked.cursor.as_deref())?;
    let before = before.map(|place| u64::try_from(place).unwrap_or(u64::MAX));
    let mut listed = app.sessions.within(&caller.principal, before, app.clock.now());
    let has_more = listed.len() > size;
    listed.truncate(size);
    let last = listed.last().filter(|_| has_more);
    let next_cursor = last.map(|last| write_cursor(last.place.into()));
    let data = listed.iter().map(active).collect();
    let (as_of, position) = (None, None);
    Ok(json_response(StatusCode::OK, &List { data, has_more, next_cursor, as_of, position }))
}

fn active(listed: &ListedSession) -> ActiveSession {
    let ListedSession { session, used_at, place: _ } = listed;
    let SignedIn { actor, role, scope, .. } = caller_shown(&session.principal);
    ActiveSession {
        actor,
        name: session.name.clone(),
        role,
        scope,
        last_used_at: time(*used_at),
        expires_at: time(session.ends_at),
    }
}

/// Signs out: ends the session of the cookie or token. Does nothing for a key, unless `everywhere`
/// is `true`: then every session of the key or person ends, in browsers and on command lines.
///
/// With `actor` an administrator ends the sessions of another key or person. Whether that person may
/// sign in again is decided by the identity provider.
#[utoipa::path(delete, path = "/v1/session", tag = "sessions", operation_id = "end_session",
    params(SignOutQuery),
    responses((status = 204, description = "The session has ended")))]
pub(in crate::http) async fn end(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<SignOutQuery>,
) -> Answer {
    caller.principal.require(Operation::EndSession)?;
    if let Some(actor) = query.actor {
        return end_of_other(&app, &caller.principal, &actor);
    }
    if query.everywhere == Some(true) {
        tracing::info!(key = %caller.principal.id, "signed out everywhere");
        app.sessions.end_all_of(&caller.principal);
        return Ok(signed_out(&app));
    }
    let Some(id) = caller.principal.session else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    app.sessions.end(id);
    Ok(signed_out(&app))
}

/// Ends the sessions of another key or person in the caller's scope.
fn end_of_other(app: &App, principal: &Principal, actor: &str) -> Answer {
    if principal.role != Role::Admin {
        let detail =
            "only an administrator ends the sessions of others; use a key with the role admin";
        return Err(Failure::forbidden(detail));
    }
    match app.sessions.end_within(principal, actor) {
        0 => Err(Failure::not_found("session of", actor)),
        ended => {
            tracing::info!(key = %principal.id, %actor, ended, "sessions of another were ended");
            Ok(StatusCode::NO_CONTENT.into_response())
        }
    }
}

fn signed_out(app: &App) -> Response {
    let cookie = app.cookies.clear_session();
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}
