//! Nodes whose clocks are wrong: jobs run, end and are charged as on any other.

use serde_json::Value;

use crate::ends;
use crate::world::World;

/// Five minutes, in seconds.
const SKEW: i64 = 300;

fn gpu_ms(job: &Value) -> Vec<u64> {
    let attempts = job["attempts"].as_array().expect("a list").iter();
    attempts.map(|attempt| attempt["gpu_ms"].as_u64().expect("a number")).collect()
}

/// Runs a job to its end and another that is preempted, and checks the charges.
fn runs_as_ever_with_a_clock_off_by(seconds: i64) {
    let mut world = World::new(30);
    world.start_agent_with("n1", &["--unsafe-clock-offset", &seconds.to_string()]);
    world.submit("good", "H100:2", "sleep 0.3");
    let good = world.wait_for("good", "succeeded");
    let script = "if [ -e stopped ]; then exit 0; fi; trap 'touch stopped; exit 0' TERM; \
        echo ready; while true; do sleep 0.05; done";
    world.submit("moved", "H100:2", script);
    world.says("moved", "ready");
    world.wait_for("moved", "running");
    world.done(&["job", "preempt", "moved"]);
    let moved = world.wait_for("moved", "succeeded");
    assert_eq!((ends(&good), ends(&moved)), (vec!["succeeded"], vec!["preempted", "succeeded"]));
    assert!(gpu_ms(&good)[0] >= 600, "two GPUs for 0.3 s: {good}");
    let off = SKEW.unsigned_abs() * 1000;
    assert!(gpu_ms(&good).iter().chain(&gpu_ms(&moved)).all(|used| *used < off), "{moved}");
    world.check_books(&["good", "moved"]);
}

#[test]
fn a_clock_that_is_five_minutes_ahead_changes_nothing() {
    runs_as_ever_with_a_clock_off_by(SKEW);
}

#[test]
fn a_clock_that_is_five_minutes_behind_changes_nothing() {
    runs_as_ever_with_a_clock_off_by(-SKEW);
}

/// A world with a node whose clock is as far off as a file says, and a job that runs there.
fn with_a_job(file: &str) -> World {
    let mut world = World::new(30);
    let place = format!("@{}", world.path(file).display());
    world.start_agent_with("n1", &["--unsafe-clock-offset", &place]);
    world.submit("job", "H100:2", "echo ready; while [ ! -e go ]; do sleep 0.02; done");
    world.says("job", "ready");
    world.wait_for("job", "running");
    world
}

fn jump(world: &World, file: &str, seconds: i64) {
    world.write("new", &seconds.to_string());
    std::fs::rename(world.path("new"), world.path(file)).expect("renamed");
}

/// What the node then claims to have run is not believed. If its supervisor looks before the agent has
/// heard of the server again, five minutes seem to have passed without a word: the node gives the GPUs
/// up, as a machine that slept must, and the job starts again.
#[test]
fn a_jump_ahead_is_not_charged() {
    let world = with_a_job("clock");
    jump(&world, "clock", SKEW);
    world.write("go", "");
    let job = world.wait_for("job", "succeeded");
    assert!([&["succeeded"][..], &["lost", "succeeded"]].contains(&&ends(&job)[..]), "{job}");
    let off = SKEW.unsigned_abs() * 1000;
    assert!(gpu_ms(&job).iter().all(|used| *used < off), "{job}");
    assert!(world.left(&job).is_empty());
    world.check_books(&["job"]);
}

/// Time that was measured before is neither lost nor invented.
#[test]
fn a_jump_back_charges_no_more_than_was_seen() {
    let world = with_a_job("clock");
    let before = crate::until(|| {
        let used = gpu_ms(&world.job("job"))[0];
        (used > 0).then_some(used)
    });
    jump(&world, "clock", -SKEW);
    world.write("go", "");
    let job = world.wait_for("job", "succeeded");
    assert_eq!(ends(&job), ["succeeded"]);
    let used = gpu_ms(&job)[0];
    assert!((before..SKEW.unsigned_abs() * 1000).contains(&used), "{before}: {job}");
    world.check_books(&["job"]);
}
