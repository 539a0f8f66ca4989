//! The pages of signing in: of the identity provider, and of command lines.

use bursar_core::time::Timestamp;

use super::{escape, page};
use crate::auth::sessions::LiveSession;
use crate::auth::sessions::device::DeviceRequest;
use crate::http::handlers::system::handoff::HandoffQuery;
use crate::render::time;

/// The title of the pages that sign in another machine.
const DEVICE_TITLE: &str = "Sign in on another machine";

/// The page after signing in: leads on to a page of this server.
pub(in crate::http) fn go_on(path: &str) -> String {
    let path = escape(path);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" \
         content=\"0;url={path}\"><title>Bursar</title><link rel=\"icon\" href=\"/favicon.svg\">\
         <link rel=\"stylesheet\" href=\"/docs/style.css\"></head><body><p>You are signed in. <a href=\"{path}\">Go on</a></p>\
         </body></html>"
    )
}

fn hidden(name: &str, value: &str) -> String {
    format!("<input type=\"hidden\" name=\"{name}\" value=\"{}\">", escape(value))
}

/// The name under which a session is known to its owner.
fn name_of(session: &LiveSession) -> String {
    escape(session.name.as_deref().unwrap_or(&session.principal.id))
}

/// The page that asks whether the command line may act for a session.
pub(in crate::http) fn approve(query: &HandoffQuery, session: &LiveSession) -> String {
    let hidden: String = [
        ("port", query.port.to_string().as_str()),
        ("state", &query.state),
        ("challenge", &query.challenge),
        ("csrf_token", &session.csrf_token),
    ]
    .into_iter()
    .map(|(name, value)| hidden(name, value))
    .collect();
    let name = name_of(session);
    let body = format!(
        "<p>The command line on this machine asks to act as <b>{name}</b>. Approve only if you have just run \
         <code>bursar login</code> here.</p><form method=\"post\" action=\"/auth/cli\">{hidden}<button>Approve\
         </button></form>"
    );
    page("Sign in on the command line", &body)
}

/// Asks for the code that a command line shows.
fn code_form() -> &'static str {
    "<form action=\"/auth/device\"><p><label>Code <input name=\"code\" autocomplete=\"off\" \
     autocapitalize=\"characters\" spellcheck=\"false\" required></label> <button>Continue</button></p></form>"
}

/// The page that asks for a code.
pub(in crate::http) fn ask_device_code() -> String {
    let body = format!(
        "<p>Type the code that <code>bursar login --device</code> shows on the other machine.</p>{}",
        code_form()
    );
    page(DEVICE_TITLE, &body)
}

/// The page for a code that does not wait, with the form again.
pub(in crate::http) fn unknown_device() -> String {
    let body = format!(
        "<p>No command line waits with this code. A code is valid for ten minutes and can be used once. Compare it \
         with the one that <code>bursar login --device</code> shows, or run the command again.</p>{}",
        code_form()
    );
    page(DEVICE_TITLE, &body)
}

/// The page for a code after too many wrong ones.
pub(in crate::http) fn too_many_codes(words: &str) -> String {
    let body = format!("<p>{}.</p>{}", escape(words), code_form());
    page(DEVICE_TITLE, &body)
}

/// The page that asks whether the command line of another machine may act for a session: what asks,
/// from where and since when, and what it would be allowed to do.
pub(in crate::http) fn approve_device(
    request: &DeviceRequest,
    session: &LiveSession,
    own_address: Option<std::net::IpAddr>,
    now: Timestamp,
) -> String {
    let DeviceRequest { user_code, address, client, asked_at } = request;
    let shown = crate::http::handlers::system::session::caller_shown(&session.principal);
    let role = serde_json::to_value(shown.role).unwrap_or_default();
    let compared = match own_address.map(|own| own.to_canonical()) {
        Some(own) if *address == own => ", the same address as this browser".to_owned(),
        Some(own) => format!(", not the address of this browser, which is {own}"),
        None => ", which may be the address of a proxy".to_owned(),
    };
    let client = match client {
        Some(client) => format!("{} (not verified)", escape(client)),
        None => "no name".to_owned(),
    };
    let minutes = now.millis_since(*asked_at).max(0) / 60_000;
    let since = match minutes {
        0 => "less than a minute ago".to_owned(),
        1 => "1 minute ago".to_owned(),
        minutes => format!("{minutes} minutes ago"),
    };
    let body = format!(
        "<p>A command line on another machine asks to act as <b>{name}</b>. Approve only if you have just run \
         <code>bursar login --device</code> yourself and it shows this code. Refuse if this code was sent to you: \
         the sender would act under your name.</p>\
         <table><tr><th>Code</th><td><code>{user_code}</code></td></tr>\
         <tr><th>Requested from</th><td>{address}{compared}</td></tr>\
         <tr><th>Client name</th><td>{client}</td></tr>\
         <tr><th>Requested at</th><td>{at}, {since}</td></tr>\
         <tr><th>It would act as</th><td>{name}: {role} of {scope}</td></tr>\
         <tr><th>At most until</th><td>{until}</td></tr></table>\
         <form method=\"post\" action=\"/auth/device\">{code}{token}<p><button name=\"decision\" \
         value=\"approve\">Approve</button> <button name=\"decision\" value=\"refuse\">Refuse</button></p></form>",
        name = name_of(session),
        role = role.as_str().unwrap_or_default(),
        scope = escape(&shown.scope),
        at = time(*asked_at),
        until = time(session.ends_at),
        code = hidden("code", user_code),
        token = hidden("csrf_token", &session.csrf_token),
    );
    page(DEVICE_TITLE, &body)
}

/// The page after a code was approved.
pub(in crate::http) fn device_approved(request: &DeviceRequest) -> String {
    let body = format!(
        "<p>The command line at {} is signed in. You can close this page.</p><p>If this was a mistake, sign out \
         everywhere: <a href=\"/settings\">Settings</a>.</p><p><a href=\"/\">Dashboard</a></p>",
        request.address
    );
    page(DEVICE_TITLE, &body)
}

/// The page after a code was refused.
pub(in crate::http) fn device_refused(request: &DeviceRequest) -> String {
    let body = format!(
        "<p>The command line at {} is not signed in. Its code is no longer valid.</p>\
         <p><a href=\"/\">Dashboard</a></p>",
        request.address
    );
    page(DEVICE_TITLE, &body)
}

/// The page for a browser that is not signed in, with the address that signs it in.
pub(in crate::http) fn not_signed_in(words: &str, sign_in: &str) -> String {
    let (words, sign_in) = (escape(words), escape(sign_in));
    page(
        "Not signed in",
        &format!(
            "<p>{words}</p><p><a href=\"{sign_in}\">Sign in</a> · <a href=\"/\">Dashboard</a></p>"
        ),
    )
}
