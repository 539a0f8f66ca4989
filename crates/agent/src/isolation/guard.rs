//! Protects the agent's files from the jobs that it runs: checked at each start, and corrected where
//! that is safe.

use std::ffi::CString;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::unistd::{User, geteuid, getgrouplist};

/// Makes a folder accessible only to the agent. Fails if it belongs to another user.
pub(crate) fn close_folder(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let own = geteuid().as_raw();
    if found.uid() != own {
        let why = format!(
            "{} belongs to the user with the id {}, who could change what the agent keeps \
             there: `chown {own} {}`, or name another folder with --state",
            path.display(),
            found.uid(),
            path.display()
        );
        return Err(io::Error::other(why));
    }
    if found.mode() & 0o077 != 0 {
        tracing::warn!(folder = %path.display(), "other users could read it; it is closed now");
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Checks that only root and the agent can change the folders of a path. Otherwise a job could
/// replace the agent's files.
pub fn check_way(path: &Path) -> io::Result<()> {
    let path = path.canonicalize()?;
    for folder in path.ancestors().skip(1) {
        let found = fs::metadata(folder)?;
        let owner_is_trusted = found.uid() == 0 || found.uid() == geteuid().as_raw();
        let is_sticky = found.mode() & 0o1000 != 0;
        if !owner_is_trusted || (found.mode() & 0o022 != 0 && !is_sticky) {
            let why = format!(
                "others than root may change {}, so jobs could replace {}: use a folder such as \
                 /var/lib/bursar-agent",
                folder.display(),
                path.display()
            );
            return Err(io::Error::other(why));
        }
    }
    Ok(())
}

/// Checks that the user of the jobs cannot read a file with a secret.
pub fn check_secret(path: &Path, user: &User) -> io::Result<()> {
    let groups = getgrouplist(&CString::new(user.name.as_str())?, user.gid)?;
    let groups: Vec<u32> = groups.into_iter().map(|group| group.as_raw()).collect();
    if is_open_to(&fs::metadata(path)?, user.uid.as_raw(), &groups) {
        let (path, name) = (path.display(), &user.name);
        let why = format!(
            "jobs, which run as `{name}`, could read the key in {path}: `chown root {path}; chmod \
             600 {path}`"
        );
        return Err(io::Error::other(why));
    }
    Ok(())
}

fn is_open_to(file: &Metadata, user: u32, groups: &[u32]) -> bool {
    let mode = file.mode();
    // An owner can always add the read permission.
    file.uid() == user || mode & 0o007 != 0 || (mode & 0o070 != 0 && groups.contains(&file.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_closed_to_its_jobs() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let with = |mode: u32| {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).expect("it is ours");
            fs::metadata(file.path()).expect("there")
        };
        let (owner, group) = (with(0o600).uid(), with(0o600).gid());
        let (stranger, others) = (owner + 1, group + 1);
        for (mode, user, groups, open) in [
            (0o600, stranger, vec![others], false),
            (0o400, stranger, vec![group], false),
            (0o640, stranger, vec![others], false),
            (0o640, stranger, vec![others, group], true),
            (0o604, stranger, vec![others], true),
            (0o600, owner, vec![others], true),
        ] {
            assert_eq!(is_open_to(&with(mode), user, &groups), open, "{mode:o} {user} {groups:?}");
        }
    }

    #[test]
    fn a_path_that_other_users_can_change_is_rejected() {
        let place = tempfile::tempdir().expect("a folder");
        let (open, inner) = (place.path().join("open"), place.path().join("open/state"));
        fs::create_dir_all(&inner).expect("made");
        check_way(&inner).expect("below a folder for temporary files of its own");
        fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("it is ours");
        let refused = check_way(&inner).expect_err("anyone can rename it").to_string();
        assert!(refused.contains("jobs could replace"), "{refused}");
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).expect("it is ours");
        check_way(&inner).expect("only its owner can rename it");
    }
}
