//! API keys.

use bursar_api::system::key::{CreateKey, Key};
use bursar_api::{List, Page};

use crate::call::{Call, Method, Nothing, path};

/// Creates a key. Its secret is only in this answer.
pub fn create(key: &CreateKey) -> Call<Key> {
    Call::post("/v1/keys", key)
}

/// Lists keys, newest first.
pub fn list(page: &Page) -> Call<List<Key>> {
    Call::get("/v1/keys").with_query(page)
}

/// Revokes a key immediately.
pub fn revoke(id: &str) -> Call<Nothing> {
    Call::new(Method::Delete, path(&["v1", "keys", id]))
}
