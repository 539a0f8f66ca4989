//! Requests that another member can answer: they are forwarded to it. A client may send any request to any member.
//!
//! While no member is known to lead, and while this one becomes the leader, requests wait for a moment. A request is
//! sent again only if it was not sent before, or if a repeat of it has no further effect.

mod body;
mod hop;
mod passing;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use axum::response::Response;
use bursar_api::Code;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::{Semaphore, watch};

use crate::auth::root_key;
use crate::config::Config;
use crate::http::extract::refuse_announced;
use crate::machines::leader::{Leader, Role};
use crate::machines::trust::InProgress;
use crate::net::answers::LargeAnswers;
use crate::net::bodies::BodySender;
use crate::net::limits::Priority;
use crate::net::serve::PeerAddress;
use crate::request::Failure;
use crate::telemetry::Metrics;
use crate::telemetry::monotonic::Stopwatch;
use body::{ClientBody, Collector, Outgoing};
use hop::{Arrival, FORWARDED, MAX_HOPS};
use passing::{end_to_end_headers, is_repeatable, keeps_its_path};

pub(crate) use hop::MemberSecret;

/// The URL of the member that answered, or can.
pub(super) const OWNER: HeaderName = HeaderName::from_static("bursar-owner");
/// How long a request waits for a member that can answer it, in all.
const HOLD_TIMEOUT: Duration = Duration::from_secs(25);
/// How often a waiting request looks whether this member's leadership is valid again.
const HOLD_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The pause after a member could not be reached.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long a connection to another member may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The most requests that are forwarded or wait at once.
const MAX_FORWARDED: usize = 16_384;

/// Forwards requests to the member that leads.
pub(crate) struct Forwarder {
    http: reqwest::Client,
    leader: Arc<Leader>,
    secret: SecretSource,
    collector: Collector,
    /// Those that are passed back and not read yet.
    answers: Arc<LargeAnswers>,
    senders: RandomState,
    places: Semaphore,
    metrics: Arc<Metrics>,
    /// True once this member's machines have started.
    opened: watch::Sender<bool>,
}

/// Where the secret of the members comes from. The first member of a new store may not have written its root key yet.
struct SecretSource {
    known: OnceLock<MemberSecret>,
    config: Config,
}

impl SecretSource {
    fn get(&self) -> Option<MemberSecret> {
        if let Some(known) = self.known.get() {
            return Some(known.clone());
        }
        let key = root_key::known(&self.config)?;
        Some(self.known.get_or_init(|| MemberSecret::derived_from(&key)).clone())
    }
}

/// The member that can answer now.
enum Owner {
    /// This one.
    Here(InProgress),
    /// The one at this URL.
    At(String),
    /// None that is known, for this reason.
    Nowhere(String),
}

/// What became of one attempt to forward.
enum Attempt {
    Answered(Response),
    /// Nothing was sent.
    NotSent(String),
    /// It was sent, and no answer came.
    Unanswered(String),
    /// The client did not send all of its body, so it has no effect.
    CutOff(String),
}

/// A request that this member must answer itself.
pub(super) type OwnRequest = (Parts, Body, InProgress);

/// What becomes of a request.
pub(super) enum Routed {
    /// Another member has answered it.
    Answered(Response),
    /// This member must answer it.
    Here(Box<OwnRequest>),
}

impl Forwarder {
    /// Creates the forwarder of a member.
    pub(crate) fn new(
        config: &Config,
        leader: Arc<Leader>,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Forwarder> {
        let read = config.cluster_secret_file.as_deref().map(MemberSecret::read).transpose()?;
        let known = read.map_or_else(OnceLock::new, OnceLock::from);
        // Another part of the process may have chosen the same provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(std::io::Error::other)?;
        Ok(Forwarder {
            http,
            leader,
            secret: SecretSource { known, config: config.clone() },
            collector: Collector::new(),
            answers: Arc::default(),
            senders: RandomState::new(),
            places: Semaphore::new(MAX_FORWARDED),
            metrics,
            opened: watch::Sender::new(false),
        })
    }

    /// From now on this member answers requests itself while it leads.
    pub(super) fn open(&self) {
        self.opened.send_replace(true);
    }

    /// Begins a request here, if this member can answer it. A request of another member is then taken as one of that
    /// member's client.
    pub(super) fn begin<B>(&self, request: &mut Request<B>) -> Option<InProgress> {
        let begun = self.leader.begin().filter(|_| *self.opened.borrow())?;
        if request.headers().contains_key(FORWARDED) {
            let arrival = self.arrival(request.method(), request.uri(), request.headers());
            request.headers_mut().remove(FORWARDED);
            if let Arrival::Forwarded(_, client) = arrival
                && request.extensions().get::<PeerAddress>().is_some()
            {
                request.extensions_mut().insert(PeerAddress::new(client));
            }
        }
        Some(begun)
    }

    fn arrival(&self, method: &Method, uri: &axum::http::Uri, headers: &HeaderMap) -> Arrival {
        if !headers.contains_key(FORWARDED) {
            return Arrival::Direct;
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let secret = self.secret.get();
        secret.map_or(Arrival::Unproven, |secret| secret.arrival(headers, (method, path)))
    }

    /// The URL of another member that leads, if one is known.
    pub(super) fn other_leader(&self) -> Option<String> {
        match &*self.leader.role().borrow() {
            Role::Standby { owner: Some(url), .. } if !self.is_self(url) => Some(url.clone()),
            Role::Standby { .. } | Role::Unknown | Role::Leader => None,
        }
    }

    fn is_self(&self, url: &str) -> bool {
        url == self.leader.member().url
    }

    /// Finds a member that can answer a request. Waits for one if there is none.
    pub(super) async fn route<B>(&self, request: Request<B>) -> Result<Routed, Failure>
    where
        B: ClientBody<Error: std::fmt::Display>,
    {
        let (mut parts, body) = request.into_parts();
        let (hops, client) = match self.arrival(&parts.method, &parts.uri, &parts.headers) {
            Arrival::Direct => (0, PeerAddress::of(&parts.extensions)),
            Arrival::Forwarded(hops, client) => (hops, client),
            Arrival::Unproven => {
                let reason = "the header Bursar-Forwarded is not of a member of this cluster: members \
                    must have the same root key file or --cluster-secret-file";
                return Err(self.unavailable(reason));
            }
        };
        parts.headers.remove(FORWARDED);
        if !keeps_its_path(parts.uri.path()) {
            return Err(Failure::not_found("path", parts.uri.path()));
        }
        // The member that answers knows the sender, and may take less.
        refuse_announced(&parts.headers, BodySender::Caller(0))?;
        let Ok(_place) = self.places.try_acquire() else {
            return Err(self.unavailable("too many requests wait for a member that leads"));
        };
        let collected = self.collector.collect(&parts.headers, body).await;
        let mut body = collected.map_err(|cut| Failure::new(Code::MalformedJson, cut.0))?;
        let watch = Stopwatch::start();
        loop {
            let url = match self.owner(HOLD_TIMEOUT.saturating_sub(watch.elapsed())).await {
                Owner::Here(begun) => {
                    let body = body.take().ok_or_else(unknown)?.into_local();
                    return Ok(Routed::Here(Box::new((parts, body, begun))));
                }
                Owner::At(url) if hops < MAX_HOPS => url,
                Owner::At(_) => {
                    return Err(self.unavailable("the members do not agree which one leads"));
                }
                Owner::Nowhere(reason) => return Err(self.unavailable(&reason)),
            };
            let outgoing = body.take().ok_or_else(unknown)?;
            let sent = self.send(&url, &parts, outgoing, (hops + 1, client)).await;
            let may_repeat = body.can_repeat() && watch.elapsed() < HOLD_TIMEOUT;
            match sent {
                Attempt::Answered(answer) => {
                    self.metrics.forwarded("answered");
                    let answer = self.answers.hold(self.sender(&parts, client), answer)?;
                    return Ok(Routed::Answered(answer));
                }
                Attempt::NotSent(error) => {
                    tracing::debug!(url, error, "a member was not reached");
                    self.metrics.forwarded("not_sent");
                    if !may_repeat {
                        return Err(self.unavailable(&format!("{url} was not reached")));
                    }
                }
                Attempt::Unanswered(error) => {
                    tracing::debug!(url, error, "a member did not answer");
                    self.metrics.forwarded("unanswered");
                    if !(may_repeat && is_repeatable(&parts)) {
                        return Err(unknown());
                    }
                }
                Attempt::CutOff(error) => return Err(Failure::new(Code::MalformedJson, error)),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// The sender of a request, whose unread answers count together, and the priority of their room. The member that
    /// answers has checked the key.
    fn sender(&self, parts: &Parts, client: IpAddr) -> (u64, Priority) {
        let number = match parts.headers.get(header::AUTHORIZATION) {
            Some(key) => self.senders.hash_one(key.as_bytes()),
            None => self.senders.hash_one(client),
        };
        let is_read = [Method::GET, Method::HEAD].contains(&parts.method);
        // Zero stands for no sender.
        (number.max(1), if is_read { Priority::Read } else { Priority::Change })
    }

    /// Waits until a member can answer.
    async fn owner(&self, within: Duration) -> Owner {
        let (mut role, mut opened) = (self.leader.role(), self.opened.subscribe());
        let watch = Stopwatch::start();
        loop {
            if let Some(begun) = self.leader.begin().filter(|_| *opened.borrow_and_update()) {
                return Owner::Here(begun);
            }
            let reason = match &*role.borrow_and_update() {
                Role::Standby { owner: Some(url), .. } if !self.is_self(url) => {
                    return Owner::At(url.clone());
                }
                Role::Standby { reason, .. } => reason.clone(),
                Role::Unknown | Role::Leader => "this member is starting".to_owned(),
            };
            // A loss does not go away by itself.
            if watch.elapsed() >= within || self.leader.losses().is_lost() {
                return Owner::Nowhere(reason);
            }
            tokio::select! {
                // Their senders live as long as this member; the pause is for the time after them.
                _ = role.changed() => {}
                _ = opened.changed() => {}
                () = tokio::time::sleep(HOLD_POLL_INTERVAL) => {}
            }
        }
    }

    async fn send<B: ClientBody>(
        &self,
        url: &str,
        parts: &Parts,
        body: Outgoing<B>,
        (hops, client): (u8, IpAddr),
    ) -> Attempt {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let target = match reqwest::Url::parse(&format!("{url}{path}")) {
            Ok(target) => target,
            Err(error) => return Attempt::NotSent(error.to_string()),
        };
        // The path as it will arrive.
        let mut arriving = target.path().to_owned();
        if let Some(query) = target.query() {
            arriving.push('?');
            arriving.push_str(query);
        }
        let mut headers = end_to_end_headers(&parts.headers);
        headers.remove(header::HOST);
        if matches!(body, Outgoing::Whole(_)) {
            headers.remove(header::CONTENT_LENGTH);
        }
        if let Some(secret) = self.secret.get() {
            let sealed = secret.header(hops, client, (&parts.method, &arriving));
            headers.insert(FORWARDED, sealed);
        }
        let request = self.http.request(parts.method.clone(), target).headers(headers);
        let is_cut_off = Arc::new(AtomicBool::new(false));
        let body = body.into_remote(Arc::clone(&is_cut_off));
        let answer = tokio::select! {
            answer = request.body(body).send() => answer,
            () = self.until_moved(url) => {
                return Attempt::Unanswered("another member leads now".to_owned());
            }
        };
        match answer {
            Ok(answer) => Attempt::Answered(self.passed_back(url, answer)),
            Err(_) if is_cut_off.load(Ordering::SeqCst) => {
                Attempt::CutOff("the body of the request is not complete".to_owned())
            }
            Err(error) if error.is_connect() => Attempt::NotSent(error.to_string()),
            Err(error) => Attempt::Unanswered(error.to_string()),
        }
    }

    /// Returns once the member at this URL is known not to lead.
    fn until_moved(&self, url: &str) -> BoxFuture<'static, ()> {
        let (mut role, url) = (self.leader.role(), url.to_owned());
        Box::pin(async move {
            let moved = role.wait_for(|role| match role {
                Role::Leader => true,
                Role::Standby { owner, .. } => owner.as_ref().is_some_and(|owner| *owner != url),
                Role::Unknown => false,
            });
            if moved.await.is_err() {
                // The sender ends with the process.
                std::future::pending::<()>().await;
            }
        })
    }

    /// The answer of another member. A stream breaks off when that member no longer leads: it may be paused.
    fn passed_back(&self, url: &str, answer: reqwest::Response) -> Response {
        let (mut head, body) = axum::http::Response::from(answer).into_parts();
        head.headers = end_to_end_headers(&head.headers);
        head.version = axum::http::Version::default();
        head.extensions.clear();
        if let Ok(owner) = HeaderValue::from_str(url) {
            head.headers.insert(OWNER, owner);
        }
        if head.headers.contains_key(header::CONTENT_LENGTH) || body.is_end_stream() {
            return Response::from_parts(head, Body::new(body));
        }
        let moved = self.until_moved(url);
        let next = async |(mut body, mut moved): (reqwest::Body, BoxFuture<'static, ()>)| {
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame?.map_err(std::io::Error::other),
                () = &mut moved => Err(std::io::Error::other("another member leads now")),
            };
            Some((frame, (body, moved)))
        };
        let frames = futures_util::stream::unfold(Some((body, moved)), move |state| async move {
            let (frame, rest) = next(state?).await?;
            let rest = frame.is_ok().then_some(rest);
            Some((frame, rest))
        });
        let frames: std::pin::Pin<
            Box<dyn futures_util::Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send>,
        > = Box::pin(frames);
        Response::from_parts(head, Body::new(StreamBody::new(frames)))
    }

    fn cannot_serve(&self, reason: &str) -> String {
        if self.leader.losses().is_lost() {
            // Repeating the request does not help.
            return format!("no server of this store serves requests: {reason}");
        }
        format!("this server cannot serve requests now; try again ({reason})")
    }

    /// The failure of a request that no member can answer now.
    pub(super) fn unavailable(&self, reason: &str) -> Failure {
        let owner = self.other_leader();
        let mut failure = Failure::new(Code::Unavailable, self.cannot_serve(reason));
        if let Some(url) = owner.as_deref().and_then(|url| HeaderValue::from_str(url).ok()) {
            failure = failure.with_headers(HeaderMap::from_iter([(OWNER, url)]));
        }
        failure.problem.owner = owner;
        failure
    }
}

/// The failure of a request that was sent, whose answer was lost.
fn unknown() -> Failure {
    let detail =
        "the member that leads did not answer; repeat the request under the same Idempotency-Key";
    Failure::new(Code::OutcomeUnknown, detail)
}
