//! Makes a sequence of steps that shows a difference as short as possible.

use crate::generate::Step;

/// Drops steps while `fails` still says that what is left fails: ever smaller stretches, until no
/// single step can be left out.
pub fn shrink(steps: Vec<Step>, fails: impl Fn(&[Step]) -> bool) -> Vec<Step> {
    let mut steps = steps;
    let mut stretch = steps.len().div_ceil(2);
    while stretch > 0 {
        let mut dropped = false;
        let mut end = steps.len();
        while end > 0 {
            let start = end.saturating_sub(stretch);
            let mut fewer = steps[..start].to_vec();
            fewer.extend_from_slice(&steps[end..]);
            if fails(&fewer) {
                steps = fewer;
                dropped = true;
            }
            end = start;
        }
        if stretch > 1 {
            stretch = stretch.div_ceil(2);
        } else if !dropped {
            stretch = 0;
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
        let step = |fingerprint| Step {
            now: Timestamp::from_millis(0),
            envelope: Envelope { fingerprint, ..Envelope::default() },
            command: Command::FreezeAccount { path: "a".into(), by_platform: false },
        };
        let prints = |steps: &[Step]| -> Vec<u128> {
            steps.iter().map(|step| step.envelope.fingerprint).collect()
        };
        let fails = |left: &[Step]| [7, 31].iter().all(|wanted| prints(left).contains(wanted));
        let left = shrink((0..40).map(step).collect(), fails);
        assert_eq!(prints(&left), [7, 31]);
    }
}
