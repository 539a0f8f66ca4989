//! Reconciliation: orders of the server × local attempts → steps. Pure.
//!
//! Orders repeat until a heartbeat shows them done, answers get lost, agents restart. So an order is
//! not an event but the desired state of one attempt, and each step depends on that attempt only:
//! repeating an order has no further effect.

use std::collections::BTreeMap;

/// The desired state of an attempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DesiredState {
    /// It runs, unless it ran here before.
    Start,
    /// It is stopped, and killed after its grace period.
    Stop,
    /// It is killed immediately.
    Kill,
    /// It is no longer reported. Processes that still run are killed first.
    Forget,
}

/// The local state of an attempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Local {
    /// Unknown.
    Absent,
    /// Its supervisor was started and has not written a record yet.
    Launching,
    /// It runs.
    Running,
    /// It is being stopped.
    Stopping,
    /// It is being killed.
    Killing,
    /// It has ended; its record is left.
    Ended,
    /// It ended, and the server ordered to forget it.
    Forgotten,
}

impl Local {
    /// Every state.
    pub const ALL: [Local; 7] = [
        Local::Absent,
        Local::Launching,
        Local::Running,
        Local::Stopping,
        Local::Killing,
        Local::Ended,
        Local::Forgotten,
    ];
}

/// What to do with an attempt.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ReconcileStep {
    /// Start it: the only step that runs anything.
    Launch,
    /// Record that it never ran here and never will, which is then reported as stopped.
    Decline,
    /// Stop it, and kill it after its grace period.
    Stop,
    /// Kill it.
    Kill,
    /// Remove its record; only its id is kept, so that it is never started again.
    Erase,
}

impl ReconcileStep {
    /// Its name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            ReconcileStep::Launch => "launch",
            ReconcileStep::Decline => "decline",
            ReconcileStep::Stop => "stop",
            ReconcileStep::Kill => "kill",
            ReconcileStep::Erase => "erase",
        }
    }
}

/// The step that brings an attempt closer to the desired state. `None` if none is needed now.
pub fn step(desired: DesiredState, local: Local) -> Option<ReconcileStep> {
    match (desired, local) {
        (DesiredState::Start, Local::Absent) => Some(ReconcileStep::Launch),
        // It ran before: starting it again would run it twice. The server learns that it stopped.
        (DesiredState::Start, Local::Forgotten) => Some(ReconcileStep::Decline),
        (
            DesiredState::Start,
            Local::Launching | Local::Running | Local::Stopping | Local::Killing | Local::Ended,
        ) => None,

        (DesiredState::Stop | DesiredState::Kill, Local::Absent | Local::Forgotten) => {
            Some(ReconcileStep::Decline)
        }
        (DesiredState::Stop, Local::Launching | Local::Running) => Some(ReconcileStep::Stop),
        (DesiredState::Stop, Local::Stopping | Local::Killing | Local::Ended) => None,

        (
            DesiredState::Kill | DesiredState::Forget,
            Local::Launching | Local::Running | Local::Stopping,
        ) => Some(ReconcileStep::Kill),
        (DesiredState::Kill, Local::Killing | Local::Ended) => None,

        (DesiredState::Forget, Local::Ended) => Some(ReconcileStep::Erase),
        (DesiredState::Forget, Local::Absent | Local::Killing | Local::Forgotten) => None,
    }
}

/// The steps for one answer of the server. Of several orders about one attempt
/// the last one applies.
pub fn steps<'a>(
    desired: impl IntoIterator<Item = (&'a str, DesiredState)>,
    local: impl Fn(&str) -> Local,
) -> Vec<(&'a str, ReconcileStep)> {
    let last: BTreeMap<&str, DesiredState> = desired.into_iter().collect();
    let chosen = last.into_iter().filter_map(|(attempt, desired)| {
        let step = step(desired, local(attempt))?;
        Some((attempt, step))
    });
    chosen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DESIRED_STATES: [DesiredState; 4] =
        [DesiredState::Start, DesiredState::Stop, DesiredState::Kill, DesiredState::Forget];

    /// The state of an attempt right after a step.
    fn after(step: ReconcileStep) -> Local {
        match step {
            ReconcileStep::Launch => Local::Launching,
            ReconcileStep::Decline => Local::Ended,
            ReconcileStep::Stop => Local::Stopping,
            ReconcileStep::Kill => Local::Killing,
            ReconcileStep::Erase => Local::Forgotten,
        }
    }

    /// The states that an attempt may reach without an order.
    fn by_itself(local: Local) -> &'static [Local] {
        match local {
            Local::Launching => &[Local::Running, Local::Ended],
            Local::Running | Local::Killing => &[Local::Ended],
            Local::Stopping => &[Local::Killing, Local::Ended],
            Local::Absent | Local::Ended | Local::Forgotten => &[],
        }
    }

    #[test]
    fn every_order_in_every_state() {
        use ReconcileStep::{Decline, Erase, Kill, Launch, Stop};
        // Absent, launching, running, stopping, killing, ended, forgotten.
        let table: [(DesiredState, [Option<ReconcileStep>; 7]); 4] = [
            (DesiredState::Start, [Some(Launch), None, None, None, None, None, Some(Decline)]),
            (
                DesiredState::Stop,
                [Some(Decline), Some(Stop), Some(Stop), None, None, None, Some(Decline)],
            ),
            (
                DesiredState::Kill,
                [Some(Decline), Some(Kill), Some(Kill), Some(Kill), None, None, Some(Decline)],
            ),
            (
                DesiredState::Forget,
                [None, Some(Kill), Some(Kill), Some(Kill), None, Some(Erase), None],
            ),
        ];
        for (desired, expected) in table {
            for (local, expected) in Local::ALL.into_iter().zip(expected) {
                assert_eq!(step(desired, local), expected, "{desired:?} {local:?}");
            }
        }
    }

    #[test]
    fn a_repeated_order_has_no_further_effect() {
        for desired in DESIRED_STATES {
            for local in Local::ALL {
                if let Some(chosen) = step(desired, local) {
                    assert_eq!(step(desired, after(chosen)), None, "{desired:?} {local:?}");
                }
            }
        }
    }

    #[test]
    fn only_an_unknown_attempt_is_launched() {
        for desired in DESIRED_STATES {
            for local in Local::ALL {
                let launches = step(desired, local) == Some(ReconcileStep::Launch);
                assert_eq!(launches, desired == DesiredState::Start && local == Local::Absent);
            }
        }
    }

    #[test]
    fn the_last_of_several_orders_about_an_attempt_applies() {
        let desired =
            [("b", DesiredState::Start), ("a", DesiredState::Start), ("a", DesiredState::Kill)];
        let chosen = steps(desired, |_| Local::Absent);
        assert_eq!(chosen, [("a", ReconcileStep::Decline), ("b", ReconcileStep::Launch)]);
    }

    /// Whether an order is carried out in a stable state.
    fn is_fulfilled(desired: DesiredState, local: Local) -> bool {
        match desired {
            DesiredState::Start => {
                matches!(local, Local::Running | Local::Stopping | Local::Killing | Local::Ended)
            }
            DesiredState::Stop | DesiredState::Kill => local == Local::Ended,
            DesiredState::Forget => matches!(local, Local::Absent | Local::Forgotten),
        }
    }

    /// A step of the test: an order that arrives, or a process that changes.
    #[derive(Copy, Clone, Debug)]
    enum TestStep {
        Order(usize),
        Moves(usize),
    }

    fn happening() -> impl Strategy<Value = TestStep> {
        prop_oneof![
            (0..DESIRED_STATES.len()).prop_map(TestStep::Order),
            (0..4_usize).prop_map(TestStep::Moves),
        ]
    }

    proptest! {
        #[test]
        fn any_sequence_converges_and_starts_at_most_once(
            happenings in prop::collection::vec(happening(), 0..40),
            last in 0..DESIRED_STATES.len(),
        ) {
            let mut local = Local::Absent;
            let mut launches = 0;
            let mut obey = |local: &mut Local, desired| {
                if let Some(chosen) = step(desired, *local) {
                    launches += u32::from(chosen == ReconcileStep::Launch);
                    *local = after(chosen);
                }
            };
            for happening in happenings {
                match happening {
                    TestStep::Order(desired) => obey(&mut local, DESIRED_STATES[desired]),
                    TestStep::Moves(way) => {
                        let ways = by_itself(local);
                        if !ways.is_empty() {
                            local = ways[way % ways.len()];
                        }
                    }
                }
            }
            // From here on the order stays the same, and the process proceeds.
            let desired = DESIRED_STATES[last];
            for _ in 0..Local::ALL.len() {
                obey(&mut local, desired);
                let must_move = desired != DesiredState::Start || local == Local::Launching;
                if must_move && let Some(next) = by_itself(local).first() {
                    local = *next;
                }
            }
            prop_assert!(launches <= 1);
            prop_assert!(is_fulfilled(desired, local), "{desired:?} {local:?}");
        }
    }
}
