//! The HTML pages of the server. They load nothing from elsewhere.

pub(super) mod sign_in;

use std::fmt::Write;

use axum::response::{Html, IntoResponse, Response};
use bursar_api::Code;
use serde_json::Value;
use utoipa::openapi::OpenApi;

use super::dashboard;

/// The style of the pages.
pub(super) const STYLE: &str = ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
    padding:0 1rem;color:#1b1f24;background:#fff}h2{border-bottom:1px solid #d0d7de;\
    padding-bottom:.3rem;margin-top:2.5rem}code,pre{font:14px/1.4 ui-monospace,monospace;\
    background:#f2f4f7;border-radius:4px}code{padding:.1rem .3rem}pre{padding:.8rem;\
    overflow:auto}details{margin:.6rem 0}summary{cursor:pointer}.m{display:inline-block;\
    min-width:4.5rem;font-weight:700}table{border-collapse:collapse}td,th{text-align:left;\
    padding:.2rem .8rem .2rem 0;vertical-align:top}@media(prefers-color-scheme:dark){body{\
    color:#e6edf3;background:#0d1117}code,pre{background:#1c2230}a{color:#79b8ff}}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><link rel=\"icon\" href=\"/favicon.svg\">\
         <link rel=\"stylesheet\" href=\"/docs/style.css\"></head><body><h1>{title}</h1>{body}</body></html>"
    )
}

/// A page as a response, with the policy that every page has.
pub(super) fn html(page: String) -> Response {
    dashboard::secure(Html(page).into_response())
}

/// The page in place of a dashboard that was not built.
pub(super) fn not_built() -> String {
    let body = "<p>The server runs. This binary was built without the dashboard. To build both, with Node 20 \
        or later:</p><pre>cd web &amp;&amp; npm ci &amp;&amp; npm run build &amp;&amp; cd ..\ncargo build \
        --release --bin bursar</pre><p>Without the dashboard:</p>\
        <ul><li><a href=\"/docs\">API reference</a></li>\
        <li><a href=\"/docs/problems\">Problems</a></li>\
        <li><a href=\"/openapi.json\">OpenAPI document</a></li>\
        <li><a href=\"/readyz\">Readiness</a></li>\
        <li><a href=\"/metrics\">Metrics</a></li></ul>";
    page("Bursar", body)
}

/// Renders the inline code and links of a line of Markdown.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (place, part) in escape(text).split('`').enumerate() {
        if place % 2 == 1 {
            let _ = write!(out, "<code>{part}</code>");
        } else {
            out.push_str(part);
        }
    }
    out
}

/// The page of a problem code; `None` if there is no such code.
pub fn problem(code: &str) -> Option<String> {
    let code = Code::ALL.iter().find(|known| known.as_str() == code)?;
    let text = problem_text(*code);
    let mut body = String::new();
    let mut fenced = false;
    for line in text.lines().skip(1) {
        if line.starts_with("```") {
            fenced = !fenced;
            body.push_str(if fenced { "<pre>" } else { "</pre>" });
        } else if fenced {
            let _ = writeln!(body, "{}", escape(line));
        } else if let Some(heading) = line.strip_prefix("## ") {
            let _ = write!(body, "<h2>{}</h2>", inline(heading));
        } else if let Some(item) = line.strip_prefix("- ") {
            let _ = write!(body, "<ul><li>{}</li></ul>", inline(item));
        } else if !line.is_empty() {
            let _ = write!(body, "<p>{}</p>", inline(line));
        }
    }
    Some(page(code.as_str(), &body))
}

macro_rules! problem_texts {
    ($($variant:ident $file:literal),* $(,)?) => {
        /// The Markdown text of a problem code.
        pub fn problem_text(code: Code) -> &'static str {
            match code {
                $(Code::$variant => include_str!(concat!("../../../../../docs/problems/", $file, ".md")),)*
            }
        }
    };
}

problem_texts!(
    MalformedJson "malformed_json",
    Unauthenticated "unauthenticated",
    InsufficientCredits "insufficient_credits",
    BudgetExceeded "budget_exceeded",
    Forbidden "forbidden",
    NotFound "not_found",
    MethodNotAllowed "method_not_allowed",
    AlreadyExists "already_exists",
    AmbiguousId "ambiguous_id",
    IdempotencyKeyReused "idempotency_key_reused",
    Conflict "conflict",
    HoldClosed "hold_closed",
    SequenceConflict "sequence_conflict",
    AccountFrozen "account_frozen",
    StaleIncarnation "stale_incarnation",
    BatchAborted "batch_aborted",
    BodyTooLarge "body_too_large",
    UnsupportedMediaType "unsupported_media_type",
    InvalidField "invalid_field",
    Unsatisfiable "unsatisfiable",
    TooLate "too_late",
    RateLimited "rate_limited",
    Unavailable "unavailable",
    OutcomeUnknown "outcome_unknown",
    StorageFull "storage_full",
    Internal "internal",
);

/// The API reference for people, from the OpenAPI document.
pub fn reference(description: &OpenApi) -> String {
    let tree = serde_json::to_value(description).unwrap_or(Value::Null);
    let mut body = format!("<p>{}</p>", inline(tree["info"]["description"].as_str().unwrap_or("")));
    let empty = Vec::new();
    for tag in tree["tags"].as_array().unwrap_or(&empty) {
        let name = tag["name"].as_str().unwrap_or("");
        let about = tag["description"].as_str().unwrap_or("");
        let mut section = String::new();
        for (path, item) in tree["paths"].as_object().into_iter().flatten() {
            for (method, operation) in item.as_object().into_iter().flatten() {
                if operation["tags"][0] == name {
                    section.push_str(&operation_text(path, method, operation, &tree));
                }
            }
        }
        if !section.is_empty() {
            let _ = write!(body, "<h2>{}</h2><p>{}</p>{section}", escape(name), inline(about));
        }
    }
    let _ = write!(body, "<h2>problems</h2>{}", problem_table());
    page("Bursar: API reference", &body)
}

/// A table of all problem codes with links to their pages.
fn problem_table() -> String {
    let mut table = String::from("<table>");
    for code in Code::ALL {
        let (name, status, title) = (code.as_str(), code.status(), escape(code.title()));
        let _ = write!(
            table,
            "<tr><td>{status}</td><td><a href=\"/docs/problems/{name}\">{name}</a></td>\
             <td>{title}</td></tr>"
        );
    }
    table.push_str("</table>");
    table
}

/// The index of the problem pages.
pub fn problems() -> String {
    let about = "Every error is a problem document (RFC 9457). Its `type` is the address of a page \
        below, its `code` the name of the page.";
    page("Problems", &format!("<p>{}</p>{}", inline(about), problem_table()))
}

fn operation_text(path: &str, method: &str, operation: &Value, tree: &Value) -> String {
    let mut text = format!(
        "<details><summary><span class=\"m\">{}</span> <code>{}</code> {}</summary>",
        method.to_uppercase(),
        escape(path),
        inline(operation["summary"].as_str().unwrap_or("")),
    );
    if let Some(about) = operation["description"].as_str() {
        let _ = write!(text, "<p>{}</p>", inline(about));
    }
    text.push_str("<table>");
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let _ = write!(
            text,
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            escape(parameter["name"].as_str().unwrap_or("")),
            parameter["in"].as_str().unwrap_or(""),
            inline(parameter["description"].as_str().unwrap_or("")),
        );
    }
    text.push_str("</table>");
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if let Some(name) = body["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        let schema = &tree["components"]["schemas"][name];
        let _ = write!(text, "<p>Body: {}</p>", escape(name));
        let example = &schema["example"];
        if !example.is_null() {
            let example = serde_json::to_string_pretty(example).unwrap_or_default();
            let _ = write!(text, "<pre>{}</pre>", escape(&example));
        }
        text.push_str("<table>");
        for (field, about) in schema["properties"].as_object().into_iter().flatten() {
            let about = about["description"].as_str().unwrap_or("");
            let (field, about) = (escape(field), inline(about));
            let _ = write!(text, "<tr><td><code>{field}</code></td><td>{about}</td></tr>");
        }
        text.push_str("</table>");
    }
    text.push_str("<table>");
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let about = inline(response["description"].as_str().unwrap_or(""));
        let _ = write!(text, "<tr><td>{status}</td><td>{about}</td></tr>");
    }
    text.push_str("</table></details>");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_that_says_what_it_means_and_what_to_do_next() {
        for code in Code::ALL {
            let text = problem_text(*code);
            assert!(text.starts_with(&format!("# `{}`", code.as_str())), "{code:?}");
            assert!(text.contains(&format!("Status {}", code.status())), "{code:?}");
            assert!(text.contains("## What to do next"), "{code:?}");
            assert!(problem(code.as_str()).is_some_and(|page| page.contains("<h2>")));
        }
        assert_eq!(problem("no_such_code"), None);
    }

    #[test]
    fn the_index_of_problems_links_every_page() {
        let index = problems();
        for code in Code::ALL {
            let link = format!("<a href=\"/docs/problems/{}\">", code.as_str());
            assert!(index.contains(&link), "{link}");
        }
    }

    #[test]
    fn the_reference_lists_every_operation_and_loads_nothing() {
        let description = crate::http::router::description();
        let page = reference(&description);
        for path in description.paths.paths.keys() {
            assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
        }
        for outside in ["src=", "http://", "https://", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
