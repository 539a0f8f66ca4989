//! `bursar config`.

use crate::person::Person;
use crate::server::Server;

/// The settings that `config view` shows, by key: the value and its source.
fn viewed(person: &Person, file: &[&str]) -> Vec<(String, String, String)> {
    let all = person.json(&[&["config", "view"], file].concat());
    let text = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
    let list = all.as_array().expect("a list");
    list.iter().map(|one| (text(&one["key"]), text(&one["value"]), text(&one["source"]))).collect()
}

#[test]
fn every_setting_is_shown_with_its_source() {
    let server = Server::start();
    let person = Person::of(&server);
    let defaults = viewed(&person, &[]);
    assert!(defaults.len() > 20, "{}", defaults.len());
    assert!(defaults.iter().all(|(_, _, source)| source == "default"), "{defaults:?}");
    let lines = "listen = \"127.0.0.1:7171\"\nheartbeat_seconds = 5\n\
        store = \"postgres://user:pa55phrase@db/x\"\n";
    std::fs::write(person.file("server.toml"), lines).expect("written");
    let settings = viewed(&person, &["server.toml"]);
    let setting = |key: &str| {
        let found = settings.iter().find(|(name, ..)| name == key).expect("it is listed");
        (found.1.as_str(), found.2.as_str())
    };
    assert_eq!(setting("listen"), ("127.0.0.1:7171", "file"));
    assert_eq!(setting("heartbeat_seconds"), ("5", "file"));
    assert_eq!(setting("node_lease_seconds").1, "default");
    // The address of a database may have a password in it.
    assert_eq!(setting("store"), ("(not shown)", "file"));
    assert!(!person.done(&["config", "view", "server.toml"]).contains("pa55phrase"));
}

#[test]
fn a_configuration_is_checked_without_using_it() {
    let server = Server::start();
    let person = Person::of(&server);
    let data = person.file("data");
    let good = format!("data = {data:?}\nroot_key_file = \"root.key\"\n");
    std::fs::write(person.file("good.toml"), good).expect("written");
    assert_eq!(person.done(&["config", "check", "good.toml"]), "good.toml can be used\n");
    assert!(!data.exists(), "a check makes no folder");
    std::fs::write(person.file("typo.toml"), "heartbeat_second = 5\n").expect("written");
    let said = person.fails(1, &["config", "check", "typo.toml"]);
    assert!(said.contains("heartbeat_second"), "{said}");
    let open = "listen = \"0.0.0.0:7070\"\ndata = \"data\"\n";
    std::fs::write(person.file("open.toml"), open).expect("written");
    let said = person.fails(1, &["config", "check", "open.toml"]);
    assert!(said.contains("TLS") || said.contains("tls"), "{said}");
    let said = person.fails(1, &["config", "check", "missing.toml"]);
    assert!(said.contains("missing.toml"), "{said}");
}
