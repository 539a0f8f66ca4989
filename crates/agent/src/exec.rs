//! The last step before a job's program: a process that gives up what the job must not have and
//! then becomes the job. Between a fork and this everything would need `unsafe`; here it is plain.
//!
//! It starts with an empty environment, as its supervisor did, because it may start as root: what
//! the job asks for, `LD_PRELOAD` too, counts from the job's own program on and never before. The
//! order of the steps is the point of this file.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::folder::{AttemptFolder, read_json};
use crate::record::{Launch, Record};
use crate::{cgroup, environment, namespace, privilege};

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
    privilege::close_inherited()?;
    let folder = AttemptFolder::at(folder.to_owned());
    let launch: Launch = read_json(&folder.launch())?;
    let record: Record = read_json(&folder.record())?;
    environment::check(&launch.env)?;
    let Some((program, arguments)) = launch.command.split_first() else {
        return Err(io::Error::other("the job has no command: give one, as in `bursar run -- ls`"));
    };
    if let Some(group) = &launch.cgroup {
        cgroup::join(group)?;
    }
    if let Some(bytes) = launch.tmp_bytes {
        namespace::enter(bytes)?;
    }
    let user = launch.run_as.as_deref().map(privilege::become_user).transpose()?;
    privilege::confine()?;
    // After the change of user, which would undo it: nothing runs on without its supervisor.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if record.supervisor.is_none_or(|supervisor| supervisor.pid != getppid().as_raw()) {
        return Err(io::Error::other("the supervisor has ended"));
    }
    let variables = environment::of_job(&launch, &folder, user.as_ref());
    let home =
        user.map(|user| user.dir).or_else(|| launch.machine_env.get("HOME").map(PathBuf::from));
    let workdir = launch.workdir.or(home).unwrap_or_else(|| "/".into());
    enter(&workdir, launch.tmp_bytes.is_some())?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(variables);
    Ok(command)
}

fn enter(workdir: &Path, has_own_tmp: bool) -> io::Result<()> {
    std::env::set_current_dir(workdir).map_err(|error| {
        let kind = error.kind();
        let mut why = format!("the working folder {}: {error}", workdir.display());
        if has_own_tmp && namespace::is_private(workdir) {
            why.push_str("; each job has a folder for temporary files of its own");
        }
        io::Error::new(kind, why)
    })
}

fn explain(program: &str, error: io::Error) -> io::Error {
    let kind = error.kind();
    let why = match kind {
        io::ErrorKind::NotFound => format!("`{program}` is not on this node: {error}"),
        _ => format!("`{program}` cannot be started: {error}"),
    };
    io::Error::new(kind, why)
}
