//! Jobs end to end: a real server, real agents, real processes, and a check of the charges after each.

mod clocks;
mod idle;
#[path = "../rehearsal/mod.rs"]
mod rehearsal;
mod stores;
mod variables;
mod world;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;
use world::{World, until};

fn ends(job: &Value) -> Vec<&str> {
    let attempts = job["attempts"].as_array().expect("a list");
    attempts.iter().map(|attempt| attempt["end_reason"].as_str().expect("it has ended")).collect()
}

#[test]
fn a_job_runs_is_followed_and_is_charged_for_its_time() {
    let mut world = World::new(30);
    world.start_agent("n1");
    let script = "echo hello from $BURSAR_JOB on $CUDA_VISIBLE_DEVICES; sleep 0.3";
    let arguments = ["run", "--id", "good", "-a", "acme", "-g", "H100:2", "-t", "10m", "--yes"];
    let mut all = arguments.to_vec();
    all.extend(["--", "bash", "-c", script]);
    let output = world.output(&all);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(said, "hello from good on GPU-fake-n1-0,GPU-fake-n1-1\n");
    assert!(errors.contains("good succeeded"), "{errors}");
    let job = world.job("good");
    let gpu_ms = job["attempts"][0]["gpu_ms"].as_u64().expect("a number");
    assert!(gpu_ms >= 600, "two GPUs for 0.3 s: {gpu_ms}");
    assert_eq!(job["attempts"][0]["exit_code"], 0);
    world.check_books(&["good"]);
}

#[test]
fn a_job_of_another_user_is_kept_from_the_agent() {
    // Only root can become another user.
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    let mut world = World::new(30);
    world.start_agent_for("n1", "nobody");
    let key = world.path("agent.key").display().to_string();
    let script =
        format!("id -un; cat {key}; cat {key}/../n1/lease.json; grep CapEff /proc/$$/status");
    let arguments = ["run", "--id", "kept", "-a", "acme", "-g", "H100", "-t", "1m", "--yes", "--"];
    let all: Vec<&str> = arguments.into_iter().chain(["bash", "-c", &script]).collect();
    let said = world.done(&all);
    assert!(said.starts_with("nobody\n"), "{said}");
    assert!(said.ends_with("CapEff:\t0000000000000000\n"), "{said}");
    assert!(!said.contains(&world.read("agent.key")) && !said.contains("stop_at"), "{said}");
    world.check_books(&["kept"]);
}

#[test]
fn a_job_that_fails_passes_its_exit_code_on() {
    let mut world = World::new(30);
    world.start_agent("n1");
    let run = |id: &str, command: &[&str]| {
        let arguments = ["run", "--id", id, "-a", "acme", "-g", "H100", "-t", "1m", "--yes", "--"];
        let all: Vec<&str> = arguments.iter().chain(command).copied().collect();
        let output = world.output(&all);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8(output.stdout).expect("text"), errors)
    };
    let (code, output, errors) = run("bad", &["bash", "-c", "echo oh no >&2; exit 7"]);
    assert_eq!(code, Some(7), "{errors}");
    assert_eq!(output, "oh no\n");
    assert!(errors.contains("bad failed with exit code 7"), "{errors}");
    assert!(errors.contains("next: bursar job show bad"), "{errors}");
    let (code, output, errors) = run("missing", &["no-such-program"]);
    assert_eq!(code, Some(127), "{errors}");
    assert!(output.contains("`no-such-program` is not on this node"), "{output}");
    assert_eq!(world.output(&["wait", "bad"]).status.code(), Some(7));
    // Without a terminal there is no confirmation: nothing is submitted.
    let asked = world.output(&["run", "--id", "unasked", "-a", "acme", "-t", "1m", "--", "true"]);
    assert_eq!(asked.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&asked.stderr).contains("pass --yes"));
    assert_eq!(world.output(&["job", "show", "unasked"]).status.code(), Some(4));
    assert_eq!(ends(&world.job("bad")), ["failed"]);
    world.check_books(&["bad", "missing"]);
}

#[test]
fn a_cancelled_job_and_everything_that_it_started_is_gone() {
    let mut world = World::new(30);
    world.start_agent("n1");
    // The job handles the signal; its process in another session does not.
    let script = "setsid bash -c 'trap \"\" TERM; while :; do sleep 0.1; done' & \
        echo ready; while :; do sleep 0.1; done";
    world.submit("long", "H100", script);
    world.says("long", "ready");
    let running = world.wait_for("long", "running");
    assert!(world.left(&running).len() >= 2);
    world.done(&["cancel", "long"]);
    let job = world.wait_for("long", "cancelled");
    assert_eq!(world.left(&job), []);
    assert_eq!(ends(&job), ["cancelled"]);
    assert_eq!(world.output(&["wait", "long"]).status.code(), Some(130));
    world.check_books(&["long"]);
}

#[test]
fn a_preempted_job_saves_its_work_and_goes_on_from_there() {
    let mut world = World::new(30);
    world.start_agent("n1");
    let script = "step=$(cat checkpoint 2> /dev/null || echo 0); echo starting at $step; \
        trap 'echo 7 > checkpoint; echo saved; exit 0' TERM; \
        while [ $step -eq 0 ]; do sleep 0.05; done; echo done";
    world.submit("train", "H100:2", script);
    world.says("train", "starting at 0");
    world.wait_for("train", "running");
    world.done(&["job", "preempt", "train"]);
    let job = world.wait_for("train", "succeeded");
    assert_eq!(ends(&job), ["preempted", "succeeded"]);
    assert_eq!(world.read("checkpoint"), "7\n");
    let first = job["attempts"][0]["id"].as_str().expect("an id");
    // The shell may say that its `sleep` was terminated, too.
    let said = world.done(&["logs", "train", "--attempt", first]);
    assert!(said.starts_with("starting at 0\n") && said.ends_with("saved\n"), "{said}");
    assert_eq!(world.done(&["logs", "train"]), "starting at 7\ndone\n");
    world.check_books(&["train"]);
}

#[test]
fn an_agent_that_is_killed_and_restarted_loses_nothing() {
    let mut world = World::new(30);
    world.start_agent("n1");
    let script =
        "echo started >> starts; echo ready; while [ ! -e go ]; do sleep 0.05; done; exit 3";
    world.submit("steady", "H100", script);
    world.says("steady", "ready");
    world.wait_for("steady", "running");
    world.kill_agent("n1");
    world.start_agent("n1");
    assert_eq!(world.job("steady")["state"], "running");
    // And once more; this time it ends while no agent runs.
    world.kill_agent("n1");
    world.write("go", "");
    let job = world.job("steady");
    until(|| world.left(&job).is_empty().then_some(()));
    world.start_agent("n1");
    let job = world.wait_for("steady", "failed");
    assert_eq!(ends(&job), ["failed"]);
    assert_eq!(job["attempts"][0]["exit_code"], 3);
    assert_eq!(world.read("starts"), "started\n");
    world.check_books(&["steady"]);
}

#[test]
fn a_server_that_is_killed_finds_the_job_still_running() {
    let mut world = World::new(30);
    world.start_agent("n1");
    let script =
        "echo started >> starts; echo ready; while [ ! -e go ]; do sleep 0.05; done; echo end";
    world.submit("solid", "H100", script);
    world.says("solid", "ready");
    world.wait_for("solid", "running");
    world.crash_server();
    world.wait_for("solid", "running");
    world.write("go", "");
    let job = world.wait_for("solid", "succeeded");
    assert_eq!(ends(&job), ["succeeded"]);
    assert_eq!(world.read("starts"), "started\n");
    assert_eq!(world.done(&["logs", "solid"]), "ready\nend\n");
    world.check_books(&["solid"]);
}

#[test]
fn a_job_whose_node_falls_silent_ends_there_before_it_starts_elsewhere() {
    let mut world = World::new(8);
    world.start_agent("n1");
    // Each start and each ordered end writes its node.
    let script = "echo start $BURSAR_NODE >> story; \
        trap 'echo end $BURSAR_NODE >> story; exit 0' TERM; echo ready; \
        while [ ! -e go ]; do sleep 0.05; done";
    world.submit("mobile", "H100", script);
    world.says("mobile", "ready");
    world.wait_for("mobile", "running");
    world.start_agent("n2");
    world.kill_agent("n1");
    // The supervisor on n1 ends it by itself; the server then gives it to n2.
    until(|| world.read("story").contains("start n2").then_some(()));
    assert_eq!(world.read("story"), "start n1\nend n1\nstart n2\n");
    world.write("go", "");
    let job = world.wait_for("mobile", "succeeded");
    assert_eq!(ends(&job), ["lost", "succeeded"]);
    // The node comes back with reports that no longer matter.
    world.start_agent("n1");
    let first = job["attempts"][0]["id"].as_str().expect("an id");
    let forgotten = world.path("n1").join("forgotten").join(first);
    until(|| forgotten.exists().then_some(()));
    world.check_books(&["mobile"]);
}

#[test]
fn output_is_followed_while_it_is_printed() {
    let mut world = World::new(30);
    world.start_agent("n1");
    let script = "for i in 1 2 3; do echo line $i; while [ ! -e go$i ]; do sleep 0.02; done; done";
    world.submit("chatty", "H100", script);
    let mut follow = world.bursar(&["logs", "-f", "chatty"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().expect("the binary is there");
    let mut lines = BufReader::new(follow.stdout.take().expect("piped")).lines();
    for i in 1..=3 {
        let line = lines.next().expect("a line").expect("text");
        assert_eq!(line, format!("line {i}"));
        world.write(&format!("go{i}"), "");
    }
    assert!(lines.next().is_none());
    assert!(follow.wait().expect("it ends").success());
    world.wait_for("chatty", "succeeded");
    world.check_books(&["chatty"]);
}

#[test]
fn a_gang_runs_on_all_of_its_nodes_at_once() {
    let mut world = World::new(30);
    world.start_agent("n1");
    world.start_agent("n2");
    // Each waits for the other: neither ends alone.
    let script = "echo $BURSAR_NODE of $BURSAR_NODES > rank$BURSAR_RANK; echo rank $BURSAR_RANK; \
        while [ ! -e rank0 ] || [ ! -e rank1 ]; do sleep 0.02; done";
    let arguments =
        ["run", "--id", "gang", "-a", "acme", "-g", "H100:2", "--nodes", "2", "-t", "5m"];
    let mut all = arguments.to_vec();
    all.extend(["--yes", "--", "bash", "-c", script]);
    assert_eq!(world.done(&all), "rank 0\n");
    let job = world.wait_for("gang", "succeeded");
    let nodes = job["attempts"][0]["nodes"].as_array().expect("a list");
    assert_eq!(nodes.len(), 2);
    let mut said = [world.read("rank0"), world.read("rank1")];
    said.sort();
    let names: Vec<&str> = nodes.iter().map(|node| node.as_str().expect("a name")).collect();
    let expected = |node: &str| format!("{node} of {}\n", names.join(","));
    assert_eq!(said, [expected("n1"), expected("n2")]);
    // The output of every rank is kept; that of rank 0 is shown by default.
    until(|| (world.done(&["logs", "gang", "--rank", "1"]) == "rank 1\n").then_some(()));
    assert_eq!(world.done(&["logs", "gang"]), "rank 0\n");
    assert_eq!(world.done(&["logs", "gang", "--all-ranks"]), "[0] rank 0\n[1] rank 1\n");
    assert_eq!(world.done(&["logs", "-f", "gang", "--rank", "1"]), "rank 1\n");
    let output = world.output(&["logs", "gang", "--rank", "2"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("0 to 1"), "{errors}");
    world.check_books(&["gang"]);
}

#[test]
fn a_job_that_waits_says_why_and_starts_when_there_is_room() {
    let mut world = World::new(30);
    world.start_agent("n1");
    world.submit("first", "H100:2", "echo ready; while [ ! -e go ]; do sleep 0.05; done");
    world.says("first", "ready");
    world.submit("second", "H100:1", "true");
    let why = until(|| {
        let why = world.json(&["why", "second"]);
        (!why["blockers"].as_array().expect("a list").is_empty()).then_some(why)
    });
    assert_eq!(why["state"], "queued");
    let shown = world.done(&["why", "second"]);
    assert!(shown.contains("waits for:") && shown.contains("FIX"), "{shown}");
    world.write("go", "");
    world.wait_for("second", "succeeded");
    world.check_books(&["first", "second"]);
}
