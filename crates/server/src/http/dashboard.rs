//! The dashboard: the files that `npm run build` wrote to `web/dist`, and the URLs of its pages.
//!
//! Release builds embed the files. Debug builds read them from disk at each request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use rust_embed::RustEmbed;

use super::pages;
use crate::request::Failure;

/// The file of every page.
const INDEX: &str = "index.html";
/// Where the build puts files whose names have a hash of their content.
const HASHED: &str = "assets/";
/// Paths that are never pages of the dashboard, also if no route has them.
const NOT_PAGES: [&str; 8] =
    ["v1", "auth", "docs", "assets", "healthz", "readyz", "metrics", "openapi.json"];
/// In debug builds: a folder that is read instead of `web/dist`.
const FOLDER: &str = "BURSAR_WEB_DIST";

/// Nothing inline, nothing evaluated, nothing from elsewhere, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; \
    frame-ancestors 'none'";

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Built;

/// A file as it is sent.
struct Asset {
    bytes: Bytes,
    /// The compressed bytes, where they save at least a tenth.
    gzip: Option<Bytes>,
    /// A hash of the content.
    tag: String,
    kind: &'static str,
    is_immutable: bool,
}

impl Asset {
    fn new(path: &str, content: Cow<'static, [u8]>) -> Asset {
        let bytes = match content {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => Bytes::from(bytes),
        };
        let gzip = compressed(&bytes).filter(|gzip| gzip.len() < bytes.len() / 10 * 9);
        let tag = blake3::hash(&bytes).to_hex()[..32].to_owned();
        Asset { gzip, tag, kind: kind(path), is_immutable: has_hashed_name(path), bytes }
    }
}

fn compressed(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// The media type of a file that the build makes.
fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

/// Whether the content of a name never changes, as in `assets/index-BwLqVfmH.js`.
fn has_hashed_name(path: &str) -> bool {
    let name = path.strip_prefix(HASHED).and_then(|name| name.split_once('.'));
    let stem = name.map_or("", |(stem, _)| stem);
    let is_hash = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-');
    stem.len() > 9
        && stem.is_char_boundary(stem.len() - 9)
        && stem[stem.len() - 9..].starts_with('-')
        && stem.as_bytes()[stem.len() - 8..].iter().all(|letter| is_hash(*letter))
}

/// The embedded files. Compressing them takes a moment, once.
static EMBEDDED: LazyLock<HashMap<String, Arc<Asset>>> = LazyLock::new(embedded::<Built>);

fn embedded<Files: RustEmbed>() -> HashMap<String, Arc<Asset>> {
    let read = |path: Cow<'static, str>| {
        let file = Files::get(&path)?;
        Some((path.to_string(), Arc::new(Asset::new(&path, file.data))))
    };
    Files::iter().filter_map(read).collect()
}

/// Compresses the embedded files, so that no request waits for it.
pub(crate) fn prepare() {
    if cfg!(not(debug_assertions)) {
        LazyLock::force(&EMBEDDED);
    }
}

/// The file with a path.
fn asset(path: &str) -> Option<Arc<Asset>> {
    let is_plain = |part: &str| !part.is_empty() && !part.starts_with('.');
    if !path.split('/').all(is_plain) || path.contains(['\\', '%', '\0']) {
        return None;
    }
    if cfg!(not(debug_assertions)) {
        return EMBEDDED.get(path).cloned();
    }
    let content = match std::env::var_os(FOLDER) {
        Some(folder) => std::fs::read(std::path::Path::new(&folder).join(path)).ok()?.into(),
        None => Built::get(path)?.data,
    };
    Some(Arc::new(Asset::new(path, content)))
}

/// Answers what no route has: a file of the dashboard, or one of its pages. Anything else is not
/// found.
pub(super) async fn answer(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let missing = || Failure::not_found("path", uri.path()).into_response();
    if method != Method::GET && method != Method::HEAD {
        return missing();
    }
    let path = uri.path().trim_start_matches('/');
    if let Some(found) = asset(path) {
        return send(&found, &headers);
    }
    let is_wanted =
        path.is_empty() || is_page(path) && accepts(&headers, header::ACCEPT, "text/html");
    if !is_wanted {
        return missing();
    }
    match asset(INDEX) {
        Some(index) => send(&index, &headers),
        None => pages::html(pages::not_built()),
    }
}

fn is_page(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or(path);
    !NOT_PAGES.contains(&first) && first != "favicon.ico" && first != "robots.txt"
}

/// Whether a list of preferences names a value. One with `q=0` is refused.
fn accepts(headers: &HeaderMap, name: header::HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_wanted = parts.next().is_some_and(|value| value.eq_ignore_ascii_case(wanted));
        let is_zero = |weight: &str| weight.bytes().all(|digit| matches!(digit, b'0' | b'.'));
        is_wanted && !parts.any(|part| part.strip_prefix("q=").is_some_and(is_zero))
    })
}

fn send(asset: &Asset, asked: &HeaderMap) -> Response {
    let gzip = asset.gzip.as_ref().filter(|_| accepts(asked, header::ACCEPT_ENCODING, "gzip"));
    let tag = format!("\"{}{}\"", asset.tag, if gzip.is_some() { "-gz" } else { "" });
    let mut response = if is_known(asked, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut response = Response::new(gzip.unwrap_or(&asset.bytes).clone().into());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
        if gzip.is_some() {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    };
    let caching =
        if asset.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding, accept"));
    let tag = HeaderValue::from_str(&tag).expect("a hash and quotes are visible characters");
    headers.insert(header::ETAG, tag);
    secure(response)
}

/// Whether the client has this content already.
fn is_known(asked: &HeaderMap, tag: &str) -> bool {
    let values = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    values.flat_map(|tags| tags.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
    })
}

/// Adds what every page and file needs, so that a browser runs nothing from elsewhere and shows the
/// page in no frame.
pub(super) fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("ascii"))])
    }

    #[test]
    fn embedded_files_are_found_by_their_paths_and_compressed() {
        #[derive(RustEmbed)]
        #[folder = "src/auth"]
        struct Sources;
        let files = embedded::<Sources>();
        let file = files.get("sessions/mod.rs").expect("a file of a folder");
        assert!(file.bytes.starts_with(b"//! Sessions of people"));
        assert!(file.gzip.as_ref().is_some_and(|gzip| gzip.len() < file.bytes.len() / 2));
        assert!(!file.is_immutable && file.kind == "application/octet-stream");
        assert!(!files.contains_key("sessions") && !files.contains_key("../lib.rs"));
    }

    #[test]
    fn only_names_with_a_hash_are_immutable() {
        for (path, expected) in [
            ("assets/index-BwLqVfmH.js", true),
            ("assets/inter-latin-4b_-7dEf.woff2", true),
            ("assets/index-BwLqVfmH.js.map", true),
            ("assets/index.js", false),
            ("assets/-BwLqVfmH.js", false),
            ("assets/ééééé.js", false),
            ("index-BwLqVfmH.html", false),
            ("index.html", false),
        ] {
            assert_eq!(has_hashed_name(path), expected, "{path}");
        }
    }

    #[test]
    fn preferences_are_read_with_their_weights() {
        for (value, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("br, gzip; q=0.001", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000, br", false),
            ("x-gzip", false),
            ("", false),
        ] {
            let headers = asked(header::ACCEPT_ENCODING, value);
            assert_eq!(accepts(&headers, header::ACCEPT_ENCODING, "gzip"), expected, "{value}");
        }
    }

    #[test]
    fn a_known_tag_is_recognised_in_a_list() {
        for (value, expected) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
        ] {
            assert_eq!(
                is_known(&asked(header::IF_NONE_MATCH, value), "\"a\""),
                expected,
                "{value}"
            );
        }
    }

    #[test]
    fn paths_of_the_interface_are_not_pages() {
        for (path, expected) in [
            ("jobs/job.1", true),
            ("credits", true),
            ("v1/nothing", false),
            ("auth/login", false),
            ("docs/other", false),
            ("assets/gone-BwLqVfmH.js", false),
            ("favicon.ico", false),
        ] {
            assert_eq!(is_page(path), expected, "{path}");
        }
    }
}
