//! Signing in through an identity provider. These requests come from the address line of a browser
//! and are answered with pages.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;

use super::device::address_of;
use super::session::session_cookie;
use crate::app::App;
use crate::auth::oidc::ticket::{LIFETIME_SECONDS, Ticket};
use crate::auth::oidc::{Person, Provider, SignInError};
use crate::auth::sessions::{SessionId, cookie};
use crate::http::extract::Params;
use crate::http::pages;
use crate::http::respond::{Answer, json as json_response};
use crate::net::serve::PeerAddress;
use crate::request::Failure;

/// Where to go after signing in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct LoginQuery {
    #[serde(default)]
    next: Option<String>,
}

/// What the provider returns. It may return more.
#[derive(Deserialize)]
pub(in crate::http) struct CallbackQuery {
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    error_description: Option<String>,
}

fn provider(app: &App) -> Result<&Provider, Failure> {
    let missing = || Failure::not_found("identity provider", "[oidc]");
    app.provider.as_ref().ok_or_else(missing)
}

/// How people may sign in.
pub(in crate::http) async fn methods(State(app): State<Arc<App>>) -> Response {
    let provider = app.provider.as_ref();
    let provider = provider.map(|found| json!({ "name": found.name(), "url": "/auth/login" }));
    json_response(StatusCode::OK, &json!({ "key": true, "oidc": provider }))
}

/// Begins to sign in: leads the browser to the provider.
pub(in crate::http) async fn login(
    State(app): State<Arc<App>>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Params(query): Params<LoginQuery>,
) -> Answer {
    let provider = provider(&app)?;
    let address = address_of(peer);
    if let Err(refused) = app.failed_sign_ins.check_callback(address) {
        return Ok(limited(&refused));
    }
    let before = SessionId::in_cookie(&headers, &app.cookies.session);
    let ticket = Ticket::new(query.next.as_deref(), before, app.clock.now());
    let url = match provider.sign_in_url(&ticket, address).await {
        Ok(url) => url,
        Err(error) => return Ok(refused(&error)),
    };
    let sealed = provider.tickets.seal(&ticket);
    let cookie = app.cookies.set_login(&sealed, LIFETIME_SECONDS);
    Ok(redirect(&url, [(header::SET_COOKIE, cookie)]))
}

/// Leads the browser elsewhere.
pub(super) fn redirect<const N: usize>(
    url: &str,
    headers: [(HeaderName, HeaderValue); N],
) -> Response {
    let Ok(location) = HeaderValue::from_str(url) else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    (StatusCode::SEE_OTHER, headers, [(header::LOCATION, location)]).into_response()
}

/// Ends signing in: the provider has led the browser back.
pub(in crate::http) async fn callback(
    State(app): State<Arc<App>>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    uri: axum::http::Uri,
) -> Answer {
    let provider = provider(&app)?;
    let address = address_of(peer);
    if let Err(refused) = app.failed_sign_ins.check_callback(address) {
        return Ok(limited(&refused));
    }
    let query = uri.query().unwrap_or("");
    let signed_in = match serde_urlencoded::from_str::<CallbackQuery>(query) {
        Ok(query) => finish((&app, provider), &headers, query, address).await,
        Err(_) => Err(SignInError::NotBegun),
    };
    let mut response = match signed_in {
        Ok((person, Ticket { return_to, session_before, .. })) => {
            app.sessions.end_of(&headers, &app.cookies.session);
            if let Some(before) = session_before {
                app.sessions.end(before);
            }
            tracing::info!(person = %person.principal.id, "signed in");
            let new = app.sessions.begin(person.principal, person.name, None, app.clock.now());
            // A page, not a redirect: browsers send a strict cookie only where a page of this server leads.
            let mut response = pages::html(pages::sign_in::go_on(&return_to));
            response.headers_mut().append(header::SET_COOKIE, session_cookie(&app, &new));
            response
        }
        Err(error) => {
            tracing::warn!(reason = error.words(), %address, "a person was not signed in");
            // A provider that does not answer is no failure of the caller.
            if !matches!(error, SignInError::Provider(_)) {
                app.failed_sign_ins.note_callback(address);
            }
            refused(&error)
        }
    };
    response.headers_mut().append(header::SET_COOKIE, app.cookies.clear_login());
    Ok(response)
}

async fn finish(
    (app, provider): (&App, &Provider),
    headers: &HeaderMap,
    query: CallbackQuery,
    address: IpAddr,
) -> Result<(Person, Ticket), SignInError> {
    let sealed = cookie::read(headers, &app.cookies.login).ok_or(SignInError::NotBegun)?;
    let ticket = provider.tickets.open(sealed, app.clock.now()).ok_or(SignInError::NotBegun)?;
    let state = query.state.unwrap_or_default();
    if !ticket.has_state(&state) {
        return Err(SignInError::NotBegun);
    }
    if let Some(error) = query.error {
        let said = query.error_description.unwrap_or(error);
        let said = said.chars().filter(|letter| !letter.is_control()).take(200).collect();
        return Err(SignInError::Refused(said));
    }
    let code = query.code.filter(|code| !code.is_empty() && code.len() <= 4096);
    let code = code.ok_or(SignInError::NotBegun)?;
    let person = provider.redeem(&code, &ticket, address).await?;
    Ok((person, ticket))
}

/// The page after too many failed sign-ins of an address.
fn limited(refused: &Failure) -> Response {
    let words = format!("Not now: {}.", refused.problem.detail);
    let page = pages::html(pages::sign_in::not_signed_in(&words, "/auth/login"));
    let retry_after = [(header::RETRY_AFTER, refused.retry_after.unwrap_or(1))];
    (StatusCode::TOO_MANY_REQUESTS, retry_after, page).into_response()
}

fn refused(error: &SignInError) -> Response {
    let mut page = pages::html(pages::sign_in::not_signed_in(&error.words(), "/auth/login"));
    *page.status_mut() = error.status();
    page
}
