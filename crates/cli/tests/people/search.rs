//! Search: by id or beginning, inside the caller's scope.

use serde_json::{Value, json};

use crate::server::Server;

/// The hits of a search as `kind id`, in a state that has all changes made before.
async fn hits(server: &Server, key: &str, q: &str) -> Vec<String> {
    let position = server.get("/v1/accounts/acme/balance").await["position"].clone();
    let path = format!("/v1/search?q={q}&min_position={position}");
    let found = server.send("GET", &path, Value::Null, key, &[]).await;
    let found = found.expect(200);
    let data = found["data"].as_array().expect("hits").iter();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    data.map(|hit| format!("{} {}", text(&hit["kind"]), text(&hit["id"]))).collect()
}

/// Two tenants with things of the same names, and a team with its own.
async fn furnish(server: &Server) {
    server.tree().await;
    server.call("PUT", "/v1/prices/H100", json!({ "per_gpu_hour": "1" })).await.expect(200);
    for (org, account) in [("acme", "acme"), ("umbra", "umbra"), ("acme", "acme:nlp")] {
        let own = |what: &str| {
            let team = if account == org { "" } else { "-nlp" };
            format!("train-{what}{team}")
        };
        server.grant(&own("grant"), account, "100").await;
        let hold = json!({ "id": own("hold"), "account": account, "amount": "1" });
        server.call("POST", "/v1/holds", hold).await.expect(201);
        let charge = json!({ "id": own("charge"), "account": account, "amount": "1" });
        server.call("POST", "/v1/charges", charge).await.expect(201);
        let job = json!({
            "id": own("job"), "account": account, "gpus": { "types": ["H100"] },
            "max_runtime_seconds": 60
        });
        server.call("POST", "/v1/jobs", job).await.expect(201);
        let key = json!({ "id": own("key"), "role": "viewer", "scope": account, "name": "CI" });
        server.call("POST", "/v1/keys", key).await.expect(201);
    }
}

#[tokio::test]
async fn everything_is_found_by_its_id_or_how_it_begins_inside_the_scope() {
    let server = Server::start();
    furnish(&server).await;
    let admin = server.key("admin", "acme").await;
    let all = [
        "grant train-grant",
        "grant train-grant-nlp",
        "job train-job",
        "job train-job-nlp",
        "hold train-hold",
        "hold train-hold-nlp",
        "charge train-charge",
        "charge train-charge-nlp",
        "key train-key",
        "key train-key-nlp",
    ];
    let sorted = |mut hits: Vec<String>| {
        hits.sort();
        hits
    };
    let expected = |wanted: &[&str]| {
        let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        sorted(wanted)
    };
    assert_eq!(sorted(hits(&server, &admin, "train-").await), expected(&all));
    // A whole id comes first.
    assert_eq!(hits(&server, &admin, "train-job").await, ["job train-job", "job train-job-nlp"]);
    let nlp = server.key("admin", "acme:nlp").await;
    let own: Vec<&str> = all.into_iter().filter(|hit| hit.ends_with("-nlp")).collect();
    assert_eq!(sorted(hits(&server, &nlp, "train-").await), expected(&own));
    // Both tenants are found by the platform alone.
    assert_eq!(hits(&server, &server.root, "train-job-nlp").await, ["job train-job-nlp"]);
    let both = hits(&server, &server.root, "train-hold").await;
    assert_eq!(both.iter().filter(|hit| *hit == "hold train-hold").count(), 2, "{both:?}");
    // Other roles find no keys.
    let viewer = server.key("viewer", "acme").await;
    assert!(hits(&server, &viewer, "train-key").await.is_empty());
    assert_eq!(hits(&server, &admin, "ci").await.len(), 2, "keys by their names");
    let agent = server.key("agent", "acme").await;
    let refused = server.send("GET", "/v1/search?q=a", Value::Null, &agent, &[]).await;
    refused.problem("forbidden");
}

#[tokio::test]
async fn accounts_are_found_by_path_segment_or_name_and_closed_things_too() {
    let server = Server::start();
    furnish(&server).await;
    let name = json!({ "name": "Speech and language" });
    server.call("PATCH", "/v1/accounts/acme:nlp", name).await.expect(200);
    let acme = server.key("viewer", "acme").await;
    assert_eq!(hits(&server, &acme, "acme:n").await, ["account acme:nlp", "account acme:nlp:x"]);
    assert_eq!(hits(&server, &acme, "nl").await, ["account acme:nlp"]);
    assert_eq!(hits(&server, &acme, "speech").await, ["account acme:nlp"]);
    assert!(hits(&server, &acme, "umbra").await.is_empty());
    assert!(hits(&server, &acme, "u").await.is_empty());
    let sibling = server.key("viewer", "acme:vision").await;
    assert_eq!(hits(&server, &sibling, "a").await, ["account acme:vision"]);
    assert!(hits(&server, &sibling, "train-").await.is_empty());
    let settle = json!({ "total": "1" });
    server.call("POST", "/v1/holds/train-hold-nlp/settle", settle).await.expect(200);
    server.call("POST", "/v1/jobs/train-job-nlp/cancel", json!({})).await.expect(200);
    // After 35 days the ledger has forgotten them.
    server.advance(40 * 24 * 3600).await;
    let found = hits(&server, &acme, "train-hold-nlp").await;
    assert_eq!(found, ["hold train-hold-nlp"]);
    assert_eq!(hits(&server, &acme, "train-job-nlp").await, ["job train-job-nlp"]);
}

#[tokio::test]
async fn a_request_leads_to_the_records_that_were_made_when_it_arrived() {
    let server = Server::start();
    server.tree().await;
    server.advance(3600).await;
    let body = json!({ "id": "g", "account": "acme", "amount": "1", "kind": "grant" });
    let answer = server.call("POST", "/v1/grants", body).await;
    let request = answer.headers["bursar-request-id"].to_str().expect("ascii").to_owned();
    answer.expect(201);
    server.advance(3600).await;
    server.grant("later", "umbra", "1").await;
    let auditor = server.key("auditor", "acme").await;
    let path = format!("/v1/search?q={request}");
    let found = server.send("GET", &path, Value::Null, &auditor, &[]).await.expect(200);
    let data = found["data"].as_array().expect("hits");
    assert_eq!(data.len(), 1, "{found}");
    assert_eq!((&data[0]["kind"], &data[0]["name"]), (&json!("request"), &json!("issue_grant")));
    assert_eq!(data[0]["at"], "2020-01-01T01:00:00.000Z");
    let position = data[0]["position"].as_u64().expect("a position");
    let audit = server.get("/v1/audit?account=acme").await;
    let records = audit["data"].as_array().expect("records").iter();
    assert!(records.into_iter().any(|record| record["position"] == position), "{audit}");
    for key in [server.key("viewer", "acme").await, server.key("auditor", "umbra").await] {
        let found = server.send("GET", &path, Value::Null, &key, &[]).await.expect(200);
        assert_eq!(found["data"], json!([]));
    }
}

#[tokio::test]
async fn a_search_is_bounded_and_hostile_texts_find_nothing() {
    let server = Server::start();
    server.tree().await;
    for number in 0..30 {
        server.grant(&format!("many-{number:02}"), "acme", "1").await;
    }
    let found = server.get("/v1/search?q=many-").await;
    assert_eq!(
        (found["data"].as_array().expect("hits").len(), &found["truncated"]),
        (25, &json!(true))
    );
    let found = server.get("/v1/search?q=many-&limit=100").await;
    assert_eq!(
        (found["data"].as_array().expect("hits").len(), &found["truncated"]),
        (30, &json!(false))
    );
    for q in ["%25", "_", "'%20OR%201=1%20--", "%00", "%F0%9F%92%B0", "many-%25"] {
        assert_eq!(hits(&server, &server.root, q).await, Vec::<String>::new(), "{q}");
    }
    let long = "a".repeat(129);
    for wrong in ["q=", "q=%20", &format!("q={long}"), "q=a&limit=101", "limit=5"] {
        let path = format!("/v1/search?{wrong}");
        server.call("GET", &path, Value::Null).await.problem("invalid_field");
    }
}
