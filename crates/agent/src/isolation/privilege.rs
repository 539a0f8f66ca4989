//! What a process drops before it executes a job: the rights of its user, capabilities, open
//! descriptors, and more of the machine than a job needs.

use std::ffi::CString;
use std::{fs, io};

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{User, close, geteuid, getresuid, initgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
};

/// Files of jobs are accessible only to their user, unless the job changes it.
const UMASK: Mode = Mode::from_bits_truncate(0o077);
/// Open files that a job may have without asking for more. The hard limit stays the machine's.
const DEFAULT_OPEN_FILES: rlim_t = 65_536;
/// Processes and threads that the user of the jobs may have on a node.
const MAX_PROCESSES_OF_USER: rlim_t = 65_536;

/// Closes inherited descriptors except standard input, output and error: libraries of the process that
/// started this one may have left files open. Call it before anything else is opened.
pub(crate) fn close_inherited() -> io::Result<()> {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        open.extend(number.filter(|number| *number > 2));
    }
    for descriptor in open {
        // The descriptor of the listing is closed already.
        let _ = close(descriptor);
    }
    Ok(())
}

/// The user that jobs shall run as, if this process may become that user.
pub fn job_user(name: &str) -> io::Result<User> {
    let user = User::from_name(name)?
        .ok_or_else(|| io::Error::other(format!("there is no user `{name}` on this node")))?;
    if user.uid.is_root() {
        let why = format!("`{name}` is root: name a user without rights for jobs");
        return Err(io::Error::other(why));
    }
    if user.uid != geteuid() && !geteuid().is_root() {
        let why = format!("only an agent that runs as root can run jobs as `{name}`");
        return Err(io::Error::other(why));
    }
    let own = capabilities(None)?.effective;
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETPCAP;
    if user.uid != geteuid() && !own.contains(needed) {
        let why = "to run jobs as another user the agent needs the capabilities CAP_SETUID, \
                   CAP_SETGID and CAP_SETPCAP: add them to CapabilityBoundingSet of its unit";
        return Err(io::Error::other(why));
    }
    Ok(user)
}

/// Changes to a user permanently: no earlier right can be regained.
pub(crate) fn become_user(name: &str) -> io::Result<User> {
    let user = job_user(name)?;
    if user.uid != geteuid() {
        drop_bounding_set()?;
        initgroups(&CString::new(name)?, user.gid)?;
        setresgid(user.gid, user.gid, user.gid)?;
        setresuid(user.uid, user.uid, user.uid)?;
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, nothing)?;
    let now = getresuid()?;
    let is_user = [now.real, now.effective, now.saved].iter().all(|uid| *uid == user.uid);
    if !is_user || capabilities(None)? != nothing {
        return Err(io::Error::other(format!("the rights of root were kept as `{name}`")));
    }
    Ok(user)
}

/// Drops all capabilities from the bounding set, so that no program can regain them.
fn drop_bounding_set() -> io::Result<()> {
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // The kernel has no more capabilities.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Sets the limits of a job, and prevents its programs from gaining rights.
pub(crate) fn confine() -> io::Result<()> {
    prctl::set_no_new_privs()?;
    // A core dump of a large job would fill the disk; a job may raise the soft limit.
    lower(Resource::RLIMIT_CORE, 0, rlim_t::MAX)?;
    lower(Resource::RLIMIT_NOFILE, DEFAULT_OPEN_FILES, rlim_t::MAX)?;
    lower(Resource::RLIMIT_NPROC, MAX_PROCESSES_OF_USER, MAX_PROCESSES_OF_USER)?;
    lower(Resource::RLIMIT_RTPRIO, 0, 0)?;
    lower(Resource::RLIMIT_NICE, 0, 0)?;
    umask(UMASK);
    Ok(())
}

/// Lowers a limit; one that is lower already stays.
fn lower(resource: Resource, soft: rlim_t, hard: rlim_t) -> io::Result<()> {
    let (_, most) = getrlimit(resource)?;
    let hard = hard.min(most);
    setrlimit(resource, soft.min(hard), hard)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_as_an_existing_ordinary_user() {
        for (name, why) in [("root", "is root"), ("no-such-user", "there is no user")] {
            let refused = job_user(name).expect_err(name).to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
