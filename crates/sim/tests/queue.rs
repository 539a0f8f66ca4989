//! The queue simulator gives the published figures where it should, and the cell runs on it.

mod support;

use bursar_core::cell::CellConfig;
use bursar_sim::queue::baseline::{self, Baseline};
use bursar_sim::queue::metrics::figures;
use bursar_sim::queue::shares::{Window, share_errors, windows, worst_beyond_rule};
use bursar_sim::queue::{Cluster, Run, cell, first_impossible};
use bursar_sim::traces::{JobRow, read_jobs};

const EIGHT_NODES: Cluster = Cluster { nodes: 8, gpus_per_node: 8 };

fn trace(name: &str) -> Vec<JobRow> {
    read_jobs(&support::traces().join("jct").join(name)).expect("a valid file")
}

/// Each job is its own user.
fn users(jobs: &[JobRow]) -> Vec<String> {
    (0..jobs.len()).map(|job| format!("lab:u{job}")).collect()
}

fn by_the_cell(jobs: &[JobRow], accounts: &[String], cluster: Cluster) -> Run {
    let config = CellConfig::default();
    cell::run(jobs, accounts, cluster, &config, &mut || {}).expect("the defaults are fine")
}

#[test]
fn policies_that_know_durations_come_within_seven_per_cent_of_the_published_values() {
    for (name, baseline, published) in [
        ("trace1.csv", Baseline::Srtf, 1_370_603.0),
        ("trace1.csv", Baseline::Srsf, 980_141.0),
        ("trace3.csv", Baseline::Srtf, 193_082.0),
        ("trace3.csv", Baseline::Srsf, 185_022.0),
        ("trace3_pr.csv", Baseline::Srtf, 844_395.0),
        ("trace3_pr.csv", Baseline::Srsf, 798_058.0),
    ] {
        let jobs = trace(name);
        let run = baseline::run(&jobs, EIGHT_NODES, baseline);
        let ours = figures(&jobs, EIGHT_NODES, &run).mean_jct_s;
        // Theirs has a cost of starting, ours has none.
        assert!(
            (0.93..=1.0).contains(&(ours / published)),
            "{name} {baseline:?}: {ours:.0} against {published}"
        );
    }
}

#[test]
fn no_gpu_is_ever_used_twice_and_every_job_gets_its_whole_time() {
    let jobs = trace("shockwave_120.trace");
    let cluster = Cluster { nodes: 4, gpus_per_node: 8 };
    let runs =
        [baseline::run(&jobs, cluster, Baseline::Srtf), by_the_cell(&jobs, &users(&jobs), cluster)];
    for run in runs {
        let mut changes = std::collections::BTreeMap::new();
        let mut served = vec![0; jobs.len()];
        for stretch in &run.stretches {
            let gpus = i64::from(jobs[stretch.job].gpus);
            *changes.entry(stretch.from_ms).or_insert(0) += gpus;
            *changes.entry(stretch.to_ms).or_insert(0) -= gpus;
            served[stretch.job] += stretch.to_ms - stretch.from_ms;
            assert!(stretch.from_ms >= jobs[stretch.job].submit_ms);
        }
        let mut in_use = 0;
        for change in changes.values() {
            in_use += change;
            assert!((0..=32).contains(&in_use));
        }
        let asked: Vec<i64> = jobs.iter().map(|job| job.duration_ms).collect();
        assert_eq!(served, asked);
    }
}

#[test]
fn the_cell_gives_the_same_run_every_time() {
    let jobs = trace("shockwave_120.trace");
    let cluster = Cluster { nodes: 4, gpus_per_node: 8 };
    let run = || by_the_cell(&jobs, &users(&jobs), cluster);
    assert_eq!(run(), run());
}

fn day_windows(jobs: &[JobRow], tenants: &[String], run: &Run) -> Vec<Window> {
    windows(jobs, tenants, EIGHT_NODES, CellConfig::default().half_life_ms, run)
}

/// GPUs and minutes of the jobs of each tenant.
type Mix = [(u32, u32); 3];

/// The worst share error of three tenants whose jobs say that they resume, or do not. There is work for
/// more than three days, and all of it is there from the start.
fn worst_share_error(mix: Mix, resumable: bool) -> f64 {
    let mut jobs = Vec::new();
    let mut tenants = Vec::new();
    for (tenant, (gpus, minutes)) in mix.into_iter().enumerate() {
        for _ in 0..64 * 4800 / 3 / (gpus * minutes) {
            let duration_ms = i64::from(minutes) * 60_000;
            jobs.push(JobRow { tenant: None, submit_ms: 0, duration_ms, gpus, resumable });
            tenants.push(format!("lab:t{tenant}"));
        }
    }
    let run = by_the_cell(&jobs, &tenants, EIGHT_NODES);
    let errors = share_errors(&day_windows(&jobs, &tenants, &run));
    assert_eq!(errors.len(), 3);
    errors.into_values().fold(0.0, f64::max)
}

/// Tenants get their parts of these whether their jobs resume or not.
const HARMLESS: [Mix; 7] = [
    [(1, 60), (1, 60), (1, 60)],
    [(1, 120), (2, 30), (8, 60)],
    [(8, 60), (8, 120), (16, 60)],
    [(2, 60), (4, 60), (8, 60)],
    [(1, 360), (8, 360), (32, 180)],
    [(4, 240), (16, 240), (24, 240)],
    [(32, 120), (8, 200), (1, 90)],
];

#[test]
fn tenants_whose_jobs_resume_get_equal_parts_of_every_day() {
    let long = [
        [(1, 600), (8, 600), (32, 300)],
        [(1, 1440), (8, 60), (8, 60)],
        [(32, 60), (1, 720), (1, 30)],
        [(1, 330), (8, 330), (32, 170)],
        [(1, 400), (8, 300), (32, 200)],
    ];
    for mix in HARMLESS.into_iter().chain(long) {
        let error = worst_share_error(mix, true);
        assert!(error <= 0.05, "{mix:?}: {:.1} %", error * 100.0);
    }
}

#[test]
fn tenants_whose_jobs_resume_and_need_more_than_twice_their_part_get_equal_parts_too() {
    // In an hour of the whole cell a tenant gains 8.3 % of what it is owed in a day, in an hour of
    // three quarters 5.2 %.
    let mixes = [
        [(64, 60), (1, 60), (1, 60)],
        [(64, 60), (1, 60), (8, 60)],
        [(48, 60), (2, 240), (8, 480)],
        [(64, 240), (1, 60), (1, 60)],
        [(64, 60), (64, 60), (1, 60)],
        [(64, 600), (1, 600), (8, 600)],
        // The last gang of a tenant counts like those before it.
        [(48, 180), (48, 60), (8, 60)],
        [(48, 120), (1, 30), (1, 720)],
        // All are old after a day: age is no merit then.
        [(64, 120), (16, 240), (2, 45)],
    ];
    for mix in mixes {
        let error = worst_share_error(mix, true);
        assert!(error <= 0.05, "{mix:?}: {:.1} %", error * 100.0);
    }
}

#[test]
fn tenants_with_jobs_of_days_that_resume_get_equal_parts_of_every_day() {
    let traces = [
        // Jobs of a whole node, where small ones of the same tenant are on every node.
        ("trace1.csv", 2, 0.05, 0.0),
        ("trace3.csv", 2, 0.05, 0.0),
        ("trace3_pr.csv", 2, 0.05, 0.0),
        ("trace3_pr.csv", 3, 0.05, 0.0),
        // Gangs of half the cell, which is twice what one of four is entitled to.
        ("trace3_pr.csv", 4, 0.084, 0.064),
        // Gangs of four times what one of eight is entitled to. Most of what is left is the pause of a
        // tenant that comes back, and what nobody else could use.
        ("trace3.csv", 8, 0.283, 0.0),
        ("trace3_pr.csv", 8, 0.286, 0.31),
    ];
    for (name, count, known, by_the_cell_alone) in traces {
        let jobs = trace(name);
        let tenants: Vec<String> =
            (0..jobs.len()).map(|job| format!("lab:t{}", job % count)).collect();
        let run = by_the_cell(&jobs, &tenants, EIGHT_NODES);
        let windows = day_windows(&jobs, &tenants, &run);
        for (tenant, error) in share_errors(&windows) {
            assert!(error <= known, "{name}, {count}, {tenant}: {:.1} %", error * 100.0);
        }
        let beyond = worst_beyond_rule(&windows);
        assert!(beyond <= by_the_cell_alone, "{name}, {count}: {:.1} %", beyond * 100.0);
    }
}

#[test]
fn tenants_whose_jobs_do_not_resume_get_equal_parts_of_every_day_in_most_mixes() {
    for mix in HARMLESS {
        let error = worst_share_error(mix, false);
        assert!(error <= 0.05, "{mix:?}: {:.1} %", error * 100.0);
    }
}

#[test]
fn tenants_with_long_turns_are_no_further_from_their_parts_than_the_study_says() {
    let mixes = [
        // In an hour of the whole cell a tenant gains 8.3 % of what it is owed in a day.
        ([(64, 60), (1, 60), (1, 60)], 0.083),
        ([(64, 60), (1, 60), (8, 60)], 0.126),
        // Turns grow as long as the job: a gang gains up to 10.4 % in one.
        ([(1, 600), (8, 600), (32, 300)], 0.163),
        ([(1, 1440), (8, 60), (8, 60)], 0.102),
        // Some node always carries one of the long jobs whose turn is not over.
        ([(32, 60), (1, 720), (1, 30)], 0.569),
    ];
    for (mix, known) in mixes {
        let error = worst_share_error(mix, false);
        println!("{mix:?}: {:.1} %", error * 100.0);
        assert!(error <= known, "{mix:?}: {:.1} %", error * 100.0);
    }
}

#[test]
fn on_busy_traces_jobs_are_done_sooner_than_with_tiresias() {
    for (name, tiresias) in
        [("trace1.csv", 3_330_371.0), ("trace3.csv", 347_213.0), ("trace3_pr.csv", 2_213_110.0)]
    {
        let jobs = trace(name);
        let run = by_the_cell(&jobs, &users(&jobs), EIGHT_NODES);
        let ours = figures(&jobs, EIGHT_NODES, &run).mean_jct_s;
        assert!(ours < tiresias, "{name}: {ours:.0} s");
    }
}

#[test]
fn jobs_that_can_never_run_are_found_before_anything_runs() {
    let job = |gpus| JobRow { tenant: None, submit_ms: 0, duration_ms: 1, gpus, resumable: true };
    let jobs = |gpus: &[u32]| gpus.iter().copied().map(job).collect::<Vec<_>>();
    assert_eq!(first_impossible(&jobs(&[1, 8, 16, 64]), EIGHT_NODES), None);
    assert_eq!(first_impossible(&jobs(&[1, 12]), EIGHT_NODES), Some(1));
    assert_eq!(first_impossible(&jobs(&[72]), EIGHT_NODES), Some(0));
}

#[test]
fn settings_under_which_nodes_would_be_lost_are_refused() {
    let jobs = trace("shockwave_120.trace");
    let config = CellConfig { heartbeat_ms: 90_000, ..CellConfig::default() };
    let refused = cell::run(&jobs, &users(&jobs), EIGHT_NODES, &config, &mut || {});
    assert!(refused.is_err_and(|error| error.to_string().contains("must be longer")));
}

#[test]
fn a_gang_of_half_the_cell_starts_within_a_day_among_jobs_of_weeks() {
    // A hundred users with a whole node each for weeks, and once a week someone with half the cell.
    let (hour, day) = (3_600_000, 86_400_000);
    let long = |user: i64| JobRow {
        tenant: None,
        submit_ms: user * 6 * hour,
        duration_ms: 21 * day,
        gpus: 8,
        resumable: false,
    };
    let gang = |week: i64| JobRow {
        tenant: None,
        submit_ms: week * 7 * day,
        duration_ms: hour,
        gpus: 32,
        resumable: false,
    };
    let mut jobs: Vec<JobRow> = (0..100).map(long).chain((1..8).map(gang)).collect();
    jobs.sort_by_key(|job| job.submit_ms);
    let run = by_the_cell(&jobs, &users(&jobs), EIGHT_NODES);
    for (job, done) in jobs.iter().zip(&run.jobs).filter(|(job, _)| job.gpus == 32) {
        let waited = done.started_ms - job.submit_ms;
        assert!(waited <= day, "it waited {} hours", waited / hour);
    }
}
