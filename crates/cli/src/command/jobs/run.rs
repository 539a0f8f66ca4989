//! `bursar run`: shows the cost of a job, submits it, follows it, and returns its exit code.

use std::io::IsTerminal;

use bursar_client::api::BlockerType;
use bursar_client::api::jobs::job::SubmitJob;
use bursar_client::api::jobs::quote::Quote;
use bursar_client::api::terminal::escaped;
use bursar_client::jobs;
use clap::Args;

use super::arguments::JobArguments;
use super::array;
use super::follow;
use super::quote::plan;
use super::select::Selected;
use crate::exit::{Exit, Failure};
use crate::render::format::Format;
use crate::render::note;
use crate::session::problem::fix;
use crate::session::{ChangeArguments, Session, confirmed};

#[derive(Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:\n  bursar run --account acme:nlp --gpus H100:4 --time 2h -- \
    python train.py\n  bursar run -a acme:nlp -g H100 -t 10m --yes --detach -- nvidia-smi\n  \
    bursar run ./train.sh\n  \
    bursar run -a acme:nlp -g H100:4 -t 2h --external --yes   a job that Slurm runs\n\n\
    A script may have its options in lines such as `#BURSAR --gpus H100:4 --time 2h` before its \
    first command. Options on the command line override them. Without such lines the common options \
    of `#SBATCH` lines are used.\n\n\
    Ends with the exit code of the job: 0 if it succeeded, 130 if it was cancelled, 124 if it ran \
    out of time, 1 if there is none.")]
pub(crate) struct RunArguments {
    #[command(flatten)]
    job: JobArguments,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    yes: bool,
    /// Do not wait for the job.
    #[arg(short, long)]
    detach: bool,
    /// Print control characters unchanged on a terminal, as `bursar logs --raw` does.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, arguments: RunArguments) -> Result<(), Failure> {
    let RunArguments { job, yes, detach, raw, change } = arguments;
    if !job.has_command() && !job.is_external() {
        return Err(Failure::because(Exit::Usage, "a command is needed").with_next(
            "write the command after --, as in: bursar run -a acme -t 1h -- nvidia-smi",
        ));
    }
    // No cell starts an external job, so there is nothing to follow.
    let detach = detach || job.is_array() || job.is_external();
    let job = job.into_job(session).await?;
    let quote = session.send(jobs::quote(&job)).await?.value;
    if change.is_dry_run() {
        let lines = plan(&quote, &job);
        let call = jobs::submit(&job);
        let is_checked = session.check(&call).await?;
        return session.plan(&call, &[lines], is_checked);
    }
    if !quote.admissible {
        return Err(refusal(&job, &quote));
    }
    agree(&job, &quote, yes)?;
    let submitted = session.send_change(jobs::submit(&job), &change).await?;
    if detach {
        let submitted = Selected::submitted(submitted);
        match submitted.is_array() {
            true => array::show(session, &submitted).await?,
            false => session.show(&submitted.answer)?,
        }
        next_steps(session, &submitted);
        return Ok(());
    }
    follow::to_the_end(session, &submitted.value.id, raw).await
}

/// Why the job would not be accepted, and how to fix each reason.
fn refusal(job: &SubmitJob, quote: &Quote) -> Failure {
    let why = format!("this job of {} would not be accepted now", job.account);
    let money = |kind| matches!(kind, BlockerType::Credits | BlockerType::Budget);
    let lacks_money = quote.blockers.iter().any(|blocker| money(blocker.kind));
    let exit = if lacks_money { Exit::Insufficient } else { Exit::Refused };
    let mut failure = Failure::because(exit, why);
    for blocker in &quote.blockers {
        failure = failure.with_particular(format!("- {}", escaped(&blocker.detail)));
    }
    let fixes: Vec<String> =
        quote.blockers.iter().map(|of| escaped(&fix(of)).into_owned()).collect();
    failure.with_next(fixes.join("\n      "))
}

/// Shows the plan and asks for confirmation, unless `yes`.
fn agree(job: &SubmitJob, quote: &Quote, yes: bool) -> Result<(), Failure> {
    let lines = plan(quote, job);
    note(&lines);
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        let failure = Failure::because(Exit::Usage, "confirmation needs a terminal; pass --yes");
        let words = job.command.as_deref().unwrap_or_default();
        // What follows the command belongs to it.
        return Err(match words.iter().skip(1).any(|word| word == "--yes" || word == "-y") {
            true => failure.with_next("write --yes before the command: bursar run --yes …"),
            false => failure,
        });
    }
    if confirmed("submit it?")? {
        return Ok(());
    }
    Err(Failure::because(Exit::Failed, "not submitted: nothing was held"))
}

fn next_steps(session: &Session, submitted: &Selected) {
    if session.format() != Format::Table {
        return;
    }
    let id = &submitted.id;
    note(&match submitted.job().spec.external {
        Some(true) => format!(
            "next: bursar usage report --job {id} --seq 1 --gpu-time TIME\n      \
             bursar usage report --job {id} --seq 2 --gpu-time TIME --ended=succeeded"
        ),
        Some(false) | None => {
            format!("next: bursar logs -f {id}\n      bursar wait {id}\n      bursar why {id}")
        }
    });
}
