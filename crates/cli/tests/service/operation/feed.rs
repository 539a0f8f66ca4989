//! The feed of events and the audit trail.

use bursar_journal::merkle::{InclusionProof, SignedCheckpoint, Verifier};
use serde_json::{Value, json};

use crate::server::Server;

/// Reads events off a stream until `count` have come.
pub(crate) async fn events(
    server: &Server,
    key: &str,
    path: &str,
    last: Option<&str>,
    count: usize,
) -> Vec<Value> {
    events_until(server, key, path, last, |found| found.len() >= count).await
}

/// Reads events off a stream until those that have come are enough.
async fn events_until(
    server: &Server,
    key: &str,
    path: &str,
    last: Option<&str>,
    is_enough: impl Fn(&[Value]) -> bool,
) -> Vec<Value> {
    let mut request = server.client.get(format!("{}{path}", server.url)).bearer_auth(key);
    if let Some(last) = last {
        request = request.header("Last-Event-ID", last);
    }
    let mut stream = request.send().await.expect("the server is there");
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut found = Vec::new();
    while !is_enough(&found) {
        let chunk = stream.chunk().await.expect("no error").expect("the stream goes on");
        text.push_str(std::str::from_utf8(&chunk).expect("text"));
        while let Some((event, rest)) = text.split_once("\n\n") {
            let data = event.lines().find_map(|line| line.strip_prefix("data: "));
            found.extend(data.map(|data| serde_json::from_str::<Value>(data).expect("JSON")));
            text = rest.to_owned();
        }
    }
    found
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().expect("a type")).collect()
}

#[tokio::test]
async fn events_go_on_behind_the_last_one_that_was_seen_also_after_a_restart() {
    let mut server = Server::start();
    server.open("acme", "org").await;
    server.open("umbra", "org").await;
    server.grant("g", "acme", "10").await;
    let charge = json!({ "account": "acme", "amount": "1" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    let root = server.root.clone();
    let all = events(&server, &root, "/v1/events?after=0", None, 4).await;
    let expected = ["account_opened", "account_opened", "grant_issued", "charged"];
    assert_eq!(kinds(&all), expected);
    assert_eq!(all[3]["data"]["amount"], "1");
    let second = all[1]["id"].as_str().expect("an id");
    let rest = events(&server, &root, "/v1/events", Some(second), 2).await;
    assert_eq!(rest, all[2..]);
    let scoped = server.key("viewer", "acme").await;
    let own = events(&server, &scoped, "/v1/events?after=0", None, 3).await;
    assert_eq!(kinds(&own), ["account_opened", "grant_issued", "charged"]);
    server.crash_and_restart(&["--clock", "manual"]);
    let again = events(&server, &root, "/v1/events?after=0", None, 4).await;
    assert_eq!(again, all, "older events come from the journal");
    server.call("GET", "/v1/events?after=nonsense", Value::Null).await.problem("invalid_field");
}

/// A year in which numbers of holds are used again and again, and most is forgotten.
async fn a_year(server: &Server) {
    server.tree().await;
    server.grant("g", "acme", "1000").await;
    for month in 0..12 {
        for number in 0..3 {
            let id = format!("h{month}.{number}");
            let account = ["acme", "acme:nlp", "acme:vision"][number];
            let hold = json!({ "id": id, "account": account, "amount": "3", "ttl_seconds": 86400 });
            server.call("POST", "/v1/holds", hold).await.expect(201);
            let capture = json!({ "total": "1" });
            server.call("POST", &format!("/v1/holds/{id}/capture"), capture).await.expect(200);
        }
        let end = format!("/v1/holds/h{month}.1/settle");
        server.call("POST", &end, json!({ "total": "2" })).await.expect(200);
        let charge = json!({ "id": format!("c{month}"), "account": "acme", "amount": "1" });
        server.call("POST", "/v1/charges", charge).await.expect(201);
        let refund = json!({ "charge": format!("c{month}"), "amount": "0.5" });
        server.call("POST", "/v1/refunds", refund).await.expect(201);
        let operations: Vec<Value> = [0, 2]
            .map(|number| {
                json!({
                    "method": "POST", "path": format!("/v1/holds/h{month}.{number}/release"),
                    "body": {}
                })
            })
            .into();
        let batch = json!({ "operations": operations, "atomic": true });
        server.call("POST", "/v1/batch", batch).await.expect(200);
        server.advance(40 * 86_400).await;
    }
    server.open("the-end", "org").await;
}

#[tokio::test]
async fn old_events_are_the_same_as_when_they_were_new() {
    let mut server = Server::start();
    let root = server.root.clone();
    let live = {
        let is_over = |found: &[Value]| {
            found.last().is_some_and(|event: &Value| event["account"] == "the-end")
        };
        let follow = events_until(&server, &root, "/v1/events?after=0", None, is_over);
        tokio::join!(follow, a_year(&server)).0
    };
    assert!(live.len() > 100, "{} events", live.len());
    assert!(live.iter().all(|event| event["data"]["hold"] != ""), "{live:?}");
    server.crash_and_restart(&["--clock", "manual"]);
    let all = |last: Option<String>, count: usize| {
        let server = &server;
        let root = root.clone();
        async move { events(server, &root, "/v1/events?after=0", last.as_deref(), count).await }
    };
    // Eight at once, each with its own start.
    let places = [0, 1, 9, 17, 30, 77, 100, live.len() - 2];
    let reads = places.map(|place| {
        let last = live[place]["id"].as_str().map(str::to_owned);
        all(last, live.len() - place - 1)
    });
    for (place, received) in places.into_iter().zip(futures_util::future::join_all(reads).await) {
        assert_eq!(received, live[place + 1..], "behind {place}");
    }
    assert_eq!(all(None, live.len()).await, live);
    let scoped = server.key("viewer", "acme:vision").await;
    let own = |event: &&Value| event["account"] == "acme:vision";
    let wanted: Vec<Value> = live.iter().filter(own).cloned().collect();
    let received = events(&server, &scoped, "/v1/events?after=0", None, wanted.len()).await;
    assert_eq!(received, wanted);
}

#[tokio::test]
async fn a_cursor_of_the_feed_that_no_event_has_is_refused() {
    let server = Server::start();
    server.open("acme", "org").await;
    for cursor in [
        "evt_18446744073709551615_4294967295",
        "evt_9223372036854775807_0",
        "evt_000000999999_0000",
        "evt_1_99999999999",
        "evt_-1_0",
        "-1",
        "18446744073709551616",
    ] {
        let path = format!("/v1/events?after={cursor}");
        let refused = server.call("GET", &path, Value::Null).await.problem("invalid_field");
        assert_eq!(refused["param"], "after", "{cursor}");
        let last = [("Last-Event-ID", cursor)];
        let root = server.root.clone();
        let refused = server.send("GET", "/v1/events", Value::Null, &root, &last).await;
        refused.problem("invalid_field");
    }
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex").as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hex digit") as u8;
    hex.chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
}

#[tokio::test]
async fn the_audit_trail_says_who_asked_and_can_be_proven_offline() {
    let server = Server::start();
    server.tree().await;
    let auditor = server.key("auditor", "*").await;
    let submitter = server.key("submitter", "acme").await;
    let charge = json!({ "account": "acme", "amount": "1" });
    server
        .send("POST", "/v1/charges", charge, &submitter, &[])
        .await
        .problem("insufficient_credits");
    let path = "/v1/audit?account=acme&limit=1";
    let page = server.send("GET", path, Value::Null, &auditor, &[]).await.expect(200);
    let record = &page["data"][0];
    assert_eq!(record["command"], "charge");
    assert_eq!(record["refusal"], "insufficient_credits");
    assert!(record["actor"].as_str().is_some_and(|actor| actor.starts_with("key_")));
    let position = record["position"].as_u64().expect("a position");
    let path = format!("/v1/audit/proof?position={position}");
    let proof = server.send("GET", &path, Value::Null, &auditor, &[]).await.expect(200);
    let signed = SignedCheckpoint::from_bytes(&bytes(&proof["checkpoint"]["signed"]));
    let signed = signed.expect("a checkpoint");
    let key: [u8; 32] =
        bytes(&proof["checkpoint"]["public_key"]).try_into().expect("thirty-two bytes");
    let key = ed25519_dalek::VerifyingKey::from_bytes(&key).expect("a key");
    let verifier = Verifier::new(signed.checkpoint.journal, key);
    verifier.checkpoint(&signed).expect("signed by the server");
    let path = proof["path"].as_array().expect("a list").iter();
    let path = path.map(|hash| bursar_core::digest::Digest(bytes(hash).try_into().expect("32")));
    let inclusion = InclusionProof { path: path.collect() };
    let mut frame = bytes(&proof["frame"]);
    verifier.inclusion(&signed, position, &frame, &inclusion).expect("the record is there");
    frame[10] ^= 1;
    assert!(verifier.inclusion(&signed, position, &frame, &inclusion).is_err());
}
