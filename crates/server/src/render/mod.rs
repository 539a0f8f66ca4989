//! Renders the ledger's state for the API.

mod accounts;
pub(crate) mod blockers;
mod grants;
mod holds;
pub(crate) mod job;
mod movements;
pub(crate) mod preemption;
pub(crate) mod waiting;

use bursar_api::Time;
use bursar_api::accounts::account;
use bursar_api::amount::Sum;
use bursar_api::credits::{charge, hold};
use bursar_core::credits::Credits;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::MovementNote;
use bursar_core::ledger::event::credits_of;
use bursar_core::ledger::holds::archive::{ArchivedName, RecalledRecord};
use bursar_core::ledger::holds::hold::{Hold, HoldKind};
use bursar_core::ledger::id::Name;
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::reply::Reply;
use bursar_core::ledger::state::Movement;
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;
use fefo::Part;
use serde::Serialize;
use serde_json::Value;

pub use grants::{asked_grant_kind, by_kind, grant, grant_kind};
pub use movements::{past_refund, past_transfer};
use movements::{refund, transfer};

use crate::ids::attempt::AttemptIds;
pub use accounts::{account, budget};
use accounts::{account_as, budget_as};
pub use holds::{MAX_LOTS, archived_hold, charge, hold, hold_state, lot};
use holds::{hold_as, lots, returned};

/// The most returned lots in an answer. Usually all of them, so that they add up.
const MAX_RETURNED: usize = 1000;

/// The form of the answer to a change.
#[derive(Clone, Debug)]
pub enum AnswerShape {
    /// No body: 204.
    Nothing,
    /// The account.
    Account,
    /// The grant.
    Grant {
        /// Whether the request revokes it.
        revoked: bool,
    },
    /// The hold, with the returned lots if the request closes it.
    Hold {
        /// Whether the request closes it.
        closing: bool,
    },
    /// The charge.
    Charge,
    /// The refund.
    Refund {
        /// The refunded hold, charge or job.
        of: (Resource, Name),
        /// Reason and reference of the refund.
        note: Option<Box<MovementNote>>,
    },
    /// The transfer.
    Transfer {
        /// The account whose grants were drawn.
        from: AccountPath,
        /// The account that received them.
        to: AccountPath,
        /// Reason and reference of the transfer.
        note: Option<Box<MovementNote>>,
    },
    /// The collection.
    Collection {
        /// The account.
        account: AccountPath,
    },
    /// The budget.
    Budget,
    /// The job, or the first of an array.
    Job(AttemptIds),
    /// The quota as it was set.
    Quota(Box<bursar_api::accounts::quota::Quota>),
}

/// Converts an instant.
pub fn time(at: Timestamp) -> Time {
    Time::from_millis(at.millis())
}

fn sum(credits: Credits) -> Sum {
    Sum::from_micros(credits.micros().into())
}

fn units(length: u64) -> Sum {
    Sum::from_micros(length.into())
}

fn value(body: impl Serialize) -> Value {
    serde_json::to_value(body).expect("the bodies have only plain fields and string keys")
}

/// The body of an answer before serialization. The most frequent ones are not converted into a JSON
/// tree.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum AnswerBody {
    /// A hold.
    Hold(Box<hold::Hold>),
    /// A charge.
    Charge(Box<charge::Charge>),
    /// Any other body.
    Other(Value),
}

impl AnswerBody {
    /// Appends the body as JSON to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            AnswerBody::Hold(hold) => serde_json::to_writer(out, hold),
            AnswerBody::Charge(charge) => serde_json::to_writer(out, charge),
            AnswerBody::Other(value) => serde_json::to_writer(out, value),
        }
        .expect("the bodies have only plain fields and string keys");
    }
}

/// The body of an accepted change.
pub fn reply(ledger: &Ledger, reply: &Reply, shape: &AnswerShape) -> AnswerBody {
    let shown = match (reply, shape) {
        (Reply::Hold(reply), AnswerShape::Hold { closing }) => {
            let own = ledger.hold(reply.hold);
            own.map(|own| AnswerBody::Hold(Box::new(hold_as(ledger, own, reply, *closing))))
        }
        (Reply::Charge { hold, requested, charged, spendable_after }, AnswerShape::Charge) => {
            let made = ledger.hold(*hold);
            made.map(|made| charge_as(ledger, made, (*requested, *charged), *spendable_after))
        }
        (Reply::Archived(record), shape) => archived_reply(ledger, record, shape),
        (other, shape) => Some(AnswerBody::Other(other_reply(ledger, other, shape))),
    };
    shown.unwrap_or(AnswerBody::Other(Value::Null))
}

/// The body of an answer that the archive has. What it shows is in the ledger under its name, or comes with it.
pub fn archived_answer(
    ledger: &Ledger,
    replied: &Reply,
    (of, shown): (&ArchivedName, &[RecalledRecord]),
    shape: &AnswerShape,
) -> AnswerBody {
    let ArchivedName { what, tenant, name } = of;
    let hold_of = |kind| {
        let number = ledger.find_hold(*tenant, kind, name);
        let recalled = shown.iter().find_map(|record| match record {
            RecalledRecord::Hold(record) => Some(&record.hold),
            RecalledRecord::Movement(_) => None,
        });
        number.and_then(|number| ledger.hold(number)).or(recalled)
    };
    let body = match (replied, shape) {
        (Reply::Hold(replied), AnswerShape::Hold { closing }) => hold_of(HoldKind::Hold)
            .map(|own| AnswerBody::Hold(Box::new(hold_as(ledger, own, replied, *closing)))),
        (Reply::Charge { requested, charged, spendable_after, .. }, AnswerShape::Charge) => {
            let own = hold_of(HoldKind::Charge);
            own.map(|own| charge_as(ledger, own, (*requested, *charged), *spendable_after))
        }
        (Reply::Movement { amount, .. }, shape) => {
            let number = ledger.find_movement(*tenant, *what, name);
            let made = number.and_then(|number| ledger.movement(number).map(|made| (number, made)));
            let body = match (made, shown.first()) {
                (Some((number, made)), _) => {
                    Some(movement(ledger, made, ledger.refund_parts(number), *amount, shape))
                }
                (None, Some(RecalledRecord::Movement(parts))) => {
                    parts.first().map(|made| movement(ledger, made, parts.iter(), *amount, shape))
                }
                (None, Some(RecalledRecord::Hold(_)) | None) => None,
            };
            body.map(AnswerBody::Other)
        }
        (replied, shape) => Some(reply(ledger, replied, shape)),
    };
    body.unwrap_or(AnswerBody::Other(Value::Null))
}

fn charge_as(
    ledger: &Ledger,
    own: &Hold,
    (requested, charged): (Credits, Credits),
    spendable_after: i128,
) -> AnswerBody {
    let mut shown = charge(ledger, own);
    shown.requested = sum(requested);
    shown.charged = sum(charged);
    shown.spendable_after = Sum::from_micros(spendable_after);
    AnswerBody::Charge(Box::new(shown))
}

/// The body of an answer about something that the ledger has forgotten.
fn archived_reply(
    ledger: &Ledger,
    record: &RecalledRecord,
    shape: &AnswerShape,
) -> Option<AnswerBody> {
    match record {
        RecalledRecord::Hold(record) => match shape {
            AnswerShape::Charge => Some(AnswerBody::Charge(Box::new(charge(ledger, &record.hold)))),
            AnswerShape::Hold { closing } => {
                let mut shown = archived_hold(ledger, &record.hold);
                if *closing {
                    show_returned(ledger, &record.hold, &mut shown);
                }
                Some(AnswerBody::Hold(Box::new(shown)))
            }
            AnswerShape::Nothing
            | AnswerShape::Account
            | AnswerShape::Grant { .. }
            | AnswerShape::Refund { .. }
            | AnswerShape::Transfer { .. }
            | AnswerShape::Collection { .. }
            | AnswerShape::Budget
            | AnswerShape::Job(_)
            | AnswerShape::Quota(_) => None,
        },
        RecalledRecord::Movement(parts) => {
            let amount = credits_of(parts.iter().map(|part| &part.movement.pieces));
            Some(AnswerBody::Other(movement(ledger, parts.first()?, parts.iter(), amount, shape)))
        }
    }
}

/// Adds the lots that a closed hold returned.
fn show_returned(ledger: &Ledger, own: &Hold, shown: &mut hold::Hold) {
    let lots = ledger.returned_lots(own);
    shown.returned_truncated = lots.len() > MAX_RETURNED;
    let lots = lots.into_iter().take(MAX_RETURNED);
    shown.returned = Some(lots.map(|lot| returned(ledger, lot)).collect());
}

fn other_reply(ledger: &Ledger, reply: &Reply, shape: &AnswerShape) -> Value {
    match (reply, shape) {
        (Reply::Account(reply), AnswerShape::Account) => value(account_as(
            ledger,
            reply.account,
            &reply.settings,
            (reply.frozen, reply.uncollected),
        )),
        (Reply::Grant { grant: number, parts }, AnswerShape::Grant { revoked }) => {
            let mut shown = grant(ledger, *number, parts);
            // A repeated first answer does not show a later revocation.
            let taken = parts[Part::Revoked as usize] > 0;
            shown.is_revoked = *revoked || (shown.is_revoked && taken);
            value(shown)
        }
        (Reply::Movement { movement, amount }, shape) => {
            movement_reply(ledger, *movement, *amount, shape)
        }
        (Reply::Budget(reply), AnswerShape::Budget) => value(budget_as(ledger, reply)),
        (Reply::Jobs { first, count: _ }, AnswerShape::Job(ids)) => {
            let mut shown = job::submitted(ids, ledger, *first);
            if let Some(shown) = &mut shown {
                shown.array = job::array(shown);
            }
            shown.map_or(Value::Null, value)
        }
        (Reply::Job { job, state }, AnswerShape::Job(ids)) => {
            let shown = job::job(ids, ledger, *job).map(|mut shown| {
                shown.state = job::state(*state);
                shown.array = job::array(&shown);
                at(ledger, shown)
            });
            shown.map_or(Value::Null, value)
        }
        (Reply::Account(_), AnswerShape::Quota(quota)) => value(quota),
        (
            Reply::Done
            | Reply::Account(_)
            | Reply::Grant { .. }
            | Reply::Hold(_)
            | Reply::Charge { .. }
            | Reply::Budget(_)
            | Reply::Jobs { .. }
            | Reply::Job { .. }
            | Reply::Region(_)
            | Reply::Archived(_)
            | Reply::Received { .. },
            _,
        ) => Value::Object(serde_json::Map::new()),
    }
}

/// A job with the ledger's time.
fn at(ledger: &Ledger, mut job: bursar_api::jobs::job::Job) -> bursar_api::jobs::job::Job {
    use bursar_core::machine::Machine;
    job.as_of = time(ledger.now());
    job
}

fn movement_reply(ledger: &Ledger, number: u32, amount: Credits, shape: &AnswerShape) -> Value {
    let Some(made) = ledger.movement(number) else { return Value::Null };
    movement(ledger, made, ledger.refund_parts(number), amount, shape)
}

/// Reason and reference.
fn texts(note: Option<&MovementNote>) -> (Option<String>, Option<String>) {
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    note.map_or((None, None), |note| (text(&note.reason), text(&note.reference)))
}

/// Renders a refund with all of its parts, a transfer or a collection.
pub fn movement<'a>(
    ledger: &Ledger,
    made: &Movement,
    parts: impl Iterator<Item = &'a Movement>,
    amount: Credits,
    shape: &AnswerShape,
) -> Value {
    match shape {
        AnswerShape::Refund { of, note } => {
            let mut refund = refund(ledger, made, parts, of, amount);
            (refund.reason, refund.reference) = texts(note.as_deref());
            value(refund)
        }
        AnswerShape::Transfer { from, to, note } => {
            let mut transfer = transfer(ledger, &made.movement, (from, to), amount);
            (transfer.reason, transfer.reference) = texts(note.as_deref());
            value(transfer)
        }
        AnswerShape::Collection { account } => value(account::Collected {
            id: made.movement.id.to_string(),
            account: account.to_string(),
            collected: sum(amount),
            at: None,
        }),
        AnswerShape::Nothing
        | AnswerShape::Account
        | AnswerShape::Grant { .. }
        | AnswerShape::Hold { .. }
        | AnswerShape::Charge
        | AnswerShape::Budget
        | AnswerShape::Job(_)
        | AnswerShape::Quota(_) => Value::Null,
    }
}
