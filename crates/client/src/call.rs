//! A request as data: what will be sent, and the type of the answer.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use bursar_api::List;
use bursar_api::credits::batch::Operation;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

/// The method of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates, or acts.
    Post,
    /// Sets or replaces.
    Put,
    /// Updates.
    Patch,
    /// Removes.
    Delete,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 5] =
        [Method::Get, Method::Post, Method::Put, Method::Patch, Method::Delete];

    /// The name of the method.
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }

    /// Whether a request with this method may change something.
    pub const fn changes(self) -> bool {
        match self {
            Method::Get => false,
            Method::Post | Method::Put | Method::Patch | Method::Delete => true,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An answer without a body.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Nothing;

impl<'de> Deserialize<'de> for Nothing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Nothing, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Nothing)
    }
}

/// A request whose answer is a `T`.
pub struct Call<T> {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) timeout: Option<Duration>,
    answer: PhantomData<fn() -> T>,
}

impl<T> Call<T> {
    /// A request for a path that is already encoded, such as one from [`path`].
    pub fn new(method: Method, path: impl Into<String>) -> Call<T> {
        Call {
            method,
            path: path.into(),
            query: Vec::new(),
            body: None,
            idempotency_key: None,
            timeout: None,
            answer: PhantomData,
        }
    }

    /// A request for a path and query as written in a URL.
    pub fn from_target(method: Method, target: &str) -> Call<T> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut call = Call::new(method, path);
        call.query = serde_urlencoded::from_str(query).expect("any text is a list of pairs");
        call
    }

    pub(crate) fn get(path: impl Into<String>) -> Call<T> {
        Call::new(Method::Get, path)
    }

    pub(crate) fn post(path: impl Into<String>, body: &impl Serialize) -> Call<T> {
        Call::new(Method::Post, path).with_body(body)
    }

    pub(crate) fn put(path: impl Into<String>, body: &impl Serialize) -> Call<T> {
        Call::new(Method::Put, path).with_body(body)
    }

    /// Adds the parameters that are present.
    pub fn with_query(mut self, query: &impl Serialize) -> Call<T> {
        let text = serde_urlencoded::to_string(query).expect("parameters are flat and plain");
        let pairs: Vec<(String, String)> =
            serde_urlencoded::from_str(&text).expect("what was encoded can be decoded");
        self.query.extend(pairs);
        self
    }

    /// Sets the body.
    pub fn with_body(self, body: &impl Serialize) -> Call<T> {
        self.with_json(serde_json::to_string(body).expect("bodies have only plain fields"))
    }

    /// Sets the body to a JSON text, which is sent unchanged.
    pub fn with_json(mut self, body: impl Into<String>) -> Call<T> {
        self.body = Some(body.into());
        self
    }

    /// Sets the idempotency key, under which the server stores the first answer. Without one, a call
    /// that changes something gets a new key when it is sent.
    pub fn with_idempotency_key(mut self, key: impl Into<String>) -> Call<T> {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Replaces the client's timeout for this call, as long polls need.
    pub fn with_timeout(mut self, timeout: Duration) -> Call<T> {
        self.timeout = Some(timeout);
        self
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The path with its query, as it will be sent.
    pub fn target(&self) -> String {
        if self.query.is_empty() {
            return self.path.clone();
        }
        let query = serde_urlencoded::to_string(&self.query).expect("pairs of text are flat");
        format!("{}?{query}", self.path)
    }

    /// The JSON text of the body.
    pub fn body(&self) -> Option<&str> {
        self.body.as_deref()
    }

    /// The same request with another type of answer.
    pub fn answering<U>(self) -> Call<U> {
        Call {
            method: self.method,
            path: self.path,
            query: self.query,
            body: self.body,
            idempotency_key: self.idempotency_key,
            timeout: self.timeout,
            answer: PhantomData,
        }
    }

    /// The request as one operation of a batch.
    pub fn into_operation(self) -> Operation {
        let body = self.body.map(|text| {
            serde_json::from_str(&text).expect("the body of a typed call is JSON that we wrote")
        });
        let method = self.method.as_str().to_owned();
        Operation { method, path: self.path, body, idempotency_key: self.idempotency_key }
    }
}

impl<T> Call<List<T>> {
    /// Requests another page of the same list.
    pub fn with_cursor(mut self, cursor: &str) -> Call<List<T>> {
        self.query.retain(|(name, _)| name != "cursor");
        self.query.push(("cursor".into(), cursor.into()));
        self
    }
}

impl<T> Clone for Call<T> {
    fn clone(&self) -> Call<T> {
        Call {
            method: self.method,
            path: self.path.clone(),
            query: self.query.clone(),
            body: self.body.clone(),
            idempotency_key: self.idempotency_key.clone(),
            timeout: self.timeout,
            answer: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.target())?;
        match &self.body {
            Some(body) => write!(f, " {body}"),
            None => Ok(()),
        }
    }
}

/// A path made of segments, each percent-encoded so that it cannot change the path.
pub fn path(segments: &[&str]) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        for byte in segment.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                    path.push(char::from(byte));
                }
                _ => path.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_api::credits::hold::{HoldFilter, HoldState};

    #[test]
    fn a_segment_cannot_change_the_path() {
        assert_eq!(path(&["v1", "holds", "a:b.c-d_1"]), "/v1/holds/a:b.c-d_1");
        assert_eq!(path(&["v1", "holds", "x/../?y#%"]), "/v1/holds/x%2F..%2F%3Fy%23%25");
        assert_eq!(path(&["v1", "holds", "é"]), "/v1/holds/%C3%A9");
    }

    #[test]
    fn a_target_is_sent_as_it_was_written() {
        for target in ["/v1/nodes", "/v1/grants?account=acme%3Anlp&limit=5", "/v1/x?flag="] {
            assert_eq!(Call::<Nothing>::from_target(Method::Get, target).target(), target);
        }
        let odd = Call::<Nothing>::from_target(Method::Get, "/v1/x?a=b c&%FF&=");
        assert_eq!(odd.target(), "/v1/x?a=b+c&%EF%BF%BD=&=");
    }

    #[test]
    fn only_present_parameters_are_sent() {
        let filter = HoldFilter {
            account: Some("acme:nlp".into()),
            state: Some(HoldState::Open),
            limit: None,
            cursor: None,
        };
        let call: Call<List<Nothing>> = Call::get("/v1/holds").with_query(&filter);
        assert_eq!(call.target(), "/v1/holds?account=acme%3Anlp&state=open");
        let next = call.with_cursor("a&b").with_cursor("c&d");
        assert_eq!(next.target(), "/v1/holds?account=acme%3Anlp&state=open&cursor=c%26d");
    }
}
