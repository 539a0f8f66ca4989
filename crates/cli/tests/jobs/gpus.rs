//! A GPU belongs to one node at a time (law L8), whatever its machine is called.

use serde_json::{Value, json};

use crate::agent::{Agent, offer};
use crate::server::Server;
use crate::world::{priced, small, state, submit, verify};

/// The same machine under another name.
fn renamed(node: &str, region: &str) -> Value {
    let mut body = offer("d1", region, "H100", 1);
    body["id"] = json!(node);
    body
}

async fn register(server: &Server, body: Value) -> crate::server::Answer {
    server.call("POST", "/v1/nodes", body).await
}

#[tokio::test]
async fn a_gpu_is_not_given_out_twice_under_two_names_of_its_machine() {
    let server = priced(&["--region", "default", "--region", "other"]).await;
    let mut old = Agent::register(&server, "d1", "H100", 1).await;
    let refused = register(&server, renamed("d2", "default")).await.problem("conflict");
    let detail = refused["detail"].as_str().expect("text");
    assert!(detail.contains("`d1`") && detail.contains("GPU-d1-0"), "{detail}");
    register(&server, renamed("d2", "other")).await.problem("conflict");
    // GPU names of other tenants do not conflict, and within a tenant a key that may not see
    // the other node does not receive its name.
    let nlp = server.key("agent", "acme:nlp").await;
    let vision = server.key("agent", "acme:vision").await;
    let send = async |key: &str, name: &str| {
        server.send("POST", "/v1/nodes", renamed(name, "default"), key, &[]).await
    };
    send(&nlp, "d2").await.expect(201);
    let refused = send(&vision, "d3").await.problem("conflict");
    let detail = refused["detail"].as_str().expect("text");
    assert!(detail.contains("GPU-d1-0") && !detail.contains("`d2`"), "{detail}");
    let tenant = [("Bursar-Tenant", "acme")];
    let deleted = server.send("DELETE", "/v1/nodes/d2", json!(null), &server.root, &tenant).await;
    deleted.expect(204);

    submit(&server, small("a")).await;
    submit(&server, small("b")).await;
    old.beat(&server).await;
    let states = [state(&server, "a").await, state(&server, "b").await];
    assert_eq!(states, ["running", "queued"]);

    // Its lease is over: what it ran is lost, and its GPU may come back under the new name.
    server.advance(91).await;
    assert_eq!(server.get("/v1/nodes/d1").await["state"], "lost");
    register(&server, renamed("d2", "default")).await.expect(201);
    let mut new = Agent::register_as(&server, "d2", renamed("d2", "default")).await;
    new.beat(&server).await;
    let report = old.report();
    old.send(&server, report).await.problem("conflict");
    register(&server, offer("d1", "default", "H100", 1)).await.problem("conflict");
    assert_eq!(server.get("/v1/nodes/d1").await["state"], "lost");
    let running = [state(&server, "a").await, state(&server, "b").await];
    assert_eq!(running.iter().filter(|state| *state == "running").count(), 1, "{running:?}");
    verify(&server);
}

#[tokio::test]
async fn a_deleted_node_frees_its_gpus_for_another_name_at_once() {
    let server = priced(&["--region", "default", "--region", "other"]).await;
    Agent::register(&server, "d1", "H100", 1).await;
    register(&server, renamed("d2", "other")).await.problem("conflict");
    server.call("DELETE", "/v1/nodes/d1", json!(null)).await.expect(204);
    register(&server, renamed("d2", "other")).await.expect(201);
    register(&server, renamed("d2", "other")).await.expect(201);
    let mut twice = offer("d3", "default", "H100", 2);
    twice["gpus"][1]["uuid"] = twice["gpus"][0]["uuid"].clone();
    let refused = register(&server, twice).await.problem("invalid_field");
    assert_eq!(refused["param"], "gpus");
    verify(&server);
}
