//! The holds that the events of a decision are about. The ledger reuses the numbers of holds, so
//! its number does not identify a hold of the past. A decision stores the numbers that its holds
//! have in history, which are never reused.

use crate::blocks::{Bytes, write_length};
use crate::database::Value;
use crate::error::HistoryError;

/// Encodes the holds of a decision. Most decisions have one hold or none.
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
        other => {
            let found = other.as_ref().map_or("nothing", Value::kind);
            Err(HistoryError::inconsistent(format!("a column holds {found}, not a list of holds")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_read_in_their_order() {
        for holds in [vec![], vec![7], vec![300, 2, 2, i64::MAX]] {
            assert_eq!(decode_holds(Some(encode_holds(&holds))), Ok(holds));
        }
        assert!(decode_holds(None).is_err());
    }
}
