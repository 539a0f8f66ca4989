//! Arguments that specify a job, for `run` and `quote`.

use bursar_client::api::Amount;
use bursar_client::api::jobs::job::{ConcurrencyGroup, JobGpus, OnExhausted, Reserve, SubmitJob};
use clap::Args;
use std::time::Duration;

use crate::arguments::{duration, pair, some, word};
use crate::exit::Failure;
use crate::session::Session;

const RESERVES: &[&str] = &["full", "rolling"];
const ON_EXHAUSTED: &[&str] = &["stop", "overdraft"];

/// The specification of a job.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobArguments {
    /// The account that pays; else BURSAR_ACCOUNT, else the one that the key is for.
    #[arg(short, long, env = "BURSAR_ACCOUNT")]
    account: Option<String>,
    /// GPUs on each node: `4`, `H100:4`, `H100,A100:2` (the first is preferred), or a share such
    /// as `H100:0.25`.
    #[arg(short, long, value_name = "TYPES:COUNT", default_value = "1", value_parser = gpus)]
    gpus: JobGpus,
    /// The time limit, such as 30m, 1h30m or 01:30:00. Optional with --reserve rolling.
    #[arg(short = 't', long = "time", value_name = "TIME", value_parser = duration)]
    max_runtime: Option<Duration>,
    /// Display name.
    #[arg(long)]
    name: Option<String>,
    /// The priority class; `normal` if not given.
    #[arg(long)]
    class: Option<String>,
    /// Acceptable regions, separated by commas; every region if not given.
    #[arg(long = "region", value_name = "REGION", value_delimiter = ',')]
    regions: Vec<String>,
    /// The number of nodes, allocated together.
    #[arg(long, value_name = "COUNT")]
    nodes: Option<u32>,
    /// The least memory of each GPU.
    #[arg(long, value_name = "GIB")]
    gpu_memory: Option<u32>,
    /// Cores on each node.
    #[arg(long, value_name = "COUNT")]
    cpus: Option<u32>,
    /// Main memory on each node.
    #[arg(long, value_name = "GIB")]
    memory: Option<u32>,
    /// A label that each node must carry; may be given several times.
    #[arg(long = "node-label", value_name = "NAME=VALUE", value_parser = pair)]
    node_labels: Vec<(String, String)>,
    /// An environment variable; may be given several times.
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// The working directory on the node.
    #[arg(long, value_name = "DIR")]
    workdir: Option<String>,
    /// A label to find it by; may be given several times.
    #[arg(short, long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// The job runs outside Bursar, under Slurm for example. Report its usage: bursar usage report.
    #[arg(long)]
    external: bool,
    /// Whether a job of a higher class or of an account under its share may stop it, so that it is
    /// queued again; the default of its class if not given.
    #[arg(long, value_name = "YES")]
    preemptible: Option<bool>,
    /// The job saves its work and resumes when it is started again.
    #[arg(long)]
    resumable: bool,
    /// The grace period to save its work when it is stopped.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    grace: Option<Duration>,
    /// How much is held before it starts: the cost of the whole time limit (full), or of the next hour,
    /// again and again while it runs (rolling); full if not given.
    #[arg(long, value_parser = word::<Reserve>(RESERVES))]
    reserve: Option<Reserve>,
    /// When the credits run out: end the job (stop), or go on up to the overdraft limit of the account
    /// (overdraft); stop if not given.
    #[arg(long, value_parser = word::<OnExhausted>(ON_EXHAUSTED))]
    on_exhausted: Option<OnExhausted>,
    /// How long before the credits run out to warn, with a rolling reserve; 5m if not given.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    warn_ahead: Option<Duration>,
    /// A concurrency group and how many of its jobs may run at once.
    #[arg(long, value_name = "NAME=LIMIT", value_parser = group)]
    group: Option<ConcurrencyGroup>,
    /// Number of array tasks.
    #[arg(long, value_name = "COUNT", value_parser = tasks)]
    array: Option<u32>,
    /// A job that must succeed first; may be given several times.
    #[arg(long, value_name = "JOB")]
    after: Vec<String>,
    /// How often it is queued again after a lost node; 3 if not given.
    #[arg(long, value_name = "COUNT")]
    max_requeues: Option<u32>,
    /// Its id; repeating it does not submit another job.
    #[arg(long)]
    id: Option<String>,
    /// What to run, after `--`.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl JobArguments {
    /// Whether there is something to run.
    pub(crate) fn has_command(&self) -> bool {
        !self.command.is_empty()
    }

    /// Whether it runs outside Bursar.
    pub(crate) fn is_external(&self) -> bool {
        self.external
    }

    /// Whether it is an array of jobs.
    pub(crate) fn is_array(&self) -> bool {
        self.array.is_some()
    }

    /// The body that is sent.
    pub(crate) async fn into_job(self, session: &Session) -> Result<SubmitJob, Failure> {
        let account = session.account_or_own(self.account).await?;
        let gpus = JobGpus { memory_gib: self.gpu_memory, ..self.gpus };
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let map =
            |pairs: Vec<(String, String)>| (!pairs.is_empty()).then(|| pairs.into_iter().collect());
        Ok(SubmitJob {
            id: self.id,
            account,
            name: self.name,
            gpus,
            nodes: self.nodes,
            cpus: self.cpus,
            memory_gib: self.memory,
            node_labels: map(self.node_labels),
            max_runtime_seconds: self.max_runtime.map(|time| time.as_secs()),
            class: self.class,
            external: self.external.then_some(true),
            preemptible: self.preemptible,
            resumable: self.resumable.then_some(true),
            grace_seconds: self.grace.map(seconds),
            regions: some(&self.regions),
            reserve: self.reserve,
            on_exhausted: self.on_exhausted,
            warn_ahead_seconds: self.warn_ahead.map(seconds),
            concurrency_group: self.group,
            array: self.array,
            after: some(&self.after),
            command: some(&self.command),
            env: map(self.env),
            workdir: self.workdir,
            labels: map(self.labels),
            max_requeues: self.max_requeues,
        })
    }
}

/// `4`, `H100`, `H100:4`, `H100,A100:2`, `H100:0.25`.
fn gpus(text: &str) -> Result<JobGpus, String> {
    let wrong = || "write it as 4, H100:4, H100,A100:2 or H100:0.25".to_owned();
    let starts_with_digit = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    let (types, amount) = match text.rsplit_once(':') {
        Some((types, amount)) => (types, Some(amount)),
        None if starts_with_digit(text) => ("", Some(text)),
        None => (text, None),
    };
    let types: Vec<String> =
        types.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    let mut gpus = JobGpus { types: some(&types), ..JobGpus::default() };
    match amount {
        Some(share) if share.contains('.') => {
            gpus.share = Some(share.parse::<Amount>().map_err(|_| wrong())?);
        }
        Some(count) => gpus.count = Some(count.parse().map_err(|_| wrong())?),
        None => gpus.count = Some(1),
    }
    Ok(gpus)
}

/// The number of tasks of an array. Their numbers begin with 0.
fn tasks(text: &str) -> Result<u32, String> {
    let wrong = "write how many tasks there are, such as 10 for those from 0 to 9";
    text.parse().map_err(|_| wrong.to_owned())
}

/// `tuning=2`.
fn group(text: &str) -> Result<ConcurrencyGroup, String> {
    let wrong = || "write it as NAME=LIMIT, such as tuning=2".to_owned();
    let (name, limit) = pair(text).map_err(|_| wrong())?;
    Ok(ConcurrencyGroup { name, limit: limit.parse().map_err(|_| wrong())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_written_as_people_say_them() {
        let json = |text: &str| gpus(text).map(|gpus| serde_json::to_string(&gpus).expect("plain"));
        for (text, expected) in [
            ("4", r#"{"count":4}"#),
            ("H100", r#"{"types":["H100"],"count":1}"#),
            ("H100:4", r#"{"types":["H100"],"count":4}"#),
            ("H100,A100:2", r#"{"types":["H100","A100"],"count":2}"#),
            ("H100:0.25", r#"{"types":["H100"],"share":"0.25"}"#),
            ("0.5", r#"{"share":"0.5"}"#),
        ] {
            assert_eq!(json(text).as_deref(), Ok(expected), "{text}");
        }
        for wrong in ["H100:", "H100:x", "4x", "H100:-1", "1.2.3"] {
            assert!(gpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_array_has_a_number_of_tasks() {
        assert_eq!(tasks("10"), Ok(10));
        for wrong in ["0-9", "1,3", "-1", "ten"] {
            assert!(tasks(wrong).is_err_and(|text| text.contains("such as 10")), "{wrong}");
        }
    }

    #[test]
    fn a_group_has_a_limit() {
        let tuning = ConcurrencyGroup { name: "tuning".into(), limit: 2 };
        assert_eq!(group("tuning=2"), Ok(tuning));
        assert!(group("tuning").is_err());
        assert!(group("tuning=many").is_err());
    }
}
