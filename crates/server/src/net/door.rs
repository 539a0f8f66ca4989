//! Where every request arrives. Before the server is ready, and while another server leads, it is
//! answered here: the process lives, it is not ready, and the leader is at this address.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use bursar_api::Code;
use bursar_core::time::Timestamp;
use bursar_engine::{Clock, WallClock};
use hyper::body::Incoming;
use serde_json::json;

use crate::http::front::Front;
use crate::http::handlers::system;
use crate::http::meta::{self, Meta};
use crate::http::problem::Failure;
use crate::ids::IdMaker;
use crate::machines::leader::{Leader, Role};
use crate::net::limits::Priority;
use crate::telemetry::Metrics;

/// Names the server that can answer.
const OWNER: HeaderName = HeaderName::from_static("bursar-owner");
const REQUEST_ID: HeaderName = HeaderName::from_static("bursar-request-id");

/// Answers requests, by itself while this server cannot.
pub(crate) struct Door {
    front: OnceLock<Front>,
    leader: Option<Arc<Leader>>,
    metrics: Arc<Metrics>,
    base_url: Arc<str>,
    ids: IdMaker,
    clock: WallClock,
}

impl Door {
    /// The door of a server that is reached under this address. Without a `leader` it leads always.
    pub(crate) fn new(
        leader: Option<Arc<Leader>>,
        metrics: Arc<Metrics>,
        base_url: Arc<str>,
    ) -> Door {
        let (ids, clock) = (IdMaker::new(0), WallClock::new());
        Door { front: OnceLock::new(), leader, metrics, base_url, ids, clock }
    }

    /// From now on requests are answered by `front`, while this server leads.
    pub(crate) fn open(&self, front: Front) {
        // Opened once, by the start.
        let _ = self.front.set(front);
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let leads = self.leader.as_ref().is_none_or(|leader| leader.leads());
        let path = request.uri().path();
        match self.front.get() {
            // Whether the process is well, and its counters, are told whatever the role is.
            Some(front) if leads || path == "/metrics" || path == "/healthz" => {
                front.answer(request).await
            }
            _ => Ok(self.stand_by(path).await),
        }
    }

    /// The leader's address if it is known, and why this server does not answer.
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
            body_patience: std::time::Duration::ZERO,
        };
        let detail = match &owner {
            Some(url) => format!("this server is a standby: send the request to {url} ({reason})"),
            None => format!("this server does not serve now; try again ({reason})"),
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
