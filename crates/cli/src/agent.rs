//! `bursar agent`: runs the jobs of a server on this machine. The agent starts the hidden
//! `bursar agent-supervise` for each attempt.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bursar_agent::attempt::{exec, supervise};
use bursar_agent::clock::Offset;
use bursar_agent::gpu::Gpus;
use bursar_agent::heartbeat::{Agent, AgentError, AgentOptions};
use bursar_agent::idle::IdleLimits;
use bursar_agent::isolation::{cgroup, guard, privilege};
use bursar_agent::servers::Servers;
use bursar_agent::{machine, place};
use bursar_client::api::nodes::node::RegisterNode;
use bursar_client::{Client, RetryPolicy};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::{duration, pair};
use crate::exit::{Exit, Failure};
use crate::session::connection::{ConnectionArguments, connect_with, key_file, read_key, variable};
use crate::session::problem;

/// The largest answer that an agent reads: the orders for all devices of a node.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// How to run an agent. The key is that of the connection: --key-file. The agent goes on to the next
/// server of `--server URL,URL` when one does not answer.
#[derive(Args, Debug)]
pub(crate) struct AgentArguments {
    /// The region of this node: `default` if the server was started without regions.
    #[arg(long, default_value = "default")]
    region: String,
    /// The node's name; the host name if not given.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// The node's rack: nodes of a multi-node job are placed close to each other.
    #[arg(long, value_name = "NAME")]
    rack: Option<String>,
    /// A label that jobs may require; may be given several times.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// The GPU type in prices and jobs, to override the driver's name.
    #[arg(long, value_name = "TYPE", conflicts_with = "fake_gpus")]
    gpu_type: Option<String>,
    /// Simulated GPUs, for tests: type, count, GiB of memory.
    #[arg(long, value_name = "TYPE:COUNT:GIB")]
    fake_gpus: Option<String>,
    /// A file with the percentage in which simulated GPUs are busy. For tests.
    #[arg(long, value_name = "FILE", hide = true, requires = "fake_gpus")]
    fake_utilization: Option<PathBuf>,
    /// Cores that jobs may use; all if not given.
    #[arg(long, value_name = "COUNT")]
    cpus: Option<u32>,
    /// Main memory that jobs may use, in GiB; all if not given.
    #[arg(long, value_name = "GIB")]
    memory: Option<u32>,
    /// The folder of the agent's state. If not given, one for this server, region and node
    /// below $XDG_STATE_HOME/bursar-agent if that is set, else /var/lib/bursar-agent if it may be
    /// written, else ~/.local/state/bursar-agent.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The working directory of jobs that name none.
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// A folder that all nodes share and that jobs may write. Each job has its own folder below
    /// it, BURSAR_CHECKPOINT_DIR, which is the same in every attempt.
    #[arg(long, value_name = "DIR")]
    checkpoints: Option<PathBuf>,
    /// The user that jobs run as. Without it they run as the agent's user and can read its key.
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// The control group (version 2) under which each attempt gets its own; the one that the
    /// service manager delegates if not given, if any.
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// The size of /tmp and of /var/tmp, which are private to each job with --run-as, as /dev/shm
    /// is, in MiB of main memory each; 0: jobs share the machine's.
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    job_tmp: u32,
    /// The most output of each attempt that is kept on the node, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    output_limit: u32,
    /// Warn a job in its output when its GPUs have done nothing for this long, and once more after
    /// twice as long; 0s: never.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    idle_warning: Duration,
    /// Stop a job whose GPUs have done nothing for this long, as failed. More than twice
    /// --idle-warning, so that two warnings come first; never if not given.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle_stop: Option<Duration>,
    /// Serve metrics for Prometheus on this address of this machine.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// The error of this node's clock, in seconds, or @ and a file that is read at each use. For
    /// tests: leases and usage are measured wrongly.
    #[arg(long, value_name = "SECONDS", hide = true, allow_hyphen_values = true)]
    unsafe_clock_offset: Option<Offset>,
}

#[derive(Args, Debug)]
pub(crate) struct SuperviseArguments {
    /// The folder of the attempt.
    folder: PathBuf,
    /// Execute the job instead of supervising it.
    #[arg(long)]
    exec: bool,
    /// As for the agent.
    #[arg(long, hide = true, allow_hyphen_values = true)]
    unsafe_clock_offset: Option<Offset>,
}

/// Runs an agent until it receives a signal. Its jobs continue.
pub(crate) fn run(
    arguments: AgentArguments,
    connection: &ConnectionArguments,
) -> Result<(), Failure> {
    // Jobs that run as the same user must not read the key from this process.
    let _ = nix::sys::prctl::set_dumpable(false);
    let _tracing = bursar_server::telemetry::trace::start(None)
        .map_err(|reason| Failure::new("starting the logs", reason))?;
    if let Some(offset) = arguments.unsafe_clock_offset.clone() {
        eprintln!("bursar: this node's clock is wrong on purpose: {offset}");
        offset.set();
    }
    let options = arguments.into_options(connection)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let agent = Agent::new(options).map_err(|error| explain(&error))?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let end = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        agent.run(end).await.map_err(|error| explain(&error))
    })
}

fn explain(error: &AgentError) -> Failure {
    match error {
        AgentError::Refused(error) => problem::failure(error, None),
        AgentError::Machine { .. } => Failure::because(Exit::Failed, error.to_string()),
    }
}

/// A connection to each server of `--server URL,URL`, the first one apart.
fn connect_all(connection: &ConnectionArguments) -> Result<(Client, Vec<Client>), Failure> {
    let given = connection.server.clone().or_else(|| variable("BURSAR_SERVER"));
    let mut urls = given.as_deref().unwrap_or_default().split(',').map(str::trim);
    let mut connection = connection.clone();
    let mut connect_to = |url: Option<&str>| {
        connection.server = url.filter(|url| !url.is_empty()).map(str::to_owned);
        let mut one = connection.clone();
        if given.as_deref().is_some_and(|given| given.contains(',')) {
            if one.server.is_none() {
                let why = "an address is empty in the list of servers";
                return Err(Failure::because(Exit::Usage, why).with_next("--server URL,URL"));
            }
            // Standard input can be read once.
            if one.key_file.as_deref() == Some(Path::new("-")) {
                connection.key = Some(read_key(Path::new("-"))?);
                connection.key_file = None;
                (one.key, one.key_file) = (connection.key.clone(), None);
            }
        }
        connect_with(&one, |builder| {
            builder.retry(RetryPolicy::never()).answer_limit(MAX_ANSWER_BYTES)
        })
    };
    let first = connect_to(urls.next())?;
    let others = urls.map(|url| connect_to(Some(url))).collect::<Result<_, _>>()?;
    Ok((first, others))
}

impl AgentArguments {
    /// Jobs of another user must not be able to read the key.
    fn check_key(&self, connection: &ConnectionArguments) -> Result<(), Failure> {
        let (Some(name), Some(file)) = (&self.run_as, key_file(connection)?) else {
            return Ok(());
        };
        let user = privilege::job_user(name)?;
        guard::check_secret(&file, &user)?;
        Ok(())
    }

    /// Warns if jobs without a working directory start in /, because their user has no home.
    fn warn_without_home(&self) -> Result<(), Failure> {
        let Some(name) = self.run_as.as_ref().filter(|_| self.workdir.is_none()) else {
            return Ok(());
        };
        let home = privilege::job_user(name)?.dir;
        if !home.is_dir() {
            eprintln!(
                "bursar: {name} has no home ({} is missing): jobs that name no folder start in /; make \
                 it, or pass --workdir DIR",
                home.display()
            );
        }
        Ok(())
    }

    /// When jobs with idle GPUs are warned and stopped: two warnings come before a stop.
    fn idle_limits(&self) -> Result<Option<IdleLimits>, Failure> {
        let (warn_after, stop_after) = (self.idle_warning, self.idle_stop);
        if stop_after.is_some_and(|stop| warn_after.is_zero() || stop <= warn_after * 2) {
            let why = "--idle-stop must be longer than twice --idle-warning, which is not 0s";
            return Err(Failure::because(Exit::Usage, why)
                .with_next("for example --idle-warning 30m --idle-stop 2h"));
        }
        Ok((!warn_after.is_zero()).then_some(IdleLimits { warn_after, stop_after }))
    }

    fn into_options(self, connection: &ConnectionArguments) -> Result<AgentOptions, Failure> {
        let idle = self.idle_limits()?;
        let (client, others) = connect_all(connection)?;
        self.check_key(connection)?;
        self.warn_without_home()?;
        let node = match self.node {
            Some(node) => node,
            None => machine::host_name()?,
        };
        let state = match self.state {
            Some(state) => state,
            None => {
                place::default_state(client.server(), &self.region, &node).ok_or_else(|| {
                    let why = "no folder for the agent's state: HOME is not set";
                    Failure::because(Exit::Failed, why).with_next("name one with --state")
                })?
            }
        };
        let gpus = match &self.fake_gpus {
            Some(text) => Gpus::fake(text, &node)?.with_utilization(self.fake_utilization),
            None => {
                let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
                Gpus::discover(self.gpu_type.as_deref(), visible.as_deref())?
            }
        };
        let offer = RegisterNode {
            id: node,
            region: self.region,
            rack: self.rack,
            gpus: gpus.offered(),
            cpus: self.cpus.map_or_else(machine::cpus, Ok)?,
            memory_gib: self.memory.map_or_else(machine::memory_gib, Ok)?,
            labels: (!self.labels.is_empty()).then(|| self.labels.into_iter().collect()),
        };
        let cgroup = match self.cgroup {
            Some(base) if !cgroup::is_usable(&base) => {
                let why = format!("no control groups can be made below {}", base.display());
                let next = "leave --cgroup out, or have the service manager delegate it";
                return Err(Failure::because(Exit::Failed, why).with_next(next));
            }
            Some(base) => Some(base),
            None => cgroup::delegated(),
        };
        Ok(AgentOptions {
            servers: Servers::new(client, others),
            offer,
            gpus: Arc::new(gpus),
            state,
            // This program, even if the file is replaced by a newer version while it runs.
            program: "/proc/self/exe".into(),
            run_as: self.run_as,
            workdir: self.workdir,
            checkpoints: self.checkpoints.map(std::path::absolute).transpose()?,
            cgroup,
            output_limit: u64::from(self.output_limit) << 20,
            tmp_bytes: (self.job_tmp > 0).then_some(u64::from(self.job_tmp) << 20),
            idle,
            metrics: self.metrics,
        })
    }
}

/// Supervises an attempt, or executes it.
pub(crate) fn supervise(arguments: &SuperviseArguments) -> ExitCode {
    if arguments.exec {
        let error = exec::run(&arguments.folder);
        eprintln!("bursar: {error}");
        return ExitCode::from(exec::exit_code(&error));
    }
    if let Some(offset) = arguments.unsafe_clock_offset.clone() {
        offset.set();
    }
    match supervise::run(&arguments.folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bursar: {error}");
            ExitCode::FAILURE
        }
    }
}
