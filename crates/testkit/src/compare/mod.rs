//! Runs the ledger and the model side by side.

mod answers;
mod views;

use bursar_core::digest::Digest;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::reply::{Accepted, Refused};
use bursar_core::ledger::{Event, Ledger, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;

use crate::generate::TimedCommand;
use crate::model::{Model, ModelRefusal, ModelReply, Reply as ModelAnswer};

/// The number of steps between full comparisons and checks of all invariants.
const EVERYTHING_EVERY: usize = 10;
/// One past command in this many, on average, is executed again before a rollback.
const ROLLBACK_SAMPLE: u128 = 47;

/// The ledger, the model, and all events.
pub struct Pair {
    /// The ledger.
    pub ledger: Ledger,
    /// The model.
    pub model: Model,
    journal: Vec<(Timestamp, Event)>,
    past: Vec<TimedCommand>,
}

impl Default for Pair {
    fn default() -> Pair {
        Pair::new()
    }
}

/// The answer of the ledger.
pub type Given = Result<Accepted, Refused>;

/// An answer as one word: `ok`, the code of the refusal, or that it was replayed.
pub type Code = &'static str;

/// Returns the code of an answer.
pub fn code_of(given: &Given) -> Code {
    match given {
        Ok(accepted) if accepted.replayed => "replayed",
        Ok(_) => "ok",
        Err(refused) if refused.replayed => "replayed refusal",
        Err(refused) => refused.refusal.code(),
    }
}

impl Pair {
    /// An empty ledger and an empty model.
    pub fn new() -> Pair {
        Pair { ledger: Ledger::new(), model: Model::new(), journal: Vec::new(), past: Vec::new() }
    }

    /// Runs a command on both. Returns a description of the difference if they differ.
    pub fn run(&mut self, step: &TimedCommand) -> Result<Given, String> {
        let Pair { ledger, journal, .. } = self;
        advance(ledger, step.now, |at, events| {
            journal.extend(events.iter().map(|event| (at, event.clone())));
        });
        self.check_rollback(step)?;
        let Pair { ledger, .. } = self;
        let mut events = Vec::new();
        ledger.begin_group();
        let answer = execute(ledger, step.now, &step.envelope, &step.command, &mut events);
        ledger.commit_group();
        let expected = self.model.execute(step.now, &step.envelope, &step.command);
        self.compare_answers(&answer, &expected)?;
        if answer.is_err() {
            check_refused_without_effect(&events)?;
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

    /// For some commands, executes several past commands and rolls them back. No effect may remain.
    fn check_rollback(&mut self, step: &TimedCommand) -> Result<(), String> {
        self.past.push(step.clone());
        // Chosen by the command and not by the step, so that a shrunk sequence makes the same
        // choices.
        let fingerprint = step.envelope.fingerprint;
        if !fingerprint.is_multiple_of(rollback_interval(&step.command)) {
            return Ok(());
        }
        let before = self.ledger.digest();
        self.ledger.begin_group();
        let is_chosen = |past: &&TimedCommand| {
            (past.envelope.fingerprint ^ fingerprint).is_multiple_of(ROLLBACK_SAMPLE)
        };
        for TimedCommand { envelope, command, .. } in self.past.iter().rev().filter(is_chosen) {
            let _ = execute(&mut self.ledger, step.now, envelope, command, &mut Vec::new());
        }
        self.ledger.rollback_group();
        same("digest after a rollback", &self.ledger.digest(), &before)
    }

    /// All events of the ledger.
    pub fn journal(&self) -> &[(Timestamp, Event)] {
        &self.journal
    }

    /// Compares everything, and replays all events into an empty ledger (L11).
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

    /// Compares the subjects of the command.
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

/// A rollback is checked before one in this many commands of a kind. Rare commands have lower
/// numbers, because digests are slow.
fn rollback_interval(command: &Command) -> u128 {
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
        | Command::RestoreHold { .. }
        | Command::Forget(_)
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

/// Checks that a refused command left no event other than a record of the refusal.
fn check_refused_without_effect(events: &[Event]) -> Result<(), String> {
    let is_record =
        |event: &&Event| matches!(event, Event::Answered { .. } | Event::CreditsDenied { .. });
    match events.iter().find(|event| !is_record(event)) {
        None => Ok(()),
        Some(event) => Err(format!("a refused command has an effect: {event:?}")),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ledger: &T, model: &T) -> Result<(), String> {
    if ledger == model {
        Ok(())
    } else {
        Err(format!("{what}:\n  ledger {ledger:?}\n  model  {model:?}"))
    }
}
