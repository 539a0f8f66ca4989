//! Slow clients cannot block the server, and under load usage is recorded before any
//! other request.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::Server;

const QUICK: &str =
    "[timeouts]\nhandshake_ms = 300\nheader_ms = 300\nbody_ms = 300\nwrite_ms = 300\n";

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.url.trim_start_matches("http://")).expect("it listens");
    // Only to fail instead of hanging if the server never gives up.
    let timeout = Some(Duration::from_secs(60));
    stream.set_read_timeout(timeout).expect("a plain socket");
    stream.set_write_timeout(timeout).expect("a plain socket");
    stream
}

/// Reads to the end of the connection, however it ends; fails if it does not end.
fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it stayed open"),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn post(server: &Server, path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        server.root
    )
}

#[tokio::test]
async fn a_client_that_is_slow_to_speak_loses_its_connection() {
    let server = Server::configured(QUICK, &["--clock", "manual"]);
    let silent = "";
    let half_a_header = "GET /v1/accounts HTTP/1.1\r\nhost: x\r\nautho";
    let whole = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    for (sent, expected) in [(silent, ""), (half_a_header, ""), (whole, "HTTP/1.1 200 OK")] {
        let mut stream = connect(&server);
        stream.write_all(sent.as_bytes()).expect("it listens");
        let answer = read_to_end(&mut stream);
        assert!(answer.starts_with(expected), "{sent:?}: {answer}");
    }
    let mut stream = connect(&server);
    stream.write_all(post(&server, "/v1/accounts", 100).as_bytes()).expect("it listens");
    stream.write_all(b"{\"id\": ").expect("it listens");
    let answer = read_to_end(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("malformed_json"), "{answer}");
}

#[tokio::test]
async fn a_client_that_asks_and_does_not_read_loses_its_connection() {
    let server = Server::configured(QUICK, &["--clock", "manual"]);
    let mut stream = connect(&server);
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(64);
    let ended = loop {
        if let Err(error) = stream.write_all(ask.as_bytes()) {
            break error.kind();
        }
    };
    assert!(matches!(ended, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{ended:?}");
    server.send("GET", "/healthz", Value::Null, "", &[]).await.expect(200);
}

/// The answer to one request on a connection that stays open.
fn ask(stream: &mut TcpStream, server: &Server, path: &str) -> String {
    let key = &server.root;
    let asked = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    stream.write_all(asked.as_bytes()).expect("it listens");
    let mut bytes = [0; 4096];
    let length = stream.read(&mut bytes).expect("it answers");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// A connection from another address of this machine.
async fn connect_from(source: &str, server: &Server) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket
        .bind(format!("{source}:0").parse().expect("an address"))
        .expect("an address of loopback");
    let to = server.url.trim_start_matches("http://").parse().expect("an address");
    socket.connect(to).await.expect("it listens")
}

/// Silent connections take the places for connections, not the files of the server. It still opens
/// what it needs, and stops when it is asked to.
#[tokio::test]
async fn connections_leave_files_to_the_server() {
    let mut server = Server::under(&["sh", "-c", "ulimit -n 200; exec \"$@\"", "sh"]);
    server.tree().await;
    server.grant("funds", "acme", "10").await;
    let mut kept = connect(&server);
    assert!(ask(&mut kept, &server, "/healthz").starts_with("HTTP/1.1 200"));
    let open = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").count();
    let before = open();
    // From several addresses: one alone does not get all places.
    let mut silent = Vec::new();
    for number in 0..170 {
        silent.push(connect_from(&format!("127.0.0.{}", 2 + number % 3), &server).await);
    }
    // Half of the descriptors are for connections, and a few of these were there before.
    while open() < before + 90 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // History is read for the first time, so its file must be opened.
    let entries = ask(&mut kept, &server, "/v1/accounts/acme/entries");
    assert!(entries.starts_with("HTTP/1.1 200"), "{entries}");
    server.stop();
    drop(silent);
}

#[tokio::test]
async fn connections_of_one_address_leave_places_for_others() {
    let server = Server::under(&["sh", "-c", "ulimit -n 200; exec \"$@\"", "sh"]);
    let mut silent: Vec<TcpStream> = (0..300).map(|_| connect(&server)).collect();
    let mut other = connect_from("127.0.0.9", &server).await.into_std().expect("a socket");
    other.set_nonblocking(false).expect("a socket");
    assert!(ask(&mut other, &server, "/healthz").starts_with("HTTP/1.1 200"));
    // What came last was closed without an answer, and the first connections were kept.
    assert_eq!(read_to_end(silent.last_mut().expect("300 connections")), "");
    assert!(ask(&mut silent[0], &server, "/healthz").starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn the_soft_limit_of_files_is_raised_to_the_hard_one() {
    let limits = "ulimit -Sn 200; ulimit -Hn 4000; exec \"$@\"";
    let server = Server::under(&["sh", "-c", limits, "sh"]);
    let read = std::fs::read_to_string(format!("/proc/{}/limits", server.pid()));
    let read = read.expect("it runs");
    let files = read.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    assert_eq!(files.split_whitespace().nth(3), Some("4000"), "{files}");
}

#[tokio::test]
async fn when_too_much_is_in_flight_reads_are_shed_before_holds_and_holds_before_settlements() {
    let server = Server::configured("[limits]\nin_flight = 8\n", &["--clock", "manual"]);
    server.tree().await;
    server.grant("g", "acme", "1000").await;
    let charge = json!({ "method": "POST", "path": "/v1/charges",
        "body": { "account": "acme", "amount": "0.000001" } });
    let batch = json!({ "operations": vec![charge; 1000] });
    let (shed_reads, shed_changes) = (AtomicU32::new(0), AtomicU32::new(0));
    let is_over =
        || shed_reads.load(Ordering::Relaxed) >= 3 && shed_changes.load(Ordering::Relaxed) >= 3;
    // More batches than changes have places: all places of changes are taken again and again.
    let changes = async || {
        while !is_over() {
            let answer = server.call("POST", "/v1/batch", batch.clone()).await;
            if answer.status != 200 {
                answer.problem("unavailable");
                shed_changes.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let reads = async || {
        while !is_over() {
            let answer = server.call("GET", "/v1/accounts/acme", Value::Null).await;
            if answer.status != 200 {
                answer.problem("unavailable");
                shed_reads.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    // Metering is never shed by other traffic.
    let settlements = async || {
        for number in 0.. {
            if is_over() {
                break;
            }
            let path = format!("/v1/holds/none{number}/settle");
            let answer = server.call("POST", &path, json!({ "total": "0.5" })).await;
            answer.problem("not_found");
        }
    };
    let many = futures_util::future::join_all((0..8).map(|_| changes()));
    tokio::join!(many, reads(), settlements());
    server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200);
    server.until_metric("bursar_http_in_flight", |inside| inside == 0.0).await;
    server.call("GET", "/v1/accounts/acme", Value::Null).await.expect(200);
}

#[tokio::test]
async fn requests_whose_bodies_do_not_come_take_no_place() {
    let config = "[limits]\nin_flight = 8\n";
    let server = Server::configured(config, &["--clock", "manual"]);
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let hold = json!({ "id": "h", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    let mut stuck = Vec::new();
    let sign_in = "POST /v1/session HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                   content-length: 90\r\n\r\n{";
    for _ in 0..20 {
        let settle = post(&server, "/v1/holds/none/settle", 2);
        let batch = post(&server, "/v1/batch", 100) + "{";
        for request in [settle.as_str(), batch.as_str(), sign_in] {
            let mut stream = connect(&server);
            stream.write_all(request.as_bytes()).expect("it listens");
            stuck.push(stream);
        }
    }
    // All sixty have been seen, and none of them is in flight.
    server.until_metric("bursar_http_incomplete_bodies", |count| count == 60.0).await;
    server.until_metric("bursar_http_in_flight", |inside| inside == 0.0).await;
    server.call("GET", "/v1/accounts/acme", Value::Null).await.expect(200);
    server.call("POST", "/v1/holds", json!({ "account": "acme", "amount": "1" })).await.expect(201);
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "0.5" })).await.expect(200);
    drop(stuck);
    server.until_metric("bursar_http_incomplete_bodies", |count| count == 0.0).await;
}

#[tokio::test]
async fn without_a_key_a_body_is_small() {
    let server = Server::configured("", &["--clock", "manual"]);
    let key = "k".repeat(20_000);
    let answer = server.send("POST", "/v1/session", json!({ "key": key }), "", &[]).await;
    answer.problem("body_too_large");
}

#[tokio::test]
async fn text_of_callers_is_not_a_metric_label() {
    let server = Server::start();
    for number in 0..20 {
        let method = format!("BREW{number}");
        let path = format!("/v1/invented/{number}?x={number}");
        server.send(&method, &path, Value::Null, &server.root.clone(), &[]).await;
        server.send(&method, "/v1/holds", Value::Null, &server.root.clone(), &[]).await;
        server.call("GET", &format!("/v1/holds/h{number}"), Value::Null).await.problem("not_found");
    }
    let text = server.send("GET", "/metrics", Value::Null, "", &[]).await.expect(200);
    let text = text.as_str().expect("text");
    for invented in ["BREW", "invented", "h1"] {
        assert!(!text.contains(invented), "{invented} is in:\n{text}");
    }
    assert!(text.contains("method=\"other\""), "{text}");
}
