//! A small world around a cell: agents that carry out orders, a ledger that confirms, a clock that
//! jumps from one event to the next, and a journal.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test binary has its own copy of the world and uses a part of it"
)]

use std::collections::{BTreeMap, VecDeque};

use bursar_core::cell::command::{
    AttemptReport, Command, Heartbeat, NodeOffer, Origin, Refusal, Reply, ReportState,
};
use bursar_core::cell::event::{AttemptOutcome, Event, JobOutcome, StopReason};
use bursar_core::cell::jobs::orders::OrderKind;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, Cell, ClassRank, JobId, NodeKey};
use bursar_core::machine::{Machine, execute, machine_time};
use bursar_core::name::GpuModel;
use bursar_core::time::Timestamp;

pub const SECOND: i64 = 1000;
pub const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;
pub const DAY: i64 = 24 * HOUR;

pub use bursar_core::cell::command::JobSpec;

/// What an agent runs.
#[derive(Clone, Debug)]
struct Running {
    since: i64,
    ends: i64,
    devices: u64,
    stop_at: Option<i64>,
}

/// A simulated agent.
#[derive(Clone, Debug)]
pub struct Agent {
    name: String,
    key: NodeKey,
    incarnation: u32,
    seq: u64,
    running: BTreeMap<AttemptId, Running>,
    /// Ended attempts, reported until the cell orders the agent to forget them.
    done: BTreeMap<AttemptId, (ReportState, u64)>,
    /// Whether it does not report.
    pub silent: bool,
}

/// A cell and everything around it.
pub struct World {
    pub cell: Cell,
    pub now: i64,
    pub journal: Vec<(Timestamp, Vec<Event>)>,
    pub agents: Vec<Agent>,
    /// How long each job runs without interruption.
    pub durations: BTreeMap<JobId, i64>,
    /// Whether the ledger confirms at once.
    pub confirms: bool,
    /// Whether all laws are checked after every step.
    pub checks: bool,
    pub outcomes: BTreeMap<JobId, JobOutcome>,
    /// The first start of each job.
    pub started: BTreeMap<JobId, i64>,
    pub preemptions: u32,
    /// A cell rebuilt from an image, which must decide like `cell`.
    pub twin: Option<Box<Cell>>,
    unanswered: VecDeque<AttemptId>,
    next_job: u64,
    /// Resumable jobs, with the attempt that saved last and the remaining running time.
    saved: BTreeMap<JobId, (AttemptId, i64)>,
}

pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub fn offer(name: &str, model: &str, gpus: u16) -> NodeOffer {
    NodeOffer {
        name: name.into(),
        rack: "r0".into(),
        model: GpuModel::unchecked(model),
        gpus,
        gpu_memory_mib: 80 * 1024,
        cpu_milli: 128_000,
        memory_mib: 1024 * 1024,
        uuids: (0..gpus).map(|device| format!("{name}-{device}").into()).collect(),
        labels: Vec::new(),
        scope: None,
    }
}

impl World {
    pub fn new() -> World {
        World {
            cell: Cell::new(),
            now: 1_600_000_000_000,
            journal: Vec::new(),
            agents: Vec::new(),
            durations: BTreeMap::new(),
            confirms: true,
            checks: true,
            outcomes: BTreeMap::new(),
            started: BTreeMap::new(),
            preemptions: 0,
            twin: None,
            unanswered: VecDeque::new(),
            next_job: 1,
            saved: BTreeMap::new(),
        }
    }

    /// A world with a number of nodes of eight GPUs.
    pub fn with_nodes(nodes: usize, model: &str) -> World {
        let mut world = World::new();
        for index in 0..nodes {
            world.register(&offer(&format!("n{index}"), model, 8));
        }
        world
    }

    pub fn send(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.send_from(Origin::component("test"), command)
    }

    pub fn send_from(&mut self, origin: Origin, command: Command) -> Result<Reply, Refusal> {
        self.settle();
        if let Command::AdmitJob(JobSpec { job, resumable: true, .. }) = command {
            self.saved.entry(job).or_insert((AttemptId { job, number: 0 }, 0));
        }
        let mut events = Vec::new();
        let reply = execute(&mut self.cell, at(self.now), &origin, &command, &mut events);
        if let Some(twin) = &self.twin {
            let mut alike = Vec::new();
            assert_eq!(twin.decide(at(self.now), &origin, &command, &mut alike), reply);
            assert_eq!(alike, events, "a rebuilt cell decides like the other");
        }
        self.record(at(self.now), events);
        self.settle();
        reply
    }

    pub fn ok(&mut self, command: Command) -> Reply {
        self.send(command).expect("the command is fine")
    }

    pub fn register(&mut self, offer: &NodeOffer) {
        let reply = self.ok(Command::RegisterNode(offer.clone()));
        let Reply::Registered { incarnation, .. } = reply else { panic!("registered") };
        let key = NodeKey::of(offer);
        self.agents.retain(|agent| agent.key != key);
        self.agents.push(Agent {
            name: offer.name.to_string(),
            key,
            incarnation,
            seq: 0,
            running: BTreeMap::new(),
            done: BTreeMap::new(),
            silent: false,
        });
        self.agents.sort_by(|left, right| left.key.cmp(&right.key));
    }

    /// An agent restarts under another key and still runs all its attempts.
    pub fn widen(&mut self, name: &str, scope: Option<&str>) {
        let key = NodeKey::new(name, scope);
        let view = self.cell.node_named(&key).expect("a node that is here");
        let offer = NodeOffer { scope: scope.map(Into::into), ..view.offer.clone() };
        let reply = self.ok(Command::RegisterNode(offer));
        let Reply::Registered { incarnation, .. } = reply else { panic!("registered") };
        let mut agents = self.agents.iter_mut();
        let agent = agents.find(|agent| agent.key == key).expect("it has an agent");
        (agent.incarnation, agent.seq) = (incarnation, 0);
    }

    /// A job of an account with this runtime, which is also its longest runtime.
    pub fn spec(&mut self, account: &str, gpus: u16, runtime: i64) -> JobSpec {
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.durations.insert(id, runtime);
        let mut spec = JobSpec::new(id, account, GpuDemand::Whole(gpus));
        spec.max_runtime_ms = Some(runtime + MINUTE);
        spec
    }

    pub fn submit(&mut self, spec: JobSpec) -> JobId {
        let id = spec.job;
        self.ok(Command::AdmitJob(spec));
        id
    }

    pub fn run(&mut self, account: &str, gpus: u16, runtime: i64) -> JobId {
        let spec = self.spec(account, gpus, runtime);
        self.submit(spec)
    }

    /// Applies everything that is due and answers proposals.
    pub fn settle(&mut self) {
        loop {
            self.advance_cell();
            if !self.confirms {
                break;
            }
            let Some(attempt) = self.unanswered.pop_front() else { break };
            let confirm = Command::ConfirmPlacement { attempt, price: 1_000_000, funded_ms: None };
            let mut events = Vec::new();
            // The attempt may have been stopped before the ledger answered.
            let _ = execute(
                &mut self.cell,
                at(self.now),
                &Origin::component("test"),
                &confirm,
                &mut events,
            );
            self.record(at(self.now), events);
        }
    }

    /// As [`bursar_core::machine::advance`], with all laws checked after each step.
    fn advance_cell(&mut self) {
        while let Some(deadline) =
            self.cell.next_deadline().filter(|deadline| *deadline <= at(self.now))
        {
            let when = machine_time(&self.cell, deadline);
            let mut events = Vec::new();
            self.cell.decide_due(when, &mut events);
            assert!(!events.is_empty(), "a deadline is met by something");
            if self.checks {
                self.cell.check_plan(&events).expect("a plan is complete and minimal");
                self.cell.check_order(&events).expect("first come, first served among equals");
            }
            if let Some(twin) = &self.twin {
                let mut alike = Vec::new();
                twin.decide_due(when, &mut alike);
                assert_eq!(alike, events, "a rebuilt cell decides like the other");
            }
            for event in &events {
                self.cell.apply(when, event);
            }
            self.record(when, events);
        }
        if self.checks {
            self.cell.check().expect("the laws hold");
            self.cell.check_quiet().expect("nothing that could start waits");
        }
    }

    fn record(&mut self, when: Timestamp, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        for event in &events {
            match event {
                Event::PlacementProposed { attempt, .. } => {
                    self.unanswered.push_back(*attempt);
                    self.started.entry(attempt.job).or_insert(when.millis());
                }
                Event::JobEnded { job, outcome } => {
                    self.outcomes.insert(*job, *outcome);
                }
                Event::AttemptEnded { outcome: AttemptOutcome::Stopped(reason), .. } => {
                    let preempted = format!("{reason:?}").starts_with("Preempted");
                    self.preemptions += u32::from(preempted);
                }
                _ => {}
            }
        }
        if let Some(twin) = &mut self.twin {
            events.iter().for_each(|event| twin.apply(when, event));
        }
        self.cell.check_step(&events).expect("a step keeps the laws");
        self.journal.push((when, events));
    }

    /// Every agent reports once and carries out its orders.
    pub fn heartbeat(&mut self) {
        for index in 0..self.agents.len() {
            self.heartbeat_of(index);
        }
    }

    fn heartbeat_of(&mut self, index: usize) {
        let now = self.now;
        if self.agents[index].silent {
            return;
        }
        let agent = &mut self.agents[index];
        let ended: Vec<_> = agent
            .running
            .iter()
            .filter_map(|(id, run)| {
                let end = run.ends.min(run.stop_at.unwrap_or(i64::MAX));
                (end <= now).then_some((*id, end, run.clone()))
            })
            .collect();
        for (id, end, run) in ended {
            let stopped = run.stop_at.is_some_and(|stop| stop < run.ends);
            let state = if stopped { ReportState::Stopped } else { ReportState::Succeeded };
            agent.running.remove(&id);
            if let Some((last, left)) = self.saved.get_mut(&id.job).filter(|_| stopped) {
                let others = if *last == id { *left } else { 0 };
                (*last, *left) = (id, others.max(run.ends - end));
            }
            let ran = u64::try_from(end - run.since).unwrap_or(0);
            agent.done.insert(id, (state, ran * run.devices));
        }
        agent.seq += 1;
        let running = agent.running.iter().map(|(id, run)| AttemptReport {
            attempt: *id,
            state: ReportState::Running,
            gpu_ms_total: u64::try_from(now - run.since).unwrap_or(0) * run.devices,
            exit_code: None,
        });
        let done = agent.done.iter().map(|(id, (state, gpu_ms))| AttemptReport {
            attempt: *id,
            state: *state,
            gpu_ms_total: *gpu_ms,
            exit_code: (*state == ReportState::Succeeded).then_some(0),
        });
        let heartbeat = Heartbeat {
            node: agent.key.clone(),
            incarnation: agent.incarnation,
            seq: agent.seq,
            reports: running.chain(done).collect(),
        };
        if self.send(Command::Heartbeat(heartbeat.clone())).is_err() {
            return;
        }
        for order in self.cell.orders(&heartbeat).expect("the agent's last start") {
            let whole = self.durations.get(&order.attempt.job).copied().unwrap_or(HOUR);
            let saved = self.saved.get(&order.attempt.job).filter(|(last, _)| last.number > 0);
            let length = saved.map_or(whole, |(_, left)| *left);
            let agent = &mut self.agents[index];
            match order.kind {
                OrderKind::Start(start) => {
                    agent.running.entry(order.attempt).or_insert(Running {
                        since: now,
                        ends: now + length,
                        devices: u64::from(start.gpus.count_ones()),
                        stop_at: None,
                    });
                }
                OrderKind::Stop { .. } | OrderKind::Kill { .. } => {
                    match agent.running.get_mut(&order.attempt) {
                        Some(run) => run.stop_at = Some(run.stop_at.unwrap_or(now)),
                        None => {
                            agent.done.entry(order.attempt).or_insert((ReportState::Stopped, 0));
                        }
                    }
                }
                OrderKind::Forget => {
                    agent.running.remove(&order.attempt);
                    agent.done.remove(&order.attempt);
                }
            }
        }
    }

    /// Advances time in steps, with a report of every agent at each.
    pub fn pass(&mut self, millis: i64, step: i64) {
        let end = self.now + millis;
        while self.now < end {
            self.now = (self.now + step).min(end);
            self.settle();
            self.heartbeat();
        }
    }

    /// Advances time until every job has left, at most by the limit.
    pub fn pass_until_empty(&mut self, limit: i64, step: i64) {
        let end = self.now + limit;
        let jobs_left = |world: &World| {
            let shares = world.cell.fair_shares(at(world.now));
            shares[0].running_jobs + shares[0].waiting_jobs
        };
        while self.now < end && jobs_left(self) > 0 {
            self.pass(step, step);
        }
    }

    /// Rebuilds the cell from its image. From now on both must decide alike.
    pub fn make_twin(&mut self) {
        let image = self.cell.image();
        let twin = Cell::from_image(image.clone()).expect("the image of a real cell");
        twin.check().expect("the laws hold after a snapshot");
        assert_eq!(twin.digest(), self.cell.digest(), "an image has the whole state");
        assert_eq!(twin.image(), image);
        self.twin = Some(Box::new(twin));
    }

    /// Rebuilds the cell from its journal and compares.
    pub fn check_replay(&self) {
        if let Some(twin) = &self.twin {
            assert_eq!(twin.digest(), self.cell.digest(), "a rebuilt cell goes on alike");
        }
        let image = self.cell.image();
        let twin = Cell::from_image(image).expect("the image of a real cell");
        assert_eq!(twin.digest(), self.cell.digest(), "an image has the whole state");
        let mut copy = Cell::new();
        for (when, events) in &self.journal {
            for event in events {
                copy.apply(*when, event);
            }
        }
        assert_eq!(copy.digest(), self.cell.digest(), "replay gives the same state");
        copy.check().expect("the laws hold after replay");
    }

    pub fn has_started(&self, job: JobId) -> bool {
        self.started.contains_key(&job)
    }

    /// Preempted attempts, each with its taker.
    pub fn victims(&self) -> Vec<(JobId, JobId)> {
        let events = self.journal.iter().flat_map(|(_, events)| events);
        events
            .filter_map(|event| match event {
                Event::StopOrdered {
                    attempt, reason: StopReason::Preempted { by, .. }, ..
                } => Some((attempt.job, *by)),
                _ => None,
            })
            .collect()
    }

    pub fn agent(&mut self, name: &str) -> &mut Agent {
        self.agents.iter_mut().find(|agent| agent.name == name).expect("registered")
    }

    /// Drops everything that the agent ran, as after a crash with all its jobs.
    pub fn crash_agent(&mut self, name: &str) {
        let agent = self.agent(name);
        agent.running.clear();
        agent.done.clear();
    }
}

/// The kinds of a job's blockers, in order.
pub fn kinds(world: &World, job: JobId) -> Vec<&'static str> {
    let why = world.cell.why(job, at(world.now)).expect("the job is here");
    why.blockers.iter().map(|blocker| blocker.kind()).collect()
}

pub fn class(mut spec: JobSpec, class: ClassRank) -> JobSpec {
    spec.class = class;
    spec
}
