//! Continuous load: submissions, failures, cancellations, preemptions and purchases.

use std::time::Duration;

use bursar_client::api::jobs::job::{ConcurrencyGroup, JobFilter, JobGpus, JobState, SubmitJob};
use bursar_client::nodes::regions;
use bursar_client::{Client, ClientError, Method, jobs};
use bursar_sim::random::Dice;
use serde_json::json;

use super::world::send;
use crate::exit::Failure;
use crate::session::problem;

/// While this many jobs wait, no more are submitted.
const QUEUE: u64 = 14;
/// After this number of submissions both organisations buy credits.
const ORDER: u64 = 60;

/// A kind of job.
struct JobKind {
    /// The account that pays.
    account: &'static str,
    name: &'static str,
    types: &'static [&'static str],
    /// Whole GPUs, unless it uses a share of one.
    gpus: u32,
    share: Option<&'static str>,
    class: &'static str,
    /// The shortest and the longest run, in seconds.
    seconds: (u64, u64),
    exit_code: u32,
    array: Option<u32>,
    /// Its relative frequency.
    weight: usize,
}

const WORK: [JobKind; 8] = [
    JobKind::new("acme:nlp:pretrain", "pretrain", &["H100", "A100"], 4, (40, 120), 5),
    JobKind::new("acme:nlp:chat", "finetune", &["H100", "A100"], 2, (15, 45), 6),
    JobKind {
        share: Some("0.25"),
        ..JobKind::new("acme:nlp:chat", "serve", &["L40S"], 0, (30, 90), 4)
    },
    JobKind { exit_code: 1, ..JobKind::new("acme:vision", "segment", &["A100"], 1, (4, 10), 3) },
    JobKind { class: "batch", ..JobKind::new("acme:vision", "augment", &["L40S"], 2, (20, 60), 4) },
    JobKind::new("umbra:perception:mapping", "mapping", &["H100", "L40S"], 2, (20, 70), 5),
    JobKind {
        array: Some(4),
        class: "batch",
        ..JobKind::new("umbra:control", "sweep", &["L40S", "A100"], 1, (10, 30), 1)
    },
    JobKind {
        class: "urgent",
        ..JobKind::new("umbra:control", "hotfix", &["H100"], 8, (10, 20), 1)
    },
];

impl JobKind {
    const fn new(
        account: &'static str,
        name: &'static str,
        types: &'static [&'static str],
        gpus: u32,
        seconds: (u64, u64),
        weight: usize,
    ) -> JobKind {
        let class = "normal";
        JobKind {
            account,
            name,
            types,
            gpus,
            share: None,
            class,
            seconds,
            exit_code: 0,
            array: None,
            weight,
        }
    }

    fn pick(dice: &mut Dice) -> &'static JobKind {
        let all = WORK.iter().map(|work| work.weight).sum();
        let mut at = dice.below(all);
        for work in &WORK {
            match at.checked_sub(work.weight) {
                Some(rest) => at = rest,
                None => return work,
            }
        }
        &WORK[0]
    }

    fn job(&self, dice: &mut Dice) -> SubmitJob {
        let (shortest, longest) = self.seconds;
        let spread = usize::try_from(longest - shortest).unwrap_or(0);
        let seconds = shortest + dice.below(spread + 1) as u64;
        let types = self.types.iter().map(|kind| (*kind).to_owned()).collect();
        let group = self.array.map(|_| ConcurrencyGroup { name: self.name.into(), limit: 4 });
        SubmitJob {
            account: self.account.into(),
            name: Some(self.name.into()),
            gpus: JobGpus {
                types: Some(types),
                count: self.share.is_none().then_some(self.gpus),
                share: self.share.map(|share| share.parse().expect("a share is a decimal")),
                memory_gib: None,
            },
            max_runtime_seconds: Some(seconds * 2),
            class: Some(self.class.into()),
            grace_seconds: Some(5),
            concurrency_group: group,
            array: self.array,
            command: Some(script(seconds, self.exit_code)),
            ..SubmitJob::default()
        }
    }
}

/// A script that prints its progress, and saves its work when it is stopped.
fn script(seconds: u64, exit_code: u32) -> Vec<String> {
    let text = format!(
        "trap 'echo saved at step $i; exit 0' TERM\n\
         for i in $(seq {seconds}); do echo step $i of {seconds} on $CUDA_VISIBLE_DEVICES; sleep 1; done\n\
         exit {exit_code}"
    );
    vec!["bash".into(), "-c".into(), text]
}

/// Submits jobs until it is stopped. Rejections for too few credits are expected.
pub(super) async fn run(client: Client, seed: u64) -> Result<(), Failure> {
    let mut dice = Dice::new(seed, 0);
    for arrival in 1_u64.. {
        if waiting(&client).await? < QUEUE {
            let job = JobKind::pick(&mut dice).job(&mut dice);
            tolerate(client.send(jobs::submit(&job)).await.map(|_| ()))?;
        }
        if dice.below(20) == 0 {
            cancel_or_preempt(&client, &mut dice).await?;
        }
        if arrival % ORDER == 0 {
            buy(&client, arrival / ORDER).await?;
        }
        tokio::time::sleep(Duration::from_millis(400 + dice.below(2200) as u64)).await;
    }
    Ok(())
}

async fn waiting(client: &Client) -> Result<u64, Failure> {
    match client.send(regions::list()).await {
        Ok(answer) => Ok(answer.value.data.iter().map(|region| region.waiting_jobs).sum()),
        // Submit nothing to a server that is too busy to answer.
        Err(error) => tolerate(Err(error)).map(|()| QUEUE),
    }
}

/// Cancels or preempts a job.
async fn cancel_or_preempt(client: &Client, dice: &mut Dice) -> Result<(), Failure> {
    let filter = JobFilter { state: Some(JobState::Running), ..JobFilter::default() };
    let running = match client.send(jobs::list(&filter)).await {
        Ok(answer) => answer.value.data,
        Err(error) => return tolerate(Err(error)),
    };
    if running.is_empty() {
        return Ok(());
    }
    let job = &running[dice.below(running.len())];
    let call = if dice.below(2) == 0 { jobs::cancel(&job.id) } else { jobs::preempt(&job.id) };
    tolerate(client.send(call).await.map(|_| ()))
}

async fn buy(client: &Client, number: u64) -> Result<(), Failure> {
    for account in ["acme", "umbra"] {
        let id = format!("{account}-order-{}", number + 1);
        let body = json!({ "account": account, "amount": "600", "kind": "purchase", "id": id });
        send(client, Method::Post, "/v1/grants", &body).await?;
    }
    Ok(())
}

/// Accepts rejections and overload; fails on unexpected answers.
fn tolerate(outcome: Result<(), ClientError>) -> Result<(), Failure> {
    match outcome {
        Ok(()) | Err(ClientError::Problem(_) | ClientError::Unreachable { .. }) => Ok(()),
        Err(
            error @ (ClientError::Untrusted { .. }
            | ClientError::Unexpected { .. }
            | ClientError::Unusable(_)),
        ) => Err(problem::failure(&error, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_job_is_submitted_eventually() {
        let mut dice = Dice::new(42, 0);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let work = JobKind::pick(&mut dice);
            let job = work.job(&mut dice);
            assert!(job.max_runtime_seconds >= Some(2 * work.seconds.0));
            assert_eq!(job.gpus.count.is_some(), work.share.is_none());
            seen.insert(work.name);
        }
        assert_eq!(seen.len(), WORK.len());
    }
}
