//! The rules of a timeline as a naive replay: sort, then apply.

use std::collections::BTreeMap;

/// One recorded operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recorded {
    Pack { amount: u64, at: i64, expires_at: Option<i64> },
    Consumption { amount: u64, at: i64 },
}

/// The result of a full replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// One for each requested instant.
    pub(crate) balances: Vec<u128>,
    /// One for each consumption, in order of arrival.
    pub(crate) shortfalls: Vec<u64>,
    /// For each consumption, in order of arrival: packs by arrival, and amounts.
    pub(crate) draws: Vec<Vec<(usize, u64)>>,
}

enum Step {
    Add { amount: u64, expires_at: i64 },
    Consume { amount: u64 },
    Look { answer: usize },
}

/// Replays `history`, given in order of arrival, and reads the balance at `instants`.
pub(crate) fn replay(history: &[Recorded], instants: &[i64]) -> Replayed {
    let (mut packs, mut consumptions) = (0, 0);
    let mut steps = Vec::new();
    for recorded in history {
        match *recorded {
            Recorded::Pack { amount, at, expires_at } => {
                let expires_at = expires_at.unwrap_or(i64::MAX);
                steps.push((at, 0, packs, Step::Add { amount, expires_at }));
                packs += 1;
            }
            Recorded::Consumption { amount, at } => {
                steps.push((at, 1, consumptions, Step::Consume { amount }));
                consumptions += 1;
            }
        }
    }
    let looks = instants.iter().enumerate();
    steps.extend(looks.map(|(answer, &at)| (at, 2, answer, Step::Look { answer })));
    steps.sort_by_key(|step| (step.0, step.1, step.2));

    let mut replayed = Replayed {
        balances: vec![0; instants.len()],
        shortfalls: vec![0; consumptions],
        draws: vec![Vec::new(); consumptions],
    };
    let mut pool: BTreeMap<(i64, i64, usize), u64> = BTreeMap::new();
    for (at, _, arrival, step) in steps {
        match step {
            Step::Add { amount, expires_at } => {
                pool.insert((expires_at, at, arrival), amount);
            }
            Step::Consume { mut amount } => {
                while amount > 0 {
                    let valid = pool.range_mut((at, i64::MIN, 0)..).next();
                    let Some((&key, left)) = valid else { break };
                    let taken = amount.min(*left);
                    *left -= taken;
                    amount -= taken;
                    replayed.draws[arrival].push((key.2, taken));
                    if *left == 0 {
                        pool.remove(&key);
                    }
                }
                replayed.shortfalls[arrival] = amount;
            }
            Step::Look { answer } => {
                let valid = pool.range((at, i64::MIN, 0)..);
                replayed.balances[answer] = valid.map(|(_, &left)| u128::from(left)).sum();
            }
        }
    }
    replayed
}

/// Every instant with an event, the instants next to it, and the ends of time.
pub(crate) fn interesting(history: &[Recorded]) -> Vec<i64> {
    let mut instants = vec![i64::MIN, i64::MAX];
    let mut around = |at: i64| instants.extend([at.saturating_sub(1), at, at.saturating_add(1)]);
    for recorded in history {
        match *recorded {
            Recorded::Pack { at, expires_at, .. } => {
                around(at);
                expires_at.into_iter().for_each(&mut around);
            }
            Recorded::Consumption { at, .. } => around(at),
        }
    }
    instants.sort_unstable();
    instants.dedup();
    instants
}
