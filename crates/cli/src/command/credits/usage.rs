//! `bursar usage`: usage measured by another system, such as Slurm or Kubernetes.

use std::time::Duration;

use bursar_client::api::Amount;
use bursar_client::api::credits::usage::{ReportUsage, UsageEnded, UsageRecord, UsageResults};
use bursar_client::credits::usage;
use clap::{Args, Subcommand};

use crate::arguments::{duration, word};
use crate::command::jobs::select;
use crate::exit::{Exit, Failure};
use crate::render::sheet::{Cell, Sheet, View};
use crate::session::{ChangeArguments, Session};

/// How usage may have ended, as in the API.
const USAGE_ENDS: &[&str] = &["succeeded", "failed", "cancelled", "lost"];

#[derive(Subcommand)]
pub(crate) enum UsageCommand {
    /// Report the cumulative usage of a hold or a job.
    #[command(
        after_help = "Examples:\n  bursar usage report --hold slurm-812 --seq 4 --amount 3.75\n  \
        bursar usage report --job run-7 --seq 2 --gpu-time 2h --ended\n  \
        bursar usage report --job run-7 --seq 3 --gpu-ms 7200000 --ended=failed"
    )]
    Report(Box<ReportArguments>),
}

#[derive(Args)]
pub(crate) struct ReportArguments {
    /// The hold.
    #[arg(long, required_unless_present = "job", conflicts_with = "job")]
    hold: Option<String>,
    /// The job.
    #[arg(long)]
    job: Option<String>,
    /// The attempt of the job; the current one if not given.
    #[arg(long, requires = "job")]
    attempt: Option<String>,
    /// The sequence number of this report; a repeated number changes nothing.
    #[arg(long)]
    seq: u64,
    /// Credits in total.
    #[arg(long, required_unless_present_any = ["gpu_ms", "gpu_time"],
        conflicts_with_all = ["gpu_ms", "gpu_time"])]
    amount: Option<Amount>,
    /// GPU-milliseconds in total.
    #[arg(long, value_name = "MS", requires = "job")]
    gpu_ms: Option<u64>,
    /// The same as a time: the running time multiplied by the number of GPUs.
    #[arg(long, value_name = "TIME", requires = "job", conflicts_with = "gpu_ms",
        value_parser = duration)]
    gpu_time: Option<Duration>,
    /// The usage is complete: return the remainder of the hold. A job ends as succeeded (the default),
    /// failed, cancelled or lost.
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true,
        default_missing_value = "succeeded", value_parser = word::<UsageEnded>(USAGE_ENDS))]
    ended: Option<UsageEnded>,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: UsageCommand) -> Result<(), Failure> {
    let UsageCommand::Report(arguments) = command;
    let job = match arguments.job {
        Some(job) => Some(select::job_id(session, job).await?),
        None => None,
    };
    let gpu_ms = arguments.gpu_time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let record = UsageRecord {
        job,
        hold: arguments.hold,
        attempt: arguments.attempt,
        seq: arguments.seq,
        gpu_ms_total: arguments.gpu_ms.or(gpu_ms),
        amount_total: arguments.amount,
        ended: arguments.ended,
    };
    let call = usage::report(&ReportUsage { records: vec![record] });
    if arguments.change.is_dry_run() {
        let is_checked = session.check(&call).await?;
        return session.plan(&call, &[], is_checked);
    }
    let answer = session.send_change(call, &arguments.change).await?;
    let status = answer.value.results.first().map_or(0, |result| result.status);
    session.show(&answer)?;
    match Exit::of_status(status) {
        Some(exit) => Err(Failure::because(exit, format!("the record was refused with {status}"))
            .with_next("read its problem above; -o json shows all of it")),
        None => Ok(()),
    }
}

impl View for UsageResults {
    fn sheet(&self) -> Sheet {
        let first = self.results.first();
        let text = |name: &str| {
            let body = first.map(|result| &result.body);
            let value = body.and_then(|body| body.get(name));
            Cell::maybe(value.and_then(|value| value.as_str()))
        };
        Sheet::record([
            ("status", Cell::maybe(first.map(|result| result.status))),
            ("id", text("id")),
            ("state", text("state")),
            ("captured", text("captured")),
            ("charged", text("charged")),
            ("detail", text("detail")),
        ])
    }
}
