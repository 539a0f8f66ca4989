//! What fair share alone would give, on a cell whose GPUs can be divided at will and reassigned at
//! any moment. The tenant with the lowest decayed usage gets all that it requests, until it has
//! used as much as the next.

use std::collections::BTreeMap;

use super::usage::{Usage, demand, smallest_waiting, usage};
use crate::queue::{Cluster, Run};
use crate::traces::JobRow;

/// The rule is applied in steps of ten minutes, as long as a quantum.
const STEP_MS: i64 = 600_000;
/// A tenant may be preempted for another whose usage after a quantum is still lower by one part in
/// this many: the cell's own gap.
const GAP: f64 = 64.0;
/// Bisection steps in the search for a level, to one part in 2^48 of the range.
const BISECTION_STEPS: u32 = 48;

/// The facts that the rule takes into account.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleFacts {
    /// The requested amounts.
    Demand,
    /// Also the past usage.
    Memory,
    /// Also that jobs cannot be divided: a tenant keeps GPUs that no other tenant could have used.
    Room,
}

/// What one tenant used and requested in each step, in GPU-milliseconds.
struct Tenant<'a> {
    name: &'a str,
    used: Vec<f64>,
    asked: Vec<f64>,
    /// Decayed usage before each step.
    decayed: Vec<f64>,
    /// Usage of GPUs that no other tenant could have used.
    spare: Vec<f64>,
}

/// What all tenants used and requested.
pub(super) struct History<'a> {
    tenants: Vec<Tenant<'a>>,
    decay: Decay,
}

/// The decay of usage.
#[derive(Copy, Clone)]
struct Decay {
    /// The part of a usage that is left after a step.
    by_step: f64,
}

impl Decay {
    fn new(half_life_ms: i64) -> Decay {
        Decay { by_step: 0.5f64.powf(STEP_MS as f64 / half_life_ms as f64) }
    }

    /// Decayed usage after a step in which `used` was used evenly.
    fn after(self, decayed: f64, used: f64) -> f64 {
        decayed * self.by_step + used * self.by_step.sqrt()
    }
}

impl<'a> History<'a> {
    pub(super) fn new(
        jobs: &[JobRow],
        tenants: &'a [String],
        cluster: Cluster,
        half_life_ms: i64,
        run: &Run,
    ) -> History<'a> {
        let decay = Decay::new(half_life_ms);
        let (usage, demand) = (usage(jobs, tenants, run), demand(jobs, tenants, run));
        let end = demand.values().map(Usage::end).max().unwrap_or(0);
        let steps = end / STEP_MS + 1;
        let by_step = |of: Option<&Usage>| -> Vec<f64> {
            let within =
                |step| of.map_or(0.0, |of| of.within(step * STEP_MS, (step + 1) * STEP_MS));
            (0..steps).map(within).collect()
        };
        let with_decayed = demand.iter().map(|(name, demand)| {
            let used = by_step(usage.get(name));
            let decayed = used.iter().scan(0.0, |decayed, used| {
                let before = *decayed;
                *decayed = decay.after(before, *used);
                Some(before)
            });
            let (decayed, spare) = (decayed.collect(), vec![0.0; used.len()]);
            Tenant { name, decayed, used, asked: by_step(Some(demand)), spare }
        });
        let mut history = History { tenants: with_decayed.collect(), decay };
        let names: Vec<&str> = demand.keys().copied().collect();
        let middles = (0..steps).map(|step| step * STEP_MS + STEP_MS / 2);
        let waiting = smallest_waiting(jobs, tenants, run, &names, middles);
        history.find_spare(cluster, &waiting);
        history
    }

    /// Finds usage that no other tenant could have had: that of a tenant over its share, while no
    /// tenant under its share had a waiting job that would have fitted if all tenants over their
    /// share had been preempted, and the waiting job's own tenant had given up smaller jobs as far
    /// as it gains by that.
    fn find_spare(&mut self, cluster: Cluster, smallest: &[Vec<Option<u32>>]) {
        let all = f64::from(cluster.gpus()) * STEP_MS as f64;
        for (step, waiting) in smallest.iter().enumerate() {
            let under = |taker: usize, other: usize, gpus: u32| {
                let turn = f64::from(gpus) * STEP_MS as f64;
                let decayed = self.tenants[taker].decayed[step];
                (decayed + turn) * (1.0 + 1.0 / GAP) < self.tenants[other].decayed[step]
            };
            let present: Vec<usize> = (0..self.tenants.len())
                .filter(|index| self.tenants[*index].used[step] > 0.0)
                .collect();
            let mut is_over = vec![false; self.tenants.len()];
            let mut contested = vec![false; self.tenants.len()];
            for (taker, gpus) in waiting.iter().enumerate() {
                let Some(gpus) = *gpus else { continue };
                let (over, stay): (Vec<usize>, Vec<usize>) = present
                    .iter()
                    .partition(|other| **other != taker && under(taker, **other, gpus));
                let used = |other: &usize| self.tenants[*other].used[step];
                let stays: f64 = stay.iter().map(used).sum();
                let wanted = f64::from(gpus) * STEP_MS as f64;
                let own = used(&taker);
                let makes_room = if own < wanted { own } else { 0.0 };
                let held: Vec<f64> = over.iter().map(used).collect();
                let needed = stays - makes_room + held.iter().sum::<f64>() + wanted - all;
                for (index, other) in over.into_iter().enumerate() {
                    is_over[other] = true;
                    contested[other] |= is_needed(index, &held, needed);
                }
            }
            for (index, tenant) in self.tenants.iter_mut().enumerate() {
                if is_over[index] && !contested[index] {
                    tenant.spare[step] = tenant.used[step];
                }
            }
        }
    }

    /// The usage of each tenant between two instants.
    pub(super) fn used(&self, from_ms: i64, to_ms: i64) -> BTreeMap<&'a str, f64> {
        let steps = steps(from_ms, to_ms);
        self.tenants
            .iter()
            .map(|tenant| (tenant.name, tenant.used[steps.clone()].iter().sum()))
            .collect()
    }

    /// The usage of each tenant by the rule, with the same total and the same requests.
    pub(super) fn owed(
        &self,
        from_ms: i64,
        to_ms: i64,
        given: RuleFacts,
    ) -> BTreeMap<&'a str, f64> {
        let steps = steps(from_ms, to_ms);
        let mut decayed: Vec<f64> = match given {
            RuleFacts::Demand => vec![0.0; self.tenants.len()],
            RuleFacts::Memory | RuleFacts::Room => {
                self.tenants.iter().map(|tenant| tenant.decayed[steps.start]).collect()
            }
        };
        let mut owed = vec![0.0; self.tenants.len()];
        for step in steps {
            let total: f64 = self.tenants.iter().map(|tenant| tenant.used[step]).sum();
            let asked: Vec<f64> = self.tenants.iter().map(|tenant| tenant.asked[step]).collect();
            let least: Vec<f64> = match given {
                RuleFacts::Demand | RuleFacts::Memory => vec![0.0; self.tenants.len()],
                RuleFacts::Room => self.tenants.iter().map(|tenant| tenant.spare[step]).collect(),
            };
            for (index, given) in fill(total, &decayed, &least, &asked).into_iter().enumerate() {
                owed[index] += given;
                decayed[index] = self.decay.after(decayed[index], given);
            }
        }
        self.tenants.iter().map(|tenant| tenant.name).zip(owed).collect()
    }
}

/// Whether a tenant over its share must be preempted to free enough: some set of the others makes
/// enough room with it and not without it. A preemption that does not help is not needed.
fn is_needed(index: usize, held: &[f64], needed: f64) -> bool {
    let others = held.iter().enumerate().filter(|(other, _)| *other != index);
    let mut sums = vec![0.0];
    for (_, held) in others {
        sums.extend(sums.clone().iter().map(|sum| sum + held));
    }
    sums.into_iter().any(|sum| sum < needed && sum + held[index] >= needed)
}

fn steps(from_ms: i64, to_ms: i64) -> std::ops::Range<usize> {
    let step = |at: i64| usize::try_from(at / STEP_MS).expect("runs begin at zero");
    step(from_ms)..step(to_ms)
}

/// Divides a total so that the lowest usages are raised to one level, each by at most its request
/// and at least what it keeps.
fn fill(total: f64, decayed: &[f64], least: &[f64], asked: &[f64]) -> Vec<f64> {
    let given = |level: f64| {
        let bounds = least.iter().zip(asked);
        decayed
            .iter()
            .zip(bounds)
            .map(move |(decayed, (least, asked))| (level - decayed).min(*asked).max(*least))
    };
    let highest =
        decayed.iter().zip(asked).map(|(decayed, asked)| decayed + asked).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, highest);
    for _ in 0..BISECTION_STEPS {
        let middle = f64::midpoint(low, high);
        if given(middle).sum::<f64>() < total {
            low = middle;
        } else {
            high = middle;
        }
    }
    given(high).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: f64 = STEP_MS as f64;
    const GPU_HOUR: f64 = 3_600_000.0;

    #[test]
    fn the_lowest_usages_are_raised_to_one_level_within_their_requests() {
        let none = [0.0; 3];
        let near = |given: Vec<f64>, expected: [f64; 3]| {
            let off = given.iter().zip(expected).map(|(given, expected)| (given - expected).abs());
            assert!(off.fold(0.0, f64::max) < 1e-6, "{given:?}, not {expected:?}");
        };
        near(fill(6.0, &none, &none, &[9.0; 3]), [2.0, 2.0, 2.0]);
        near(fill(6.0, &none, &none, &[1.0, 9.0, 9.0]), [1.0, 2.5, 2.5]);
        near(fill(6.0, &[4.0, 0.0, 0.0], &none, &[9.0; 3]), [0.0, 3.0, 3.0]);
        near(fill(6.0, &[1.0, 0.0, 2.0], &none, &[9.0; 3]), [2.0, 3.0, 1.0]);
        near(fill(6.0, &[4.0, 0.0, 0.0], &[2.0, 0.0, 0.0], &[9.0; 3]), [2.0, 2.0, 2.0]);
    }

    /// The usage that each tenant may keep in one step. A tenant is given by its decayed usage in
    /// GPU-hours, its GPUs, and the GPUs of its smallest waiting job.
    fn spare<const N: usize>(tenants: [(f64, f64, Option<u32>); N]) -> [f64; N] {
        let of = |(decayed, gpus, _): (f64, f64, Option<u32>)| Tenant {
            name: "",
            used: vec![gpus * STEP],
            asked: vec![64.0 * STEP],
            decayed: vec![decayed * GPU_HOUR],
            spare: vec![0.0],
        };
        let decay = Decay::new(86_400_000);
        let mut history = History { tenants: tenants.map(of).into_iter().collect(), decay };
        let waiting = tenants.map(|(_, _, waiting)| waiting).to_vec();
        history.find_spare(Cluster { nodes: 8, gpus_per_node: 8 }, &[waiting]);
        std::array::from_fn(|index| history.tenants[index].spare[0] / STEP)
    }

    #[test]
    fn usage_that_no_other_tenant_could_have_is_kept() {
        // One tenant is over its share. A gang of 32 is due, but beside the two tenants that are
        // not over, 24 are free.
        let (over, due) = ((120.0, 24.0, Some(8)), (100.0, 8.0, None));
        let running = (100.0, 32.0, Some(32));
        assert_eq!(spare([over, due, running, (95.0, 0.0, Some(32))]), [24.0, 0.0, 0.0, 0.0]);
        // For a smaller gang, the tenant would have to be preempted.
        assert_eq!(spare([over, due, running, (95.0, 0.0, Some(24))]), [0.0; 4]);
        // It is not spare if the gang's tenant has smaller jobs that can make room for it.
        assert_eq!(spare([over, running, (95.0, 8.0, Some(32))]), [0.0; 3]);
        // If two are over and the gang can use the GPUs of only one of them, the other's are spare.
        // If it can use either, neither is.
        let gang = (120.0, 32.0, None);
        let small = (100.0, 16.0, None);
        assert_eq!(
            spare([(120.0, 16.0, Some(8)), gang, small, (95.0, 0.0, Some(32))])[..2],
            [16.0, 0.0]
        );
        assert_eq!(spare([gang, gang, (95.0, 0.0, Some(32))]), [0.0; 3]);
        // A tenant gains nothing if it gives up as much as it gets.
        let many = (95.0, 32.0, Some(32));
        assert_eq!(spare([over, (100.0, 8.0, None), many]), [24.0, 0.0, 0.0]);
        // If another tenant is over as well, both are preempted.
        let also = (120.0, 8.0, None);
        assert_eq!(spare([over, also, running, (95.0, 0.0, Some(32))]), [0.0; 4]);
        // A tenant that is over by less than a quantum keeps nothing beyond its share.
        assert_eq!(spare([(101.0, 24.0, None), due, running, (95.0, 0.0, Some(32))]), [0.0; 4]);
    }

    #[test]
    fn a_large_gang_must_be_under_by_the_same_gap_as_any_other_job() {
        // After a quantum of 48 GPUs, eight GPU-hours, its tenant has used 103. It may preempt
        // tenants that have used 104.6, whatever part of the cluster it needs.
        let (running, gang) = ((100.0, 32.0, None), (95.0, 0.0, Some(48)));
        assert_eq!(spare([(104.0, 24.0, None), running, (100.0, 8.0, None), gang]), [0.0; 4]);
        assert_eq!(spare([(105.0, 24.0, None), running, (100.0, 8.0, None), gang])[0], 24.0);
    }
}
