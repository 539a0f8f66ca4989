//! Extractors of the handlers: the caller, a strict body, strict parameters.

use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use bursar_api::Code;
use bursar_api::json::{self, MAX_BODY};
use bursar_core::ledger::id::Name;
use bursar_core::name::AccountPath;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::auth::Principal;
use crate::change::fingerprint_of;
use crate::net::bodies::{BodySender, MAX_ANONYMOUS_BODY};
use crate::net::serve::PeerAddress;
use crate::request::MinPosition;
use crate::request::meta;
use crate::request::{Caller, Failure};

/// A body larger than [`MAX_BODY`] is read and dropped up to this size, so that the client sees the
/// answer.
const MAX_DRAINED_BYTES: usize = 32 << 20;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Stands for the platform where a tenant is named.
pub(crate) const PLATFORM_TENANT: &str = "*";
const TENANT: HeaderName = HeaderName::from_static("bursar-tenant");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Failure> {
        let principal = parts.extensions.get::<Principal>().cloned();
        let principal = principal
            .ok_or_else(|| Failure::new(Code::Unauthenticated, "send a key as a bearer token"))?;
        Caller::of(principal, parts)
    }
}

impl Caller {
    /// The caller of an authenticated request.
    pub(crate) fn of(principal: Principal, parts: &Parts) -> Result<Caller, Failure> {
        Ok(Caller {
            principal,
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            idempotency_key: idempotency_key(&parts.headers)?,
            tenant: tenant(&parts.headers)?,
            request: meta::request(),
            dry_run: false,
        })
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<Name>, Failure> {
    const NAME: &str = "Idempotency-Key";
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or("");
    if values.next().is_some() || !is_idempotency_key(text) {
        return Err(Failure::invalid(NAME, "must be one value of 1 to 255 visible characters"));
    }
    Ok(Some(text.into()))
}

/// Whether a text may be an idempotency key.
pub(crate) fn is_idempotency_key(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn tenant(headers: &HeaderMap) -> Result<Option<AccountPath>, Failure> {
    const NAME: &str = "Bursar-Tenant";
    let mut values = headers.get_all(TENANT).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or("");
    let is_valid = text == PLATFORM_TENANT || AccountPath::is_tenant(text);
    if values.next().is_some() || !is_valid {
        let reason =
            "must be one value: the first segment of an account path, or * for the platform";
        return Err(Failure::invalid(NAME, reason));
    }
    Ok(Some(text.into()))
}

/// The event after which a stream goes on.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let mut values = headers.get_all(LAST_EVENT_ID).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    let reason = "must be one value: the id of the last event that came";
    text.map(Some).ok_or_else(|| Failure::invalid("Last-Event-ID", reason))
}

/// A strictly parsed body, not yet converted.
pub(crate) struct Tree(pub Value);

impl<S: Send + Sync> FromRequest<S> for Tree {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Tree, Failure> {
        let (parts, body) = request.into_parts();
        Ok(Tree(json::parse(&receive(&parts, body).await?)?))
    }
}

/// A body as raw bytes.
pub(crate) struct RawBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<RawBody, Failure> {
        let (parts, body) = request.into_parts();
        receive(&parts, body).await.map(RawBody)
    }
}

/// A parsed body, and the fingerprint of its request.
pub(crate) struct ParsedBody<T> {
    pub(crate) value: T,
    pub(crate) fingerprint: u128,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for ParsedBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<ParsedBody<T>, Failure> {
        let (parts, body) = request.into_parts();
        ParsedBody::read(&parts, &receive(&parts, body).await?)
    }
}

impl<T: DeserializeOwned> ParsedBody<T> {
    /// Parses a received body.
    pub(crate) fn read(parts: &Parts, body: &[u8]) -> Result<ParsedBody<T>, Failure> {
        let fingerprint =
            |canonical: &[u8]| fingerprint_of(parts.method.as_str(), parts.uri.path(), canonical);
        let tree = json::parse(body)?;
        let mut canonical = Vec::with_capacity(body.len() + 16);
        json::canonical(&tree, &mut canonical);
        Ok(ParsedBody { value: json::convert(tree)?, fingerprint: fingerprint(&canonical) })
    }
}

/// Receives the whole body of a request.
pub(crate) async fn receive<B>(parts: &Parts, body: B) -> Result<Bytes, Failure>
where
    B: HttpBody<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let sender = match meta::sender() {
        0 => BodySender::Address(PeerAddress::of(&parts.extensions)),
        number => BodySender::Caller(number),
    };
    refuse_announced(&parts.headers, sender)?;
    let bytes = match tokio::time::timeout(meta::body_timeout(), read_all(body, sender)).await {
        Ok(bytes) => bytes?,
        Err(_) => {
            return Err(Failure::new(Code::MalformedJson, "the body did not arrive in time"));
        }
    };
    let unsupported = |detail: &str| Err(Failure::new(Code::UnsupportedMediaType, detail));
    if bytes.is_empty() {
        Ok(bytes)
    } else if !all(&parts.headers, header::CONTENT_TYPE, "application/json") {
        unsupported("send the body as `Content-Type: application/json`")
    } else if !all(&parts.headers, header::CONTENT_ENCODING, "identity") {
        unsupported("send the body as it is, without `Content-Encoding`")
    } else {
        Ok(bytes)
    }
}

/// The largest body of a sender.
fn most_of(sender: BodySender) -> usize {
    match sender {
        BodySender::Caller(_) => MAX_BODY,
        BodySender::Address(_) => MAX_ANONYMOUS_BODY,
    }
}

fn too_large(most: usize) -> Failure {
    let detail = format!("this body has at most {most} bytes; split the request");
    Failure::new(Code::BodyTooLarge, detail)
}

/// Refuses a body that is announced as too large by a client that waits for `100 Continue`: it has
/// not sent it yet, and need not.
pub(super) fn refuse_announced(headers: &HeaderMap, sender: BodySender) -> Result<(), Failure> {
    let waits = headers
        .get(header::EXPECT)
        .is_some_and(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length = length.and_then(|length| length.parse::<u64>().ok()).unwrap_or(0);
    let most = most_of(sender);
    if waits && length > most as u64 { Err(too_large(most)) } else { Ok(()) }
}

/// Whether every value of a header is this one, without regard to case and parameters. An absent
/// header matches: a body without a type is read as JSON.
fn all(headers: &HeaderMap, name: HeaderName, expected: &str) -> bool {
    headers.get_all(name).iter().all(|value| {
        let kind = value.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
        kind.eq_ignore_ascii_case(expected)
    })
}

/// Reads a body. One that is not there at once takes a place among the incomplete ones.
async fn read_all<B>(mut body: B, sender: BodySender) -> Result<Bytes, Failure>
where
    B: HttpBody<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let most = most_of(sender);
    let bodies = meta::bodies();
    let mut incomplete = None;
    // Most bodies arrive in one piece, which is not copied.
    let (mut whole, mut pieces) = (Bytes::new(), Vec::new());
    let mut seen = 0;
    loop {
        let frame = match (body.frame().now_or_never(), &bodies) {
            (Some(frame), _) => frame,
            (None, Some(bodies)) if incomplete.is_none() => {
                let bytes = if seen > most { 0 } else { seen };
                incomplete = Some(bodies.wait(sender, meta::priority(), bytes)?);
                body.frame().await
            }
            (None, _) => body.frame().await,
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| Failure::new(Code::MalformedJson, error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen > most {
            (whole, pieces) = (Bytes::new(), Vec::new());
        } else {
            if let Some(incomplete) = &mut incomplete {
                incomplete.grow(data.len())?;
            }
            if seen == data.len() {
                whole = data;
            } else {
                pieces.extend_from_slice(&std::mem::take(&mut whole));
                pieces.extend_from_slice(&data);
            }
        }
        if seen > MAX_DRAINED_BYTES {
            break;
        }
    }
    if seen > most {
        return Err(too_large(most));
    }
    Ok(if pieces.is_empty() { whole } else { pieces.into() })
}

/// Parameters of the path. A value that is not valid UTF-8 is not found.
pub(crate) struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Failure> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(read)) => Ok(Path(read)),
            Err(_) => Err(Failure::not_found("path", parts.uri.path())),
        }
    }
}

/// Parameters of the query, parsed strictly.
pub(crate) struct Params<T>(pub T);

/// Parameters that every read accepts; the handlers do not see them.
const COMMON: [&str; 1] = ["min_position"];

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Params<T>, Failure> {
        Params::of(parts)
    }
}

impl<T: DeserializeOwned> Params<T> {
    /// Parses the parameters of a request.
    pub(crate) fn of(parts: &Parts) -> Result<Params<T>, Failure> {
        query(parts.uri.query().unwrap_or("")).map(Params)
    }
}

fn query<T: DeserializeOwned>(query: &str) -> Result<T, Failure> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query)
        .map_err(|error| Failure::invalid("query", error.to_string()))?;
    let mut seen: Vec<&str> = Vec::new();
    for (name, _) in &pairs {
        if seen.contains(&name.as_str()) {
            return Err(Failure::invalid(name.clone(), "appears twice"));
        }
        seen.push(name);
    }
    let own: Vec<&(String, String)> =
        pairs.iter().filter(|(name, _)| !COMMON.contains(&name.as_str())).collect();
    let text = serde_urlencoded::to_string(&own)
        .map_err(|error| Failure::invalid("query", error.to_string()))?;
    let reader = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        let named = reason.split('`').nth(1).filter(|_| {
            ["unknown field", "missing field"].iter().any(|start| reason.starts_with(start))
        });
        Failure::invalid(named.map_or(path, str::to_owned), json::plain_reason(&reason))
    })
}

/// The position that a read waits for.
pub(crate) fn min_position(query: Option<&str>) -> Result<Option<MinPosition>, Failure> {
    let pairs = form_urlencoded::parse(query.unwrap_or("").as_bytes());
    let mut found = None;
    for (name, value) in pairs {
        if name == "min_position" {
            let position = MinPosition::read(&value).ok_or_else(|| {
                Failure::invalid("min_position", "must be a position that an answer carried")
            })?;
            found = Some(position);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_api::credits::hold::HoldFilter;

    fn field(text: &str) -> Option<String> {
        query::<HoldFilter>(text).err().and_then(|failure| failure.problem.param)
    }

    #[test]
    fn parameters_are_strict_and_name_what_is_wrong() {
        let read = query::<HoldFilter>("account=a%3Ab&state=open&limit=5&min_position=7");
        let read = read.expect("all known");
        assert_eq!((read.account.as_deref(), read.limit), (Some("a:b"), Some(5)));
        assert_eq!(field("colour=red").as_deref(), Some("colour"));
        assert_eq!(field("limit=x").as_deref(), Some("limit"));
        assert_eq!(field("state=ajar").as_deref(), Some("state"));
        assert_eq!(field("limit=1&limit=2").as_deref(), Some("limit"));
    }
}
