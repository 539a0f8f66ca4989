//! The ledger and the model, side by side.

mod answers;
mod views;

use bursar_core::digest::Digest;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::reply::{Accepted, Refused};
use bursar_core::ledger::{Event, Ledger, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;

use crate::generate::Step;
use crate::model::{Model, ModelRefusal, ModelReply, Reply as ModelAnswer};

/// How often everything is compared and all laws are checked, in steps.
const EVERYTHING_EVERY: usize = 10;
/// How far apart the commands are on average that are carried out and taken back together.
const APART: u128 = 47;

/// Both of them, and everything that has happened.
pub struct Pair {
    /// The ledger.
    pub ledger: Ledger,
    /// The model.
    pub model: Model,
    journal: Vec<(Timestamp, Event)>,
    past: Vec<Step>,
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}

/// What the ledger answered.
pub type Given = Result<Accepted, Refused>;

/// An answer in a word: `ok`, or the code of the refusal, or that it was given before.
pub type Code = &'static str;

/// An answer in a word.
pub fn code_of(given: &Given) -> Code {
    match given {
        Ok(accepted) if accepted.replayed => "replayed",
        Ok(_) => "ok",
        Err(refused) if refused.replayed => "replayed refusal",
        Err(refused) => refused.refusal.code(),
    }
}

impl Pair {
    /// Two empty ledgers.
    pub fn new() -> Pair {
        Pair { ledger: Ledger::new(), model: Model::new(), journal: Vec::new(), past: Vec::new() }
    }

    /// Gives a command to both, and says how they differ if they do.
    pub fn run(&mut self, step: &Step) -> Result<Given, String> {
        let Pair { ledger, journal, .. } = self;
        advance(ledger, step.now, |at, events| {
            journal.extend(events.iter().map(|event| (at, event.clone())));
        });
        self.rehearse(step)?;
        let Pair { ledger, .. } = self;
        let mut events = Vec::new();
        ledger.begin_group();
        let answer = execute(ledger, step.now, &step.envelope, &step.command, &mut events);
        ledger.commit_group();
        let expected = self.model.execute(step.now, &step.envelope, &step.command);
        self.compare_answers(&answer, &expected)?;
        if answer.is_err() {
            refused_means_unchanged(&events)?;
        }
        let at = step.now;
        self.journal.extend(events.into_iter().map(|event| (at, event)));
        if self.past.len().is_multiple_of(EVERYTHING_EVERY) {
            self.compare_everything()?;
        } else {
            self.compare_touched(&expected)?;
        }
        Ok(answer)
    }

    /// Now and then carries out a few commands and takes them back: nothing may remain of them.
    fn rehearse(&mut self, step: &Step) -> Result<(), String> {
        self.past.push(step.clone());
        // Chosen by what is asked and not by when, so that a shorter way to a difference does the
        // same.
        let print = step.envelope.fingerprint;
        if !print.is_multiple_of(rehearsed_every(&step.command)) {
            return Ok(());
        }
        let before = self.ledger.digest();
        self.ledger.begin_group();
        let is_chosen = |past: &&Step| (past.envelope.fingerprint ^ print).is_multiple_of(APART);
        for Step { envelope, command, .. } in self.past.iter().rev().filter(is_chosen) {
            let _ = execute(&mut self.ledger, step.now, envelope, command, &mut Vec::new());
        }
        self.ledger.rollback_group();
        same("digest after a rollback", &self.ledger.digest(), &before)
    }

    /// Everything that has happened in the ledger.
    pub fn journal(&self) -> &[(Timestamp, Event)] {
        &self.journal
    }

    /// Compares everything, and replays all that has happened into an empty ledger (L11).
    pub fn finish(&self) -> Result<(), String> {
        self.compare_everything()?;
        let replayed = self.replay();
        same("digest after replay", &replayed, &self.ledger.digest())
    }

    fn replay(&self) -> Digest {
        let mut replica = Ledger::new();
        for (at, event) in &self.journal {
            replica.apply(*at, event);
        }
        replica.digest()
    }

    /// Compares what the command spoke of.
    fn compare_touched(&self, expected: &Result<ModelReply, ModelRefusal>) -> Result<(), String> {
        let Ok(expected) = expected else { return Ok(()) };
        match &expected.reply {
            ModelAnswer::Grant { grant, .. } => self.compare_grant(*grant),
            ModelAnswer::Hold { hold, .. } | ModelAnswer::Charge { hold, .. } => {
                self.compare_hold(*hold)?;
                let grants = self.model.hold_view(*hold).lots;
                grants.into_iter().try_for_each(|(grant, _)| self.compare_grant(grant))?;
                self.compare_budgets()
            }
            ModelAnswer::Movement { what, name, .. } => {
                let tenants = self.model.tenants();
                for tenant in &tenants {
                    let grants = self.model.moved_lots(*what, tenant, name);
                    grants.into_keys().try_for_each(|grant| self.compare_grant(grant))?;
                }
                self.compare_budgets()
            }
            ModelAnswer::Budget { .. } => self.compare_budgets(),
            ModelAnswer::Account { .. } | ModelAnswer::Done => Ok(()),
        }
    }

    fn compare_everything(&self) -> Result<(), String> {
        self.model.audit();
        (0..self.model.account_count()).try_for_each(|account| self.compare_account(account))?;
        (0..self.model.grant_count()).try_for_each(|grant| self.compare_grant(grant))?;
        (0..self.model.hold_count()).try_for_each(|hold| self.compare_hold(hold))?;
        self.compare_budgets()?;
        invariant::check(&self.ledger).map_err(|violation| violation.to_string())
    }
}

/// How often a command is taken back before it is carried out for good: one in so many. Rare
/// commands more often, because digests are slow.
fn rehearsed_every(command: &Command) -> u128 {
    match command {
        Command::RevokeGrant { .. } | Command::RemoveBudget { .. } => 3,
        Command::Refund(_)
        | Command::Transfer(_)
        | Command::CollectUncollected { .. }
        | Command::SettleHold { .. }
        | Command::ReleaseHold { .. }
        | Command::SetBudget { .. } => 10,
        Command::SetPolicy(_)
        | Command::OpenAccount { .. }
        | Command::ChangeAccount { .. }
        | Command::FreezeAccount { .. }
        | Command::UnfreezeAccount { .. }
        | Command::IssueGrant(_)
        | Command::PlaceHold(_)
        | Command::CaptureHold { .. }
        | Command::ExtendHold { .. }
        | Command::Charge(_)
        | Command::ReviveHold { .. }
        | Command::OpenRegion { .. }
        | Command::SetQuota { .. }
        | Command::RemoveQuota { .. }
        | Command::SubmitJob(_)
        | Command::CancelJob { .. }
        | Command::ReportUsage { .. }
        | Command::Receive { .. }
        | Command::KeepBatch { .. } => 45,
    }
}

/// A refusal may be written down, and nothing else.
fn refused_means_unchanged(events: &[Event]) -> Result<(), String> {
    let is_record =
        |event: &&Event| matches!(event, Event::Answered { .. } | Event::CreditsDenied { .. });
    match events.iter().find(|event| !is_record(event)) {
        None => Ok(()),
        Some(event) => Err(format!("a refused command did something: {event:?}")),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ledger: &T, model: &T) -> Result<(), String> {
    if ledger == model {
        Ok(())
    } else {
        Err(format!("{what}:\n  ledger {ledger:?}\n  model  {model:?}"))
    }
}
