//! All blockers of a job are listed, not only the first.

use serde_json::json;

use crate::agent::Agent;
use crate::world::{blocker_types, priced, small, state, submit, verify, with};

#[tokio::test]
async fn all_three_blockers_of_a_frozen_job_without_credits_and_budget_are_listed() {
    let server = priced(&[]).await;
    server.call("POST", "/v1/grants/funds/revoke", json!({})).await.expect(200);
    server.grant("few", "acme", "6").await;
    let mut agent = Agent::running(&server, "j", 60).await;
    server.call("POST", "/v1/jobs/j/preempt", json!({})).await.expect(200);
    agent.beat(&server).await;
    agent.run(&server, 30).await;
    assert_eq!(state(&server, "j").await, "queued");
    assert_eq!(blocker_types(&server.get("/v1/jobs/j/why").await), ["credits"]);
    let budget = json!({ "limit": "1", "period": "total", "mode": "hard" });
    server.call("PUT", "/v1/accounts/acme:nlp/budgets/b", budget).await.expect(200);
    server.call("POST", "/v1/accounts/acme/freeze", json!({})).await.expect(200);
    let all = ["frozen", "credits", "budget"];
    assert_eq!(blocker_types(&server.get("/v1/jobs/j/why").await), all);
    assert_eq!(blocker_types(&server.get("/v1/jobs/j").await), all);
    let refused = server.call("POST", "/v1/jobs", small("k")).await.problem("account_frozen");
    assert_eq!(blocker_types(&refused), all);
    let quote = server.call("POST", "/v1/quotes", small("k")).await.expect(200);
    assert_eq!(blocker_types(&quote)[..3], all);
    verify(&server);
}

#[tokio::test]
async fn a_drain_of_a_busy_node_is_a_blocker_of_waiting_jobs() {
    let server = priced(&[]).await;
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("a")).await;
    agent.beat(&server).await;
    submit(&server, small("b")).await;
    assert_eq!(blocker_types(&server.get("/v1/jobs/b/why").await), ["capacity"]);
    server.call("POST", "/v1/nodes/n1/drain", json!({})).await.expect(200);
    assert_eq!(blocker_types(&server.get("/v1/jobs/b/why").await), ["capacity", "drain"]);
    submit(&server, with(small("c"), "gpus", json!({ "types": ["A100"] }))).await;
    assert_eq!(blocker_types(&server.get("/v1/jobs/c/why").await), ["gpu_type", "priority"]);
    verify(&server);
}

#[tokio::test]
async fn a_dependency_and_a_frozen_account_are_both_listed_as_blockers() {
    let server = priced(&[]).await;
    submit(&server, small("first")).await;
    submit(&server, with(small("second"), "after", json!(["first"]))).await;
    server.call("POST", "/v1/accounts/acme/freeze", json!({})).await.expect(200);
    let types = blocker_types(&server.get("/v1/jobs/second/why").await);
    assert_eq!(types, ["frozen", "dependency"]);
    let types = blocker_types(&server.get("/v1/jobs/first/why").await);
    assert_eq!(types, ["frozen", "gpu_type"]);
}

#[tokio::test]
async fn more_gpus_than_a_node_has_are_called_that() {
    let server = priced(&["--region", "eu", "--region", "us"]).await;
    let _agent = Agent::register_in(&server, "eu", "n1", "H100", 8).await;
    let nine = with(small("j"), "gpus", json!({ "types": ["H100"], "count": 9 }));
    submit(&server, with(nine.clone(), "regions", json!(["eu"]))).await;
    let why = server.get("/v1/jobs/j/why").await;
    assert_eq!(blocker_types(&why)[0], "gpu_type");
    let (detail, fix) =
        (why["blockers"][0]["detail"].to_string(), why["blockers"][0]["fix"].to_string());
    assert!(detail.contains("no node in eu has 9 H100 GPUs; the largest has 8"), "{detail}");
    assert!(fix.contains("`nodes`"), "{fix}");
    // The price where no node is counts for the hold: a quote has it, without a start.
    let offers = async |body| {
        let quote = server.call("POST", "/v1/quotes", body).await.expect(200);
        let offers = quote["offers"].as_array().expect("offers").iter();
        offers.map(|offer| offer["region"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(offers(small("k")).await.len(), 2);
    assert_eq!(offers(nine).await.len(), 2);
}
