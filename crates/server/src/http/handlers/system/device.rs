//! Signing in on a machine without a browser: `bursar login --device`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::rejection::FormRejection;
use axum::extract::{Extension, Form, Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bursar_api::Code;
use bursar_api::json::{convert, parse};
use bursar_api::system::session::{BeginDevice, DeviceAnswer, DeviceLogin, RedeemDevice};
use serde::{Deserialize, Serialize};

use super::handoff::{browser_session, check_form_token, handed_over, sign_in_first};
use crate::app::App;
use crate::auth::sessions::device::{
    DeviceRequest, INTERVAL_SECONDS, LIFETIME_SECONDS, Progress, is_client_name, read_user_code,
};
use crate::auth::sessions::{LiveSession, check_origin};
use crate::auth::{self, Principal};
use crate::http::extract::{Params, Tree, receive};
use crate::http::pages;
use crate::http::respond::{Answer, json};
use crate::net::serve::PeerAddress;
use crate::request::Failure;

/// The page where a person approves a code.
const PAGE: &str = "/auth/device";

/// The code in the address that the command line shows.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DeviceQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

/// What the person decided.
#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DeviceDecision {
    Approve,
    Refuse,
}

/// The form of the page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DecideDeviceForm {
    code: String,
    decision: DeviceDecision,
    csrf_token: String,
}

/// Begins: a code for the person, and a secret for the command line.
pub(in crate::http) async fn begin(State(app): State<Arc<App>>, request: Request) -> Answer {
    check_origin(request.headers())?;
    let address = PeerAddress::of(request.extensions());
    let (parts, body) = request.into_parts();
    let sent: BeginDevice = convert(parse(&receive(&parts, body).await?)?)?;
    if !sent.client.as_deref().is_none_or(is_client_name) {
        let reason = "1 to 64 letters, digits, spaces and `._-@`";
        return Err(Failure::invalid("client", reason));
    }
    let full = || {
        let detail = "too many sign-ins of command lines wait for approval; try again in a minute";
        Failure::new(Code::RateLimited, detail).retry_after(60)
    };
    let new = app.devices.begin(address, sent.client, app.clock.now()).ok_or_else(full)?;
    let begun = DeviceLogin {
        verification_uri: format!("{}{PAGE}", app.base_url),
        path: format!("{PAGE}?code={}", new.user_code),
        device_code: new.device_code,
        user_code: new.user_code,
        expires_in: LIFETIME_SECONDS,
        interval: INTERVAL_SECONDS,
    };
    Ok(json(StatusCode::CREATED, &begun))
}

/// Finds the request with a code, unless the caller has tried too many wrong ones. A wrong one is
/// counted. The error is a page that says what to do.
fn try_code(
    app: &App,
    address: IpAddr,
    caller: &Principal,
    find: impl FnOnce() -> Option<DeviceRequest>,
) -> Result<DeviceRequest, Box<Response>> {
    let wrong_codes = &app.devices.wrong_codes;
    wrong_codes.check(address, caller).map_err(|refused| {
        let page = pages::sign_in::too_many_codes(&refused.problem.detail);
        let retry_after = [(RETRY_AFTER, refused.retry_after.unwrap_or(1))];
        Box::new((StatusCode::TOO_MANY_REQUESTS, retry_after, pages::html(page)).into_response())
    })?;
    find().ok_or_else(|| {
        tracing::warn!(key = %caller.id, %address, "an unknown device code was entered");
        wrong_codes.note(address, caller);
        let page = pages::html(pages::sign_in::unknown_device());
        Box::new((StatusCode::NOT_FOUND, page).into_response())
    })
}

/// The address of a request; without one all share their limits.
pub(super) fn address_of(peer: Option<Extension<PeerAddress>>) -> IpAddr {
    peer.map_or_else(PeerAddress::unknown, |Extension(peer)| peer.address())
}

/// Asks for a code, or shows the request with the code for the person to approve or refuse.
pub(in crate::http) async fn ask(
    State(app): State<Arc<App>>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    Params(query): Params<DeviceQuery>,
) -> Answer {
    app.directory.follow().await?;
    let Some(session) = browser_session(&app, &headers) else {
        // What is no code is not passed on.
        let code = query.code.as_deref().and_then(read_user_code);
        let own = serde_urlencoded::to_string(DeviceQuery { code }).unwrap_or_default();
        return Ok(sign_in_first(&app, &format!("{PAGE}?{own}")));
    };
    let Some(code) = query.code else {
        return Ok(pages::html(pages::sign_in::ask_device_code()));
    };
    let (address, now) = (address_of(peer), app.clock.now());
    let find = || app.devices.waiting(&code, now);
    Ok(match try_code(&app, address, &session.principal, find) {
        Ok(request) => {
            // A proxy has one address for all that come through it.
            let own = (!app.may_be_proxied).then_some(address);
            pages::html(pages::sign_in::approve_device(&request, &session, own, now))
        }
        Err(page) => *page,
    })
}

/// The person has approved or refused.
pub(in crate::http) async fn decide(
    State(app): State<Arc<App>>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    form: Result<Form<DecideDeviceForm>, FormRejection>,
) -> Answer {
    let Ok(Form(form)) = form else {
        return Err(Failure::invalid("form", "open the address that bursar login shows"));
    };
    app.directory.follow().await?;
    let session = browser_session(&app, &headers).ok_or_else(auth::no_longer_works)?;
    check_form_token(&form.csrf_token, &session)?;
    let (address, caller) = (address_of(peer), session.principal.clone());
    let request = match try_code(&app, address, &caller, || decided(&app, &form, session)) {
        Ok(request) => request,
        Err(page) => return Ok(*page),
    };
    let (key, asked_from) = (&caller.id, request.address);
    Ok(pages::html(match form.decision {
        DeviceDecision::Approve => {
            tracing::info!(%key, %address, %asked_from, "a session is handed to the command line of another machine");
            pages::sign_in::device_approved(&request)
        }
        DeviceDecision::Refuse => {
            tracing::info!(%key, %address, %asked_from, "the command line of another machine was refused");
            pages::sign_in::device_refused(&request)
        }
    }))
}

fn decided(app: &App, form: &DecideDeviceForm, session: LiveSession) -> Option<DeviceRequest> {
    let now = app.clock.now();
    match form.decision {
        DeviceDecision::Approve => app.devices.approve(&form.code, session, now),
        DeviceDecision::Refuse => app.devices.refuse(&form.code, now),
    }
}

/// Gives the command line its token once the code was approved.
pub(in crate::http) async fn redeem(State(app): State<Arc<App>>, Tree(body): Tree) -> Answer {
    let redeem: RedeemDevice = convert(body)?;
    app.directory.follow().await?;
    let answer = match app.devices.redeem(&redeem.device_code, app.clock.now()) {
        Progress::Pending => DeviceAnswer { pending: true, signed_in: None },
        Progress::TooEarly(seconds) => {
            let detail = format!("this code was asked for too early; ask every {seconds} s");
            return Err(Failure::new(Code::RateLimited, detail).retry_after(seconds.into()));
        }
        Progress::Approved(session) => {
            DeviceAnswer { pending: false, signed_in: Some(handed_over(&app, Some(*session))?) }
        }
        Progress::Refused => {
            let detail =
                "the code was refused in the browser; run bursar login again and approve it";
            return Err(Failure::forbidden(detail));
        }
        Progress::Gone => {
            let detail = "the code was not approved in time or is used up; run bursar login again";
            return Err(Failure::new(Code::Unauthenticated, detail));
        }
    };
    Ok(json(StatusCode::OK, &answer))
}
