//! Attempts on a node: the real supervisor, real processes, no server.

mod full_disk;
mod isolation;
mod node;
mod small_disk;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bursar_agent::attempt::output;
use bursar_agent::attempt::process::Identity;
use bursar_agent::attempt::record::{Exit, StopCause};
use bursar_agent::clock::BootTime;
use bursar_agent::folder::StateFolder;
use bursar_agent::isolation::cgroup::{self, CgroupLimits};
use bursar_agent::reconcile::Local;
use bursar_agent::runner::Runner;

use node::{BURSAR, Node, runner, until};

#[test]
fn a_job_runs_prints_and_ends_with_its_exit_code() {
    let mut node = Node::new();
    node.launch("att_a1", "echo out; echo err >&2; exit 0");
    node.launch("att_a2", "exit 3");
    node.launch("att_a3", "kill -SEGV $$");
    assert_eq!(node.end_of("att_a1").exit, Some(Exit::Code(0)));
    assert_eq!(node.end_of("att_a2").exit, Some(Exit::Code(3)));
    assert_eq!(node.end_of("att_a3").exit, Some(Exit::Signal(11)));
    assert_eq!(node.output("att_a1"), "out\nerr\n");
    assert_eq!(node.end_of("att_a1").stop, None);
}

#[test]
fn a_failed_start_has_a_reason() {
    let mut node = Node::new();
    node.launch_with("att_b1", "", |launch| launch.command = vec!["no-such-program".into()]);
    node.launch_with("att_b2", "", |launch| launch.workdir = Some("/no/such/folder".into()));
    node.launch_with("att_b3", "", |launch| launch.command = vec![]);
    node.launch_with("att_b4", "true", |launch| launch.run_as = Some("no-such-user".into()));
    assert_eq!(node.end_of("att_b1").exit, Some(Exit::Code(127)));
    assert!(node.output("att_b1").contains("`no-such-program` is not on this node"));
    assert_eq!(node.end_of("att_b2").exit, Some(Exit::Code(127)));
    assert!(node.output("att_b2").contains("/no/such/folder"));
    assert_eq!(node.end_of("att_b3").exit, Some(Exit::Code(126)));
    assert!(node.output("att_b3").contains("no command"));
    assert_eq!(node.end_of("att_b4").exit, Some(Exit::Code(126)));
    assert!(node.output("att_b4").contains("no-such-user"));
}

#[test]
fn a_job_sees_its_devices_and_not_the_agents_environment() {
    let mut node = Node::new();
    node.launch_with("att_c", "env; pwd", |launch| {
        launch.env = [("EPOCHS".to_owned(), "3".to_owned())].into();
    });
    node.end_of("att_c");
    let output = node.output("att_c");
    for line in [
        "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b",
        "BURSAR_ATTEMPT=att_c",
        "BURSAR_JOB=job_1",
        "BURSAR_NODE=n1",
        "BURSAR_RANK=0",
        "EPOCHS=3",
        &node.folder.path().display().to_string(),
    ] {
        assert!(output.lines().any(|found| found == line), "{line}\n{output}");
    }
    // Cargo sets this one for the test, and the test started the supervisor.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(!output.contains("CARGO"), "{output}");
}

#[test]
fn a_stop_lets_the_job_save_its_work() {
    let mut node = Node::new();
    let script =
        "trap 'echo 7 > checkpoint; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    node.launch("att_d", script);
    node.says("att_d", "ready");
    node.runner.stop("att_d", Duration::from_secs(600)).expect("sent");
    let record = node.end_of("att_d");
    assert_eq!(record.exit, Some(Exit::Code(0)));
    assert_eq!(record.stop, Some(StopCause::Ordered));
    assert!(!record.killed);
    assert_eq!(std::fs::read_to_string(node.file("checkpoint")).expect("saved"), "7\n");
}

#[test]
fn a_job_with_idle_gpus_reads_why_it_is_stopped() {
    let mut node = Node::new();
    let script = "trap 'echo saved; exit 0' TERM; printf ready; while :; do sleep 0.01; done";
    node.launch("att_i", script);
    node.says("att_i", "ready");
    let running = node.wait_for("att_i", Local::Running);
    assert!(running.record.is_some_and(|record| record.takes_notes));
    node.runner.note("att_i", "[bursar: idle]").expect("sent");
    node.says("att_i", "ready\n[bursar: idle]\n");
    node.runner.stop_idle("att_i", Duration::from_secs(600)).expect("sent");
    let record = node.end_of("att_i");
    assert_eq!((record.stop, record.exit), (Some(StopCause::Idle), Some(Exit::Code(0))));
    let said = node.output("att_i");
    let (_, after) = said.split_once("[bursar: idle]\n").expect("it was noted");
    assert!(after.contains("saved\n"), "its own output goes on: {said}");
}

#[test]
fn after_the_grace_the_whole_tree_is_killed() {
    let mut node = Node::new();
    // A child, a grandchild, and one that leaves the session and its parent.
    let script = "trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & \
        setsid bash -c 'trap \"\" TERM; (while :; do sleep 0.1; done) & echo away' ; \
        echo ready; while :; do sleep 0.1; done";
    node.launch("att_e", script);
    node.says("att_e", "ready");
    node.says("att_e", "away");
    assert!(node.left("att_e").len() >= 3);
    node.runner.stop("att_e", Duration::from_millis(50)).expect("sent");
    let record = node.end_of("att_e");
    assert_eq!(record.exit, Some(Exit::Signal(9)));
    assert!(record.killed);
    assert_eq!(node.left("att_e"), []);
}

#[test]
fn remaining_processes_of_a_job_end_before_its_end_is_recorded() {
    let mut node = Node::new();
    node.launch("att_f", "setsid bash -c 'while :; do sleep 0.1; done' & echo ready; exit 5");
    let record = node.end_of("att_f");
    assert_eq!(record.exit, Some(Exit::Code(5)));
    assert_eq!(node.left("att_f"), []);
}

#[test]
fn a_process_with_a_strange_name_is_killed_too() {
    let mut node = Node::new();
    // Its name is not UTF-8, and it has left its session.
    let child = "printf \"\\377\" > /proc/self/comm; echo renamed; while :; do sleep 0.1; done";
    let script = format!("setsid bash -c '{child}' & echo ready; while :; do sleep 0.1; done");
    node.launch("att_v", &script);
    node.says("att_v", "renamed");
    node.runner.kill("att_v").expect("sent");
    assert!(node.end_of("att_v").killed);
    assert_eq!(node.left("att_v"), []);
}

#[test]
fn a_record_that_cannot_be_read_ends_its_attempt_and_no_other() {
    let mut node = Node::new();
    node.launch("att_w", "echo ready; while :; do sleep 0.1; done");
    node.launch("att_x", "while [ ! -e go ]; do sleep 0.01; done; exit 4");
    node.says("att_w", "ready");
    let supervisor = node.observe("att_w").record.and_then(|one| one.supervisor).expect("known");
    let stopped = Command::new("kill").args(["-STOP", &supervisor.pid.to_string()]).status();
    assert!(stopped.expect("kill is there").success());
    std::fs::write(node.file("attempts/att_w/record.json"), "{").expect("written");
    assert!(node.end_of("att_w").killed);
    assert_eq!(node.left("att_w"), []);
    supervisor.kill();
    assert_eq!(node.wait_for("att_x", Local::Running).local, Local::Running);
    std::fs::write(node.file("go"), "").expect("written");
    assert_eq!(node.end_of("att_x").exit, Some(Exit::Code(4)));
}

#[test]
fn a_job_outlives_the_agent_and_its_exit_code_is_kept() {
    let mut node = Node::new();
    node.launch("att_g", "echo ready; while [ ! -e go ]; do sleep 0.01; done; exit 42");
    node.says("att_g", "ready");
    let before = node.observe("att_g");
    // Another agent takes over; nothing of the first one is left but the folder.
    node.runner = runner(node.folder.path());
    let after = node.observe("att_g");
    assert_eq!(after.local, Local::Running);
    assert!(after.running_time >= before.running_time);
    assert_eq!(after.record.expect("known").child, before.record.expect("known").child);
    std::fs::write(node.file("go"), "").expect("written");
    assert_eq!(node.end_of("att_g").exit, Some(Exit::Code(42)));
}

#[test]
fn an_end_without_a_running_agent_is_found_later() {
    let mut node = Node::new();
    node.launch("att_h", "exit 9");
    let record = node.file("attempts/att_h/record.json");
    until(|| std::fs::read_to_string(&record).ok().filter(|text| text.contains("\"ended\":true")));
    node.runner = runner(node.folder.path());
    let found = node.observe("att_h");
    assert_eq!(found.local, Local::Ended);
    let last = found.record.expect("known");
    assert_eq!(last.exit, Some(Exit::Code(9)));
    let ran = last.seen.since(last.started.expect("it ran"));
    assert_eq!(found.running_time, ran);
}

#[test]
fn a_job_ends_when_its_supervisor_is_killed() {
    let mut node = Node::new();
    let script =
        "setsid bash -c 'echo ready; while :; do sleep 0.1; done' & while :; do sleep 0.1; done";
    node.launch("att_i", script);
    node.says("att_i", "ready");
    let supervisor = node.observe("att_i").record.and_then(|one| one.supervisor).expect("known");
    let killed = Command::new("kill").args(["-9", &supervisor.pid.to_string()]).status();
    assert!(killed.expect("kill is there").success());
    let record = node.end_of("att_i");
    assert_eq!((record.exit, record.stop), (None, None));
    assert_eq!(node.left("att_i"), []);
}

#[test]
fn attempts_of_two_servers_may_have_one_name() {
    let (mut one, mut other) = (Node::new(), Node::new());
    for node in [&mut one, &mut other] {
        node.launch("att_t", "echo ready; while [ ! -e go ]; do sleep 0.01; done");
        node.says("att_t", "ready");
    }
    // Processes of the one attempt are ended; those of the other are not affected.
    let supervisor = one.observe("att_t").record.and_then(|one| one.supervisor).expect("known");
    let killed = Command::new("kill").args(["-9", &supervisor.pid.to_string()]).status();
    assert!(killed.expect("kill is there").success());
    one.end_of("att_t");
    assert_eq!(other.observe("att_t").local, Local::Running);
    std::fs::write(other.file("go"), "").expect("written");
    assert_eq!(other.end_of("att_t").exit, Some(Exit::Code(0)));
}

#[test]
fn an_attempt_is_started_at_most_once() {
    let mut node = Node::new();
    node.launch("att_j", "echo started >> log; echo ready; while [ ! -e go ]; do sleep 0.01; done");
    node.says("att_j", "ready");
    // A second supervisor finds that there is one, and leaves.
    let place = node.file("attempts/att_j");
    let second = Command::new(BURSAR).arg("agent-supervise").arg(&place).status();
    assert!(second.expect("it starts").success());
    std::fs::write(node.file("go"), "").expect("written");
    node.end_of("att_j");
    assert_eq!(std::fs::read_to_string(node.file("log")).expect("written"), "started\n");
    // A declined attempt never starts, however often it is ordered.
    node.runner.decline("att_k").expect("recorded");
    let declined = node.end_of("att_k");
    assert_eq!(declined.started, None);
    node.runner.erase("att_k").expect("it has ended");
    assert_eq!(node.runner.local("att_k", &[]), Local::Forgotten);
    assert_eq!(node.runner.local("att_x", &[]), Local::Absent);
}

#[test]
fn a_launch_that_was_interrupted_never_happens_later() {
    let mut node = Node::new();
    // The agent decided and died before its supervisor started.
    let missing = PathBuf::from("/no/such/program");
    let state = StateFolder::open(node.folder.path()).expect("a folder");
    let mut broken = Runner::new(state, missing).expect("the machine has a boot id");
    std::mem::swap(&mut node.runner, &mut broken);
    node.launch("att_l", "touch started");
    node.runner = runner(node.folder.path());
    let record = node.end_of("att_l");
    assert!(matches!(record.exit, Some(Exit::NotStarted(_))), "{record:?}");
    let place = node.file("attempts/att_l");
    let late = Command::new(BURSAR).arg("agent-supervise").arg(place).status();
    assert!(late.expect("it starts").success());
    assert!(!node.file("started").exists());
}

#[test]
fn a_launch_without_a_supervisor_is_declined() {
    let node = Node::new();
    let state = StateFolder::open(node.folder.path()).expect("a folder");
    // The agent died between the decision and the start.
    state.create("att_r", |_| Ok(())).expect("made");
    let record = node.end_of("att_r");
    assert!(matches!(record.exit, Some(Exit::NotStarted(_))), "{record:?}");
}

#[test]
fn a_job_ends_when_its_lease_runs_out() {
    let mut node = Node::new();
    let script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    // The lease that it starts with has a second left.
    node.runner.renew(BootTime::now(), Duration::from_millis(1500)).expect("written");
    node.launch("att_m", script);
    let record = node.end_of("att_m");
    assert_eq!(record.stop, Some(StopCause::LeaseRanOut));
    assert_eq!(record.exit, Some(Exit::Code(0)));
    assert!(node.output("att_m").contains("saved"));
    // One that does not listen is killed within the lease.
    let sent = BootTime::now();
    node.runner.renew(sent, Duration::from_secs(3)).expect("written");
    node.launch("att_n", "trap '' TERM; while :; do sleep 0.01; done");
    let record = node.end_of("att_n");
    assert_eq!(record.exit, Some(Exit::Signal(9)));
    assert!(record.killed);
    assert_eq!(node.left("att_n"), []);
}

#[test]
fn a_lease_that_is_renewed_keeps_a_job_running() {
    let mut node = Node::new();
    node.runner.renew(BootTime::now(), Duration::from_millis(600)).expect("written");
    node.launch("att_o", "while [ ! -e go ]; do sleep 0.01; done");
    node.wait_for("att_o", Local::Running);
    node.runner.renew(BootTime::now(), Duration::from_secs(3600)).expect("written");
    let started = BootTime::now();
    until(|| (BootTime::now().since(started) > Duration::from_millis(800)).then_some(()));
    assert_eq!(node.observe("att_o").local, Local::Running);
    std::fs::write(node.file("go"), "").expect("written");
    assert_eq!(node.end_of("att_o").stop, None);
}

#[test]
fn a_job_that_prints_without_end_keeps_only_its_newest_output() {
    let mut node = Node::new();
    let script = "for ((i = 0; i < 20000; i++)); do echo line $i; done";
    node.launch_with("att_p", script, |launch| launch.output_limit = 16 << 10);
    assert_eq!(node.end_of("att_p").exit, Some(Exit::Code(0)));
    let (start, bytes) = output::read(&node.runner.output("att_p"), 0, 1 << 20).expect("readable");
    assert!(start > 0);
    assert!(bytes.ends_with(b"line 19999\n"));
    // The limit, and what one read of a pipe can add to the last file.
    assert!(bytes.len() <= (16 << 10) + (64 << 10), "{}", bytes.len());
}

/// A group below which this user may make others; says so where there is none.
fn usable_groups(test: &str) -> Option<PathBuf> {
    let usable = cgroup::mounted().filter(|base| cgroup::is_usable(base));
    if usable.is_none() {
        println!("skipped: {test}: no control groups (version 2) that this user may make");
    }
    usable
}

#[test]
fn no_process_escapes_a_control_group() {
    // Elsewhere descent does the same, as tested above.
    let Some(base) = usable_groups("no_process_escapes_a_control_group") else { return };
    let mut node = Node::new();
    let name = format!("att_q{}", std::process::id());
    let group = cgroup::create(&base, &name, CgroupLimits::default()).expect("made");
    let script =
        "setsid bash -c '(while :; do sleep 0.1; done) & echo ready' ; while :; do sleep 0.1; done";
    node.launch_with(&name, script, |launch| launch.cgroup = Some(group.clone()));
    node.says(&name, "ready");
    assert!(cgroup::members(&group).len() >= 2);
    node.runner.kill(&name).expect("sent");
    assert!(node.end_of(&name).killed);
    assert_eq!(node.left(&name), []);
    assert!(!group.exists(), "an empty group is removed");
}

#[test]
fn a_job_has_no_more_processes_than_its_group_allows() {
    const MAX_PROCESSES: u32 = 12;
    let test = "a_job_has_no_more_processes_than_its_group_allows";
    let Some(base) = usable_groups(test) else { return };
    let mut node = Node::new();
    let name = format!("att_p{}", std::process::id());
    let limits = CgroupLimits { pids: Some(MAX_PROCESSES), ..CgroupLimits::default() };
    let group = cgroup::create(&base, &name, limits).expect("made");
    if !group.join("pids.max").exists() {
        cgroup::remove(&group);
        println!("skipped: {test}: {} has no controller for processes", base.display());
        return;
    }
    let script = "for i in $(seq 40); do sleep 1000 & done; echo over; wait";
    node.launch_with(&name, script, |launch| launch.cgroup = Some(group.clone()));
    let refused = || {
        let events = std::fs::read_to_string(group.join("pids.events")).unwrap_or_default();
        let count =
            events.lines().find_map(|line| line.strip_prefix("max "))?.parse::<u64>().ok()?;
        (count > 0).then_some(())
    };
    until(refused);
    assert!(cgroup::members(&group).len() <= MAX_PROCESSES as usize);
    node.runner.kill(&name).expect("sent");
    assert!(node.end_of(&name).killed);
    assert_eq!(node.left(&name), []);
}

#[test]
fn a_job_may_run_as_another_user() {
    // Only root can change to another user.
    if std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).ok()
        != Some(0)
    {
        return;
    }
    let mut node = Node::new();
    let script = "id -un; grep NoNewPrivs /proc/self/status; cat launch.json record.json";
    node.launch_with("att_s", script, |launch| {
        launch.run_as = Some("nobody".into());
        launch.workdir = Some("/".into());
    });
    node.end_of("att_s");
    let output = node.output("att_s");
    assert!(output.starts_with("nobody\nNoNewPrivs:\t1\n"), "{output}");
}

#[test]
fn a_later_process_with_the_same_pid_is_not_the_supervisor() {
    let own = Identity::own().expect("/proc is there");
    assert!(own.is_alive());
    assert!(!Identity { start_ticks: own.start_ticks.wrapping_sub(1), ..own }.is_alive());
}
