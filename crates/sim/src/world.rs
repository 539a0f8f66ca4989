//! A deterministic simulation in one thread: ledgers, cells and agents. It runs the real machines
//! with their stored form, their journal and its replay, and the real rules of message delivery,
//! under seeded faults.
//!
//! Any machine may crash between any two steps, before, while or after its decision becomes
//! durable, with or without a power failure. Its owner may be replaced by another member with
//! another clock, and may append once more without knowing it. Messages
//! are delayed and repeated. Heartbeats are lost, repeated and reordered. Nodes are cut off, return
//! and restart. Clients submit, cancel, preempt, freeze and pay. After every step the invariants
//! are checked, and an independent auditor recomputes the charges. At the end the faults stop, and
//! all jobs must end.

mod agent;
mod client;
mod host;
mod members;
mod messages;
mod quiet;
mod summary;

use std::collections::BTreeMap;

use agent::{Agent, Packet, ProcessEnd};
use bursar_core::cell::command::{Command as CellCommand, NodeOffer, Origin, Refusal, Reply};
use bursar_core::cell::{AttemptId, JobId};
use bursar_core::ledger::id::CellNo;
use bursar_core::ledger::{Accepted, Command, Refused, invariant};
use bursar_core::message::{ToCell, ToLedger};
use bursar_core::time::Timestamp;
use bursar_engine::courier::{Outbox, SentMessage};
use bursar_engine::{CellCodec, CellToLedger, LedgerCodec, LedgerToCell};
use host::MachineHost;
use members::Members;
pub use summary::Summary;

use crate::auditor::{AuditFinding, Auditor};
use crate::random::Dice;

/// 2020-01-01T00:00:00.000Z
const START: i64 = 1_577_836_800_000;
/// The regions, by the number of their cell.
const REGIONS: [&str; 2] = ["east", "west"];

/// The size of a world.
#[derive(Copy, Clone, Debug)]
pub struct WorldOptions {
    /// Ledger shards.
    pub ledgers: u16,
    /// Steps with faults, before the faults stop.
    pub steps: u32,
    /// One step in this many checks all invariants, including the slow ones.
    pub full_check_every: u32,
}

impl Default for WorldOptions {
    fn default() -> WorldOptions {
        WorldOptions { ledgers: 2, steps: 1500, full_check_every: 100 }
    }
}

/// One direction between a ledger and a cell, with every message ever sent.
struct Link<T> {
    messages: Vec<SentMessage<T>>,
}

/// Runs the world of a seed to its end.
///
/// # Errors
/// The first violated invariant, with the step at which it was found. Invariants that machines
/// check themselves panic.
pub fn run(seed: u64, options: WorldOptions) -> Result<Summary, AuditFinding> {
    let mut world = World::new(seed, options);
    for step in 0..options.steps {
        world.step();
        world.check(step % options.full_check_every == 0).map_err(|broken| {
            format!("seed {seed}, step {step}, {} ms: {broken}", world.now - START)
        })?;
    }
    world.run_without_faults().map_err(|broken| format!("seed {seed}, at rest: {broken}"))?;
    Ok(world.summary())
}

struct World {
    options: WorldOptions,
    dice: Dice,
    now: i64,
    members: Members,
    ledgers: Vec<MachineHost<LedgerCodec>>,
    cells: Vec<MachineHost<CellCodec>>,
    agents: Vec<Agent>,
    packets: Vec<Packet>,
    /// By ledger and cell.
    to_cells: BTreeMap<(usize, usize), Link<ToCell>>,
    /// By cell and ledger.
    to_ledgers: BTreeMap<(usize, usize), Link<ToLedger>>,
    auditor: Auditor,
    fates: BTreeMap<JobId, ProcessEnd>,
    /// Jobs by ledger, with tenant and name.
    jobs: Vec<(usize, String, String)>,
    requests: u128,
    faults: bool,
    crashes: u32,
    takeovers: u32,
    repeated: u32,
    lost_reports: u32,
    broken: Option<AuditFinding>,
}

impl World {
    fn new(seed: u64, options: WorldOptions) -> World {
        let ledgers = usize::from(options.ledgers);
        let mut dice = Dice::new(seed, 7);
        let members = Members::new(&mut dice);
        let number = |machine| u8::try_from(machine).expect("few machines");
        let pairs =
            || (0..ledgers).flat_map(|ledger| (0..REGIONS.len()).map(move |cell| (ledger, cell)));
        let mut world = World {
            options,
            dice,
            now: START,
            ledgers: (0..ledgers)
                .map(|ledger| {
                    MachineHost::new(LedgerCodec, number(ledger), members.first_owner(ledger))
                })
                .collect(),
            cells: (ledgers..ledgers + REGIONS.len())
                .map(|cell| MachineHost::new(CellCodec, number(cell), members.first_owner(cell)))
                .collect(),
            members,
            agents: Vec::new(),
            packets: Vec::new(),
            to_cells: pairs().map(|pair| (pair, Link { messages: Vec::new() })).collect(),
            to_ledgers: pairs()
                .map(|(ledger, cell)| ((cell, ledger), Link { messages: Vec::new() }))
                .collect(),
            auditor: Auditor::default(),
            fates: BTreeMap::new(),
            jobs: Vec::new(),
            requests: 0,
            faults: true,
            crashes: 0,
            takeovers: 0,
            repeated: 0,
            lost_reports: 0,
            broken: None,
        };
        for (cell, model) in [(0, "H100"), (0, "H100"), (1, "H100"), (1, "A100")] {
            let name = format!("n{}", world.agents.len());
            let clock_percent = if world.dice.below(4) == 0 { 120 } else { 100 };
            world.agents.push(Agent::new(cell, offer(&name, model), clock_percent));
        }
        if world.dice.below(2) == 0 {
            let scope = Some(format!("{}:x", client::tenants(0)[0]).into());
            let kept = NodeOffer { scope, ..offer("kept", "H100") };
            world.agents.push(Agent::new(0, kept, 100));
        }
        world.faults = false;
        world.open();
        world.faults = true;
        world
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.faults && self.dice.below(chances) == 0
    }

    /// Takes one random action.
    fn step(&mut self) {
        if self.dice.below(2) == 0 {
            self.now += self.dice.below(6000) as i64;
        }
        match self.dice.below(100) {
            0..35 => self.deliver_some_message(),
            35..60 => self.some_agent_reports(),
            60..80 => self.deliver_some_packet(),
            80..94 => self.some_client_acts(),
            94..96 => self.some_machine_crashes(),
            96 => match self.dice.below(3) {
                0 => self.deposed_owners_wake(),
                _ => self.some_member_fails(),
            },
            97 => self.some_machine_is_saved(),
            98 => self.some_agent_fails(),
            _ => self.advance_all(),
        }
    }

    fn advance_all(&mut self) {
        let now = self.at();
        for host in &mut self.ledgers {
            host.advance(self.members.clock(host.owner, now));
        }
        for host in &mut self.cells {
            host.advance(self.members.clock(host.owner, now));
        }
        self.collect();
    }

    /// Collects events that became durable: queues their messages and passes them to the auditor.
    fn collect(&mut self) {
        for (ledger, host) in self.ledgers.iter_mut().enumerate() {
            for fresh in host.fresh.drain(..) {
                for (cell, event) in
                    (0..REGIONS.len()).flat_map(|cell| fresh.events.iter().map(move |e| (cell, e)))
                {
                    let number = u16::try_from(cell).expect("few cells");
                    let outbox = LedgerToCell { cell: CellNo(number) };
                    let Some((number, message)) = outbox.message(event) else { continue };
                    let heard = self.auditor.audit_ledger_message(ledger, cell, number, &message);
                    note(&mut self.broken, heard);
                    let link = self.to_cells.get_mut(&(ledger, cell)).expect("every pair");
                    link.messages.push(SentMessage { number, position: fresh.position, message });
                }
                for event in &fresh.events {
                    if let bursar_core::ledger::Event::JobEnded { job, .. } = event {
                        let shard = u16::try_from(ledger).expect("few ledgers");
                        self.auditor.job_ended(job.in_cell(shard));
                    }
                }
            }
        }
        for (cell, host) in self.cells.iter_mut().enumerate() {
            for fresh in host.fresh.drain(..) {
                for event in &fresh.events {
                    note(&mut self.broken, self.auditor.audit_cell_event(cell, event));
                    for shard in 0..self.options.ledgers {
                        let Some((number, message)) = (CellToLedger { shard }).message(event)
                        else {
                            continue;
                        };
                        let link = (cell, usize::from(shard));
                        let link = self.to_ledgers.get_mut(&link).expect("every pair");
                        link.messages.push(SentMessage {
                            number,
                            position: fresh.position,
                            message,
                        });
                    }
                }
            }
        }
    }

    /// Sends a command to a ledger; `None` if it crashed before it answered.
    fn ask_ledger(
        &mut self,
        ledger: usize,
        envelope: &bursar_core::ledger::command::Envelope,
        command: &Command,
    ) -> Option<Result<Accepted, Refused>> {
        let clock = self.members.clock(self.ledgers[ledger].owner, self.at());
        if self.one_in(120) {
            self.crashes += 1;
            let last_batch = self.some_last_batch();
            let lost = self.ledgers[ledger].lose(clock, envelope, command, last_batch);
            self.note(lost);
            self.collect();
            return None;
        }
        let answer = self.ledgers[ledger].execute(clock, envelope, command);
        self.collect();
        Some(answer)
    }

    /// Sends a command to a cell; `None` if it crashed before it answered.
    fn ask_cell(
        &mut self,
        cell: usize,
        origin: &Origin,
        command: &CellCommand,
    ) -> Option<Result<Reply, Refusal>> {
        let clock = self.members.clock(self.cells[cell].owner, self.at());
        if self.one_in(120) {
            self.crashes += 1;
            let last_batch = self.some_last_batch();
            let lost = self.cells[cell].lose(clock, origin, command, last_batch);
            self.note(lost);
            self.collect();
            return None;
        }
        let answer = self.cells[cell].execute(clock, origin, command);
        self.collect();
        Some(answer)
    }

    fn some_agent_reports(&mut self) {
        let agent = self.dice.below(self.agents.len());
        self.agent_reports(agent);
    }

    fn agent_reports(&mut self, index: usize) {
        let now = self.now;
        let agent = &mut self.agents[index];
        agent.settle(now);
        if now < agent.cut_off_until || now < agent.next_report {
            return;
        }
        if agent.incarnation.is_none() {
            let (cell, offer) = (agent.cell, agent.offer.clone());
            let origin = Origin::component("agent");
            let answer = self.ask_cell(cell, &origin, &CellCommand::RegisterNode(offer));
            if let Some(Ok(Reply::Registered { incarnation, .. })) = answer {
                self.agents[index].registered(now, incarnation);
            }
            return;
        }
        agent.next_report = now + 10_000;
        if let Some(heartbeat) = agent.report(now) {
            if self.one_in(15) {
                self.lost_reports += 1;
                return;
            }
            self.packets.push(Packet { agent: index, heartbeat, sent_at: now });
        }
    }

    fn deliver_some_packet(&mut self) {
        if self.packets.is_empty() {
            return;
        }
        let at = self.dice.below(self.packets.len());
        let packet =
            if self.one_in(10) { self.packets[at].clone() } else { self.packets.swap_remove(at) };
        self.deliver_packet(packet);
    }

    fn deliver_packet(&mut self, packet: Packet) {
        let Packet { agent: index, heartbeat, sent_at } = packet;
        if self.now < self.agents[index].cut_off_until {
            self.lost_reports += 1;
            return;
        }
        let cell = self.agents[index].cell;
        let command = CellCommand::Heartbeat(heartbeat.clone());
        let answer = self.ask_cell(cell, &Origin::component("agent"), &command);
        let orders = self.cells[cell].machine.orders(&heartbeat).unwrap_or_default();
        let started_since = |incarnation: u32| heartbeat.incarnation < incarnation;
        let is_stale = self.agents[index].incarnation.is_some_and(started_since);
        if is_stale && matches!(answer, Some(Ok(_))) {
            self.broken = Some(format!("a report of an earlier start counts: {heartbeat:?}"));
        }
        let awaited = self.agents[index].awaits(&heartbeat);
        if answer.is_none() || !awaited || self.one_in(12) {
            self.lost_reports += 1;
            return;
        }
        match answer {
            Some(Ok(_)) => {
                let fates = &self.fates;
                // A job whose submission was never answered.
                let unknown = ProcessEnd { runs_ms: 90_000, succeeds: true };
                let fate = |job| fates.get(&job).copied().unwrap_or(unknown);
                let now = self.now;
                let started =
                    self.agents[index].follow_orders(now, sent_at, orders, &mut self.dice, fate);
                for attempt in started {
                    let checked = self.check_start(index, attempt);
                    note(&mut self.broken, checked);
                }
            }
            Some(Err(Refusal::StaleIncarnation { .. } | Refusal::UnknownNode)) => {
                self.agents[index].incarnation = None;
            }
            Some(Err(refusal)) => {
                self.broken = Some(format!("a heartbeat was refused: {refusal:?}"));
            }
            None => {}
        }
    }

    /// Checks L8 and L10 on the nodes: no GPU is used beyond its capacity, and no job runs as two
    /// attempts.
    fn check_start(&mut self, index: usize, attempt: AttemptId) -> Result<(), AuditFinding> {
        let now = self.now;
        self.agents.iter_mut().for_each(|agent| agent.settle(now));
        let share = |world: &World, attempt: AttemptId| {
            let shard = usize::from(attempt.job.shard());
            let number = bursar_core::ledger::id::JobNo(attempt.job.number());
            let job = world.ledgers[shard].machine.job(number);
            job.map_or(0, |job| u32::from(job.order.terms.gpu.per_device()))
        };
        let agent = &self.agents[index];
        for device in 0..64 {
            let on_it = agent.running.iter().filter(|(_, p)| p.gpus >> device & 1 == 1);
            let used: u32 = on_it.map(|(attempt, _)| share(self, *attempt)).sum();
            if used > 1000 {
                return Err(format!("L8: device {device} of {} has {used}", agent.offer.name));
            }
        }
        for other in &self.agents {
            for running in other.running.keys().filter(|running| running.job == attempt.job) {
                if *running != attempt || other.cell != agent.cell {
                    return Err(format!(
                        "L10: {attempt} starts in cell {} while {running} runs in cell {}",
                        agent.cell, other.cell
                    ));
                }
            }
        }
        Ok(())
    }

    fn some_agent_fails(&mut self) {
        let index = self.dice.below(self.agents.len());
        let (kind, length) = (self.dice.below(3), self.dice.below(200_000) as i64);
        let now = self.now;
        let agent = &mut self.agents[index];
        match kind {
            0 => agent.reboot(now),
            1 => agent.incarnation = None,
            _ => agent.cut_off_until = now + length,
        }
    }

    /// Checks every invariant that can be checked now, for machines that have changed.
    fn check(&mut self, everything: bool) -> Result<(), AuditFinding> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        for (cell, host) in self.cells.iter_mut().enumerate() {
            if !host.take_changed() && !everything {
                continue;
            }
            let checked = if everything {
                host.machine.check()
            } else {
                host.machine.check_without_reasons()
            };
            checked.map_err(|broken| format!("cell {cell}: {broken}"))?;
        }
        let used = |cell: usize, attempt: AttemptId| {
            let there = || self.agents.iter().filter(|agent| agent.cell == cell);
            // A fast clock reports more than was used. The credited time is bounded by the cell's
            // own clock, which the auditor does not know.
            let honest = there().all(|agent| agent.clock_percent == 100);
            honest.then(|| there().map(|agent| agent.used(self.now, attempt)).sum())
        };
        for (ledger, host) in self.ledgers.iter_mut().enumerate() {
            if !host.take_changed() && !everything {
                continue;
            }
            invariant::check(&host.machine)
                .map_err(|broken| format!("ledger {ledger}: {broken}"))?;
            let shard = u16::try_from(ledger).expect("few ledgers");
            for (number, job) in host.machine.jobs_before(None) {
                self.auditor.check_job(shard, number.0, job, used)?;
            }
        }
        Ok(())
    }
}

fn note(broken: &mut Option<AuditFinding>, result: Result<(), AuditFinding>) {
    if let Err(found) = result {
        broken.get_or_insert(found);
    }
}

fn offer(name: &str, model: &'static str) -> NodeOffer {
    NodeOffer {
        name: name.into(),
        rack: "r".into(),
        model: model.into(),
        gpus: 4,
        uuids: (0..4).map(|device| format!("{name}-{device}").into()).collect(),
        gpu_memory_mib: 80 << 10,
        cpu_milli: 64_000,
        memory_mib: 256 << 10,
        labels: Vec::new(),
        scope: None,
    }
}
