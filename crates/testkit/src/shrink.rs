//! Shrinks a sequence of steps that shows a difference.

use crate::generate::TimedCommand;

/// Drops runs of steps while `fails` returns true for the rest: shorter and shorter runs, until no
/// single step can be dropped.
pub fn shrink(
    steps: Vec<TimedCommand>,
    fails: impl Fn(&[TimedCommand]) -> bool,
) -> Vec<TimedCommand> {
    let mut steps = steps;
    let mut length = steps.len().div_ceil(2);
    while length > 0 {
        let mut dropped = false;
        let mut end = steps.len();
        while end > 0 {
            let start = end.saturating_sub(length);
            let mut fewer = steps[..start].to_vec();
            fewer.extend_from_slice(&steps[end..]);
            if fails(&fewer) {
                steps = fewer;
                dropped = true;
            }
            end = start;
        }
        if length > 1 {
            length = length.div_ceil(2);
        } else if !dropped {
            length = 0;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_core::ledger::command::{Command, Envelope};
    use bursar_core::time::Timestamp;

    #[test]
    fn only_the_steps_that_matter_are_left() {
        let step = |fingerprint| TimedCommand {
            now: Timestamp::from_millis(0),
            envelope: Envelope { fingerprint, ..Envelope::default() },
            command: Command::FreezeAccount { path: "a".into(), by_platform: false },
        };
        let fingerprints = |steps: &[TimedCommand]| -> Vec<u128> {
            steps.iter().map(|step| step.envelope.fingerprint).collect()
        };
        let fails = |left: &[TimedCommand]| {
            [7, 31].iter().all(|wanted| fingerprints(left).contains(wanted))
        };
        let left = shrink((0..40).map(step).collect(), fails);
        assert_eq!(fingerprints(&left), [7, 31]);
    }
}
