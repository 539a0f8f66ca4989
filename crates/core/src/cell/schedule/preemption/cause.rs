//! Why an attempt was preempted: the rule and the numbers that decided. They are part of the event
//! of the stop, so that a timeline and `why` show what was true at that moment.

use crate::cell::ids::ClassRank;
use crate::time::Timestamp;

/// The rules of `docs/reference/scheduling.md` that make a job wait or preempt an attempt, by number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PolicyRule {
    /// A higher class goes first.
    Class = 1,
    /// The account with the least decayed usage per weight goes first.
    Share = 2,
    /// Nodes are reserved for the best blocked job.
    Reservation = 4,
    /// Preemptible jobs run on reserved nodes as guests.
    Guests = 5,
}

impl PolicyRule {
    /// Its number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            PolicyRule::Class => "class",
            PolicyRule::Share => "share",
            PolicyRule::Reservation => "reservation",
            PolicyRule::Guests => "guests",
        }
    }
}

/// Why an attempt was preempted.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionCause {
    /// The taker's class is higher.
    Class {
        /// The victim's class.
        victim: ClassRank,
        /// The taker's class.
        taker: ClassRank,
    },
    /// The victim's account is over its share and the taker's is under it. Usage is decayed, in
    /// micro-credits per unit of weight, of the accounts at which the paths of the two part.
    Share {
        /// The usage of the victim's account.
        victim_used: u64,
        /// What the taker's account will have used after one quantum.
        taker_used: u64,
        /// How long the attempt had run, in milliseconds.
        ran_ms: i64,
        /// How long it was protected, in milliseconds.
        quantum_ms: i64,
    },
    /// It makes room for a larger job of its own account. Only earlier builds preempted so.
    OwnJob {
        /// GPUs of the victim.
        victim_gpus: u64,
        /// GPUs of the taker.
        taker_gpus: u64,
    },
    /// It was a guest on nodes reserved for the taker, which can start now.
    Guest {
        /// The reserved start.
        start_at: Timestamp,
    },
}

impl PreemptionCause {
    /// The rule that permits it.
    pub fn rule(self) -> PolicyRule {
        match self {
            PreemptionCause::Class { .. } => PolicyRule::Class,
            PreemptionCause::Share { .. } | PreemptionCause::OwnJob { .. } => PolicyRule::Share,
            PreemptionCause::Guest { .. } => PolicyRule::Guests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PolicyRule;

    const PAGE: &str = include_str!("../../../../../../docs/reference/scheduling.md");

    #[test]
    fn every_rule_that_is_shown_has_its_number_on_the_page_of_the_policy() {
        for rule in
            [PolicyRule::Class, PolicyRule::Share, PolicyRule::Reservation, PolicyRule::Guests]
        {
            let (first, rest) = rule.name().split_at(1);
            let heading = format!("\n**{}. {}{rest}.**", rule.number(), first.to_uppercase());
            assert!(PAGE.contains(&heading), "{heading}");
        }
    }
}
