//! Sessions.

use bursar_api::system::session::{RedeemCode, SessionToken, SignIn, SignedIn};

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

/// Signs out.
pub fn end() -> Call<Nothing> {
    Call::new(Method::Delete, "/v1/session")
}
