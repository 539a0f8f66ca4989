//! Where a request ends: requests that say it twice, wrongly, or announce more than is taken, over raw
//! sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::Server;

/// Sends bytes on a connection of their own and returns what comes back until the server closes it.
pub(crate) fn exchange(server: &Server, sent: &str) -> String {
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
pub(crate) fn post(server: &Server, framing: &str) -> String {
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

/// A proxy may believe either of the two.
#[tokio::test]
async fn a_request_with_two_lengths_is_refused_and_nothing_that_follows_is_a_request() {
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
        assert!(answer.starts_with("HTTP/1.1 400 "), "{id}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{id}: {answer}");
        assert!(!exists(&server, id).await);
    }
    // On a connection that had a request with a length before. What is behind a request in one piece may escape
    // the refusal: then the chunks count, and the connection ends all the same.
    let length = json!({ "id": "before", "kind": "org" }).to_string();
    let length = post(&server, &format!("content-length: {}", length.len())) + &length;
    let two = post(&server, "content-length: 4\r\ntransfer-encoding: chunked");
    let answer = exchange(&server, &(length + &two + &chunked("after") + &hidden));
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{answer}");
    assert!(exists(&server, "before").await);
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
        "transfer-encoding: chunked\r\nx: y\r\nContent-Length:4".to_owned(),
        "transfer-encoding: identity, chunked".to_owned(),
        "transfer-encoding: gzip, chunked".to_owned(),
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked".to_owned(),
        "content-length: 0x10".to_owned(),
        "content-length:".to_owned(),
        format!(" content-length: {length}"),
        format!("x: y\rz\r\ncontent-length: {length}"),
        format!("x: y\0z\r\ncontent-length: {length}"),
        format!("host: y\r\ncontent-length: {length}"),
        "transfer-encoding: \u{b}chunked".to_owned(),
        format!("x: y\r\n content-length: 0\r\ncontent-length: {length}"),
    ] {
        let sent = match framing.contains("transfer-encoding") {
            true => format!("{length:x}\r\n{body}\r\n0\r\n\r\n"),
            false => body.clone(),
        };
        let answer = exchange(&server, &(post(&server, &framing) + &sent));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{framing:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{framing:?}: {answer}");
    }
    let without = post(&server, &format!("content-length: {length}")).replace("host: x\r\n", "");
    assert!(exchange(&server, &(without + &body)).starts_with("HTTP/1.1 400 "), "no host");
    for chunks in [
        format!("{length:x}\n{body}\n0\n\n"),
        format!("{length:x};a=b\nc\r\n{body}\r\n0\r\n\r\n"),
        format!("{length:x};{}\r\n{body}\r\n0\r\n\r\n", "a".repeat(100_000)),
        format!("1ffffffffffffffff\r\n{body}\r\n0\r\n\r\n"),
        format!("-1\r\n{body}\r\n0\r\n\r\n"),
        format!("0x{length:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("{length:x}\r\n{body}xx0\r\n\r\n"),
        format!("{length:x}\r\n{body}\r\n0\r\n{}\r\n", "a: b\r\n".repeat(5000)),
    ] {
        let answer = exchange(&server, &(post(&server, "transfer-encoding: chunked") + &chunks));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:.40}: {answer}");
    }
    let many: String = (0..500).map(|number| format!("x-{number}: 1\r\n")).collect();
    for framing in [format!("x: {}", "a".repeat(70_000)), many + "y: 1"] {
        let answer = exchange(&server, &post(&server, &framing));
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    let old = post(&server, "transfer-encoding: chunked").replace("HTTP/1.1", "HTTP/1.0");
    let answer = exchange(&server, &(old + "0\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.0 400 ") || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(!exists(&server, "acme").await);
}
