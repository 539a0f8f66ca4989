//! The last step before a job's program: a process that drops the rights that the job must not have
//! and then executes the job. The same steps between fork and exec would need `unsafe`.
//!
//! It starts with an empty environment, as its supervisor did, because it may start as root: the
//! job's variables, such as `LD_PRELOAD`, apply only to the job's own program. The
//! order of the steps matters.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::attempt::environment;
use crate::attempt::record::{AttemptRecord, Launch};
use crate::folder::{AttemptFolder, read_json};
use crate::isolation::{cgroup, namespace, privilege};

/// Executes the job of the attempt in this folder. Returns only if that fails.
pub fn run(folder: &Path) -> io::Error {
    match prepare(folder) {
        Ok(mut command) => {
            let name = command.get_program().to_string_lossy().into_owned();
            explain(&name, command.exec())
        }
        Err(error) => error,
    }
}

/// The exit code that shells use for a program that could not be started.
pub fn exit_code(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

fn prepare(folder: &Path) -> io::Result<Command> {
    privilege::close_inherited()?;
    let folder = AttemptFolder::at(folder.to_owned());
    let launch: Launch = read_json(&folder.launch())?;
    let record: AttemptRecord = read_json(&folder.record())?;
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
    // After the change of user, which would undo it: the job must not outlive its supervisor.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if record.supervisor.is_none_or(|supervisor| supervisor.pid != getppid().as_raw()) {
        return Err(io::Error::other("the supervisor has ended"));
    }
    let variables = environment::of_job(&launch, &folder, user.as_ref());
    let home =
        user.map(|user| user.dir).or_else(|| launch.machine_env.get("HOME").map(PathBuf::from));
    let workdir = start_folder(launch.workdir, home);
    enter(&workdir, launch.tmp_bytes.is_some())?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(variables);
    Ok(command)
}

/// The working directory of a job: the one that it names, else its home, else `/`.
fn start_folder(named: Option<PathBuf>, home: Option<PathBuf>) -> PathBuf {
    let home = home.filter(|home| home.is_dir());
    named.or(home).unwrap_or_else(|| "/".into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_whose_user_has_no_home_starts_in_the_root_folder() {
        let home = std::env::temp_dir();
        let none = home.join("there-is-no-such-home");
        assert_eq!(start_folder(None, Some(home.clone())), home);
        assert_eq!(start_folder(None, Some(none.clone())), Path::new("/"));
        assert_eq!(start_folder(None, None), Path::new("/"));
        assert_eq!(
            start_folder(Some(none.clone()), Some(home)),
            none,
            "what is named must be there"
        );
    }
}
