//! What commands say when something is wrong, before something is done, and to scripts.

use serde_json::json;

use crate::person::Person;
use crate::server::Server;
use crate::world::{priced, small, submit, with};

#[tokio::test]
async fn a_mistyped_id_gets_proposals_of_what_the_key_can_see() {
    let server = priced(&[]).await;
    submit(&server, small("train-1")).await;
    let key = json!({ "id": "ci-key", "role": "viewer", "scope": "acme", "name": "x" });
    server.call("POST", "/v1/keys", key).await.expect(201);
    let person = Person::of(&server);
    for (arguments, proposed) in [
        (&["why", "trian-1"][..], "did you mean `train-1`?"),
        (&["job", "show", "train1"], "did you mean `train-1`?"),
        (&["balance", "acme:npl"], "did you mean `acme:nlp`?"),
        (&["charge", "acme:npl", "1"], "did you mean `acme:nlp`?"),
        (&["grant", "show", "fund"], "did you mean `funds`?"),
        (&["key", "revoke", "ci-kye", "--yes"], "did you mean `ci-key`?"),
    ] {
        let said = person.fails(4, arguments);
        assert!(said.contains(proposed), "{arguments:?}: {said}");
    }
    assert!(!person.fails(4, &["why", "something-else"]).contains("did you mean"));
    // Another tenant learns nothing of it.
    let other = Person::with_key(&server, &server.key("admin", "umbra").await);
    for arguments in [&["why", "trian-1"][..], &["balance", "acme:npl"], &["grant", "show", "fund"]]
    {
        let said = other.fails(4, arguments);
        assert!(!said.contains("did you mean"), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn advice_names_the_role_that_can_follow_it() {
    let server = priced(&[]).await;
    let person = Person::with_key(&server, &server.key("submitter", "acme:nlp").await);
    let said = person.fails(5, &["charge", "acme:nlp", "5000"]);
    assert!(said.contains("a key that may issue them: bursar grant add acme:nlp 4000"), "{said}");
    let budget = json!({ "limit": "1", "period": "total", "mode": "hard" });
    server.call("PUT", "/v1/accounts/acme:nlp/budgets/small", budget).await.expect(200);
    let said = person.fails(5, &["charge", "acme:nlp", "2"]);
    let advice = "an admin or billing key: bursar budget set acme:nlp small LIMIT";
    assert!(said.contains(advice), "{said}");
    server.call("POST", "/v1/accounts/acme/freeze", json!({})).await.expect(200);
    let said = person.fails(3, &["charge", "acme:nlp", "0.5"]);
    assert!(said.contains("bursar account unfreeze acme"), "{said}");
}

#[tokio::test]
async fn a_dry_run_is_checked_by_the_server_and_changes_nothing() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let quota = json!({ "region": "default", "running_jobs": 5 });
    server.call("PUT", "/v1/accounts/acme:nlp/quota", quota).await.expect(200);
    let newest = || person.json(&["audit", "ls", "--limit", "1"])["data"][0]["position"].clone();
    let before = newest();
    for arguments in [
        &["charge", "acme:nlp", "5", "--dry-run"][..],
        &["quota", "set", "acme:nlp", "--running-jobs", "4", "--dry-run"],
        &["quota", "rm", "acme:nlp", "--region", "default", "--dry-run"],
        &["hold", "place", "acme:nlp", "5", "--id", "h", "--dry-run"],
        &["grant", "add", "acme", "5", "--id", "more", "--dry-run"],
        &["transfer", "acme", "acme:nlp", "5", "--dry-run"],
        &["account", "open", "acme:new", "--kind", "team", "--dry-run"],
        &["budget", "set", "acme", "month", "100", "--dry-run"],
        &["account", "freeze", "acme", "--dry-run"],
    ] {
        let said = person.done(arguments);
        assert!(said.contains("the server would accept it now"), "{arguments:?}: {said}");
    }
    for (code, arguments) in [
        (5, &["charge", "acme:nlp", "5000", "--dry-run"][..]),
        (4, &["hold", "settle", "none", "1", "--dry-run"]),
        (3, &["account", "open", "acme", "--kind", "team", "--dry-run"]),
        (3, &["grant", "add", "acme", "7", "--id", "funds", "--dry-run"]),
        (4, &["grant", "revoke", "none", "--dry-run"]),
        (4, &["quota", "set", "acme:none", "--running-jobs", "4", "--dry-run"]),
    ] {
        person.fails(code, arguments);
    }
    let viewer = Person::with_key(&server, &server.key("viewer", "acme").await);
    viewer.fails(3, &["charge", "acme:nlp", "5", "--dry-run"]);
    let priced = person.done(&["price", "set", "H100", "7", "--dry-run"]);
    assert!(priced.contains("not checked"), "{priced}");
    assert_eq!(newest(), before);
    assert_eq!(person.json(&["charge", "acme:nlp", "1", "--dry-run"])["checked"], true);
}

#[tokio::test]
async fn scripts_get_names_and_fields() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    submit(&server, small("a")).await;
    server.advance(1).await;
    submit(&server, with(small("b"), "name", json!("second"))).await;
    assert_eq!(person.done(&["ls", "-o", "name"]), "b\na\n");
    let lines = person.done(&["ls", "--template", "{id}={state} {spec.name}"]);
    assert_eq!(lines, "b=queued second\na=queued \n");
    assert_eq!(person.done(&["job", "show", "a", "--template", "{account}"]), "acme:nlp\n");
    assert!(person.fails(2, &["ls", "--template", "{id"]).contains("a brace is not closed"));
    // Whether jq is installed or not, the reason is a sentence. Its input is JSON in any case.
    for arguments in
        [&["ls", "--jq", ".data[].id"][..], &["ls", "-o", "json", "--jq", ".data[].id"]]
    {
        let said = person.start(arguments).end();
        match said.code {
            Some(0) => assert_eq!(said.out, "b\na\n"),
            _ => assert!(format!("{said:?}").contains("jq is not installed"), "{said:?}"),
        }
    }
    assert_eq!(person.done(&["ls", "-o", "json", "--template", "{id}"]), "b\na\n");
    let said = person.fails(2, &["ls", "-o", "yaml", "--template", "{id}"]);
    assert!(said.contains("-o yaml and --template cannot be used together"), "{said}");
}

#[tokio::test]
async fn a_command_of_another_name_is_proposed() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let tip = |arguments: &[&str]| person.fails(2, arguments);
    assert!(tip(&["backup"]).contains("tip: there is 'bursar admin backup'"));
    assert!(tip(&["account", "create", "x"]).contains("tip: there is 'bursar account open'"));
    assert!(tip(&["shard", "drain"]).contains("required"));
    let missing = person.fails(4, &["shard", "drain", "ledger-7"]);
    assert!(missing.contains("bursar shard ls lists"), "{missing}");
}

#[tokio::test]
async fn some_jobs_of_an_array_are_named_by_a_range() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    submit(&server, with(small("sweep"), "array", json!(5))).await;
    person.done(&["cancel", "sweep.1-3"]);
    let state = |index: u32| {
        let shown = person.json(&["job", "show", &format!("sweep.{index}")]);
        shown["state"].as_str().expect("a state").to_owned()
    };
    let states: Vec<String> = (0..5).map(state).collect();
    assert_eq!(states, ["queued", "cancelled", "cancelled", "cancelled", "queued"]);
    person.fails(4, &["cancel", "sweep.3-9"]);
    assert_eq!(person.json(&["job", "show", "sweep.4"])["state"], "queued");
}

#[tokio::test]
async fn the_home_region_of_an_account_exists() {
    let server = Server::start();
    let person = Person::of(&server);
    let open = ["account", "open", "acme", "--kind", "org", "--home-region"];
    let said = person.fails(3, &[&open[..], &["mars"]].concat());
    assert!(said.contains("there is no region `mars`; known: default"), "{said}");
    person.done(&[&open[..], &["default"]].concat());
    let body = json!({ "home_region": "mars" });
    let refused = server.call("PATCH", "/v1/accounts/acme", body).await.problem("invalid_field");
    assert_eq!(refused["param"], "home_region");
}
