//! Usage measured by another system.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::world::{H100, job, micros, price_of, priced, small, state, submit, verify};

async fn report(server: &crate::server::Server, records: Value) -> Vec<Value> {
    let results = server.call("POST", "/v1/usage", json!({ "records": records })).await.expect(200);
    results["results"].as_array().expect("results").clone()
}

#[tokio::test]
async fn a_job_that_runs_elsewhere_is_metered_from_outside() {
    let server = priced(&[]).await;
    submit(&server, small("j")).await;
    let done = report(&server, json!([{ "job": "j", "seq": 1, "gpu_ms_total": 60_000 }])).await;
    assert_eq!((&done[0]["status"], &done[0]["body"]["state"]), (&json!(200), &json!("running")));
    for again in [1, 1] {
        let done =
            report(&server, json!([{ "job": "j", "seq": again, "gpu_ms_total": 60_000 }])).await;
        assert_eq!(done[0]["status"], 200);
    }
    assert_eq!(micros(&job(&server, "j").await["charged"]), H100 * 60 / 3600);
    let conflict = report(&server, json!([{ "job": "j", "seq": 1, "gpu_ms_total": 61_000 }])).await;
    assert_eq!(conflict[0]["body"]["code"], "sequence_conflict");
    let last = json!([{ "job": "j", "seq": 2, "gpu_ms_total": 100_000, "ended": true }]);
    report(&server, last.clone()).await;
    assert_eq!(state(&server, "j").await, "succeeded");
    assert_eq!(report(&server, last).await[0]["status"], 200, "repeating it changes nothing");
    let ended = job(&server, "j").await;
    assert_eq!(micros(&ended["charged"]), price_of(H100, 100_000));
    assert_eq!(micros(&ended["charged"]) + micros(&ended["returned"]), 6_000_000);
    verify(&server);
}

#[tokio::test]
async fn records_are_independent() {
    let server = priced(&[]).await;
    let hold = json!({ "id": "h", "account": "acme:nlp", "amount": "5" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    let results = report(
        &server,
        json!([
            { "hold": "h", "seq": 1, "amount_total": "2" },
            { "hold": "missing", "seq": 1, "amount_total": "2" },
            { "hold": "h", "seq": 2, "amount_total": "3", "ended": true },
            { "hold": "h", "job": "j", "seq": 1, "amount_total": "2" },
            { "hold": "h", "seq": 1 },
        ]),
    )
    .await;
    let statuses: Vec<u64> = results.iter().filter_map(|one| one["status"].as_u64()).collect();
    assert_eq!(statuses, [200, 404, 200, 422, 422]);
    let hold = server.get("/v1/holds/h").await;
    assert_eq!((&hold["state"], &hold["captured"]), (&json!("settled"), &json!("3")));
    server.call("POST", "/v1/usage", json!({ "records": [] })).await.problem("invalid_field");
    verify(&server);
}

#[tokio::test]
async fn a_job_measured_elsewhere_has_the_type_that_it_pays_for() {
    let server = priced(&[]).await;
    let either = json!({ "types": ["A100", "H100"], "count": 1 });
    submit(&server, crate::world::with(small("j"), "gpus", either)).await;
    report(&server, json!([{ "job": "j", "seq": 1, "gpu_ms_total": 60_000 }])).await;
    let attempt = job(&server, "j").await["attempts"][0].clone();
    assert_eq!((&attempt["gpu_type"], &attempt["per_gpu_hour"]), (&json!("H100"), &json!("6")));
    verify(&server);
}

#[tokio::test]
async fn a_report_far_beyond_the_hold_of_a_job_is_refused_and_changes_nothing() {
    let server = priced(&[]).await;
    submit(&server, small("j")).await;
    let before = job(&server, "j").await;
    for ended in [false, true] {
        let record =
            json!({ "job": "j", "seq": 1, "amount_total": "9000000000000", "ended": ended });
        let refused = report(&server, json!([record])).await[0].clone();
        assert_eq!(
            (&refused["status"], &refused["body"]["code"]),
            (&json!(422), &json!("invalid_field"))
        );
        let after = job(&server, "j").await;
        assert_eq!((&after["state"], &after["attempts"]), (&before["state"], &before["attempts"]));
    }
    verify(&server);
}

#[tokio::test]
async fn usage_after_the_end_is_refused_for_a_job_as_for_a_hold() {
    let server = priced(&[]).await;
    submit(&server, small("j")).await;
    let end = json!([{ "job": "j", "seq": 2, "gpu_ms_total": 60_000, "ended": true }]);
    assert_eq!(report(&server, end.clone()).await[0]["status"], 200);
    assert_eq!(report(&server, end).await[0]["status"], 200, "the same again");
    let earlier = json!([{ "job": "j", "seq": 1, "gpu_ms_total": 30_000 }]);
    assert_eq!(report(&server, earlier).await[0]["status"], 200, "it is in the total already");
    let late = json!([{ "job": "j", "seq": 3, "gpu_ms_total": 90_000 }]);
    let refused = report(&server, late).await[0].clone();
    assert_eq!(
        (&refused["status"], &refused["body"]["code"]),
        (&json!(409), &json!("hold_closed"))
    );
    assert_eq!(micros(&job(&server, "j").await["charged"]), price_of(H100, 60_000));
    verify(&server);
}

#[tokio::test]
async fn usage_under_a_key_is_answered_as_it_was_the_first_time() {
    let server = priced(&[]).await;
    for id in ["h1", "h2"] {
        let hold = json!({ "id": id, "account": "acme", "amount": "9" });
        server.call("POST", "/v1/holds", hold).await.expect(201);
    }
    let body = |total: &str| {
        let record = |hold: &str| json!({ "hold": hold, "seq": 1, "amount_total": total });
        json!({ "records": [record("h1"), record("h2")] })
    };
    let key = [("Idempotency-Key", "u")];
    let ask = async |body: Value| server.send("POST", "/v1/usage", body, &server.root, &key).await;
    let first = ask(body("1")).await;
    assert!(!first.is_replayed());
    let first = first.expect(200);
    server.call("POST", "/v1/holds/h1/capture", json!({ "total": "4" })).await.expect(200);
    let again = ask(body("1")).await;
    assert!(again.is_replayed());
    assert_eq!(again.expect(200), first);
    ask(body("5")).await.problem("idempotency_key_reused");
    assert_eq!(server.get("/v1/holds/h2").await["captured"], "1");
    let charge = json!({ "account": "acme", "amount": "1" });
    let other = server.send("POST", "/v1/charges", charge, &server.root, &key).await;
    other.problem("idempotency_key_reused");
}

#[tokio::test]
async fn usage_of_an_attempt_counts_for_that_attempt_alone() {
    let server = priced(&[]).await;
    let hold = json!({ "id": "h", "account": "acme:nlp", "amount": "5" });
    server.call("POST", "/v1/holds", hold).await.expect(201);
    submit(&server, small("j")).await;
    report(&server, json!([{ "job": "j", "seq": 1, "gpu_ms_total": 60_000 }])).await;
    let attempt = job(&server, "j").await["attempts"][0]["id"].clone();
    let results = report(
        &server,
        json!([
            { "job": "j", "attempt": "att_missing", "seq": 2, "gpu_ms_total": 100_000 },
            { "hold": "h", "attempt": attempt, "seq": 1, "amount_total": "1" },
            { "job": "missing", "attempt": attempt, "seq": 1, "gpu_ms_total": 1 },
            { "job": "j", "attempt": attempt, "seq": 2, "gpu_ms_total": 90_000 },
        ]),
    )
    .await;
    let shown = |place: usize| (&results[place]["status"], &results[place]["body"]["code"]);
    assert_eq!(shown(0), (&json!(404), &json!("not_found")));
    assert_eq!(shown(1), (&json!(422), &json!("invalid_field")));
    assert_eq!(shown(2), (&json!(404), &json!("not_found")));
    assert_eq!(shown(3).0, 200);
    assert_eq!(micros(&job(&server, "j").await["charged"]), price_of(H100, 90_000));
    assert_eq!(server.get("/v1/holds/h").await["captured"], "0");
    verify(&server);
}

#[tokio::test]
async fn usage_of_an_attempt_that_is_over_is_not_charged_to_the_next() {
    let server = priced(&[]).await;
    let _agent = Agent::running(&server, "j", 60).await;
    let first = job(&server, "j").await["attempts"][0]["id"].clone();
    let of = |attempt: &Value, seq: u64| {
        let record = json!({ "job": "j", "attempt": attempt, "seq": seq, "gpu_ms_total": 60_000 });
        json!([record])
    };
    let under_key = async || {
        let (body, key) = (json!({ "records": of(&first, 1) }), [("Idempotency-Key", "u")]);
        let answer = server.send("POST", "/v1/usage", body, &server.root, &key).await;
        (answer.is_replayed(), answer.expect(200))
    };
    let (_, measured_here) = under_key().await;
    assert_eq!(measured_here["results"][0]["status"], 409, "{measured_here}");
    // The node is silent: the attempt is lost, and the job waits for another node, or runs elsewhere.
    server.advance(120).await;
    let waits = job(&server, "j").await;
    assert_eq!(waits["attempts"][0]["end_reason"], "lost");
    let late = report(&server, of(&first, 1)).await[0].clone();
    assert_eq!((&late["status"], &late["body"]["code"]), (&json!(409), &json!("conflict")));
    assert_eq!(job(&server, "j").await, waits, "nothing begins and nothing is charged");
    // Also if the next attempt begins in the same request.
    let mut both = json!([{ "job": "j", "seq": 1, "gpu_ms_total": 1_000 }]);
    both.as_array_mut().expect("records").push(of(&first, 2)[0].clone());
    let results = report(&server, both).await;
    assert_eq!((&results[0]["status"], &results[1]["status"]), (&json!(200), &json!(409)));
    assert_eq!(under_key().await, (true, measured_here), "as it was the first time");
    let attempts = job(&server, "j").await["attempts"].clone();
    let second = attempts.as_array().and_then(|all| all.last()).expect("attempts")["id"].clone();
    assert_ne!(first, second);
    let late = report(&server, of(&first, 2)).await[0].clone();
    assert_eq!((&late["status"], &late["body"]["code"]), (&json!(409), &json!("conflict")));
    assert_eq!(report(&server, of(&second, 2)).await[0]["status"], 200);
    verify(&server);
}

fn external(id: &str) -> Value {
    crate::world::with(small(id), "external", json!(true))
}

#[tokio::test]
async fn an_external_job_is_never_placed_by_a_cell() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 4).await;
    submit(&server, external("outside")).await;
    submit(&server, small("inside")).await;
    agent.beat(&server).await;
    assert_eq!(state(&server, "outside").await, "queued");
    assert_ne!(state(&server, "inside").await, "queued", "the node has room");
    agent.run(&server, 60).await;
    let waiting = job(&server, "outside").await;
    assert_eq!((&waiting["state"], &waiting["attempts"]), (&json!("queued"), &json!([])));
    let why = server.get("/v1/jobs/outside/why").await;
    assert_eq!(why["blockers"][0]["type"], "dependency");
    assert!(why["blockers"][0]["fix"].as_str().expect("a fix").contains("/v1/usage"));
    let queue = server.get("/v1/regions/default/queue").await.to_string();
    assert!(!queue.contains("outside"), "{queue}");
    verify(&server);
}

#[tokio::test]
async fn an_external_job_ends_as_it_is_reported() {
    let server = priced(&[]).await;
    for (ended, expected) in [
        (json!("succeeded"), "succeeded"),
        (json!("failed"), "failed"),
        (json!("cancelled"), "cancelled"),
        (json!("lost"), "lost"),
        (json!(true), "succeeded"),
    ] {
        let id = format!("j-{}", ended.to_string().trim_matches('"'));
        submit(&server, external(&id)).await;
        report(&server, json!([{ "job": id, "seq": 1, "gpu_ms_total": 1000 }])).await;
        assert_eq!(state(&server, &id).await, "running");
        let last = json!([{ "job": id, "seq": 2, "gpu_ms_total": 60_000, "ended": ended }]);
        for _ in 0..2 {
            let done = report(&server, last.clone()).await;
            assert_eq!(
                (&done[0]["status"], &done[0]["body"]["state"]),
                (&json!(200), &json!(expected))
            );
        }
        let found = job(&server, &id).await;
        assert_eq!(found["attempts"][0]["end_reason"], expected);
        assert_eq!(micros(&found["charged"]), price_of(H100, 60_000));
    }
    let wrong = json!([{ "job": "j-lost", "seq": 3, "gpu_ms_total": 1, "ended": "exploded" }]);
    let body = json!({ "records": wrong });
    let problem = server.call("POST", "/v1/usage", body).await.problem("invalid_field");
    assert_eq!(problem["param"], "records[0].ended");
    verify(&server);
}

#[tokio::test]
async fn the_usage_of_an_external_job_is_never_lost() {
    let server = priced(&[]).await;
    // Longer than its longest runtime: nothing stops it outside, so all of it counts.
    submit(&server, external("long")).await;
    let usage = 2 * 3_600_000;
    report(&server, json!([{ "job": "long", "seq": 1, "gpu_ms_total": usage, "ended": "failed" }]))
        .await;
    let long = job(&server, "long").await;
    let (charged, unpaid) = (micros(&long["charged"]), micros(&long["uncollected"]));
    assert_eq!(charged, price_of(H100, usage), "{unpaid} of it was not collected");
    // A freeze stops no job outside.
    submit(&server, external("frozen")).await;
    server.call("POST", "/v1/accounts/acme/freeze", json!({})).await.expect(200);
    let done =
        report(&server, json!([{ "job": "frozen", "seq": 1, "gpu_ms_total": 60_000 }])).await;
    assert_eq!(done[0]["status"], 200);
    server.call("POST", "/v1/accounts/acme/unfreeze", json!({})).await.expect(200);
    // A cancelled job runs on until the other system has stopped it.
    let asked = server.call("POST", "/v1/jobs/frozen/cancel", json!({})).await.expect(200);
    assert_eq!(asked["state"], "stopping");
    let done =
        report(&server, json!([{ "job": "frozen", "seq": 2, "gpu_ms_total": 90_000 }])).await;
    assert_eq!((&done[0]["status"], &done[0]["body"]["state"]), (&json!(200), &json!("stopping")));
    report(&server, json!([{ "job": "frozen", "seq": 3, "gpu_ms_total": 95_000, "ended": true }]))
        .await;
    let frozen = job(&server, "frozen").await;
    assert_eq!(
        (&frozen["state"], frozen["attempts"].as_array().map(Vec::len)),
        (&json!("cancelled"), Some(1))
    );
    assert_eq!(micros(&frozen["charged"]), price_of(H100, 95_000));
    // One that never reports again is ended by a second request.
    submit(&server, external("silent")).await;
    report(&server, json!([{ "job": "silent", "seq": 1, "gpu_ms_total": 60_000 }])).await;
    for expected in ["stopping", "cancelled", "cancelled"] {
        let asked = server.call("POST", "/v1/jobs/silent/cancel", json!({})).await.expect(200);
        assert_eq!(asked["state"], expected);
    }
    assert_eq!(micros(&job(&server, "silent").await["charged"]), price_of(H100, 60_000));
    verify(&server);
}
