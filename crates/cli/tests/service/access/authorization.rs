//! Every operation of the description × no key, expired key, foreign tenant, sibling, parent, every
//! role. An operation without a sample here fails the test, so the matrix is always whole.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::server::{Answer, Server};

const ROLES: [&str; 7] =
    ["admin", "billing", "operator", "submitter", "viewer", "auditor", "agent"];

/// What a key that cannot see the account gets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Hidden {
    /// 404.
    NotFound,
    /// 200 with a list without the account.
    Empty,
    /// 200 with 404 for each operation inside.
    Inside,
    /// 404, unless the account is above the key: then the node runs the key's jobs too, is shown, and
    /// is changed by others alone.
    Node,
    /// 409: the name is taken within the tenant.
    Taken,
}

/// A request that succeeds with a permitted key.
struct Sample {
    method: &'static str,
    path: String,
    body: Value,
    hidden: Hidden,
}

fn node(tag: &str) -> Value {
    json!({ "id": format!("n-{tag}"), "region": "default", "gpus": [], "cpus": 1, "memory_gib": 1 })
}

fn window() -> Value {
    json!({ "from": "2030-01-01T00:00:00Z", "to": "2030-01-02T00:00:00Z" })
}

/// A request for an operation, about an account and the things in it that the test made.
fn sample(operation: &str, account: &str, round: usize) -> Option<Sample> {
    use Hidden::{Empty, Inside, Node, NotFound, Taken};
    let tag = account.replace(':', "-");
    let (grant, hold, charge) = (format!("g-{tag}"), format!("h-{tag}"), format!("c-{tag}"));
    let own = format!("/v1/accounts/{account}");
    let fresh = format!("{account}:n{round}");
    let amount = json!({ "account": account, "amount": "0.000001" });
    let grant_body = json!({ "account": account, "amount": "0.000001", "kind": "grant" });
    let budget = json!({ "limit": "1000000", "period": "total", "mode": "soft" });
    let open = json!({ "id": fresh, "kind": "user" });
    let price = json!({ "per_gpu_hour": "1" });
    let class = json!({
        "rank": 1, "preempts": [], "grace_seconds": 1, "default_preemptible": true
    });
    let key = json!({ "role": "viewer", "scope": account, "name": "n" });
    let sibling = format!("{account}:y");
    let inside = json!({ "operations": [
        { "method": "POST", "path": "/v1/charges", "body": amount },
        { "method": "POST", "path": format!("/v1/holds/{hold}/extend"), "body": { "ttl_seconds": 9 } },
    ]});
    let (node, about_node) = (node(&tag), format!("/v1/nodes/n-{tag}"));
    let plan = "/v1/regions/default/maintenance";
    let job = json!({
        "account": account, "gpus": { "types": ["H100"] }, "max_runtime_seconds": 1
    });
    let range = "from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z";
    let (method, path, body, hidden) = match operation {
        "open_account" => ("POST", "/v1/accounts".into(), open, NotFound),
        "list_accounts" => ("GET", format!("/v1/accounts?prefix={account}"), Value::Null, Empty),
        "get_account" => ("GET", own, Value::Null, NotFound),
        "change_account" => ("PATCH", own, json!({ "name": "n" }), NotFound),
        "freeze_account" => ("POST", format!("{own}:y/freeze"), json!({}), NotFound),
        "unfreeze_account" => ("POST", format!("{own}:y/unfreeze"), json!({}), NotFound),
        "collect" => ("POST", format!("{own}/collect"), json!({}), NotFound),
        "get_balance" => ("GET", format!("{own}/balance"), Value::Null, NotFound),
        "get_effective" => ("GET", format!("{own}/effective"), Value::Null, NotFound),
        "get_spend" => ("GET", format!("{own}/spend"), Value::Null, NotFound),
        "get_account_series" => {
            ("GET", format!("{own}/series?metric=available"), Value::Null, NotFound)
        }
        "list_entries" => ("GET", format!("{own}/entries"), Value::Null, NotFound),
        "get_statement" => ("GET", format!("{own}/statement?{range}"), Value::Null, NotFound),
        "get_forecast" => ("GET", format!("{own}/forecast"), Value::Null, NotFound),
        "set_budget" => ("PUT", format!("{own}/budgets/b"), budget, NotFound),
        "list_budgets" => ("GET", format!("{own}/budgets"), Value::Null, NotFound),
        "get_budget_tree" => ("GET", format!("{own}/budget-tree"), Value::Null, NotFound),
        "get_budget" => ("GET", format!("{own}/budgets/b"), Value::Null, NotFound),
        "remove_budget" => ("DELETE", format!("{own}/budgets/spare{round}"), Value::Null, NotFound),
        "set_quota" => ("PUT", format!("{own}/quota"), json!({ "running_jobs": 1 }), NotFound),
        "get_quota" => ("GET", format!("{own}/quota"), Value::Null, NotFound),
        "remove_quota" => ("DELETE", format!("{own}/quota?region=r{round}"), Value::Null, NotFound),
        "get_top" => ("GET", "/v1/top?kind=team&by=available".into(), Value::Null, Empty),
        "issue_grant" => ("POST", "/v1/grants".into(), grant_body, NotFound),
        "list_grants" => ("GET", format!("/v1/grants?account={account}"), Value::Null, NotFound),
        "get_grant" => ("GET", format!("/v1/grants/{grant}"), Value::Null, NotFound),
        "revoke_grant" => ("POST", format!("/v1/grants/{grant}/revoke"), json!({}), NotFound),
        "place_hold" => ("POST", "/v1/holds".into(), amount, NotFound),
        "list_holds" => ("GET", format!("/v1/holds?account={account}"), Value::Null, NotFound),
        "get_hold" => ("GET", format!("/v1/holds/{hold}"), Value::Null, NotFound),
        "list_hold_lots" => ("GET", format!("/v1/holds/{hold}/lots"), Value::Null, NotFound),
        "capture_hold" => {
            ("POST", format!("/v1/holds/{hold}/capture"), json!({ "total": "0" }), NotFound)
        }
        "extend_hold" => {
            ("POST", format!("/v1/holds/{hold}/extend"), json!({ "ttl_seconds": 9 }), NotFound)
        }
        "settle_hold" => {
            ("POST", format!("/v1/holds/{hold}/settle"), json!({ "total": "0" }), NotFound)
        }
        "release_hold" => ("POST", format!("/v1/holds/{hold}/release"), json!({}), NotFound),
        "create_charge" => ("POST", "/v1/charges".into(), amount, NotFound),
        "get_charge" => ("GET", format!("/v1/charges/{charge}"), Value::Null, NotFound),
        "list_charges" => ("GET", format!("/v1/charges?account={account}"), Value::Null, NotFound),
        "list_refunds" => ("GET", format!("/v1/refunds?account={account}"), Value::Null, NotFound),
        "get_refund" => ("GET", format!("/v1/refunds/r-{tag}"), Value::Null, NotFound),
        "list_transfers" => {
            ("GET", format!("/v1/transfers?account={account}"), Value::Null, NotFound)
        }
        "get_transfer" => ("GET", format!("/v1/transfers/t-{tag}"), Value::Null, NotFound),
        "create_refund" => {
            let body = json!({ "charge": charge, "amount": "0.000001" });
            ("POST", "/v1/refunds".into(), body, NotFound)
        }
        "create_transfer" => {
            let body = json!({ "from": account, "to": sibling, "amount": "0.000001" });
            ("POST", "/v1/transfers".into(), body, NotFound)
        }
        "set_price" => ("PUT", "/v1/prices/H100".into(), price, NotFound),
        "list_prices" => ("GET", "/v1/prices".into(), Value::Null, Empty),
        "set_class" => ("PUT", "/v1/classes/c".into(), class, NotFound),
        "list_classes" => ("GET", "/v1/classes".into(), Value::Null, Empty),
        "submit_job" => ("POST", "/v1/jobs".into(), job, NotFound),
        "list_jobs" => ("GET", format!("/v1/jobs?account={account}"), Value::Null, NotFound),
        "get_job" => ("GET", format!("/v1/jobs/j-{tag}"), Value::Null, NotFound),
        "cancel_job" => ("POST", format!("/v1/jobs/j-{tag}/cancel"), json!({}), NotFound),
        "preempt_job" => ("POST", format!("/v1/jobs/j-{tag}/preempt"), json!({}), NotFound),
        "explain_job" => ("GET", format!("/v1/jobs/j-{tag}/why"), Value::Null, NotFound),
        "get_job_timeline" => ("GET", format!("/v1/jobs/j-{tag}/timeline"), Value::Null, NotFound),
        "get_job_logs" => ("GET", format!("/v1/jobs/j-{tag}/logs"), Value::Null, NotFound),
        "get_quote" => ("POST", "/v1/quotes".into(), job, NotFound),
        "report_usage" => {
            let records = json!([{ "hold": hold, "seq": 1, "amount_total": "0" }]);
            ("POST", "/v1/usage".into(), json!({ "records": records }), Inside)
        }
        "register_node" => ("POST", "/v1/nodes".into(), node, Taken),
        "heartbeat_node" => {
            let beat = json!({ "incarnation": 1, "seq": 1, "attempts": [] });
            ("POST", about_node + "/heartbeat", beat, Node)
        }
        "send_node_log" => {
            let chunk = json!({ "incarnation": 1, "attempt": "att_1", "offset": 0, "data": "?" });
            ("POST", about_node + "/logs", chunk, Node)
        }
        "list_nodes" => ("GET", "/v1/nodes".into(), Value::Null, Empty),
        "get_node" => ("GET", about_node, Value::Null, Node),
        "drain_node" => ("POST", about_node + "/drain", json!({}), Node),
        "resume_node" => ("POST", about_node + "/resume", json!({}), Node),
        "delete_node" => ("DELETE", about_node, Value::Null, Node),
        "get_queue" => ("GET", "/v1/regions/default/queue".into(), Value::Null, Empty),
        "get_region_map" => ("GET", "/v1/regions/default/map".into(), Value::Null, Empty),
        "get_region_series" => {
            let path = "/v1/regions/default/series?metric=jobs_running";
            ("GET", path.into(), Value::Null, Empty)
        }
        "search" => ("GET", format!("/v1/search?q={account}"), Value::Null, Empty),
        "plan_maintenance" => ("PUT", plan.into(), window(), NotFound),
        "get_maintenance" => ("GET", plan.into(), Value::Null, Empty),
        "cancel_maintenance" => ("DELETE", plan.into(), Value::Null, NotFound),
        "list_regions" => ("GET", "/v1/regions".into(), Value::Null, Empty),
        "create_key" => ("POST", "/v1/keys".into(), key, NotFound),
        "list_keys" => ("GET", "/v1/keys".into(), Value::Null, Empty),
        "revoke_key" => ("DELETE", format!("/v1/keys/k-{tag}-{round}"), Value::Null, NotFound),
        "create_session" => ("POST", "/v1/session".into(), json!({ "key": "bur_x_y" }), NotFound),
        "get_session" => ("GET", "/v1/session".into(), Value::Null, Empty),
        "list_sessions" => ("GET", "/v1/sessions".into(), Value::Null, Empty),
        "end_session" => ("DELETE", "/v1/session".into(), Value::Null, Empty),
        "list_audit" => ("GET", format!("/v1/audit?account={account}"), Value::Null, NotFound),
        "get_checkpoint" => ("GET", "/v1/audit/checkpoint".into(), Value::Null, Empty),
        "get_proof" => ("GET", "/v1/audit/proof?position=2".into(), Value::Null, NotFound),
        "follow_events" => ("GET", "/v1/events".into(), Value::Null, Empty),
        "run_batch" => ("POST", "/v1/batch".into(), inside, Inside),
        "dry_run" => {
            let path = format!("/v1/jobs/j-{tag}/cancel");
            let body = json!({ "method": "POST", "path": path, "body": {} });
            ("POST", "/v1/dry-run".into(), body, NotFound)
        }
        "get_cluster" => ("GET", "/v1/cluster".into(), Value::Null, NotFound),
        "drain_member" | "evict_member" => {
            let verb = operation.trim_end_matches("_member");
            ("POST", format!("/v1/cluster/members/server/{verb}"), json!({}), NotFound)
        }
        "resume_member" => {
            ("POST", "/v1/cluster/members/server/resume".into(), json!({}), NotFound)
        }
        "upgrade_cluster" => ("POST", "/v1/cluster/upgrade".into(), json!({}), NotFound),
        "list_shards" => ("GET", "/v1/shards".into(), Value::Null, NotFound),
        "add_shard" => ("POST", "/v1/shards".into(), json!({}), NotFound),
        "drain_shard" | "open_shard" => {
            let verb = operation.trim_end_matches("_shard");
            ("POST", format!("/v1/shards/ledger-0/{verb}"), json!({}), NotFound)
        }
        "get_clock" => ("GET", "/v1/clock".into(), Value::Null, Empty),
        "accept_clock" => ("POST", "/v1/clock/accept".into(), Value::Null, NotFound),
        "move_clock" => ("POST", "/v1/clock".into(), json!({ "advance_seconds": 0 }), NotFound),
        _ => return None,
    };
    Some(Sample { method, path, body, hidden })
}

/// One operation of the description.
struct Operation {
    id: String,
    reach: String,
    roles: Vec<String>,
}

async fn operations(server: &Server) -> Vec<Operation> {
    let description = server.send("GET", "/openapi.json", Value::Null, "", &[]).await.expect(200);
    let mut found = Vec::new();
    for item in description["paths"].as_object().expect("paths").values() {
        for operation in item.as_object().expect("operations").values() {
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            found.push(Operation {
                id: text(&operation["operationId"]),
                reach: text(&operation["x-reach"]),
                roles: operation["x-roles"].as_array().expect("roles").iter().map(text).collect(),
            });
        }
    }
    found
}

/// Sends a sample. Of a stream only the head is read.
async fn ask(server: &Server, sample: &Sample, key: &str) -> Answer {
    if sample.path != "/v1/events" {
        let (path, body) = (&sample.path, sample.body.clone());
        return server.send(sample.method, path, body, key, &[]).await;
    }
    let mut request = server.client.get(format!("{}{}", server.url, sample.path));
    if !key.is_empty() {
        request = request.bearer_auth(key);
    }
    let response = request.send().await.expect("the server is there");
    if response.status() == 200 {
        let (status, headers) = (200, response.headers().clone());
        return Answer { status, headers, body: Value::Null };
    }
    crate::server::read(response).await
}

/// Accounts `acme` and `acme:nlp` with a grant, a hold, a charge, a budget and a child each.
async fn prepare(server: &Server) {
    server.tree().await;
    server.open("acme:y", "team").await;
    server.open("acme:nlp:y", "project").await;
    server.call("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "1" })).await.expect(200);
    for account in ["acme", "acme:nlp"] {
        let tag = account.replace(':', "-");
        server.grant(&format!("g-{tag}"), account, "100").await;
        server.grant(&format!("more-{tag}"), account, "100").await;
        let hold = json!({ "id": format!("h-{tag}"), "account": account, "amount": "1" });
        server.call("POST", "/v1/holds", hold).await.expect(201);
        let charge = json!({ "id": format!("c-{tag}"), "account": account, "amount": "1" });
        server.call("POST", "/v1/charges", charge).await.expect(201);
        let refund = json!({
            "id": format!("r-{tag}"), "charge": format!("c-{tag}"), "amount": "0.1"
        });
        server.call("POST", "/v1/refunds", refund).await.expect(201);
        let transfer = json!({
            "id": format!("t-{tag}"), "from": account, "to": format!("{account}:y"), "amount": "1"
        });
        server.call("POST", "/v1/transfers", transfer).await.expect(201);
        let budget = json!({ "limit": "1000000", "period": "total", "mode": "soft" });
        server.call("PUT", &format!("/v1/accounts/{account}/budgets/b"), budget).await.expect(200);
        let job = json!({
            "id": format!("j-{tag}"), "account": account, "gpus": { "types": ["H100"] },
            "max_runtime_seconds": 1
        });
        server.call("POST", "/v1/jobs", job).await.expect(201);
    }
    server.call("PUT", "/v1/regions/default/maintenance", window()).await.expect(200);
}

/// Recreates what a sample uses up, before each request with a permitted key.
async fn refill(server: &Server, operation: &str, account: &str, round: usize) {
    let tag = account.replace(':', "-");
    match operation {
        "remove_budget" => {
            let path = format!("/v1/accounts/{account}/budgets/spare{round}");
            let body = json!({ "limit": "1", "period": "total", "mode": "soft" });
            server.call("PUT", &path, body).await.expect(200);
        }
        "remove_quota" => {
            let path = format!("/v1/accounts/{account}/quota");
            let body = json!({ "region": format!("r{round}"), "running_jobs": 1 });
            server.call("PUT", &path, body).await.expect(200);
        }
        "revoke_key" => {
            let id = format!("k-{tag}-{round}");
            let body = json!({ "id": id, "role": "viewer", "scope": account, "name": "n" });
            server.call("POST", "/v1/keys", body).await.expect(201);
        }
        "register_node" | "heartbeat_node" | "send_node_log" | "get_node" | "drain_node"
        | "resume_node" | "delete_node" => {
            let path = format!("/v1/nodes/n-{tag}");
            let owner = [("Bursar-Tenant", "acme")];
            let gone = server.send("DELETE", &path, Value::Null, &server.root, &owner).await.status;
            assert!(matches!(gone, 204 | 404), "{gone}");
            let key = server.key("agent", account).await;
            server.send("POST", "/v1/nodes", node(&tag), &key, &[]).await.expect(201);
        }
        _ => {}
    }
}

fn mentions(body: &Value, account: &str) -> bool {
    body["data"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|one| ["id", "account", "scope"].iter().any(|field| one[*field] == account))
}

#[tokio::test]
async fn every_operation_rejects_every_key_without_permission() {
    let server = Server::start();
    prepare(&server).await;
    let operations = operations(&server).await;
    assert!(operations.len() >= 74, "{}", operations.len());
    let expired = json!({
        "role": "admin", "scope": "*", "name": "n", "expires_at": "2020-01-01T00:00:00Z"
    });
    let expired = server.call("POST", "/v1/keys", expired).await.expect(201)["key"].clone();
    let expired = expired.as_str().expect("shown once").to_owned();
    server.advance(1).await;
    let mut keys: BTreeMap<&str, String> = BTreeMap::new();
    for role in ROLES {
        keys.insert(role, server.key(role, "acme").await);
    }
    let mut issuers: BTreeMap<&str, String> = BTreeMap::new();
    for role in ROLES {
        issuers.insert(role, server.issuer(role, "acme").await);
    }
    let foreign = server.key("admin", "umbra").await;
    let sibling = server.key("admin", "acme:vision").await;
    let below = server.key("admin", "acme:nlp").await;
    let mut round = 0;
    for operation in &operations {
        let id = operation.id.as_str();
        let about = |account: &str, round: usize| {
            sample(id, account, round).unwrap_or_else(|| panic!("no sample for {id}"))
        };
        for key in ["", "bur_nonsense", "bur_x_y", expired.as_str()] {
            ask(&server, &about("acme:nlp", 0), key).await.problem("unauthenticated");
        }
        // The key that counts is in the body: `cli/tests/people/sessions.rs`.
        if operation.reach == "public" {
            assert_eq!(id, "create_session");
            continue;
        }
        for (account, key) in [("acme:nlp", &foreign), ("acme:nlp", &sibling), ("acme", &below)] {
            round += 1;
            refill(&server, id, account, round).await;
            let sample = about(account, round);
            let answer = ask(&server, &sample, key).await;
            match (operation.reach.as_str(), sample.hidden) {
                ("platform", _) => drop(answer.problem("forbidden")),
                ("shared", _) if sample.method == "DELETE" => drop(answer.expect(204)),
                ("shared", _) => drop(answer.expect(200)),
                (_, Hidden::NotFound) => drop(answer.problem("not_found")),
                (_, Hidden::Empty) => {
                    let body = answer.expect(200);
                    assert!(!mentions(&body, account), "{id} shows {account}: {body}");
                }
                // Names of nodes belong to their owner: another tenant may have the same.
                (_, Hidden::Taken) if *key == foreign => {
                    drop(answer.expect(201));
                    let path = format!("/v1/nodes/n-{}", account.replace(':', "-"));
                    server.send("DELETE", &path, Value::Null, &foreign, &[]).await.expect(204);
                }
                (_, Hidden::Taken) => drop(answer.problem("conflict")),
                (_, Hidden::Node) if *key != below => drop(answer.problem("not_found")),
                (_, Hidden::Node) if sample.method == "GET" => drop(answer.expect(200)),
                (_, Hidden::Node) => drop(answer.problem("forbidden")),
                (_, Hidden::Inside) => {
                    let body = answer.expect(200);
                    for one in body["results"].as_array().expect("results") {
                        assert_eq!(one["status"], 404, "{id}");
                    }
                }
            }
        }
        for role in ROLES {
            let allowed = operation.roles.iter().any(|allowed| allowed == role);
            round += 1;
            refill(&server, id, "acme:nlp", round).await;
            let answer = ask(&server, &about("acme:nlp", round), &keys[role]).await;
            match (operation.reach.as_str(), allowed) {
                ("issue", true) => {
                    drop(answer.problem("forbidden"));
                    let answer = ask(&server, &about("acme:nlp", round), &issuers[role]).await;
                    assert!(answer.status < 300, "{id} by {role}: {}", answer.body);
                }
                ("issue", false) => {
                    drop(answer.problem("forbidden"));
                    let answer = ask(&server, &about("acme:nlp", round), &issuers[role]).await;
                    drop(answer.problem("forbidden"));
                }
                ("platform", _) | (_, false) if id != "run_batch" => {
                    drop(answer.problem("forbidden"));
                }
                // A batch is open to every key that may change anything; each operation is checked.
                (_, false) => assert!(matches!(answer.status, 200 | 403), "{id} {role}"),
                (_, true) => {
                    let refused = matches!(answer.status, 401 | 403 | 404);
                    assert!(!refused, "{id} by {role}: {} {}", answer.status, answer.body);
                    assert!(answer.status < 500, "{id} by {role}: {}", answer.body);
                }
            }
        }
    }
}

/// Operations whose repeats are recognised by their own numbers, and those that store nothing.
const WITHOUT_KEY: [&str; 10] = [
    "heartbeat_node",
    "send_node_log",
    "get_quote",
    "dry_run",
    "create_session",
    "end_session",
    // They set the state of a member, which is in no journal.
    "drain_member",
    "resume_member",
    "evict_member",
    "upgrade_cluster",
];

#[tokio::test]
async fn every_operation_that_changes_something_has_one_effect_under_its_key() {
    let server = Server::start();
    prepare(&server).await;
    let mut checked = 0;
    for (round, operation) in operations(&server).await.iter().enumerate() {
        let id = operation.id.as_str();
        let sample = sample(id, "acme:nlp", round).unwrap_or_else(|| panic!("no sample for {id}"));
        if sample.method == "GET" || WITHOUT_KEY.contains(&id) {
            continue;
        }
        refill(&server, id, "acme:nlp", round).await;
        let key = format!("key-{id}");
        let header = [("Idempotency-Key", key.as_str()), ("Bursar-Tenant", "acme")];
        let ask = async || {
            let (path, body) = (&sample.path, sample.body.clone());
            server.send(sample.method, path, body, &server.root, &header).await
        };
        let mut first = ask().await;
        assert!(matches!(first.status, 200..300 | 402 | 409), "{id}: {}", first.body);
        assert!(!first.is_replayed(), "{id}");
        let again = ask().await;
        assert!(again.is_replayed(), "{id}: {}", again.body);
        if id == "create_key" {
            // The secret is shown once, and only its hash is kept.
            first.body.as_object_mut().expect("a key").remove("key");
        }
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{id}");
        // Whatever the ledger decides, its keys are of one namespace.
        let position = first.headers.get("bursar-position");
        let position = position.map(|position| position.to_str().expect("ascii"));
        let by_ledger = position.is_some_and(|position| position.parse::<u64>().is_ok());
        if by_ledger || ["run_batch", "report_usage"].contains(&id) {
            let other = json!({ "account": "acme:nlp", "amount": "0.000002" });
            let reused = server.send("POST", "/v1/charges", other, &server.root, &header).await;
            reused.problem("idempotency_key_reused");
        }
        checked += 1;
    }
    assert!(checked >= 35, "{checked}");
}
