//! Jobs whose GPUs do nothing: two warnings in their output, then their end.

use crate::world::World;

/// A job that waits in vain on a node whose GPUs are as busy as the file says.
fn waiting_world(flags: &[&str]) -> World {
    let mut world = World::new(30);
    let file = world.path("busy");
    std::fs::write(&file, "0").expect("written");
    let file = file.display().to_string();
    let own = ["--fake-utilization", &file, "--idle-warning", "1s"];
    world.start_agent_with("n1", &[&own[..], flags].concat());
    let script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    world.submit("train", "H100", script);
    world.says("train", "ready");
    world
}

#[test]
fn a_job_with_idle_gpus_is_warned_twice_and_then_stopped() {
    let world = waiting_world(&["--idle-stop", "3s"]);
    let job = world.wait_for("train", "failed");
    let end = &job["attempts"][0];
    let message = end["message"].as_str().expect("a reason");
    assert!(message.contains("its GPUs did nothing for too long"), "{job}");
    let said = world.done(&["logs", "train"]);
    let place = |text: &str| said.find(text).unwrap_or_else(|| panic!("{text}: {said}"));
    let places = ["first warning", "second warning", "bursar cancel train", "[bursar: stopped"];
    assert!(place(places[0]) < place(places[1]) && place(places[1]) < place(places[3]), "{said}");
    assert!(said.contains(places[2]) && said.contains("stopped after 3s"), "{said}");
    assert!(place("saved") > place(places[1]), "it had time to save its work: {said}");
    assert_eq!(job["attempts"].as_array().map(Vec::len), Some(1), "it does not start again: {job}");
    world.check_books(&["train"]);
}

#[test]
fn without_a_limit_a_job_is_only_warned() {
    let world = waiting_world(&[]);
    world.says("train", "second warning");
    world.wait_for("train", "running");
    world.done(&["cancel", "train", "--yes"]);
    world.wait_for("train", "cancelled");
    world.check_books(&["train"]);
}

#[test]
fn a_stop_without_two_warnings_is_refused() {
    let world = World::new(30);
    for warning in ["0s", "1h"] {
        let mut agent = world.plain_agent("n1");
        let agent = agent.args(["--idle-warning", warning, "--idle-stop", "2h"]);
        let output = agent.output().expect("the binary is there");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("twice --idle-warning"), "{said}");
    }
}
