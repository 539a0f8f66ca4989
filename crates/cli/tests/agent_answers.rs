//! An agent and a server with arbitrary answers: no answer ends the agent,
//! and none of its state is lost.

#[path = "attempts/small_disk.rs"]
mod small_disk;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use bursar_api::Time;
use bursar_api::nodes::node::{Order, OrderType, Orders, Registration, RunSpec};
use serde_json::json;
use small_disk::SmallDisk;

const BURSAR: &str = env!("CARGO_BIN_EXE_bursar");
/// More than any agent reads of one answer.
const ENDLESS: usize = 512 << 20;

/// How a server answers.
enum Reply {
    /// These bytes, then the connection is closed.
    Raw(Vec<u8>),
    /// A status and a body.
    Body(u16, Vec<u8>),
    /// A body without end.
    Endless,
}

fn json_reply(value: &impl serde::Serialize) -> Reply {
    Reply::Body(200, serde_json::to_vec(value).expect("plain fields"))
}

/// A request and its connection.
struct ReceivedRequest {
    path: String,
    body: String,
    stream: TcpStream,
}

impl ReceivedRequest {
    /// Reads one request; every answer closes its connection.
    fn read(stream: TcpStream) -> Option<ReceivedRequest> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut first = String::new();
        reader.read_line(&mut first).ok()?;
        let path = first.split(' ').nth(1)?.to_owned();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        Some(ReceivedRequest { path, body: String::from_utf8_lossy(&body).into_owned(), stream })
    }

    /// Answers. Returns how many bytes of an endless body were read.
    fn answer(mut self, reply: Reply) -> usize {
        match reply {
            Reply::Raw(bytes) => {
                let _ = self.stream.write_all(&bytes);
                0
            }
            Reply::Body(status, body) => {
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n\
                     content-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = self.stream.write_all(head.as_bytes());
                let _ = self.stream.write_all(&body);
                0
            }
            Reply::Endless => {
                let head = "HTTP/1.1 200 X\r\nconnection: close\r\n\r\n[";
                let _ = self.stream.write_all(head.as_bytes());
                let piece = vec![b' '; 1 << 20];
                let mut taken = 0;
                while taken < ENDLESS && self.stream.write_all(&piece).is_ok() {
                    taken += piece.len();
                }
                taken
            }
        }
    }
}

/// A server that passes every request to the test.
fn listen() -> (String, Receiver<ReceivedRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (sender, asked): (Sender<ReceivedRequest>, Receiver<ReceivedRequest>) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            std::thread::spawn(move || {
                if let Some(asked) = ReceivedRequest::read(stream) {
                    let _ = sender.send(asked);
                }
            });
        }
    });
    (url, asked)
}

struct Agent(Child);

impl Agent {
    fn start(url: &str, state: &Path) -> Agent {
        let mut command = Command::new(BURSAR);
        command.args(["agent", "--server", url, "--region", "default", "--node", "n1"]);
        command.args(["--fake-gpus", "H100:1:80", "--workdir", "/", "--state"]).arg(state);
        command.env("BURSAR_KEY", "none").env("HOME", state).env("BURSAR_LOG", "off");
        command.stdin(Stdio::null());
        Agent(command.spawn().expect("the binary is there"))
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("it is our child").is_none()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn registration(store: &str) -> Registration {
    Registration {
        node: "n1".into(),
        incarnation: 1,
        heartbeat_seconds: 1,
        lease_seconds: 600,
        lease_until: Time::from_millis(0),
        store: Some(store.into()),
    }
}

fn order(kind: OrderType, attempt: &str, spec: Option<RunSpec>) -> Order {
    Order {
        kind,
        attempt: attempt.into(),
        job: Some("job_1".into()),
        spec,
        gpus: vec![],
        grace_seconds: Some(0),
        reason: None,
    }
}

fn run(command: &[&str]) -> RunSpec {
    RunSpec {
        account: "acme".into(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        ..RunSpec::default()
    }
}

fn orders(orders: Vec<Order>) -> Reply {
    json_reply(&Orders { orders, lease_until: Time::from_millis(0) })
}

/// Answers with no order.
fn no_orders() -> Reply {
    orders(vec![])
}

/// The next request that is not output; output is accepted.
fn next(asked: &Receiver<ReceivedRequest>) -> ReceivedRequest {
    loop {
        let one = asked.recv().expect("the server listens");
        if !one.path.ends_with("/logs") {
            return one;
        }
        one.answer(json_reply(&json!({ "next_offset": u64::MAX })));
    }
}

/// Answers heartbeats in one way until one satisfies the condition, and returns that one.
fn until(
    asked: &Receiver<ReceivedRequest>,
    said: impl Fn(&ReceivedRequest) -> bool,
    reply: impl Fn() -> Reply,
) -> String {
    loop {
        let beat = next(asked);
        if said(&beat) {
            let body = beat.body.clone();
            beat.answer(no_orders());
            return body;
        }
        beat.answer(reply());
    }
}

#[test]
fn no_answer_ends_an_agent() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let (url, asked) = listen();
    let mut agent = Agent::start(&url, &state);
    let html = b"<html>not found</html>".to_vec();
    let cut = b"HTTP/1.1 200 X\r\ncontent-length: 500\r\n\r\n{\"node\":".to_vec();
    let strange = [
        Reply::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Reply::Raw(cut),
        Reply::Body(404, html),
        Reply::Body(200, b"{\"node\": 7}".to_vec()),
        Reply::Body(200, vec![b'['; 100_000]),
        json_reply(&registration(&"x".repeat(5000))),
        // Names that would become paths of the agent's files.
        json_reply(&registration("a/../b")),
        json_reply(&registration("..")),
        json_reply(&registration("")),
        json_reply(&Registration { node: "n2".into(), ..registration("store") }),
        json_reply(&Registration { node: "n1/../n2".into(), ..registration("store") }),
        json_reply(&Registration { node: "n2".into(), store: None, ..registration("store") }),
    ];
    for reply in strange {
        let first = next(&asked);
        // A registration that is accepted is followed by a heartbeat.
        let registers = first.path == "/v1/nodes" || first.path.starts_with("/v1/nodes?");
        assert!(registers, "{}", first.path);
        first.answer(reply);
    }
    let last = next(&asked);
    assert!(!state.join("others").exists(), "none of them was accepted");
    assert!(!state.join("owner.json").exists(), "none of them was accepted");
    last.answer(json_reply(&registration("store")));

    // A job, so that there is something to lose. Orders repeat until they are done.
    let spec = run(&["sh", "-c", "echo ready; exec sleep 1000"]);
    let start = vec![order(OrderType::Start, "att_1", Some(spec))];
    let runs = |beat: &ReceivedRequest| beat.body.contains("running");
    until(&asked, runs, || orders(start.clone()));

    let endless = next(&asked).answer(Reply::Endless);
    assert!(endless < ENDLESS, "the agent read all of it");
    next(&asked).answer(no_orders());
    for body in [&b"\xff\xfe\0"[..], b"{\"orders\": [{}]}", b"", b"{\"orders\": 7}"] {
        next(&asked).answer(Reply::Body(200, body.to_vec()));
        next(&asked).answer(no_orders());
    }

    // Invalid orders, with invalid attempt ids.
    let long = "a".repeat(4000);
    let mut strange = Vec::new();
    for id in ["", ".", "..", "../../x", "a/b", "a\0b", &long, "att.1"] {
        for kind in [OrderType::Start, OrderType::Stop, OrderType::Kill, OrderType::Forget] {
            strange.push(order(kind, id, Some(run(&["true"]))));
        }
    }
    let mut hostile = run(&["true"]);
    hostile.env = [("A=B".to_owned(), "x".to_owned())].into();
    hostile.memory_gib = Some(u32::MAX);
    hostile.cpus = Some(u32::MAX);
    strange.push(order(OrderType::Start, "att_2", Some(hostile)));
    strange.push(order(OrderType::Start, "att_3", Some(run(&["a\0b"]))));
    strange.push(order(OrderType::Start, "att_4", None));

    // The attempts with valid ids have failed, the job still runs, and the agent reports both.
    let failed = |beat: &ReceivedRequest| {
        assert!(runs(beat), "{}", beat.body);
        beat.body.matches("failed").count() == 3
    };
    let report = until(&asked, failed, || orders(strange.clone()));
    for id in ["att_1", "att_2", "att_3", "att_4", "cannot be the name of a variable"] {
        assert!(report.contains(id), "{report}");
    }
    let kill = vec![order(OrderType::Kill, "att_1", None)];
    until(&asked, |beat| !runs(beat), || orders(kill.clone()));
    assert!(agent.is_running());
    let kept = std::fs::read_dir(state.join("attempts")).expect("it is there");
    assert_eq!(kept.count(), 4, "one folder for each attempt, and no other");
}

#[test]
fn an_agent_with_a_full_disk_keeps_reporting() {
    // Only root can mount a disk.
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    let disk = SmallDisk::new();
    let (url, asked) = listen();
    let mut agent = Agent::start(&url, &disk.path().join("state"));
    next(&asked).answer(json_reply(&registration("store")));
    let start = vec![order(OrderType::Start, "att_1", Some(run(&["sleep", "1000"])))];
    let runs = |beat: &ReceivedRequest| beat.body.contains("running");
    until(&asked, runs, || orders(start.clone()));
    disk.fill();
    // It keeps reporting. A new attempt has failed, which is reported when there is free space.
    let more = vec![order(OrderType::Start, "att_2", Some(run(&["true"])))];
    for _ in 0..5 {
        let beat = next(&asked);
        assert!(runs(&beat), "{}", beat.body);
        beat.answer(orders(more.clone()));
    }
    std::fs::remove_file(disk.path().join("filler")).expect("there");
    let over = |beat: &ReceivedRequest| beat.body.contains("att_2");
    let report = until(&asked, over, || orders(more.clone()));
    assert!(report.contains("running") && report.contains("failed"), "{report}");
    let kill = vec![order(OrderType::Kill, "att_1", None)];
    until(&asked, |beat| !runs(beat), || orders(kill.clone()));
    assert!(agent.is_running());
}

#[test]
fn an_agent_goes_on_to_the_next_server_when_one_does_not_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let ((first, of_first), (second, of_second)) = (listen(), listen());
    let mut agent = Agent::start(&format!("{first},{second}"), folder.path());
    // The first cuts the connection.
    let asked = next(&of_first);
    assert_eq!(asked.path, "/v1/nodes");
    asked.answer(Reply::Raw(vec![]));
    let asked = next(&of_second);
    assert_eq!(asked.path, "/v1/nodes");
    asked.answer(json_reply(&registration("store_1")));
    let seq = |beat: &ReceivedRequest| {
        let body: serde_json::Value = serde_json::from_str(&beat.body).expect("JSON");
        assert_eq!(body["incarnation"], 1, "it is still registered: {body}");
        body["seq"].as_u64().expect("a number")
    };
    // It stays with a server that answers.
    let mut last = 0;
    for _ in 0..3 {
        let beat = next(&of_second);
        assert!(seq(&beat) > last, "{}", beat.body);
        last = seq(&beat);
        beat.answer(no_orders());
    }
    // It goes on, and back, without registering again.
    for (from, to) in [(&of_second, &of_first), (&of_first, &of_second), (&of_second, &of_first)] {
        let beat = next(from);
        assert!(beat.path.contains("/heartbeat") && seq(&beat) > last, "{}", beat.body);
        last = seq(&beat);
        let standby = json!({
            "type": "about:blank", "title": "unavailable", "status": 503, "detail": "standby",
            "code": "unavailable", "retryable": true, "request_id": "req_1"
        });
        beat.answer(match std::ptr::eq(from, &of_first) {
            true => Reply::Raw(vec![]),
            false => Reply::Body(503, serde_json::to_vec(&standby).expect("plain fields")),
        });
        let beat = next(to);
        assert!(beat.path.contains("/heartbeat") && seq(&beat) > last, "{}", beat.body);
        last = seq(&beat);
        beat.answer(no_orders());
    }
    assert!(agent.is_running());
}

#[test]
fn an_agent_names_an_empty_address_in_its_list_of_servers() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = Command::new(BURSAR)
        .args(["agent", "--server", "http://127.0.0.1:1,,http://127.0.0.1:2", "--node", "n1"])
        .args(["--fake-gpus", "H100:1:80", "--state"])
        .arg(folder.path())
        .env("BURSAR_KEY", "none")
        .env("HOME", folder.path())
        .output()
        .expect("the binary is there");
    assert_eq!(agent.status.code(), Some(2));
    let said = String::from_utf8_lossy(&agent.stderr);
    assert!(said.contains("an address is empty"), "{said}");
}
