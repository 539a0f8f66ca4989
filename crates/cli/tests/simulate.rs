//! `bursar simulate` as a process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

/// The folder with the traces of a seed, made once.
fn traces() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("simulate-traces");
        let path = folder.display().to_string();
        let output = simulate(&["generate", &path, "--seed", "1"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    })
}

fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.arg("simulate").args(arguments).output().expect("the binary starts")
}

fn placement(more: &[&str]) -> Output {
    let nodes = traces().join("nodes.csv").display().to_string();
    let jobs = traces().join("tasks-usual.csv").display().to_string();
    let arguments = ["placement", "--nodes", &nodes, "--jobs", &jobs, "--seeds", "2"];
    simulate(&[&arguments, more].concat())
}

#[test]
fn placement_prints_json_and_nothing_else() {
    let output = placement(&["--policy", "bestfit,packing", "--json"]);
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let policies = report["policies"].as_array().expect("a list");
    let names: Vec<&Value> = policies.iter().map(|policy| &policy["policy"]).collect();
    assert_eq!(names, ["bestfit", "packing"]);
    for policy in policies {
        assert_eq!(policy["seeds"], 2);
        let allocated = policy["allocated_pct"].as_object().expect("an object");
        let points: Vec<&String> = allocated.keys().collect();
        assert_eq!(points.len(), 6);
        for x in ["80", "90", "95", "100", "110", "130"] {
            let mean = allocated[x]["mean"].as_f64().expect("a number");
            assert!((75.0..100.0).contains(&mean), "{x}: {mean}");
            assert!(allocated[x]["sd"].as_f64().is_some_and(|sd| sd >= 0.0));
        }
    }
}

#[test]
fn placement_prints_a_table_and_draws_its_curves() {
    let drawing = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("placement.svg");
    let path = drawing.display().to_string();
    let output = placement(&["--policy", "bestfit", "--svg", &path]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("the table is UTF-8");
    assert!(text.contains("bestfit") && text.contains("100 % arrived"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours where there is no terminal");
    let svg = std::fs::read_to_string(drawing).expect("the drawing is there");
    assert!(svg.starts_with("<svg ") && svg.contains(">bestfit</text>"));
}

#[test]
fn a_failed_study_has_a_reason() {
    let output = simulate(&["placement", "--nodes", "none.csv", "--jobs", "none.csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.starts_with("error: none.csv: "), "{why}");
    assert_eq!(placement(&["--policy", "worst"]).status.code(), Some(2));
    assert_eq!(placement(&["--seeds", "0"]).status.code(), Some(2));
    assert_eq!(placement(&["--inflate", "nan"]).status.code(), Some(2));
}

#[test]
fn queue_prints_the_figures_of_each_policy_as_json() {
    let jobs = traces().join("jobs-short.csv").display().to_string();
    let queue = ["queue", "--jobs", &jobs, "--gpus", "32", "--json"];
    let output = simulate(&[&queue, &["--set", "half_life_ms=3600000"][..]].concat());
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let policies = report["policies"].as_array().expect("a list");
    let names: Vec<&Value> = policies.iter().map(|policy| &policy["policy"]).collect();
    assert_eq!(names, ["bursar", "srtf", "srsf"]);
    for policy in policies {
        let number = |field: &str| policy[field].as_f64().expect("a number");
        assert!(number("mean_jct_seconds") <= number("p99_jct_seconds"));
        assert!(number("p99_jct_seconds") <= number("makespan_seconds"));
        assert!(number("worst_finish_time_fairness") > 0.0);
    }
    assert_eq!(report["settings"], serde_json::json!({"half_life_ms": 3_600_000}));
    assert_eq!(simulate(&[&queue, &["--set", "luck=1"][..]].concat()).status.code(), Some(2));
    let refused = simulate(&[&queue, &["--set", "node_lease_ms=1"][..]].concat());
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn ablation_prints_what_a_policy_gives_with_a_rule_off() {
    let some = ["ablation", "--family", "gang-heavy", "--whole-only", "--json"];
    let policy = |more: &[&str]| -> Value {
        let output = simulate(&[&some, more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut report: Value = serde_json::from_slice(&output.stdout).expect("only JSON");
        assert_eq!(report["half"], "report");
        report["policies"][0].take()
    };
    let (all, off) = (policy(&[]), policy(&["--without", "share", "--without", "guests"]));
    let starts = |of: &Value| of["starts_per_job"].as_f64().expect("a number");
    assert_eq!(starts(&off), 1.0, "only higher classes preempt");
    assert!(starts(&all) > 1.1, "{all}");
    assert!(all["families"]["gang-heavy"]["share_error_p95"].is_number(), "{all}");
    let unknown = simulate(&["ablation", "--without", "luck"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there are: share, guests"));
    let unknown = simulate(&["ablation", "--family", "none"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("use one of bursty"));
}

#[test]
fn queue_refuses_a_cluster_that_a_job_can_never_run_on() {
    let jobs = traces().join("jobs-gangs.csv").display().to_string();
    let output = simulate(&["queue", "--jobs", &jobs, "--gpus", "16"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("asks for 32 GPUs"));
    let output = simulate(&["queue", "--jobs", &jobs, "--gpus", "65"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a multiple of 8"));
}

#[test]
fn generated_traces_are_the_same_for_a_seed_and_a_folder_that_cannot_be_written_is_named() {
    let again = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("simulate-traces-again");
    let path = again.display().to_string();
    assert!(simulate(&["generate", &path]).status.success());
    let mut files = 0;
    for entry in std::fs::read_dir(traces()).expect("the folder is there") {
        let name = entry.expect("the folder can be read").file_name();
        let read = |folder: &Path| std::fs::read(folder.join(&name)).expect("the file is there");
        assert!(read(traces()) == read(&again), "{name:?} differs");
        files += 1;
    }
    assert_eq!(files, 10);
    let refused = simulate(&["generate", "/proc/none"]);
    assert_eq!(refused.status.code(), Some(1));
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.starts_with("error: /proc/none cannot be written"), "{why}");
}
