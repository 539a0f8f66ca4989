//! Runs the real cell on a trace, with a ledger that confirms every placement at once, agents that
//! obey at once, and a clock that jumps from one event to the next.

use std::collections::{BTreeMap, BTreeSet};

use bursar_core::cell::command::{
    AttemptReport, Command, Heartbeat, JobSpec, NodeOffer, Origin, ReportState,
};
use bursar_core::cell::event::{Event, JobOutcome};
use bursar_core::cell::index::interner::InternedId;
use bursar_core::cell::jobs::orders::OrderKind;
use bursar_core::cell::schedule::preemption::rules::Rules;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, Cell, CellConfig, JobId, Refusal};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;

use super::{Cluster, Finished, Run, RunInterval};
use crate::traces::JobRow;

/// The reason why these settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The cell refuses them.
    #[error("the cell refuses these settings: {0}")]
    Refused(Refusal),
    /// The lease of a node would end between two heartbeats.
    #[error("node_lease_ms ({lease_ms}) must be longer than heartbeat_ms ({heartbeat_ms})")]
    LeaseTooShort {
        /// The lease of a node.
        lease_ms: i64,
        /// The time between two heartbeats.
        heartbeat_ms: i64,
    },
}

/// The settings and rules of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The settings of the cell.
    pub config: CellConfig,
    /// The rules that the cell applies.
    pub rules: Rules,
    /// Whether a job that is not resumable starts over after a preemption. Otherwise all work is
    /// kept.
    pub starts_over: bool,
}

/// Runs a trace with all rules of the cell; all work is kept. Every job must fit on the cluster:
/// see [`super::first_impossible`]. `accounts` names the account of each job. `done` is called for
/// every job that ends.
pub fn run(
    jobs: &[JobRow],
    accounts: &[String],
    cluster: Cluster,
    config: &CellConfig,
    done: &mut dyn FnMut(),
) -> Result<Run, SettingsError> {
    let setup = Setup { config: config.clone(), rules: Rules::ALL, starts_over: false };
    run_with(jobs, accounts, cluster, &setup, done)
}

/// Runs a trace with some rules of the cell.
pub fn run_with(
    jobs: &[JobRow],
    accounts: &[String],
    cluster: Cluster,
    setup: &Setup,
    done: &mut dyn FnMut(),
) -> Result<Run, SettingsError> {
    let config = &setup.config;
    let (lease_ms, heartbeat_ms) = (config.node_lease_ms, config.heartbeat_ms);
    if lease_ms <= heartbeat_ms {
        return Err(SettingsError::LeaseTooShort { lease_ms, heartbeat_ms });
    }
    let mut world = World::new(jobs, accounts, cluster, setup)?;
    while world.unfinished > 0 {
        let before = world.unfinished;
        world.step();
        (world.unfinished..before).for_each(|_| done());
    }
    let finished = world
        .progress
        .iter()
        .map(|progress| progress.finished.expect("every job is finished when none is unfinished"));
    Ok(Run { jobs: finished.collect(), stretches: world.stretches })
}

/// A cell and its environment.
struct World<'a> {
    jobs: &'a [JobRow],
    accounts: &'a [String],
    cluster: Cluster,
    starts_over: bool,
    cell: Cell,
    now: i64,
    agents: Vec<Agent>,
    progress: Vec<Progress>,
    /// The next job to be submitted.
    next_job: usize,
    heartbeat_ms: i64,
    next_heartbeat: i64,
    /// When running jobs will finish, with the attempt.
    ends: BTreeSet<(i64, AttemptId)>,
    /// Proposals that the ledger has not answered.
    proposed: Vec<AttemptId>,
    /// Agents that must send a heartbeat.
    awake: BTreeSet<usize>,
    stretches: Vec<RunInterval>,
    unfinished: usize,
}

/// A simulated agent.
struct Agent {
    name: String,
    incarnation: u32,
    seq: u64,
    /// Its attempts, until the cell orders it to forget them.
    attempts: BTreeMap<AttemptId, Local>,
}

/// An attempt on one node.
#[derive(Copy, Clone)]
struct Local {
    state: ReportState,
    since: i64,
    /// When it ended on this node.
    until: Option<i64>,
    devices: u64,
}

/// The progress of a job.
#[derive(Clone, Default)]
struct Progress {
    remaining_ms: i64,
    started_ms: Option<i64>,
    starts: u32,
    /// The agents of the current attempt.
    agents: Vec<usize>,
    /// The number of agents that have started the current attempt.
    started_on: usize,
    running_since: Option<i64>,
    finished: Option<Finished>,
}

impl<'a> World<'a> {
    fn new(
        jobs: &'a [JobRow],
        accounts: &'a [String],
        cluster: Cluster,
        setup: &Setup,
    ) -> Result<World<'a>, SettingsError> {
        let config = &setup.config;
        let progress = jobs
            .iter()
            .map(|job| Progress { remaining_ms: job.duration_ms, ..Progress::default() });
        let mut world = World {
            jobs,
            accounts,
            cluster,
            starts_over: setup.starts_over,
            cell: Cell::with_rules(setup.rules),
            now: 0,
            agents: Vec::new(),
            progress: progress.collect(),
            next_job: 0,
            heartbeat_ms: config.heartbeat_ms,
            next_heartbeat: config.heartbeat_ms,
            ends: BTreeSet::new(),
            proposed: Vec::new(),
            awake: BTreeSet::new(),
            stretches: Vec::new(),
            unfinished: jobs.len(),
        };
        world.try_send(&Command::Configure(config.clone())).map_err(SettingsError::Refused)?;
        world.send(&Command::SetPrice { model: MODEL.into(), price: PRICE });
        for node in 0..cluster.nodes {
            world.register(node);
        }
        Ok(world)
    }

    fn register(&mut self, node: u32) {
        let name = format!("node-{node:04}");
        self.send(&Command::RegisterNode(NodeOffer {
            name: name.as_str().into(),
            rack: "rack".into(),
            model: MODEL.into(),
            gpus: self.cluster.gpus_per_node,
            gpu_memory_mib: 0,
            cpu_milli: 0,
            memory_mib: 0,
            uuids: Vec::new(),
            labels: Vec::new(),
            scope: None,
        }));
        // A cell assigns incarnation 1 to the first start of an agent.
        self.agents.push(Agent { name, incarnation: 1, seq: 0, attempts: BTreeMap::new() });
    }

    /// Jumps to the next event and runs everything that is due.
    fn step(&mut self) {
        let arrival = self.jobs.get(self.next_job).map(|job| job.submit_ms);
        let end = self.ends.first().map(|(at, _)| *at);
        let due = self.cell.next_deadline().map(Timestamp::millis);
        let next = [arrival, end, due, Some(self.next_heartbeat)].into_iter().flatten().min();
        self.now = next.expect("there is always a next heartbeat").max(self.now);
        self.settle();
        self.end_jobs();
        self.submit_jobs();
        if self.now >= self.next_heartbeat {
            self.awake.extend(0..self.agents.len());
            self.next_heartbeat = self.now + self.heartbeat_ms;
        }
        while let Some(agent) = self.awake.pop_first() {
            self.report(agent);
        }
    }

    fn submit_jobs(&mut self) {
        while let Some(row) = self.jobs.get(self.next_job).filter(|row| row.submit_ms <= self.now) {
            let (nodes, gpus) = self.cluster.gang(row.gpus).expect("every job can run");
            let id = JobId(self.next_job as u64);
            let account = self.accounts[self.next_job].as_str();
            let spec = JobSpec::new(id, account, GpuDemand::Whole(gpus));
            let (resumable, max_runtime_ms) = (row.resumable, row.max_runtime_ms);
            let spec = JobSpec { nodes, resumable, max_runtime_ms, ..spec };
            self.send(&Command::AdmitJob(spec));
            self.next_job += 1;
        }
    }

    /// Reports finished jobs on all their nodes.
    fn end_jobs(&mut self) {
        while let Some((at, attempt)) = self.ends.first().copied().filter(|(at, _)| *at <= self.now)
        {
            self.ends.remove(&(at, attempt));
            self.stop_local(attempt, ReportState::Succeeded);
        }
    }

    /// Ends an attempt on all its nodes and counts its work.
    fn stop_local(&mut self, attempt: AttemptId, state: ReportState) {
        let job = job_index(attempt);
        let row = &self.jobs[job];
        let progress = &mut self.progress[job];
        if let Some(since) = progress.running_since.take() {
            self.ends.remove(&(since + progress.remaining_ms, attempt));
            progress.remaining_ms -= self.now - since;
            if self.starts_over && !row.resumable && progress.remaining_ms > 0 {
                progress.remaining_ms = row.duration_ms;
            }
            if self.now > since {
                self.stretches.push(RunInterval { job, from_ms: since, to_ms: self.now });
            }
        }
        for agent in progress.agents.clone() {
            let local = self.agents[agent].attempts.entry(attempt).or_insert(Local {
                state,
                since: self.now,
                until: Some(self.now),
                devices: 0,
            });
            if local.until.is_none() {
                local.state = state;
                local.until = Some(self.now);
            }
            self.awake.insert(agent);
        }
    }

    /// Sends a heartbeat of an agent and follows the orders of the answer.
    fn report(&mut self, index: usize) {
        let now = self.now;
        let agent = &mut self.agents[index];
        agent.seq += 1;
        let report = |(attempt, local): (&AttemptId, &Local)| AttemptReport {
            attempt: *attempt,
            state: local.state,
            gpu_ms_total: (local.until.unwrap_or(now) - local.since).unsigned_abs() * local.devices,
            exit_code: None,
        };
        let heartbeat = Heartbeat {
            node: agent.name.as_str().into(),
            incarnation: agent.incarnation,
            seq: agent.seq,
            reports: agent.attempts.iter().map(report).collect(),
        };
        self.send(&Command::Heartbeat(heartbeat.clone()));
        let orders = self.cell.orders(&heartbeat).expect("the agent's current incarnation");
        for order in orders {
            match order.kind {
                OrderKind::Start(start) => {
                    self.start(index, order.attempt, start.gpus.count_ones())
                }
                OrderKind::Stop { .. } | OrderKind::Kill { .. } => {
                    self.stop_local(order.attempt, ReportState::Stopped);
                }
                OrderKind::Forget => {
                    self.agents[index].attempts.remove(&order.attempt);
                }
            }
        }
    }

    /// Starts an attempt on one node. The job runs when all its nodes have started it.
    fn start(&mut self, agent: usize, attempt: AttemptId, devices: u32) {
        let local = Local {
            state: ReportState::Running,
            since: self.now,
            until: None,
            devices: u64::from(devices),
        };
        if self.agents[agent].attempts.contains_key(&attempt) {
            return;
        }
        self.agents[agent].attempts.insert(attempt, local);
        self.awake.insert(agent);
        let progress = &mut self.progress[job_index(attempt)];
        progress.started_on += 1;
        if progress.started_on == progress.agents.len() {
            progress.running_since = Some(self.now);
            progress.started_ms = progress.started_ms.or(Some(self.now));
            progress.starts += 1;
            self.ends.insert((self.now + progress.remaining_ms, attempt));
        }
    }

    fn send(&mut self, command: &Command) {
        self.try_send(command).expect("a study sends only valid commands");
    }

    fn try_send(&mut self, command: &Command) -> Result<(), Refusal> {
        self.settle();
        let mut events = Vec::new();
        let at = Timestamp::from_millis(self.now);
        execute(&mut self.cell, at, &Origin::component("study"), command, &mut events)?;
        self.follow_events(&events);
        self.settle();
        Ok(())
    }

    /// Runs due timers of the cell, and confirms its proposals.
    fn settle(&mut self) {
        loop {
            let mut happened = Vec::new();
            let at = Timestamp::from_millis(self.now);
            advance(&mut self.cell, at, |_, events| happened.extend_from_slice(events));
            self.follow_events(&happened);
            let Some(attempt) = self.proposed.pop() else { return };
            let confirm = Command::ConfirmPlacement { attempt, price: PRICE, funded_ms: None };
            let mut events = Vec::new();
            // A proposal may have been withdrawn before it was answered.
            if execute(&mut self.cell, at, &Origin::component("study"), &confirm, &mut events)
                .is_ok()
            {
                self.awake.extend(self.progress[job_index(attempt)].agents.iter().copied());
            }
            self.follow_events(&events);
        }
    }

    /// Follows events of the cell that concern the ledger and the agents.
    fn follow_events(&mut self, events: &[Event]) {
        for event in events {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these concern a study")]
            match event {
                Event::PlacementProposed { attempt, placements, .. } => {
                    let progress = &mut self.progress[job_index(*attempt)];
                    progress.agents =
                        placements.iter().map(|placement| placement.node.index()).collect();
                    progress.started_on = 0;
                    self.proposed.push(*attempt);
                }
                Event::StopOrdered { attempt, .. } | Event::KillOrdered { attempt, .. } => {
                    self.awake.extend(self.progress[job_index(*attempt)].agents.iter().copied());
                }
                Event::JobEnded { job, outcome } => self.finish(*job, *outcome),
                _ => {}
            }
        }
    }

    fn finish(&mut self, job: JobId, outcome: JobOutcome) {
        assert_eq!(
            outcome,
            JobOutcome::Succeeded,
            "a job in a study ends only when its work is done"
        );
        let progress = &mut self.progress[index_of(job)];
        let started_ms = progress.started_ms.expect("a job that succeeded has started");
        let starts = progress.starts;
        progress.finished = Some(Finished { started_ms, finished_ms: self.now, starts });
        self.unfinished -= 1;
    }
}

const MODEL: &str = "gpu";
/// One credit per GPU-hour: with one model, usage equals GPU time.
const PRICE: u64 = 1_000_000;

fn job_index(attempt: AttemptId) -> usize {
    index_of(attempt.job)
}

fn index_of(job: JobId) -> usize {
    usize::try_from(job.0).expect("job ids are indexes into the trace")
}
