//! Completion scripts that ask the server, man pages, and help.

use std::process::Command;

use crate::agent::Agent;
use crate::person::Person;
use crate::server::Server;
use crate::world::{small, submit};

/// The candidates for a line of bash whose cursor is at its end.
fn candidates(person: &Person, line: &str) -> Vec<String> {
    let script = person.file("complete.bash");
    if !script.exists() {
        std::fs::write(&script, person.done(&["completion", "bash"])).expect("written");
    }
    let ask = format!(
        "source {}; COMP_LINE={line:?}; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; \
         _bursar_with_colons; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    // The completion starts `bursar` by its name.
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_bursar")).parent().expect("a folder");
    let model = person.command(&[]);
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(ask).env_clear();
    for (name, value) in model.get_envs() {
        if let Some(value) = value {
            bash.env(name, value);
        }
    }
    let output = bash
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .output()
        .expect("bash is there");
    let said = String::from_utf8(output.stdout).expect("text");
    // Options are offered too where a value may be left out.
    let lines = said.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('-'));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn ids_that_the_key_can_see_are_completed() {
    let server = Server::start();
    server.tree().await;
    server.grant("first-order", "acme", "100").await;
    let price = serde_json::json!({ "per_gpu_hour": "6" });
    server.call("PUT", "/v1/prices/H100", price).await.expect(200);
    let _agent = Agent::register(&server, "node-1", "H100", 1).await;
    submit(&server, small("train-7")).await;
    let person = Person::of(&server);
    assert_eq!(candidates(&person, "bursar logs tr"), ["train-7"]);
    assert_eq!(candidates(&person, "bursar logs la"), ["last"]);
    assert_eq!(candidates(&person, "bursar node drain "), ["node-1"]);
    assert_eq!(candidates(&person, "bursar grant show fi"), ["first-order"]);
    assert_eq!(candidates(&person, "bursar class show hi"), ["high"]);
    // bash replaces what follows the last colon.
    assert_eq!(candidates(&person, "bursar balance acme:n"), ["nlp", "nlp:x"]);
    assert_eq!(
        candidates(&person, "bursar ls ac"),
        ["acme", "acme:nlp", "acme:nlp:x", "acme:vision"]
    );
    // Commands and options as before, without hidden ones.
    assert!(candidates(&person, "bursar quot").contains(&"quota".to_owned()));
    let agents = candidates(&person, "bursar agen");
    assert!(agents.contains(&"agent".to_owned()), "{agents:?}");
    assert!(!agents.contains(&"agent-supervise".to_owned()), "{agents:?}");
    let other = Person::with_key(&server, &server.key("submitter", "umbra").await);
    assert_eq!(candidates(&other, "bursar balance "), ["umbra"]);
    assert_eq!(candidates(&other, "bursar logs tr"), Vec::<String>::new());
}

#[tokio::test]
async fn a_completion_without_a_server_is_silent() {
    let server = Server::start();
    let person = Person::of(&server);
    let line = "bursar --server http://127.0.0.1:9 balance ac";
    assert_eq!(candidates(&person, line), Vec::<String>::new());
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(person.done(&["completion", shell]).contains("BURSAR_COMPLETE"), "{shell}");
        let fixed = person.done(&["completion", shell, "--static"]);
        assert!(fixed.contains("quota") && !fixed.contains("agent-supervise"), "{shell}");
    }
}

#[tokio::test]
async fn there_is_a_man_page_for_every_command() {
    let server = Server::start();
    let person = Person::of(&server);
    person.done(&["man", "pages"]);
    let page = |name: &str| std::fs::read_to_string(person.file("pages").join(name));
    let run = page("bursar-run.1").expect("a page");
    assert!(run.contains(".TH") && run.contains("python train.py"), "{run}");
    assert!(page("bursar-node-drain.1").is_ok() && page("bursar.1").is_ok());
    assert!(page("bursar-agent-supervise.1").is_err());
    let serve = page("bursar-serve.1").expect("a page");
    assert!(serve.contains("root\\-key\\-file") && !serve.contains("\\-\\-tenant"), "{serve}");
}

#[tokio::test]
async fn every_level_has_help_in_words() {
    let server = Server::start();
    let person = Person::of(&server);
    let top = person.done(&["--help"]);
    for task in ["First steps:", "Jobs:", "Credits:", "Nodes:", "Options:"] {
        assert!(top.contains(task), "{task}: {top}");
    }
    let run = person.done(&["run", "--help"]);
    assert!(run.find("Examples:") < run.find("Usage:"), "{run}");
    let field = person.done(&["explain", "grant.expires_at"]);
    assert!(field.starts_with("grant.expires_at"), "{field}");
    assert!(person.done(&["explain", "grants"]).contains("A grant"));
    assert!(person.fails(4, &["explain", "gran"]).contains("grant"));
    let typo = person.fails(2, &["quotaa"]);
    assert!(typo.contains("'quota'"), "{typo}");
}

#[tokio::test]
async fn tables_fit_the_terminal_and_say_how_long_ago() {
    let server = Server::with(&[]);
    server.tree().await;
    let person = Person::of(&server);
    let (code, shown) = person.types(
        "",
        &[
            "key",
            "create",
            "--role",
            "viewer",
            "--scope",
            "acme",
            "--name",
            "a name that is long enough to be wrapped on a terminal of eighty columns",
        ],
    );
    assert_eq!(code, Some(0), "{shown}");
    let (_, shown) = person.types("", &["audit", "ls"]);
    assert!(shown.contains("s ago"), "{shown}");
    assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 80), "{shown}");
    let (_, keys) = person.types("", &["key", "ls"]);
    assert!(
        keys.contains("SCOPE") && !keys.contains("CAPABILITIES"),
        "no value, no column: {keys}"
    );
    let (_, exact) = person.types("", &["audit", "ls", "--utc"]);
    assert!(!exact.contains(" ago") && exact.contains("Z  "), "{exact}");
}

#[tokio::test]
async fn a_record_of_the_journal_is_shown_with_its_fields() {
    let server = Server::start();
    server.tree().await;
    let grant = server.grant("first-order", "acme", "100").await;
    let person = Person::of(&server);
    let listed = person.json(&["audit", "ls", "--limit", "1"]);
    let position = listed["data"][0]["position"].to_string();
    let record = person.json(&["audit", "show", &position]);
    assert_eq!(record["position"].to_string(), position);
    assert_eq!(record["decisions"][0]["actor"], listed["data"][0]["actor"]);
    let text = record.to_string();
    assert!(text.contains("first-order") && text.contains("grant"), "{text} {grant}");
    person.fails(4, &["audit", "show", "999999"]);
}
