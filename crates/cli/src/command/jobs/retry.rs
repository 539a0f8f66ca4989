//! `bursar job retry`: submits jobs that have ended once more, under new ids.

use bursar_client::api::jobs::job::{Job, JobState, SubmitJob};
use bursar_client::jobs;

use super::select::{self, Selected};
use crate::exit::{Exit, Failure};
use crate::session::{ChangeArguments, Session, no_more_known};

/// Retries a job; of an array, every job that did not succeed.
pub(super) async fn retry(
    session: &Session,
    id: &str,
    change: &ChangeArguments,
) -> Result<(), Failure> {
    let selected = select::find(session, id).await?;
    let again = match selected.is_array() {
        true => unsuccessful(session, &selected).await?,
        false => vec![selected.answer.value],
    };
    if let Some(live) = again.iter().find(|job| !job.state.is_final()) {
        let (id, state) = (&live.id, live.state.as_str());
        let why = format!("{id} is {state}: only a job that has ended can be retried");
        return Err(Failure::because(Exit::Refused, why)
            .with_next(format!("bursar cancel {id}, or bursar job preempt {id} to restart it")));
    }
    for (number, job) in again.into_iter().enumerate() {
        let call = jobs::submit(&same_work(job));
        session.change(call, &change.of_part(number), no_more_known).await?;
    }
    Ok(())
}

/// The jobs of an array that did not succeed.
async fn unsuccessful(session: &Session, array: &Selected) -> Result<Vec<Job>, Failure> {
    let mut found = Vec::new();
    for job_id in array.job_ids() {
        let job = session.send(jobs::show(&job_id)).await?.value;
        if job.state != JobState::Succeeded {
            found.push(job);
        }
    }
    if found.is_empty() {
        let why = format!("every job of {} has succeeded", array.id);
        return Err(Failure::because(Exit::Refused, why)
            .with_next(format!("bursar job retry {} to repeat one of them", array.job().id)));
    }
    Ok(found)
}

/// The same work as a job of its own. One of an array keeps its index.
fn same_work(job: Job) -> SubmitJob {
    let mut spec = SubmitJob { id: None, array: None, ..job.spec };
    let index = job.array.as_ref().and_then(|_| job.id.rsplit_once('.')).map(|(_, index)| index);
    if let Some(index) = index {
        let env = spec.env.get_or_insert_default();
        env.insert("BURSAR_ARRAY_INDEX".to_owned(), index.to_owned());
    }
    spec
}
