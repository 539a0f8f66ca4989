//! What fair share alone would give: a cell whose GPUs can be divided at will and handed over at any
//! moment. Whoever has used least gets all that he asks for, until he has used as much as the next.

use std::collections::BTreeMap;

use super::usage::{Usage, demand, smallest_waiting, usage};
use crate::queue::{Cluster, Run};
use crate::traces::JobRow;

/// The rule is followed in steps of ten minutes, as long as a turn.
const STEP_MS: i64 = 600_000;
/// Somebody may be told to leave for another who will have used less by one in so many parts after a turn:
/// the cell's own gap.
const GAP: f64 = 64.0;
/// For a job of more than so many parts of the cell the turn is gap enough, if it is worth more: the
/// cell's own rule for such gangs.
const NEAR_SHARE: f64 = 2.0;
/// Halvings in the search for a level: to one in 2^48 of the range.
const HALVINGS: u32 = 48;

/// How much of the world the rule is told of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// What was asked for.
    Demand,
    /// What was used before, too.
    Memory,
    /// And that jobs cannot be divided: what nobody else could have used stays with who had it.
    Room,
}

/// What one tenant had and asked for in each step, in GPU-milliseconds.
struct Tenant<'a> {
    name: &'a str,
    used: Vec<f64>,
    asked: Vec<f64>,
    /// Faded usage before each step.
    faded: Vec<f64>,
    /// What it used that nobody else could have.
    spare: Vec<f64>,
}

/// What all tenants had and asked for.
pub(super) struct History<'a> {
    tenants: Vec<Tenant<'a>>,
    fading: Fading,
}

/// How usage fades.
#[derive(Copy, Clone)]
struct Fading {
    /// What is left of a usage after a step.
    by_step: f64,
}

impl Fading {
    fn new(half_life_ms: i64) -> Fading {
        Fading { by_step: 0.5f64.powf(STEP_MS as f64 / half_life_ms as f64) }
    }

    /// Faded usage after a step in which so much was used evenly.
    fn after(self, faded: f64, used: f64) -> f64 {
        faded * self.by_step + used * self.by_step.sqrt()
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
        let fading = Fading::new(half_life_ms);
        let (usage, demand) = (usage(jobs, tenants, run), demand(jobs, tenants, run));
        let end = demand.values().map(Usage::end).max().unwrap_or(0);
        let steps = end / STEP_MS + 1;
        let by_step = |of: Option<&Usage>| -> Vec<f64> {
            let within =
                |step| of.map_or(0.0, |of| of.within(step * STEP_MS, (step + 1) * STEP_MS));
            (0..steps).map(within).collect()
        };
        let with_faded = demand.iter().map(|(name, demand)| {
            let used = by_step(usage.get(name));
            let faded = used.iter().scan(0.0, |faded, used| {
                let before = *faded;
                *faded = fading.after(before, *used);
                Some(before)
            });
            let (faded, spare) = (faded.collect(), vec![0.0; used.len()]);
            Tenant { name, faded, used, asked: by_step(Some(demand)), spare }
        });
        let mut history = History { tenants: with_faded.collect(), fading };
        let names: Vec<&str> = demand.keys().copied().collect();
        let middles = (0..steps).map(|step| step * STEP_MS + STEP_MS / 2);
        let waiting = smallest_waiting(jobs, tenants, run, &names, middles);
        history.find_spare(cluster, &waiting);
        history
    }

    /// Notes what nobody else could have used: what a tenant had that was over its share while none of
    /// those who were under theirs had a job that would have fitted, had all left who were over, and
    /// its own smaller jobs as far as its tenant would have gained.
    fn find_spare(&mut self, cluster: Cluster, smallest: &[Vec<Option<u32>>]) {
        let all = f64::from(cluster.gpus()) * STEP_MS as f64;
        for (step, waiting) in smallest.iter().enumerate() {
            let parts = self.tenants.iter().filter(|tenant| tenant.asked[step] > 0.0).count();
            let under = |taker: usize, other: usize, gpus: u32| {
                let turn = f64::from(gpus) * STEP_MS as f64;
                let faded = self.tenants[taker].faded[step];
                let least = if turn * parts as f64 > NEAR_SHARE * all {
                    faded + turn.max(faded / GAP)
                } else {
                    (faded + turn) * (1.0 + 1.0 / GAP)
                };
                least < self.tenants[other].faded[step]
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
                    contested[other] |= is_of_use(index, &held, needed);
                }
            }
            for (index, tenant) in self.tenants.iter_mut().enumerate() {
                if is_over[index] && !contested[index] {
                    tenant.spare[step] = tenant.used[step];
                }
            }
        }
    }

    /// What each tenant used between two instants.
    pub(super) fn used(&self, from_ms: i64, to_ms: i64) -> BTreeMap<&'a str, f64> {
        let steps = steps(from_ms, to_ms);
        self.tenants
            .iter()
            .map(|tenant| (tenant.name, tenant.used[steps.clone()].iter().sum()))
            .collect()
    }

    /// What each would have used by the rule, of all that was used, if it had asked for the same.
    pub(super) fn owed(&self, from_ms: i64, to_ms: i64, given: Given) -> BTreeMap<&'a str, f64> {
        let steps = steps(from_ms, to_ms);
        let mut faded: Vec<f64> = match given {
            Given::Demand => vec![0.0; self.tenants.len()],
            Given::Memory | Given::Room => {
                self.tenants.iter().map(|tenant| tenant.faded[steps.start]).collect()
            }
        };
        let mut owed = vec![0.0; self.tenants.len()];
        for step in steps {
            let total: f64 = self.tenants.iter().map(|tenant| tenant.used[step]).sum();
            let asked: Vec<f64> = self.tenants.iter().map(|tenant| tenant.asked[step]).collect();
            let least: Vec<f64> = match given {
                Given::Demand | Given::Memory => vec![0.0; self.tenants.len()],
                Given::Room => self.tenants.iter().map(|tenant| tenant.spare[step]).collect(),
            };
            for (index, given) in fill(total, &faded, &least, &asked).into_iter().enumerate() {
                owed[index] += given;
                faded[index] = self.fading.after(faded[index], given);
            }
        }
        self.tenants.iter().map(|tenant| tenant.name).zip(owed).collect()
    }
}

/// Whether somebody would have to leave so that enough comes free: there are some of those who are over
/// who make room with him and not without him. Who leaves in vain need not.
fn is_of_use(index: usize, held: &[f64], needed: f64) -> bool {
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

/// Divides a total so that those who have least are raised to one level, each by what it asks for at
/// most and by what it keeps at least.
fn fill(total: f64, faded: &[f64], least: &[f64], asked: &[f64]) -> Vec<f64> {
    let given = |level: f64| {
        let bounds = least.iter().zip(asked);
        faded
            .iter()
            .zip(bounds)
            .map(move |(faded, (least, asked))| (level - faded).min(*asked).max(*least))
    };
    let highest = faded.iter().zip(asked).map(|(faded, asked)| faded + asked).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, highest);
    for _ in 0..HALVINGS {
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
    fn those_who_have_least_are_raised_to_one_level_as_far_as_they_ask() {
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

    /// What each may keep of one step: its faded usage in GPU-hours, its GPUs, and the GPUs of its
    /// smallest job that waits.
    fn spare<const N: usize>(tenants: [(f64, f64, Option<u32>); N]) -> [f64; N] {
        let of = |(faded, gpus, _): (f64, f64, Option<u32>)| Tenant {
            name: "",
            used: vec![gpus * STEP],
            asked: vec![64.0 * STEP],
            faded: vec![faded * GPU_HOUR],
            spare: vec![0.0],
        };
        let fading = Fading::new(86_400_000);
        let mut history = History { tenants: tenants.map(of).into_iter().collect(), fading };
        let waiting = tenants.map(|(_, _, waiting)| waiting).to_vec();
        history.find_spare(Cluster { nodes: 8, gpus_per_node: 8 }, &[waiting]);
        std::array::from_fn(|index| history.tenants[index].spare[0] / STEP)
    }

    #[test]
    fn what_nobody_else_could_use_is_not_taken_from_anybody() {
        // One is over its share. A gang of 32 is due, but beside the two who are not over, 24 are free.
        let (over, due) = ((120.0, 24.0, Some(8)), (100.0, 8.0, None));
        let running = (100.0, 32.0, Some(32));
        assert_eq!(spare([over, due, running, (95.0, 0.0, Some(32))]), [24.0, 0.0, 0.0, 0.0]);
        // Had the gang been smaller, somebody would have had to leave for it.
        assert_eq!(spare([over, due, running, (95.0, 0.0, Some(24))]), [0.0; 4]);
        // Nor is it spare where the gang's tenant has smaller jobs that can make room for it.
        assert_eq!(spare([over, running, (95.0, 8.0, Some(32))]), [0.0; 3]);
        // Where two are over and one's place is all that the gang can use, the other's is spare. Where
        // either would do, neither is.
        let gang = (120.0, 32.0, None);
        let small = (100.0, 16.0, None);
        assert_eq!(
            spare([(120.0, 16.0, Some(8)), gang, small, (95.0, 0.0, Some(32))])[..2],
            [16.0, 0.0]
        );
        assert_eq!(spare([gang, gang, (95.0, 0.0, Some(32))]), [0.0; 3]);
        // But no account gains by giving up as much as it gets.
        let many = (95.0, 32.0, Some(32));
        assert_eq!(spare([over, (100.0, 8.0, None), many]), [24.0, 0.0, 0.0]);
        // And if another is over as well, both leave for it.
        let also = (120.0, 8.0, None);
        assert_eq!(spare([over, also, running, (95.0, 0.0, Some(32))]), [0.0; 4]);
        // Who is not over by as much as a turn is worth keeps nothing beyond his share.
        assert_eq!(spare([(101.0, 24.0, None), due, running, (95.0, 0.0, Some(32))]), [0.0; 4]);
    }
}
