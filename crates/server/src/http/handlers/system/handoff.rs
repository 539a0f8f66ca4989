//! Signing in on the command line: `bursar login` opens a page of this server in the browser, the
//! person approves, and the command line gets a token of a session of its own.

use std::sync::Arc;

use axum::extract::{Form, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bursar_api::json::convert;
use bursar_api::system::session::{RedeemCode, SessionToken};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::session::shown;
use super::sign_in::redirect;
use crate::app::App;
use crate::auth;
use crate::auth::sessions::handoff::read_challenge;
use crate::auth::sessions::{LiveSession, TOKEN};
use crate::http::extract::{Params, Tree};
use crate::http::pages;
use crate::http::respond::{Answer, json};
use crate::request::Failure;

/// Where the command line listens, and how it proves that it asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct HandoffQuery {
    /// The port on this machine.
    pub(in crate::http) port: u16,
    /// Returned to the command line.
    pub(in crate::http) state: String,
    /// The hash of the text that redeems the code.
    pub(in crate::http) challenge: String,
}

/// The form of the page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ApproveForm {
    port: u16,
    state: String,
    challenge: String,
    csrf_token: String,
}

fn check(query: &HandoffQuery) -> Result<[u8; 32], Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if query.port == 0 || query.state.len() > 128 || !query.state.bytes().all(is_plain) {
        return Err(Failure::invalid("state", "run bursar login again"));
    }
    let wrong = || Failure::invalid("challenge", "run bursar login again");
    read_challenge(&query.challenge).ok_or_else(wrong)
}

/// The session of the browser; `None` if it is not signed in.
fn session(app: &App, headers: &HeaderMap) -> Option<LiveSession> {
    let principal = app.of_session(&Method::GET, headers)?.ok()?;
    app.sessions.get(principal.session?, app.clock.now())
}

/// Asks the person to approve.
pub(in crate::http) async fn ask(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Params(query): Params<HandoffQuery>,
) -> Answer {
    check(&query)?;
    app.directory.follow().await?;
    if let Some(session) = session(&app, &headers) {
        return Ok(pages::html(pages::approve(&query, &session)));
    }
    if app.provider.is_none() {
        let words = "Sign in to the dashboard of this server first. Then load this page again.";
        let mut page = pages::html(pages::not_signed_in(words));
        *page.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(page);
    }
    let own = serde_urlencoded::to_string(&query).unwrap_or_default();
    let back = [("next", format!("/auth/cli?{own}"))];
    let back = serde_urlencoded::to_string(back).unwrap_or_default();
    Ok(redirect(&format!("/auth/login?{back}"), []))
}

/// The person has approved: leads the browser to the command line, with a code.
pub(in crate::http) async fn approve(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    form: Result<Form<ApproveForm>, axum::extract::rejection::FormRejection>,
) -> Answer {
    let Ok(Form(ApproveForm { port, state, challenge, csrf_token })) = form else {
        return Err(Failure::invalid("form", "run bursar login again"));
    };
    let query = HandoffQuery { port, state, challenge };
    let challenge = check(&query)?;
    app.directory.follow().await?;
    let session = session(&app, &headers).ok_or_else(auth::no_longer_works)?;
    if !bool::from(csrf_token.as_bytes().ct_eq(session.csrf_token.as_bytes())) {
        return Err(Failure::forbidden("approve on the page that bursar login opened"));
    }
    tracing::info!(key = %session.principal.id, "a session is handed to the command line");
    let busy = || Failure::new(bursar_api::Code::Unavailable, "too many sign-ins; try again");
    let code = app.handoffs.approve(session, challenge, app.clock.now()).ok_or_else(busy)?;
    let url = format!("http://127.0.0.1:{}/?code={code}&state={}", query.port, query.state);
    Ok(pages::html(pages::go_on(&url)))
}

/// Redeems a code: the token of a new session.
pub(in crate::http) async fn redeem(State(app): State<Arc<App>>, Tree(body): Tree) -> Answer {
    let redeem: RedeemCode = convert(body)?;
    let now = app.clock.now();
    app.directory.follow().await?;
    let session = app.handoffs.redeem(&redeem.code, &redeem.verifier, now);
    let session = session.filter(|session| app.still_works(&session.principal));
    let LiveSession { principal, name, ends_at, .. } = session.ok_or_else(auth::no_longer_works)?;
    // It ends with the session that approved it, at the latest.
    let new = app.sessions.begin(principal, name, Some(ends_at), now);
    let token = format!("{TOKEN}{}", new.secret);
    let body = SessionToken { token, session: shown(&app, &new.session) };
    Ok::<Response, Failure>(json(StatusCode::CREATED, &body).into_response())
}
