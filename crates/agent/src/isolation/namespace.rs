//! Private folders of each job for temporary files. They are in main memory and disappear
//! with the last process of the job, so no cleanup is needed.

use std::path::Path;
use std::{fs, io};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// The private folders of each job.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", SHARED_MEMORY];
/// Shared memory of the processes of one job. It counts as the job's memory, and is as large as the
/// machine's: half of the main memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Whether this process may create private folders for jobs.
pub fn is_available() -> bool {
    // A thread can have its own mount namespace, which ends with it.
    let tried = std::thread::spawn(|| enter(1 << 20)).join();
    tried.is_ok_and(|outcome| outcome.is_ok())
}

/// Gives this thread, and the program that it executes, private folders; those for temporary files have at
/// most this many bytes each.
pub(crate) fn enter(bytes: u64) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let nothing = None::<&str>;
    // Later mounts of the machine are visible here; mounts made here are not visible there.
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_SLAVE, nothing)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let of_size = format!("mode=1777,size={bytes}");
    for place in PRIVATE {
        let options = if place == SHARED_MEMORY { "mode=1777" } else { of_size.as_str() };
        let is_folder = fs::symlink_metadata(place).is_ok_and(|found| found.is_dir());
        if is_folder {
            mount(Some("tmpfs"), place, Some("tmpfs"), flags, Some(options))?;
        }
    }
    Ok(())
}

/// Whether a path is in a private folder of jobs.
pub(crate) fn is_private(path: &Path) -> bool {
    PRIVATE.iter().any(|place| path.starts_with(place))
}
