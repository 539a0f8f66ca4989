//! Renders the ledger's state for the API.

pub(crate) mod blockers;
mod grants;
pub(crate) mod job;
mod movements;
pub(crate) mod preemption;
pub(crate) mod waiting;

use bursar_api::Time;
use bursar_api::accounts::account::{self, Weight};
use bursar_api::accounts::budget;
use bursar_api::amount::Sum;
use bursar_api::credits::{charge, hold};
use bursar_core::credits::Credits;
use bursar_core::ledger::accounts::view::Lot;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetUnit, Context, OnExpiry,
    RefundNote,
};
use bursar_core::ledger::event::credits_of;
use bursar_core::ledger::holds::archive::{ArchivedName, RecalledRecord};
use bursar_core::ledger::holds::hold::{Hold, HoldKind, HoldState};
use bursar_core::ledger::id::{AccountNo, HoldNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::reply::{BudgetReply, HoldReply, Reply};
use bursar_core::ledger::state::Movement;
use bursar_core::ledger::{Ledger, accounts::budget::Budget};
use bursar_core::name::{AccountPath, Region};
use bursar_core::time::Timestamp;
use fefo::Part;
use serde::Serialize;
use serde_json::Value;

pub use grants::{asked_grant_kind, by_kind, grant, grant_kind};
pub use movements::{past_refund, past_transfer};
use movements::{refund, transfer};

use crate::ids::attempt::AttemptIds;
use crate::request::budget_sum;

/// The most lots in an answer.
pub const MAX_LOTS: usize = 100;

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
        note: Option<Box<RefundNote>>,
    },
    /// The transfer.
    Transfer {
        /// The account whose grants were drawn.
        from: AccountPath,
        /// The account that received them.
        to: AccountPath,
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
pub enum Shown {
    /// A hold.
    Hold(Box<hold::Hold>),
    /// A charge.
    Charge(Box<charge::Charge>),
    /// Any other body.
    Other(Value),
}

impl Shown {
    /// Appends the body as JSON to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Shown::Hold(hold) => serde_json::to_writer(out, hold),
            Shown::Charge(charge) => serde_json::to_writer(out, charge),
            Shown::Other(value) => serde_json::to_writer(out, value),
        }
        .expect("the bodies have only plain fields and string keys");
    }
}

/// The body of an accepted change.
pub fn reply(ledger: &Ledger, reply: &Reply, shape: &AnswerShape) -> Shown {
    let shown = match (reply, shape) {
        (Reply::Hold(reply), AnswerShape::Hold { closing }) => {
            let own = ledger.hold(reply.hold);
            own.map(|own| Shown::Hold(Box::new(hold_as(ledger, own, reply, *closing))))
        }
        (Reply::Charge { hold, requested, charged, spendable_after }, AnswerShape::Charge) => {
            let made = ledger.hold(*hold);
            made.map(|made| charge_as(ledger, made, (*requested, *charged), *spendable_after))
        }
        (Reply::Archived(record), shape) => archived_reply(ledger, record, shape),
        (other, shape) => Some(Shown::Other(other_reply(ledger, other, shape))),
    };
    shown.unwrap_or(Shown::Other(Value::Null))
}

/// The body of an answer that the archive has. What it shows is in the ledger under its name, or comes with it.
pub fn archived_answer(
    ledger: &Ledger,
    replied: &Reply,
    (of, shown): (&ArchivedName, &[RecalledRecord]),
    shape: &AnswerShape,
) -> Shown {
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
            .map(|own| Shown::Hold(Box::new(hold_as(ledger, own, replied, *closing)))),
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
            body.map(Shown::Other)
        }
        (replied, shape) => Some(reply(ledger, replied, shape)),
    };
    body.unwrap_or(Shown::Other(Value::Null))
}

fn charge_as(
    ledger: &Ledger,
    own: &Hold,
    (requested, charged): (Credits, Credits),
    spendable_after: i128,
) -> Shown {
    let mut shown = charge(ledger, own);
    shown.requested = sum(requested);
    shown.charged = sum(charged);
    shown.spendable_after = Sum::from_micros(spendable_after);
    Shown::Charge(Box::new(shown))
}

/// The body of an answer about something that the ledger has forgotten.
fn archived_reply(ledger: &Ledger, record: &RecalledRecord, shape: &AnswerShape) -> Option<Shown> {
    match record {
        RecalledRecord::Hold(record) => match shape {
            AnswerShape::Charge => Some(Shown::Charge(Box::new(charge(ledger, &record.hold)))),
            AnswerShape::Hold { closing } => {
                let mut shown = archived_hold(ledger, &record.hold);
                if *closing {
                    show_returned(ledger, &record.hold, &mut shown);
                }
                Some(Shown::Hold(Box::new(shown)))
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
            Some(Shown::Other(movement(ledger, parts.first()?, parts.iter(), amount, shape)))
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
            let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
            refund.reason = note.as_ref().and_then(|note| text(&note.reason));
            refund.reference = note.as_ref().and_then(|note| text(&note.reference));
            value(refund)
        }
        AnswerShape::Transfer { from, to } => {
            value(transfer(ledger, &made.movement, (from, to), amount))
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

/// An account.
pub fn account(ledger: &Ledger, number: AccountNo) -> account::Account {
    let own = ledger.account(number);
    let settings = own.details.as_ref().map(|details| details.settings.clone()).unwrap_or_default();
    account_as(ledger, number, &settings, (own.frozen, own.uncollected()))
}

/// An account with settings that may differ from its present ones.
fn account_as(
    ledger: &Ledger,
    number: AccountNo,
    settings: &AccountSettings,
    (frozen, uncollected): (bool, i128),
) -> account::Account {
    let own = ledger.account(number);
    account::Account {
        id: own.path.to_string(),
        parent: own.parent.map(|parent| ledger.account(parent).path.to_string()),
        kind: account_kind(own.kind),
        name: settings.name.as_ref().map(ToString::to_string),
        weight: Weight::from_milli(settings.weight_milli.unwrap_or(1000)),
        home_region: settings.home_region.as_ref().map(Region::to_string),
        metadata: settings.metadata.as_deref().map(stored_json),
        compensation_ttl_seconds: settings
            .compensation_ttl_ms
            .and_then(|ttl| u64::try_from(ttl / 1000).ok()),
        overdraft_limit: settings.overdraft_limit.map(sum),
        frozen,
        uncollected: Sum::from_micros(uncollected),
        as_of: None,
        position: None,
    }
}

/// Metadata is stored as JSON text.
fn stored_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn account_kind(kind: AccountKind) -> account::AccountKind {
    match kind {
        AccountKind::Org => account::AccountKind::Org,
        AccountKind::Team => account::AccountKind::Team,
        AccountKind::Project => account::AccountKind::Project,
        AccountKind::User => account::AccountKind::User,
    }
}

fn strings(names: Option<&[impl ToString]>) -> Option<Vec<String>> {
    names.map(|names| names.iter().map(ToString::to_string).collect())
}

fn lots(ledger: &Ledger, mut all: impl Iterator<Item = Lot>) -> (Vec<hold::Lot>, bool) {
    let listed: Vec<hold::Lot> = all.by_ref().take(MAX_LOTS).map(|l| lot(ledger, l)).collect();
    (listed, all.next().is_some())
}

/// One lot.
pub fn lot(ledger: &Ledger, lot: Lot) -> hold::Lot {
    hold::Lot { grant: ledger.grant(lot.grant).id.as_str().to_owned(), amount: units(lot.amount) }
}

fn returned(ledger: &Ledger, lot: Lot) -> hold::ReturnedLot {
    let grant = ledger.grant(lot.grant).id.as_str().to_owned();
    hold::ReturnedLot { grant, amount: units(lot.amount), expired: lot.expired }
}

/// The state of a hold.
pub fn hold_state(state: HoldState) -> hold::HoldState {
    match state {
        HoldState::Open => hold::HoldState::Open,
        HoldState::Settled => hold::HoldState::Settled,
        HoldState::Released => hold::HoldState::Released,
        HoldState::Lapsed => hold::HoldState::Lapsed,
    }
}

/// A hold as it was when it was answered.
fn hold_as(ledger: &Ledger, own: &Hold, reply: &HoldReply, closing: bool) -> hold::Hold {
    let mut shown = hold_with(ledger, own, reply.slices);
    let open = reply.state == HoldState::Open;
    shown.state = hold_state(reply.state);
    shown.amount = sum(reply.amount);
    shown.captured = sum(reply.captured);
    shown.remaining = sum(reply.remaining());
    shown.uncollected = sum(reply.uncollected);
    shown.expires_at = reply.expires_at.map(time);
    if closing && !open {
        show_returned(ledger, own, &mut shown);
    }
    shown
}

/// A hold in its present state.
pub fn hold(ledger: &Ledger, number: HoldNo) -> Option<hold::Hold> {
    ledger.hold(number).map(|own| archived_hold(ledger, own))
}

/// A hold in its present state, or as history has it if the ledger has forgotten it.
pub fn archived_hold(ledger: &Ledger, own: &Hold) -> hold::Hold {
    hold_with(ledger, own, u32::MAX)
}

fn hold_with(ledger: &Ledger, own: &Hold, slices: u32) -> hold::Hold {
    let (lots, lots_truncated) = lots(ledger, ledger.hold_lots(own, slices));
    let details = own.details.as_ref();
    let on_expiry = details.map(|details| details.on_expiry).unwrap_or_default();
    hold::Hold {
        id: own.id.as_str().to_owned(),
        account: ledger.account(own.account).path.as_str().to_owned(),
        state: hold_state(own.state),
        amount: units(own.amount),
        captured: units(own.captured),
        remaining: units(own.remaining()),
        uncollected: units(own.uncollected()),
        expires_at: own.expires_at.map(time),
        lots,
        lots_truncated,
        context: details
            .map(|details| &details.context)
            .filter(|c| **c != Context::default())
            .map(context),
        on_expiry: match on_expiry {
            OnExpiry::HonorHold => hold::OnExpiry::HonorHold,
            OnExpiry::Strict => hold::OnExpiry::Strict,
        },
        reference: details.and_then(|details| details.reference.as_deref()).map(str::to_owned),
        created_at: time(own.placed_at),
        returned: None,
        returned_truncated: false,
        as_of: None,
        position: None,
    }
}

fn context(context: &Context) -> hold::Context {
    hold::Context {
        gpu_types: strings(context.gpu_types.as_deref()),
        regions: strings(context.regions.as_deref()),
        class: context.class.as_ref().map(ToString::to_string),
    }
}

/// A charge as it was made.
pub fn charge(ledger: &Ledger, own: &Hold) -> charge::Charge {
    let (lots, lots_truncated) = lots(ledger, ledger.hold_lots(own, u32::MAX));
    let terms = own.charge.as_ref();
    charge::Charge {
        id: own.id.to_string(),
        account: ledger.account(own.account).path.to_string(),
        requested: terms.map_or(units(own.amount), |terms| sum(terms.requested)),
        charged: units(own.captured),
        refunded: None,
        lots,
        lots_truncated,
        spendable_after: Sum::from_micros(terms.map_or(0, |terms| terms.spendable_after)),
        effective_at: terms.and_then(|terms| terms.late_for).map(time),
        created_at: time(own.placed_at),
        as_of: None,
        position: None,
    }
}

/// A budget with its amounts in the current period.
pub fn budget(ledger: &Ledger, number: AccountNo, own: &Budget, now: Timestamp) -> budget::Budget {
    let (spent, held) = own.numbers(now);
    let (budget, terms) = (own.name.clone(), own.terms.clone());
    budget_as(ledger, &BudgetReply { account: number, budget, terms, at: now, spent, held })
}

/// A budget as it was at some time.
fn budget_as(ledger: &Ledger, own: &BudgetReply) -> budget::Budget {
    let unit = own.terms.unit;
    let (start, end) = own.terms.period_of(own.at);
    budget::Budget {
        name: own.budget.to_string(),
        account: ledger.account(own.account).path.to_string(),
        limit: sum(own.terms.limit),
        unit: match unit {
            BudgetUnit::Credits => budget::BudgetUnit::Credits,
            BudgetUnit::GpuHours => budget::BudgetUnit::GpuHours,
        },
        period: match own.terms.period {
            BudgetPeriod::Total => budget::BudgetPeriod::Total,
            BudgetPeriod::Day => budget::BudgetPeriod::Day,
            BudgetPeriod::Week => budget::BudgetPeriod::Week,
            BudgetPeriod::Month => budget::BudgetPeriod::Month,
        },
        mode: match own.terms.mode {
            BudgetMode::Hard => budget::BudgetMode::Hard,
            BudgetMode::Soft => budget::BudgetMode::Soft,
        },
        thresholds: own.terms.thresholds.to_vec(),
        utc_offset_minutes: own.terms.utc_offset_minutes,
        spent: budget_sum(unit, own.spent),
        held: budget_sum(unit, own.held),
        used: budget_sum(unit, own.used()),
        remaining: budget_sum(unit, own.remaining()),
        period_start: end.map(|_| time(start)),
        period_end: end.map(time),
        as_of: None,
        position: None,
    }
}
