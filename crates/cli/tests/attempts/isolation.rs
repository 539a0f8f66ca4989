//! Isolation of jobs from their node and their agent. These tests need
//! root, as an agent that runs jobs as another user does.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bursar_agent::attempt::record::Exit;
use nix::unistd::{User, geteuid};
use tempfile::TempDir;

use super::node::{BURSAR, Node};

/// The user that the jobs of these tests run as.
const USER: &str = "nobody";

/// A library that writes down, wherever it is loaded, the user and the program of the process.
const PROBE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
static void note(const char *how) {
    char program[4096] = {0}, line[8192];
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return;
    int length = snprintf(line, sizeof line, "%s %d %d %s\n", how, getuid(), geteuid(), program);
    int file = open(NOTES, O_WRONLY | O_APPEND);
    if (file >= 0 && write(file, line, length) > 0) close(file);
}
__attribute__((constructor)) static void loaded(void) { note("preload"); }
unsigned int la_version(unsigned int version) { note("audit"); return version; }
"#;

/// A folder that every user may look into, with the library and the file that it writes to.
fn probe() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    open_to_all(folder.path(), 0o755);
    let (source, library) = (folder.path().join("probe.c"), folder.path().join("probe.so"));
    let notes = folder.path().join("notes");
    std::fs::write(&source, PROBE).expect("written");
    std::fs::write(&notes, "").expect("written");
    open_to_all(&notes, 0o666);
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(format!("-DNOTES=\"{}\"", notes.display()))
        .arg(&source)
        .status();
    assert!(built.expect("a C compiler is there").success());
    (folder, library, notes)
}

fn open_to_all(path: &Path, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("it is ours");
}

#[test]
fn a_preloaded_library_never_runs_as_root() {
    if !geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    let (_folder, library, notes) = probe();
    let library = library.display().to_string();
    let user = User::from_name(USER).expect("readable").expect("there is such a user");
    for (attempt, variable, how) in
        [("att_1", "LD_PRELOAD", "preload"), ("att_2", "LD_AUDIT", "audit")]
    {
        let mut node = Node::new();
        std::fs::write(&notes, "").expect("written");
        node.launch_with(attempt, "", |launch| {
            launch.command = vec!["/bin/true".into()];
            launch.env = [(variable.to_owned(), library.clone())].into();
            launch.run_as = Some(USER.into());
            launch.workdir = Some("/".into());
        });
        assert_eq!(node.end_of(attempt).exit, Some(Exit::Code(0)), "{}", node.output(attempt));
        let notes = std::fs::read_to_string(&notes).expect("readable");
        // It was loaded into the job's program, and into nothing else.
        assert!(notes.contains(how), "{variable}: {notes}");
        let (uid, program) = (user.uid, "true");
        for line in notes.lines() {
            let as_job = line.contains(&format!(" {uid} {uid} /")) && line.ends_with(program);
            assert!(as_job, "{variable} ran in another process: {line}");
        }
    }
}

#[test]
fn supervisors_have_no_environment() {
    let mut node = Node::new();
    node.launch_with("att_1", "echo ready; while [ ! -e go ]; do sleep 0.01; done", |launch| {
        launch.env = [("GCONV_PATH", "/tmp/x"), ("BURSAR_LOG", "trace"), ("LOCPATH", "/tmp")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    });
    node.says("att_1", "ready");
    let record = node.observe("att_1").record.expect("it runs");
    let variables = |pid: i32| std::fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    let supervisor = record.supervisor.expect("known");
    assert_eq!(variables(supervisor.pid), b"");
    let job = variables(record.child.expect("known").pid);
    assert!(String::from_utf8_lossy(&job).contains("GCONV_PATH=/tmp/x"));
    std::fs::write(node.file("go"), "").expect("written");
    assert_eq!(node.end_of("att_1").exit, Some(Exit::Code(0)));
}

#[test]
fn a_job_keeps_no_rights_of_root() {
    if !geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    // A library of the agent left a file open, as drivers do.
    let secret = tempfile::NamedTempFile::new().expect("a file");
    let left_open = nix::unistd::dup(secret.as_file()).expect("it is open");
    let mut node = Node::new();
    let script = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs)' /proc/self/status; umask; \
        ulimit -c; ulimit -r; ulimit -e; readlink /proc/$$/fd/*; echo end";
    node.launch_with("att_1", script, |launch| {
        launch.run_as = Some(USER.into());
        launch.workdir = Some("/".into());
    });
    node.end_of("att_1");
    drop(left_open);
    let output = node.output("att_1");
    let user = User::from_name(USER).expect("readable").expect("there is such a user");
    let (uid, gid) = (user.uid, user.gid);
    let none = "0000000000000000";
    let status = format!(
        "Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{gid}\t{gid}\t{gid}\t{gid}\nGroups:\t{gid} \n\
         CapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\nCapBnd:\t{none}\nCapAmb:\t{none}\n\
         NoNewPrivs:\t1\n0077\n0\n0\n0\n"
    );
    assert!(output.starts_with(&status), "{output}");
    let secret = secret.path().display().to_string();
    assert!(output.ends_with("end\n") && !output.contains(&secret), "{output}");
    let descriptors = output.strip_prefix(&status).map_or(0, |rest| rest.lines().count() - 1);
    assert_eq!(descriptors, 3, "{output}");
}

#[test]
fn variables_that_would_set_others_are_refused() {
    let mut node = Node::new();
    for (attempt, name) in [("att_1", "LD_PRELOAD=x"), ("att_2", ""), ("att_3", "A\0B")] {
        node.launch_with(attempt, "env", |launch| {
            launch.env = [(name.to_owned(), "y".to_owned())].into();
        });
        assert_eq!(node.end_of(attempt).exit, Some(Exit::Code(126)));
        let output = node.output(attempt);
        assert!(output.contains("variable"), "{output}");
        assert!(!output.contains("BURSAR_JOB="), "it started: {output}");
    }
}

#[test]
fn a_job_has_private_temporary_folders() {
    if !geteuid().is_root() || !bursar_agent::isolation::namespace::is_available() {
        println!("skipped: it needs root and namespaces");
        return;
    }
    let outside = tempfile::NamedTempFile::new().expect("a file");
    let own = format!("/tmp/bursar-{}", std::process::id());
    let mut node = Node::new();
    let script = format!(
        "ls -A /tmp /var/tmp /dev/shm; stat -c %a /tmp; cat {}; echo mine > {own} && \
         echo written; head -c 2M /dev/zero > /tmp/large || echo full; grep -c tmpfs /proc/mounts",
        outside.path().display()
    );
    for attempt in ["att_1", "att_2"] {
        node.launch_with(attempt, &script, |launch| {
            launch.run_as = Some(USER.into());
            launch.workdir = Some("/tmp".into());
            launch.tmp_bytes = Some(1 << 20);
        });
        node.end_of(attempt);
        let output = node.output(attempt);
        let expected = "/dev/shm:\n\n/tmp:\n\n/var/tmp:\n1777\n";
        assert!(output.starts_with(expected), "{output}");
        assert!(output.contains("No such file"), "{output}");
        assert!(output.contains("written\n") && output.contains("full\n"), "{output}");
    }
    assert!(!Path::new(&own).exists());
    node.launch_with("att_3", "true", |launch| {
        launch.run_as = Some(USER.into());
        launch.tmp_bytes = Some(1 << 20);
    });
    assert_eq!(node.end_of("att_3").exit, Some(Exit::Code(127)));
    assert!(node.output("att_3").contains("temporary files of its own"));
}

#[test]
fn a_job_can_neither_read_nor_change_the_agents_files() {
    if !geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    // The folder was made by hand, and every user could look into it.
    let place = tempfile::tempdir().expect("a folder");
    open_to_all(place.path(), 0o755);
    let node = Node::below(place.path());
    let state = node.folder.path().to_owned();
    open_to_all(&state, 0o777);
    open_to_all(&state.join("attempts"), 0o777);
    let mut node = Node { runner: super::node::runner(&state), ..node };
    let own = state.join("attempts/att_1");
    let script = format!(
        "cat {own}/launch.json {state}/lease.json; echo kill > {own}/control; echo > {state}/wake; \
         ls {state}; ls {own}; ln -s /etc/shadow {own}/output.9; mv {own} {own}x; \
         cat /proc/$PPID/environ /proc/$PPID/mem; kill -9 $PPID; echo tried",
        own = own.display(),
        state = state.display()
    );
    node.launch_with("att_1", &script, |launch| {
        launch.run_as = Some(USER.into());
        launch.workdir = Some("/".into());
        launch.env = [("SECRET".to_owned(), "hidden".to_owned())].into();
    });
    assert_eq!(node.end_of("att_1").exit, Some(Exit::Code(0)));
    let output = node.output("att_1");
    let denied = output.lines().filter(|line| {
        line.ends_with("Permission denied") || line.ends_with("Operation not permitted")
    });
    assert_eq!(denied.count(), 11, "{output}");
    assert!(output.ends_with("tried\n") && !output.contains("hidden"), "{output}");
}

#[test]
fn an_agent_does_not_start_where_jobs_could_read_its_key() {
    if !geteuid().is_root() {
        println!("skipped: it needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (key, open) = (folder.path().join("agent.key"), folder.path().join("open"));
    std::fs::write(&key, "bur_none").expect("written");
    std::fs::create_dir(&open).expect("made");
    open_to_all(&open, 0o777);
    let refused = |mode: u32, user: &str, state: &Path, why: &str| {
        open_to_all(&key, mode);
        let mut command = Command::new(BURSAR);
        // Nothing listens there: an agent that starts tries for ever, and the test does not end.
        command.args(["agent", "--server", "http://127.0.0.1:1", "--region", "default"]);
        command.args(["--fake-gpus", "H100:1:80", "--run-as", user, "--key-file"]).arg(&key);
        command.arg("--state").arg(state).env("HOME", folder.path());
        let ended = command.output().expect("the binary is there");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && said.contains(why), "{said}");
    };
    let state = folder.path().join("state");
    refused(0o644, USER, &state, "could read the key in");
    refused(0o600, "root", &state, "is root");
    refused(0o600, "no-such-user", &state, "there is no user");
    refused(0o600, USER, &open.join("state"), "jobs could replace");
}
