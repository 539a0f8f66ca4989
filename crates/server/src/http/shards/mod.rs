//! Requests to a store with several ledger shards. A request runs in the shard of its tenant. A request that is sent
//! with a key of the platform and names no tenant runs in every shard, and the answers are merged.

mod batches;
mod lists;
mod route;
mod streams;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bursar_api::Code;
use bursar_core::directory::{Command, Reply};
use bursar_core::ledger::{Envelope, Ledger};
use bursar_core::name::AccountPath;
use serde_json::Value;
use tower::Service;

use super::extract::receive;
use super::handlers::accounts::plan_open;
use super::respond::POSITION;
use crate::app::App;
use crate::auth::Principal;
use crate::machines::ledgers::ledger_name;
use crate::net::serve::PeerAddress;
use crate::operations::Operation;
use crate::request::{Failure, MinPosition, meta};
pub(super) use batches::HomesOfParts;
use route::{Collection, InBody, RequestParts, ShardRoute, route};

/// The most bytes of an answer that is merged with others.
const MAX_MERGED: usize = 64 << 20;

/// The handlers of every shard.
pub(super) struct ShardedHandlers {
    app: Arc<App>,
    /// The handlers in each shard, by number.
    routers: Vec<Router>,
    /// The number of orgs of the first shard that the directory does not know.
    unassigned: tokio::sync::OnceCell<u64>,
}

/// The answer of a shard.
struct ShardAnswer {
    shard: u16,
    response: Response,
}

impl ShardedHandlers {
    /// The handlers of every shard, if there are several.
    pub(super) fn new(
        app: &Arc<App>,
        router: fn(Arc<App>) -> Router,
    ) -> Option<Arc<ShardedHandlers>> {
        let routers: Vec<Router> = app.every_shard().map(|app| router(Arc::new(app))).collect();
        let unassigned = tokio::sync::OnceCell::new();
        (routers.len() > 1)
            .then(|| Arc::new(ShardedHandlers { app: Arc::clone(app), routers, unassigned }))
    }

    /// The shard of a tenant.
    fn home(&self, tenant: &str) -> Result<u16, Failure> {
        Ok(self.app.at_home(tenant)?.shard)
    }

    /// Answers an authenticated request in its shard.
    pub(super) async fn answer(&self, request: Request) -> Result<Response, Failure> {
        let answer = self.answered(request).await;
        if answer.as_ref().is_ok_and(|response| response.status().is_success()) {
            // Some shards may have refused what another has.
            meta::forget_problem();
        }
        answer
    }

    async fn answered(&self, request: Request) -> Result<Response, Failure> {
        let principal = request.extensions().get::<Principal>().cloned();
        let principal = principal
            .ok_or_else(|| Failure::new(Code::Unauthenticated, "send a key as a bearer token"))?;
        if let Some(tenant) = principal.tenant() {
            let shard = self.home(tenant)?;
            let (parts, body) = request.into_parts();
            return Ok(self.pass(shard, copied(&parts, body)).await.stamped());
        }
        let route = route(request.method(), request.uri(), request.headers())?;
        let asks_all = matches!(
            route,
            ShardRoute::List | ShardRoute::Top | ShardRoute::Search | ShardRoute::Events
        ) || matches!(
            (&route, request.method()),
            (ShardRoute::Named(..), &Method::GET | &Method::HEAD)
        );
        if asks_all && matches!(meta::min_position(), Some(MinPosition::Home(_))) {
            let reason = "this request is asked of several shards: pass the whole `Bursar-Position` of an earlier \
                          answer, such as ledger-0:5,ledger-1:9, or name the tenant";
            return Err(Failure::invalid("min_position", reason));
        }
        let (parts, body) = request.into_parts();
        match route {
            ShardRoute::First => Ok(self.pass(0, copied(&parts, body)).await.stamped()),
            ShardRoute::Shard(shard) => {
                let shard = shard.filter(|shard| usize::from(*shard) < self.routers.len());
                let named = || route::parameter(&parts.uri, "machine").unwrap_or_default();
                let shard = shard.ok_or_else(|| Failure::not_found("machine", &named()))?;
                Ok(self.pass(shard, copied(&parts, body)).await.stamped())
            }
            ShardRoute::Tenant(tenant) => {
                let shard = self.home(&tenant)?;
                Ok(self.pass(shard, copied(&parts, body)).await.stamped())
            }
            ShardRoute::Named(of, id)
                if parts.method == Method::GET || parts.method == Method::HEAD =>
            {
                self.look_up(&parts, of, &id).await
            }
            ShardRoute::Named(of, id) => {
                let shard = self.only_one_with(of, &id).await?;
                Ok(self.pass(shard, copied(&parts, body)).await.stamped())
            }
            ShardRoute::List => self.list(&parts).await,
            ShardRoute::Top => self.top(&parts).await,
            ShardRoute::Search => self.search(&parts).await,
            ShardRoute::Events => self.events(&parts).await,
            ShardRoute::Body(find) => {
                let body = receive(&parts, body).await?;
                if find == InBody::Rehearsed && route::is_report(&body) {
                    return self.batch(&parts, body, RequestParts::RehearsedRecords).await;
                }
                let shard = match find.find(&body) {
                    // The handler says what is wrong with the body.
                    route::BodySubject::Nothing => 0,
                    route::BodySubject::Tenant(tenant) => self.home(&tenant)?,
                    route::BodySubject::NewOrg(org) if find == InBody::Rehearsed => {
                        self.home(&org)?
                    }
                    route::BodySubject::NewOrg(_) if !self.can_open_with(&body) => 0,
                    route::BodySubject::NewOrg(org) => self.place(Some(&principal), &org).await?,
                    route::BodySubject::Named(of, id) => self.only_one_with(of, &id).await?,
                };
                Ok(self.pass(shard, copied(&parts, body.into())).await.stamped())
            }
            ShardRoute::Batch(parted) => {
                let body = receive(&parts, body).await?;
                self.batch(&parts, body, parted).await
            }
        }
    }

    /// Runs a request in a shard.
    async fn pass(&self, shard: u16, request: Request) -> ShardAnswer {
        let mut router = self.routers[usize::from(shard)].clone();
        let response = router.call(request).await;
        ShardAnswer { shard, response: response.unwrap_or_else(|never| match never {}) }
    }

    /// Sends a request without a body to a shard.
    async fn get(&self, shard: u16, parts: &axum::http::request::Parts, uri: Uri) -> ShardAnswer {
        let mut request = copied(parts, Body::empty());
        *request.uri_mut() = uri;
        *request.method_mut() = Method::GET;
        self.pass(shard, request).await
    }

    /// The shards, by number.
    fn numbers(&self) -> impl Iterator<Item = u16> + use<> {
        (0u16..).take(self.routers.len())
    }

    /// The answer of the only shard that knows an id. If several do, the request is ambiguous.
    async fn look_up(
        &self,
        parts: &axum::http::request::Parts,
        of: Collection,
        id: &str,
    ) -> Result<Response, Failure> {
        let (mut found, mut missing) = (Vec::new(), None);
        for shard in self.numbers() {
            let part = self.get(shard, parts, parts.uri.clone()).await;
            match part.response.status() {
                StatusCode::NOT_FOUND => missing = Some(part),
                // One that does not answer may have it.
                status if status.is_server_error() => return Ok(part.response),
                _ => found.push(part),
            }
        }
        let is_there = |part: &ShardAnswer| {
            let status = part.response.status();
            status.is_success() || status == StatusCode::CONFLICT
        };
        let there = found.iter().filter(|part| is_there(part)).count();
        if there > 1 {
            return Err(ambiguous(of, id));
        }
        // Without one that has it, what one refuses all refuse.
        let chosen = found.iter().position(is_there).unwrap_or(0);
        let answer = (chosen < found.len()).then(|| found.swap_remove(chosen)).or(missing);
        answer.map(ShardAnswer::stamped).ok_or_else(|| Failure::not_found("path", id))
    }

    /// The only shard that knows an id; the first one if none does.
    async fn only_one_with(&self, of: Collection, id: &str) -> Result<u16, Failure> {
        let found = self.all_with(of, id).await?;
        match found.as_slice() {
            [] => Ok(0),
            [shard] => Ok(*shard),
            _ => Err(ambiguous(of, id)),
        }
    }

    /// The shards that know an id.
    async fn all_with(&self, of: Collection, id: &str) -> Result<Vec<u16>, Failure> {
        let mut found = Vec::new();
        let Ok(uri) = Uri::try_from(format!("/v1/{}/{id}", of.path())) else { return Ok(found) };
        for shard in self.numbers() {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = uri.clone();
            // Only whether there is something is of use: what the caller may do is decided there.
            request.extensions_mut().insert(Principal::root());
            match self.pass(shard, request).await.response.status() {
                StatusCode::NOT_FOUND => {}
                status if status.is_server_error() => {
                    let detail = format!("{} does not answer; try again", ledger_name(shard));
                    return Err(Failure::new(Code::Unavailable, detail));
                }
                _ => found.push(shard),
            }
        }
        Ok(found)
    }

    /// Whether an account can be opened with this body, as far as the handler can tell.
    fn can_open(&self, body: &Value) -> bool {
        plan_open(&self.app, body.clone()).is_ok()
    }

    fn can_open_with(&self, body: &[u8]) -> bool {
        bursar_api::json::parse(body).is_ok_and(|body| self.can_open(&body))
    }

    /// The shard of an org that is opened: its own, or the open shard with the fewest orgs.
    async fn place(&self, principal: Option<&Principal>, org: &str) -> Result<u16, Failure> {
        let known = self.app.directory.current().assigned_shard(org);
        let may_open =
            principal.is_some_and(|caller| caller.require(Operation::OpenAccount).is_ok());
        // The handler refuses a caller that may not.
        if let Some(shard) = known.or((!may_open).then_some(0)) {
            return Ok(shard);
        }
        let first = &self.app.ledgers[0].gateway;
        let wanted = AccountPath::from(org);
        let is_there = move |ledger: &Ledger| ledger.find_account(&wanted).is_some();
        if first.read(is_there).await?.value {
            // It was opened before orgs were assigned.
            return Ok(0);
        }
        let unassigned = self.unassigned.get_or_try_init(|| self.count_unassigned()).await?;
        let envelope = Envelope { actor: "shards".into(), ..Envelope::default() };
        let command = Command::PlaceOrg { org: org.into(), unassigned: *unassigned };
        match self.app.directory.submit(envelope, command).await?.reply {
            Reply::Shard { shard, .. } => Ok(shard),
            Reply::Done | Reply::Key { .. } | Reply::Price { .. } | Reply::Clock { .. } => {
                Err(Failure::new(Code::Internal, "the directory did not answer with a shard"))
            }
        }
    }

    async fn count_unassigned(&self) -> Result<u64, Failure> {
        let directory = self.app.directory.current();
        let count = move |ledger: &Ledger| {
            let paths = ledger.tenants().map(|tenant| &ledger.account(tenant).path);
            paths.filter(|path| directory.assigned_shard(path).is_none()).count()
        };
        let count = self.app.ledgers[0].gateway.read(count).await?.value;
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

impl ShardAnswer {
    /// The answer with the name of the ledger before its position.
    fn stamped(mut self) -> Response {
        let number = self.response.headers().get(POSITION).and_then(|value| value.to_str().ok());
        let number = number.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let stamped = number.map(|number| format!("{}:{number}", ledger_name(self.shard)));
        if let Some(value) = stamped.and_then(|text| HeaderValue::from_str(&text).ok()) {
            self.response.headers_mut().insert(POSITION, value);
        }
        self.response
    }

    /// The JSON of a successful answer; any other answer as it is.
    async fn json(self) -> Result<Value, Response> {
        if self.response.status() != StatusCode::OK {
            return Err(self.stamped());
        }
        let unread = |error: String| Failure::new(Code::Unavailable, error).into_response();
        let bytes = to_bytes(self.response.into_body(), MAX_MERGED).await;
        let bytes: Bytes = bytes.map_err(|error| unread(error.to_string()))?;
        serde_json::from_slice(&bytes).map_err(|error| unread(error.to_string()))
    }
}

/// A copy of a request for handlers, without the path that the router matched.
fn copied(parts: &axum::http::request::Parts, body: Body) -> Request {
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.headers_mut() = parts.headers.clone();
    let extensions = request.extensions_mut();
    if let Some(principal) = parts.extensions.get::<Principal>() {
        extensions.insert(principal.clone());
    }
    if let Some(peer) = parts.extensions.get::<PeerAddress>() {
        extensions.insert(*peer);
    }
    request
}

fn ambiguous(of: Collection, id: &str) -> Failure {
    let detail = format!(
        "`{id}` exists in several tenants ({}); repeat with the header Bursar-Tenant",
        of.path()
    );
    Failure::new(Code::AmbiguousId, detail)
}

/// Runs an authenticated request in its shard.
pub(super) async fn at_home(
    State(shards): State<Arc<ShardedHandlers>>,
    request: Request,
    _: Next,
) -> Result<Response, Failure> {
    shards.answer(request).await
}
