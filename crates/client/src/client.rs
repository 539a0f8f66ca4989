//! Sends calls, retries them, reads answers and problems.

use std::fmt;
use std::time::Duration;

use bursar_api::{List, Problem};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Certificate, Request, StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::call::{Call, Method};
use crate::error::ClientError;
use crate::retry::{RetryPolicy, random};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read by default.
const MAX_ANSWER_BYTES: usize = 256 << 20;
/// The largest error answer that is read.
const MAX_PROBLEM_BYTES: usize = 1 << 20;
/// How much of an unexpected body is shown.
const EXCERPT: usize = 200;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiAnswer<T> {
    /// The parsed body.
    pub value: T,
    /// The body as received.
    pub body: String,
    /// The HTTP status.
    pub status: u16,
    /// Whether the server replayed the answer to an earlier request with the same key.
    pub replayed: bool,
}

/// A connection to a server, with a key. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    server: Url,
    headers: HeaderMap,
    retry: RetryPolicy,
    answer_limit: usize,
}

/// Configures a [`Client`].
#[derive(Clone)]
pub struct ClientBuilder {
    server: String,
    key: Option<String>,
    tenant: Option<String>,
    trace: Option<String>,
    authority: Option<Vec<u8>>,
    timeout: Duration,
    retry: RetryPolicy,
    answer_limit: usize,
}

impl Client {
    /// A client of the server at this address, with this key.
    pub fn new(server: &str, key: &str) -> Result<Client, ClientError> {
        Client::builder(server).key(key).build()
    }

    /// A builder of a client of the server at this address.
    pub fn builder(server: &str) -> ClientBuilder {
        ClientBuilder {
            server: server.to_owned(),
            key: None,
            tenant: None,
            trace: None,
            authority: None,
            timeout: TIMEOUT,
            retry: RetryPolicy::default(),
            answer_limit: MAX_ANSWER_BYTES,
        }
    }

    /// The address of the server.
    pub fn server(&self) -> &str {
        self.server.as_str().trim_end_matches('/')
    }

    /// Whether requests, including the key, are sent unencrypted to another machine.
    pub fn is_exposed(&self) -> bool {
        self.server.scheme() == "http" && !is_loopback(&self.server)
    }

    pub(crate) fn retry(&self) -> &RetryPolicy {
        &self.retry
    }

    /// Sends a call and reads its answer. Retries it, under the same idempotency key, while the
    /// server cannot be reached or asks for a retry, as often as the [`RetryPolicy`] allows.
    pub async fn send<T: DeserializeOwned>(
        &self,
        call: Call<T>,
    ) -> Result<ApiAnswer<T>, ClientError> {
        let request = self.request(call)?;
        let mut failures = 0;
        loop {
            let copy = request.try_clone().expect("a body of text can be sent again");
            let trouble = match self.exchange(copy).await {
                Ok(answer) => return self.read(answer),
                Err(trouble) => trouble,
            };
            failures += 1;
            let pause = self.retry.pause(failures, trouble.asked, random());
            match pause.filter(|_| trouble.may_pass) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(trouble.error),
            }
        }
    }

    /// Fetches every page of a list.
    pub async fn send_all<T: DeserializeOwned>(
        &self,
        call: Call<List<T>>,
    ) -> Result<Vec<T>, ClientError> {
        let mut all = Vec::new();
        let mut page = call.clone();
        loop {
            let list = self.send(page).await?.value;
            all.extend(list.data);
            match list.next_cursor {
                Some(cursor) if list.has_more => page = call.clone().with_cursor(&cursor),
                Some(_) | None => return Ok(all),
            }
        }
    }

    /// The HTTP request of a call, with its headers.
    pub(crate) fn request<T>(&self, call: Call<T>) -> Result<Request, ClientError> {
        let mut request = Request::new(method(call.method), self.address(&call)?);
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        if call.method.changes() {
            let key = call.idempotency_key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
            let value = HeaderValue::from_str(&key).map_err(|_| {
                ClientError::Unusable("an idempotency key has only visible characters".into())
            })?;
            headers.insert("idempotency-key", value);
        }
        if let Some(body) = call.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.into());
        }
        if let Some(timeout) = call.timeout {
            *request.timeout_mut() = Some(timeout);
        }
        Ok(request)
    }

    fn address<T>(&self, call: &Call<T>) -> Result<Url, ClientError> {
        let wanted = format!("{}{}", self.server.path().trim_end_matches('/'), call.path);
        let text = format!("{}{}", self.server(), call.target());
        // Names such as `..` are valid ids but not valid path segments: the URL would name
        // another resource.
        match Url::parse(&text) {
            Ok(url) if url.path() == wanted => Ok(url),
            Ok(_) | Err(_) => {
                let reason = format!("`{}` cannot be asked for: not a usable path", call.path);
                Err(ClientError::Unusable(reason))
            }
        }
    }

    async fn exchange(&self, request: Request) -> Result<Received, FailedAttempt> {
        let response = self.execute(request).await?;
        let status = response.status().as_u16();
        let replayed = response.headers().contains_key("idempotent-replayed");
        let body = self.body(response, self.answer_limit).await?;
        Ok(Received { status, body, replayed })
    }

    /// Sends a request once; answers other than 2xx are errors.
    pub(crate) async fn execute(
        &self,
        request: Request,
    ) -> Result<reqwest::Response, FailedAttempt> {
        let response = self.http.execute(request).await.map_err(|error| self.lost(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let may_pass =
            matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let asked = retry_after(response.headers());
        let body = self.body(response, MAX_PROBLEM_BYTES).await?;
        Err(FailedAttempt { error: self.refusal(status.as_u16(), &body), may_pass, asked })
    }

    /// The body of an answer. Reading stops at the limit, whatever the length of the
    /// body.
    async fn body(
        &self,
        mut response: reqwest::Response,
        limit: usize,
    ) -> Result<String, FailedAttempt> {
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.lost(&error))? {
            if body.len() + piece.len() > limit {
                let error = self.unexpected(status, &format!("more than {limit} bytes"));
                return Err(FailedAttempt { error, may_pass: false, asked: None });
            }
            body.extend_from_slice(&piece);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn lost(&self, error: &reqwest::Error) -> FailedAttempt {
        let server = self.server().to_owned();
        match certificate_error(error) {
            Some(cause) => {
                let error = ClientError::Untrusted { server, cause };
                FailedAttempt { error, may_pass: false, asked: None }
            }
            None => {
                let error = ClientError::Unreachable { server, cause: first_cause(error) };
                FailedAttempt { error, may_pass: true, asked: None }
            }
        }
    }

    fn refusal(&self, status: u16, body: &str) -> ClientError {
        match serde_json::from_str::<Problem>(body) {
            Ok(problem) => ClientError::Problem(Box::new(problem)),
            Err(_) => self.unexpected(status, body),
        }
    }

    fn read<T: DeserializeOwned>(&self, received: Received) -> Result<ApiAnswer<T>, ClientError> {
        let Received { status, body, replayed } = received;
        let text = if body.is_empty() { "null" } else { &body };
        match serde_json::from_str(text) {
            Ok(value) => Ok(ApiAnswer { value, body, status, replayed }),
            Err(error) => Err(self.unexpected(status, &format!("{error} in {body}"))),
        }
    }

    fn unexpected(&self, status: u16, what: &str) -> ClientError {
        let excerpt: String = what.chars().take(EXCERPT).collect();
        ClientError::Unexpected { server: self.server().to_owned(), status, excerpt }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.server())
    }
}

/// A complete answer.
struct Received {
    status: u16,
    body: String,
    replayed: bool,
}

/// A failed attempt to send a request.
pub(crate) struct FailedAttempt {
    /// The error for the caller.
    pub(crate) error: ClientError,
    /// Whether a retry may succeed.
    pub(crate) may_pass: bool,
    /// The pause that the server requested.
    pub(crate) asked: Option<Duration>,
}

impl ClientBuilder {
    /// Sets the API key.
    pub fn key(mut self, key: &str) -> ClientBuilder {
        self.key = Some(key.to_owned());
        self
    }

    /// Sets the tenant whose ids are meant.
    pub fn tenant(mut self, tenant: &str) -> ClientBuilder {
        self.tenant = Some(tenant.to_owned());
        self
    }

    /// Makes every request a part of this trace: a `traceparent` of W3C Trace Context.
    pub fn traceparent(mut self, trace: &str) -> ClientBuilder {
        self.trace = Some(trace.to_owned());
        self
    }

    /// Also trusts servers whose certificates this authority (PEM) has signed.
    pub fn authority(mut self, pem: Vec<u8>) -> ClientBuilder {
        self.authority = Some(pem);
        self
    }

    /// How long an answer may take.
    pub fn timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeout = timeout;
        self
    }

    /// The largest answer that is read, in bytes; a larger one is an error.
    pub fn answer_limit(mut self, bytes: usize) -> ClientBuilder {
        self.answer_limit = bytes;
        self
    }

    /// Sets when to retry.
    pub fn retry(mut self, retry: RetryPolicy) -> ClientBuilder {
        self.retry = retry;
        self
    }

    /// Builds the client. Fails if the address, the key or the tenant is not valid.
    pub fn build(self) -> Result<Client, ClientError> {
        let unusable = |reason: String| Err(ClientError::Unusable(reason));
        let server = match Url::parse(&self.server) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
            Ok(_) | Err(_) => {
                let given = &self.server;
                let reason = format!("`{given}` is no address such as http://127.0.0.1:7070");
                return unusable(reason);
            }
        };
        if server.query().is_some() || server.fragment().is_some() {
            return unusable(format!("`{}` must not have a query or fragment", self.server));
        }
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.key {
            let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {key}")) else {
                return unusable("the key has characters that no key has".into());
            };
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(tenant) = &self.tenant {
            let Ok(value) = HeaderValue::from_str(tenant) else {
                return unusable("the tenant has characters that no tenant has".into());
            };
            headers.insert("bursar-tenant", value);
        }
        // A trace that cannot be sent is no reason not to make the request.
        if let Some(value) = self.trace.and_then(|trace| HeaderValue::from_str(&trace).ok()) {
            headers.insert("traceparent", value);
        }
        let http = transport(&server, self.authority.as_deref(), self.timeout)?;
        Ok(Client { http, server, headers, retry: self.retry, answer_limit: self.answer_limit })
    }
}

fn transport(
    server: &Url,
    authority: Option<&[u8]>,
    timeout: Duration,
) -> Result<reqwest::Client, ClientError> {
    // Fails if a provider is installed already, which serves as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("bursar/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none());
    if is_loopback(server) {
        builder = builder.no_proxy();
    }
    if let Some(pem) = authority {
        let certificates = Certificate::from_pem_bundle(pem).map_err(setup)?;
        builder = builder.tls_certs_merge(certificates);
    } else if server.scheme() == "http" {
        // No certificate is checked over plain HTTP, so a machine without any can use it.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(setup)
}

fn setup(error: reqwest::Error) -> ClientError {
    ClientError::Unusable(format!("cannot set up HTTPS: {}", first_cause(&error)))
}

/// Whether the server is on this machine.
fn is_loopback(server: &Url) -> bool {
    let host = server.host_str().unwrap_or("").trim_matches(['[', ']']);
    let address: Option<std::net::IpAddr> = host.parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

fn method(method: Method) -> reqwest::Method {
    match method {
        Method::Get => reqwest::Method::GET,
        Method::Post => reqwest::Method::POST,
        Method::Put => reqwest::Method::PUT,
        Method::Patch => reqwest::Method::PATCH,
        Method::Delete => reqwest::Method::DELETE,
    }
}

/// The pause of the `Retry-After` header. Bursar sends whole seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// What is wrong with the server's certificate, if that is the cause.
fn certificate_error(error: &reqwest::Error) -> Option<String> {
    match tls_error(error)? {
        rustls::Error::InvalidCertificate(reason) => Some(reason.to_string()),
        _ => None,
    }
}

fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    // `source` of an I/O error skips the error that it wraps.
    let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    match wrapped {
        Some(wrapped) => tls_error(wrapped),
        None => tls_error(error.source()?),
    }
}

/// The first cause of an error, such as `Connection refused`. What stands before it in the chain says how
/// this program is made.
fn first_cause(error: &dyn std::error::Error) -> String {
    let mut first = error;
    while let Some(cause) = first.source() {
        first = cause;
    }
    first.to_string()
}
