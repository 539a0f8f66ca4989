//! A node with a full disk: its attempts continue, and their ends are recorded. These tests need root,
//! to mount a small disk.

use std::time::Duration;

use bursar_agent::attempt::record::{AttemptLease, Exit, StopCause};
use bursar_agent::clock::BootTime;
use bursar_agent::reconcile::Local;
use nix::unistd::geteuid;

use super::node::{Node, until};
use super::small_disk::SmallDisk;

#[test]
fn a_full_disk_neither_ends_a_lease_nor_hides_an_end() {
    if !geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    // A lease that ran out before the disk was full shows nothing: the next one is longer.
    let shown = [6, 60, 600].into_iter().any(|seconds| outlives_its_lease(seconds).is_some());
    assert!(shown, "this machine is too slow to fill a disk of one MiB");
}

/// Whether an attempt ran on over the end of a lease that could not be written anew.
fn outlives_its_lease(seconds: u64) -> Option<()> {
    let (disk, work) = (SmallDisk::new(), tempfile::tempdir().expect("a folder"));
    let mut node = Node::below(disk.path());
    let sent = BootTime::now();
    let length = Duration::from_secs(seconds);
    let lease = AttemptLease::granted(String::new(), sent, length);
    node.runner.renew(sent, length).expect("there is room");
    let script = "echo ready; while [ ! -e go ]; do sleep 0.01; done; seq 100000; exit 7";
    node.launch_with("att_1", script, |launch| launch.workdir = Some(work.path().to_owned()));
    until(|| {
        let said = node.output("att_1").contains("ready");
        (said || node.observe("att_1").local == Local::Ended).then_some(())
    });
    disk.fill();
    node.runner.renew(BootTime::now(), Duration::from_secs(3600)).expect("every supervisor heard");
    // With as much time again for its supervisor to hear of it.
    let notified_in_time = BootTime::now().since(sent) < lease.stop_at.since(sent) / 2;
    until(|| (BootTime::now() > lease.kill_at).then_some(()));
    // It prints more than there is room for, and ends.
    std::fs::write(work.path().join("go"), "").expect("written");
    let end = node.end_of("att_1");
    if !notified_in_time {
        return None;
    }
    assert_eq!((end.exit, end.stop), (Some(Exit::Code(7)), None::<StopCause>));
    assert!(end.output_lost > 0, "{}", end.output_lost);
    Some(())
}

#[test]
fn an_attempt_that_cannot_be_recorded_is_not_started() {
    if !geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    let disk = SmallDisk::new();
    let mut node = Node::below(disk.path());
    node.launch("att_1", "echo ready; while [ ! -e go ]; do sleep 0.01; done");
    node.says("att_1", "ready");
    disk.fill();
    let refused = node.runner.fail("att_2", "there is no free space");
    assert!(refused.is_err(), "there is no free space");
    assert_eq!(node.observe("att_1").local, Local::Running);
    std::fs::remove_file(disk.path().join("filler")).expect("there");
    std::fs::write(node.file("go"), "").expect("written");
    assert_eq!(node.end_of("att_1").exit, Some(Exit::Code(0)));
    // With room again it is known that the other never ran.
    assert!(matches!(node.end_of("att_2").exit, Some(Exit::NotStarted(_))));
}
