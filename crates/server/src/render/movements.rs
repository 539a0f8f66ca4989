//! Refunds and transfers.

use bursar_api::credits::{refund, transfer};
use bursar_core::credits::Credits;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::accounts::view::Lot;
use bursar_core::ledger::event::{NamedMovement, credits_of};
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::state::Movement;
use bursar_core::name::{AccountPath, MovementId};
use bursar_history::query::PastMovement;

use super::{MAX_LOTS, lots, returned, sum, time};

/// A refund with all of its parts. It has the id that the request named, because numbers of holds
/// are reused.
pub(super) fn refund<'a>(
    ledger: &Ledger,
    made: &Movement,
    parts: impl Iterator<Item = &'a Movement>,
    (what, of): &(Resource, Name),
    amount: Credits,
) -> refund::Refund {
    let name = |resource: Resource| (*what == resource).then(|| of.to_string());
    let mut all = Vec::new();
    for part in parts {
        for (place, piece) in part.movement.pieces.iter().enumerate() {
            let expired = part.expired.get(place).copied().unwrap_or(false);
            // Within a piece too, the units drawn last are returned first.
            let mut lots: Vec<Lot> = ledger.lots([*piece]).collect();
            lots.reverse();
            all.extend(lots.into_iter().map(|lot| Lot { expired, ..lot }));
        }
    }
    let lots_truncated = all.len() > MAX_LOTS;
    let lots = all.into_iter().take(MAX_LOTS).map(|lot| returned(ledger, lot)).collect();
    refund::Refund {
        id: made.movement.id.to_string(),
        charge: name(Resource::Charge),
        hold: name(Resource::Hold),
        job: name(Resource::Job),
        account: None,
        reason: None,
        reference: None,
        refunded: sum(amount),
        lots,
        lots_truncated,
        created_at: None,
        as_of: None,
        position: None,
    }
}

/// A transfer between two accounts.
pub(super) fn transfer(
    ledger: &Ledger,
    made: &NamedMovement,
    (from, to): (&AccountPath, &AccountPath),
    amount: Credits,
) -> transfer::Transfer {
    let (lots, lots_truncated) = lots(ledger, ledger.lots(made.pieces.iter().copied()));
    transfer::Transfer {
        id: made.id.to_string(),
        from: from.to_string(),
        to: to.to_string(),
        amount: sum(amount),
        reason: None,
        reference: None,
        lots,
        lots_truncated,
        created_at: None,
        as_of: None,
        position: None,
    }
}

/// The parts of a past movement as the ledger has them.
fn parts(ledger: &Ledger, made: &PastMovement) -> (Vec<Movement>, Credits) {
    let tenant = AccountNo(made.tenant);
    let part = |pieces: &bursar_core::ledger::event::Pieces| {
        let (id, pieces) = (MovementId::unchecked(made.name.as_str()), pieces.clone());
        // The number and the hash of the request are not shown.
        let movement = NamedMovement { movement: 0, id, pieces, fingerprint: 0 };
        ledger.recalled(made.what, tenant, made.at, movement)
    };
    (made.parts.iter().map(part).collect(), credits_of(&made.parts))
}

/// A refund as it was made.
pub fn past_refund(ledger: &Ledger, made: &PastMovement) -> refund::Refund {
    let (parts, amount) = parts(ledger, made);
    let (kind, name) = match &made.of {
        Some(of) => (of.kind, Name::from(&*of.name)),
        None => (HoldKind::Hold, Name::default()),
    };
    let resource = match kind {
        HoldKind::Hold => Resource::Hold,
        HoldKind::Charge => Resource::Charge,
    };
    let mut shown = refund(ledger, &parts[0], parts.iter(), &(resource, name), amount);
    shown.job = made.of.as_ref().and_then(|of| of.job.clone());
    shown.account = Some(made.account.clone());
    shown.reason.clone_from(&made.reason);
    shown.reference.clone_from(&made.reference);
    shown.created_at = Some(time(made.at));
    shown
}

/// A transfer as it was made.
pub fn past_transfer(ledger: &Ledger, made: &PastMovement) -> transfer::Transfer {
    let (parts, amount) = parts(ledger, made);
    let from = AccountPath::unchecked(made.account.as_str());
    let to = AccountPath::unchecked(made.target.as_deref().unwrap_or_default());
    let mut shown = transfer(ledger, &parts[0].movement, (&from, &to), amount);
    shown.reason.clone_from(&made.reason);
    shown.reference.clone_from(&made.reference);
    shown.created_at = Some(time(made.at));
    shown
}
