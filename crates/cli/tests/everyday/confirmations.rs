//! Commands that cannot be undone ask first.

use serde_json::json;

use crate::agent::Agent;
use crate::person::Person;
use crate::server::Server;
use crate::world::{priced, small, submit};

#[tokio::test]
async fn only_its_name_removes_a_node() {
    let server = Server::start();
    let person = Person::of(&server);
    let _agent = Agent::register(&server, "n1", "H100", 1).await;
    for typed in ["n\n", "\n", "y\n", "yes\n", "n11\n", "\u{4}"] {
        let (code, shown) = person.types(typed, &["node", "rm", "n1"]);
        assert_eq!(code, Some(1), "{typed:?}: {shown}");
        assert!(shown.contains("remove n1?") && shown.contains("nothing was changed"), "{shown}");
        assert_eq!(server.get("/v1/nodes/n1").await["id"], "n1");
    }
    let (code, shown) = person.types("", &["node", "rm", "n1", "--dry-run"]);
    assert_eq!(code, Some(0), "{shown}");
    let (code, shown) = person.types("n1\n", &["node", "rm", "n1"]);
    assert_eq!(code, Some(0), "{shown}");
    server.call("GET", "/v1/nodes/n1", json!(null)).await.problem("not_found");
}

#[tokio::test]
async fn every_command_that_cannot_be_undone_asks() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    submit(&server, small("j2")).await;
    agent.beat(&server).await;
    let key = json!({ "id": "k", "role": "viewer", "scope": "acme", "name": "x" });
    server.call("POST", "/v1/keys", key).await.expect(201);
    let month = json!({ "limit": "900", "period": "month", "mode": "hard" });
    server.call("PUT", "/v1/accounts/acme/budgets/month", month).await.expect(200);
    let quota = json!({ "running_jobs": 5 });
    server.call("PUT", "/v1/accounts/acme:nlp/quota", quota).await.expect(200);
    // Asked by a process of its own: the connection of this test may end while it waits.
    let newest = || person.json(&["audit", "ls", "--limit", "1"])["data"][0]["position"].clone();
    let before = newest();
    for arguments in [
        &["node", "drain", "n1", "--force"][..],
        &["node", "rm", "n1"],
        &["key", "revoke", "k"],
        &["key", "rotate", "k"],
        &["grant", "revoke", "funds"],
        &["account", "freeze", "acme"],
        &["cancel", "j", "j2"],
        &["job", "preempt", "j"],
        &["budget", "rm", "acme", "month"],
        &["quota", "rm", "acme:nlp"],
        &["session", "end", "k"],
        &["logout", "--everywhere"],
        &["context", "rm", "lab"],
    ] {
        if arguments[0] == "logout" {
            person.done(&["context", "add", "lab"]);
            person.done(&["context", "use", "lab"]);
        }
        let (code, shown) = person.types("no\n", arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {shown}");
        let asks = shown.contains("[y/N]") || shown.contains(" to go on:");
        assert!(asks && shown.contains("nothing was changed"), "{shown}");
    }
    assert_eq!(newest(), before);
    assert!(person.done(&["context", "ls"]).contains("lab"));
    // Scripts are not asked: the command itself is the decision.
    person.done(&["cancel", "j", "j2"]);
    person.done(&["budget", "rm", "acme", "month"]);
    let (code, shown) = person.types("", &["key", "revoke", "k", "--yes"]);
    assert_eq!(code, Some(0), "{shown}");
}
