//! The response to shed requests. Under overload it must cost little, so it is serialized once,
//! except for the id of the request.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bursar_api::Code;

use crate::ids::RequestId;
use crate::request::Failure;
use crate::request::meta;

/// The placeholder for the id of the request.
const MARK: &str = "req_MARK";

/// The serialized response, before and after the id of the request.
pub struct Shed {
    before: Vec<u8>,
    after: Vec<u8>,
}

fn too_much() -> Failure {
    Failure::new(Code::Unavailable, "the server is overloaded; try again")
}

impl Shed {
    /// Prepares the response of a server with this URL.
    pub fn new(base_url: &str) -> Shed {
        let mut problem = *too_much().problem;
        problem.kind = format!("{base_url}{}", problem.kind);
        problem.request_id = MARK.to_owned();
        let body = serde_json::to_string(&problem).expect("a problem has only plain fields");
        let (before, after) = body.split_once(MARK).expect("a problem carries the request's id");
        Shed { before: before.into(), after: after.into() }
    }

    /// The response to one request.
    pub fn response(&self, request_id: RequestId) -> Response {
        meta::note_problem(Code::Unavailable);
        let id = request_id.header();
        let body = [&self.before, id.as_bytes(), &self.after].concat();
        let mut response = Response::new(body.into());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::to_bytes;
    use axum::response::IntoResponse;
    use bursar_core::time::Timestamp;

    use super::*;
    use crate::ids::IdMaker;
    use crate::request::meta::Meta;

    #[tokio::test]
    async fn the_prepared_response_equals_the_rendered_failure() {
        let request_id = IdMaker::new(0).make_request_id(Timestamp::from_millis(7));
        let meta = Meta {
            request_id,
            base_url: "https://bursar.test".into(),
            min_position: None,
            body_timeout: Duration::MAX,
            priority: crate::net::limits::Priority::Read,
            bodies: None,
        };
        let shed = Shed::new(&meta.base_url);
        let said = meta::scope(meta.clone(), async { too_much().into_response() }).await;
        let ready = meta::scope(meta, async { shed.response(request_id) }).await;
        assert_eq!(ready.1.problem, said.1.problem, "the same problem is counted");
        let (said, ready) = (said.0.into_parts(), ready.0.into_parts());
        assert_eq!((ready.0.status, ready.0.headers), (said.0.status, said.0.headers));
        let [ready, said] = [ready.1, said.1].map(|body| to_bytes(body, 4096));
        assert_eq!(ready.await.expect("a body"), said.await.expect("a body"));
    }
}
