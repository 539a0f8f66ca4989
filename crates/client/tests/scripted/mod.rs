//! A real HTTP server with scripted answers that records its requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use tokio::net::TcpListener;

/// An answer.
#[derive(Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Reply {
    /// An answer with a JSON body.
    pub(crate) fn json(status: u16, body: &str) -> Reply {
        Reply { status, headers: vec![], body: body.into() }
    }

    /// A problem with this code.
    #[allow(dead_code, reason = "not every test file that includes this needs problems")]
    pub(crate) fn problem(code: bursar_client::api::Code, detail: &str) -> Reply {
        let problem = bursar_client::api::Problem::new(code, detail);
        Reply::json(code.status(), &serde_json::to_string(&problem).expect("plain fields"))
    }

    /// Adds a header.
    #[allow(dead_code, reason = "not every test file that includes this needs headers")]
    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Reply {
        self.headers.push((name, value.into()));
        self
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedRequest {
    /// Method, path and query.
    pub(crate) line: String,
    /// The body.
    pub(crate) body: String,
    /// The idempotency key.
    pub(crate) key: Option<String>,
    /// The bearer token.
    pub(crate) bearer: Option<String>,
}

#[derive(Clone)]
struct Script {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// The server. Stops with the test.
pub(crate) struct Scripted {
    /// Its address.
    pub(crate) address: String,
    script: Script,
}

impl Scripted {
    /// Starts a server that gives these answers in order, and 404 afterwards.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        let replies = Arc::new(Mutex::new(replies.into_iter().collect()));
        let script = Script { replies, asked: Arc::default() };
        let router = Router::new().fallback(answer).with_state(script.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Scripted { address, script }
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        self.script.asked.lock().expect("no handler panics").clone()
    }
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    let (key, bearer) = (header(&request, "idempotency-key"), header(&request, "authorization"));
    let line = format!("{} {}", request.method(), request.uri());
    let body = to_bytes(request.into_body(), 1 << 20).await.expect("small");
    let body = String::from_utf8(body.to_vec()).expect("text");
    script.asked.lock().expect("no panic").push(ReceivedRequest { line, body, key, bearer });
    let reply = script.replies.lock().expect("no panic").pop_front();
    let reply = reply.unwrap_or(Reply::json(404, "the script is over"));
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(reply.body)).expect("well-formed")
}

fn header(request: &Request, name: &str) -> Option<String> {
    request.headers().get(name).map(|value| value.to_str().expect("plain").to_owned())
}
