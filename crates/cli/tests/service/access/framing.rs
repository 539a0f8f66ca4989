//! Where a request ends: requests that say it twice, wrongly, or announce more than is taken, over raw
//! sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::Server;

/// Sends bytes on a connection of their own and returns what comes back until the server closes it.
fn exchange(server: &Server, sent: &str) -> String {
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    // Only to fail instead of hanging.
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a plain socket");
    stream.write_all(sent.as_bytes()).expect("it listens");
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it stayed open"),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The head of a request that opens an account, with these lines about its body.
fn post(server: &Server, framing: &str) -> String {
    format!(
        "POST /v1/accounts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\n{framing}\r\n\r\n",
        server.root
    )
}

async fn exists(server: &Server, account: &str) -> bool {
    server.call("GET", &format!("/v1/accounts/{account}"), Value::Null).await.status == 200
}

#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_not_asked_for() {
    let server = Server::start();
    for length in [4 * 1024 * 1024 + 1, 1_u64 << 50] {
        let framing = format!("content-length: {length}\r\nexpect: 100-continue");
        let answer = exchange(&server, &post(&server, &framing));
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains("body_too_large") && !answer.contains("100 Continue"), "{answer}");
    }
    let session = "POST /v1/session HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                   content-length: 20000\r\nexpect: 100-Continue\r\n\r\n";
    let answer = exchange(&server, session);
    assert!(answer.starts_with("HTTP/1.1 413 "), "without a key less is taken: {answer}");
    // One that fits is asked for.
    let body = json!({ "id": "acme", "kind": "org" }).to_string();
    let framing =
        format!("content-length: {}\r\nexpect: 100-continue\r\nconnection: close", body.len());
    let answer = exchange(&server, &(post(&server, &framing) + &body));
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n"), "{answer}");
    assert!(answer.contains("HTTP/1.1 201 "), "{answer}");
}

/// A proxy may believe either of the two. The chunks count, as the standard says, and the connection
/// ends after the answer, so nothing that follows is taken for a request.
#[tokio::test]
async fn with_two_lengths_nothing_that_follows_is_a_request() {
    let server = Server::start();
    let chunked = |id: &str| {
        let body = json!({ "id": id, "kind": "org" }).to_string();
        format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
    };
    let hidden = json!({ "id": "hidden", "kind": "org" }).to_string();
    let hidden =
        post(&server, &format!("content-length: {}\r\nconnection: close", hidden.len())) + &hidden;
    for (id, framing) in [
        ("first", "content-length: 4\r\ntransfer-encoding: chunked"),
        ("second", "transfer-encoding: chunked\r\ncontent-length: 4"),
        ("third", "content-length: 4\r\ntransfer-encoding: chunked\r\nconnection: keep-alive"),
    ] {
        let sent = post(&server, framing) + &chunked(id) + &hidden;
        let answer = exchange(&server, &sent);
        assert!(answer.starts_with("HTTP/1.1 201 "), "{id}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{id}: {answer}");
        assert!(exists(&server, id).await);
    }
    assert!(!exists(&server, "hidden").await, "it was part of no request");
}

#[tokio::test]
async fn a_request_whose_end_is_unclear_is_refused() {
    let server = Server::start();
    let body = json!({ "id": "acme", "kind": "org" }).to_string();
    let length = body.len();
    for framing in [
        format!("content-length: {length}\r\ncontent-length: {}", length - 1),
        format!("content-length: +{length}"),
        format!("content-length: {length}, {length}"),
        format!("content-length : {length}"),
        "content-length: -1".to_owned(),
        "content-length: 99999999999999999999".to_owned(),
        "transfer-encoding: identity".to_owned(),
        "transfer-encoding: chunked, gzip".to_owned(),
        "transfer-encoding: \u{b}chunked".to_owned(),
        format!("x: y\r\n content-length: 0\r\ncontent-length: {length}"),
    ] {
        let answer = exchange(&server, &(post(&server, &framing) + &body));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{framing:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{framing:?}: {answer}");
    }
    let old = post(&server, "transfer-encoding: chunked").replace("HTTP/1.1", "HTTP/1.0");
    let answer = exchange(&server, &(old + "0\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.0 400 ") || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(!exists(&server, "acme").await);
}
