//! Requests that a member passes on are answered as the member that leads answers them, over raw sockets.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::access::framing::{exchange, post};
use crate::journal_support::postgres::TestPostgres;
use crate::server::Server;
use crate::store::standby::Member;

/// A member that leads and one that passes requests on.
fn pair(database: &TestPostgres, folder: &std::path::Path) -> [Server; 2] {
    let mut leader = Member::start(&database.url(), folder);
    assert_eq!(leader.hear(), None, "there is no other");
    let mut standby = Member::start(&database.url(), folder);
    assert_eq!(standby.hear().as_ref(), Some(&leader.server.url));
    [leader.server, standby.server]
}

/// The status of the only answer.
fn status(server: &Server, sent: &str) -> String {
    let answer = exchange(server, sent);
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{sent:.300}: {answer}");
    answer.chars().skip("HTTP/1.1 ".len()).take(3).collect()
}

#[tokio::test]
async fn hostile_requests_are_refused_alike_by_every_member() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let members = pair(&database, folder.path());
    let body = json!({ "id": "acme", "kind": "org" }).to_string();
    for server in &members {
        let get = |method: &str, path: &str| {
            format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
                 connection: close\r\n\r\n",
                server.root
            )
        };
        // Paths that a client library would turn into others.
        for path in
            ["/v1/x/../accounts", "/v1/x/%2e%2E/accounts", "/v1/./accounts", "/v1\\accounts", "*"]
        {
            assert_eq!(status(server, &get("GET", path)), "404", "{path}");
        }
        assert_eq!(status(server, &get("OPTIONS", "*")), "404");
        // Bodies that do not end, or not as they should.
        let chunked =
            |chunks: &str| post(server, "connection: close\r\ntransfer-encoding: chunked") + chunks;
        for chunks in ["-1\r\n", "zz\r\n", "5\r\nabcdefgh\r\n0\r\n\r\n", "5\nabcde\n0\n\n"] {
            assert_eq!(status(server, &chunked(chunks)), "400", "{chunks}");
        }
        let huge = format!("content-length: {}\r\nexpect: 100-continue", 1_u64 << 50);
        assert_eq!(status(server, &post(server, &huge)), "413");
        for framing in ["transfer-encoding: gzip, chunked", "host: y\r\ncontent-length: 2"] {
            assert_eq!(status(server, &(post(server, framing) + &body)), "400", "{framing}");
        }
    }
    let [leader, standby] = &members;
    leader
        .send("GET", "/v1/accounts/acme", Value::Null, &leader.root, &[])
        .await
        .problem("not_found");
    // A body in chunks that end well is passed on.
    let whole = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let framing = "connection: close\r\ntransfer-encoding: chunked";
    assert_eq!(status(standby, &(post(standby, framing) + &whole)), "201");
}

#[tokio::test]
async fn answers_that_are_passed_on_and_not_read_are_bounded() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [_leader, standby] = pair(&database, folder.path());
    // Each asks for more than the sockets between take, and reads a line.
    let asked = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(32);
    let mut unread = Vec::new();
    let refused = (0..900).find(|_| {
        let address = standby.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(asked.as_bytes()).expect("it listens");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("it answers");
        unread.push(stream);
        status == *b"HTTP/1.1 429"
    });
    assert!(refused.is_some_and(|count| count > 100), "{refused:?}");
    // Others have room of their own, and so has a change.
    assert_eq!(standby.call("GET", "/openapi.json", Value::Null).await.status, 200);
    standby.open("acme", "org").await;
}
