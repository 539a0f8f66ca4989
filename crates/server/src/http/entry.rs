//! The entry of every request. While another member leads, requests are forwarded to it. While a server alone is not
//! ready, they are answered here: the process is alive, and it is not ready.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::http::{HeaderName, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use bursar_api::Code;
use bursar_core::time::Timestamp;
use bursar_engine::{Clock, WallClock};
use hyper::body::Incoming;
use serde_json::json;

use crate::http::dispatch::Dispatcher;
use crate::http::forward::{Forwarder, Routed};
use crate::http::handlers::system;
use crate::ids::IdMaker;
use crate::machines::leader::{DRAINING, Leader, Role};
use crate::net::framing;
use crate::net::limits::Priority;
use crate::net::serve::Answers;
use crate::request::Failure;
use crate::request::meta::{self, Meta};
use crate::telemetry::Metrics;

const HEALTHZ: &str = "/healthz";
const METRICS: &str = "/metrics";
const READYZ: &str = "/readyz";
/// What a process answers about itself; it is not forwarded.
const OF_THIS_PROCESS: [&str; 3] = [HEALTHZ, METRICS, READYZ];
const STARTING: &str = "the server is starting";
const REQUEST_ID: HeaderName = HeaderName::from_static("bursar-request-id");

/// Passes requests to the dispatcher or to another member, or answers them while this server cannot serve.
pub(crate) struct RequestEntry {
    dispatcher: OnceLock<Dispatcher>,
    cluster: Option<(Arc<Leader>, Forwarder)>,
    metrics: Arc<Metrics>,
    base_url: Arc<str>,
    ids: IdMaker,
    clock: WallClock,
}

impl RequestEntry {
    /// Creates the entry of a server with this URL. Without a `cluster` it is the only one.
    pub(crate) fn new(
        cluster: Option<(Arc<Leader>, Forwarder)>,
        metrics: Arc<Metrics>,
        base_url: Arc<str>,
    ) -> RequestEntry {
        let (ids, clock) = (IdMaker::new(0), WallClock::new());
        RequestEntry { dispatcher: OnceLock::new(), cluster, metrics, base_url, ids, clock }
    }

    /// From now on requests are answered by `dispatcher` while this server leads.
    pub(crate) fn open(&self, dispatcher: Dispatcher) {
        // Called once, at the start.
        let _ = self.dispatcher.set(dispatcher);
        if let Some((_, forwarder)) = &self.cluster {
            forwarder.open();
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        if let Some(failure) = framing::refusal(&request) {
            return Ok(self.refused(failure).await);
        }
        let path = request.uri().path();
        let is_own = OF_THIS_PROCESS.contains(&path);
        match (self.dispatcher.get(), &self.cluster) {
            (Some(dispatcher), None) => dispatcher.answer(request).await,
            // Liveness and metrics are answered in every role.
            (Some(dispatcher), Some((leader, _))) if is_own => {
                if leader.leads() || path != READYZ {
                    return dispatcher.answer(request).await;
                }
                Ok(self.own_state(path))
            }
            (None, _) if is_own => Ok(self.own_state(path)),
            (None, None) => {
                let detail =
                    format!("this server cannot serve requests now; try again ({STARTING})");
                Ok(self.refused(Failure::new(Code::Unavailable, detail)).await)
            }
            (dispatcher, Some((_, forwarder))) => {
                self.answer_somewhere(request, dispatcher, forwarder).await
            }
        }
    }

    /// Answers a request here or by another member.
    async fn answer_somewhere(
        &self,
        mut request: Request<Incoming>,
        dispatcher: Option<&Dispatcher>,
        forwarder: &Forwarder,
    ) -> Result<Response, Infallible> {
        if let Some(dispatcher) = dispatcher
            && let Some(_begun) = forwarder.begin(&mut request)
        {
            return dispatcher.answer(request).await;
        }
        // Boxed: the future of a request that is answered here stays small.
        let (parts, body, _begun) = match Box::pin(forwarder.route(request)).await {
            Ok(Routed::Answered(answer)) => return Ok(answer),
            Ok(Routed::Here(returned)) => *returned,
            Err(failure) => return Ok(self.refused(failure).await),
        };
        match self.dispatcher.get() {
            Some(dispatcher) => dispatcher.answer(Request::from_parts(parts, body)).await,
            // A member answers itself once it has one.
            None => Ok(self.refused(forwarder.unavailable(STARTING)).await),
        }
    }

    /// Whether this process lives and is ready, and its metrics.
    fn own_state(&self, path: &str) -> Response {
        match path {
            HEALTHZ => axum::Json(json!({ "status": "ok" })).into_response(),
            METRICS => system::counters(self.metrics.text(0, 0)),
            _ => {
                let (owner, reason) = self.leader_and_reason();
                let ready = owner.is_some() && reason != DRAINING;
                let body = json!({
                    "ready": ready, "machines": {}, "reason": reason, "owner": owner,
                });
                let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                (status, axum::Json(body)).into_response()
            }
        }
    }

    /// The URL of the member that answers, if there is one, and why this one does not.
    fn leader_and_reason(&self) -> (Option<String>, String) {
        let Some((leader, forwarder)) = &self.cluster else { return (None, STARTING.to_owned()) };
        match &*leader.role().borrow() {
            Role::Standby { reason, .. } => (forwarder.other_leader(), reason.clone()),
            Role::Unknown | Role::Leader => (None, STARTING.to_owned()),
        }
    }

    async fn refused(&self, failure: Failure) -> Response {
        let request_id = self.ids.make_request_id(self.now());
        let meta = Meta {
            request_id,
            base_url: Arc::clone(&self.base_url),
            min_position: None,
            priority: Priority::Read,
            body_timeout: std::time::Duration::ZERO,
            bodies: None,
        };
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
