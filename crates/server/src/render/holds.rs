//! How holds and charges are shown.

use bursar_api::amount::Sum;
use bursar_api::credits::{charge, hold};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::accounts::view::Lot;
use bursar_core::ledger::command::{Context, OnExpiry};
use bursar_core::ledger::holds::hold::{Hold, HoldState};
use bursar_core::ledger::id::HoldNo;
use bursar_core::ledger::reply::HoldReply;

use super::accounts::strings;
use super::{show_returned, sum, time, units};

/// The most lots in an answer.
pub const MAX_LOTS: usize = 100;

pub(super) fn lots(ledger: &Ledger, mut all: impl Iterator<Item = Lot>) -> (Vec<hold::Lot>, bool) {
    let listed: Vec<hold::Lot> = all.by_ref().take(MAX_LOTS).map(|l| lot(ledger, l)).collect();
    (listed, all.next().is_some())
}

/// One lot.
pub fn lot(ledger: &Ledger, lot: Lot) -> hold::Lot {
    hold::Lot { grant: ledger.grant(lot.grant).id.as_str().to_owned(), amount: units(lot.amount) }
}

pub(super) fn returned(ledger: &Ledger, lot: Lot) -> hold::ReturnedLot {
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
pub(super) fn hold_as(ledger: &Ledger, own: &Hold, reply: &HoldReply, closing: bool) -> hold::Hold {
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
