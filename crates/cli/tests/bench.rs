//! The benchmarks run, check their measurements, and print JSON.

use std::process::Command;

use serde_json::Value;

fn bench(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .arg("bench")
        .args(arguments)
        .arg("--json")
        .output()
        .expect("the binary starts");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    serde_json::from_slice(&output.stdout).expect("nothing but JSON")
}

#[test]
fn the_engine_is_measured_beside_its_limit() {
    let figures = bench(&[
        "engine",
        "--part=rates,snapshots,replay,memory",
        "--in-flight=1,16",
        "--accounts=20",
        "--repetitions=3",
        "--milliseconds=30",
        "--snapshot-every=50",
        "--events=2000",
        "--pairs=200",
        "--step=100",
    ]);
    for (rate, in_flight) in figures["rates"].as_array().expect("a list").iter().zip([1, 16]) {
        assert_eq!(rate["in_flight"], in_flight);
        let median = |name: &str| rate[name]["median"].as_f64().expect("a number");
        assert!(median("commands_per_second") > 0.0 && median("limit_per_second") > 0.0);
        assert!(rate["ratio"]["least"].as_f64() <= rate["ratio"]["most"].as_f64());
        assert!(rate["batches"].as_u64() > Some(0), "{rate}");
    }
    assert!(figures["snapshots"]["snapshots"].as_u64() > Some(0), "{figures}");
    assert!(figures["replay"]["events"].as_u64() >= Some(2000), "{figures}");
    let pairs: Vec<_> = figures["memory"].as_array().expect("a list").iter().collect();
    assert_eq!(pairs.iter().map(|step| &step["pairs"]).collect::<Vec<_>>(), [100, 200]);
}

#[test]
fn history_is_measured_on_every_page() {
    let figures = bench(&["history", "--entries=3000"]);
    assert_eq!(figures["entries"], 3001);
    assert!(figures["page_us"].as_u64() <= figures["page_worst_us"].as_u64());
}

#[test]
fn jobs_are_metered_by_the_reports_of_their_nodes() {
    let figures = bench(&["jobs", "--jobs=16", "--seconds=2", "--interval=1"]);
    assert_eq!((&figures["jobs"], &figures["double_use"]), (&Value::from(16), &Value::from(0)));
    assert!(figures["reports"].as_u64() > Some(0), "{figures}");
}

#[test]
fn a_journal_in_postgres_is_measured_with_its_standby() {
    let figures = bench(&[
        "postgres",
        "--in-flight=4,16",
        "--accounts=5",
        "--repetitions=1",
        "--seconds=1",
        "--baseline=nowhere",
    ]);
    let rows = |name: &str| figures[name].as_array().cloned().expect("a list");
    let numbers = |rows: Vec<Value>, name: &str| -> Vec<u64> {
        rows.iter().filter_map(|row| row[name].as_u64()).collect()
    };
    for (part, in_flight) in [("in_process", "in_flight"), ("by_batch", "operations")] {
        assert_eq!(numbers(rows(part), in_flight), [4, 16, 4, 16], "{figures}");
        assert_eq!(numbers(rows(part), "accounts"), [5, 5, 1, 1], "{figures}");
        for row in rows(part) {
            assert!(row["pairs_per_second"]["least"].as_f64() > Some(0.0), "{row}");
        }
    }
    assert!(rows("peers").is_empty(), "{figures}");
}

#[test]
fn members_are_measured_through_the_one_that_leads_and_through_another() {
    let figures = bench(&[
        "cluster",
        "--members=1,2",
        "--shards=1,2",
        "--connections=4",
        "--accounts=20",
        "--repetitions=1",
        "--seconds=1",
        "--baseline=none",
    ]);
    let rates = figures["rates"].as_array().expect("a list");
    let through: Vec<(u64, u64, bool)> = rates
        .iter()
        .map(|rate| {
            let number = |field: &str| rate[field].as_u64().expect("a number");
            let forwards = rate["forwards"].as_bool().expect("yes or no");
            (number("shards"), number("members"), forwards)
        })
        .collect();
    let expected =
        [1, 2].map(|shards| [(1, false), (2, false), (2, true)].map(|(m, f)| (shards, m, f)));
    assert_eq!(through, expected.concat());
    for rate in rates {
        assert!(rate["resident_bytes"].as_u64() > Some(0), "{rate}");
        assert!(rate["pairs_per_second"]["median"].as_f64() > Some(0.0), "{rate}");
    }
}
