//! Holds: credits reserved until the usage is known.

use bursar_api::credits::hold::{
    Capture, Extend, Hold, HoldFilter, Lot, PlaceHold, Release, Settle,
};
use bursar_api::{List, Page};

use crate::call::{Call, path};

/// Reserves credits.
pub fn place(hold: &PlaceHold) -> Call<Hold> {
    Call::post("/v1/holds", hold)
}

/// Reads a hold.
pub fn show(id: &str) -> Call<Hold> {
    Call::get(path(&["v1", "holds", id]))
}

/// All lots of a hold, in the order they were drawn.
pub fn lots(id: &str, page: &Page) -> Call<List<Lot>> {
    Call::get(path(&["v1", "holds", id, "lots"])).with_query(page)
}

/// Lists holds, newest first.
pub fn list(filter: &HoldFilter) -> Call<List<Hold>> {
    Call::get("/v1/holds").with_query(filter)
}

/// Spends the usage so far; the total is cumulative.
pub fn capture(id: &str, capture: &Capture) -> Call<Hold> {
    Call::post(path(&["v1", "holds", id, "capture"]), capture)
}

/// Extends a hold: a larger amount, a longer TTL, or both.
pub fn extend(id: &str, extend: &Extend) -> Call<Hold> {
    Call::post(path(&["v1", "holds", id, "extend"]), extend)
}

/// Spends the final usage and returns the rest.
pub fn settle(id: &str, settle: &Settle) -> Call<Hold> {
    Call::post(path(&["v1", "holds", id, "settle"]), settle)
}

/// Releases a hold: credits that were not captured return to their grants.
pub fn release(id: &str) -> Call<Hold> {
    Call::post(path(&["v1", "holds", id, "release"]), &Release {})
}
