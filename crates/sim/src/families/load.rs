//! Loads on a cluster of 8 nodes with 8 GPUs: jobs of four tenants that together ask for about as
//! much as the cluster has, or a little more, for some days.
//!
//! The jobs of the last tenant are not resumable. They take less than a day.

use super::{pick, quantile};
use crate::random::Dice;
use crate::traces::JobRow;

/// The number of tenants.
pub const TENANTS: usize = 4;
/// The GPUs of the cluster.
const GPUS: i64 = 64;
const HOUR_MS: i64 = 3_600_000;
/// The longest job that is not resumable.
const LONGEST_MS: i64 = 20 * HOUR_MS;

/// The kinds of load.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadFamily {
    /// Jobs of all sizes, at random instants.
    Poisson,
    /// The same jobs, each tenant submitting dozens at once.
    Bursty,
    /// The same jobs, most of them submitted by day.
    Diurnal,
    /// Mostly gangs, up to the whole cluster.
    GangHeavy,
    /// One tenant floods the cluster with jobs of minutes.
    TinyFlood,
    /// The same jobs as at random instants, each with a stated longest runtime.
    StatedEnds,
    /// Mostly gangs, each with a stated longest runtime.
    StatedGangs,
}

impl LoadFamily {
    /// All families.
    pub const ALL: [LoadFamily; 7] = [
        LoadFamily::Poisson,
        LoadFamily::Bursty,
        LoadFamily::Diurnal,
        LoadFamily::GangHeavy,
        LoadFamily::TinyFlood,
        LoadFamily::StatedEnds,
        LoadFamily::StatedGangs,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            LoadFamily::Poisson => "poisson",
            LoadFamily::Bursty => "bursty",
            LoadFamily::Diurnal => "diurnal",
            LoadFamily::GangHeavy => "gang-heavy",
            LoadFamily::TinyFlood => "tiny-flood",
            LoadFamily::StatedEnds => "stated-ends",
            LoadFamily::StatedGangs => "stated-gangs",
        }
    }

    fn recipe(self) -> Recipe {
        let mixed = Recipe { jobs: 600, sizes: MIXED, durations: MINUTES_TO_DAY, percent: 115 };
        match self {
            LoadFamily::Poisson | LoadFamily::StatedEnds => mixed,
            LoadFamily::Bursty => Recipe { percent: 100, ..mixed },
            LoadFamily::Diurnal => Recipe { percent: 110, ..mixed },
            LoadFamily::GangHeavy | LoadFamily::StatedGangs => {
                Recipe { jobs: 400, sizes: GANGS, durations: MINUTES_TO_HOURS, percent: 110 }
            }
            LoadFamily::TinyFlood => Recipe { jobs: 1600, percent: 110, ..mixed },
        }
    }
}

struct Recipe {
    jobs: usize,
    sizes: &'static [(u32, u32)],
    /// Quantiles in thousandths, and seconds.
    durations: &'static [(i64, i64)],
    /// The work, in per cent of what the cluster can do until the last submission.
    percent: i64,
}

const MIXED: &[(u32, u32)] = &[(50, 1), (15, 2), (12, 4), (15, 8), (5, 16), (3, 32)];
const GANGS: &[(u32, u32)] = &[(10, 1), (40, 8), (25, 16), (20, 32), (5, 64)];
const MINUTES_TO_DAY: &[(i64, i64)] =
    &[(0, 60), (250, 900), (500, 5_400), (750, 18_000), (900, 43_200), (1000, 72_000)];
const MINUTES_TO_HOURS: &[(i64, i64)] =
    &[(0, 120), (250, 1_200), (500, 3_600), (900, 10_800), (1000, 36_000)];
const TINY: &[(i64, i64)] = &[(0, 60), (500, 300), (1000, 1_200)];
/// Exponential intervals with a mean of a thousand.
const EXPONENTIAL: &[(i64, i64)] = &[
    (0, 0),
    (100, 105),
    (250, 288),
    (500, 693),
    (750, 1_386),
    (900, 2_303),
    (950, 2_996),
    (990, 4_605),
    (1000, 6_900),
];

/// Separates these draws from those of other families.
const PURPOSE: u64 = 14;

/// A job and how long after the one before it was submitted, in any unit.
struct DrawnJob {
    tenant: usize,
    gpus: u32,
    duration_ms: i64,
    interval: i64,
    max_runtime_ms: Option<i64>,
}

/// The jobs of a family, in order of submission. Their tenants are `t0` to `t3`.
pub fn jobs(family: LoadFamily, seed: u64) -> Vec<JobRow> {
    let recipe = family.recipe();
    let mut dice = Dice::new(seed, PURPOSE);
    let mut drawn: Vec<DrawnJob> = Vec::new();
    let (mut burst, mut of_burst) = (0, 0);
    while drawn.len() < recipe.jobs {
        let mut interval = quantile(&mut dice, EXPONENTIAL);
        let mut tenant = dice.below(TENANTS);
        let mut gpus = pick(&mut dice, recipe.sizes);
        let mut duration_ms = quantile(&mut dice, recipe.durations) * 1000;
        match family {
            LoadFamily::Poisson
            | LoadFamily::GangHeavy
            | LoadFamily::Diurnal
            | LoadFamily::StatedEnds
            | LoadFamily::StatedGangs => {}
            LoadFamily::Bursty if burst == 0 => {
                (burst, of_burst) = (dice.below(40) + 10, tenant);
                interval *= 30;
            }
            LoadFamily::Bursty => {
                burst -= 1;
                tenant = of_burst;
                interval /= 20;
            }
            LoadFamily::TinyFlood if dice.below(5) > 0 => {
                (tenant, gpus) = (0, 1);
                duration_ms = quantile(&mut dice, TINY) * 1000;
            }
            LoadFamily::TinyFlood => tenant = 1 + dice.below(TENANTS - 1),
        }
        if tenant + 1 == TENANTS {
            duration_ms = duration_ms.min(LONGEST_MS);
        }
        let states = matches!(family, LoadFamily::StatedEnds | LoadFamily::StatedGangs);
        let max_runtime_ms = states.then(|| stated(duration_ms, dice.below(4)));
        drawn.push(DrawnJob { tenant, gpus, duration_ms, interval, max_runtime_ms });
    }
    let work: i64 = drawn.iter().map(|job| job.duration_ms * i64::from(job.gpus)).sum();
    let span = work / GPUS * 100 / recipe.percent;
    let total = drawn.iter().map(|job| job.interval).sum::<i64>().max(1);
    let mut passed = 0;
    let row = |job: DrawnJob| {
        passed += job.interval;
        let at = (i128::from(span) * i128::from(passed) / i128::from(total)) as i64;
        JobRow {
            tenant: Some(format!("t{}", job.tenant)),
            submit_ms: if family == LoadFamily::Diurnal { by_day(at) } else { at },
            duration_ms: job.duration_ms,
            gpus: job.gpus,
            resumable: job.tenant + 1 < TENANTS,
            max_runtime_ms: job.max_runtime_ms,
        }
    };
    drawn.into_iter().map(row).collect()
}

/// The longest runtime that is stated for a job: one to four times its duration, in whole hours.
fn stated(duration_ms: i64, more: usize) -> i64 {
    let times = 1 + more as i64;
    (duration_ms * times / HOUR_MS + 1) * HOUR_MS
}

/// Moves instants of a day so that five of six fall into its first twelve hours.
fn by_day(at: i64) -> i64 {
    const DAY: i64 = 24 * HOUR_MS;
    let (day, within) = (at / DAY, at % DAY);
    let busy = DAY * 5 / 6;
    let moved = if within < busy { within * 6 / 10 } else { DAY / 2 + (within - busy) * 3 };
    day * DAY + moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_a_load_and_jobs_come_in_order() {
        for family in LoadFamily::ALL {
            let rows = jobs(family, 1);
            assert_eq!(rows, jobs(family, 1));
            assert_ne!(rows, jobs(family, 2));
            assert!(rows.is_sorted_by_key(|row| row.submit_ms), "{}", family.name());
            let work: i64 = rows.iter().map(|row| row.duration_ms * i64::from(row.gpus)).sum();
            let days = work / GPUS / (24 * HOUR_MS);
            assert!((2..=12).contains(&days), "{}: {days} days", family.name());
            let short = |row: &JobRow| row.resumable || row.duration_ms <= LONGEST_MS;
            assert!(rows.iter().all(short));
        }
    }

    #[test]
    fn most_jobs_of_a_day_are_submitted_in_its_first_half() {
        let rows = jobs(LoadFamily::Diurnal, 1);
        let by_day = rows.iter().filter(|row| row.submit_ms % (24 * HOUR_MS) < 12 * HOUR_MS);
        let part = by_day.count() * 100 / rows.len();
        assert!((75..92).contains(&part), "{part} %");
    }
}
