//! `bursar key rotate`.

use std::os::unix::fs::PermissionsExt;

use crate::person::Person;
use crate::server::Server;

/// A key with a scope, and its id.
fn created(person: &Person, name: &str) -> (String, String) {
    let made = person.json(&[
        "key",
        "create",
        "--role",
        "submitter",
        "--scope",
        "acme:nlp",
        "--name",
        name,
        "--expires",
        "2030-01-31",
    ]);
    let text = |field: &str| made[field].as_str().expect("text").to_owned();
    (text("id"), text("key"))
}

#[tokio::test]
async fn a_rotated_key_has_the_same_rights_and_the_old_one_ends() {
    let server = Server::start();
    server.tree().await;
    let person = Person::of(&server);
    let (id, old) = created(&person, "ci");
    person.done(&["key", "rotate", &id, "--dry-run"]);
    assert_eq!(Person::with_key(&server, &old).json(&["whoami"])["role"], "submitter");
    person.done(&["key", "rotate", &id, "--save", "new.key"]);
    let file = person.file("new.key");
    let mode = std::fs::metadata(&file).expect("written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let new = std::fs::read_to_string(&file).expect("text");
    let me = Person::with_key(&server, new.trim()).json(&["whoami"]);
    assert_eq!((me["role"].as_str(), me["scope"].as_str()), (Some("submitter"), Some("acme:nlp")));
    Person::with_key(&server, &old).fails(3, &["whoami"]);
    let listed = person.json(&["key", "ls"]);
    let fresh = listed["data"].as_array().expect("a list").iter().find(|key| key["name"] == "ci");
    let fresh = fresh.expect("the new key is listed");
    assert_eq!(fresh["expires_at"], "2030-01-31T23:59:59.999Z");
    person.fails(4, &["key", "rotate", "no-such-key"]);
}

#[tokio::test]
async fn an_old_key_can_stay_until_the_new_one_is_installed() {
    let server = Server::start();
    server.tree().await;
    let person = Person::of(&server);
    let (id, old) = created(&person, "ci");
    let said = person.run(&["key", "rotate", &id, "--keep-old", "--save", "new.key"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains(&format!("bursar key revoke {id}")), "{said:?}");
    Person::with_key(&server, &old).done(&["whoami"]);
    // A file that is there is not overwritten, and no key is made for nothing.
    let before = person.json(&["key", "ls"]);
    person.fails(1, &["key", "rotate", &id, "--save", "new.key"]);
    assert_eq!(person.json(&["key", "ls"])["data"], before["data"]);
}
