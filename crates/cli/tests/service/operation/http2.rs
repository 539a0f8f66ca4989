//! HTTP/2 clients that abuse the protocol, in frames written by hand.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::server::Server;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
/// Flags of frames: an acknowledgement has that of an end of a stream.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The settings of a client that takes so many bytes of each answer.
fn settings(window: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat())
}

/// The header block of a GET.
fn get(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("a short path");
    [&[0x82, 0x86, 0x01, 1, b'x', 0x04, length][..], path.as_bytes()].concat()
}

fn connect(server: &Server, window: u32) -> TcpStream {
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    // Only to fail instead of hanging.
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a plain socket");
    stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a plain socket");
    stream.write_all(&[PREFACE, &settings(window)[..]].concat()).expect("it listens");
    stream
}

/// The kind, flags and payload of the next frame; `None` once the connection has ended.
fn next(stream: &mut TcpStream) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    let mut payload = Vec::new();
    let read = stream.read_exact(&mut head).and_then(|()| {
        payload.resize(usize::from(head[1]) << 8 | usize::from(head[2]), 0);
        stream.read_exact(&mut payload)
    });
    match read {
        Ok(()) => Some((head[3], head[4], payload)),
        Err(error) => {
            let ended = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            assert!(ended.contains(&error.kind()), "it stayed open: {error}");
            None
        }
    }
}

#[tokio::test]
async fn a_client_that_reads_no_answer_loses_its_connection_although_it_is_alive() {
    let server = Server::configured("[timeouts]\nwrite_ms = 300\n", &["--clock", "manual"]);
    for window in [0, 1] {
        let mut stream = connect(&server, window);
        let ask = frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/openapi.json"));
        stream.write_all(&ask).expect("it listens");
        let (mut answers, mut bytes) = (0, 0);
        while let Some((kind, flags, payload)) = next(&mut stream) {
            let reply = match kind {
                SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[]),
                PING if flags & ACK == 0 => frame(PING, ACK, 0, &payload),
                _ => Vec::new(),
            };
            answers += u32::from(kind == HEADERS);
            bytes += if kind == DATA { payload.len() } else { 0 };
            if stream.write_all(&reply).is_err() {
                break;
            }
        }
        assert_eq!((answers, bytes), (1, window as usize), "no more than it takes");
    }
    server.call("GET", "/v1/accounts", Value::Null).await.expect(200);
}

#[tokio::test]
async fn streams_that_are_reset_at_once_leave_nothing_behind() {
    let server = Server::start();
    let mut stream = connect(&server, 65_535);
    let block = get("/v1/accounts");
    for round in 0..100u32 {
        let pair = |number: u32| {
            let stream = 2 * (round * 100 + number) + 1;
            let open = frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
            [open, frame(RESET, 0, stream, &8u32.to_be_bytes())].concat()
        };
        let flood: Vec<u8> = (0..100).flat_map(pair).collect();
        if stream.write_all(&flood).is_err() {
            // The server has had enough.
            break;
        }
    }
    server.until_metric("bursar_http_in_flight", |inside| inside == 0.0).await;
    server.call("GET", "/v1/accounts", Value::Null).await.expect(200);
}

#[tokio::test]
async fn headers_that_do_not_end_end_the_connection() {
    const FRAMES: u32 = 4096;
    let server = Server::start();
    let mut stream = connect(&server, 65_535);
    stream.write_all(&frame(HEADERS, END_STREAM, 1, &get("/healthz"))).expect("it listens");
    // A header of 120 bytes, a hundred times.
    let header = [&[0, 4][..], b"name", &[114], &[b'x'; 114]].concat();
    let more = frame(CONTINUATION, 0, 1, &header.repeat(100));
    let sent = (0..FRAMES).take_while(|_| stream.write_all(&more).is_ok()).count();
    assert!(sent < FRAMES as usize, "{} MiB of headers were taken", (sent * more.len()) >> 20);
    server.call("GET", "/v1/accounts", Value::Null).await.expect(200);
}
