//! What each rule of the cell's policy buys: workloads run with all rules, and again with one rule
//! off in turn.

pub mod cases;

use std::collections::BTreeMap;

use bursar_core::cell::CellConfig;
use bursar_core::cell::schedule::preemption::rules::{Rule, Rules};

use crate::parallel::in_parallel;
use crate::queue::Run;
use crate::queue::baseline::{self, Baseline};
use crate::queue::cell::{SettingsError, Setup, run_with};
use crate::queue::metrics::figures;
use crate::queue::shares::{ShareErrorCause, windows};
use crate::statistics::percentile;
use cases::Case;

/// What a start of a resumable job costs: the time to load its state and what it did since it last
/// saved.
const START_MS: i64 = 300_000;
const HOUR_MS: f64 = 3_600_000.0;

/// A policy to measure.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The name in the table.
    pub name: String,
    /// The rules that apply.
    pub rules: Rules,
    /// The settings of the cell.
    pub config: CellConfig,
}

impl Variant {
    /// A policy, and the same with each of its rules off in turn.
    pub fn each_rule_off(of: &Variant) -> Vec<Variant> {
        let on = Rule::ALL.into_iter().filter(|rule| of.rules.has(*rule));
        let off = on.map(|rule| Variant {
            name: format!("without {}", rule.name()),
            rules: of.rules.without(rule),
            config: of.config.clone(),
        });
        std::iter::once(of.clone()).chain(off).collect()
    }
}

/// The figures of one case under one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Mean time from submission to the end, in seconds.
    pub mean_s: f64,
    /// The 99th percentile of that time.
    pub p99_s: f64,
    /// The mean divided by that of shortest remaining time first.
    pub of_srtf: f64,
    /// Starts per job.
    pub starts: f64,
    /// GPU time lost by preemption, as a part of the work.
    pub wasted: f64,
    /// The longest time from submission to the first start, in hours.
    pub longest_wait_h: f64,
    /// Daily share errors of tenants whose jobs resume.
    pub errors: Vec<f64>,
    /// Daily share errors of other tenants.
    pub errors_of_rest: Vec<f64>,
    /// The part of all these errors that the rule of fair share does not explain.
    pub beyond: Vec<f64>,
}

/// The figures of a policy over several cases.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySummary {
    /// The name of the policy.
    pub name: String,
    /// Mean completion time compared with the first policy: the geometric mean over families.
    pub mean: f64,
    /// The same for the 99th percentile.
    pub p99: f64,
    /// Mean completion time compared with shortest remaining time first.
    pub of_srtf: f64,
    /// Daily share errors of tenants whose jobs resume. Mean and percentile are means over families.
    pub error: ShareError,
    /// The 95th percentile for other tenants.
    pub error_of_rest: f64,
    /// The 95th percentile of what the rule does not explain.
    pub beyond: f64,
    /// Starts per job.
    pub starts: f64,
    /// GPU time lost by preemption.
    pub wasted: f64,
    /// The longest time from submission to the first start, in hours.
    pub longest_wait_h: f64,
    /// By family: mean completion time compared with the first policy, and the 95th percentile of
    /// daily share errors.
    pub families: BTreeMap<String, FamilySummary>,
}

/// Daily share errors of several windows and tenants.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ShareError {
    /// The mean.
    pub mean: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The worst.
    pub worst: f64,
}

impl ShareError {
    fn of(errors: &[f64]) -> Option<ShareError> {
        let p95 = percentile(errors, 95.0)?;
        let worst = errors.iter().copied().fold(0.0, f64::max);
        Some(ShareError { mean: mean(errors.iter().copied()), p95, worst })
    }
}

/// The figures of a policy on one family.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilySummary {
    /// Mean completion time compared with the first policy.
    pub mean: f64,
    /// The same for the 99th percentile.
    pub p99: f64,
    /// Mean completion time compared with shortest remaining time first.
    pub of_srtf: f64,
    /// Daily share errors of tenants whose jobs resume, if tenants were backlogged for a day.
    pub error: Option<ShareError>,
    /// Starts per job.
    pub starts: f64,
}

/// Measures every policy on every case. `done` is called after each run.
pub fn study(
    cases: &[Case],
    variants: &[Variant],
    done: &(dyn Fn() + Sync),
) -> Result<Vec<PolicySummary>, SettingsError> {
    // Long cases first, so that no core idles at the end.
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|case| std::cmp::Reverse(cases[*case].jobs.len()));
    let best = in_parallel(&order, |case| (*case, known_durations(&cases[*case])));
    let best: BTreeMap<usize, f64> = best.into_iter().collect();
    let runs: Vec<(usize, usize)> =
        order.iter().flat_map(|case| (0..variants.len()).map(|variant| (*case, variant))).collect();
    let measured = in_parallel(&runs, |(case, variant)| {
        let measured = measure(&cases[*case], &variants[*variant], best[case]);
        done();
        measured.map(|measured| ((*variant, *case), measured))
    });
    let measured: BTreeMap<(usize, usize), Measured> =
        measured.into_iter().collect::<Result<_, _>>()?;
    let of = |variant: usize| -> Vec<&Measured> {
        (0..cases.len()).map(|case| &measured[&(variant, case)]).collect()
    };
    let first = of(0);
    let summary =
        |(place, variant): (usize, &Variant)| summarise(&variant.name, cases, &of(place), &first);
    Ok(variants.iter().enumerate().map(summary).collect())
}

/// Mean completion time with shortest remaining time first.
fn known_durations(case: &Case) -> f64 {
    let run = baseline::run(&case.jobs, case.cluster, Baseline::Srtf);
    figures(&case.jobs, case.cluster, &run).mean_jct_s
}

/// Runs a case under a policy.
pub fn measure(case: &Case, variant: &Variant, srtf_s: f64) -> Result<Measured, SettingsError> {
    // Agents answer orders at once, and usage is counted at heartbeats: five minutes are half of the
    // shortest quantum, and cost less time than the default.
    let minute = 60_000;
    let config = CellConfig {
        heartbeat_ms: 5 * minute,
        node_lease_ms: 15 * minute,
        ..variant.config.clone()
    };
    let half_life_ms = config.half_life_ms;
    let setup = Setup { config, rules: variant.rules, starts_over: true };
    let run = run_with(&case.jobs, &case.accounts, case.cluster, &setup, &mut || {})?;
    let figures = figures(&case.jobs, case.cluster, &run);
    let resumes: BTreeMap<&String, bool> =
        case.accounts.iter().zip(&case.jobs).map(|(tenant, job)| (tenant, job.resumable)).collect();
    let (mut errors, mut errors_of_rest, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
    for window in windows(&case.jobs, &case.accounts, case.cluster, half_life_ms, &run) {
        for (tenant, result) in &window.tenants {
            let error = result.error.abs();
            if resumes[tenant] {
                errors.push(error)
            } else {
                errors_of_rest.push(error)
            }
            let by_cell = result.cause == ShareErrorCause::Cell;
            beyond.push(if by_cell { result.beyond_rule.abs() } else { 0.0 });
        }
    }
    Ok(Measured {
        mean_s: figures.mean_jct_s,
        p99_s: figures.p99_jct_s,
        of_srtf: figures.mean_jct_s / srtf_s,
        starts: figures.starts_per_job,
        wasted: wasted(case, &run),
        longest_wait_h: longest_wait_h(case, &run),
        errors,
        errors_of_rest,
        beyond,
    })
}

/// GPU time lost by preemption, as a part of the work: what a job that is not resumable did before
/// it started over, and the starts of resumable jobs after their first.
fn wasted(case: &Case, run: &Run) -> f64 {
    let needed: i64 = case.jobs.iter().map(|job| job.duration_ms * i64::from(job.gpus)).sum();
    let used = run.stretches.iter();
    let used = used.map(|part| (part.to_ms - part.from_ms) * i64::from(case.jobs[part.job].gpus));
    let restarts = case.jobs.iter().zip(&run.jobs).filter(|(row, _)| row.resumable);
    let restarts = restarts
        .map(|(row, job)| i64::from(job.starts.saturating_sub(1)) * START_MS * i64::from(row.gpus));
    (used.sum::<i64>() - needed + restarts.sum::<i64>()) as f64 / needed as f64
}

fn longest_wait_h(case: &Case, run: &Run) -> f64 {
    let waits = case.jobs.iter().zip(&run.jobs).map(|(row, job)| job.started_ms - row.submit_ms);
    waits.max().unwrap_or(0) as f64 / HOUR_MS
}

fn summarise(name: &str, cases: &[Case], of: &[&Measured], first: &[&Measured]) -> PolicySummary {
    let mut members: BTreeMap<&String, Vec<usize>> = BTreeMap::new();
    for (place, case) in cases.iter().enumerate() {
        members.entry(&case.family).or_default().push(place);
    }
    let families: BTreeMap<String, FamilySummary> = members
        .iter()
        .map(|(family, places)| ((*family).clone(), family_summary(places, of, first)))
        .collect();
    let over = |figure: fn(&FamilySummary) -> f64| mean(families.values().map(figure));
    let product = |figure: fn(&FamilySummary) -> f64| {
        mean(families.values().map(|family| figure(family).ln())).exp()
    };
    let all = |errors: fn(&Measured) -> &Vec<f64>| -> Vec<f64> {
        of.iter().flat_map(|measured| errors(measured).iter().copied()).collect()
    };
    let contended: Vec<ShareError> = families.values().filter_map(|family| family.error).collect();
    PolicySummary {
        name: name.to_string(),
        mean: product(|family| family.mean),
        p99: product(|family| family.p99),
        of_srtf: product(|family| family.of_srtf),
        error: ShareError {
            mean: mean(contended.iter().map(|error| error.mean)),
            p95: mean(contended.iter().map(|error| error.p95)),
            worst: contended.iter().map(|error| error.worst).fold(0.0, f64::max),
        },
        error_of_rest: percentile(&all(|measured| &measured.errors_of_rest), 95.0).unwrap_or(0.0),
        beyond: percentile(&all(|measured| &measured.beyond), 95.0).unwrap_or(0.0),
        starts: over(|family| family.starts),
        wasted: mean(of.iter().map(|measured| measured.wasted)),
        longest_wait_h: of.iter().map(|measured| measured.longest_wait_h).fold(0.0, f64::max),
        families,
    }
}

/// The figures of one family, given the places of its cases.
fn family_summary(places: &[usize], of: &[&Measured], first: &[&Measured]) -> FamilySummary {
    let product =
        |figure: &dyn Fn(usize) -> f64| mean(places.iter().map(|place| figure(*place).ln())).exp();
    let errors: Vec<f64> =
        places.iter().flat_map(|place| of[*place].errors.iter().copied()).collect();
    FamilySummary {
        mean: product(&|place| of[place].mean_s / first[place].mean_s),
        p99: product(&|place| of[place].p99_s / first[place].p99_s),
        of_srtf: product(&|place| of[place].of_srtf),
        error: ShareError::of(&errors),
        starts: mean(places.iter().map(|place| of[*place].starts)),
    }
}

/// The mean; not a number if there are none.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}
