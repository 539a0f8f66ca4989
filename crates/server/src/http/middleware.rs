//! Middleware around every handler: request ids, logs, metrics, shedding, authentication, limits.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bursar_api::Code;
use futures_util::FutureExt;
use tracing::Instrument;

use super::extract::min_position;
use super::respond::POSITION;
use crate::app::App;
use crate::auth::sessions::TOKEN;
use crate::auth::{self, Principal};
use crate::net::limits::Priority;
use crate::operations::Operation;
use crate::request::Failure;
use crate::request::MinPosition;
use crate::request::meta::{self, Meta};
use crate::telemetry::monotonic::Stopwatch;
use crate::telemetry::trace::CallerTrace;

const REQUEST_ID: HeaderName = HeaderName::from_static("bursar-request-id");

/// Browsers that have reached this server over TLS come back over TLS only, for a year.
const ONLY_TLS: &str = "max-age=31536000";

/// How long a handler may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a move of the manual clock may take. All timers on the way run before the answer.
const CLOCK_REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

fn request_timeout(route: &str) -> Duration {
    if route == "/v1/clock" { CLOCK_REQUEST_TIMEOUT } else { REQUEST_TIMEOUT }
}

/// The priority of a request, by its route.
fn priority(method: &str, route: &str) -> Priority {
    if ["/healthz", "/readyz", "/metrics"].contains(&route) {
        return Priority::Health;
    }
    match Operation::find(method, route) {
        Some((operation, _)) => operation.row().priority,
        None if method == "GET" || method == "HEAD" => Priority::Read,
        None => Priority::Change,
    }
}

fn route_of(request: &Request) -> String {
    let matched = request.extensions().get::<MatchedPath>();
    matched.map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned())
}

/// The method as a label. All unknown methods share one label, because clients can invent any
/// number.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

/// What is known of a request before it is handled.
pub(super) struct RequestFacts {
    method: &'static str,
    /// The route as in the OpenAPI document.
    route: Cow<'static, str>,
    pub(super) priority: Priority,
    /// The position to wait for before reading, or the error of the parameter.
    wanted: Result<Option<MinPosition>, Failure>,
    trace: CallerTrace,
}

impl RequestFacts {
    /// A request for a known route.
    pub(super) fn known(
        method: &'static str,
        route: &'static str,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> RequestFacts {
        let priority = priority(method, route);
        let (wanted, trace) = (min_position(uri.query()), CallerTrace::of(headers));
        RequestFacts { method, route: route.into(), priority, wanted, trace }
    }

    fn matched(request: &Request) -> RequestFacts {
        let (method, route) = (known_method(request.method()), route_of(request));
        let priority = priority(method, &route);
        let wanted = min_position(request.uri().query());
        let trace = CallerTrace::of(request.headers());
        RequestFacts { method, route: route.into(), priority, wanted, trace }
    }

    /// Whether it may wait for a position.
    pub(super) fn may_wait(&self) -> bool {
        matches!(self.wanted, Ok(Some(_)))
    }
}

/// Observes a request that the router matched.
pub(super) async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let facts = RequestFacts::matched(&request);
    observed(&app, facts, pin!(next.run(request))).await
}

/// Gives the request its id, counts and logs it, sheds it under overload, and turns a panic into an
/// answer. The handler of a shed request does not start. The work is passed as a pinned reference:
/// moved through so many layers it would be copied from one to the next.
pub(super) async fn observed(
    app: &App,
    facts: RequestFacts,
    work: Pin<&mut impl Future<Output = Response>>,
) -> Response {
    let watch = Stopwatch::start();
    let request_id = app.ids.make_request_id(app.clock.now());
    let RequestFacts { method, route, priority, wanted, trace } = facts;
    let meta = Meta {
        request_id,
        base_url: Arc::clone(&app.base_url),
        min_position: wanted.as_ref().ok().cloned().flatten(),
        body_timeout: app.body_timeout,
        priority,
        bodies: Some(Arc::clone(&app.bodies)),
    };
    let (position, trace_id) = (tracing::field::Empty, tracing::field::Empty);
    let span = tracing::info_span!("request", %request_id, %method, %route, position, trace_id);
    trace.join(&span);
    let timeout = request_timeout(&route);
    let work = async {
        let work = async {
            wanted?;
            let Some(_admitted) = app.load.admit(priority) else {
                app.load.hold_back().await;
                return Ok(app.shed.response(request_id));
            };
            let changes = priority != Priority::Read;
            let response = handle(work, timeout).await;
            let response = app.answers.hold((meta::sender(), priority), response)?;
            if changes && response.status().is_success() {
                // With a manual clock the effects of a change are complete when it is answered.
                app.quiesce_if_manual().await?;
            }
            Ok::<Response, Failure>(response)
        };
        work.await.unwrap_or_else(Failure::into_response)
    };
    let (mut response, ended) = meta::scope(meta, work.instrument(span.clone())).await;
    if let Some(position) = response.headers().get(POSITION) {
        // The position of the decision leads from the trace of a request to its record.
        span.record("position", position.to_str().unwrap_or(""));
    }
    let status = response.status().as_u16();
    let took = watch.elapsed();
    app.metrics.request(method, route, status, took.saturating_sub(ended.waited));
    let problem = ended.problem;
    if let Some(code) = problem {
        app.metrics.problem(code.as_str());
    }
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let code = problem.map_or("", |code| code.as_str());
    span.in_scope(|| tracing::info!(status, micros, code, "answered"));
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, request_id.header());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if app.base_url.starts_with("https://") {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(ONLY_TLS));
    }
    response
}

/// Runs a handler. A panic or a timeout becomes an answer.
async fn handle(work: impl Future<Output = Response>, timeout: Duration) -> Response {
    let guarded = AssertUnwindSafe(work).catch_unwind();
    match tokio::time::timeout(timeout, guarded).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!("a handler panicked");
            let detail = "the service failed; if this repeats, report the request_id";
            Failure::new(Code::Internal, detail).into_response()
        }
        Err(_) => {
            let detail = "no answer in time; repeat the request under the same Idempotency-Key";
            Failure::new(Code::OutcomeUnknown, detail).into_response()
        }
    }
}

/// Authenticates a request and takes a token from the buckets of its key.
pub(super) async fn authenticate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let priority = priority(request.method().as_str(), &route_of(&request));
    let (principal, limits) = admit(&app, request.method(), request.headers(), priority).await?;
    request.extensions_mut().insert(principal.clone());
    let mut response = while_key_works(&app, &principal, priority, next.run(request)).await?;
    response.headers_mut().extend(limits);
    Ok(response)
}

/// Answers a read while its key is valid. A change is answered even if its key becomes invalid
/// meanwhile, because it may have been made.
pub(super) async fn while_key_works(
    app: &App,
    principal: &Principal,
    priority: Priority,
    answer: impl Future<Output = Response>,
) -> Result<Response, Failure> {
    if priority != Priority::Read {
        return Ok(answer.await);
    }
    tokio::select! {
        biased;
        answer = answer => Ok(answer),
        () = app.until_key_ends(principal) => Err(auth::no_longer_works()),
    }
}

/// The principal of a request, and the rate limit headers of its answer.
pub(super) async fn admit(
    app: &App,
    method: &Method,
    headers: &HeaderMap,
    priority: Priority,
) -> Result<(Principal, HeaderMap), Failure> {
    app.directory.follow().await?;
    app.require_all_shards()?;
    let by_session = || app.of_session(method, headers);
    let has_key = headers.contains_key(header::AUTHORIZATION);
    let principal = match (!has_key).then(by_session).flatten() {
        Some(principal) => principal?,
        None => of_key(app, headers)?,
    };
    tracing::debug!(key = %principal.id, "authenticated");
    // A platform key has its own turns.
    meta::note_sender(principal.tenant().unwrap_or(&principal.id));
    app.last_uses.note(&principal, app.clock.now());
    let limits = app.limits.take(&principal, priority)?;
    meta::note_caller(&principal);
    Ok((principal, limits))
}

/// The principal of the key, or of the token of a session, in a request.
fn of_key(app: &App, headers: &HeaderMap) -> Result<Principal, Failure> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let authorization = values.next().and_then(|value| value.to_str().ok());
    let authorization = authorization.filter(|_| values.next().is_none());
    let token = authorization.and_then(|value| value.split_once(' '));
    if let Some((scheme, secret)) =
        token.and_then(|(scheme, token)| Some((scheme, token.trim().strip_prefix(TOKEN)?)))
        && scheme.eq_ignore_ascii_case("bearer")
    {
        return app.of_session_token(secret);
    }
    auth::authenticate(authorization, &app.root, &app.directory.current(), app.clock.now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_methods_share_one_label() {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let known = Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(known_method(&known), method);
        }
        for invented in ["BREW", "get", "X-1", "PROPFIND"] {
            let invented = Method::from_bytes(invented.as_bytes()).expect("a method");
            assert_eq!(known_method(&invented), "other");
        }
    }

    #[test]
    fn the_priority_of_a_request_follows_from_its_route() {
        for (method, route, expected) in [
            ("POST", "/v1/holds/{id}/capture", Priority::Metering),
            ("POST", "/v1/holds/{id}/settle", Priority::Metering),
            ("POST", "/v1/holds", Priority::Change),
            ("GET", "/v1/holds/{id}", Priority::Read),
            ("GET", "/metrics", Priority::Health),
        ] {
            assert_eq!(priority(method, route), expected, "{route}");
        }
    }
}
