//! An HTTP/1.1 request must state its end and its host exactly once: a proxy in front of the server may read an
//! unclear one differently. What hyper does not refuse itself is refused here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::{HeaderMap, HeaderValue, Request, Version, header};
use bursar_api::Code;

use crate::request::Failure;

const ONE_LENGTH: &str = "the HTTP framing of the request is unclear: send a body with `Content-Length`, or with \
     `Transfer-Encoding: chunked` alone";

/// The name of the header that hyper drops where a body is chunked as well.
const LENGTH: &[u8] = b"content-length";

/// Looks for `Content-Length` lines in what a connection sends, because hyper does not show one beside a
/// `Transfer-Encoding`. No line of a JSON body begins so.
#[derive(Debug, Default)]
pub(crate) struct LengthLines {
    /// The last line so far, if it may still become one.
    line: Vec<u8>,
    is_other: bool,
    seen: SeenLength,
}

/// Whether a `Content-Length` line arrived since the last request.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenLength(Arc<AtomicBool>);

/// Marks a request that has a length and a coding.
#[derive(Copy, Clone, Debug)]
struct TwoLengths;

impl LengthLines {
    pub(crate) fn seen(&self) -> SeenLength {
        self.seen.clone()
    }

    /// Looks through what arrived.
    pub(crate) fn look(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.add(&bytes[..end]);
            (self.is_other, bytes) = (false, &bytes[end + 1..]);
            self.line.clear();
        }
        self.add(bytes);
    }

    /// Adds a part of the current line. Only its beginning matters.
    fn add(&mut self, part: &[u8]) {
        if self.is_other || part.is_empty() {
            return;
        }
        let missing = LENGTH.len().saturating_sub(self.line.len());
        let part = &part[..part.len().min(missing)];
        let begun = self.line.len();
        if !part.eq_ignore_ascii_case(&LENGTH[begun..begun + part.len()]) {
            self.is_other = true;
        } else if begun + part.len() == LENGTH.len() {
            self.is_other = true;
            self.seen.0.store(true, Ordering::Relaxed);
        } else {
            self.line.extend_from_slice(part);
        }
    }
}

impl SeenLength {
    /// Marks a request whose head was read. Heads and their requests follow each other in one task.
    pub(crate) fn mark<B>(&self, request: &mut Request<B>) {
        let seen = self.0.swap(false, Ordering::Relaxed);
        if seen && request.headers().contains_key(header::TRANSFER_ENCODING) {
            request.extensions_mut().insert(TwoLengths);
        }
    }
}

/// The refusal of a request with unclear framing. Its connection ends with the answer.
pub(crate) fn refusal<B>(request: &Request<B>) -> Option<Failure> {
    if request.version() != Version::HTTP_11 {
        // HTTP/2 has frames; over HTTP/1.0 hyper refuses every coding.
        return None;
    }
    let has_two = request.extensions().get::<TwoLengths>().map(|_| ONE_LENGTH);
    let reason = has_two.or_else(|| unclear(request.headers()))?;
    let close = HeaderMap::from_iter([(header::CONNECTION, HeaderValue::from_static("close"))]);
    Some(Failure::new(Code::MalformedJson, reason).with_headers(close))
}

fn unclear(headers: &HeaderMap) -> Option<&'static str> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let is_plain = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !is_plain || codings.next().is_some() {
            return Some(ONE_LENGTH);
        }
    }
    match headers.get_all(header::HOST).iter().count() {
        1 => None,
        _ => Some("the HTTP framing of the request is unclear: send one `Host` header"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(version: Version, pairs: &[(&'static str, &'static str)]) -> Option<u16> {
        let mut request = Request::builder().version(version);
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        let problem = refusal(&request.body(()).expect("it is complete"))?.problem;
        assert!(problem.detail.starts_with("the HTTP framing of the request"), "{problem:?}");
        Some(problem.code.status())
    }

    #[test]
    fn a_body_is_chunked_once_or_not_at_all() {
        let with =
            |coding| status(Version::HTTP_11, &[("host", "x"), ("transfer-encoding", coding)]);
        assert_eq!(with("chunked"), None);
        assert_eq!(with("Chunked"), None);
        for coding in ["identity, chunked", "gzip, chunked", "chunked, chunked", "chunked;q=1", ""]
        {
            assert_eq!(with(coding), Some(400), "{coding}");
        }
        let twice =
            [("host", "x"), ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")];
        assert_eq!(status(Version::HTTP_11, &twice), Some(400));
    }

    #[test]
    fn a_line_with_a_length_is_seen_however_it_arrives_and_belongs_to_the_next_request() {
        let head = "POST / HTTP/1.1\r\nhost: x\r\nContent-Length: 4\r\nx: y\r\n\r\n";
        let has_two = |seen: &SeenLength| {
            let mut request =
                Request::builder().header("transfer-encoding", "chunked").header("host", "x");
            request = request.version(Version::HTTP_11);
            let mut request = request.body(()).expect("it is complete");
            seen.mark(&mut request);
            refusal(&request).is_some()
        };
        for piece in 1..head.len() {
            let mut lines = LengthLines::default();
            head.as_bytes().chunks(piece).for_each(|piece| lines.look(piece));
            assert!(has_two(&lines.seen()), "in pieces of {piece}");
            assert!(!has_two(&lines.seen()), "it was of the request before");
        }
        let mut lines = LengthLines::default();
        lines.look(b"POST /content-length HTTP/1.1\r\nx-content-length: 1\r\ncontent-\r\nlength: 1\r\n\r\n");
        lines.look(b"{\"content-length\": 1}");
        assert!(!has_two(&lines.seen()));
    }

    #[test]
    fn a_request_of_http_1_1_is_for_one_host() {
        assert_eq!(status(Version::HTTP_11, &[("host", "x")]), None);
        assert_eq!(status(Version::HTTP_11, &[]), Some(400));
        assert_eq!(status(Version::HTTP_11, &[("host", "x"), ("host", "y")]), Some(400));
        assert_eq!(status(Version::HTTP_10, &[]), None);
        assert_eq!(status(Version::HTTP_2, &[]), None);
    }
}
