//! A naive model of the ledger.
//!
//! The model shares the ledger's types of commands and refusals and none of its code. It has no
//! lines, intervals or counters: each grant counts its own units, every draw sorts all grants,
//! every budget is summed from everything ever drawn, and due timers are found by looking at
//! everything. It is slow, and simple enough to be obviously correct.

mod account;
mod answer;
mod budget;
mod calendar;
mod capture;
mod charge;
mod check;
mod deadline;
mod draw;
mod grant;
mod hold;
mod movement;
mod price;
mod state;
mod view;

use std::collections::BTreeMap;

use bursar_core::ledger::command::{Command, Envelope, Policy};
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::{Conflict, Refusal, Resource};
use bursar_core::time::Timestamp;

pub use answer::{ModelRefusal, ModelReply, Reply};
pub use calendar::period_around;
pub use state::Micros;
pub use view::{AccountView, BudgetView, DAY_MS, GrantView, HoldView, View, some_context};

use state::{Account, Budget, Grant, Hold, Movement, Shortfall};

/// The naive ledger.
pub struct Model {
    now: i64,
    policy: Policy,
    accounts: Vec<Account>,
    grants: Vec<Grant>,
    holds: Vec<Hold>,
    movements: Vec<Movement>,
    budgets: Vec<Budget>,
    shortfalls: Vec<Shortfall>,
    answers: BTreeMap<u128, Remembered>,
}

/// The stored answer of an idempotency key.
struct Remembered {
    fingerprint: u128,
    answer: Result<Reply, Refusal>,
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Model {
    /// An empty ledger.
    pub fn new() -> Model {
        Model {
            now: Timestamp::MIN.millis(),
            policy: Policy::default(),
            accounts: Vec::new(),
            grants: Vec::new(),
            holds: Vec::new(),
            movements: Vec::new(),
            budgets: Vec::new(),
            shortfalls: Vec::new(),
            answers: BTreeMap::new(),
        }
    }

    /// Runs all timers that are due by `now`, then executes one command.
    pub fn execute(
        &mut self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Command,
    ) -> Result<ModelReply, ModelRefusal> {
        self.advance(now);
        let fresh = |refusal| ModelRefusal { refusal, replayed: false };
        check::fields(command).map_err(fresh)?;
        if let Some(key) = envelope.key
            && let Some(remembered) = self.answers.get(&key)
        {
            if remembered.fingerprint != envelope.fingerprint {
                return Err(fresh(Refusal::IdempotencyKeyReused));
            }
            return match &remembered.answer {
                Ok(reply) => Ok(ModelReply { reply: reply.clone(), replayed: true }),
                Err(refusal) => Err(ModelRefusal { refusal: refusal.clone(), replayed: true }),
            };
        }
        let answer = self.carry_out(envelope.fingerprint, command);
        let keep = match &answer {
            Ok(_) => true,
            Err(refusal) => refusal.is_remembered(),
        };
        if let Some(key) = envelope.key
            && keep
        {
            let remembered =
                Remembered { fingerprint: envelope.fingerprint, answer: answer.clone() };
            self.answers.insert(key, remembered);
        }
        answer.map(|reply| ModelReply { reply, replayed: false }).map_err(fresh)
    }

    fn carry_out(&mut self, fingerprint: u128, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::SetPolicy(policy) => {
                self.policy = *policy;
                Ok(Reply::Done)
            }
            Command::OpenAccount { path, kind, settings } => {
                self.open_account(fingerprint, path, *kind, settings)
            }
            Command::ChangeAccount { path, settings, cleared } => {
                self.change_account(path, settings, *cleared)
            }
            Command::FreezeAccount { path, by_platform } => self.freeze(path, *by_platform),
            Command::UnfreezeAccount { path, by_platform } => self.unfreeze(path, *by_platform),
            Command::IssueGrant(issue) => self.issue_grant(fingerprint, issue),
            Command::RevokeGrant { tenant, grant } => self.revoke_grant(tenant, grant),
            Command::PlaceHold(place) => self.place_hold(fingerprint, place),
            Command::CaptureHold { tenant, hold, usage, seq } => {
                self.capture_hold(tenant, hold, *usage, *seq)
            }
            Command::ExtendHold { tenant, hold, amount, gpu_ms, ttl_ms } => {
                self.extend_hold(tenant, hold, *amount, *gpu_ms, *ttl_ms)
            }
            Command::SettleHold { tenant, hold, usage, cause } => {
                self.settle_hold(tenant, hold, *usage, *cause)
            }
            Command::ReleaseHold { tenant, hold, cause } => self.release_hold(tenant, hold, *cause),
            Command::Charge(charge) => self.charge(fingerprint, charge),
            Command::Refund(refund) => self.refund(fingerprint, refund),
            Command::Transfer(transfer) => self.transfer(fingerprint, transfer),
            Command::CollectUncollected { path, id } => self.collect(fingerprint, path, id),
            Command::SetBudget { path, budget, terms } => self.set_budget(path, budget, terms),
            Command::RemoveBudget { path, budget } => self.remove_budget(path, budget),
            // The model never forgets, so no record can be of a forgotten hold.
            Command::RestoreHold { .. } => Err(Refusal::Conflict(Conflict::RecordMismatch)),
            // The model never forgets.
            Command::Forget(_) => Ok(Reply::Done),
            // The model has no cells and therefore no jobs.
            Command::OpenRegion { .. }
            | Command::SetQuota { .. }
            | Command::RemoveQuota { .. }
            | Command::SubmitJob(_)
            | Command::CancelJob { .. }
            | Command::ReportUsage { .. }
            | Command::Receive { .. } => {
                Err(Refusal::NotFound { what: Resource::Region, name: Name::default() })
            }
            Command::KeepBatch { aborted: None } => Ok(Reply::Done),
            Command::KeepBatch { aborted: Some(answer) } => {
                Err(Refusal::BatchAborted { answer: answer.clone() })
            }
        }
    }
}
