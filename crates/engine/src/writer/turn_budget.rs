//! How long one turn of messages may take.

use std::time::Duration;

use bursar_core::machine::Machine;

use crate::lease::{Monotonic, SystemMonotonic};
use crate::writer::handoff::Load;

/// What the messages of one turn may write before other messages have their turn.
const MAX_TURN_BYTES: usize = 256 << 10;
/// How long one turn may take. Checked every eight commands, and after each message that writes much
/// or may have read much.
const MAX_TURN_TIME: Duration = Duration::from_millis(5);

/// What one turn of messages may cost before senders that arrived meanwhile have theirs.
pub(super) struct TurnBudget {
    pub(super) clock: SystemMonotonic,
    bytes: usize,
    /// The bytes written when the clock was read last.
    checked: usize,
}

/// A message that writes this much is expected to have taken long.
const SLOW_MESSAGE_BYTES: usize = 16 << 10;

impl TurnBudget {
    pub(super) fn begin<M: Machine>(load: &Load<M>) -> TurnBudget {
        let bytes = load.records.bytes();
        TurnBudget { clock: SystemMonotonic::new(), bytes, checked: bytes }
    }

    /// Whether the turn ends after the last message. `is_plain` tells that it was one command: the
    /// clock is read only now and then after those, because that costs as much as a small command.
    pub(super) fn is_spent<M: Machine>(
        &mut self,
        handled: usize,
        is_plain: bool,
        load: &Load<M>,
    ) -> bool {
        let bytes = load.records.bytes();
        if bytes < self.bytes || bytes - self.bytes >= MAX_TURN_BYTES {
            return true;
        }
        if is_plain && !handled.is_multiple_of(8) && bytes - self.checked < SLOW_MESSAGE_BYTES {
            return false;
        }
        self.checked = bytes;
        self.clock.elapsed() >= MAX_TURN_TIME
    }
}
