//! `bursar top` without arguments.

use serde_json::json;

use crate::person::Person;
use crate::server::Server;

#[tokio::test]
async fn without_a_kind_the_first_with_entries_is_ranked() {
    let server = Server::start();
    let person = Person::of(&server);
    server.tree().await;
    server.grant("g", "acme", "100").await;
    assert_eq!(person.done(&["top"]), "(none)\n");
    let charge = |account: &str, amount: &str| json!({ "account": account, "amount": amount });
    server.call("POST", "/v1/charges", charge("acme:vision", "7")).await.expect(201);
    server.call("POST", "/v1/charges", charge("acme", "5")).await.expect(201);
    let teams = person.done(&["top"]);
    assert!(teams.contains("acme:vision") && !teams.contains("acme:nlp:x"), "{teams}");
    assert!(!teams.lines().any(|line| line.starts_with("acme ")), "no org among teams: {teams}");
    server.call("POST", "/v1/charges", charge("acme:nlp:x", "1")).await.expect(201);
    let projects = person.done(&["top"]);
    assert!(projects.contains("acme:nlp:x") && !projects.contains("vision"), "{projects}");
    // However the time is written.
    for window in ["1d3h46m41s", "27:46:41", "100001s", "366d"] {
        assert_eq!(person.done(&["top", "--window", window]), projects, "{window}");
    }
}
