//! `bursar class`.

use serde_json::json;

use crate::person::Person;
use crate::server::Server;

#[tokio::test]
async fn classes_are_listed_shown_and_set() {
    let server = Server::start();
    let person = Person::of(&server);
    let listed = person.done(&["class", "ls"]);
    for name in ["batch", "normal", "high", "urgent"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name}: {listed}");
    }
    let unknown = person.fails(4, &["class", "show", "deadline"]);
    assert!(unknown.contains("bursar class ls"), "{unknown}");
    let set = ["class", "set", "deadline", "--rank", "35", "--preempts", "batch,normal"];
    let more = ["--grace", "2m", "--multiplier", "1.5"];
    person.done(&[&set[..], &more, &["--dry-run"]].concat());
    person.fails(4, &["class", "show", "deadline"]);
    person.done(&[&set[..], &more].concat());
    let shown = person.json(&["class", "show", "deadline"]);
    assert_eq!((&shown["rank"], &shown["grace_seconds"]), (&json!(35), &json!(120)));
    assert_eq!(shown["preempts"], json!(["batch", "normal"]));
    assert_eq!(shown["price_multiplier"], "1.5");
    // A number alone has two readings.
    person.fails(2, &["class", "set", "x", "--rank", "1", "--grace", "2"]);
    server.tree().await;
    let submitter = Person::with_key(&server, &server.key("submitter", "acme").await);
    submitter.fails(3, &["class", "set", "mine", "--rank", "99"]);
    assert_eq!(submitter.json(&["class", "show", "high"])["rank"], 30);
}
