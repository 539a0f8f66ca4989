//! Holds: credits set aside until the usage is known.

use bursar_api::credits::hold::{
    Capture, Extend, Hold, HoldFilter, Lot, PlaceHold, Release, Settle,
};
use bursar_api::{List, Page};

use crate::call::{Call, path};

/// Sets credits aside.
pub fn place(hold: &PlaceHold) -> Call<Hold> {
    Call::post("/v1/holds", hold)
}

/// Reads a hold.
pub fn show(id: &str) -> Call<Hold> {
    Call::get(path(&["v1", "holds", id]))
}

/// All that a hold was drawn from, in order.
pub fn lots(id: &str, page: &Page) -> Call<List<Lot>> {
    Call::get(path(&["v1", "holds", id, "lots"])).with_query(page)
}

/// Lists holds, newest first.
pub fn list(filter: &HoldFilter) -> Call<List<Hold>> {
    Call::get("/v1/holds").with_query(filter)
}

/// Spends what was used so far; the total is cumulative.
pub fn capture(id: &str, capture: &Capture) -> Call<Hold> {
    Call::post(path(&["v1", "holds", id, "capture"]), capture)
}

/// Sets more aside, for longer, or both.
pub fn extend(id: &str, extend: &Extend) -> Call<Hold> {
    Call::post(path(&["v1", "holds", id, "extend"]), extend)
}

/// Spends the final usage and returns the rest.
pub fn settle(id: &str, settle: &Settle) -> Call<Hold> {
    Call::post(path(&["v1", "holds", id, "settle"]), settle)
}

/// Returns all that was not captured.
pub fn release(id: &str) -> Call<Hold> {
    Call::post(path(&["v1", "holds", id, "release"]), &Release {})
}
