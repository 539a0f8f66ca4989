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
pub(super) fn browser_session(app: &App, headers: &HeaderMap) -> Option<LiveSession> {
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
    if let Some(session) = browser_session(&app, &headers) {
        return Ok(pages::html(pages::sign_in::approve(&query, &session)));
    }
    let own = serde_urlencoded::to_string(&query).unwrap_or_default();
    Ok(sign_in_first(&app, &format!("/auth/cli?{own}")))
}

/// Leads a browser that is not signed in to the provider and back to `page`. Without a provider the
/// dashboard signs in and leads back.
pub(super) fn sign_in_first(app: &App, page: &str) -> Response {
    let back = serde_urlencoded::to_string([("next", page)]).unwrap_or_default();
    if app.provider.is_none() {
        let words = "Sign in first. You then return to this page.";
        let mut page = pages::html(pages::sign_in::not_signed_in(words, &format!("/?{back}")));
        *page.status_mut() = StatusCode::UNAUTHORIZED;
        return page;
    }
    redirect(&format!("/auth/login?{back}"), [])
}

/// Refuses a form that no page of this session sent.
pub(super) fn check_form_token(sent: &str, session: &LiveSession) -> Result<(), Failure> {
    if bool::from(sent.as_bytes().ct_eq(session.csrf_token.as_bytes())) {
        return Ok(());
    }
    Err(Failure::forbidden("approve on the page that bursar login opened"))
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
    let session = browser_session(&app, &headers).ok_or_else(auth::no_longer_works)?;
    check_form_token(&csrf_token, &session)?;
    tracing::info!(key = %session.principal.id, "a session is handed to the command line");
    let busy = || Failure::new(bursar_api::Code::Unavailable, "too many sign-ins; try again");
    let code = app.handoffs.approve(session, challenge, app.clock.now()).ok_or_else(busy)?;
    let url = format!("http://127.0.0.1:{}/?code={code}&state={}", query.port, query.state);
    Ok(pages::html(pages::sign_in::go_on(&url)))
}

/// Redeems a code: the token of a new session.
pub(in crate::http) async fn redeem(State(app): State<Arc<App>>, Tree(body): Tree) -> Answer {
    let redeem: RedeemCode = convert(body)?;
    let now = app.clock.now();
    app.directory.follow().await?;
    let approved = app.handoffs.redeem(&redeem.code, &redeem.verifier, now);
    let body = handed_over(&app, approved)?;
    Ok::<Response, Failure>(json(StatusCode::CREATED, &body).into_response())
}

/// A session of its own for the command line, from the one that approved it.
pub(super) fn handed_over(
    app: &App,
    approved: Option<LiveSession>,
) -> Result<SessionToken, Failure> {
    let approved = approved.filter(|session| app.still_works(&session.principal));
    let LiveSession { principal, name, ends_at, .. } =
        approved.ok_or_else(auth::no_longer_works)?;
    // It ends with the session that approved it, at the latest.
    let new = app.sessions.begin(principal, name, Some(ends_at), app.clock.now());
    let token = format!("{TOKEN}{}", new.secret);
    Ok(SessionToken { token, session: shown(app, &new.session) })
}
