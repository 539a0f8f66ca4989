//! Checks on traces of production clusters, which are not part of this repository: the published
//! figures, and our figures in `docs/evidence/placement.md` and `docs/evidence/queue-study.md`.
//!
//! `BURSAR_TRACES` names the folder with `openb/` and `jct/`. Without it each study prints that it
//! was skipped. `placement.rs`, `queue.rs` and `traces.rs` check what holds for any trace.

mod support;

use std::io::Write;
use std::path::PathBuf;

use bursar_core::cell::CellConfig;
use bursar_sim::placement::{Experiment, PlacementPolicy};
use bursar_sim::queue::baseline::{self, Baseline};
use bursar_sim::queue::metrics::figures;
use bursar_sim::queue::shares::windows;
use bursar_sim::traces::{JobRow, read_jobs, read_nodes, read_tasks};
use support::{EIGHT_NODES, allocated, by_the_cell, check_errors, dealt_to, errors_of, users};

/// The folder of the traces. Without one the test writes a line to standard error directly, because
/// the harness captures the output of a passing test.
fn traces() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("BURSAR_TRACES").map(PathBuf::from) else {
        let test = std::thread::current().name().unwrap_or("a study").to_string();
        let line = format!("{test}: skipped: BURSAR_TRACES is not set\n");
        std::io::stderr().write_all(line.as_bytes()).expect("standard error takes a line");
        return None;
    };
    let whole = folder.join("openb").is_dir() && folder.join("jct").is_dir();
    assert!(whole, "BURSAR_TRACES={} does not contain openb/ and jct/", folder.display());
    Some(folder)
}

fn experiment(folder: &std::path::Path, family: &str) -> Experiment {
    let folder = folder.join("openb");
    let nodes = read_nodes(&folder.join("openb_node_list_gpu_node.csv")).expect("a valid file");
    let tasks = read_tasks(&folder.join(format!("openb_pod_list_{family}.csv")));
    Experiment::new(&nodes, &tasks.expect("a valid file")).expect("nodes and tasks with GPUs")
}

fn trace(folder: &std::path::Path, name: &str) -> Vec<JobRow> {
    read_jobs(&folder.join("jct").join(name)).expect("a valid file")
}

#[test]
fn the_cluster_has_1213_nodes_and_6212_gpus() {
    let Some(folder) = traces() else { return };
    let folder = folder.join("openb");
    let nodes = read_nodes(&folder.join("openb_node_list_gpu_node.csv")).expect("a valid file");
    assert_eq!(nodes.len(), 1213);
    assert_eq!(nodes.iter().map(|node| u32::from(node.gpus)).sum::<u32>(), 6212);
    let tasks = read_tasks(&folder.join("openb_pod_list_default.csv")).expect("a valid file");
    assert_eq!(tasks.len(), 8152);
    assert_eq!(tasks.iter().map(|task| task.gpu.total()).sum::<u32>(), 6_086_800);
}

#[test]
fn the_queues_are_read_in_milliseconds_and_in_seconds() {
    let Some(folder) = traces() else { return };
    let jobs = trace(&folder, "trace3.csv");
    assert_eq!((jobs.len(), jobs[0].gpus, jobs[0].duration_ms), (992, 4, 927_475_000));
    let jobs = trace(&folder, "shockwave_120.trace");
    assert_eq!(jobs.len(), 120);
    assert_eq!((jobs[1].submit_ms, jobs[1].duration_ms, jobs[1].gpus), (55_000, 3_338_000, 1));
}

#[test]
fn six_published_policies_are_reproduced_within_three_tenths_of_a_point() {
    let Some(folder) = traces() else { return };
    let experiment = experiment(&folder, "default");
    for (policy, published) in [
        (PlacementPolicy::Random, 86.30),
        (PlacementPolicy::DotProd, 90.62),
        (PlacementPolicy::Clustering, 91.65),
        (PlacementPolicy::Packing, 91.78),
        (PlacementPolicy::BestFit, 92.86),
        (PlacementPolicy::Fgd, 95.23),
    ] {
        let ours = allocated(&experiment, policy, 10);
        let name = policy.name();
        assert!((ours - published).abs() <= 0.3, "{name}: {ours:.2}, published {published}");
    }
}

#[test]
fn our_score_leaves_less_than_four_and_a_half_per_cent_idle_on_the_default_trace() {
    let Some(folder) = traces() else { return };
    let ours = allocated(&experiment(&folder, "default"), PlacementPolicy::Bursar, 10);
    assert!(ours > 95.5, "{ours:.2}");
}

#[test]
fn our_score_is_at_least_as_good_as_gradient_descent_on_every_family() {
    let Some(folder) = traces() else { return };
    for (family, published) in
        [("cpu200", 94.82), ("gpushare60", 91.25), ("gpuspec20", 94.66), ("multigpu30", 96.36)]
    {
        let experiment = experiment(&folder, family);
        let [ours, theirs] = [PlacementPolicy::Bursar, PlacementPolicy::Fgd]
            .map(|policy| allocated(&experiment, policy, 3));
        assert!(ours >= theirs && ours >= published, "{family}: {ours:.2} against {theirs:.2}");
        assert!((theirs - published).abs() <= 0.3, "{family}: {theirs:.2}, published {published}");
    }
}

#[test]
fn policies_that_know_durations_are_within_seven_per_cent_of_the_published_values() {
    let Some(folder) = traces() else { return };
    for (name, baseline, published) in [
        ("trace1.csv", Baseline::Srtf, 1_370_603.0),
        ("trace1.csv", Baseline::Srsf, 980_141.0),
        ("trace3.csv", Baseline::Srtf, 193_082.0),
        ("trace3.csv", Baseline::Srsf, 185_022.0),
        ("trace3_pr.csv", Baseline::Srtf, 844_395.0),
        ("trace3_pr.csv", Baseline::Srsf, 798_058.0),
    ] {
        let jobs = trace(&folder, name);
        let run = baseline::run(&jobs, EIGHT_NODES, baseline);
        let ours = figures(&jobs, EIGHT_NODES, &run).mean_jct_s;
        // The published simulators have a cost of starting, ours has none.
        assert!(
            (0.93..=1.0).contains(&(ours / published)),
            "{name} {baseline:?}: {ours:.0} against {published}"
        );
    }
}

#[test]
fn tenants_with_jobs_of_days_that_resume_get_their_share_of_most_days() {
    let Some(folder) = traces() else { return };
    let cases = [
        // Jobs of a whole node, with small jobs of the same tenant on every node.
        ("trace1.csv", 2),
        ("trace3.csv", 2),
        ("trace3_pr.csv", 2),
        ("trace3_pr.csv", 3),
        // Gangs of half the cell, which is twice the entitlement of one of four tenants.
        ("trace3_pr.csv", 4),
        // Gangs of four times the entitlement of one of eight tenants.
        ("trace3.csv", 8),
        ("trace3_pr.csv", 8),
    ];
    let errors = cases.map(|(name, count)| {
        let jobs = trace(&folder, name);
        let tenants = dealt_to(count, &jobs);
        let run = by_the_cell(&jobs, &tenants, EIGHT_NODES);
        let half_life_ms = CellConfig::default().half_life_ms;
        let windows = windows(&jobs, &tenants, EIGHT_NODES, half_life_ms, &run);
        (format!("{name}, {count}"), errors_of(&windows))
    });
    check_errors(&errors, 0.02, 0.05);
}

#[test]
fn on_busy_traces_jobs_finish_sooner_than_with_tiresias() {
    let Some(folder) = traces() else { return };
    for (name, tiresias) in
        [("trace1.csv", 3_330_371.0), ("trace3.csv", 347_213.0), ("trace3_pr.csv", 2_213_110.0)]
    {
        let jobs = trace(&folder, name);
        let run = by_the_cell(&jobs, &users(&jobs), EIGHT_NODES);
        let ours = figures(&jobs, EIGHT_NODES, &run).mean_jct_s;
        assert!(ours < tiresias, "{name}: {ours:.0} s");
    }
}
