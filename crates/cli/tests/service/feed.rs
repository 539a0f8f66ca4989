//! The feed of events and the audit trail.

use bursar_journal::merkle::{InclusionProof, SignedCheckpoint, Verifier};
use serde_json::{Value, json};

use crate::server::Server;

/// Reads events off a stream until `count` have come.
async fn events(
    server: &Server,
    key: &str,
    path: &str,
    last: Option<&str>,
    count: usize,
) -> Vec<Value> {
    let mut request = server.client.get(format!("{}{path}", server.url)).bearer_auth(key);
    if let Some(last) = last {
        request = request.header("Last-Event-ID", last);
    }
    let mut stream = request.send().await.expect("the server is there");
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut found = Vec::new();
    while found.len() < count {
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
