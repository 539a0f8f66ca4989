//! How far tenants were from their shares, and why.
//!
//! A share is measured over windows of 24 hours in which at least two tenants always had a waiting
//! job. The error of a tenant is its distance from an equal part of what these tenants used
//! together. Not every error is caused by the cell, because fair share does not mean equal parts of
//! a day. The rule is: the tenant with the lowest decayed usage is next, with a half-life of a day
//! by default. So a tenant that returns is entitled to more than its part for a while, and a tenant
//! with less demand than its part leaves the rest to the others. A tenant also keeps GPUs that no
//! tenant entitled to them could use. `rule.rs` computes what the rule alone would give, so that
//! errors explained by the rule are separated from the others.

mod rule;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use super::{Cluster, Run};
use crate::traces::JobRow;
use rule::{History, RuleFacts};
use usage::backlogs;

const WINDOW_MS: i64 = 86_400_000;
const STEP_MS: i64 = 3_600_000;

/// The maximum error of a tenant, as a fraction of its entitlement.
pub const BOUND: f64 = 0.05;

/// The reason why a tenant had another part of a window than the others.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShareErrorCause {
    /// No error beyond [`BOUND`].
    None,
    /// The jobs of some tenant requested less than its part for a while. Fair share of the
    /// requested amounts is within [`BOUND`].
    Demand,
    /// Some tenant had used less or more than the others before. Fair share with past usage is
    /// within [`BOUND`].
    Memory,
    /// Some tenant over its share had GPUs that no other tenant could have used: no job of the
    /// tenants under their share would have fitted beside the others' work if it had been preempted.
    Room,
    /// None of these: the cell gave more or less than the rule.
    Cell,
}

/// The possible explanations of an error, simplest first.
const CAUSES: [(RuleFacts, ShareErrorCause); 3] = [
    (RuleFacts::Demand, ShareErrorCause::Demand),
    (RuleFacts::Memory, ShareErrorCause::Memory),
    (RuleFacts::Room, ShareErrorCause::Room),
];

/// The result of one tenant in a window.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct TenantResult {
    /// Usage divided by the entitlement, minus one. The entitlement is an equal part of what the
    /// tenants that always waited used together.
    pub error: f64,
    /// The cause of the error.
    pub cause: ShareErrorCause,
    /// The distance from what the rule gives, as a fraction of the entitlement. Zero if there is
    /// nothing to explain.
    pub beyond_rule: f64,
}

/// 24 hours in which at least two tenants always had a waiting job.
#[derive(Clone, Debug, PartialEq)]
pub struct ContentionWindow {
    /// When it begins.
    pub from_ms: i64,
    /// The tenants that always had a waiting job.
    pub tenants: BTreeMap<String, TenantResult>,
}

impl ContentionWindow {
    /// The last of the causes of its tenants' errors.
    pub fn cause(&self) -> ShareErrorCause {
        self.tenants.values().map(|tenant| tenant.cause).max().unwrap_or(ShareErrorCause::None)
    }
}

/// The largest error of each tenant. Leaves out tenants that never waited for 24 hours beside
/// another.
pub fn share_errors(windows: &[ContentionWindow]) -> BTreeMap<String, f64> {
    let mut worst: BTreeMap<String, f64> = BTreeMap::new();
    for (tenant, standing) in windows.iter().flat_map(|window| &window.tenants) {
        let entry = worst.entry(tenant.clone()).or_default();
        *entry = entry.max(standing.error.abs());
    }
    worst
}

/// The number of windows by cause.
pub fn by_cause(windows: &[ContentionWindow]) -> BTreeMap<ShareErrorCause, usize> {
    let mut counts = BTreeMap::new();
    for window in windows {
        *counts.entry(window.cause()).or_default() += 1;
    }
    counts
}

/// The largest distance of a tenant from what the rule gives, where the cell is the cause.
pub fn worst_beyond_rule(windows: &[ContentionWindow]) -> f64 {
    let tenants = windows.iter().flat_map(|window| window.tenants.values());
    let by_the_cell = tenants.filter(|tenant| tenant.cause == ShareErrorCause::Cell);
    by_the_cell.map(|tenant| tenant.beyond_rule.abs()).fold(0.0, f64::max)
}

/// All windows of a run, one per hour. There are none if each job is its own tenant: such a tenant
/// waits or runs, and never does both.
pub fn windows(
    jobs: &[JobRow],
    tenants: &[String],
    cluster: Cluster,
    half_life_ms: i64,
    run: &Run,
) -> Vec<ContentionWindow> {
    let names: BTreeSet<&String> = tenants.iter().collect();
    if names.len() == tenants.len() {
        return Vec::new();
    }
    let backlogs = backlogs(jobs, tenants, run);
    let history = History::new(jobs, tenants, cluster, half_life_ms, run);
    let end = run.jobs.iter().map(|job| job.finished_ms).max().unwrap_or(0);
    let starts = (0..).map(|step| step * STEP_MS).take_while(|from| from + WINDOW_MS <= end);
    starts
        .filter_map(|from_ms| {
            let to = from_ms + WINDOW_MS;
            let always = |backlog: &[(i64, i64)]| {
                backlog.iter().any(|(start, stop)| *start <= from_ms && to <= *stop)
            };
            let waiting = backlogs.iter().filter(|(_, backlog)| always(backlog));
            let waiting: Vec<&str> = waiting.map(|(tenant, _)| *tenant).collect();
            window(&history, from_ms, &waiting)
        })
        .collect()
}

/// The window of the tenants that always waited.
fn window(history: &History<'_>, from_ms: i64, waiting: &[&str]) -> Option<ContentionWindow> {
    let to = from_ms + WINDOW_MS;
    let used = history.used(from_ms, to);
    let total: f64 = waiting.iter().filter_map(|tenant| used.get(tenant)).sum();
    if waiting.len() < 2 || total <= 0.0 {
        return None;
    }
    let entitled = total / waiting.len() as f64;
    let off = |had: &BTreeMap<&str, f64>, tenant: &str| {
        had.get(tenant).copied().unwrap_or(0.0) / entitled - 1.0
    };
    let errors: Vec<f64> = waiting.iter().map(|tenant| off(&used, tenant)).collect();
    let plain = errors.iter().all(|error| error.abs() <= BOUND);
    let causes: &[(RuleFacts, ShareErrorCause)] = if plain { &[] } else { &CAUSES };
    let owed = causes.iter().map(|(given, cause)| (history.owed(from_ms, to, *given), *cause));
    let owed: Vec<_> = owed.collect();
    let standing = |tenant: &&str, error: f64| {
        let beyond = |owed| (error - off(owed, tenant)).abs();
        let explained = owed.iter().find(|(owed, _)| beyond(owed) <= BOUND);
        let cause = match explained {
            _ if error.abs() <= BOUND => ShareErrorCause::None,
            Some((_, cause)) => *cause,
            None => ShareErrorCause::Cell,
        };
        let beyond_rule = owed.last().map_or(0.0, |(owed, _)| error - off(owed, tenant));
        (tenant.to_string(), TenantResult { error, cause, beyond_rule })
    };
    let tenants = waiting.iter().zip(errors).map(|(tenant, error)| standing(tenant, error));
    Some(ContentionWindow { from_ms, tenants: tenants.collect() })
}

#[cfg(test)]
mod tests {
    use super::super::{Finished, RunInterval};
    use super::*;

    const HOUR: i64 = 3_600_000;
    const EIGHT_NODES: Cluster = Cluster { nodes: 8, gpus_per_node: 8 };

    /// Jobs with their tenants, and the hours in which each has its GPUs.
    type Plan<'a> = &'a [(&'a str, u32, i64, &'a [(i64, i64)])];

    /// The windows of a plan: tenant, GPUs and hour of submission of each job, and its hours.
    fn planned(plan: Plan<'_>) -> Vec<ContentionWindow> {
        let mut run = Run { jobs: Vec::new(), stretches: Vec::new() };
        let (mut jobs, mut tenants) = (Vec::new(), Vec::new());
        for (job, (tenant, gpus, submit, hours)) in plan.iter().enumerate() {
            let hour = |at: i64| at * HOUR;
            let stretches = hours.iter().map(|(from, to)| (hour(*from), hour(*to)));
            run.stretches.extend(stretches.clone().map(|(from_ms, to_ms)| RunInterval {
                job,
                from_ms,
                to_ms,
            }));
            let started_ms = stretches.clone().map(|(from, _)| from).min().expect("it runs");
            let finished_ms = stretches.clone().map(|(_, to)| to).max().expect("it runs");
            run.jobs.push(Finished { started_ms, finished_ms, starts: 1 });
            jobs.push(JobRow {
                tenant: None,
                submit_ms: hour(*submit),
                duration_ms: stretches.map(|(from, to)| to - from).sum(),
                gpus: *gpus,
                resumable: true,
                max_runtime_ms: None,
            });
            tenants.push(tenant.to_string());
        }
        windows(&jobs, &tenants, EIGHT_NODES, 24 * HOUR, &run)
    }

    fn at_hour(windows: &[ContentionWindow], hour: i64) -> &ContentionWindow {
        windows.iter().find(|window| window.from_ms == hour * HOUR).expect("a window")
    }

    #[test]
    fn the_share_error_compares_tenants_that_waited_all_day() {
        // Of eight GPUs each tenant was entitled to four: one had five, the other three.
        let windows = planned(&[
            ("a", 5, 0, &[(0, 24)]),
            ("b", 3, 0, &[(0, 24)]),
            ("a", 8, 0, &[(24, 25)]),
            ("b", 8, 0, &[(25, 26)]),
        ]);
        assert_eq!(
            share_errors(&windows),
            BTreeMap::from([("a".into(), 0.25), ("b".into(), 0.25)])
        );
    }

    #[test]
    fn an_unexplained_difference_is_caused_by_the_cell() {
        let windows = planned(&[
            ("a", 40, 0, &[(0, 25)]),
            ("b", 24, 0, &[(0, 25)]),
            ("a", 40, 0, &[(25, 26)]),
            ("b", 24, 0, &[(25, 26)]),
        ]);
        let window = at_hour(&windows, 0);
        assert_eq!(window.cause(), ShareErrorCause::Cell);
        assert!((window.tenants["a"].beyond_rule - 0.25).abs() < 0.01, "{window:?}");
    }

    #[test]
    fn a_tenant_with_low_demand_leaves_its_part_to_the_others() {
        let windows = planned(&[
            ("a", 44, 0, &[(0, 25)]),
            ("b", 20, 0, &[(0, 25)]),
            ("a", 44, 0, &[(25, 26)]),
            ("b", 1, 0, &[(25, 26)]),
        ]);
        let window = at_hour(&windows, 0);
        assert_eq!(window.tenants["a"].cause, ShareErrorCause::Demand, "{window:?}");
        assert_eq!(window.tenants["b"].cause, ShareErrorCause::Demand, "{window:?}");
    }

    #[test]
    fn a_new_tenant_is_entitled_to_more_than_its_part() {
        // In 19 hours alone, a tenant catches up with two days of another, because usage decays.
        let before: Plan<'_> = &[("a", 64, 0, &[(0, 48)])];
        let after: Plan<'_> = &[
            ("a", 32, 48, &[(67, 74)]),
            ("a", 64, 48, &[(74, 75)]),
            ("b", 64, 48, &[(48, 67)]),
            ("b", 32, 48, &[(67, 74)]),
            ("b", 64, 48, &[(75, 76)]),
        ];
        let windows = planned(&[before, after].concat());
        let window = at_hour(&windows, 48);
        assert!(window.tenants["b"].error > 0.75, "{window:?}");
        assert_eq!(window.cause(), ShareErrorCause::Memory, "{window:?}");
        // If both tenants arrive together, neither is entitled to more.
        assert_eq!(at_hour(&planned(after), 48).cause(), ShareErrorCause::Cell);
    }

    #[test]
    fn a_window_is_a_day_long_and_one_begins_every_hour() {
        let windows = planned(&[
            ("a", 4, 0, &[(0, 26)]),
            ("b", 4, 0, &[(0, 26)]),
            ("a", 8, 0, &[(26, 27)]),
            ("b", 8, 0, &[(27, 28)]),
        ]);
        let starts: Vec<i64> = windows.iter().map(|window| window.from_ms).collect();
        assert_eq!(starts, [0, HOUR, 2 * HOUR]);
        assert!(windows.iter().all(|window| window.cause() == ShareErrorCause::None));
    }
}
