//! Control groups, version 2, if the agent has any: no process escapes from them, and all of a
//! group are killed at once. Without them, supervisors find the processes of an attempt by
//! descent.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name that the service unit gives to the agent's own group; the agent creates its siblings.
const OWN_GROUP: &str = "agent";

/// The group under which the service manager lets the agent create others.
pub fn delegated() -> Option<PathBuf> {
    let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = memberships.lines().find_map(|line| line.strip_prefix("0::"))?;
    let own = Path::new(own);
    if own.file_name()? != OWN_GROUP {
        return None;
    }
    let group = mounted()?.join(own.parent()?.strip_prefix("/").ok()?);
    is_usable(&group).then_some(group)
}

/// The mount point of control groups version 2 on this machine, if any.
pub fn mounted() -> Option<PathBuf> {
    mount_point(&fs::read_to_string("/proc/self/mounts").ok()?)
}

/// The mount point of version 2.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<&str>>());
    let mut found = fields.filter(|fields| fields.get(2) == Some(&"cgroup2"));
    found.next().and_then(|fields| fields.get(1).map(PathBuf::from))
}

/// Whether groups can be created under this one.
pub fn is_usable(base: &Path) -> bool {
    let probe = base.join(format!("bursar-probe-{}", std::process::id()));
    let made = fs::create_dir(&probe).is_ok();
    let usable = made && probe.join("cgroup.procs").exists();
    if made {
        // It has no members, so it can be removed; if that fails, an empty group is harmless.
        let _ = fs::remove_dir(&probe);
    }
    usable
}

/// The limits of an attempt.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Bytes of main memory.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a core.
    pub cpu_milli: Option<u32>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

/// The controllers that limits need, from the kernel and the service manager.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// The controllers that are missing under this group: their limits are not enforced.
pub fn missing_controllers(base: &Path) -> Vec<&'static str> {
    let given = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
    let is_given = |name: &&str| given.split_ascii_whitespace().any(|one| one == *name);
    CONTROLLERS.into_iter().filter(|name| !is_given(name)).collect()
}

/// Creates the group of an attempt. Limits apply if the controllers are delegated to the agent.
pub fn create(base: &Path, attempt: &str, limits: CgroupLimits) -> io::Result<PathBuf> {
    // Parts of the name come from the server: the group must be a direct child of the base.
    if attempt.contains(['/', '\0']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "invalid group name"));
    }
    let group = base.join(format!("bursar-{attempt}"));
    match fs::create_dir(&group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    for controller in CONTROLLERS {
        // Each may be missing; that limit is then not enforced.
        let _ = fs::write(base.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    limit(&group, limits);
    Ok(group)
}

fn limit(group: &Path, limits: CgroupLimits) {
    if let Some(bytes) = limits.memory_bytes {
        set(group, "memory.max", &bytes.to_string());
        // Swap counts as memory, and a job with a killed process must not continue.
        set(group, "memory.swap.max", "0");
        set(group, "memory.oom.group", "1");
    }
    if let Some(milli) = limits.cpu_milli {
        set(group, "cpu.max", &format!("{} 100000", u64::from(milli) * 100));
    }
    if let Some(pids) = limits.pids {
        set(group, "pids.max", &pids.to_string());
    }
}

/// Sets a limit if there is a controller for it. The kernel creates the files; none is created here.
fn set(group: &Path, file: &str, value: &str) {
    let written = fs::OpenOptions::new().write(true).open(group.join(file));
    match written.and_then(|mut file| file.write_all(value.as_bytes())) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(group = %group.display(), file, value, %error, "a limit cannot be set");
        }
    }
}

/// Moves this process into a group.
pub fn join(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// Kills all processes of a group at once; does nothing if the group does not exist.
pub fn kill(group: &Path) {
    if fs::write(group.join("cgroup.kill"), "1").is_err() {
        // Kernels before 5.14 cannot; descent finds the processes then.
        tracing::debug!(group = %group.display(), "this group cannot be killed as a whole");
    }
}

/// The processes in a group; none if it does not exist.
pub fn members(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Removes an empty group. One that is not empty yet is removed by a later call.
pub fn remove(group: &Path) {
    let _ = fs::remove_dir(group);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_version_is_found_among_the_mounts() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount_point(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn a_group_is_a_direct_child_of_its_base() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("base");
        fs::create_dir_all(base.join("bursar-a")).expect("made");
        for name in ["a/../../out", "/out", "a/b", "a\0"] {
            assert!(create(&base, name, CgroupLimits::default()).is_err(), "{name}");
        }
        assert!(!folder.path().join("out").exists());
        assert_eq!(fs::read_dir(base.join("bursar-a")).expect("there").count(), 0);
    }

    #[test]
    fn an_ordinary_folder_is_not_a_group() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!is_usable(folder.path()));
        assert!(!is_usable(&folder.path().join("missing")));
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn limits_are_written_where_there_is_a_controller() {
        let group = tempfile::tempdir().expect("a folder");
        let files = ["memory.max", "memory.swap.max", "memory.oom.group", "cpu.max"];
        for file in files {
            fs::write(group.path().join(file), "").expect("written");
        }
        let limits =
            CgroupLimits { memory_bytes: Some(3 << 30), cpu_milli: Some(2500), pids: Some(4096) };
        limit(group.path(), limits);
        let read = |file: &str| fs::read_to_string(group.path().join(file)).expect("there");
        assert_eq!(files.map(read), ["3221225472", "0", "1", "250000 100000"]);
        assert!(!group.path().join("pids.max").exists(), "no controller, no file");
        fs::write(group.path().join("pids.max"), "").expect("written");
        limit(group.path(), limits);
        assert_eq!(read("pids.max"), "4096");
        fs::write(group.path().join("cgroup.controllers"), "cpuset cpu io pids\n")
            .expect("written");
        assert_eq!(missing_controllers(group.path()), ["memory"]);
    }
}
