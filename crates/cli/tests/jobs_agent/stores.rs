//! Agents of several servers on one machine: their state is separate.

use crate::ends;
use crate::world::{World, until};

#[test]
fn two_agents_of_one_machine_need_no_flags_of_their_own() {
    let mut world = World::new(30);
    world.start_plain_agent("n1");
    world.start_plain_agent("n2");
    world.submit("one", "H100:2", "echo here; sleep 0.2");
    world.submit("two", "H100:2", "echo there; sleep 0.2");
    for id in ["one", "two"] {
        assert_eq!(ends(&world.wait_for(id, "succeeded")), ["succeeded"]);
    }
    // A second agent of the same node is the mistake, and says so.
    let rival = world.plain_agent("n1").output().expect("the binary is there");
    assert!(!rival.status.success());
    let said = String::from_utf8_lossy(&rival.stderr).into_owned();
    assert!(said.contains("another agent works in"), "{said}");
    world.check_books(&["one", "two"]);
}

#[test]
fn a_fresh_server_is_served_at_once_by_an_agent_that_knew_another() {
    let mut world = World::new(30);
    world.start_agent("n1");
    world.submit("first", "H100", "true");
    world.wait_for("first", "succeeded");
    world.kill_agent("n1");
    world.replace_server();
    world.start_agent("n1");
    let arguments = ["run", "--id", "new", "-a", "acme", "-g", "H100", "-t", "1m", "--yes"];
    let command = ["--max-requeues", "0", "--", "bash", "-c", "echo new here"];
    let output = world.output(&[&arguments[..], &command[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(ends(&world.job("new")), ["succeeded"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "new here\n");
    world.check_books(&["new"]);
}

#[test]
fn an_agent_does_not_touch_attempts_of_another_server() {
    let mut world = World::new(60);
    world.start_agent("n1");
    world.submit("old", "H100", "echo ready; while [ ! -e go ]; do sleep 0.05; done; exit 3");
    world.says("old", "ready");
    let running = world.wait_for("old", "running");
    world.kill_agent("n1");
    // The same folder, another server, whose first attempt has the same id.
    let mut other = World::new(60);
    let state = world.path("n1").display().to_string();
    other.start_agent_at("m1", &state);
    other.submit("new", "H100", "echo new here");
    assert_eq!(ends(&other.wait_for("new", "succeeded")), ["succeeded"]);
    assert_eq!(other.done(&["logs", "new"]), "new here\n");
    other.kill_agent("m1");
    assert!(!world.left(&running).is_empty(), "it still runs");
    world.start_agent("n1");
    world.write("go", "");
    let job = world.wait_for("old", "failed");
    assert_eq!(ends(&job), ["failed"]);
    assert_eq!(job["attempts"][0]["exit_code"], 3);
    until(|| world.left(&job).is_empty().then_some(()));
    world.check_books(&["old"]);
    other.check_books(&["new"]);
}

/// Takes the only GPU and keeps it until it ends.
const TAKE: &str = "exec 9> place; flock -n 9 || touch overlap";

#[test]
fn after_a_restore_a_gpu_is_given_out_only_when_nothing_of_the_lost_future_runs_on_it() {
    let mut world = World::new(15);
    world.start_agent("n1");
    let before = world.node("n1")["incarnation"].as_u64().expect("a number");
    world.back_up("backup");
    // It will not end before it is killed.
    let stubborn = format!("{TAKE}; trap '' TERM; echo ready; while :; do sleep 0.05; done");
    world.submit("lost", "H100:2", &stubborn);
    world.says("lost", "ready");
    world.restore("backup");
    // The agent is not heard, and registers again by itself.
    let kept = until(|| {
        let node = world.node("n1");
        (node["state"] == "draining").then_some(node)
    });
    assert!(kept["kept_until"].is_string(), "{kept}");
    let incarnation = kept["incarnation"].as_u64().expect("a number");
    assert!(incarnation > before + 1_000, "{kept}");
    assert!(!world.path("overlap").exists());
    world.submit("new", "H100:2", &format!("{TAKE}; echo new here"));
    assert_eq!(ends(&world.wait_for("new", "succeeded")), ["succeeded"]);
    assert!(!world.path("overlap").exists(), "two attempts had the GPUs at once");
    assert_eq!(world.node("n1")["state"], "ready");
    assert_eq!(world.output(&["job", "show", "lost"]).status.code(), Some(4));

    // The journal of the cell knows it, also without the manifest: the agent is still known.
    world.lose_manifest();
    world.submit("after", "H100:2", "true");
    assert_eq!(ends(&world.wait_for("after", "succeeded")), ["succeeded"]);
    assert_eq!(world.node("n1")["incarnation"].as_u64(), Some(incarnation));
    world.check_books(&["new", "after"]);
}
