//! What a job knows about itself, in every attempt.

use crate::world::World;

#[test]
fn a_job_that_is_started_again_knows_it_and_finds_its_checkpoint() {
    let mut world = World::new(30);
    let base = world.path("shared").display().to_string();
    world.start_agent_with("n1", &["--checkpoints", &base]);
    // It saves its work when it is asked to stop, and goes on from there.
    let script = "env | grep -E '^BURSAR_(JOB|ATTEMPT_NUMBER|RESTART_COUNT|STOP_SIGNAL)=' | sort; \
        echo grace $BURSAR_GRACE_SECONDS; mkdir -p $BURSAR_CHECKPOINT_DIR; \
        cd $BURSAR_CHECKPOINT_DIR; cat step 2> /dev/null && exit 0; \
        trap 'echo resumed from 7 > step; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    world.submit("train", "H100", script);
    world.says("train", "ready");
    world.wait_for("train", "running");
    world.done(&["job", "preempt", "train"]);
    let job = world.wait_for("train", "succeeded");
    let first = job["attempts"][0]["id"].as_str().expect("an id");
    let said = world.done(&["logs", "train", "--attempt", first]);
    let lines: Vec<&str> = said.lines().take(6).collect();
    let expected = [
        "BURSAR_ATTEMPT_NUMBER=1",
        "BURSAR_JOB=train",
        "BURSAR_RESTART_COUNT=0",
        "BURSAR_STOP_SIGNAL=SIGTERM",
        "grace 20",
        "ready",
    ];
    assert_eq!(lines, expected, "{said}");
    let expected = [
        "BURSAR_ATTEMPT_NUMBER=2",
        "BURSAR_JOB=train",
        "BURSAR_RESTART_COUNT=1",
        "BURSAR_STOP_SIGNAL=SIGTERM",
        "grace 20",
        "resumed from 7",
    ];
    assert_eq!(world.done(&["logs", "train"]).lines().collect::<Vec<_>>(), expected);
    assert_eq!(world.read("shared/acme/train/step"), "resumed from 7\n");
    world.check_books(&["train"]);
}

#[test]
fn a_job_cannot_pretend_to_be_another_attempt() {
    let mut world = World::new(30);
    world.start_agent("n1");
    let run = ["run", "--id", "liar", "-a", "acme", "-g", "H100", "-t", "1m", "--yes"];
    let own = ["-e", "BURSAR_JOB=other", "-e", "BURSAR_ATTEMPT_NUMBER=9", "-e", "MINE=yes"];
    let script = "echo $BURSAR_JOB $BURSAR_ATTEMPT_NUMBER $MINE ${BURSAR_CHECKPOINT_DIR-none}";
    let said = world.done(&[&run[..], &own, &["--", "bash", "-c", script]].concat());
    assert_eq!(said, "liar 1 yes none\n");
    world.check_books(&["liar"]);
}
