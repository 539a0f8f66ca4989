//! Trace files are read strictly.

use std::path::PathBuf;

use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_sim::families::cluster::{TaskFamily, nodes, tasks};
use bursar_sim::families::files;
use bursar_sim::families::queue::{QueueFamily, jobs};
use bursar_sim::traces::{TraceError, read_jobs, read_nodes, read_tasks};
use proptest::prelude::*;

/// Writes a file with this text to the test's own folder.
fn file(test: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}.csv"));
    std::fs::write(&path, text).expect("the test's folder can be written");
    path
}

const TASKS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n";

fn refusal(test: &str, row: &str) -> String {
    let path = file(test, &format!("{TASKS}{row}\n"));
    read_tasks(&path).expect_err("an invalid row").to_string()
}

#[test]
fn a_written_family_is_read_unchanged() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("families");
    files::write_all(&folder, 7).expect("the test's folder can be written");
    assert_eq!(read_nodes(&folder.join("nodes.csv")).expect("a valid file"), nodes(7));
    for family in TaskFamily::ALL {
        let file = folder.join(format!("tasks-{}.csv", family.name()));
        assert_eq!(read_tasks(&file).expect("a valid file"), tasks(family, 7));
    }
    for family in QueueFamily::ALL {
        let file = folder.join(format!("jobs-{}.csv", family.name()));
        assert_eq!(read_jobs(&file).expect("a valid file"), jobs(family, 7));
    }
}

#[test]
fn models_are_a_list_and_may_be_left_out() {
    let text = format!("{TASKS}a,1000,1024,1,460,T4|P100\nb,1000,1024,0,0,\n");
    let tasks = read_tasks(&file("models", &text)).expect("a valid file");
    assert_eq!(tasks[0].models, ["T4", "P100"]);
    assert_eq!(tasks[0].gpu, GpuDemand::Share(460));
    assert!(tasks[1].models.is_empty());
}

#[test]
fn an_invalid_row_is_named_with_its_line() {
    for (test, row, says) in [
        ("cpu", "a,many,1024,1,1000,", "line 2: `cpu_milli` should be a whole number"),
        ("negative", "a,-1,1024,1,1000,", "line 2: `cpu_milli` should be a whole number"),
        ("share", "a,1000,1024,2,500,", "line 2: 2 GPUs with 500 thousandths of each"),
        ("more", "a,1000,1024,1,1001,", "line 2: 1 GPUs with 1001 thousandths of each"),
        ("twice", "a,1,1,0,0,\na,1,1,0,0,", "line 3: the name `a` occurs twice"),
        ("nameless", ",1,1,0,0,", "line 2: a row needs a name"),
        ("gap", "a,1,1,1,1000,T4||P100", "line 2: an empty model in the list"),
        ("short", "a,1,1", "found record with 3 fields"),
    ] {
        let refusal = refusal(test, row);
        assert!(refusal.contains(says), "{refusal}");
    }
}

#[test]
fn a_missing_file_column_or_row_is_named() {
    let missing = read_tasks(&PathBuf::from("no-such-file.csv")).expect_err("no file");
    assert!(missing.to_string().starts_with("no-such-file.csv: "), "{missing}");
    let path = file("column", "name,cpu_milli\na,1\n");
    let missing = read_tasks(&path).expect_err("no column").to_string();
    assert!(missing.contains("no column `memory_mib`; the columns are: name, cpu_milli"));
    assert!(matches!(read_tasks(&file("empty", TASKS)), Err(TraceError::Empty { .. })));
}

#[test]
fn a_node_has_at_most_64_gpus_and_a_model_if_it_has_any() {
    let header = "sn,cpu_milli,memory_mib,gpu,model\n";
    for (test, row, says) in [
        ("gpus", "n,1,1,65,T4", "65 GPUs; a node has at most 64"),
        ("model", "n,1,1,2,", "a node with GPUs needs a model"),
    ] {
        let path = file(test, &format!("{header}{row}\n"));
        let refusal = read_nodes(&path).expect_err("an invalid row").to_string();
        assert!(refusal.contains(says), "{refusal}");
    }
}

#[test]
fn jobs_come_from_csv_in_milliseconds_or_from_tabs_in_seconds() {
    let text = "job_id,num_gpu,submit_time,model,duration\n0,4,1500,bert,927475000\n";
    let jobs = read_jobs(&file("milliseconds", text)).expect("a valid file");
    assert_eq!((jobs[0].gpus, jobs[0].submit_ms, jobs[0].duration_ms), (4, 1500, 927_475_000));
    let tabbed = file("seconds", "a b\tpython main.py\tx\t--n\t1\t9\t2\tgns\t1\t-1.0\t3338\t55\n");
    let renamed = tabbed.with_extension("trace");
    std::fs::rename(&tabbed, &renamed).expect("the test's folder can be written");
    let jobs = read_jobs(&renamed).expect("a valid file");
    assert_eq!((jobs[0].submit_ms, jobs[0].duration_ms, jobs[0].gpus), (55_000, 3_338_000, 2));
}

#[test]
fn an_invalid_job_is_named_with_its_line() {
    let header = "num_gpu,submit_time,duration,tenant\n";
    for (test, row, says) in [
        ("zero", "0,0,1,", "line 2: a job needs at least one GPU"),
        ("instant", "1,0,0,", "line 2: a duration of 0 ms"),
        ("early", "1,-1,5,", "line 2: submitted at -1 ms"),
        ("word", "one,0,5,", "line 2: `num_gpu` should be a whole number"),
        ("age", "1,0,9223372036854775807,", "line 2: a duration of 9223372036854775807 ms"),
    ] {
        let path = file(&format!("job-{test}"), &format!("{header}{row}\n"));
        let refusal = read_jobs(&path).expect_err("an invalid row").to_string();
        assert!(refusal.contains(says), "{refusal}");
    }
    let path = file("job-tenant", &format!("{header}1,7,5,acme\n2,3,5,\n"));
    let jobs = read_jobs(&path).expect("a valid file");
    assert_eq!((jobs[0].submit_ms, &jobs[0].tenant), (3, &None));
    assert_eq!(jobs[1].tenant.as_deref(), Some("acme"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_text_makes_a_reader_panic(text in "[a-z0-9,|\"\n\r\t-]{0,200}") {
        let path = file("any", &format!("{TASKS}{text}"));
        let _ = read_tasks(&path);
        let path = file("any-nodes", &format!("sn,cpu_milli,memory_mib,gpu,model\n{text}"));
        let _ = read_nodes(&path);
        let path = file("any-jobs", &format!("num_gpu,submit_time,duration\n{text}"));
        let _ = read_jobs(&path);
        let tabbed = path.with_extension("trace");
        std::fs::write(&tabbed, &text).expect("the test's folder can be written");
        let _ = read_jobs(&tabbed);
    }
}
