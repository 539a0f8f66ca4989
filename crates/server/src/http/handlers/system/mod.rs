//! Public endpoints of the server: health, metrics, documentation.

pub(in crate::http) mod audit;
pub(in crate::http) mod clock;
pub(in crate::http) mod cluster;
pub(in crate::http) mod device;
pub(in crate::http) mod directory;
pub(in crate::http) mod events;
pub(in crate::http) mod handoff;
pub(in crate::http) mod keys;
pub(in crate::http) mod search;
pub(in crate::http) mod session;
pub(in crate::http) mod shards;
pub(in crate::http) mod sign_in;
mod trail;

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bursar_api::Code;
use bursar_core::ledger::Ledger;
use bursar_engine::{Status, vital_failure};
use serde_json::{Value, json};

use crate::app::{App, READ_TIMEOUT};
use crate::http::extract::Path;
use crate::http::pages;
use crate::http::router::description;
use crate::logs::LogStatus;
use crate::machines::ledgers::LedgerService;
use crate::request::Failure;

static OPENAPI: LazyLock<String> =
    LazyLock::new(|| description().to_json().expect("the description has only plain fields"));

/// Whether the process is alive and everything that it needs is running.
pub(in crate::http) async fn healthz(State(app): State<Arc<App>>) -> Response {
    match app.ended() {
        None => axum::Json(json!({ "status": "ok" })).into_response(),
        Some(reason) => {
            let body = json!({ "status": "stopped", "reason": reason });
            (StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response()
        }
    }
}

/// Whether requests can be answered: the journals are reachable and replayed.
pub(in crate::http) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let mut ready = true;
    let mut machines = serde_json::Map::new();
    let mut set_aside = serde_json::Map::new();
    let mut kinds = serde_json::Map::new();
    for (machine, status, stats) in app.machines() {
        if stats.set_aside > 0 {
            set_aside.insert(machine.clone(), stats.set_aside.into());
            kinds.insert(machine.clone(), app.set_aside_kinds(&machine).await.into());
        }
        let shown = match status {
            Status::Starting => "starting".to_owned(),
            Status::Serving => "serving".to_owned(),
            Status::ReadOnly => "read_only: the disk is full".to_owned(),
            Status::Waiting(reason) => format!("waiting: {reason}"),
            Status::Stopped(reason) => format!("stopped: {reason}"),
        };
        ready &= shown == "serving";
        machines.insert(machine, shown.into());
    }
    // Without the directory no key can be looked up and no request answered.
    match tokio::time::timeout(READ_TIMEOUT, app.directory.follow()).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => {
            ready = false;
            machines.insert("keys".to_owned(), failure.problem.detail.clone().into());
        }
        Err(_) => {
            ready = false;
            machines.insert("keys".to_owned(), "the directory does not answer".into());
        }
    }
    if let Some(failure) = app.cells.courier_failure() {
        tracing::error!(%failure, "messages between machines do not arrive");
        ready = false;
        machines.insert("couriers".to_owned(), failure.into());
    }
    if let Some(failure) = vital_failure() {
        ready = false;
        machines.insert("threads".to_owned(), failure.into());
    }
    let alarm = app.clock.alarm().map(|alarm| alarm.ahead_ms);
    let body = json!({
        "ready": ready, "machines": machines, "clock_ahead_ms": alarm,
        "broken_laws": app.metrics.violations(),
        "invariant_violations": app.metrics.violations(),
        "set_aside": set_aside, "set_aside_kinds": kinds,
        "time": app.time_trouble().shown(), "logs": log_trouble(app.logs.status()),
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(body)).into_response()
}

/// The fault of storing the output of jobs. The server is ready in spite of it.
fn log_trouble(logs: LogStatus) -> Value {
    if !logs.no_room {
        return Value::Null;
    }
    "output of jobs is not taken: the file system of the logs has less free than [logs] \
     min_free_bytes; make room, agents send it then"
        .into()
}

/// All metrics, for Prometheus.
pub(in crate::http) async fn metrics(State(app): State<Arc<App>>) -> Response {
    (app.measure)(&app);
    app.measure_time();
    app.measure_regions().await;
    app.metrics.only_waiting(app.waits.count());
    app.metrics.incomplete_bodies(app.bodies.count());
    app.metrics.logs(app.logs.status());
    let closed = |own: &LedgerService| own.feed.look(Ledger::closed_in_memory).value;
    let closed = app.ledgers.iter().map(closed).sum();
    let archived = app.ledgers.iter().map(|own| own.archive.position()).sum();
    app.metrics.archive(archived, closed);
    let followed = app.ledgers.iter().map(|own| own.history.position()).sum();
    counters(app.metrics.text(app.load.in_flight(), followed))
}

/// A response in the format that Prometheus reads.
pub(crate) fn counters(text: String) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}

/// The OpenAPI document.
pub(in crate::http) async fn openapi() -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], OPENAPI.as_str()).into_response()
}

/// The API reference for people. It loads nothing from elsewhere.
pub(in crate::http) async fn docs() -> Response {
    pages::html(pages::reference(&description()))
}

/// The style of the pages.
pub(in crate::http) async fn style() -> Response {
    let kind = HeaderValue::from_static("text/css; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], pages::STYLE).into_response()
}

/// The page of a problem code.
pub(in crate::http) async fn problem_page(Path(code): Path<String>) -> Result<Response, Failure> {
    let page = pages::problem(&code).ok_or_else(|| Failure::not_found("problem", &code))?;
    Ok(pages::html(page))
}

/// The index of the problem pages.
pub(in crate::http) async fn problem_index() -> Response {
    pages::html(pages::problems())
}

/// The path exists, but not with this method.
pub(in crate::http) async fn no_method(method: axum::http::Method) -> Failure {
    let detail = format!("this path does not take {method}; see /openapi.json");
    Failure::new(Code::MethodNotAllowed, detail)
}
