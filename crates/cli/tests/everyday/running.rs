//! `bursar run`: scripts, jobs that run elsewhere, interrupts; times in the local time zone; errors for
//! programs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::person::{Person, Said};
use crate::world::{job, priced, small, state, submit};

#[tokio::test]
async fn a_job_that_runs_elsewhere_needs_no_command_and_ends_by_a_report() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let run = ["run", "--external", "-a", "acme:nlp", "-g", "H100:2", "-t", "1h", "--yes"];
    let said = person.run(&[&run[..], &["--id", "slurm-7"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err.contains("H100 in default: 12 credits an hour, runs outside Bursar"),
        "{said:?}"
    );
    assert!(said.err.contains("next: bursar usage report --job slurm-7"), "{said:?}");
    let why = person.done(&["why", "slurm-7"]);
    assert!(why.contains("bursar usage report"), "a command, not a path: {why}");
    let report = ["usage", "report", "--job", "slurm-7"];
    let first = [&report[..], &["--seq", "1", "--gpu-ms", "600000"]].concat();
    let rehearsed = person.done(&[&first[..], &["--dry-run"]].concat());
    assert!(rehearsed.contains("the server would accept it now"), "{rehearsed}");
    assert_ne!(state(&server, "slurm-7").await, "running", "a dry run changes nothing");
    person.done(&first);
    let other = ["--seq", "1", "--gpu-ms", "700000", "--dry-run"];
    let refused = person.fails(3, &[&report[..], &other].concat());
    assert!(refused.contains("sequence_conflict"), "{refused}");
    let unknown = ["usage", "report", "--job", "none", "--seq", "1", "--gpu-ms", "1", "--dry-run"];
    person.fails(4, &unknown);
    assert_eq!(state(&server, "slurm-7").await, "running");
    let end = ["--seq", "2", "--gpu-time", "20m", "--ended=failed"];
    person.done(&[&report[..], &end[..]].concat());
    let ended = job(&server, "slurm-7").await;
    assert_eq!((&ended["state"], &ended["charged"]), (&json!("failed"), &json!("2")));
    let refused = person.fails(2, &["run", "-a", "acme:nlp", "-t", "1h", "--yes"]);
    assert!(refused.contains("a command is needed"), "{refused}");
}

#[tokio::test]
async fn an_interrupt_of_run_leaves_the_job() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut command = person.command(&["run", "--id", "long", "-a", "acme:nlp", "-g", "H100"]);
    command.args(["-t", "1h", "--yes", "--", "true"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    // It says the state once it follows the job; interrupts are handled from then on.
    let is_state = |line: &String| line.starts_with("long queued");
    lines.by_ref().map_while(Result::ok).find(is_state).expect("it follows the job");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.expect("kill is there").success());
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let rest = rest.join("\n");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{rest}");
    assert!(rest.contains("detached; long continues"), "{rest}");
    assert!(rest.contains("bursar cancel long"), "{rest}");
    assert_eq!(state(&server, "long").await, "queued");
}

#[tokio::test]
async fn scripts_have_their_options_in_directives() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let own = "#!/bin/sh\n#BURSAR --account acme:nlp --gpus H100:2 --time 30m --name tuned\ntrue\n";
    std::fs::write(person.file("train.sh"), own).expect("written");
    let slurm =
        "#!/bin/sh\n#SBATCH --account=acme:nlp --gres=gpu:H100:1\n#SBATCH --time=01:00:00\ntrue\n";
    std::fs::write(person.file("slurm.sh"), slurm).expect("written");
    // What follows the script belongs to it.
    let run = ["run", "--yes", "--detach", "-o", "json", "--id"];
    let spec = |id: &str, more: &[&str]| -> Value {
        let shown = person.done(&[&run[..], &[id], more].concat());
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown["spec"].clone()
    };
    let tuned = spec("a", &["./train.sh", "--epochs", "3"]);
    assert_eq!((&tuned["name"], &tuned["gpus"]["count"]), (&json!("tuned"), &json!(2)));
    assert_eq!(tuned["max_runtime_seconds"], 1800);
    let script = person.file("train.sh").canonicalize().expect("it is there");
    assert_eq!(tuned["command"], json!([script, "--epochs", "3"]));
    let longer = spec("b", &["--time", "2h", "./train.sh"]);
    assert_eq!(longer["max_runtime_seconds"], 7200);
    let late = person.fails(2, &["run", "./train.sh", "--yes"]);
    assert!(late.contains("write --yes before the command"), "{late}");
    let slurm = spec("c", &["./slurm.sh"]);
    assert_eq!((&slurm["gpus"]["count"], &slurm["max_runtime_seconds"]), (&json!(1), &json!(3600)));
}

#[tokio::test]
async fn the_timeline_of_a_job_leaves_out_reports_of_usage() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("j")).await;
    agent.beat(&server).await;
    agent.run(&server, 120).await;
    agent.finish(&server, "j", 0).await;
    assert_eq!(person.done(&["job", "ls"]), person.done(&["ls"]));
    assert_eq!(person.done(&["job", "ls", "--state", "failed"]), "(none)\n");
    let short = person.run(&["job", "timeline", "j"]);
    assert!(!short.out.contains("usage_metered"), "{short:?}");
    assert!(short.err.contains("--all shows all"), "{short:?}");
    assert!(short.out.contains("a node reports it succeeded, exit code 0"), "{short:?}");
    assert!(short.out.contains("attempt over: succeeded, 2m00s of GPU time"), "{short:?}");
    let all = person.done(&["job", "timeline", "j", "--all"]);
    assert!(all.contains("usage_metered"), "{all}");
    let numbered = person.done(&["job", "show", "j"]);
    assert!(numbered.contains("\nATTEMPT  ID"), "{numbered}");
}

#[tokio::test]
async fn times_are_local_and_utc_on_request() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let mut agent = Agent::register(&server, "n1", "H100", 1).await;
    submit(&server, small("first")).await;
    agent.beat(&server).await;
    let in_tokyo = |arguments: &[&str]| {
        let mut command = person.command(arguments);
        Said::of(command.env("TZ", "Asia/Tokyo").output().expect("the binary is there"))
    };
    let run = ["run", "--dry-run", "-a", "acme:nlp", "-g", "H100", "-t", "1h", "--", "true"];
    let local = in_tokyo(&run);
    assert!(local.out.contains("could start at 2020-01-01T1"), "{local:?}");
    assert!(local.out.contains("+09:00"), "{local:?}");
    let utc = in_tokyo(&[&["--utc"], &run[..]].concat());
    assert!(utc.out.contains("could start at 2020-01-01T01"), "{utc:?}");
    assert!(!utc.out.contains("+09:00"), "{utc:?}");
    let grant = ["grant", "add", "acme", "1", "--expires", "2020-03-01", "-o", "csv", "--id"];
    let local = in_tokyo(&[&grant[..], &["g1"]].concat());
    assert!(local.out.contains("2020-03-01T23:59:59.999+09:00"), "{local:?}");
    let utc = in_tokyo(&[&grant[..], &["g2", "--utc"]].concat());
    assert!(utc.out.contains("2020-03-01T23:59:59.999Z"), "{utc:?}");
}

#[tokio::test]
async fn wrong_arguments_are_json_for_programs() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    for arguments in [
        &["quote", "-a", "acme", "-t", "4", "-o", "json"][..],
        &["-o", "json", "lss"],
        &["job", "show", "--output=json"],
    ] {
        let said = person.run(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{said:?}");
        let error: Value = serde_json::from_str(&said.err).expect("one JSON object");
        assert_eq!(error["exit_code"], 2, "{error}");
        assert!(!error["error"].as_str().expect("text").starts_with("error:"), "{error}");
    }
    let text = person.fails(2, &["quote", "-a", "acme", "-t", "4"]);
    assert!(text.contains("4 what? write 4m, 4h or 4d"), "{text}");
    assert_eq!(person.run(&["--help", "-o", "json"]).code, Some(0));
}

#[tokio::test]
async fn a_job_is_read_together_with_what_it_refers_to() {
    let server = priced(&[]).await;
    submit(&server, small("j")).await;
    assert_eq!(job(&server, "j").await["expanded"], json!(null));
    let both = server.get("/v1/jobs/j?expand=hold,account").await;
    assert_eq!(both["expanded"]["hold"]["id"], both["hold"]["id"]);
    assert_eq!(both["expanded"]["hold"]["remaining"], "6");
    assert_eq!(both["expanded"]["account"]["id"], "acme:nlp");
    let one = server.get("/v1/jobs/j?expand=account").await;
    assert_eq!(one["expanded"]["hold"], json!(null));
    let wrong = server.call("GET", "/v1/jobs/j?expand=logs", json!(null)).await;
    assert_eq!(wrong.problem("invalid_field")["param"], "expand");
}
