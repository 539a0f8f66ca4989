//! Shared helpers of the study tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use bursar_core::cell::CellConfig;
use bursar_sim::placement::{Experiment, PlacementPolicy, spread_at};
use bursar_sim::queue::shares::ContentionWindow;
use bursar_sim::queue::{Cluster, Run, cell};
use bursar_sim::statistics::percentile;
use bursar_sim::traces::JobRow;

/// The cluster of the queue studies.
pub(crate) const EIGHT_NODES: Cluster = Cluster { nodes: 8, gpus_per_node: 8 };

/// GPUs in use, in per cent, when the arrived tasks request the whole capacity.
pub(crate) fn allocated(experiment: &Experiment, policy: PlacementPolicy, seeds: u64) -> f64 {
    let seeds: Vec<u64> = (42..42 + seeds).collect();
    let curves = experiment.run_all(policy, &seeds, 1.3, &|| {});
    spread_at(&curves, 100).expect("work arrives past 100 %").mean
}

/// Makes each job its own user.
pub(crate) fn users(jobs: &[JobRow]) -> Vec<String> {
    (0..jobs.len()).map(|job| format!("lab:u{job}")).collect()
}

/// Assigns the jobs in turn to `count` tenants.
pub(crate) fn dealt_to(count: usize, jobs: &[JobRow]) -> Vec<String> {
    (0..jobs.len()).map(|job| format!("lab:t{}", job % count)).collect()
}

/// Runs the real cell with its default settings.
pub(crate) fn by_the_cell(jobs: &[JobRow], accounts: &[String], cluster: Cluster) -> Run {
    let config = CellConfig::default();
    cell::run(jobs, accounts, cluster, &config, &mut || {}).expect("the defaults are valid")
}

/// The share errors of all tenants in all windows.
pub(crate) fn errors_of(windows: &[ContentionWindow]) -> Vec<f64> {
    let errors = windows.iter().flat_map(|window| window.tenants.values());
    errors.map(|result| result.error.abs()).collect()
}

/// Checks the mean and the 95th percentile over cases, each the mean over the cases. The worst error
/// is only printed: a single window is erratic.
pub(crate) fn check_errors(cases: &[(String, Vec<f64>)], mean: f64, p95: f64) {
    let (mut means, mut percentiles) = (0.0, 0.0);
    for (name, errors) in cases {
        let of_case = errors.iter().sum::<f64>() / errors.len() as f64;
        let high = percentile(errors, 95.0).expect("there are windows");
        let worst = errors.iter().copied().fold(0.0, f64::max);
        println!("{name}: mean {of_case:.3}, 95th percentile {high:.3}, worst {worst:.3}");
        means += of_case / cases.len() as f64;
        percentiles += high / cases.len() as f64;
    }
    println!("over all: mean {means:.3}, 95th percentile {percentiles:.3}");
    assert!(means <= mean, "mean {means:.3}");
    assert!(percentiles <= p95, "95th percentile {percentiles:.3}");
}
