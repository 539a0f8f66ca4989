//! `bursar doctor` and `bursar whoami`.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::person::Person;
use crate::server::Server;

/// The checks by name: the verdict and the fix.
fn checks(report: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let list = report.as_array().expect("a list").iter();
    list.map(|check| (text(&check["check"]), text(&check["result"]), text(&check["fix"]))).collect()
}

#[track_caller]
fn verdict(person: &Person, code: i32, what: &str) -> (String, String) {
    let said = person.run(&["doctor", "-o", "json"]);
    assert_eq!(said.code, Some(code), "{}", said.all());
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    let checks = checks(&report);
    let found = checks.iter().find(|(name, ..)| name == what);
    let (_, verdict, fix) = found.unwrap_or_else(|| panic!("{what}: {report}"));
    assert_eq!(verdict == "failed", !fix.is_empty(), "only a failure has a fix: {report}");
    (verdict.clone(), fix.clone())
}

#[tokio::test]
async fn the_doctor_names_each_problem_and_its_fix() {
    let server = Server::start();
    let person = Person::of(&server);
    assert!(verdict(&person, 1, "key").1.contains("bursar account open"));
    server.tree().await;
    assert!(verdict(&person, 1, "nodes").1.contains("agent"));
    let _agent = Agent::register(&server, "n1", "H100", 1).await;
    assert_eq!(verdict(&person, 0, "nodes").0, "ok");
    let table = person.done(&["doctor"]);
    assert!(table.starts_with("CHECK") && !table.contains("failed"), "{table}");
    let wrong = Person::with_key(&server, "bur_key_x_wrong");
    assert!(verdict(&wrong, 1, "key").1.contains("--key-file"));
    let stopped = person.run(&["doctor", "-o", "json", "--server", "http://127.0.0.1:9"]);
    assert_eq!(stopped.code, Some(1));
    let report: Value = serde_json::from_str(&stopped.out).expect("JSON");
    let last = checks(&report).pop().expect("checks");
    assert_eq!((last.0.as_str(), last.1.as_str()), ("server", "failed"));
}

#[tokio::test]
async fn a_person_without_a_key_learns_how_to_give_one() {
    let server = Server::start();
    let person = Person::of(&server);
    let output = person.command(&["doctor"]).env_remove("BURSAR_KEY").output().expect("it runs");
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("no key is given") && said.contains("context add"), "{said}");
}

#[tokio::test]
async fn whoami_shows_what_commands_use_and_where_it_comes_from() {
    let server = Server::start();
    server.tree().await;
    let key = server.key("submitter", "acme:nlp").await;
    let person = Person::with_key(&server, &key);
    let me = person.json(&["whoami"]);
    assert_eq!((&me["role"], &me["scope"]), (&json!("submitter"), &json!("acme:nlp")));
    assert_eq!(me["server_from"], "BURSAR_SERVER");
    assert_eq!(me["key_from"], "BURSAR_KEY");
    assert!(!me["name"].as_str().expect("the name of the key").is_empty(), "{me}");
    let id = me["key_id"].as_str().expect("an id");
    assert!(key.contains(id) && key.len() > id.len() + 20, "the id, not the secret: {id}");
    std::fs::write(person.file("my.key"), &key).expect("written");
    let own = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(person.file("my.key"), own).expect("it is ours");
    let mut add = person.command(&["context", "add", "lab", "--key-file", "my.key"]);
    add.args(["--server", &server.url]);
    let added = add.env_remove("BURSAR_KEY").env_remove("BURSAR_SERVER").output().expect("it runs");
    assert!(added.status.success(), "{added:?}");
    let mut plain = person.command(&["whoami", "-o", "json"]);
    let shown = plain.env_remove("BURSAR_KEY").env_remove("BURSAR_SERVER").output().expect("runs");
    let me: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!((&me["context"], &me["key_from"]), (&json!("lab"), &json!("context")));
    let wrong = Person::with_key(&server, "bur_key_x_wrong");
    assert!(wrong.fails(3, &["whoami"]).contains("next:"));
}

#[tokio::test]
async fn credits_that_expire_soon_are_pointed_out_to_those_who_can_spend_them() {
    let server = Server::start();
    server.tree().await;
    let lead = Person::with_key(&server, &server.key("admin", "acme:nlp").await);
    assert_eq!(lead.json(&["whoami"])["expiring_in_14_days"], Value::Null);
    let grant = json!({
        "account": "acme", "amount": "12.5", "kind": "grant", "expires_at": "2020-01-10T00:00:00Z"
    });
    server.call("POST", "/v1/grants", grant).await.expect(201);
    let me = lead.json(&["whoami"]);
    assert_eq!(me["expiring_in_14_days"], "12.5", "{me}");
    assert_eq!(me["first_expiry_at"], "2020-01-10T00:00:00.000Z");
    let said = lead.run(&["doctor", "-o", "json"]);
    let report: Value = serde_json::from_str(&said.out).expect("JSON");
    let credits = checks(&report).into_iter().find(|(name, ..)| name == "credits").expect("there");
    assert_eq!(credits.1, "warning", "{report}");
    assert_eq!(credits.2, "bursar forecast acme:nlp shows what will expire unspent");
    assert!(said.out.contains("12.5 of 12.5 expire within 14 days"), "{report}");
    let other = Person::with_key(&server, &server.key("admin", "umbra").await);
    assert_eq!(other.json(&["whoami"])["first_expiry_at"], Value::Null, "it has none");
}

#[tokio::test]
async fn an_administrator_sees_who_is_signed_in_and_ends_it() {
    let server = Server::start();
    server.tree().await;
    let key = json!({ "id": "ada", "role": "viewer", "scope": "acme:nlp", "name": "Ada" });
    let made = server.call("POST", "/v1/keys", key).await.expect(201);
    let body = json!({ "key": made["key"] });
    let signed_in = server.send("POST", "/v1/session", body, "", &[]).await;
    let cookie = signed_in.headers["set-cookie"].to_str().expect("ascii");
    let cookie = cookie.split(';').next().expect("a cookie").to_owned();
    signed_in.expect(201);
    let asked =
        async || server.send("GET", "/v1/session", Value::Null, "", &[("cookie", &cookie)]).await;
    asked().await.expect(200);
    let admin = Person::with_key(&server, &server.key("admin", "acme").await);
    let listed = admin.done(&["session", "ls"]);
    assert!(listed.contains("ada") && listed.contains("acme:nlp"), "{listed}");
    let other = Person::with_key(&server, &server.key("admin", "umbra").await);
    assert_eq!(other.done(&["session", "ls"]), "(none)\n");
    other.fails(4, &["session", "end", "ada", "--yes"]);
    let viewer = Person::with_key(&server, &server.key("viewer", "acme").await);
    viewer.fails(3, &["session", "ls"]);
    asked().await.expect(200);
    let said = admin.done(&["session", "end", "ada"]);
    assert!(said.contains("have ended"), "{said}");
    asked().await.problem("unauthenticated");
}

#[tokio::test]
async fn a_command_without_an_account_takes_the_one_that_the_key_is_for() {
    let server = Server::start();
    server.tree().await;
    let person = Person::with_key(&server, &server.key("submitter", "acme:nlp").await);
    assert_eq!(person.json(&["balance"])["account"], "acme:nlp");
    assert_eq!(person.json(&["forecast"])["account"], "acme:nlp");
    assert!(person.done(&["statement", "--month", "2026-01"]).contains("acme:nlp"));
    Person::of(&server).done(&["price", "set", "H100", "2"]);
    let job = ["run", "-g", "1", "-t", "1h", "--dry-run", "--", "true"];
    assert!(person.run(&job).all().contains("acme:nlp"));
    let all = Person::of(&server).fails(2, &["balance"]);
    assert!(all.contains("bursar account ls"), "{all}");
}
