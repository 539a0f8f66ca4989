//! Answers with problem documents.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bursar_api::Problem;

use crate::request::{Failure, meta};

impl Failure {
    /// The problem document, with the id of the request and the full URL of its page.
    pub fn into_problem(self) -> Problem {
        let (mut problem, first) = (*self.problem, self.first);
        meta::with(|meta| {
            problem.request_id = first.unwrap_or(meta.request_id).to_string();
            problem.kind = format!("{}{}", meta.base_url, problem.kind);
        });
        problem
    }
}

impl IntoResponse for Failure {
    fn into_response(mut self) -> Response {
        let (retry_after, replayed) = (self.retry_after, self.replayed);
        let more = self.headers.take();
        let problem = self.into_problem();
        meta::note_problem(problem.code);
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&problem).expect("a problem has only plain fields");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(more) = more {
            headers.extend(*more);
        }
        if replayed {
            headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
        }
        response
    }
}
