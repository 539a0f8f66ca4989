//! Which parts of a request reach another member unchanged.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, header};

/// Headers that concern one connection only.
const OF_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Whether a repeat of a request has no further effect.
pub(super) fn is_repeatable(parts: &Parts) -> bool {
    [Method::GET, Method::HEAD].contains(&parts.method)
        || end_to_end_headers(&parts.headers).contains_key("idempotency-key")
}

/// Whether a path reaches another member unchanged: an HTTP client resolves `..` and turns backslashes around, and
/// no route has them. A path that does not begin with a slash (`*`) is no part of a URL.
pub(super) fn keeps_its_path(path: &str) -> bool {
    let is_dots = |segment: &str| {
        matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
    };
    path.starts_with('/') && !path.contains('\\') && !path.split('/').any(is_dots)
}

/// The headers that do not concern one connection only.
pub(super) fn end_to_end_headers(headers: &HeaderMap) -> HeaderMap {
    let mut all = headers.clone();
    for named in headers.get_all(header::CONNECTION) {
        for name in named.to_str().unwrap_or("").split(',') {
            all.remove(name.trim());
        }
    }
    for name in OF_CONNECTION {
        all.remove(name);
    }
    all
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, Request};

    use super::*;

    #[test]
    fn headers_of_one_connection_are_not_passed_on() {
        let pairs = [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("authorization", "Bearer k"),
            ("idempotency-key", "one"),
        ];
        let headers = pairs
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let left = end_to_end_headers(&HeaderMap::from_iter(headers));
        let mut names: Vec<&str> = left.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "idempotency-key"]);
    }

    #[test]
    fn a_path_that_would_arrive_as_another_one_is_not_forwarded() {
        for path in ["/", "/v1/holds/a.b", "/v1/holds/...", "/v1/x%2ey/%2e%2ez", "//h/x", "/v1//x"]
        {
            assert!(keeps_its_path(path), "{path}");
            let url = reqwest::Url::parse(&format!("http://127.0.0.1:1{path}")).expect("a URL");
            assert_eq!(url.path(), path);
        }
        for path in
            ["*", "", "/v1/x/../keys", "/v1/./keys", "/v1/x/%2E%2e/keys", "/v1/.%2e", "/v1\\keys"]
        {
            assert!(!keeps_its_path(path), "{path}");
        }
    }

    #[test]
    fn only_reads_and_changes_under_a_key_are_repeated() {
        let repeatable = |method: &str, key: bool| {
            let mut request = Request::builder().method(method).uri("/v1/charges");
            if key {
                request = request.header("Idempotency-Key", "k");
            }
            is_repeatable(&request.body(()).expect("it is complete").into_parts().0)
        };
        assert!(repeatable("GET", false) && repeatable("HEAD", false));
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert!(!repeatable(method, false), "{method}");
            assert!(repeatable(method, true), "{method}");
        }
        let kept = Request::builder().method("POST").header("Idempotency-Key", "k");
        let kept = kept.header("Connection", "Idempotency-Key").body(()).expect("it is complete");
        assert!(!is_repeatable(&kept.into_parts().0), "the key is not passed on");
    }
}
