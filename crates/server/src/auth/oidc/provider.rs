//! The identity provider: its description, its keys, and its tokens.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

use super::ticket::{Ticket, TicketKey};
use super::{OidcOptions, Person, SignInError};
use crate::auth::sessions::failures::network;
use crate::telemetry::monotonic::Stopwatch;

/// How long a request to the provider may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the description and the keys are used before they are read again.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// The largest answer of the provider that is read.
const MAX_ANSWER: usize = 1 << 20;
/// The most sign-ins that wait for the provider at once.
const MAX_EXCHANGES: usize = 16;
/// The most of them from one address. Anyone can begin to sign in, so no address takes all places.
const MAX_OF_ADDRESS: usize = 8;
/// The most keys of a provider that are considered.
const MAX_KEYS: usize = 100;

/// The signatures that are accepted. None of them is made with a shared secret.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The description of a provider, as far as it is used.
#[derive(Clone, Debug, Deserialize)]
struct Description {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    end_session_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
    #[serde(default)]
    access_token: Option<String>,
}

/// What was read of the provider, and when.
struct ProviderState {
    description: Description,
    keys: Vec<Value>,
    since: Stopwatch,
}

#[derive(Default)]
struct ProviderCache {
    known: Option<Arc<ProviderState>>,
    /// Why the last read failed.
    failure: Option<SignInError>,
}

/// How many requests of each address wait for the provider.
#[derive(Default)]
struct AddressCounts(std::sync::Mutex<HashMap<IpAddr, usize>>);

impl AddressCounts {
    fn enter(&self, address: IpAddr) -> Option<AddressPlace<'_>> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= MAX_OF_ADDRESS {
            return None;
        }
        *count += 1;
        Some(AddressPlace { counts: self, address })
    }
}

/// The place of a request among those of its address.
struct AddressPlace<'a> {
    counts: &'a AddressCounts,
    address: IpAddr,
}

impl Drop for AddressPlace<'_> {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// The place of a request that waits for the provider.
struct ExchangePlace<'a> {
    _place: SemaphorePermit<'a>,
    _of_address: AddressPlace<'a>,
}

/// An identity provider.
pub struct Provider {
    options: OidcOptions,
    secret: Option<String>,
    redirect_uri: String,
    http: Client,
    knowledge: Mutex<ProviderCache>,
    /// How often its description or keys could not be read.
    failed_reads: AtomicU64,
    /// Places of requests that wait for the provider.
    places: Semaphore,
    /// How many of them each address has.
    of_addresses: AddressCounts,
    /// Seals sign-ins that are under way.
    pub(crate) tickets: TicketKey,
}

/// Whether a URL is encrypted, or leads to this machine.
pub(super) fn is_safe_url(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let host = url.host_str().unwrap_or("").trim_matches(['[', ']']);
    let is_loopback =
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback)
}

fn fault(reason: impl ToString) -> SignInError {
    SignInError::Provider(reason.to_string())
}

impl Provider {
    /// Creates the provider of a server with this URL. Nothing is read before the first sign-in.
    ///
    /// # Errors
    /// If the file with the secret cannot be read.
    pub fn new(options: OidcOptions, base_url: &str) -> std::io::Result<Provider> {
        let read = |file: &std::path::PathBuf| {
            std::fs::read_to_string(file).map_err(|error| {
                std::io::Error::new(error.kind(), format!("{}: {error}", file.display()))
            })
        };
        let secret = options.client_secret_file.as_ref().map(read).transpose()?;
        // Another part of the process may have chosen the same provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let http = Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(std::io::Error::other)?;
        Ok(Provider {
            secret: secret.map(|secret| secret.trim().to_owned()),
            redirect_uri: format!("{base_url}/auth/callback"),
            options,
            http,
            knowledge: Mutex::default(),
            failed_reads: AtomicU64::new(0),
            places: Semaphore::new(MAX_EXCHANGES),
            of_addresses: AddressCounts::default(),
            tickets: TicketKey::new(),
        })
    }

    /// The name on the button to sign in.
    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    async fn fetch(&self, request: RequestBuilder, what: &str) -> Result<Value, SignInError> {
        let mut response = request.send().await.map_err(|error| {
            // The URL may contain a code.
            fault(format!("{what}: {}", error.without_url()))
        })?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(piece) =
            response.chunk().await.map_err(|error| fault(error.without_url()))?
        {
            if body.len() + piece.len() > MAX_ANSWER {
                return Err(fault(format!("{what}: the answer is too large")));
            }
            body.extend_from_slice(&piece);
        }
        let read: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if !status.is_success() {
            let reason = read["error"].as_str().unwrap_or("no reason").chars().take(64);
            let reason: String = reason.filter(char::is_ascii_graphic).collect();
            if status.is_client_error() && what == TOKEN {
                return Err(SignInError::Refused(format!("the code was not accepted ({reason})")));
            }
            return Err(fault(format!("{what}: status {} ({reason})", status.as_u16())));
        }
        if read.is_null() {
            return Err(fault(format!("{what}: the answer is not JSON")));
        }
        Ok(read)
    }

    async fn read(&self) -> Result<ProviderState, SignInError> {
        let base = self.options.issuer.trim_end_matches('/');
        let url = format!("{base}/.well-known/openid-configuration");
        let description = self.fetch(self.http.get(url), "its description").await?;
        let description: Description = serde_json::from_value(description)
            .map_err(|error| fault(format!("its description: {error}")))?;
        if description.issuer != self.options.issuer {
            let reason = format!("its description is that of the issuer {}", description.issuer);
            return Err(fault(reason));
        }
        let used = [
            Some(&description.authorization_endpoint),
            Some(&description.token_endpoint),
            Some(&description.jwks_uri),
            description.userinfo_endpoint.as_ref(),
            description.end_session_endpoint.as_ref(),
        ];
        if !used.into_iter().flatten().all(|url| is_safe_url(url)) {
            return Err(fault("its description names an address without encryption"));
        }
        let keys = self.fetch(self.http.get(&description.jwks_uri), "its keys").await?;
        let keys =
            keys["keys"].as_array().map(|keys| keys.iter().take(MAX_KEYS).cloned().collect());
        let keys = keys.ok_or_else(|| fault("its keys: there is no list"))?;
        Ok(ProviderState { description, keys, since: Stopwatch::start() })
    }

    /// What is known of the provider, read again if it is old. `unless` is known to be out of date.
    async fn known(
        &self,
        unless: Option<&Arc<ProviderState>>,
    ) -> Result<Arc<ProviderState>, SignInError> {
        let failed_before = self.failed_reads.load(Ordering::SeqCst);
        let mut knowledge = self.knowledge.lock().await;
        if let Some(found) = &knowledge.known
            && found.since.elapsed() < MAX_AGE
            && !unless.is_some_and(|old| Arc::ptr_eq(old, found))
        {
            return Ok(Arc::clone(found));
        }
        // Those that waited while a read failed do not each try again, one after the other.
        if self.failed_reads.load(Ordering::SeqCst) != failed_before
            && let Some(failure) = &knowledge.failure
        {
            return Err(failure.clone());
        }
        match self.read().await {
            Ok(read) => {
                let read = Arc::new(read);
                knowledge.known = Some(Arc::clone(&read));
                Ok(read)
            }
            Err(failure) => {
                self.failed_reads.fetch_add(1, Ordering::SeqCst);
                knowledge.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// A place among those that wait for the provider. Anyone can begin to sign in, so there are few.
    fn place(&self, address: IpAddr) -> Result<ExchangePlace<'_>, SignInError> {
        let full = || fault("too many people sign in at once");
        let of_address = self.of_addresses.enter(network(address)).ok_or_else(full)?;
        let place = self.places.try_acquire().map_err(|_| full())?;
        Ok(ExchangePlace { _place: place, _of_address: of_address })
    }

    /// The address at which a person signs in.
    pub(crate) async fn sign_in_url(
        &self,
        ticket: &Ticket,
        address: IpAddr,
    ) -> Result<String, SignInError> {
        let _place = self.place(address)?;
        let known = self.known(None).await?;
        let mut url = Url::parse(&known.description.authorization_endpoint).map_err(fault)?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.options.client_id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", &self.options.scopes.join(" "))
            .append_pair("state", &ticket.state)
            .append_pair("nonce", &ticket.nonce)
            .append_pair("code_challenge", &ticket.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// The address at which a person signs out of the provider, if it has one. The provider is not
    /// asked: a person has signed in, so its description was read.
    pub(crate) fn sign_out_url(&self, back: &str) -> Option<String> {
        let known = self.knowledge.try_lock().ok()?.known.clone()?;
        let mut url = Url::parse(known.description.end_session_endpoint.as_deref()?).ok()?;
        url.query_pairs_mut()
            .append_pair("client_id", &self.options.client_id)
            .append_pair("post_logout_redirect_uri", back);
        Some(url.into())
    }

    /// Redeems a code: the person that signed in.
    pub(crate) async fn redeem(
        &self,
        code: &str,
        ticket: &Ticket,
        address: IpAddr,
    ) -> Result<Person, SignInError> {
        let _place = self.place(address)?;
        let known = self.known(None).await?;
        let tokens = self.exchange(&known.description, code, ticket).await?;
        let claims = match self.verify(&known, &tokens.id_token, ticket) {
            Ok(claims) => claims,
            // The provider may have new keys.
            Err(Unverified::UnknownKey) => {
                let known = self.known(Some(&known)).await?;
                self.verify(&known, &tokens.id_token, ticket).map_err(Unverified::error)?
            }
            Err(unverified @ Unverified::Invalid(_)) => return Err(unverified.error()),
        };
        let claims = self.with_userinfo(&known.description, &tokens, claims).await?;
        self.options.person(&claims)
    }

    async fn exchange(
        &self,
        description: &Description,
        code: &str,
        ticket: &Ticket,
    ) -> Result<Tokens, SignInError> {
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", self.redirect_uri.as_str()),
            ("code_verifier", ticket.verifier.as_str()),
        ];
        let mut request = self.http.post(&description.token_endpoint);
        let methods = description.token_endpoint_auth_methods_supported.as_deref();
        let by_post = |methods: &[String]| !methods.iter().any(|method| method == BASIC);
        match &self.secret {
            None => form.push(("client_id", self.options.client_id.as_str())),
            Some(secret) if methods.is_some_and(by_post) => {
                form.push(("client_id", self.options.client_id.as_str()));
                form.push(("client_secret", secret.as_str()));
            }
            Some(secret) => {
                let encode = |text: &str| -> String {
                    form_urlencoded::byte_serialize(text.as_bytes()).collect()
                };
                let pair = format!("{}:{}", encode(&self.options.client_id), encode(secret));
                request = request.header(AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)));
            }
        }
        let body = serde_urlencoded::to_string(&form).map_err(fault)?;
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        let answer = self.fetch(request, TOKEN).await?;
        serde_json::from_value(answer).map_err(|error| fault(format!("{TOKEN}: {error}")))
    }

    /// The claims of a token that this provider made for this sign-in.
    fn verify(
        &self,
        known: &ProviderState,
        token: &str,
        ticket: &Ticket,
    ) -> Result<Value, Unverified> {
        let invalid = |error: jsonwebtoken::errors::Error| Unverified::Invalid(error.to_string());
        let header = decode_header(token).map_err(invalid)?;
        if !ALGORITHMS.contains(&header.alg) {
            let name = serde_json::to_value(header.alg).ok();
            let name = name.as_ref().and_then(Value::as_str).unwrap_or("unknown");
            return Err(Unverified::Invalid(format!("the algorithm {name}")));
        }
        let key = key_of(&known.keys, header.kid.as_deref()).ok_or(Unverified::UnknownKey)?;
        let mut validation = Validation::new(header.alg);
        validation.set_audience(&[&self.options.client_id]);
        validation.set_issuer(&[&self.options.issuer]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        let claims = decode::<Value>(token, &key, &validation).map_err(invalid)?.claims;
        let wrong = |reason: &str| Err(Unverified::Invalid(reason.to_owned()));
        if claims["nonce"].as_str() != Some(&ticket.nonce) {
            return wrong("it was made for another sign-in");
        }
        let has_many = claims["aud"].as_array().is_some_and(|all| all.len() > 1);
        let party = claims["azp"].as_str();
        if (has_many || party.is_some()) && party != Some(&self.options.client_id) {
            return wrong("it was made for another client");
        }
        Ok(claims)
    }

    /// Adds what the provider says of a person beyond the token, where the groups are not in the token.
    async fn with_userinfo(
        &self,
        description: &Description,
        tokens: &Tokens,
        claims: Value,
    ) -> Result<Value, SignInError> {
        let has_groups = !claims[&self.options.groups_claim].is_null();
        let more = description.userinfo_endpoint.as_ref().zip(tokens.access_token.as_ref());
        let Some((endpoint, access)) = more.filter(|_| !has_groups) else { return Ok(claims) };
        let request = self.http.get(endpoint).header(AUTHORIZATION, format!("Bearer {access}"));
        let mut said = self.fetch(request, "the person's data").await?;
        if said["sub"] != claims["sub"] {
            return Err(fault("the person's data are those of another person"));
        }
        if let (Some(said), Some(claims)) = (said.as_object_mut(), claims.as_object()) {
            // What is signed counts first.
            said.extend(claims.clone());
        }
        Ok(said)
    }
}

/// What is asked for with a code.
const TOKEN: &str = "the token";
/// How a client names its secret unless the provider says otherwise.
const BASIC: &str = "client_secret_basic";

/// Why a token is not accepted.
#[derive(Debug)]
enum Unverified {
    /// It is signed with a key that is not known.
    UnknownKey,
    Invalid(String),
}

impl Unverified {
    fn error(self) -> SignInError {
        SignInError::Token(match self {
            Unverified::UnknownKey => {
                "it is signed with a key that the provider does not show".into()
            }
            Unverified::Invalid(reason) => reason,
        })
    }
}

/// The key with an id. A token without the id of its key is accepted if there is one key only.
fn key_of(keys: &[Value], id: Option<&str>) -> Option<DecodingKey> {
    let signs = |key: &&Value| key["use"].as_str().is_none_or(|purpose| purpose == "sig");
    let found = match id {
        Some(id) => keys.iter().filter(signs).find(|key| key["kid"].as_str() == Some(id)),
        None => Some(keys).filter(|keys| keys.len() == 1).and_then(|keys| keys.first()),
    };
    let key: Jwk = serde_json::from_value(found?.clone()).ok()?;
    DecodingKey::from_jwk(&key).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encrypted_and_loopback_addresses_are_used() {
        for (url, expected) in [
            ("https://id.example/x", true),
            ("http://127.0.0.1:80/x", true),
            ("http://[::1]:80", true),
            ("http://localhost", true),
            ("http://id.example", false),
            ("http://127.0.0.1.example", false),
            ("http://10.0.0.1", false),
            ("file:///etc/passwd", false),
            ("id.example", false),
        ] {
            assert_eq!(is_safe_url(url), expected, "{url}");
        }
    }
}
