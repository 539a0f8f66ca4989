//! A node without a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_agent::attempt::process::{Identity, marked};
use bursar_agent::attempt::record::{AttemptRecord, Launch};
use bursar_agent::attempt::{environment, output};
use bursar_agent::clock::BootTime;
use bursar_agent::folder::StateFolder;
use bursar_agent::reconcile::Local;
use bursar_agent::runner::{Observed, Runner};
use tempfile::TempDir;

pub(crate) const BURSAR: &str = env!("CARGO_BIN_EXE_bursar");

/// A node with a lease that outlives the test.
pub(crate) struct Node {
    pub(crate) folder: TempDir,
    pub(crate) runner: Runner,
}

pub(crate) fn runner(folder: &Path) -> Runner {
    let state = StateFolder::open(folder).expect("a folder");
    Runner::new(state, PathBuf::from(BURSAR)).expect("the machine has a boot id")
}

/// Waits for a condition. A test that waits too long is stopped by the test runner.
pub(crate) fn until<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = condition() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Node {
    pub(crate) fn new() -> Node {
        Node::below(&std::env::temp_dir())
    }

    /// A node whose folder lies below another.
    pub(crate) fn below(place: &Path) -> Node {
        let folder = tempfile::tempdir_in(place).expect("a folder");
        let runner = runner(folder.path());
        runner.renew(BootTime::now(), Duration::from_secs(3600)).expect("the lease is written");
        Node { folder, runner }
    }

    pub(crate) fn launch(&mut self, attempt: &str, script: &str) {
        self.launch_with(attempt, script, |_| {});
    }

    pub(crate) fn launch_with(
        &mut self,
        attempt: &str,
        script: &str,
        change: impl FnOnce(&mut Launch),
    ) {
        let mut launch = Launch {
            attempt: attempt.into(),
            job: "job_1".into(),
            node: "n1".into(),
            rank: 0,
            nodes: vec!["n1".into()],
            command: ["bash", "-c", script].map(str::to_owned).into(),
            env: BTreeMap::new(),
            workdir: Some(self.folder.path().to_owned()),
            gpus: vec!["GPU-a".into(), "GPU-b".into()],
            run_as: None,
            cgroup: None,
            output_limit: 1 << 20,
            machine_env: environment::of_machine(|name| std::env::var(name).ok()),
            tmp_bytes: None,
        };
        change(&mut launch);
        self.runner.launch(&launch).expect("it can be launched");
    }

    pub(crate) fn observe(&self, attempt: &str) -> Observed {
        let all = self.runner.observe(BootTime::now()).expect("readable");
        all.into_iter().find(|one| one.attempt == attempt).expect("it is there")
    }

    pub(crate) fn wait_for(&self, attempt: &str, local: Local) -> Observed {
        until(|| Some(self.observe(attempt)).filter(|one| one.local == local))
    }

    pub(crate) fn end_of(&self, attempt: &str) -> AttemptRecord {
        self.wait_for(attempt, Local::Ended).record.expect("it has ended")
    }

    pub(crate) fn output(&self, attempt: &str) -> String {
        let (_, bytes) = output::read(&self.runner.output(attempt), 0, 1 << 20).expect("readable");
        String::from_utf8(bytes).expect("text")
    }

    /// Waits until a job says something.
    pub(crate) fn says(&self, attempt: &str, what: &str) {
        until(|| self.output(attempt).contains(what).then_some(()));
    }

    /// The running processes of an attempt.
    pub(crate) fn left(&self, attempt: &str) -> Vec<Identity> {
        let place = self.file("attempts").join(attempt).display().to_string();
        marked("BURSAR_PLACE", &place).expect("/proc is there")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
