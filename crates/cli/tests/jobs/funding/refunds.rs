//! Refunds of jobs, at any age.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::server::Server;
use crate::world::{cancel, furnish, job, micros, priced, small, spendable, state, submit, with};

const GRANTED: u128 = 1_000_000_000;
const DAY: u64 = 86_400;

async fn days(server: &Server, count: u64) {
    for _ in 0..count / 20 {
        server.advance(20 * DAY).await;
    }
}

async fn refund(server: &Server, body: &Value) -> crate::server::Answer {
    server.call("POST", "/v1/refunds", body.clone()).await
}

/// Runs a job in two attempts with `between` days of waiting. Returns its cost.
async fn run_twice(server: &Server, agent: &mut Agent, id: &str, between: u64) -> u128 {
    submit(server, small(id)).await;
    agent.beat(server).await;
    agent.run(server, 60).await;
    server.call("POST", &format!("/v1/nodes/{}/drain", agent.node), json!({})).await.expect(200);
    server.call("POST", &format!("/v1/jobs/{id}/preempt"), json!({})).await.expect(200);
    agent.beat(server).await;
    assert_eq!(state(server, id).await, "queued");
    days(server, between).await;
    agent.register_again(server, "default", "H100", 1).await;
    let path = format!("/v1/nodes/{}/resume", agent.node);
    server.call("POST", &path, json!({})).await.expect(200);
    agent.run(server, 30).await;
    agent.run(server, 30).await;
    agent.finish(server, id, 0).await;
    let ended = job(server, id).await;
    assert_eq!(
        (&ended["state"], ended["attempts"].as_array().map(Vec::len)),
        (&json!("succeeded"), Some(2))
    );
    micros(&ended["charged"])
}

#[tokio::test]
async fn a_job_whose_first_attempt_is_older_than_retention_is_refunded_whole() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    let charged = run_twice(&server, &mut agent, "j", 60).await;
    assert_eq!(spendable(&server).await, GRANTED - charged);

    let ended = job(&server, "j").await;
    assert_eq!(ended["refunded"], Value::Null);
    let above = json!({ "job": "j", "amount": "900" });
    refund(&server, &above).await.problem("conflict");
    let part = json!({ "id": "part", "job": "j", "amount": "0.1" });
    let first_part = refund(&server, &part).await.expect(201);
    let whole = json!({ "id": "whole", "job": "j" });
    let first = refund(&server, &whole).await.expect(201);
    assert_eq!(micros(&first["refunded"]), charged - 100_000);
    assert_eq!(spendable(&server).await, GRANTED);
    assert_eq!(refund(&server, &whole).await.expect(200), first);
    let second = refund(&server, &json!({ "job": "j" })).await.problem("conflict");
    let text = second["detail"].as_str().expect("text");
    assert!(text.contains("all of it was refunded before"), "{text}");
    refund(&server, &above).await.problem("conflict");

    days(&server, 60).await;
    assert_eq!(refund(&server, &whole).await.expect(200), first);
    assert_eq!(refund(&server, &part).await.expect(200), first_part);
    refund(&server, &json!({ "job": "j" })).await.problem("conflict");
    assert_eq!(spendable(&server).await, GRANTED);
}

fn remove(server: &Server, name: &str) {
    for end in ["", "-wal", "-shm"] {
        let path = server.data().join(format!("{name}{end}"));
        // Connections that are open lose it too. The last of the files is mapped into memory.
        if end != "-shm"
            && let Ok(file) = std::fs::OpenOptions::new().write(true).open(&path)
        {
            file.set_len(0).expect("ours");
        }
        // Not every one is there.
        let _ = std::fs::remove_file(path);
    }
}

/// Everything of a job but the instant of the answer.
async fn seen(server: &Server, id: &str) -> Value {
    let mut job = job(server, id).await;
    for field in ["as_of", "ledger_position"] {
        job.as_object_mut().expect("an object").remove(field);
    }
    job
}

#[tokio::test]
async fn old_jobs_need_no_history() {
    let flags = ["--clock", "manual"];
    let mut server = Server::configured("[ledger]\nclosed_memory = 0\n", &flags);
    furnish(&server).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    let charged = run_twice(&server, &mut agent, "j", 60).await;
    let part = json!({ "id": "part", "job": "j", "amount": "0.1" });
    let first_part = refund(&server, &part).await.expect(201);
    for body in [small("c"), with(small("a"), "array", json!(2))] {
        submit(&server, body).await;
    }
    let members = json!(["a.0", "a.1"]);
    for id in ["c", "a.0", "a.1"] {
        cancel(&server, id).await;
    }
    let ids = ["j", "c", "a.0", "a.1"];
    let mut before = Vec::new();
    for id in ids {
        before.push(seen(&server, id).await);
    }
    days(&server, 60).await;
    // It leaves in one step with what is older.
    let charge = json!({ "id": "last", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    server.until_forgotten().await;
    for lost in ["history.db", "history.db", "archive-0.db"] {
        if lost == "archive-0.db" {
            server.stop();
            remove(&server, lost);
            server.restart_configured(&flags);
            server.until_metric("bursar_archive_position", |position| position > 0.0).await;
        } else {
            remove(&server, lost);
        }
        for (id, before) in ids.iter().zip(&before) {
            assert_eq!(&seen(&server, id).await, before, "without {lost}");
        }
        let again = server.call("POST", "/v1/jobs", small("c")).await.expect(200);
        assert_eq!(again["array"], Value::Null);
        let array = with(small("a"), "array", json!(2));
        let again = server.call("POST", "/v1/jobs", array).await.expect(200);
        assert_eq!(again["array"], members, "without {lost}");
        let by_array = server.call("GET", "/v1/jobs/a", Value::Null).await.expect(200);
        assert_eq!((&by_array["id"], &by_array["array"]), (&json!("a.0"), &members));
        let other = with(small("c"), "max_runtime_seconds", json!(60));
        server.call("POST", "/v1/jobs", other).await.problem("already_exists");
        assert_eq!(refund(&server, &part).await.expect(200), first_part);
        server.call("GET", "/v1/jobs/none", Value::Null).await.problem("not_found");
        refund(&server, &json!({ "job": "none" })).await.problem("not_found");
    }
    // What is new needs neither.
    submit(&server, small("new")).await;
    let whole = json!({ "id": "whole", "job": "j" });
    let first = refund(&server, &whole).await.expect(201);
    assert_eq!(micros(&first["refunded"]), charged - 100_000);
    assert_eq!(refund(&server, &whole).await.expect(200), first);
    refund(&server, &json!({ "job": "j" })).await.problem("conflict");
}

#[tokio::test]
async fn an_id_of_two_tenants_stays_ambiguous_when_one_of_the_jobs_is_forgotten() {
    let server = Server::configured("[ledger]\nclosed_memory = 0\n", &["--clock", "manual"]);
    furnish(&server).await;
    server.grant("theirs", "umbra", "100").await;
    submit(&server, with(small("x"), "account", json!("umbra"))).await;
    cancel(&server, "x").await;
    days(&server, 60).await;
    let charge = json!({ "id": "last", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    server.until_forgotten().await;
    submit(&server, small("x")).await;
    let body = json!({ "job": "x" });
    refund(&server, &body).await.problem("ambiguous_id");
    for tenant in ["acme", "umbra"] {
        let headers = [("Bursar-Tenant", tenant)];
        let root = &server.root;
        let refund = server.send("POST", "/v1/refunds", body.clone(), root, &headers).await;
        refund.problem("conflict");
    }
}

#[tokio::test]
async fn the_parts_of_a_refund_are_all_found_after_numbers_are_used_again() {
    let server = priced(&[]).await;
    let charge = json!({ "id": "c", "account": "acme", "amount": "4" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    for id in ["r1", "r2", "r3", "r4"] {
        refund(&server, &json!({ "id": id, "charge": "c", "amount": "1" })).await.expect(201);
    }
    days(&server, 60).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    let charged = run_twice(&server, &mut agent, "j", 0).await;
    let whole = json!({ "id": "whole", "job": "j" });
    let first = refund(&server, &whole).await.expect(201);
    assert_eq!(micros(&first["refunded"]), charged);
    let lots = first["lots"].as_array().expect("a list").iter();
    assert_eq!(lots.map(|lot| micros(&lot["amount"])).sum::<u128>(), charged);
    assert_eq!(refund(&server, &whole).await.expect(200), first);
    days(&server, 60).await;
    assert_eq!(refund(&server, &whole).await.expect(200), first);
}

#[tokio::test]
async fn a_server_may_leave_refunds_of_jobs_to_the_platform() {
    let config = "[ledger]\njob_refunds = \"platform\"\n";
    let server = Server::configured(config, &["--clock", "manual"]);
    furnish(&server).await;
    let mut agent = Agent::running(&server, "j", 60).await;
    agent.finish(&server, "j", 0).await;
    let hold = job(&server, "j").await["hold"]["id"].clone();
    let (billing, issuer) =
        (server.key("billing", "acme").await, server.issuer("billing", "acme").await);
    let refund =
        async |key: &str, body: Value| server.send("POST", "/v1/refunds", body, key, &[]).await;
    for body in [json!({ "job": "j" }), json!({ "hold": hold, "amount": "0.01" })] {
        refund(&billing, body.clone()).await.problem("forbidden");
        let operation = json!({ "method": "POST", "path": "/v1/refunds", "body": body });
        for atomic in [false, true] {
            let batch = json!({ "operations": [operation], "atomic": atomic });
            let answer = server.send("POST", "/v1/batch", batch, &billing, &[]).await;
            assert_eq!(answer.body["results"][0]["status"], 403, "{}", answer.body);
        }
        let dry = server.send("POST", "/v1/dry-run", operation, &billing, &[]).await;
        dry.problem("forbidden");
    }
    // What the tenant charged itself stays its own affair.
    let charge = json!({ "id": "c", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/charges", charge).await.expect(201);
    refund(&billing, json!({ "charge": "c" })).await.expect(201);
    let own = json!({ "id": "h", "account": "acme", "amount": "1" });
    server.call("POST", "/v1/holds", own).await.expect(201);
    server.call("POST", "/v1/holds/h/settle", json!({ "total": "1" })).await.expect(200);
    refund(&billing, json!({ "hold": "h" })).await.expect(201);
    let outside = with(small("slurm"), "external", json!(true));
    submit(&server, outside).await;
    let usage = json!({ "job": "slurm", "seq": 1, "gpu_ms_total": 60_000, "ended": "succeeded" });
    let usage = json!({ "records": [usage] });
    server.call("POST", "/v1/usage", usage).await.expect(200);
    refund(&billing, json!({ "job": "slurm" })).await.expect(201);
    // The platform, and keys that it lets issue, refund the rest.
    refund(&issuer, json!({ "hold": hold, "amount": "0.01" })).await.expect(201);
    refund(&server.root, json!({ "job": "j" })).await.expect(201);
    assert_eq!(spendable(&server).await, GRANTED);
}
