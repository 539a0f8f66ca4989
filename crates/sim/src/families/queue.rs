//! Jobs that wait for a cluster of 8 nodes with 8 GPUs each.

use super::{pick, quantile};
use crate::random::Dice;
use crate::traces::JobRow;

/// The variants of a queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueFamily {
    /// Gangs of a node and of half the cluster, for hours and days.
    Gangs,
    /// The same jobs, all submitted at once.
    GangsAtOnce,
    /// Jobs of one GPU for weeks among gangs of a node: more work than the cluster can do in that
    /// time.
    Long,
    /// Small jobs of hours that arrive within an hour and a half.
    Short,
}

impl QueueFamily {
    /// All families.
    pub const ALL: [QueueFamily; 4] =
        [QueueFamily::Gangs, QueueFamily::GangsAtOnce, QueueFamily::Long, QueueFamily::Short];

    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            QueueFamily::Gangs => "gangs",
            QueueFamily::GangsAtOnce => "gangs-at-once",
            QueueFamily::Long => "long",
            QueueFamily::Short => "short",
        }
    }
}

/// A quantile in thousandths, and its value in seconds.
type Quantiles = &'static [(i64, i64)];

/// The GPUs of a job, and the durations of jobs of that size.
type Kind = (u32, Quantiles);

struct Recipe {
    jobs: usize,
    kinds: &'static [(u32, Kind)],
    /// Seconds between two submissions.
    intervals: Quantiles,
}

const SECONDS_TO_HOURS: Quantiles =
    &[(0, 5), (250, 55), (500, 850), (750, 8_700), (900, 12_500), (950, 24_000), (1000, 80_000)];

const GANGS: Recipe = Recipe {
    jobs: 600,
    kinds: &[
        (135, (1, SECONDS_TO_HOURS)),
        (22, (2, SECONDS_TO_HOURS)),
        (34, (4, &[(0, 15), (500, 300), (750, 2_300), (900, 36_000), (1000, 700_000)])),
        (
            690,
            (
                8,
                &[
                    (0, 1),
                    (100, 90),
                    (250, 750),
                    (500, 4_000),
                    (750, 90_000),
                    (900, 205_000),
                    (950, 230_000),
                    (1000, 400_000),
                ],
            ),
        ),
        (10, (16, &[(0, 700), (500, 4_400), (1000, 85_000)])),
        (
            109,
            (
                32,
                &[
                    (0, 20),
                    (100, 50),
                    (250, 900),
                    (500, 14_400),
                    (750, 48_700),
                    (900, 56_600),
                    (1000, 140_000),
                ],
            ),
        ),
    ],
    intervals: &[
        (0, 3),
        (100, 6),
        (250, 30),
        (500, 550),
        (750, 4_300),
        (900, 21_000),
        (950, 38_000),
        (990, 104_000),
        (1000, 300_000),
    ],
};

const LONG: Recipe = Recipe {
    jobs: 600,
    kinds: &[
        (
            360,
            (
                1,
                &[
                    (0, 3),
                    (100, 120),
                    (250, 1_100),
                    (500, 14_000),
                    (750, 400_000),
                    (900, 1_700_000),
                    (1000, 3_000_000),
                ],
            ),
        ),
        (
            285,
            (
                4,
                &[
                    (0, 2),
                    (100, 140),
                    (250, 320),
                    (500, 6_000),
                    (750, 88_000),
                    (900, 120_000),
                    (1000, 530_000),
                ],
            ),
        ),
        (
            310,
            (
                8,
                &[
                    (0, 2),
                    (100, 250),
                    (250, 850),
                    (500, 14_300),
                    (750, 260_000),
                    (900, 720_000),
                    (1000, 3_500_000),
                ],
            ),
        ),
        (27, (16, &[(0, 30), (250, 460), (500, 54_000), (750, 123_000), (1000, 300_000)])),
        (18, (32, &[(0, 50), (500, 220), (750, 16_500), (1000, 110_000)])),
    ],
    intervals: &[
        (0, 0),
        (250, 7),
        (500, 160),
        (750, 2_400),
        (900, 15_000),
        (950, 34_000),
        (990, 150_000),
        (1000, 400_000),
    ],
};

const MINUTES_TO_HOURS: Quantiles = &[
    (0, 720),
    (100, 1_100),
    (250, 1_900),
    (500, 3_200),
    (750, 4_600),
    (900, 8_400),
    (1000, 18_000),
];

const SHORT: Recipe = Recipe {
    jobs: 120,
    kinds: &[(77, (1, MINUTES_TO_HOURS)), (17, (2, MINUTES_TO_HOURS)), (6, (4, MINUTES_TO_HOURS))],
    intervals: &[(0, 0), (250, 10), (500, 30), (750, 50), (900, 90), (1000, 200)],
};

/// Separates the draws of queues from those of clusters.
const PURPOSE: u64 = 13;

/// The jobs of a family, in order of submission.
pub fn jobs(family: QueueFamily, seed: u64) -> Vec<JobRow> {
    let recipe = match family {
        QueueFamily::Gangs | QueueFamily::GangsAtOnce => GANGS,
        QueueFamily::Long => LONG,
        QueueFamily::Short => SHORT,
    };
    let mut dice = Dice::new(seed, PURPOSE);
    let mut submit_ms = 0;
    let mut rows = Vec::new();
    for place in 0..recipe.jobs {
        let (gpus, durations) = pick(&mut dice, recipe.kinds);
        let duration_ms = quantile(&mut dice, durations) * 1000;
        let interval_ms = quantile(&mut dice, recipe.intervals) * 1000;
        if place > 0 && family != QueueFamily::GangsAtOnce {
            submit_ms += interval_ms;
        }
        rows.push(JobRow {
            tenant: None,
            submit_ms,
            duration_ms,
            gpus,
            resumable: true,
            max_runtime_ms: None,
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_queue_and_another_a_different_one() {
        for family in QueueFamily::ALL {
            assert_eq!(jobs(family, 1), jobs(family, 1));
            assert_ne!(jobs(family, 1), jobs(family, 2));
        }
    }

    #[test]
    fn the_queues_are_busy_and_differ_as_their_names_say() {
        let load = |family| {
            let jobs = jobs(family, 1);
            let work: i64 = jobs.iter().map(|job| i64::from(job.gpus) * job.duration_ms).sum();
            let span = jobs.iter().map(|job| job.submit_ms).max().expect("there are jobs");
            (work / 64, span)
        };
        let (work, span) = load(QueueFamily::Gangs);
        assert!(work * 10 > span * 6 && work < span * 2, "{work} in {span}");
        let (work, span) = load(QueueFamily::Long);
        assert!(work * 5 > span * 6, "{work} in {span}");
        assert_eq!(load(QueueFamily::GangsAtOnce).1, 0);
        let halves = jobs(QueueFamily::Gangs, 1).iter().filter(|job| job.gpus == 32).count();
        assert!((40..90).contains(&halves), "{halves}");
        let last = jobs(QueueFamily::Short, 1).iter().map(|job| job.submit_ms).max();
        assert!(last < Some(7_200_000), "{last:?}");
    }
}
