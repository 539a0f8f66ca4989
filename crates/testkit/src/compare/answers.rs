//! Compares answers, with numbers translated to names.

use std::collections::BTreeMap;

use bursar_core::credits::Credits;
use bursar_core::ledger::refusal::{Blocker, Refusal};
use bursar_core::ledger::reply::{Accepted, Refused, Reply};
use bursar_core::ledger::state::Movement;
use bursar_core::time::Timestamp;

use super::{Pair, same};
use crate::model::{Micros, ModelRefusal, ModelReply, Reply as ModelAnswer};

impl Pair {
    pub(super) fn compare_answers(
        &self,
        answer: &Result<Accepted, Refused>,
        expected: &Result<ModelReply, ModelRefusal>,
    ) -> Result<(), String> {
        match (answer, expected) {
            (Ok(answer), Ok(expected)) => {
                same("replayed", &answer.replayed, &expected.replayed)?;
                self.compare_reply(&answer.reply, &expected.reply)
            }
            (Err(answer), Err(expected)) => {
                same("replayed", &answer.replayed, &expected.replayed)?;
                compare_refusal(&answer.refusal, &expected.refusal)
            }
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => {
                Err(format!("answer: ledger {answer:?}, model {expected:?}"))
            }
        }
    }

    fn compare_reply(&self, reply: &Reply, expected: &ModelAnswer) -> Result<(), String> {
        let translated = match reply {
            Reply::Jobs { .. } | Reply::Job { .. } | Reply::Region(_) | Reply::Received { .. } => {
                return Err("the model has no jobs".into());
            }
            Reply::Archived(_) => return Err("the model forgets nothing".into()),
            Reply::Done => ModelAnswer::Done,
            Reply::Account(reply) => {
                ModelAnswer::Account { path: self.ledger.account(reply.account).path.clone() }
            }
            Reply::Grant { grant, parts } => {
                ModelAnswer::Grant { grant: grant.index(), parts: parts.map(Micros::from) }
            }
            Reply::Hold(hold) => ModelAnswer::Hold {
                hold: hold.hold.index(),
                state: hold.state,
                amount: micros(hold.amount),
                captured: micros(hold.captured),
                uncollected: micros(hold.uncollected),
                expires_at: hold.expires_at.map(Timestamp::millis),
            },
            Reply::Charge { hold, requested, charged, spendable_after } => ModelAnswer::Charge {
                hold: hold.index(),
                requested: micros(*requested),
                charged: micros(*charged),
                spendable_after: *spendable_after,
            },
            Reply::Movement { movement, amount } => {
                let made = self.ledger.movement(*movement);
                let made = made.ok_or("the answer names an unknown movement")?;
                let (what, name) = (made.what, made.movement.id.clone());
                self.compare_movement(made)?;
                ModelAnswer::Movement { what, name, amount: micros(*amount) }
            }
            Reply::Budget(reply) => ModelAnswer::Budget {
                account: self.ledger.account(reply.account).path.clone(),
                budget: reply.budget.clone(),
            },
        };
        same("reply", &translated, expected)
    }

    fn compare_movement(&self, made: &Movement) -> Result<(), String> {
        let mut lots: BTreeMap<usize, Micros> = BTreeMap::new();
        for lot in self.ledger.lots(made.movement.pieces.iter().copied()) {
            *lots.entry(lot.grant.index()).or_default() += Micros::from(lot.amount);
        }
        let tenant = &self.ledger.account(made.tenant).path;
        let mut expected = self.model.moved_lots(made.what, tenant, &made.movement.id);
        expected.retain(|_, units| *units > 0);
        same("lots of a movement", &lots, &expected)
    }
}

/// Compares refusals. An invalid field may differ; blockers are compared as a set.
fn compare_refusal(refusal: &Refusal, expected: &Refusal) -> Result<(), String> {
    same("code", &refusal.code(), &expected.code())?;
    if let Refusal::InvalidField { .. } = refusal {
        return Ok(());
    }
    same("refusal", &in_order(refusal), &in_order(expected))
}

fn in_order(refusal: &Refusal) -> Refusal {
    let mut refusal = refusal.clone();
    let blockers: &mut Vec<Blocker> = match &mut refusal {
        Refusal::AccountFrozen { blockers }
        | Refusal::QuotaExceeded { blockers }
        | Refusal::InsufficientCredits { blockers }
        | Refusal::BudgetExceeded { blockers } => blockers,
        Refusal::InvalidField { .. }
        | Refusal::IdempotencyKeyReused
        | Refusal::NotFound { .. }
        | Refusal::AlreadyExists { .. }
        | Refusal::TooLate { .. }
        | Refusal::HoldClosed { .. }
        | Refusal::SequenceConflict { .. }
        | Refusal::Conflict(_)
        | Refusal::FrozenByPlatform { .. }
        | Refusal::Forgotten { .. }
        | Refusal::BatchAborted { .. } => return refusal,
    };
    blockers.sort_by_key(|blocker| format!("{blocker:?}"));
    refusal
}

pub(super) fn micros(amount: Credits) -> Micros {
    amount.micros().into()
}
