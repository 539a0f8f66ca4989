//! Traces: requests join the trace of their caller, and a collector receives it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::json;

use crate::server::Server;

/// A collector of traces: the bodies that it was sent.
fn collector() -> (String, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut length = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).expect("a header");
                let line = line.trim_end().to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).expect("the body");
            // Before the answer: the process may end with it.
            if sender.send(body).is_err() {
                return;
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.get_mut().write_all(answer).expect("the answer");
        }
    });
    (url, received)
}

fn has(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn a_request_joins_the_trace_of_its_caller_and_says_what_it_waited_for() {
    let (url, received) = collector();
    let server = Server::with(&["--clock", "manual", "--otlp-endpoint", &url]);
    let root = server.root.clone();
    let account = |id: &str| json!({ "id": id, "kind": "org" });
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let sent = [("traceparent", trace), ("idempotency-key", "a")];
    server.send("POST", "/v1/accounts", account("acme"), &root, &sent).await.expect(201);
    // The caller did not sample this one: it is not sent.
    let trace = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-00f067aa0ba902b7-00";
    let sent = [("traceparent", trace), ("idempotency-key", "b")];
    server.send("POST", "/v1/accounts", account("beta"), &root, &sent).await.expect(201);
    // What is left is sent at the end of the process.
    assert_eq!(server.terminate().code(), Some(0));
    let body: Vec<u8> = received.try_iter().flatten().collect();
    let id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
    assert!(has(&body, &id), "the trace of the caller");
    assert!(has(&body, &0x00f0_67aa_0ba9_02b7_u64.to_be_bytes()), "its span is the parent");
    for name in ["request", "decide", "Ledger", "/v1/accounts"] {
        assert!(has(&body, name.as_bytes()), "{name}");
    }
    assert!(!has(&body, &[0xaa; 16]), "a trace that was not sampled");
    assert!(!has(&body, root.as_bytes()), "keys are not sent");
}
