//! Several ledger shards in one server: orgs are spread over them, and a key of the platform sees one service.

use serde_json::{Value, json};

use crate::server::{Server, read};

pub(super) fn two() -> Server {
    Server::with(&["--clock", "manual", "--shards", "2"])
}

/// Two orgs, each on a shard of its own, with credits.
pub(super) async fn spread(server: &Server) {
    for org in ["acme", "umbra"] {
        server.open(org, "org").await;
        server.open(&format!("{org}:ml"), "team").await;
        server.grant(&format!("g-{org}"), org, "100").await;
    }
}

pub(super) fn ids(list: &Value) -> Vec<&str> {
    let rows = list["data"].as_array().expect("a list");
    rows.iter().map(|row| row["id"].as_str().expect("an id")).collect()
}

#[track_caller]
fn position(answer: &crate::server::Answer) -> &str {
    answer.headers["bursar-position"].to_str().expect("ascii")
}

#[tokio::test]
async fn two_orgs_land_on_two_shards_and_a_platform_key_sees_both() {
    let server = two();
    spread(&server).await;
    assert_eq!(server.get("/v1/accounts/acme").await["shard"], "ledger-0");
    assert_eq!(server.get("/v1/accounts/umbra").await["shard"], "ledger-1");
    let shards = server.get("/v1/shards").await;
    let states = json!([
        { "id": "ledger-0", "state": "open", "orgs": 1, "load": 1 },
        { "id": "ledger-1", "state": "open", "orgs": 1, "load": 1 },
    ]);
    assert_eq!(shards["data"], states);
    // Opening an org again changes nothing.
    let again = json!({ "id": "umbra", "kind": "org" });
    server.call("POST", "/v1/accounts", again).await.expect(200);
    assert_eq!(server.get("/v1/shards").await["data"], states);
    for (number, org) in ["acme", "umbra"].iter().enumerate() {
        let hold =
            json!({ "id": format!("h-{org}"), "account": format!("{org}:ml"), "amount": "10" });
        let placed = server.call("POST", "/v1/holds", hold).await;
        assert!(position(&placed).starts_with(&format!("ledger-{number}:")), "{placed:?}");
        placed.expect(201);
        // By its id alone.
        let path = format!("/v1/holds/h-{org}");
        assert_eq!(server.get(&path).await["remaining"], "10");
        server.call("POST", &format!("{path}/capture"), json!({ "total": "4" })).await.expect(200);
        server.call("POST", &format!("{path}/settle"), json!({ "total": "6" })).await.expect(200);
        let refund = json!({ "hold": format!("h-{org}"), "amount": "1" });
        server.call("POST", "/v1/refunds", refund).await.expect(201);
        let balance = server.get(&format!("/v1/accounts/{org}/balance")).await;
        assert_eq!(balance["available"], "95");
        let key = server.key("viewer", org).await;
        let seen = server.send("GET", "/v1/accounts", Value::Null, &key, &[]);
        assert_eq!(ids(&seen.await.expect(200)), [format!("{org}:ml"), (*org).to_owned()]);
    }
    server.call("GET", "/v1/holds/unknown", Value::Null).await.problem("not_found");
    server.call("POST", "/v1/holds/unknown/release", json!({})).await.problem("not_found");
}

#[tokio::test]
async fn lists_of_all_tenants_are_merged_page_by_page() {
    let server = two();
    spread(&server).await;
    let mut made = Vec::new();
    for number in 0..7 {
        let org = if number % 3 == 0 { "acme" } else { "umbra" };
        let id = format!("c{number}");
        let charge = json!({ "id": id, "account": org, "amount": "1" });
        server.call("POST", "/v1/charges", charge).await.expect(201);
        server.advance(60).await;
        made.insert(0, id);
    }
    assert_eq!(ids(&server.get("/v1/charges").await), made);
    let (mut seen, mut path) = (Vec::new(), "/v1/charges?limit=3".to_owned());
    loop {
        let page = server.get(&path).await;
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        match page["next_cursor"].as_str() {
            Some(next) => path = format!("/v1/charges?limit=3&cursor={next}"),
            None => break,
        }
        assert_eq!(page["has_more"], true);
    }
    assert_eq!(seen, made);
    assert_eq!(ids(&server.get("/v1/charges?account=umbra").await).len(), 4);
    assert_eq!(ids(&server.get("/v1/grants").await).len(), 2);
    assert_eq!(ids(&server.get("/v1/accounts").await).len(), 4);
    assert_eq!(ids(&server.get("/v1/jobs").await).len(), 0);
    server.call("GET", "/v1/charges?cursor=x", Value::Null).await.problem("invalid_field");
    let top = server.get("/v1/top?kind=org&by=spent").await;
    assert_eq!(ids(&top), ["umbra", "acme"]);
    let found = server.get("/v1/search?q=g-").await;
    assert_eq!(found["data"].as_array().map(Vec::len), Some(2), "{found}");
}

#[tokio::test]
async fn an_id_in_two_shards_is_ambiguous_until_the_tenant_is_named() {
    let server = two();
    spread(&server).await;
    for org in ["acme", "umbra"] {
        let hold = json!({ "id": "same", "account": org, "amount": "10" });
        server.call("POST", "/v1/holds", hold).await.expect(201);
    }
    server.call("GET", "/v1/holds/same", Value::Null).await.problem("ambiguous_id");
    server.call("POST", "/v1/holds/same/release", json!({})).await.problem("ambiguous_id");
    let asked = [("bursar-tenant", "umbra")];
    let path = "/v1/holds/same/release";
    let released = server.send("POST", path, json!({}), &server.root, &asked).await;
    assert_eq!(released.expect(200)["account"], "umbra");
    let left = server.get("/v1/holds?state=open").await;
    assert_eq!(left["data"][0]["account"], "acme", "{left}");
}

#[tokio::test]
async fn a_batch_is_split_by_shard_and_an_atomic_one_over_two_is_refused() {
    let server = two();
    spread(&server).await;
    let charge = |id: &str, org: &str| {
        json!({ "method": "POST", "path": "/v1/charges",
            "body": { "id": id, "account": org, "amount": "1" } })
    };
    let hold = json!({ "method": "POST", "path": "/v1/holds",
        "body": { "id": "h", "account": "umbra", "amount": "5" } });
    let settle =
        json!({ "method": "POST", "path": "/v1/holds/h/settle", "body": { "total": "2" } });
    let wrong = charge("d", "unknown-org");
    let operations = json!([charge("a", "acme"), hold, charge("b", "umbra"), settle, wrong]);
    let batch = json!({ "operations": operations });
    let results = server.call("POST", "/v1/batch", batch.clone()).await.expect(200);
    let statuses = |results: &Value| {
        let all = results["results"].as_array().expect("results").clone();
        all.iter().map(|one| one["status"].as_u64().expect("a status")).collect::<Vec<_>>()
    };
    assert_eq!(statuses(&results), [201, 201, 201, 200, 404], "{results}");
    assert_eq!(results["results"][2]["body"]["id"], "b");
    // Again: what is done is answered as it was.
    let results = server.call("POST", "/v1/batch", batch).await.expect(200);
    assert_eq!(statuses(&results)[..4], [200, 200, 200, 200], "{results}");
    let atomic = |operations: Value| json!({ "operations": operations, "atomic": true });
    let both = json!([charge("x", "acme"), charge("y", "umbra")]);
    let refused = server.call("POST", "/v1/batch", atomic(both)).await.problem("invalid_field");
    assert!(refused["detail"].as_str().expect("words").contains("one batch for each org"));
    server.call("GET", "/v1/charges/x", Value::Null).await.problem("not_found");
    let one = json!([charge("x", "umbra"), charge("y", "umbra:ml")]);
    server.call("POST", "/v1/batch", atomic(one)).await.expect(200);
    assert_eq!(server.get("/v1/charges/x").await["account"], "umbra");
}

#[tokio::test]
async fn a_draining_shard_takes_no_new_org_and_an_added_one_opens_at_the_next_start() {
    let mut server = two();
    spread(&server).await;
    let drained = server.call("POST", "/v1/shards/ledger-0/drain", json!({})).await.expect(200);
    assert_eq!(drained["state"], "draining");
    for org in ["c", "d"] {
        server.open(org, "org").await;
        assert_eq!(server.get(&format!("/v1/accounts/{org}")).await["shard"], "ledger-1");
    }
    server.grant("more", "acme", "1").await;
    let last = server.call("POST", "/v1/shards/ledger-1/drain", json!({})).await;
    let refused = last.problem("conflict");
    assert!(refused["detail"].as_str().expect("words").contains("bursar shard open"));
    let added = server.call("POST", "/v1/shards", json!({})).await.expect(201);
    assert_eq!((&added["id"], &added["state"]), (&json!("ledger-2"), &json!("closed")));
    let early = server.call("POST", "/v1/shards/ledger-2/open", json!({})).await;
    early.problem("conflict");
    for wrong in ["ledger-9", "ledger", "cell-eu"] {
        let path = format!("/v1/shards/{wrong}/drain");
        server.call("POST", &path, json!({})).await.problem("not_found");
    }
    let gap = json!({ "id": "ledger-7" });
    server.call("POST", "/v1/shards", gap).await.problem("invalid_field");
    server.crash_and_restart(&["--clock", "manual"]);
    assert_eq!(server.get("/v1/shards").await["data"][2]["state"], "open");
    server.open("e", "org").await;
    assert_eq!(server.get("/v1/accounts/e").await["shard"], "ledger-2");
    assert_eq!(server.get("/v1/accounts/umbra/balance").await["available"], "100");
    let tenant = server.key("admin", "acme").await;
    let denied = server.send("GET", "/v1/shards", Value::Null, &tenant, &[]).await;
    denied.problem("forbidden");
}

#[tokio::test]
async fn a_read_waits_for_the_positions_of_a_vector() {
    let server = two();
    spread(&server).await;
    let placed =
        server.call("POST", "/v1/charges", json!({ "account": "umbra", "amount": "1" })).await;
    let reached = position(&placed).to_owned();
    placed.expect(201);
    let read = server.call("GET", &format!("/v1/grants?min_position={reached}"), Value::Null).await;
    let all = position(&read).to_owned();
    assert!(all.starts_with("ledger-0:") && all.contains(",ledger-1:"), "{all}");
    read.expect(200);
    server.get(&format!("/v1/accounts/umbra/balance?stale_ok=true&min_position={all}")).await;
    let number = server.call("GET", "/v1/grants?min_position=1", Value::Null).await;
    number.problem("invalid_field");
    let ahead = "/v1/accounts/umbra/balance?min_position=ledger-1:999999999";
    server.call("GET", ahead, Value::Null).await.problem("invalid_field");
}

#[tokio::test]
async fn each_shard_has_its_audit_trail_and_checkpoint() {
    let server = two();
    spread(&server).await;
    server.grant("more", "umbra", "1").await;
    let of = |machine: &str| format!("/v1/audit?limit=100&machine={machine}");
    let (first, second) = (server.get(&of("ledger-0")).await, server.get(&of("ledger-1")).await);
    assert_ne!(first["data"], second["data"]);
    assert_eq!(server.get("/v1/audit?limit=100&account=umbra").await["data"][0], second["data"][0]);
    let checkpoints: Vec<Value> = [
        server.get("/v1/audit/checkpoint?machine=ledger-0").await,
        server.get("/v1/audit/checkpoint?machine=ledger-1").await,
    ]
    .into();
    assert_ne!(checkpoints[0]["journal"], checkpoints[1]["journal"], "{checkpoints:?}");
    server.get("/v1/audit/proof?machine=ledger-1&position=1").await;
    let unknown = server.call("GET", "/v1/audit?machine=ledger-7", Value::Null).await;
    let detail = unknown.problem("not_found")["detail"].to_string();
    assert!(detail.contains("`ledger-7`"), "{detail}");
    let machines = server.get("/v1/cluster").await;
    let names: Vec<&str> = machines["machines"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|machine| machine["id"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["cell-default", "directory", "ledger-0", "ledger-1"]);
    // The status of machines has the same names.
    let ready = server.get("/readyz").await;
    assert_eq!(
        (&ready["machines"]["ledger-0"], &ready["machines"]["ledger-1"]),
        (&json!("serving"), &json!("serving"))
    );
}

#[tokio::test]
async fn a_stream_over_several_shards_refuses_an_unreadable_last_event_id() {
    let server = two();
    let last = |value: &[u8]| {
        let value = reqwest::header::HeaderValue::from_bytes(value).expect("bytes of a header");
        let request = server.client.get(format!("{}/v1/events", server.url));
        request.bearer_auth(&server.root).header("last-event-id", value)
    };
    for request in [last(b"evt_\xff"), last(b"0").header("last-event-id", "0")] {
        let refused = read(request.send().await.expect("the server is there")).await;
        assert_eq!(refused.problem("invalid_field")["param"], "Last-Event-ID");
    }
}

#[tokio::test]
async fn one_region_runs_jobs_of_two_shards() {
    let server = two();
    spread(&server).await;
    let price = json!({ "per_gpu_hour": "2" });
    server.call("PUT", "/v1/prices/H100", price).await.expect(200);
    let gpus = json!([
        { "uuid": "GPU-1", "type": "H100", "memory_gib": 80 },
        { "uuid": "GPU-2", "type": "H100", "memory_gib": 80 },
    ]);
    let node =
        json!({ "id": "n1", "region": "default", "gpus": gpus, "cpus": 32, "memory_gib": 256 });
    let node = server.call("POST", "/v1/nodes", node).await.expect(201);
    for org in ["acme", "umbra"] {
        let job = json!({
            "id": format!("j-{org}"), "account": format!("{org}:ml"), "max_runtime_seconds": 3600,
            "gpus": { "types": ["H100"], "count": 1 }, "command": ["true"]
        });
        server.call("POST", "/v1/jobs", job).await.expect(201);
    }
    let mut seq = 0;
    let mut beat = async |attempts: Value| {
        seq += 1;
        let beat = json!({ "incarnation": node["incarnation"], "seq": seq, "attempts": attempts });
        server.call("POST", "/v1/nodes/n1/heartbeat", beat).await.expect(200)["orders"].clone()
    };
    let orders = beat(json!([])).await;
    let orders = orders.as_array().expect("orders");
    let mut jobs: Vec<&str> = orders.iter().filter_map(|order| order["job"].as_str()).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, ["j-acme", "j-umbra"], "{orders:?}");
    let report = |state: &str, used: u64| {
        let one = |order: &Value| json!({ "id": order["attempt"], "state": state, "gpu_ms_total": used, "exit_code": 0 });
        let all: Vec<Value> = orders.iter().map(one).collect();
        Value::from(all)
    };
    let mut running = report("running", 0);
    running.as_array_mut().expect("a list").iter_mut().for_each(|one| {
        one.as_object_mut().expect("a report").remove("exit_code");
    });
    beat(running).await;
    let map = server.get("/v1/regions/default/map").await;
    let named = map.to_string();
    assert!(named.contains("j-acme") && named.contains("j-umbra"), "{map}");
    server.advance(60).await;
    beat(report("succeeded", 60_000)).await;
    for org in ["acme", "umbra"] {
        let job = server.get(&format!("/v1/jobs/j-{org}")).await;
        assert_eq!((&job["state"], &job["charged"]), (&json!("succeeded"), &json!("0.033333")));
        let timeline = server.get(&format!("/v1/jobs/j-{org}/timeline")).await;
        let of_cell = |entry: &Value| entry["source"] == "default";
        assert!(timeline["data"].as_array().expect("entries").iter().any(of_cell), "{timeline}");
    }
    assert_eq!(ids(&server.get("/v1/jobs").await), ["j-acme", "j-umbra"]);
    let records = server.get("/v1/audit?machine=cell-default&limit=100").await.to_string();
    assert!(records.contains("j-acme") && records.contains("j-umbra"), "{records}");
}

#[tokio::test]
async fn usage_of_two_shards_comes_in_one_report() {
    let server = two();
    spread(&server).await;
    for org in ["acme", "umbra"] {
        let hold = json!({ "id": format!("h-{org}"), "account": org, "amount": "10" });
        server.call("POST", "/v1/holds", hold).await.expect(201);
    }
    let record = |hold: &str, total: &str| json!({ "hold": hold, "seq": 1, "amount_total": total });
    let records = json!([record("h-umbra", "3"), record("h-acme", "2"), record("h-unknown", "1")]);
    let report = json!({ "records": records });
    let header = [("Idempotency-Key", "k")];
    let send = async |report: &Value| {
        server.send("POST", "/v1/usage", report.clone(), &server.root, &header).await
    };
    let results = send(&report).await.expect(200);
    let statuses: Vec<u64> = results["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|one| one["status"].as_u64().expect("a status"))
        .collect();
    assert_eq!(statuses, [200, 200, 404], "{results}");
    assert_eq!(results["results"][0]["body"]["captured"], "3", "{results}");
    send(&report).await.expect(200);
    assert_eq!(server.get("/v1/holds/h-acme").await["captured"], "2");
}

/// Follows the events after one, or from now on.
async fn follow(server: &Server, path: &str, last: Option<&str>) -> reqwest::Response {
    let mut request = server.client.get(format!("{}{path}", server.url)).bearer_auth(&server.root);
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = request.send().await.expect("the server is there");
    assert_eq!(response.status(), 200);
    response
}

/// The data of the next events of a stream. Each has the id of its event.
async fn next_events(mut stream: reqwest::Response, count: usize) -> Vec<Value> {
    let mut text = String::new();
    loop {
        let whole = text.split_inclusive("\n\n").filter(|block| block.ends_with("\n\n"));
        let field = |block: &str, name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
        };
        let read = whole.filter_map(|block| {
            let id = field(block, "id: ")?;
            let data = field(block, "data: ").expect("data");
            let event: Value = serde_json::from_str(&data).expect("JSON");
            assert_eq!(event["id"], id, "{event}");
            Some(event)
        });
        let events: Vec<Value> = read.collect();
        if events.len() >= count {
            return events;
        }
        let chunk = stream.chunk().await.expect("the stream goes on").expect("it is not over");
        text.push_str(std::str::from_utf8(&chunk).expect("text"));
    }
}

#[tokio::test]
async fn events_of_all_shards_come_in_one_stream_with_a_vector_as_cursor() {
    let server = two();
    spread(&server).await;
    // Each org: two accounts and a grant.
    let all = next_events(follow(&server, "/v1/events?after=0", None).await, 6).await;
    let last = all.last().and_then(|event| event["id"].as_str()).expect("events");
    assert!(last.contains("ledger-0:evt_") && last.contains(",ledger-1:evt_1."), "{last}");
    server.grant("later-acme", "acme", "1").await;
    server.grant("later-umbra", "umbra", "1").await;
    let later = next_events(follow(&server, "/v1/events", Some(last)).await, 2).await;
    assert_eq!(later.len(), 2, "nothing comes twice: {later:?}");
    let plain = server.call("GET", "/v1/events?after=evt_000000000001_0000", Value::Null).await;
    plain.problem("invalid_field");
}

#[tokio::test]
async fn a_stream_from_now_on_is_resumed_from_there_in_a_quiet_shard() {
    let server = two();
    spread(&server).await;
    let stream = follow(&server, "/v1/events", None).await;
    server.grant("now-acme", "acme", "1").await;
    let first = next_events(stream, 1).await;
    assert!(first[0].to_string().contains("now-acme"), "{first:?}");
    server.grant("now-umbra", "umbra", "1").await;
    let resumed = follow(&server, "/v1/events", first[0]["id"].as_str()).await;
    let next = next_events(resumed, 1).await;
    assert!(next[0].to_string().contains("now-umbra"), "{next:?}");
}

#[tokio::test]
async fn a_stream_over_all_shards_takes_one_place() {
    let limits = "[limits]\nwaiting = 64\n";
    let server = Server::configured(limits, &["--clock", "manual", "--shards", "2"]);
    spread(&server).await;
    let streams = [
        follow(&server, "/v1/events?after=0", None).await,
        follow(&server, "/v1/events?after=0", None).await,
    ];
    server.call("GET", "/v1/events", Value::Null).await.problem("rate_limited");
    drop(streams);
    server.until_metric("bursar_http_waiting", |waiting| waiting == 0.0).await;
    follow(&server, "/v1/events", None).await;
}
