//! No single request stops or stalls a machine.

use std::process::{Command, Stdio};

use bursar_core::ledger::event::Event;
use bursar_core::ledger::id::HoldNo;
use serde_json::{Value, json};

use crate::operation::self_check::write_behind;
use crate::server::Server;

fn operation(path: &str, body: Value) -> Value {
    json!({ "method": "POST", "path": path, "body": body })
}

async fn assert_all_serve(server: &Server) {
    let ready = server.send("GET", "/readyz", Value::Null, "", &[]).await.expect(200);
    assert_eq!(ready["ready"], true, "{ready}");
    let metrics = server.send("GET", "/metrics", Value::Null, "", &[]).await.expect(200);
    let metrics = metrics.as_str().expect("text").to_owned();
    assert!(metrics.contains("bursar_machine_panics_total{machine=\"Ledger\"} 0"), "{metrics}");
}

#[tokio::test]
async fn no_cursor_makes_a_machine_count_too_far() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let hold = json!({ "id": "h", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    for number in [u64::MAX, u64::MAX - 1, 1 << 63] {
        let path = format!("/v1/regions/default/queue?cursor=after:{number}");
        assert_eq!(server.get(&path).await["data"], json!([]), "{number}");
    }
    for cursor in ["7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "7ZZZZZZZZZZZZZZZZZZZZZZZZY"] {
        let path = format!("/v1/holds/h/lots?cursor={cursor}");
        assert_eq!(server.get(&path).await["data"], json!([]), "{cursor}");
        for list in ["holds", "jobs", "grants", "accounts", "charges", "keys", "nodes"] {
            let path = format!("/v1/{list}?cursor={cursor}");
            let answer = server.call("GET", &path, Value::Null).await;
            assert!(answer.status < 500, "{path}: {}", answer.status);
        }
    }
    for after in ["evt_18446744073709551615_4294967295", "evt_18446744073709551616_0"] {
        let path = format!("/v1/audit?after={after}");
        let answer = server.call("GET", &path, Value::Null).await;
        assert!(answer.status < 500, "{path}: {}", answer.status);
    }
    for position in [u64::MAX, i64::MAX as u64] {
        let path = format!("/v1/audit/proof?position={position}");
        server.call("GET", &path, Value::Null).await.problem("not_found");
        let path = format!("/v1/audit?after={position}");
        assert_eq!(server.get(&path).await["data"], json!([]));
    }
    assert_all_serve(&server).await;
}

fn array(id: &str, count: u32, command: &str) -> Value {
    json!({ "id": id, "account": "acme", "gpus": { "types": ["H100"], "count": 1 },
            "max_runtime_seconds": 60, "array": count, "command": ["sh", "-c", command] })
}

#[tokio::test]
async fn an_array_is_bounded_as_a_whole_and_so_is_a_batch_of_arrays() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "1000000").await;
    let price = json!({ "per_gpu_hour": "1" });
    server.call("PUT", "/v1/prices/H100", price).await.expect(200);
    let long = "x".repeat(30_000);
    let refused = server.call("POST", "/v1/jobs", array("long", 1000, &long)).await;
    let problem = refused.problem("invalid_field");
    assert_eq!(problem["param"], "array");
    assert!(problem["detail"].as_str().is_some_and(|d| d.contains("8 MiB")), "{problem}");
    let mut env = array("env", 1000, "true");
    env["env"] = json!({ "A": long });
    server.call("POST", "/v1/jobs", env).await.problem("invalid_field");
    // As many with what most jobs say, and a few with a long command.
    server.call("POST", "/v1/jobs", array("usual", 1000, "train.sh")).await.expect(201);
    server.call("POST", "/v1/jobs", array("few", 50, &long)).await.expect(201);
    // Each of a thousand would wait for each of a thousand.
    let mut waits = array("waits", 1000, "true");
    waits["after"] = json!(["usual"]);
    let problem = server.call("POST", "/v1/jobs", waits).await.problem("invalid_field");
    assert_eq!(problem["param"], "after");
    let mut waits = array("waits", 10, "true");
    waits["after"] = json!(["usual"]);
    server.call("POST", "/v1/jobs", waits).await.expect(201);

    let many: Vec<Value> =
        (0..150).map(|n| operation("/v1/jobs", array(&format!("a{n}"), 1000, "true"))).collect();
    let batch = json!({ "atomic": true, "operations": many });
    let problem = server.call("POST", "/v1/batch", batch).await.problem("invalid_field");
    assert!(problem["detail"].as_str().is_some_and(|d| d.contains("without atomic")), "{problem}");
    let two = json!({ "atomic": true, "operations": [
        operation("/v1/jobs", array("b1", 400, "true")),
        operation("/v1/jobs", array("b2", 400, "true")),
    ]});
    server.call("POST", "/v1/batch", two).await.expect(200);
    assert_all_serve(&server).await;
}

#[tokio::test]
async fn operations_of_batches_have_a_bucket_of_their_own() {
    let server = Server::configured("[limits]\noperations = 100\n", &[]);
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let key = server.key("admin", "acme").await;
    let charge = operation("/v1/charges", json!({ "account": "acme", "amount": "0.000001" }));
    let batch = |count| json!({ "operations": vec![charge.clone(); count] });
    server.send("POST", "/v1/batch", batch(200), &key, &[]).await.expect(200);
    let mut limited = 0;
    for _ in 0..20 {
        let answer = server.send("POST", "/v1/batch", batch(200), &key, &[]).await;
        limited += u32::from(answer.status == 429);
    }
    assert!(limited > 0, "the burst is 200");
    let never = server.send("POST", "/v1/batch", batch(201), &key, &[]).await;
    never.problem("invalid_field");
    // Root is exempt, and requests have another bucket.
    server.call("POST", "/v1/batch", batch(500)).await.expect(200);
    server.send("GET", "/v1/accounts/acme", Value::Null, &key, &[]).await.expect(200);
}

#[tokio::test]
async fn records_of_usage_have_a_bucket_of_their_own() {
    let server = Server::configured("[limits]\noperations = 100\n", &[]);
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let (key, other) =
        (server.key("submitter", "acme").await, server.key("submitter", "umbra").await);
    let record = json!({ "job": "none", "seq": 1, "gpu_ms_total": 1 });
    let report = |count| json!({ "records": vec![record.clone(); count] });
    server.send("POST", "/v1/usage", report(200), &key, &[]).await.expect(200);
    let mut limited = None;
    for _ in 0..20 {
        let answer = server.send("POST", "/v1/usage", report(200), &key, &[]).await;
        limited = limited.or((answer.status == 429).then_some(answer));
    }
    let limited = limited.expect("the burst is 200").problem("rate_limited");
    assert!(limited["detail"].to_string().contains("100 records"), "{limited}");
    let never = server.send("POST", "/v1/usage", report(201), &key, &[]).await;
    never.problem("invalid_field");
    // Another tenant has its own, and operations another one.
    server.send("POST", "/v1/usage", report(200), &other, &[]).await.expect(200);
    let charge = operation("/v1/charges", json!({ "account": "acme", "amount": "0.000001" }));
    let batch = json!({ "operations": vec![charge; 200] });
    server.send("POST", "/v1/batch", batch, &key, &[]).await.expect(200);
    server.send("GET", "/v1/accounts/acme", Value::Null, &key, &[]).await.expect(200);
}

#[tokio::test]
async fn draws_over_many_fragments_are_bounded_together_and_possible_alone() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "1").await;
    let mut released = Vec::new();
    for first in (0..6_000).step_by(1000) {
        let holds = (first..first + 1000).map(|n| {
            let body = json!({ "id": format!("f{n}"), "account": "acme", "amount": "0.000001" });
            operation("/v1/holds", body)
        });
        let holds: Vec<Value> = holds.collect();
        server.call("POST", "/v1/batch", json!({ "operations": holds })).await.expect(200);
        released.push((first..first + 1000).step_by(2));
    }
    // What is left of the grant goes, so that only fragments are free.
    let rest = json!({ "id": "rest", "account": "acme", "amount": "0.994" });
    server.call("POST", "/v1/holds", rest).await.expect(201);
    for some in released {
        let releases: Vec<Value> =
            some.map(|n| operation(&format!("/v1/holds/f{n}/release"), json!({}))).collect();
        server.call("POST", "/v1/batch", json!({ "operations": releases })).await.expect(200);
    }
    let across = |id: &str| {
        let body = json!({ "id": id, "account": "acme", "amount": "0.003" });
        operation("/v1/holds", body)
    };
    let alone = json!({ "operations": [across("x")] });
    let done = server.call("POST", "/v1/batch", alone).await.expect(200);
    assert_eq!(done["results"][0]["status"], 201, "{done}");
    let mut again = Vec::new();
    for n in 0..60 {
        let before = if n == 0 { "x".to_owned() } else { format!("x{}", n - 1) };
        again.push(operation(&format!("/v1/holds/{before}/release"), json!({})));
        again.push(across(&format!("x{n}")));
    }
    let atomic = json!({ "atomic": true, "operations": again });
    let problem = server.call("POST", "/v1/batch", atomic).await.problem("invalid_field");
    assert!(problem["detail"].as_str().is_some_and(|d| d.contains("100000")), "{problem}");
    assert_eq!(server.get("/v1/holds/x").await["state"], "open", "nothing of it happened");
    let plain = server.call("POST", "/v1/batch", json!({ "operations": again })).await.expect(200);
    let all = plain["results"].as_array().expect("a list");
    assert!(all.iter().all(|one| one["status"].as_u64().is_some_and(|status| status < 300)));
    assert_all_serve(&server).await;
}

#[tokio::test]
async fn a_ledger_that_cannot_be_rebuilt_ends_the_process_with_an_error() {
    let mut server = Server::start();
    server.tree().await;
    server.crash();
    server.spoil("a record that cannot be replayed is written into its journal");
    // No hold has this number: replay cannot go on.
    let event = |_| Event::HoldCut { hold: HoldNo(999), cut: std::iter::empty().collect() };
    write_behind(&server.data().join("ledger-0.db"), event, "acme");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data"]).arg(server.data());
    let ended = command.stdin(Stdio::null()).output().expect("the binary is there");
    assert!(!ended.status.success(), "{:?}", ended.status);
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(!said.contains("listening on"), "{said}");
}

#[tokio::test]
async fn the_answer_to_a_release_lists_a_bounded_number_of_fragments() {
    const FRAGMENTS: usize = 1200;
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "0.0024").await;
    let numbers: Vec<usize> = (0..2 * FRAGMENTS).collect();
    for some in numbers.chunks(600) {
        let hold = |n: &usize| {
            let amount = "0.000001";
            let body = json!({ "id": format!("s{n}"), "account": "acme", "amount": amount });
            operation("/v1/holds", body)
        };
        let operations: Vec<Value> = some.iter().map(hold).collect();
        server.call("POST", "/v1/batch", json!({ "operations": operations })).await.expect(200);
    }
    for some in numbers.chunks(600) {
        let every_other = some.iter().filter(|n| *n % 2 == 0);
        let release = |n: &usize| operation(&format!("/v1/holds/s{n}/release"), json!({}));
        let operations: Vec<Value> = every_other.map(release).collect();
        server.call("POST", "/v1/batch", json!({ "operations": operations })).await.expect(200);
    }
    let across = json!({ "id": "w", "account": "acme", "amount": "0.0012" });
    let placed = server.call("POST", "/v1/holds", across).await.expect(201);
    assert_eq!(placed["lots_truncated"], true, "{placed}");
    let closed = server.call("POST", "/v1/holds/w/release", json!({})).await.expect(200);
    assert_eq!(closed["returned"].as_array().map(Vec::len), Some(1000));
    assert_eq!(closed["returned_truncated"], true);
}

#[tokio::test]
async fn an_account_has_at_most_sixteen_budgets_and_a_refusal_says_so() {
    let server = Server::start();
    server.tree().await;
    let terms = json!({ "limit": "1", "period": "day", "mode": "hard" });
    for number in 0..16 {
        let path = format!("/v1/accounts/acme/budgets/b{number}");
        server.call("PUT", &path, terms.clone()).await.expect(200);
    }
    let refused = server.call("PUT", "/v1/accounts/acme/budgets/more", terms.clone()).await;
    refused.problem("invalid_field");
    server.call("PUT", "/v1/accounts/acme/budgets/b3", terms.clone()).await.expect(200);
    server.call("DELETE", "/v1/accounts/acme/budgets/b3", Value::Null).await;
    server.call("PUT", "/v1/accounts/acme/budgets/more", terms).await.expect(200);
}

#[tokio::test]
async fn budgets_of_a_tenant_with_many_holds_are_counted_in_turns_and_are_right() {
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "1000000").await;
    for part in 0..5 {
        let hold = |number: u32| {
            let id = format!("h{}", part * 1000 + number);
            let account = if number.is_multiple_of(2) { "acme" } else { "acme:nlp:x" };
            operation("/v1/holds", json!({ "id": id, "account": account, "amount": "2" }))
        };
        let holds: Vec<Value> = (0..1000).map(hold).collect();
        server.call("POST", "/v1/batch", json!({ "operations": holds })).await.expect(200);
    }
    let terms = |period: &str| json!({ "limit": "20000", "period": period, "mode": "hard" });
    let total = server.call("PUT", "/v1/accounts/acme/budgets/total", terms("total")).await;
    assert_eq!(total.expect(200)["held"], "10000", "all five thousand");
    let budgets = |count: u32, account: &str| -> Vec<Value> {
        let path = |number: u32| format!("/v1/accounts/{account}/budgets/b{number}");
        let set =
            |number: u32| json!({ "method": "PUT", "path": path(number), "body": terms("month") });
        (0..count).map(set).collect()
    };
    let many = json!({ "operations": budgets(10, "acme") });
    let many = server.call("POST", "/v1/batch", many).await.expect(200);
    for result in many["results"].as_array().expect("a list") {
        assert_eq!(result["body"]["held"], "10000", "{result}");
    }
    let few = json!({ "atomic": true, "operations": budgets(16, "acme:nlp") });
    let few = server.call("POST", "/v1/batch", few).await.expect(200);
    assert_eq!(few["results"][15]["body"]["held"], "5000", "every other one");
    let more = [budgets(9, "acme:nlp:x"), budgets(8, "acme:vision")].concat();
    let more = json!({ "atomic": true, "operations": more });
    let problem = server.call("POST", "/v1/batch", more).await.problem("invalid_field");
    assert!(problem["detail"].as_str().is_some_and(|d| d.contains("16 new budgets")), "{problem}");
    // What is there already is not counted again.
    let again = [budgets(10, "acme"), budgets(16, "acme:nlp")].concat();
    let again = json!({ "atomic": true, "operations": again });
    server.call("POST", "/v1/batch", again).await.expect(200);
    let over = json!({ "id": "over", "account": "acme", "amount": "10001" });
    server.call("POST", "/v1/holds", over).await.problem("budget_exceeded");
    assert_all_serve(&server).await;
}
