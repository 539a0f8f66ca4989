//! Serving the dashboard: files, pages, caching, and the policy for browsers.

use std::path::Path;

use reqwest::header::HeaderMap;
use serde_json::Value;
use tempfile::TempDir;

use crate::server::{Answer, Server};

const SCRIPT: &str = "assets/index-BwLqVfmH.js";

/// A folder as the build of the dashboard leaves it.
fn built() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let write = |path: &str, content: &str| {
        let file = folder.path().join(path);
        std::fs::create_dir_all(file.parent().expect("in the folder")).expect("made");
        std::fs::write(file, content).expect("written");
    };
    write("index.html", "<!doctype html><title>Dashboard</title>");
    write(SCRIPT, &"console.log('the dashboard');\n".repeat(100));
    write("assets/tiny-a1B2c3D4.css", "a{}");
    write("icon.svg", "<svg/>");
    write(".secret", "not for the browser");
    folder
}

/// A server whose dashboard is in a folder.
fn serving(folder: &Path) -> Server {
    Server::under(&["env", &format!("BURSAR_WEB_DIST={}", folder.display())])
}

async fn get(server: &Server, path: &str, headers: &[(&str, &str)]) -> Answer {
    server.send("GET", path, Value::Null, "", headers).await
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map_or(String::new(), |value| value.to_str().expect("ascii").to_owned())
}

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

/// What every page and file carries.
#[track_caller]
fn check_policy(headers: &HeaderMap) {
    let policy = text(headers, "content-security-policy");
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("data:"), "{policy}");
    assert_eq!(text(headers, "x-content-type-options"), "nosniff");
    assert_eq!(text(headers, "referrer-policy"), "no-referrer");
}

#[tokio::test]
async fn pages_and_files_are_served_with_a_strict_policy() {
    let folder = built();
    let server = serving(folder.path());
    for page in ["/", "/jobs", "/jobs/job.1?tab=why", "/accounts/acme:nlp", "/index.html"] {
        let answer = get(&server, page, &[BROWSER]).await;
        check_policy(&answer.headers);
        assert_eq!(text(&answer.headers, "cache-control"), "no-cache", "{page}");
        assert_eq!(text(&answer.headers, "content-type"), "text/html; charset=utf-8");
        let body = answer.expect(200);
        assert!(body.as_str().is_some_and(|body| body.contains("Dashboard")), "{page}: {body}");
    }
    let icon = get(&server, "/icon.svg", &[]).await;
    check_policy(&icon.headers);
    assert_eq!(text(&icon.headers, "content-type"), "image/svg+xml");
    icon.expect(200);
    let head = server.send("HEAD", "/", Value::Null, "", &[BROWSER]).await;
    assert_eq!((head.status, head.body.as_str()), (200, Some("")));
}

#[tokio::test]
async fn what_is_no_page_is_not_found_as_before() {
    let folder = built();
    let server = serving(folder.path());
    for path in [
        "/v1/nothing",
        "/auth/nothing",
        "/docs/nothing",
        "/docs/problems/nothing",
        "/assets/gone-BwLqVfmH.js",
        "/assets",
        "/favicon.ico",
    ] {
        get(&server, path, &[BROWSER]).await.problem("not_found");
    }
    // A program that does not ask for a page gets no page.
    get(&server, "/v2/holds", &[]).await.problem("not_found");
    get(&server, "/jobs", &[("accept", "application/json")]).await.problem("not_found");
    let posted = server.send("POST", "/jobs", Value::Null, "", &[BROWSER]).await;
    posted.problem("not_found");
    for path in [
        "/.secret",
        "/%2esecret",
        "/assets/..%2f.secret",
        "/assets/..%2f..%2fetc%2fpasswd",
        "//etc/passwd",
    ] {
        get(&server, path, &[]).await.problem("not_found");
    }
}

#[tokio::test]
async fn files_are_cached_by_their_hash_and_compressed_where_it_pays() {
    let folder = built();
    let server = serving(folder.path());
    let plain = get(&server, &format!("/{SCRIPT}"), &[]).await;
    assert_eq!(text(&plain.headers, "cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(text(&plain.headers, "content-type"), "text/javascript; charset=utf-8");
    assert_eq!(text(&plain.headers, "content-encoding"), "");
    assert!(text(&plain.headers, "vary").contains("accept-encoding"));
    let tag = text(&plain.headers, "etag");
    let gzip = [("accept-encoding", "gzip, br")];
    let packed = get(&server, &format!("/{SCRIPT}"), &gzip).await;
    assert_eq!(text(&packed.headers, "content-encoding"), "gzip");
    assert_ne!(text(&packed.headers, "etag"), tag);
    let length = |answer: &Answer| text(&answer.headers, "content-length").parse::<usize>();
    assert!(length(&packed).expect("a length") < length(&plain).expect("a length") / 2);
    let tiny = get(&server, "/assets/tiny-a1B2c3D4.css", &gzip).await;
    assert_eq!(text(&tiny.headers, "content-encoding"), "");
    let known = [("if-none-match", tag.as_str())];
    let same = get(&server, &format!("/{SCRIPT}"), &known).await;
    assert_eq!((same.status, same.body.as_str()), (304, Some("")));
    assert_eq!(text(&same.headers, "etag"), tag);
    // A rebuilt dashboard has another tag, in debug builds without a restart.
    let index = text(&get(&server, "/", &[BROWSER]).await.headers, "etag");
    std::fs::write(folder.path().join("index.html"), "<!doctype html>again").expect("written");
    let changed = get(&server, "/", &[BROWSER, ("if-none-match", index.as_str())]).await;
    assert_eq!(changed.status, 200);
    assert_ne!(text(&changed.headers, "etag"), index);
}

#[tokio::test]
async fn browsers_come_back_over_tls_where_the_server_is_reached_over_tls() {
    let header = "strict-transport-security";
    let plain = Server::start();
    assert_eq!(text(&get(&plain, "/", &[BROWSER]).await.headers, header), "");
    let lines = "public_url = \"https://bursar.example\"\n";
    let behind = Server::configured(lines, &["--clock", "manual"]);
    assert_eq!(text(&get(&behind, "/", &[BROWSER]).await.headers, header), "max-age=31536000");
}

#[tokio::test]
async fn a_server_without_a_dashboard_says_how_to_build_it() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = serving(folder.path());
    for page in ["/", "/jobs"] {
        let answer = get(&server, page, &[BROWSER]).await;
        check_policy(&answer.headers);
        let body = answer.expect(200);
        let body = body.as_str().expect("a page");
        assert!(body.contains("npm ci") && body.contains("npm run build"), "{body}");
        assert!(body.contains("cargo build") && body.contains("/docs"), "{body}");
    }
    // The pages of the server itself obey the same policy: their style is a file.
    for page in ["/docs", "/docs/problems/not_found"] {
        let answer = get(&server, page, &[]).await;
        check_policy(&answer.headers);
        let body = answer.expect(200);
        assert!(body.as_str().is_some_and(|body| !body.contains("<style")), "{page}");
    }
    let style = get(&server, "/docs/style.css", &[]).await;
    assert_eq!(text(&style.headers, "content-type"), "text/css; charset=utf-8");
    style.expect(200);
}
