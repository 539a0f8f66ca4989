//! The entry of every request. While this server is not ready, and while another server leads,
//! requests are answered here: the process is alive, it is not ready, and the leader is at this
//! address.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use bursar_api::Code;
use bursar_core::time::Timestamp;
use bursar_engine::{Clock, WallClock};
use hyper::body::Incoming;
use serde_json::json;

use crate::http::dispatch::Dispatcher;
use crate::http::handlers::system;
use crate::ids::IdMaker;
use crate::machines::leader::{Leader, Role};
use crate::net::limits::Priority;
use crate::net::serve::Answers;
use crate::request::Failure;
use crate::request::meta::{self, Meta};
use crate::telemetry::Metrics;

/// The URL of the leader.
const OWNER: HeaderName = HeaderName::from_static("bursar-owner");
const REQUEST_ID: HeaderName = HeaderName::from_static("bursar-request-id");

/// Forwards requests to the dispatcher, or answers them while this server cannot serve.
pub(crate) struct RequestEntry {
    dispatcher: OnceLock<Dispatcher>,
    leader: Option<Arc<Leader>>,
    metrics: Arc<Metrics>,
    base_url: Arc<str>,
    ids: IdMaker,
    clock: WallClock,
}

impl RequestEntry {
    /// Creates the entry of a server with this URL. Without a `leader` this server always leads.
    pub(crate) fn new(
        leader: Option<Arc<Leader>>,
        metrics: Arc<Metrics>,
        base_url: Arc<str>,
    ) -> RequestEntry {
        let (ids, clock) = (IdMaker::new(0), WallClock::new());
        RequestEntry { dispatcher: OnceLock::new(), leader, metrics, base_url, ids, clock }
    }

    /// From now on requests are answered by `dispatcher` while this server leads.
    pub(crate) fn open(&self, dispatcher: Dispatcher) {
        // Called once, at the start.
        let _ = self.dispatcher.set(dispatcher);
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let leads = self.leader.as_ref().is_none_or(|leader| leader.leads());
        let path = request.uri().path();
        match self.dispatcher.get() {
            // Liveness and metrics are answered in every role.
            Some(dispatcher) if leads || path == "/metrics" || path == "/healthz" => {
                dispatcher.answer(request).await
            }
            _ => Ok(self.stand_by(path).await),
        }
    }

    /// The leader's URL if it is known, and why this server does not serve.
    fn absence(&self) -> (Option<String>, String) {
        let starting = || (None, "the server is starting".to_owned());
        let Some(leader) = &self.leader else { return starting() };
        match &*leader.role().borrow() {
            Role::Standby { owner, reason } => (owner.clone(), reason.clone()),
            Role::Unknown | Role::Leader => starting(),
        }
    }

    async fn stand_by(&self, path: &str) -> Response {
        let (owner, reason) = self.absence();
        match path {
            "/healthz" => axum::Json(json!({ "status": "ok" })).into_response(),
            "/metrics" => system::counters(self.metrics.text(0, 0)),
            "/readyz" => {
                let body = json!({
                    "ready": false, "machines": {}, "reason": reason, "owner": owner,
                });
                (StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response()
            }
            _ => self.refuse(owner, &reason).await,
        }
    }

    async fn refuse(&self, owner: Option<String>, reason: &str) -> Response {
        let request_id = self.ids.make_request_id(self.now());
        let meta = Meta {
            request_id,
            base_url: Arc::clone(&self.base_url),
            min_position: None,
            priority: Priority::Read,
            body_timeout: std::time::Duration::ZERO,
            bodies: None,
        };
        let detail = match &owner {
            Some(url) => format!("this server is a standby: send the request to {url} ({reason})"),
            None => format!("this server cannot serve requests now; try again ({reason})"),
        };
        let mut failure = Failure::new(Code::Unavailable, detail);
        if let Some(url) = owner.as_deref().and_then(|url| HeaderValue::from_str(url).ok()) {
            failure = failure.with_headers(HeaderMap::from_iter([(OWNER, url)]));
        }
        failure.problem.owner = owner;
        let (mut response, _) = meta::scope(meta, async { failure.into_response() }).await;
        response.headers_mut().insert(REQUEST_ID, request_id.header());
        response
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Answers for Arc<RequestEntry> {
    async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        RequestEntry::answer(&self, request).await
    }
}
