//! What is checked and prepared before the agent serves a store.

use std::io;

use bursar_api::nodes::node::Registration;
use nix::unistd::geteuid;
use tokio::net::unix::pipe;

use super::{AgentError, AgentOptions, machine};
use crate::folder::{StateFolder, is_store_id};
use crate::isolation::cgroup;
use crate::isolation::privilege::job_user;
use crate::isolation::{guard, namespace};
use crate::runner::Runner;

/// The most processes and threads of an attempt at a time, with control groups.
pub(super) const MAX_PIDS: u32 = 32_768;

/// Checks the isolation of jobs from the agent, and reduces it where the machine does not support
/// it. Each reduction is logged once.
pub(super) fn prepare_isolation(options: &mut AgentOptions) -> Result<(), AgentError> {
    match options.run_as.as_deref() {
        Some(name) => {
            job_user(name).map_err(machine("--run-as"))?;
            guard::check_way(&options.state).map_err(machine("the state folder"))?;
            if options.tmp_bytes.is_some() && !namespace::is_available() {
                tracing::warn!("jobs share the machine's /tmp: this agent may not mount folders");
                options.tmp_bytes = None;
            }
        }
        None => {
            options.tmp_bytes = None;
            if geteuid().is_root() {
                tracing::warn!("jobs run as root with full access: give --run-as USER");
            }
        }
    }
    match options.cgroup.as_deref() {
        None => tracing::warn!("no control groups: jobs are bounded by the machine alone"),
        Some(base) => {
            let missing = cgroup::missing_controllers(base);
            if !missing.is_empty() {
                tracing::warn!(
                    ?missing,
                    "some limits of jobs are not enforced: missing controllers"
                );
            }
        }
    }
    Ok(())
}

/// The runner of the attempts in a folder, and its wake pipe.
pub(super) fn work_in(
    folder: &StateFolder,
    options: &AgentOptions,
) -> Result<(Runner, pipe::Receiver), AgentError> {
    let wake = pipe::OpenOptions::new()
        .read_write(true)
        .open_receiver(folder.wake())
        .map_err(machine("the pipe of the supervisors"))?;
    let runner = Runner::new(folder.clone(), options.program.clone());
    Ok((runner.map_err(machine("the state folder"))?, wake))
}

/// Rejects a registration of another node than the offered one, or in a store with an invalid id:
/// both become part of paths that the agent writes to, as root in most installations.
pub(super) fn check_names(registration: &Registration, offered: &str) -> io::Result<()> {
    let refusal = |detail| Err(io::Error::new(io::ErrorKind::InvalidData, detail));
    if registration.node != offered {
        return refusal("the server's answer names another node than the offered one");
    }
    if registration.store.as_deref().is_some_and(|store| !is_store_id(store)) {
        return refusal("the server's answer names a store with an invalid id");
    }
    Ok(())
}
