//! `bursar demo` as a whole: its output is correct, and it leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

#[path = "rehearsal/mod.rs"]
mod rehearsal;

const BURSAR: &str = env!("CARGO_BIN_EXE_bursar");

/// The answer to a command in the context of the demo.
fn ask(contexts: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new(BURSAR);
    command.args(arguments).args(["-o", "json"]).env_clear().env("BURSAR_CONTEXTS", contexts);
    let output = command.output().expect("the binary is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_demo_shows_live_jobs_and_leaves_nothing_behind() {
    let mut demo = Command::new(BURSAR)
        .arg("demo")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary is there");
    let lines = BufReader::new(demo.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let said: Vec<String> = lines.take(11).collect();
    let url = said[0].strip_prefix("bursar runs at ").expect("its address comes first");
    assert!(url.starts_with("http://127.0.0.1:"), "{said:?}");
    assert!(said[1].contains("simulated GPUs"), "{said:?}");
    assert!(said.contains(&format!("dashboard: {url}/")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("sign in with the key bur_")), "{said:?}");
    let contexts = said.iter().find_map(|line| line.trim().strip_prefix("export BURSAR_CONTEXTS="));
    let contexts = contexts.expect("a ready context").to_owned();
    let count = |arguments: &[&str]| {
        let list = ask(&contexts, arguments);
        list["data"].as_array().expect("a list").len()
    };
    until(|| count(&["node", "ls"]) == 3);
    until(|| count(&["ls", "--state", "running"]) > 0);
    until(|| count(&["ls", "--state", "succeeded"]) > 0);
    let folder = Path::new(&contexts).parent().expect("a folder");
    // Its store is gone with it.
    rehearsal::rehearse_running(&folder.join("data"));
    let demo_id = demo.id().to_string();
    let sent = Command::new("kill").args(["-INT", &demo_id]).status();
    assert!(sent.expect("kill is there").success());
    assert!(demo.wait().expect("it ends").success());
    assert!(!folder.exists());
    // Supervisors and jobs name a place in that folder.
    let place = folder.display().to_string();
    let list = Command::new("ps").args(["axeww", "-o", "args"]).output().expect("ps is there");
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let left: Vec<&str> = list.lines().filter(|line| line.contains(&place)).collect();
    assert_eq!(left, Vec::<&str>::new());
}
