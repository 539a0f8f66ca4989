//! Search.

use bursar_api::system::search::{SearchQuery, SearchResult};

use crate::call::Call;

/// Finds things by their id or the beginning of it.
pub fn search(query: &SearchQuery) -> Call<SearchResult> {
    Call::get("/v1/search").with_query(query)
}
