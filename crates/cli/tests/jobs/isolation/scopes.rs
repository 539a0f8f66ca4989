//! Agent keys with a scope: which jobs their nodes run, and which keys see and change those nodes.

use serde_json::{Value, json};

use crate::agent::{Agent, offer};
use crate::server::Server;
use crate::world::*;

fn of(id: &str, account: &str) -> Value {
    with(small(id), "account", account.into())
}

async fn names(server: &Server, key: &str) -> Vec<String> {
    let page = server.send("GET", "/v1/nodes", Value::Null, key, &[]).await.expect(200);
    let nodes = page["data"].as_array().expect("nodes").iter();
    nodes.map(|node| node["id"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn a_node_under_a_teams_key_runs_that_teams_jobs_alone() {
    let server = priced(&[]).await;
    let key = server.key("agent", "acme:nlp").await;
    let mut node = Agent::register_under(&server, &key, "default", "nlp-1", "H100", 2).await;
    submit(&server, of("own", "acme:nlp")).await;
    submit(&server, of("other", "acme:vision")).await;
    node.beat(&server).await;
    assert!(node.runs_job("own") && !node.runs_job("other"));
    let why = server.get("/v1/jobs/other/why").await;
    assert_eq!(blocker_types(&why), ["gpu_type"]);
    let blocker = &why["blockers"][0];
    assert_eq!(blocker["detail"], "nodes with H100 in default run no jobs of acme:vision");
    assert!(blocker["fix"].as_str().expect("a fix").contains("agent key"), "{blocker}");
    let quote = |account: &str| server.call("POST", "/v1/quotes", of("q", account));
    let (own, other) =
        (quote("acme:nlp").await.expect(200), quote("acme:vision").await.expect(200));
    assert!(own["offers"][0]["estimated_start_at"].is_string(), "{own}");
    assert!(other["offers"][0]["estimated_start_at"].is_null(), "{other}");
    assert_eq!(blocker_types(&other), ["gpu_type", "priority"]);
    let mut common = Agent::register(&server, "common", "H100", 1).await;
    common.beat(&server).await;
    assert!(common.runs_job("other"));
    node.run(&server, 60).await;
    common.run(&server, 60).await;
    node.finish(&server, "own", 0).await;
    common.finish(&server, "other", 0).await;
    check_books(&server, 1_000_000_000, &["own", "other"]).await;
}

#[tokio::test]
async fn a_job_stays_with_its_accounts_nodes_over_kill_nine() {
    let mut server = priced(&[]).await;
    let key = server.key("agent", "acme:nlp").await;
    let mut node = Agent::register_under(&server, &key, "default", "nlp-1", "H100", 1).await;
    server.crash_and_restart(&["--clock", "manual"]);
    assert_eq!(server.get("/v1/nodes/nlp-1").await["scope"], "acme:nlp");
    submit(&server, of("other", "acme:vision")).await;
    submit(&server, of("own", "acme:nlp")).await;
    node.beat(&server).await;
    assert!(node.runs_job("own") && !node.runs_job("other"));
    verify(&server);
}

#[tokio::test]
async fn nodes_of_other_tenants_are_not_visible() {
    let server = priced(&[]).await;
    for (scope, name) in [("acme:nlp", "nlp-1"), ("acme", "acme-1"), ("umbra", "umbra-1")] {
        let key = server.key("agent", scope).await;
        Agent::register_under(&server, &key, "default", name, "H100", 1).await;
    }
    Agent::register(&server, "common", "H100", 1).await;
    let window = json!({ "from": "2030-01-01T00:00:00Z", "to": "2030-01-02T00:00:00Z" });
    server.call("PUT", "/v1/regions/default/maintenance", window).await.expect(200);
    for (scope, seen) in [
        ("acme", &["acme-1", "common", "nlp-1"][..]),
        ("acme:nlp", &["acme-1", "common", "nlp-1"]),
        ("acme:vision", &["acme-1", "common"]),
        ("umbra", &["common", "umbra-1"]),
        ("*", &["acme-1", "common", "nlp-1", "umbra-1"]),
    ] {
        let key = server.key("viewer", scope).await;
        assert_eq!(names(&server, &key).await, seen, "{scope}");
        let get = async |path: &str| server.send("GET", path, Value::Null, &key, &[]).await;
        for name in ["acme-1", "common", "nlp-1", "umbra-1"] {
            let answer = get(&format!("/v1/nodes/{name}")).await;
            let status = if seen.contains(&name) { 200 } else { 404 };
            assert_eq!(answer.status, status, "{scope} {name}: {}", answer.body);
        }
        let regions = get("/v1/regions").await.expect(200);
        let region = &regions["data"][0];
        assert_eq!(region["nodes"], seen.len(), "{scope}: {region}");
        assert_eq!(region["gpus"][0]["total"], seen.len(), "{scope}: {region}");
        let plan = get("/v1/regions/default/maintenance").await.expect(200);
        let mut planned: Vec<&str> =
            plan["nodes"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
        planned.sort_unstable();
        assert_eq!(planned, seen, "{scope}");
    }
}

#[tokio::test]
async fn only_a_key_that_covers_a_nodes_scope_speaks_for_it() {
    let server = priced(&[]).await;
    let acme = server.key("agent", "acme").await;
    let nlp = server.key("agent", "acme:nlp").await;
    let vision = server.key("agent", "acme:vision").await;
    let umbra = server.key("agent", "umbra").await;
    let mut node = Agent::register_under(&server, &nlp, "default", "shared", "H100", 2).await;
    submit(&server, of("job", "acme:nlp")).await;
    node.beat(&server).await;
    assert!(node.runs_job("job"));
    let log =
        json!({ "incarnation": 1, "attempt": node.attempt_of("job"), "offset": 0, "data": "" });
    for key in [&vision, &umbra] {
        let report = node.report();
        let post = async |path: &str, body: Value| {
            server.send("POST", &format!("/v1/nodes/shared/{path}"), body, key, &[]).await
        };
        post("heartbeat", report).await.problem("not_found");
        post("logs", log.clone()).await.problem("not_found");
    }
    let body = offer("shared", "default", "H100", 2);
    server.send("POST", "/v1/nodes", body.clone(), &vision, &[]).await.problem("conflict");
    assert_eq!(server.get("/v1/nodes/shared").await["incarnation"], 1);
    node.beat(&server).await;
    assert!(node.runs_job("job"), "nothing that others said has changed anything");
    // A wider key of the same tenant may speak for it, and what runs there goes on.
    let wider = server.send("POST", "/v1/nodes", body.clone(), &acme, &[]).await.expect(201);
    (node.incarnation, node.seq, node.key) = (2, 0, acme.clone());
    assert_eq!(wider["incarnation"], 2);
    assert_eq!(server.get("/v1/nodes/shared").await["scope"], "acme");
    node.run(&server, 30).await;
    assert!(node.runs_job("job"));
    for key in [&nlp, &vision] {
        let report = node.report();
        let path = "/v1/nodes/shared/heartbeat";
        server.send("POST", path, report, key, &[]).await.problem("forbidden");
        server.send("POST", "/v1/nodes", body.clone(), key, &[]).await.problem("conflict");
    }
    node.finish(&server, "job", 0).await;
    // The scope is narrowed by removing the node and registering it again.
    server.call("DELETE", "/v1/nodes/shared", Value::Null).await.expect(204);
    server.send("POST", "/v1/nodes", body, &nlp, &[]).await.expect(201);
    assert_eq!(server.get("/v1/nodes/shared").await["scope"], "acme:nlp");
    check_books(&server, 1_000_000_000, &["job"]).await;
}

#[tokio::test]
async fn operators_change_the_nodes_of_their_own_scope() {
    let server = priced(&[]).await;
    for (scope, name) in [("acme:nlp", "nlp-1"), ("umbra", "umbra-1")] {
        let key = server.key("agent", scope).await;
        Agent::register_under(&server, &key, "default", name, "H100", 1).await;
    }
    Agent::register(&server, "common", "H100", 1).await;
    let operator = server.key("operator", "acme").await;
    let post = async |path: &str| server.send("POST", path, json!({}), &operator, &[]).await;
    assert_eq!(post("/v1/nodes/nlp-1/drain").await.expect(200)["state"], "drained");
    assert_eq!(post("/v1/nodes/nlp-1/resume").await.expect(200)["state"], "ready");
    post("/v1/nodes/common/drain").await.problem("forbidden");
    post("/v1/nodes/umbra-1/drain").await.problem("not_found");
    let delete = async |path: &str| server.send("DELETE", path, Value::Null, &operator, &[]).await;
    delete("/v1/nodes/umbra-1").await.problem("not_found");
    delete("/v1/nodes/common").await.problem("forbidden");
    delete("/v1/nodes/nlp-1").await.expect(204);
}

/// The keys of a tenant share its idempotency keys, not their scopes.
#[tokio::test]
async fn a_kept_answer_about_a_node_is_repeated_to_keys_that_could_have_got_it_alone() {
    let mut server = priced(&[]).await;
    let vision = server.key("agent", "acme:vision").await;
    Agent::register_under(&server, &vision, "default", "v-1", "H100", 1).await;
    let (wide, other) =
        (server.key("operator", "acme").await, server.key("operator", "acme").await);
    let owner = server.key("operator", "acme:vision").await;
    let sibling = server.key("operator", "acme:nlp").await;
    let drain = async |server: &Server, key: &str| {
        let header = [("Idempotency-Key", "drain")];
        server.send("POST", "/v1/nodes/v-1/drain", json!({}), key, &header).await
    };
    let first = drain(&server, &wide).await.expect(200);
    assert_eq!(first["state"], "drained");
    let delete = async |server: &Server, key: &str| {
        let header = [("Idempotency-Key", "delete")];
        server.send("DELETE", "/v1/nodes/v-1", Value::Null, key, &header).await
    };
    for restarted in [false, true] {
        if restarted {
            server.crash_and_restart(&["--clock", "manual"]);
        }
        drain(&server, &sibling).await.problem("not_found");
        for key in [&wide, &other, &owner] {
            let again = drain(&server, key).await;
            assert!(again.is_replayed());
            assert_eq!(again.expect(200)["id"], first["id"]);
        }
        assert_eq!(drain(&server, &other).await.expect(200), first, "the same rights");
    }
    // A registration is not repeated either: the node would be another one.
    let body = offer("v-2", "default", "H100", 1);
    let header = [("Idempotency-Key", "register")];
    let admin = server.key("admin", "acme").await;
    server.send("POST", "/v1/nodes", body.clone(), &admin, &header).await.expect(201);
    let nlp = server.key("agent", "acme:nlp").await;
    server.send("POST", "/v1/nodes", body, &nlp, &header).await.problem("idempotency_key_reused");
    delete(&server, &wide).await.expect(204);
    delete(&server, &sibling).await.problem("not_found");
    for key in [&wide, &other] {
        let again = delete(&server, key).await;
        assert!(again.is_replayed());
        again.expect(204);
    }
}

#[tokio::test]
async fn a_siblings_job_is_answered_like_one_that_does_not_exist() {
    let server = priced(&[]).await;
    submit(&server, of("ours", "acme:nlp")).await;
    submit(&server, of("theirs", "acme:vision")).await;
    submit(&server, of("ended", "acme:vision")).await;
    cancel(&server, "ended").await;
    submit(&server, with(of("array", "acme:vision"), "array", json!(2))).await;
    let key = server.key("submitter", "acme:nlp").await;
    for path in ["/v1/jobs", "/v1/quotes"] {
        let ask = async |key: &str, after: &str| {
            let job = with(of("next", "acme:nlp:x"), "after", json!([after]));
            server.send("POST", path, job, key, &[]).await
        };
        let unknown = ask(&key, "none").await.problem("not_found");
        for other in ["theirs", "ended", "array", "array.1"] {
            let refused = ask(&key, other).await.problem("not_found");
            let named = unknown["detail"].as_str().expect("text").replace("none", other);
            assert_eq!(refused["detail"], named.as_str());
        }
    }
    let job = with(of("next", "acme:nlp:x"), "after", json!(["ours"]));
    server.send("POST", "/v1/jobs", job, &key, &[]).await.expect(201);
    // A key that sees both may wait for either.
    submit(&server, with(of("both", "acme"), "after", json!(["ours", "theirs", "array"]))).await;
    let operation = |id: &str, after: &str| {
        let body = with(of(id, "acme:nlp"), "after", json!([after]));
        json!({ "method": "POST", "path": "/v1/jobs", "body": body })
    };
    for atomic in [false, true] {
        let operations =
            [operation("b1", "ours"), operation("b2", "b1"), operation("b3", "theirs")];
        let batch = json!({ "operations": operations, "atomic": atomic });
        let done = server.send("POST", "/v1/batch", batch, &key, &[]).await;
        let status = done.body["results"][2]["status"].clone();
        assert_eq!(status, 404, "{}", done.body);
    }
}

#[tokio::test]
async fn regions_count_the_jobs_of_the_keys_scope_alone() {
    let server = priced(&[]).await;
    server.grant("theirs", "umbra", "100").await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, of("runs", "acme:nlp")).await;
    agent.beat(&server).await;
    for (id, account) in [("w1", "acme:nlp:x"), ("w2", "acme:vision"), ("w3", "umbra")] {
        submit(&server, of(id, account)).await;
    }
    let counted = async |key: &str| {
        let regions = server.send("GET", "/v1/regions", Value::Null, key, &[]).await.expect(200);
        let count = |field: &str| regions["data"][0][field].as_u64().expect("a number");
        (count("running_jobs"), count("waiting_jobs"))
    };
    assert_eq!(counted(&server.root).await, (1, 3));
    for (scope, counts) in [
        ("*", (1, 3)),
        ("acme", (1, 2)),
        ("acme:nlp", (1, 1)),
        ("acme:nlp:x", (0, 1)),
        ("acme:vision", (0, 1)),
        ("umbra", (0, 1)),
    ] {
        let key = server.key("viewer", scope).await;
        assert_eq!(counted(&key).await, counts, "{scope}");
    }
}
