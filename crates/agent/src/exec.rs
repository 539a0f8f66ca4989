//! The last step before a job's program: a process that gives up what the job must not have and
//! then becomes the job. Between a fork and this everything would need `unsafe`; here it is plain.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{User, getppid, initgroups, setgid, setuid};

use crate::cgroup;
use crate::folder::{AttemptFolder, read_json};
use crate::record::{Launch, Record};

/// Becomes the job of the attempt whose folder this is. Comes back only if that is impossible.
pub fn run(folder: &Path) -> io::Error {
    match prepare(folder) {
        Ok(mut command) => {
            let name = command.get_program().to_string_lossy().into_owned();
            explain(&name, command.exec())
        }
        Err(error) => error,
    }
}

/// The number with which shells say why a program could not be started.
pub fn exit_code(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

fn prepare(folder: &Path) -> io::Result<Command> {
    let folder = AttemptFolder::at(folder.to_owned());
    let launch: Launch = read_json(&folder.launch())?;
    let record: Record = read_json(&folder.record())?;
    let Some((program, arguments)) = launch.command.split_first() else {
        return Err(io::Error::other("the job has no command: give one, as in `bursar run -- ls`"));
    };
    if let Some(group) = &launch.cgroup {
        cgroup::join(group)?;
    }
    let mut command = Command::new(program);
    command.args(arguments);
    let mut home = std::env::var_os("HOME").map(PathBuf::from);
    if let Some(name) = &launch.run_as {
        let user = become_user(name)?;
        for (variable, value) in [("USER", name.as_ref()), ("HOME", user.dir.as_os_str())] {
            if !launch.env.contains_key(variable) {
                command.env(variable, value);
            }
        }
        home = Some(user.dir);
    }
    prctl::set_no_new_privs()?;
    // After the change of user, which would undo it: nothing runs on without its supervisor.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if record.supervisor.is_none_or(|supervisor| supervisor.pid != getppid().as_raw()) {
        return Err(io::Error::other("the supervisor has ended"));
    }
    let workdir = launch.workdir.or(home).unwrap_or_else(|| "/".into());
    std::env::set_current_dir(&workdir).map_err(|error| {
        let kind = error.kind();
        io::Error::new(kind, format!("the working folder {}: {error}", workdir.display()))
    })?;
    Ok(command)
}

/// Gives up everything that this user has not.
fn become_user(name: &str) -> io::Result<User> {
    let user = User::from_name(name)?
        .ok_or_else(|| io::Error::other(format!("there is no user `{name}` on this node")))?;
    initgroups(&CString::new(name)?, user.gid)?;
    setgid(user.gid)?;
    setuid(user.uid)?;
    Ok(user)
}

fn explain(program: &str, error: io::Error) -> io::Error {
    let kind = error.kind();
    let why = match kind {
        io::ErrorKind::NotFound => format!("`{program}` is not on this node: {error}"),
        _ => format!("`{program}` cannot be started: {error}"),
    };
    io::Error::new(kind, why)
}
