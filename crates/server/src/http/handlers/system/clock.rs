//! The manual clock.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::credits::hold::Release;
use bursar_api::json::convert;
use bursar_api::system::clock::{Clock, MoveClock};
use bursar_core::directory::{Command, DirectoryAccepted, Reply};
use bursar_core::ledger::Envelope;
use bursar_core::time::Timestamp;
use bursar_engine::ManualClock;

use super::directory::{mark, platform_envelope};
use crate::app::App;
use crate::change::PLATFORM;
use crate::http::convert::{instant, millis};
use crate::http::extract::Tree;
use crate::http::respond::{Answer, json};
use crate::machines::wall_time::{NotAccepted, behind};
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

/// The last instant of a manual clock. Later deadlines must still be representable, and the last
/// representable instant is in the year 9999.
const LAST: i64 = 221_845_392_000_000;

/// The instant of the manual clock. Only with `--clock manual`.
#[utoipa::path(get, path = "/v1/clock", tag = "operations", operation_id = "get_clock",
    responses((status = 200, description = "The present instant", body = Clock)))]
pub(in crate::http) async fn get(State(app): State<Arc<App>>, caller: Caller) -> Answer {
    let manual = app.manual.as_ref().ok_or_else(|| Failure::not_found("clock", "manual"))?;
    caller.principal.require(Operation::GetClock)?;
    let now = time(bursar_engine::Clock::now(&**manual));
    Ok(json(StatusCode::OK, &Clock { now }))
}

/// Moves the manual clock forward. The answer is sent after all due timers have fired.
#[utoipa::path(post, path = "/v1/clock", tag = "operations", operation_id = "move_clock",
    request_body = MoveClock,
    responses((status = 200, description = "The new instant", body = Clock)))]
pub(in crate::http) async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let asked: MoveClock = convert(body.clone())?;
    let manual = app.manual.as_ref().ok_or_else(|| Failure::not_found("clock", "manual"))?;
    caller.principal.require(Operation::MoveClock)?;
    // One move at a time, from reading the clock to the answer.
    let _one_at_a_time = app.moving.lock().await;
    let envelope = platform_envelope(&app, &caller, &body).await?;
    let accepted = match answered_before(&app, &envelope)? {
        Some(accepted) => accepted.into(),
        None => {
            let target = target_instant(manual, &asked)?;
            app.submit_to_directory(PLATFORM, envelope, Command::AimClock { target }).await?
        }
    };
    let target = match accepted.reply {
        Reply::Clock { target } => target,
        // Stored by a release that did not store the target.
        Reply::Done | Reply::Key { .. } | Reply::Price { .. } | Reply::Shard { .. } => {
            bursar_engine::Clock::now(&**manual)
        }
    };
    // A repeat finds the clock there, unless the first call was interrupted.
    if target >= bursar_engine::Clock::now(&**manual) {
        app.move_clock(manual, target).await?;
        let note = Envelope { actor: caller.principal.id.clone().into(), ..Envelope::default() };
        app.directory.submit(note, Command::NoteClock).await?;
    }
    Ok(mark(json(StatusCode::OK, &Clock { now: time(target) }), &accepted))
}

/// Accepts the server's clock after it jumped or was far ahead at a start: delayed expiries
/// take effect. An operator must check the clock first.
#[utoipa::path(post, path = "/v1/clock/accept", tag = "operations", operation_id = "accept_clock",
    responses(
        (status = 200, description = "The accepted instant", body = Clock),
        (status = 409, body = bursar_api::Problem, content_type = "application/problem+json",
            description = "The clock is behind the time of the records, so it confirms nothing: set it \
                right, wait until it has caught up, or restore a backup with --until"),
    ))]
pub(in crate::http) async fn accept(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body.clone())?;
    caller.principal.require(Operation::AcceptClock)?;
    let _one_at_a_time = app.moving.lock().await;
    let envelope = platform_envelope(&app, &caller, &body).await?;
    // A repeat must not accept a later jump, which no operator has checked.
    let accepted = match answered_before(&app, &envelope)? {
        Some(accepted) => accepted.into(),
        None => {
            app.require_unused_key(PLATFORM, &envelope).await?;
            let target = match app.accept_clock(&caller.principal.id).await {
                Ok(target) => target,
                Err(NotAccepted::Failed(failure)) => return Err(failure),
                // Stored as well: a repeat must not accept a clock that was set meanwhile.
                Err(NotAccepted::Behind(behind_ms)) => {
                    let refused = Command::RefuseClock { behind_ms };
                    app.submit_to_directory(PLATFORM, envelope, refused).await?;
                    return Err(behind(behind_ms));
                }
            };
            if envelope.key.is_none() {
                return Ok(json(StatusCode::OK, &Clock { now: time(target) }));
            }
            // Last, so that a stored answer is always about a completed change.
            app.submit_to_directory(PLATFORM, envelope, Command::AimClock { target }).await?
        }
    };
    let Reply::Clock { target } = accepted.reply else {
        unreachable!("an instant is answered with itself")
    };
    Ok(mark(json(StatusCode::OK, &Clock { now: time(target) }), &accepted))
}

/// The stored answer to an earlier call under the same idempotency key.
fn answered_before(app: &App, envelope: &Envelope) -> Result<Option<DirectoryAccepted>, Failure> {
    app.directory.current().answered(envelope).transpose().map_err(Failure::from)
}

/// The requested instant of the clock.
fn target_instant(manual: &ManualClock, asked: &MoveClock) -> Result<Timestamp, Failure> {
    let shown = bursar_engine::Clock::now(manual);
    let target = match (asked.now, asked.advance_seconds) {
        (Some(now), None) => instant(now),
        (None, Some(seconds)) => shown.plus_millis(millis(seconds)),
        (None, None) | (Some(_), Some(_)) => {
            return Err(Failure::invalid("now", "give exactly one of now and advance_seconds"));
        }
    };
    if target.millis() > LAST {
        let field = if asked.now.is_some() { "now" } else { "advance_seconds" };
        return Err(Failure::invalid(field, "a manual clock ends with the year 8999"));
    }
    if target < shown {
        let reason = format!("the clock shows {shown} and never runs back");
        return Err(Failure::invalid("now", reason));
    }
    Ok(target)
}
