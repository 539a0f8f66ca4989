//! Grants and the state of their units.

use bursar_api::amount::Sum;
use bursar_api::credits::grant;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::{GrantKind, KindAmounts, Restriction};
use bursar_core::ledger::id::GrantNo;
use fefo::Part;

use super::accounts::{stored_json, strings};
use super::{sum, time, units};

/// The kind of a grant.
pub fn grant_kind(kind: GrantKind) -> grant::GrantKind {
    match kind {
        GrantKind::Promotion => grant::GrantKind::Promotion,
        GrantKind::Compensation => grant::GrantKind::Compensation,
        GrantKind::Grant => grant::GrantKind::Grant,
        GrantKind::Purchase => grant::GrantKind::Purchase,
    }
}

/// The kind of a grant that is asked for.
pub fn asked_grant_kind(kind: grant::GrantKind) -> GrantKind {
    match kind {
        grant::GrantKind::Purchase => GrantKind::Purchase,
        grant::GrantKind::Grant => GrantKind::Grant,
        grant::GrantKind::Promotion => GrantKind::Promotion,
        grant::GrantKind::Compensation => GrantKind::Compensation,
    }
}

/// Amounts by kind, in the order of [`GrantKind::ALL`].
pub fn by_kind(amounts: KindAmounts) -> grant::ByKind {
    let of = |kind: GrantKind| Sum::from_micros(amounts[kind as usize]);
    grant::ByKind {
        purchase: of(GrantKind::Purchase),
        grant: of(GrantKind::Grant),
        promotion: of(GrantKind::Promotion),
        compensation: of(GrantKind::Compensation),
    }
}

/// A grant and the state of its units.
pub fn grant(ledger: &Ledger, number: GrantNo, parts: &[u64; 6]) -> grant::Grant {
    let own = ledger.grant(number);
    let (rank, restriction) = match (&own.pending, own.bucket) {
        (Some(pending), _) => (Some(pending.rank), pending.restriction.as_deref()),
        (None, Some(bucket)) => {
            let bucket = ledger.bucket(bucket);
            (Some(bucket.rank), bucket.restriction.as_deref())
        }
        (None, None) => (None, None),
    };
    let part = |part: Part| units(parts[part as usize]);
    let details = own.details.as_ref();
    grant::Grant {
        id: own.id.to_string(),
        account: ledger.account(own.account).path.to_string(),
        amount: sum(own.amount),
        kind: grant_kind(rank.map_or(GrantKind::Grant, |rank| rank.kind)),
        effective_at: time(own.effective_at),
        expires_at: rank.and_then(|rank| rank.expires_at()).map(time),
        priority: rank.map_or(100, |rank| rank.priority),
        restrict: restriction.map(restrict),
        reference: details.and_then(|details| details.reference.as_deref()).map(str::to_owned),
        metadata: details.and_then(|details| details.metadata.as_deref()).map(stored_json),
        available: part(Part::Free),
        held: part(Part::Held),
        spent: part(Part::Spent),
        expired: part(Part::Expired),
        revoked: part(Part::Revoked),
        moved: part(Part::Moved),
        is_revoked: own.revoked,
        created_at: time(own.created_at),
        as_of: None,
        position: None,
    }
}

fn restrict(restriction: &Restriction) -> grant::Restriction {
    let gpu_types = strings(restriction.gpu_types.as_deref());
    let regions = strings(restriction.regions.as_deref());
    let classes = strings(restriction.classes.as_deref());
    let max_share =
        restriction.max_share_micro.map(|share| bursar_api::Amount::from_micros(share.into()));
    grant::Restriction { gpu_types, regions, classes, max_share }
}
