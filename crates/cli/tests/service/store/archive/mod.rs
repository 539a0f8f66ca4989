//! A window of zero: everything that is closed leaves memory at once, and every answer about it comes from the archive.

mod moves;

use std::path::Path;

use serde_json::{Value, json};

use crate::journal_support::postgres::TestPostgres;
use crate::server::{Answer, Server};
use crate::store::postgres_serve::address;

pub(crate) const NO_WINDOW: &str = "[ledger]\nclosed_memory = 0\n";

/// A server that forgets everything closed at once, with credits.
pub(crate) async fn forgetful() -> Server {
    let server = Server::configured(NO_WINDOW, &["--clock", "manual"]);
    server.tree().await;
    server.grant("g", "acme", "1000").await;
    server
}

async fn keyed(server: &Server, path: &str, body: &Value, key: &str) -> Answer {
    let headers = [("Idempotency-Key", key)];
    server.send("POST", path, body.clone(), &server.root, &headers).await
}

/// The requests of one life of a hold, a charge and what moves between accounts, each under its own key.
fn life(name: &str) -> Vec<(String, Value)> {
    let settle = format!("/v1/holds/{name}/settle");
    let capture = format!("/v1/holds/{name}/capture");
    let release = format!("/v1/holds/{name}-r/release");
    let transfer = json!({ "id": name, "from": "acme", "to": "acme:nlp", "amount": "2" });
    vec![
        ("/v1/holds".into(), json!({ "id": name, "account": "acme", "amount": "5" })),
        (capture, json!({ "total": "1" })),
        (settle, json!({ "total": "3" })),
        ("/v1/refunds".into(), json!({ "id": name, "hold": name, "amount": "1" })),
        ("/v1/charges".into(), json!({ "id": name, "account": "acme", "amount": "4" })),
        (
            "/v1/refunds".into(),
            json!({ "id": format!("{name}-c"), "charge": name, "amount": "1.5" }),
        ),
        ("/v1/transfers".into(), transfer),
        (
            "/v1/holds".into(),
            json!({ "id": format!("{name}-r"), "account": "acme", "amount": "1" }),
        ),
        (release, json!({})),
    ]
}

pub(crate) async fn balances(server: &Server) -> Value {
    let mut all = Vec::new();
    for account in ["acme", "acme:nlp"] {
        let balance = server.get(&format!("/v1/accounts/{account}/balance")).await;
        all.push(json!([balance["spendable"], balance["available"], balance["held"]]));
    }
    all.into()
}

/// Lives a life, and returns what was answered.
pub(crate) async fn live(server: &Server, name: &str) -> Vec<Value> {
    let mut first = Vec::new();
    for (place, (path, body)) in life(name).iter().enumerate() {
        let answer = keyed(server, path, body, &format!("{name}-{place}")).await;
        assert!(matches!(answer.status, 200 | 201), "{path}: {} {}", answer.status, answer.body);
        assert!(!answer.is_replayed(), "{path}");
        first.push(json!([answer.status, answer.body]));
    }
    first
}

/// Repeats a life under the same keys: the answers are those that were given first.
pub(crate) async fn same_again(server: &Server, name: &str, first: &[Value]) {
    for (place, (path, body)) in life(name).iter().enumerate() {
        let answer = keyed(server, path, body, &format!("{name}-{place}")).await;
        assert!(answer.is_replayed(), "{path}: {} {}", answer.status, answer.body);
        assert_eq!(json!([answer.status, answer.body]), first[place], "{path} {place}");
    }
}

#[tokio::test]
async fn repeats_under_their_keys_get_the_first_answers_from_the_archive() {
    let server = forgetful().await;
    let first = live(&server, "x").await;
    server.until_forgotten().await;
    let before = balances(&server).await;
    same_again(&server, "x", &first).await;
    // Another request under the same key is refused.
    let other = json!({ "id": "x", "account": "acme", "amount": "6" });
    keyed(&server, "/v1/holds", &other, "x-0").await.problem("idempotency_key_reused");
    assert_eq!(balances(&server).await, before);
}

#[tokio::test]
async fn what_is_forgotten_is_answered_as_if_it_was_in_memory() {
    let never = Server::start();
    never.tree().await;
    never.grant("g", "acme", "1000").await;
    let forgets = forgetful().await;
    for server in [&never, &forgets] {
        live(server, "x").await;
    }
    forgets.until_forgotten().await;
    let requests = [
        ("GET", "/v1/holds/x", Value::Null),
        ("GET", "/v1/holds/x/lots", Value::Null),
        ("GET", "/v1/holds/none", Value::Null),
        ("GET", "/v1/holds", Value::Null),
        ("GET", "/v1/holds?limit=1", Value::Null),
        ("GET", "/v1/holds?account=acme&state=settled", Value::Null),
        ("GET", "/v1/holds?account=acme:nlp", Value::Null),
        ("GET", "/v1/holds?state=open", Value::Null),
        ("GET", "/v1/charges", Value::Null),
        ("GET", "/v1/charges/x", Value::Null),
        ("POST", "/v1/holds", json!({ "id": "x", "account": "acme", "amount": "5" })),
        ("POST", "/v1/holds", json!({ "id": "x", "account": "acme", "amount": "6" })),
        ("POST", "/v1/holds/x/settle", json!({ "total": "3" })),
        ("POST", "/v1/holds/x/settle", json!({ "total": "4" })),
        ("POST", "/v1/holds/x/capture", json!({ "total": "2" })),
        ("POST", "/v1/holds/x/release", json!({})),
        ("POST", "/v1/holds/x-r/release", json!({})),
        ("POST", "/v1/holds/x/extend", json!({ "amount": "1" })),
        ("POST", "/v1/holds/none/settle", json!({ "total": "1" })),
        ("POST", "/v1/charges", json!({ "id": "x", "account": "acme", "amount": "4" })),
        ("POST", "/v1/charges", json!({ "id": "x", "account": "acme:nlp", "amount": "4" })),
        ("POST", "/v1/refunds", json!({ "id": "x", "hold": "x", "amount": "1" })),
        ("POST", "/v1/refunds", json!({ "id": "x", "charge": "x", "amount": "1" })),
        ("POST", "/v1/refunds", json!({ "id": "y", "hold": "x", "amount": "9" })),
        ("POST", "/v1/refunds", json!({ "id": "y", "hold": "x", "amount": "1" })),
        ("POST", "/v1/refunds", json!({ "id": "y", "hold": "x", "amount": "1" })),
        ("POST", "/v1/refunds", json!({ "id": "z", "hold": "x", "amount": "2" })),
        (
            "POST",
            "/v1/transfers",
            json!({ "id": "x", "from": "acme", "to": "acme:nlp", "amount": "2" }),
        ),
        (
            "POST",
            "/v1/usage",
            json!({ "records": [{ "hold": "x", "seq": 9, "amount_total": "3", "ended": true }] }),
        ),
        ("GET", "/v1/holds/x", Value::Null),
    ];
    for (method, path, body) in requests {
        let mut answers = Vec::new();
        for server in [&never, &forgets] {
            let answer = server.call(method, path, body.clone()).await;
            let mut shown = answer.body;
            for field in ["as_of", "position", "request_id", "created_at", "type"] {
                shown.as_object_mut().map(|shown| shown.remove(field));
            }
            answers.push((answer.status, shown));
        }
        assert_eq!(answers[0], answers[1], "{method} {path} {body}");
        forgets.until_forgotten().await;
    }
    assert_eq!(balances(&never).await, balances(&forgets).await);
}

#[tokio::test]
async fn batches_under_their_keys_get_the_first_answers_from_the_archive() {
    let server = forgetful().await;
    let operation =
        |path: &str, body: Value| json!({ "method": "POST", "path": path, "body": body });
    let place = json!({ "id": "b", "account": "acme", "amount": "5" });
    let charge = json!({ "id": "b", "account": "acme", "amount": "700" });
    for atomic in [false, true] {
        let batch = json!({ "atomic": atomic, "operations": [
            operation("/v1/holds", place.clone()),
            operation("/v1/holds/b/settle", json!({ "total": "2" })),
            operation("/v1/charges", charge.clone()),
        ] });
        let key = format!("batch-{atomic}");
        let first = keyed(&server, "/v1/batch", &batch, &key).await.expect(200);
        server.until_forgotten().await;
        let before = balances(&server).await;
        let again = keyed(&server, "/v1/batch", &batch, &key).await;
        assert!(again.is_replayed(), "{}", again.body);
        assert_eq!(again.expect(200), first, "atomic: {atomic}");
        let other =
            json!({ "atomic": atomic, "operations": [operation("/v1/holds", place.clone())] });
        keyed(&server, "/v1/batch", &other, &key).await.problem("idempotency_key_reused");
        assert_eq!(balances(&server).await, before);
    }
    // A batch that failed stays refused, also when there would be enough credits.
    let dear = json!({ "atomic": true, "operations": [
        operation("/v1/charges", json!({ "id": "dear", "account": "acme", "amount": "500" })),
    ] });
    let first = keyed(&server, "/v1/batch", &dear, "dear").await.problem("batch_aborted");
    server.until_forgotten().await;
    server.grant("more", "acme", "1000").await;
    let again = keyed(&server, "/v1/batch", &dear, "dear").await;
    assert!(again.is_replayed(), "{}", again.body);
    assert_eq!(again.problem("batch_aborted")["results"], first["results"]);
}

/// The platform need not say whose something is, also of what is never forgotten.
#[tokio::test]
async fn a_forgotten_key_is_found_in_the_tenant_of_what_the_request_names() {
    let server = forgetful().await;
    server.grant("gone", "acme", "7").await;
    let revoke = async || keyed(&server, "/v1/grants/gone/revoke", &json!({}), "k").await;
    let first = revoke().await.expect(200);
    server.until_forgotten().await;
    let again = revoke().await;
    assert!(again.is_replayed(), "{} {}", again.status, again.body);
    assert_eq!(again.expect(200), first);
    let batch = json!({ "operations": [
        { "method": "POST", "path": "/v1/grants/gone/revoke", "body": {} },
    ] });
    let first = keyed(&server, "/v1/batch", &batch, "b").await.expect(200);
    server.until_forgotten().await;
    assert_eq!(keyed(&server, "/v1/batch", &batch, "b").await.expect(200), first);
}

/// Ledger, directory and cell share the keys, also those that the ledger has forgotten.
#[tokio::test]
async fn a_forgotten_key_is_not_used_again_on_another_machine() {
    let server = forgetful().await;
    let admin = server.key("admin", "acme").await;
    let node = json!({ "id": "n1", "region": "default", "gpus": [], "cpus": 1, "memory_gib": 1 });
    let calls = [
        ("/v1/charges", json!({ "id": "c", "account": "acme", "amount": "1" })),
        ("/v1/keys", json!({ "role": "viewer", "scope": "acme", "name": "n" })),
        ("/v1/nodes", node),
    ];
    let ask = async |(path, body): &(&str, Value), key: usize| {
        let header = [("Idempotency-Key", format!("key-{key}"))];
        let header = header.each_ref().map(|(name, value)| (*name, value.as_str()));
        server.send("POST", path, body.clone(), &admin, &header).await
    };
    for (place, call) in calls.iter().enumerate() {
        ask(call, place).await.expect(201);
    }
    server.until_forgotten().await;
    let before = balances(&server).await;
    for (place, call) in calls.iter().enumerate() {
        assert!(ask(call, place).await.is_replayed(), "{}", call.0);
        for other in (0..calls.len()).filter(|other| *other != place) {
            ask(call, other).await.problem("idempotency_key_reused");
        }
    }
    assert_eq!(balances(&server).await, before);
}

#[tokio::test]
async fn tenants_do_not_see_what_another_has_in_the_archive() {
    let server = forgetful().await;
    live(&server, "x").await;
    server.grant("g2", "umbra", "100").await;
    server.until_forgotten().await;
    let foreign = server.key("admin", "umbra").await;
    let ask = async |method: &str, path: &str, body: Value| {
        server.send(method, path, body, &foreign, &[]).await
    };
    ask("GET", "/v1/holds/x", Value::Null).await.problem("not_found");
    ask("POST", "/v1/holds/x/settle", json!({ "total": "3" })).await.problem("not_found");
    ask("POST", "/v1/refunds", json!({ "hold": "x" })).await.problem("not_found");
    let own = json!({ "id": "x", "account": "umbra", "amount": "1" });
    ask("POST", "/v1/holds", own).await.expect(201);
    ask("POST", "/v1/holds/x/settle", json!({ "total": "1" })).await.expect(200);
    server.until_forgotten().await;
    // The platform has to say which one it means.
    server.call("GET", "/v1/holds/x", Value::Null).await.problem("ambiguous_id");
    let of_umbra = [("Bursar-Tenant", "umbra")];
    let seen = server.send("GET", "/v1/holds/x", Value::Null, &server.root, &of_umbra).await;
    assert_eq!(seen.expect(200)["account"], "umbra");
}

#[tokio::test]
async fn a_kill_at_any_moment_changes_no_answer() {
    let flags = ["--clock", "manual"];
    let mut server = forgetful().await;
    let mut lives = Vec::new();
    for round in 0..6 {
        let name = format!("k{round}");
        let first = live(&server, &name).await;
        lives.push((name, first));
        let before = balances(&server).await;
        // While what was closed is being archived and forgotten.
        server.crash();
        server.restart_configured(&flags);
        for (name, first) in &lives {
            same_again(&server, name, first).await;
        }
        assert_eq!(balances(&server).await, before);
    }
}

fn remove(data: &Path, file: &str) {
    for end in ["", "-wal", "-shm"] {
        // Not every one is there.
        let _ = std::fs::remove_file(data.join(format!("{file}{end}")));
    }
}

fn truncate(data: &Path, file: &str) {
    for end in ["", "-wal"] {
        let file = std::fs::OpenOptions::new().write(true).open(data.join(format!("{file}{end}")));
        // Not every one is there.
        if let Ok(file) = file {
            file.set_len(0).expect("ours");
        }
    }
}

#[tokio::test]
async fn a_missing_damaged_or_foreign_archive_is_built_again_from_the_journal() {
    let flags = ["--clock", "manual"];
    let mut other = forgetful().await;
    live(&other, "foreign").await;
    other.until_forgotten().await;
    other.stop();
    let mut server = forgetful().await;
    let first = live(&server, "x").await;
    server.until_forgotten().await;
    let before = balances(&server).await;
    for harm in ["missing", "empty", "damaged", "foreign"] {
        server.stop();
        let file = server.data().join("archive-0.db");
        let bytes = std::fs::read(&file).expect("it is there");
        remove(server.data(), "archive-0.db");
        match harm {
            "missing" => {}
            "empty" => std::fs::write(&file, b"").expect("ours"),
            "damaged" => std::fs::write(&file, vec![7; bytes.len()]).expect("ours"),
            _ => {
                for end in ["", "-wal"] {
                    let name = format!("archive-0.db{end}");
                    let from = other.data().join(&name);
                    if from.exists() {
                        std::fs::copy(from, server.data().join(name)).expect("ours");
                    }
                }
            }
        }
        server.restart_configured(&flags);
        server.until_metric("bursar_archive_position", |position| position > 0.0).await;
        same_again(&server, "x", &first).await;
        server.call("GET", "/v1/holds/foreign", Value::Null).await.problem("not_found");
        assert_eq!(balances(&server).await, before, "{harm}");
    }
    let aside = std::fs::read_dir(server.data()).expect("ours");
    let aside = aside.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let aside = aside.filter(|name| name.contains(".unusable-")).count();
    assert_eq!(aside, 2, "what could not be used was not removed");
}

#[tokio::test]
async fn an_archive_that_cannot_be_read_is_answered_503_and_nothing_happens_twice() {
    let flags = ["--clock", "manual"];
    let mut server = forgetful().await;
    let first = live(&server, "x").await;
    server.until_forgotten().await;
    let before = balances(&server).await;
    for end in ["", "-wal"] {
        let file = server.data().join(format!("archive-0.db{end}"));
        let open = std::fs::OpenOptions::new().write(true).open(file).expect("it is there");
        open.set_len(0).expect("ours");
    }
    let charge = json!({ "id": "x", "account": "acme", "amount": "4" });
    for (path, body) in [
        ("/v1/charges", charge),
        ("/v1/holds/x/settle", json!({ "total": "3" })),
        ("/v1/refunds", json!({ "id": "new", "hold": "x", "amount": "1" })),
    ] {
        let refused = server.call("POST", path, body).await.problem("unavailable");
        let detail = refused["detail"].as_str().expect("text");
        assert!(detail.contains("archive"), "{detail}");
    }
    server.call("GET", "/v1/holds/x", Value::Null).await.problem("unavailable");
    assert_eq!(balances(&server).await, before);
    // What is new and what is open needs no archive.
    let fresh = json!({ "id": "fresh", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/holds", fresh).await.expect(201);
    server.call("GET", "/v1/holds/fresh", Value::Null).await.expect(200);
    server.call("POST", "/v1/holds/fresh/release", json!({})).await.expect(200);
    server.crash();
    server.restart_configured(&flags);
    server.until_metric("bursar_archive_position", |position| position > 0.0).await;
    same_again(&server, "x", &first).await;
    assert_eq!(balances(&server).await, before);
}

#[tokio::test]
async fn history_deleted_under_load_changes_no_answer_of_the_ledger() {
    let mut server = forgetful().await;
    let mut lives = Vec::new();
    for round in 0..8 {
        let name = format!("d{round}");
        let first = live(&server, &name).await;
        lives.push((name, first));
        match round % 3 {
            0 => remove(server.data(), "history.db"),
            1 => truncate(server.data(), "history.db"),
            _ => {
                server.crash();
                remove(server.data(), "history.db");
                server.restart_configured(&["--clock", "manual"]);
            }
        }
        for (name, first) in &lives {
            same_again(&server, name, first).await;
        }
    }
    server.until_forgotten().await;
    for (name, first) in &lives {
        same_again(&server, name, first).await;
        let refund = json!({ "id": format!("late-{name}"), "hold": name, "amount": "1" });
        server.call("POST", "/v1/refunds", refund).await.expect(201);
    }
}

#[tokio::test]
async fn on_postgresql_the_archive_is_in_the_database_and_a_new_owner_goes_on_with_it() {
    let database = TestPostgres::start();
    let store = address(&database);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let (root, config) = (place("root.key"), place("bursar.toml"));
    std::fs::write(&config, NO_WINDOW).expect("the folder is ours");
    let store_flags = ["--store", &store, "--unsafe-single-postgres", "--clock", "manual"];
    let file_flags = ["--root-key-file", &root, "--config", &config];
    let start = || Server::on_store(&[&store_flags[..], &file_flags[..]].concat());
    let blocks = || database.sql("SELECT count(*) FROM bursar_archive_block");
    let mut server = start();
    server.tree().await;
    server.grant("g", "acme", "1000").await;
    let mut lives = Vec::new();
    for round in 0..3 {
        let name = format!("p{round}");
        let first = live(&server, &name).await;
        lives.push((name, first));
        if round == 1 {
            server.until_forgotten().await;
        }
        let (before, stored) = (balances(&server).await, blocks());
        server.crash();
        server = start();
        for (name, first) in &lives {
            same_again(&server, name, first).await;
        }
        assert_eq!(balances(&server).await, before);
        assert!(stored.parse::<u64>().ok() <= blocks().parse().ok(), "it was not thrown away");
    }
    server.until_forgotten().await;
    let before = balances(&server).await;
    assert_eq!(server.terminate().code(), Some(0));
    // Tables that were lost are built again from the journal.
    database.sql("UPDATE bursar_archive SET position = 0");
    database.sql("DELETE FROM bursar_archive_block");
    let server = start();
    server.until_metric("bursar_archive_position", |position| position > 0.0).await;
    for (name, first) in &lives {
        same_again(&server, name, first).await;
        let refund = json!({ "id": format!("late-{name}"), "hold": name, "amount": "1" });
        server.call("POST", "/v1/refunds", refund).await.expect(201);
    }
    assert_ne!(balances(&server).await, before);
}

#[tokio::test]
async fn ids_of_the_holds_of_jobs_cannot_be_chosen() {
    let server = forgetful().await;
    let own = "hold_01M7G1YGRQ000698G90WVX29JG";
    let place = |id: String| json!({ "id": id, "account": "acme", "amount": "1" });
    for id in [format!("{own}.2"), format!("{own}.0.2x")] {
        let refused = server.call("POST", "/v1/holds", place(id)).await.problem("invalid_field");
        assert_eq!(refused["param"], "id", "{refused}");
    }
    for id in [own.to_owned(), "hold_2.2".to_owned(), format!("my_{own}.2")] {
        server.call("POST", "/v1/holds", place(id)).await.expect(201);
    }
}
