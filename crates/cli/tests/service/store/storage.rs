//! What clients see when the disk is full, and when the outcome of a write is unknown.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Answer, Server, read};

/// A file system of two megabytes that only the server sees and that ends with it.
const SMALL_DISK: [&str; 6] = [
    "unshare",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    "mount -t tmpfs -o size=2m tmpfs \"$0\" && exec \"$@\"",
];

async fn place(server: &Server, number: u32) -> Answer {
    let body = json!({ "id": format!("hold-{number}"), "account": "acme", "amount": "0.5" });
    let key = format!("key-{number}");
    server.send("POST", "/v1/holds", body, &server.root, &[("idempotency-key", &key)]).await
}

/// Repeats a request until `ready` accepts the answer.
async fn until<F: Future<Output = Answer>>(
    what: &str,
    ask: impl Fn() -> F,
    ready: impl Fn(&Answer) -> bool,
) -> Answer {
    for _ in 0..1_000 {
        let answer = ask().await;
        if ready(&answer) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited in vain until {what}");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_goes_on_reading_and_recovers_by_itself() {
    let mut wrapper = SMALL_DISK.to_vec();
    wrapper.push("{}");
    let mut server = Server::under(&wrapper);
    server.open("acme", "org").await;
    server.grant("grant", "acme", "1000000").await;
    let filler = server.data_inside().join("filler");
    let mut file = File::create_new(&filler).expect("there is space");
    while file.write_all(&[0; 512]).is_ok() {}
    drop(file);

    let mut placed = 0;
    let refused = loop {
        let answer = place(&server, placed).await;
        if answer.status != 201 {
            break answer;
        }
        placed += 1;
        assert!(placed < 5_000, "the disk did not fill up");
    };
    let problem = refused.problem("storage_full");
    assert_eq!(problem["status"], 503);
    let read = || server.call("GET", "/v1/accounts/acme/balance", Value::Null);
    let balance = until("reads go on", read, |answer| answer.status == 200).await.body;
    let held = f64::from(placed) * 0.5;
    assert_eq!(balance["held"].as_str().and_then(|text| text.parse().ok()), Some(held));
    place(&server, placed).await.problem("storage_full");

    std::fs::remove_file(&filler).expect("it is there");
    let again = || place(&server, placed);
    until("there is space", again, |answer| answer.status == 201).await;
    let balance = server.get("/v1/accounts/acme/balance").await;
    assert_eq!(balance["held"].as_str().and_then(|text| text.parse().ok()), Some(held + 0.5));
    // History was on the same disk, and catches up.
    let last = format!("/v1/holds/hold-{placed}");
    assert_eq!(server.get(&last).await["state"], "open");
    let entries = || server.call("GET", "/v1/accounts/acme/entries?limit=1", Value::Null);
    until("history has the last hold", entries, |answer| {
        answer.body["data"][0]["hold"] == format!("hold-{placed}")
    })
    .await;
    // Its disk is gone with the server.
    server.rehearse_inside();
}

#[tokio::test]
async fn a_failed_sync_leaves_the_outcome_unknown_and_a_repeat_after_a_restart_settles_it() {
    // The fortieth sync of any thread fails, and all later ones: no start makes as many.
    let mut server = Server::under(&[
        "strace",
        "--daemonize",
        "--follow-forks",
        "--output=/dev/null",
        "--trace=fsync,fdatasync",
        "--inject=fsync,fdatasync:error=EIO:when=40+",
    ]);
    server.open("acme", "org").await;
    server.grant("grant", "acme", "1000").await;
    let mut number = 0;
    let unknown = loop {
        let answer = place(&server, number).await;
        if answer.status != 201 {
            break answer;
        }
        number += 1;
        assert!(number < 100, "no write failed");
    };
    let problem = unknown.problem("outcome_unknown");
    assert_eq!(problem["status"], 503);
    // Nothing is written or served any more. The ledger cannot be rebuilt, so the process ends soon.
    let next = json!({ "id": "next", "account": "acme", "amount": "0.5" });
    let requests = [
        server.client.post(format!("{}/v1/holds", server.url)).json(&next),
        server.client.get(format!("{}/v1/accounts/acme/balance", server.url)),
    ];
    for request in requests {
        match request.bearer_auth(&server.root).send().await {
            Ok(answer) => drop(read(answer).await.problem("unavailable")),
            Err(gone) => assert!(gone.is_connect() || gone.is_request(), "{gone:?}"),
        }
    }

    server.crash_and_restart(&[]);
    place(&server, number).await.expect(201);
    let balance = server.get("/v1/accounts/acme/balance").await;
    let held = f64::from(number + 1) * 0.5;
    assert_eq!(balance["held"].as_str().and_then(|text| text.parse().ok()), Some(held));
}

#[test]
fn a_new_server_on_a_full_disk_says_so_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().to_str().expect("a plain path");
    let full = "mount -t tmpfs -o size=64k tmpfs \"$0\" && exec \"$@\"";
    let ended = std::process::Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", full, place])
        .arg(env!("CARGO_BIN_EXE_bursar"))
        .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data", place])
        .env("BURSAR_LOG", "error")
        .output()
        .expect("it is there");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains("the disk is full") && said.contains(place), "{said}");
    assert!(said.contains("Free some space"), "{said}");
}
