//! Which hold an event means. The ledger gives the number of a hold to another one later, so a number alone says nothing
//! about the past. A decision keeps the numbers that its holds have here, which are never given twice.

use bursar_core::ledger::event::Event;
use bursar_core::ledger::id::HoldNo;

use crate::blocks::{Bytes, write_length};
use crate::database::Value;
use crate::error::HistoryError;

/// The hold of an event that says no more of it than its number in the ledger.
pub fn named_by_number(event: &Event) -> Option<HoldNo> {
    match event {
        Event::ReturnExpired { hold, .. }
        | Event::ReturnRevoked { hold, .. }
        | Event::HoldExtended { hold, .. }
        | Event::HoldCaptured { hold, .. }
        | Event::HoldCut { hold, .. }
        | Event::HoldClosed { hold, .. }
        | Event::HoldPinned { hold, .. }
        | Event::HoldRevived { hold, .. }
        | Event::Refunded { hold, .. } => Some(*hold),
        Event::PolicySet(_)
        | Event::Answered { .. }
        | Event::Forgotten { .. }
        | Event::AccountOpened { .. }
        | Event::AccountChanged { .. }
        | Event::AccountFrozen { .. }
        | Event::AccountUnfrozen { .. }
        | Event::GrantIssued(_)
        | Event::GrantActivated { .. }
        | Event::GrantRevoked { .. }
        | Event::BucketExpired { .. }
        | Event::ExpiryReversed { .. }
        | Event::HoldPlaced(_)
        | Event::Charged(_)
        | Event::CreditsMoved { .. }
        | Event::UncollectedCollected { .. }
        | Event::BudgetSet { .. }
        | Event::BudgetRemoved { .. }
        | Event::BudgetThresholdReached { .. }
        | Event::CreditsDenied { .. }
        | Event::QuotaSet { .. }
        | Event::QuotaRemoved { .. }
        | Event::RegionOpened { .. }
        | Event::RegionBriefed { .. }
        | Event::SetAside { .. }
        | Event::HeldUpReviewed { .. }
        | Event::JobSubmitted { .. }
        | Event::AttemptConfirmed(_)
        | Event::AttemptStarted { .. }
        | Event::AttemptFunded { .. }
        | Event::ExhaustionWarned { .. }
        | Event::AttemptStopping { .. }
        | Event::AttemptEnded { .. }
        | Event::CancelAsked { .. }
        | Event::DependenciesMet { .. }
        | Event::JobEnded { .. }
        | Event::CellTold { .. }
        | Event::MessageReceived { .. } => None,
    }
}

/// Most decisions have one hold or none.
pub(crate) fn encode_holds(holds: &[i64]) -> Value {
    match holds {
        [] => Value::Null,
        [hold] => Value::Integer(*hold),
        many => {
            let mut bytes = Vec::with_capacity(many.len() * 4);
            many.iter().for_each(|hold| write_length(&mut bytes, hold.cast_unsigned()));
            Value::Bytes(bytes)
        }
    }
}

pub(crate) fn decode_holds(value: Option<Value>) -> Result<Vec<i64>, HistoryError> {
    match value {
        Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Integer(hold)) => Ok(vec![hold]),
        Some(Value::Bytes(bytes)) => {
            let mut bytes = Bytes(&bytes);
            let mut holds = Vec::new();
            while !bytes.0.is_empty() {
                holds.push(bytes.length()?.cast_signed());
            }
            Ok(holds)
        }
        other => Err(HistoryError::inconsistent(format!("{other:?} are no holds"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_come_back_in_their_order() {
        for holds in [vec![], vec![7], vec![300, 2, 2, i64::MAX]] {
            assert_eq!(decode_holds(Some(encode_holds(&holds))), Ok(holds));
        }
        assert!(decode_holds(None).is_err());
    }
}
