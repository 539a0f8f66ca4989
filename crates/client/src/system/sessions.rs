//! Sessions.

use bursar_api::list::{List, Page};
use bursar_api::system::session::{
    ActiveSession, BeginDevice, DeviceAnswer, DeviceLogin, RedeemCode, RedeemDevice, SessionToken,
    SignIn, SignOutQuery, SignedIn,
};

use crate::call::{Call, Method, Nothing};

/// Signs in with a key. The session is a cookie, so this serves browsers and tests.
pub fn create(sign_in: &SignIn) -> Call<SignedIn> {
    Call::post("/v1/session", sign_in)
}

/// The caller's role and scope, and its session if it has one.
pub fn get() -> Call<SignedIn> {
    Call::get("/v1/session")
}

/// Redeems a code of the browser for a token. Not part of the OpenAPI document.
pub fn redeem(code: &RedeemCode) -> Call<SessionToken> {
    Call::post("/auth/token", code)
}

/// Begins to sign in without a browser on this machine. Not part of the OpenAPI document.
pub fn begin_device(begin: &BeginDevice) -> Call<DeviceLogin> {
    Call::post("/auth/device/code", begin)
}

/// Whether the code was approved. Not part of the OpenAPI document.
pub fn redeem_device(device: &RedeemDevice) -> Call<DeviceAnswer> {
    Call::post("/auth/device/token", device)
}

/// Sessions that have not ended.
pub fn list(page: &Page) -> Call<List<ActiveSession>> {
    Call::get("/v1/sessions").with_query(page)
}

/// Ends the sessions of another key or person.
pub fn end_of(actor: &str) -> Call<Nothing> {
    let query = SignOutQuery { everywhere: None, actor: Some(actor.to_owned()) };
    Call::new(Method::Delete, "/v1/session").with_query(&query)
}

/// Signs out; `everywhere` ends every session of the caller's key or person.
pub fn end(everywhere: bool) -> Call<Nothing> {
    let query = SignOutQuery { everywhere: everywhere.then_some(true), actor: None };
    Call::new(Method::Delete, "/v1/session").with_query(&query)
}
