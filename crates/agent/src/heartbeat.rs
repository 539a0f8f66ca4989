//! The main loop of the agent: registers, sends heartbeats, carries out orders. One heartbeat at a time.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bursar_api::Code;
use bursar_api::nodes::node::{Heartbeat, RegisterNode, Registration};
use bursar_client::{ClientError, nodes};
use thiserror::Error;
use tokio::net::unix::pipe;
use tokio::sync::Mutex;

use crate::clock::BootTime;
use crate::folder::{Owner, StateFolder};
use crate::gpu::Gpus;
use crate::gpu::sampler::GpuSampler;
use crate::idle::{IdleLimits, IdleStep, IdleWatch};
use crate::logs::LogShipper;
use crate::metrics::{self, AgentMetrics};
use crate::report;
use crate::runner::{Observed, Runner};
use crate::servers::Servers;
use output::shipper;
use prepare::{check_names, prepare_isolation, work_in};

/// The longest that a heartbeat waits for orders, whatever the server's interval.
const MAX_WAIT: u32 = 25;
/// The pause before registering again if another agent registered the same node: two such agents
/// take turns, and should not do so all the time.
const REREGISTER_BACKOFF: u32 = 4;
/// The time between SIGTERM and SIGKILL of a job that is stopped because its GPUs do nothing.
const IDLE_GRACE: Duration = Duration::from_secs(60);
/// The first and the longest pause after a failed heartbeat.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// The configuration of an agent.
#[derive(Debug)]
pub struct AgentOptions {
    /// The connections. They should not retry calls: each heartbeat has a new report.
    pub servers: Servers,
    /// What the node offers.
    pub offer: RegisterNode,
    /// Its GPUs.
    pub gpus: Arc<Gpus>,
    /// The state folder of the agent.
    pub state: PathBuf,
    /// The program whose `agent-supervise` is the supervisor.
    pub program: PathBuf,
    /// The user that jobs run as; the agent's own if not given.
    pub run_as: Option<String>,
    /// The working directory of jobs that name none.
    pub workdir: Option<PathBuf>,
    /// The folder for checkpoints that all nodes share, if there is one.
    pub checkpoints: Option<PathBuf>,
    /// The group under which attempts get their own; `None`: processes are found by descent.
    pub cgroup: Option<PathBuf>,
    /// The most bytes of output that are kept of each attempt.
    pub output_limit: u64,
    /// The size of each job's private folders for temporary files, if this machine
    /// lets the agent create them; `None`: jobs use the machine's.
    pub tmp_bytes: Option<u64>,
    /// When jobs whose GPUs do nothing are warned and stopped; `None`: never.
    pub idle: Option<IdleLimits>,
    /// The address of the metrics.
    pub metrics: Option<std::net::SocketAddr>,
}

/// Why an agent ended.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The server rejects this agent.
    #[error(transparent)]
    Refused(ClientError),
    /// An operation on this machine failed.
    #[error("{doing}: {cause}")]
    Machine {
        /// The operation.
        doing: &'static str,
        /// What happened.
        cause: io::Error,
    },
}

fn machine(doing: &'static str) -> impl FnOnce(io::Error) -> AgentError {
    move |cause| AgentError::Machine { doing, cause }
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    options: AgentOptions,
    runner: Runner,
    wake: pipe::Receiver,
    logs: Arc<Mutex<LogShipper>>,
    metrics: Arc<AgentMetrics>,
    sampler: GpuSampler,
    utilization: report::AttemptUtilization,
    idle: IdleWatch,
    /// Attempts whose output was sent completely.
    shipped: BTreeSet<String>,
    failures: u32,
    /// The configured folder, and its lock.
    given: StateFolder,
    _lock: std::fs::File,
    /// The owner of its attempts, known after the registration.
    owner: Option<Owner>,
}

/// An accepted registration and the number of the last heartbeat.
#[derive(Debug)]
struct Term {
    registration: Registration,
    seq: u64,
}

impl Agent {
    /// Locks the folder and prepares the agent. Attempts of an earlier start are found there once the
    /// owner is known.
    pub fn new(mut options: AgentOptions) -> Result<Agent, AgentError> {
        let folder = StateFolder::open(&options.state).map_err(machine("the state folder"))?;
        prepare_isolation(&mut options)?;
        let lock = folder.lock().map_err(machine("the state folder"))?;
        let (runner, wake) = work_in(&folder, &options)?;
        let logs = shipper(&options);
        let idle = IdleWatch::new(options.idle);
        let shortest = options.idle.map(|limits| limits.warn_after);
        let sampler = GpuSampler::start(&options.gpus, shortest);
        Ok(Agent {
            options,
            runner,
            wake,
            logs,
            metrics: Arc::default(),
            sampler,
            utilization: report::AttemptUtilization::default(),
            idle,
            shipped: BTreeSet::new(),
            failures: 0,
            given: folder,
            _lock: lock,
            owner: None,
        })
    }

    /// Uses the folder of the store that answered, and no other: ids of attempts are valid
    /// within one store only.
    fn serve_store(&mut self, registration: &Registration) -> Result<(), AgentError> {
        check_names(registration, &self.options.offer.id).map_err(machine("the registration"))?;
        // A server of an earlier version does not name its store; the configured folder is used.
        let Some(store) = registration.store.clone() else { return Ok(()) };
        let owner = Owner { store, node: registration.node.clone() };
        if self.owner.as_ref() == Some(&owner) {
            return Ok(());
        }
        let folder = self.given.of_owner(&owner).map_err(machine("the state folder"))?;
        if folder.path() != self.runner.folder().path() {
            tracing::info!(folder = %folder.path().display(), "uses a folder of this store");
            (self.runner, self.wake) = work_in(&folder, &self.options)?;
            self.logs = shipper(&self.options);
            self.shipped.clear();
        }
        self.owner = Some(owner);
        Ok(())
    }

    /// Runs until `end`. Running attempts continue; the next start finds them.
    pub async fn run(mut self, end: impl Future<Output = ()>) -> Result<(), AgentError> {
        if let Some(address) = self.options.metrics {
            let metrics = Arc::clone(&self.metrics);
            metrics::serve(metrics, address).await.map_err(machine("the metrics"))?;
        }
        tokio::select! {
            outcome = self.work() => outcome,
            () = end => Ok(()),
        }
    }

    async fn work(&mut self) -> Result<(), AgentError> {
        let mut is_first = true;
        loop {
            let mut term = match self.register(is_first).await {
                Some(outcome) => outcome?,
                None => continue,
            };
            is_first = false;
            let sender = self.send_output(term.registration.incarnation);
            let outcome = self.serve_term(&mut term).await;
            sender.abort();
            outcome?;
        }
    }

    /// Registers; `None` if it failed and should be retried.
    async fn register(&mut self, is_first: bool) -> Option<Result<Term, AgentError>> {
        let sent = BootTime::now();
        let server = self.options.servers.chosen();
        match server.client.send(nodes::register(&self.options.offer)).await {
            Ok(answer) => {
                self.metrics.registered();
                let registration = answer.value;
                let (node, incarnation) = (&registration.node, registration.incarnation);
                tracing::info!(node, incarnation, "registered");
                let ready = self
                    .serve_store(&registration)
                    .and_then(|()| self.renew(sent, &registration).map_err(machine("the lease")));
                if let Err(error) = ready {
                    self.pause_after(&error, metrics::HeartbeatOutcome::Answered).await;
                    return None;
                }
                self.failures = 0;
                Some(Ok(Term { registration, seq: 0 }))
            }
            // A rejected first registration is a configuration error. An invalid answer is not: it may come
            // from another program, and be temporary.
            Err(error) if is_first && is_refusal(&error) => Some(Err(AgentError::Refused(error))),
            Err(error) => {
                self.options.servers.note(&server, &error);
                self.pause_after(&error, outcome(&error)).await;
                None
            }
        }
    }

    /// Sends heartbeats and carries out orders until the registration is no longer valid.
    async fn serve_term(&mut self, term: &mut Term) -> Result<(), AgentError> {
        let mut wait_seconds = 0;
        loop {
            let observed = match self.observe() {
                Ok(observed) => observed,
                // An incomplete report would mean that the other attempts are gone.
                Err(error) => {
                    self.pause_after(&error, metrics::HeartbeatOutcome::Unanswered).await;
                    continue;
                }
            };
            self.ship_ended(term.registration.incarnation, &observed).await;
            term.seq += 1;
            let beat = Heartbeat {
                incarnation: term.registration.incarnation,
                seq: term.seq,
                attempts: report::all(&observed, &self.utilization),
            };
            let sent = BootTime::now();
            let call = nodes::heartbeat_and_wait(&self.options.offer.id, &beat, wait_seconds)
                .with_timeout(answer_timeout(&term.registration, wait_seconds));
            let server = self.options.servers.chosen();
            let answer = tokio::select! {
                answer = server.client.send(call) => answer,
                // An attempt changed: report it immediately, without waiting for orders.
                woken = woken(&self.wake), if wait_seconds > 0 => {
                    woken.map_err(machine("the pipe of the supervisors"))?;
                    wait_seconds = 0;
                    continue;
                }
            };
            match answer {
                Ok(answer) => {
                    self.failures = 0;
                    self.metrics.heartbeat(metrics::HeartbeatOutcome::Answered);
                    if let Err(error) = self.renew(sent, &term.registration) {
                        tracing::error!(%error, "the lease was not renewed");
                    }
                    let pause = self.carry_out_orders(&answer.value, &observed).await;
                    // Changes during the pause are reported immediately, too.
                    let happened = tokio::time::timeout(pause, woken(&self.wake)).await.is_ok();
                    let orders = !answer.value.orders.is_empty();
                    wait_seconds = if happened || orders { 0 } else { rhythm(&term.registration) };
                }
                Err(error) if is_over(&error) => {
                    tracing::warn!(%error, "the registration is no longer valid");
                    tokio::time::sleep(pause(REREGISTER_BACKOFF, random())).await;
                    return Ok(());
                }
                Err(error) => {
                    self.options.servers.note(&server, &error);
                    self.pause_after(&error, outcome(&error)).await;
                    wait_seconds = 0;
                }
            }
        }
    }

    fn observe(&mut self) -> Result<Vec<Observed>, AgentError> {
        let observed = self.runner.observe(BootTime::now()).map_err(machine("the attempts"))?;
        let samples = self.sampler.take();
        self.metrics.observe(&observed, &self.options.gpus.list, samples.last());
        self.utilization.observe(&observed, &samples);
        for (attempt, step) in self.idle.observe(&observed, &samples) {
            let one = observed.iter().find(|one| one.attempt == attempt);
            match one.map(|one| self.handle_idle(one, step)) {
                // The job did not get it: it is due again at the next sample.
                Some(Ok(false)) | None => {}
                Some(Ok(true)) => self.idle.took(&attempt, step),
                Some(Err(error)) => {
                    tracing::error!(attempt, %error, "the supervisor of an attempt cannot be reached");
                }
            }
        }
        Ok(observed)
    }

    /// Warns a job whose GPUs are idle, in its output, or stops it. Returns whether its supervisor got the message.
    fn handle_idle(&self, one: &Observed, step: IdleStep) -> io::Result<bool> {
        let (attempt, Some(limits)) = (&one.attempt, self.options.idle) else { return Ok(true) };
        let job = one.launch.as_ref().map_or(attempt, |launch| &launch.job);
        let note = limits.line(step, job);
        let takes_notes = one.record.as_ref().is_some_and(|record| record.takes_notes);
        let reached = !takes_notes
            || self.runner.note(attempt, &note)?
                && match step {
                    IdleStep::Warn | IdleStep::WarnAgain => true,
                    IdleStep::Stop => self.runner.stop_idle(attempt, IDLE_GRACE)?,
                };
        if reached {
            tracing::warn!(attempt, job, note, "the GPUs of an attempt do nothing");
        }
        Ok(reached)
    }

    fn renew(&self, sent: BootTime, registration: &Registration) -> io::Result<()> {
        let length = Duration::from_secs(u64::from(registration.lease_seconds));
        self.metrics.lease(length);
        self.runner.renew(sent, length)
    }

    /// Waits longer after each failure in a row, with a random part.
    async fn pause_after(&mut self, error: &impl Display, outcome: metrics::HeartbeatOutcome) {
        self.failures = self.failures.saturating_add(1);
        self.metrics.heartbeat(outcome);
        let pause = pause(self.failures, random());
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(%error, failures = self.failures, pause_ms, "the heartbeat failed");
        tokio::time::sleep(pause).await;
    }
}

/// The outcome of a failed heartbeat.
fn outcome(error: &ClientError) -> metrics::HeartbeatOutcome {
    match error.status() {
        Some(_) => metrics::HeartbeatOutcome::Refused,
        None => metrics::HeartbeatOutcome::Unanswered,
    }
}

/// Whether the server rejected this agent with a problem.
fn is_refusal(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| (400..429).contains(&problem.status))
}

/// Whether the node must register again: another agent did, or the node was removed.
fn is_over(error: &ClientError) -> bool {
    matches!(error.code(), Some(Code::StaleIncarnation | Code::NotFound))
}

/// How long a heartbeat waits for orders. Short enough that a connection which hangs is
/// noticed, and replaced, before the lease runs out.
fn rhythm(registration: &Registration) -> u32 {
    let often = registration.heartbeat_seconds.min(registration.lease_seconds / 6);
    often.clamp(1, MAX_WAIT)
}

/// The timeout of a heartbeat.
fn answer_timeout(registration: &Registration, wait_seconds: u32) -> Duration {
    let slack = (registration.lease_seconds / 12).clamp(1, 10);
    Duration::from_secs(u64::from(wait_seconds + slack))
}

fn random() -> u64 {
    // Without a source of randomness all agents pause equally long, which is no reason to fail.
    getrandom::u64().unwrap_or(0)
}

/// Between half of and the whole of a time that doubles with each failure.
fn pause(failures: u32, random: u64) -> Duration {
    let (first, longest) = PAUSES;
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let whole = first.saturating_mul(doubled).min(longest);
    let half = u64::try_from((whole / 2).as_millis()).unwrap_or(0);
    whole / 2 + Duration::from_millis(random % (half + 1))
}

/// Waits for a notification of a supervisor, and consumes all pending ones.
async fn woken(pipe: &pipe::Receiver) -> io::Result<()> {
    pipe.readable().await?;
    let mut buffer = [0; 256];
    loop {
        match pipe.try_read(&mut buffer) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

mod orders;
mod output;
mod prepare;
#[cfg(test)]
mod tests;
