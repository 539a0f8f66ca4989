//! Messages between this cell and the ledgers.
//!
//! A message from a ledger is a command. The mark of the last message taken from a ledger advances
//! in the same decision as the effect. Messages to ledgers are derived from the events of one
//! decision in one place, so that none is missing and every number is used once.

use std::collections::{BTreeMap, BTreeSet};

use bursar_seeded::{Bug, seeded};

use super::command::{Command, Origin, Refusal};
use super::event::{Event, JobOutcome};
use super::ids::{AttemptId, JobId};
use super::jobs::attempt::AttemptNodePhase;
use super::nodes::node::NodeId;
use super::nodes::owner::NodeKey;
use super::state::Cell;
use crate::message::{Mark, ProposedNode, ToCell, ToLedger};

impl From<ToCell> for Command {
    fn from(message: ToCell) -> Command {
        match message {
            ToCell::AccountPolicyChanged(policy) => Command::SetAccount(*policy),
            ToCell::JobAdmitted(spec) => Command::AdmitJob(*spec),
            ToCell::PlacementConfirmed { attempt, price, funded_ms } => {
                Command::ConfirmPlacement { attempt, price, funded_ms }
            }
            ToCell::PlacementRefused { attempt, verdict } => {
                Command::RefusePlacement { attempt, verdict }
            }
            ToCell::FundingChanged { attempt, funded_ms } => {
                Command::SetFunding { attempt, funded_ms }
            }
            ToCell::FundsRefused { attempt } => Command::RefuseFunding { attempt },
            ToCell::CancelRequested { job } => Command::CancelJob { job },
            ToCell::JobWithdrawn { job } => Command::WithdrawJob { job },
        }
    }
}

/// Whether a command has to be decided.
pub(crate) enum Receipt {
    /// The message is new.
    Taken,
    /// It was decided before.
    Duplicate,
}

/// Messages of one decision, in the order in which they are sent.
#[derive(Default)]
struct Outgoing {
    started: Vec<(u16, ToLedger)>,
    /// One message to each shard, for any number of attempts.
    usage: BTreeMap<u16, Vec<(AttemptId, u64)>>,
    rest: Vec<(u16, ToLedger)>,
    /// Lost nodes and attempts that ended on a node, by events that are not applied yet.
    gone: BTreeSet<NodeId>,
    ended: BTreeSet<(AttemptId, NodeId)>,
    /// Fences lifted by these events.
    lifted: BTreeMap<JobId, u32>,
}

impl Outgoing {
    fn push(&mut self, job: JobId, message: ToLedger) {
        self.rest.push((job.shard(), message));
    }

    /// Starts first, then usage, then messages that may be ends.
    fn in_order(self) -> impl Iterator<Item = (u16, ToLedger)> {
        let usage = self.usage.into_iter();
        let usage = usage.map(|(shard, usage)| (shard, ToLedger::UsageMetered(usage)));
        self.started.into_iter().chain(usage).chain(self.rest)
    }
}

impl Cell {
    /// The last message taken from a ledger shard.
    pub fn mark(&self, shard: u16) -> Mark {
        self.marks.get(&shard).copied().unwrap_or_default()
    }

    /// The number of the last message to a ledger shard.
    pub fn last_message_to(&self, shard: u16) -> u64 {
        self.sent.get(&shard).copied().unwrap_or(0)
    }

    /// Records the receipt of a message, even if its command is refused: it must not be decided
    /// again.
    pub(crate) fn decide_receipt(
        &self,
        origin: &Origin,
        events: &mut Vec<Event>,
    ) -> Result<Receipt, Refusal> {
        let Origin::Ledger { shard, number, position } = *origin else {
            return Ok(Receipt::Taken);
        };
        let expected = self.mark(shard).number + 1;
        if number < expected && !seeded(Bug::TakesMessageTwice) {
            return Ok(Receipt::Duplicate);
        }
        if number > expected {
            return Err(Refusal::MessageGap { expected });
        }
        events.push(Event::MessageReceived { shard, number, position });
        Ok(Receipt::Taken)
    }

    /// Adds the messages to ledgers that follow from the events from `first` on, which are not
    /// applied yet.
    pub(crate) fn send_to_ledgers(&self, first: usize, events: &mut Vec<Event>) {
        let mut outgoing = Outgoing::default();
        for event in &events[first..] {
            self.add_message(event, &mut outgoing);
        }
        let mut numbers: BTreeMap<u16, u64> = BTreeMap::new();
        events.extend(outgoing.in_order().map(|(shard, message)| {
            let number = numbers.entry(shard).or_insert_with(|| self.last_message_to(shard));
            *number += 1;
            Event::LedgerMessageSent { shard, number: *number, message: Box::new(message) }
        }));
    }

    /// Whether parts of an attempt may still run after it has ended.
    fn leaves_fences(&self, attempt: AttemptId, outgoing: &Outgoing) -> bool {
        let (_, live) = self.live(attempt).expect("only live attempts end");
        live.confirmed
            && !seeded(Bug::SkipsFence)
            && live.nodes.iter().any(|on_node| {
                !matches!(on_node.phase, AttemptNodePhase::Ended(_))
                    && !outgoing.ended.contains(&(attempt, on_node.node))
                    && !outgoing.gone.contains(&on_node.node)
                    && self.inventory.node(on_node.node).alive
            })
    }

    /// Sends the end of an attempt that was withheld.
    fn send_end(&self, job: JobId, outgoing: &mut Outgoing) {
        let Some(end) = self.jobs.get(&job).and_then(|job| job.unsent_end.as_deref()) else {
            return;
        };
        outgoing.push(
            job,
            ToLedger::AttemptEnded {
                attempt: end.attempt,
                outcome: end.outcome,
                gpu_ms: end.gpu_ms,
                exit_code: end.exit_code,
                requeued: end.requeued,
            },
        );
    }

    fn add_message(&self, event: &Event, outgoing: &mut Outgoing) {
        match event {
            Event::PlacementProposed { attempt, model, placements } => {
                let gpu_type = model.map(|model| self.models.get(model).clone());
                let nodes = placements.iter().map(|placement| ProposedNode {
                    node: NodeKey::of(&self.inventory.node(placement.node).offer).full(),
                    // A node has at most 64 devices.
                    gpus: placement.gpus.len() as u16,
                });
                let (attempt, nodes) = (*attempt, nodes.collect());
                let message = ToLedger::PlacementProposed { attempt, gpu_type, nodes };
                outgoing.push(attempt.job, message);
            }
            Event::AttemptStartedOnNode { attempt, node: _ } => {
                let live = self.live(*attempt);
                if live.is_some_and(|(_, live)| live.running_since.is_none()) {
                    let message = ToLedger::AttemptStarted { attempt: *attempt };
                    outgoing.started.push((attempt.job.shard(), message));
                }
            }
            Event::UsageMetered { node, usage } => {
                for (attempt, gpu_ms) in usage {
                    let (_, live) = self.live(*attempt).expect("only live attempts are metered");
                    let total = live.gpu_ms_with(*node, *gpu_ms);
                    let shard = outgoing.usage.entry(attempt.job.shard()).or_default();
                    shard.push((*attempt, total));
                }
            }
            Event::FundsNeeded { attempt } => {
                outgoing.push(attempt.job, ToLedger::FundsNeeded { attempt: *attempt });
            }
            Event::StopOrdered { attempt, reason, kill_at: _ } => {
                let (attempt, reason) = (*attempt, *reason);
                outgoing.push(attempt.job, ToLedger::StopOrdered { attempt, reason });
            }
            Event::AttemptEnded { attempt, outcome, gpu_ms, exit_code, requeued } => {
                // After the end of a requeued job's attempt the ledger may start the job elsewhere.
                if requeued.is_none() || !self.leaves_fences(*attempt, outgoing) {
                    outgoing.push(
                        attempt.job,
                        ToLedger::AttemptEnded {
                            attempt: *attempt,
                            outcome: *outcome,
                            gpu_ms: *gpu_ms,
                            exit_code: *exit_code,
                            requeued: *requeued,
                        },
                    );
                }
            }
            Event::FenceLifted { attempt, node: _ } => {
                let lifted = outgoing.lifted.entry(attempt.job).or_default();
                *lifted += 1;
                if self.fences.get(&attempt.job) == Some(lifted) {
                    self.send_end(attempt.job, outgoing);
                }
            }
            Event::NodeLost { node } | Event::NodeRemoved { node } => {
                outgoing.gone.insert(*node);
            }
            Event::AttemptEndedOnNode { attempt, node, .. } => {
                outgoing.ended.insert((*attempt, *node));
            }
            Event::JobEnded { job, outcome } => {
                let fences = self.fences.get(job).copied().unwrap_or(0);
                if fences > outgoing.lifted.get(job).copied().unwrap_or(0) {
                    // The job will not start again, so its attempt's end need not be withheld.
                    self.send_end(*job, outgoing);
                }
                if *outcome != JobOutcome::Withdrawn {
                    outgoing.push(*job, ToLedger::JobEnded { job: *job, outcome: *outcome });
                }
            }
            Event::MessageReceived { .. }
            | Event::LedgerMessageSent { .. }
            | Event::Configured(_)
            | Event::PriceSet { .. }
            | Event::ClassSet { .. }
            | Event::AccountSet(_)
            | Event::NodeRegistered { .. }
            | Event::NodeReported { .. }
            | Event::NodeDrained { .. }
            | Event::NodeResumed { .. }
            | Event::MaintenancePlanned { .. }
            | Event::MaintenanceBegan { .. }
            | Event::MaintenanceEnded { .. }
            | Event::JobQueued(_)
            | Event::JobFunded { .. }
            | Event::JobReleased { .. }
            | Event::JobHeldByGroup { .. }
            | Event::PlacementConfirmed { .. }
            | Event::PlacementRefused { .. }
            | Event::FundingSet { .. }
            | Event::FundingEnded { .. }
            | Event::CancelNoted { .. }
            | Event::KillOrdered { .. }
            | Event::RequestParked { .. }
            | Event::RequestBlocked { .. }
            | Event::ReservationMade { .. }
            | Event::ReservationKept { .. }
            | Event::ReservationsDone { .. }
            | Event::ReservationDropped { .. }
            | Event::ReviewBegan
            | Event::ReviewPassed { .. }
            | Event::PassEnded
            | Event::RequestDone { .. }
            | Event::AnswerKept { .. }
            | Event::RequestsForgotten { .. }
            | Event::SetAside { .. }
            | Event::Rewound { .. }
            | Event::NodeCleared { .. } => {}
        }
    }
}

impl Cell {
    /// The shards that this cell has received messages from or sent messages to.
    pub fn ledgers(&self) -> BTreeSet<u16> {
        self.marks.keys().chain(self.sent.keys()).copied().collect()
    }
}
