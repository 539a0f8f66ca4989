//! Folders for temporary files that each job has for itself. They lie in main memory and are gone
//! with the last process of the job, so there is nothing to clear away.

use std::path::Path;
use std::{fs, io};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// What each job has for itself.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", SHARED_MEMORY];
/// What processes of one job share. It is the job's memory, and as large as the machine's: half of
/// all.
const SHARED_MEMORY: &str = "/dev/shm";

/// Whether this process may give folders of their own to jobs.
pub fn is_available() -> bool {
    // A thread has a view of the file system of its own once it asked for one; it ends with it.
    let tried = std::thread::spawn(|| enter(1 << 20)).join();
    tried.is_ok_and(|outcome| outcome.is_ok())
}

/// Gives this thread, and what it becomes, folders of their own; those for temporary files have at
/// most so many bytes each.
pub(crate) fn enter(bytes: u64) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let nothing = None::<&str>;
    // What is mounted on the machine later is seen; what is mounted here is not seen there.
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

/// Whether a path lies in a folder that each job has for itself.
pub(crate) fn is_private(path: &Path) -> bool {
    PRIVATE.iter().any(|place| path.starts_with(place))
}
