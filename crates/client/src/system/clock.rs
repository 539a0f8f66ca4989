//! The manual clock.

use bursar_api::Time;
use bursar_api::system::clock::{Clock, MoveClock};

use crate::call::{Call, Method};

/// Accepts the server's clock after it jumped or was far ahead at a start.
pub fn accept() -> Call<Clock> {
    Call::new(Method::Post, "/v1/clock/accept")
}

/// The manual clock.
pub fn show() -> Call<Clock> {
    Call::get("/v1/clock")
}

/// Moves the clock forward to an instant.
pub fn set(now: Time) -> Call<Clock> {
    Call::post("/v1/clock", &MoveClock { now: Some(now), advance_seconds: None })
}

/// Moves the clock forward by some seconds.
pub fn advance(seconds: u64) -> Call<Clock> {
    Call::post("/v1/clock", &MoveClock { now: None, advance_seconds: Some(seconds) })
}
