//! The proxy cuts, holds and loses what it is asked to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use bursar_testkit::faults::{CutPoint, FaultProxy, Passage};

const READY: &[u8] = b"Z\0\0\0\x05I";

/// A message of a client.
fn frame(kind: &str, body: &str) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [kind.as_bytes(), &length, body.as_bytes()].concat()
}

/// What a client sends before its first request.
fn opening() -> Vec<u8> {
    let text = "INSERT INTO bursar_batch SELECT FROM bursar_head";
    [
        frame("", "\0\x03\0\0user\0bursar\0\0"),
        frame("P", &format!("s0\0{text}\0\0\0")),
        frame("S", ""),
    ]
    .concat()
}

fn append() -> Vec<u8> {
    [frame("B", "\0s0\0\0\0\0\0\0\0"), frame("E", "\0\0\0\0\0"), frame("S", "")].concat()
}

/// A database with one connection: it is ready at the start and after every request. What it read comes out when the
/// connection has ended.
fn database() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (ended, seen) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("it listens");
            let (mut all, mut bytes, mut answered) = (Vec::new(), [0; 1024], 0);
            // A cut looks like an end or an error.
            while let Ok(read @ 1..) = stream.read(&mut bytes) {
                all.extend_from_slice(&bytes[..read]);
                let synced = all.windows(5).filter(|found| *found == b"S\0\0\0\x04").count();
                for _ in answered..=synced {
                    // The other side may have gone.
                    let _ = stream.write_all(READY);
                }
                answered = synced + 1;
            }
            // The test may have ended.
            let _ = ended.send(all);
        }
    });
    (address, seen)
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.address()).expect("it listens");
    client.write_all(&opening()).expect("it passes");
    let mut ready = [0; 12];
    client.read_exact(&mut ready).expect("it passes");
    client
}

/// What the client still gets until its connection ends.
fn rest(mut client: TcpStream) -> usize {
    let mut bytes = [0; 1024];
    let mut all = 0;
    while let Ok(read @ 1..) = client.read(&mut bytes) {
        all += read;
    }
    all
}

#[test]
fn a_request_is_cut_before_its_end() {
    let (address, seen) = database();
    let proxy = FaultProxy::postgres(address).expect("a port is free");
    for thousandths in [0, 500, 1000] {
        let mut client = connect(&proxy);
        proxy.cut_next_append(CutPoint::Request(thousandths));
        client.write_all(&append()).expect("it is read");
        assert_eq!(rest(client), 0, "an answer to half a request");
        let passed = seen.recv().expect("the connection ended").len() - opening().len();
        let cut = *proxy.cuts().last().expect("it was cut");
        assert_eq!((cut.passed, cut.length), (passed, append().len()));
        assert!(passed < append().len());
        assert_eq!(passed == 0, thousandths == 0);
    }
}

#[test]
fn an_answer_is_cut_where_it_was_asked() {
    let (address, seen) = database();
    let proxy = FaultProxy::postgres(address).expect("a port is free");
    for (thousandths, passed) in [(0, 0), (500, 3), (1000, 6)] {
        let mut client = connect(&proxy);
        client.write_all(&append()).expect("it is read");
        client.read_exact(&mut [0; 6]).expect("nothing is cut unasked");
        proxy.cut_next_append(CutPoint::Answer(thousandths));
        client.write_all(&append()).expect("it is read");
        assert_eq!(rest(client), passed);
        let whole = opening().len() + 2 * append().len();
        assert_eq!(seen.recv().expect("the connection ended").len(), whole);
    }
}

#[test]
fn a_late_request_arrives_after_the_cut() {
    let (address, seen) = database();
    let proxy = FaultProxy::postgres(address).expect("a port is free");
    let mut client = connect(&proxy);
    proxy.cut_next_append(CutPoint::Late);
    client.write_all(&append()).expect("it is read");
    assert_eq!(rest(client), 0);
    assert!(seen.try_recv().is_err(), "the database's connection goes on");
    assert_eq!(proxy.deliver_late(), 1);
    let whole = opening().len() + append().len();
    assert_eq!(seen.recv().expect("the connection ended").len(), whole);
}

#[test]
fn held_bytes_pass_later_and_lost_ones_do_not() {
    let (address, seen) = database();
    let proxy = FaultProxy::plain(address).expect("a port is free");
    let mut client = connect(&proxy);
    proxy.set_passage(Passage::Held);
    client.write_all(&append()).expect("it is read");
    proxy.set_passage(Passage::Open);
    client.read_exact(&mut [0; 6]).expect("it passes");
    proxy.set_passage(Passage::Lost);
    client.write_all(&append()).expect("it is read");
    let other = TcpStream::connect(proxy.address()).expect("it listens");
    proxy.set_passage(Passage::Open);
    drop(client);
    drop(other);
    proxy.cut_all();
    let read = seen.recv().expect("the connection ended").len();
    assert!(read >= opening().len() + append().len());
}
