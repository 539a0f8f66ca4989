//! Which job an argument means: an id, the beginning of one, or `last`.

use bursar_client::api::Code;
use bursar_client::api::jobs::job::{Job, JobFilter};
use bursar_client::api::system::search::{HitType, SearchQuery};
use bursar_client::system::search;
use bursar_client::{ApiAnswer, jobs};

use crate::exit::{Exit, Failure};
use crate::session::Session;
use crate::session::connection::variable;

/// Stands for the newest job.
const LAST: &str = "last";
/// How many jobs with the same beginning are named.
const MAX_NAMED: usize = 5;

/// A job or an array that an argument names.
pub(crate) struct Selected {
    /// Its id: that of the array if the argument names one.
    pub(crate) id: String,
    /// The job; of an array, the first one.
    pub(crate) answer: ApiAnswer<Job>,
}

impl Selected {
    /// What was just submitted: an array, if the answer is one.
    pub(crate) fn submitted(answer: ApiAnswer<Job>) -> Selected {
        let id = match &answer.value.array {
            Some(_) => of_array(&answer.value.id).to_owned(),
            None => answer.value.id.clone(),
        };
        Selected { id, answer }
    }

    /// The job; of an array, the first one.
    pub(crate) fn job(&self) -> &Job {
        &self.answer.value
    }

    /// Whether it is a whole array.
    pub(crate) fn is_array(&self) -> bool {
        self.job().array.is_some() && self.job().id != self.id
    }

    /// The ids of its jobs.
    pub(crate) fn job_ids(&self) -> Vec<String> {
        match &self.job().array {
            Some(array) if self.is_array() => array.clone(),
            Some(_) | None => vec![self.job().id.clone()],
        }
    }

    /// The id of the nth attempt, if `text` is a number; otherwise the text itself.
    pub(crate) fn attempt(&self, text: &str) -> Result<String, Failure> {
        attempt_of(self.job(), text)
    }
}

/// The id of an attempt of a job, given as an id or as a number from 1.
pub(crate) fn attempt_of(job: &Job, text: &str) -> Result<String, Failure> {
    let Ok(number) = text.parse::<usize>() else { return Ok(text.to_owned()) };
    let found = number.checked_sub(1).and_then(|index| job.attempts.get(index));
    found.map(|attempt| attempt.id.clone()).ok_or_else(|| {
        let why = match job.attempts.len() {
            0 => format!("{} has no attempt yet", job.id),
            1 => format!("{} has 1 attempt", job.id),
            all => format!("{} has {all} attempts", job.id),
        };
        Failure::because(Exit::NotFound, why).with_next(format!("bursar job show {}", job.id))
    })
}

/// The job that an argument names.
pub(crate) async fn find(session: &Session, text: &str) -> Result<Selected, Failure> {
    if text == LAST {
        return newest(session).await;
    }
    match session.client().send(jobs::show(text)).await {
        Ok(answer) => Ok(Selected { id: text.to_owned(), answer }),
        Err(error) if error.code() == Some(Code::NotFound) => {
            let Some(id) = by_beginning(session, text).await? else {
                return Err(session.explain_with_proposals(&error, None).await);
            };
            let answer = session.send(jobs::show(&id)).await?;
            Ok(Selected { id, answer })
        }
        Err(error) => Err(session.explain(&error, None)),
    }
}

/// The id of the job that an argument of another command names. A text that names no job is left to the
/// server, which may remember more.
pub(crate) async fn job_id(session: &Session, text: String) -> Result<String, Failure> {
    if text == LAST {
        return Ok(newest(session).await?.id);
    }
    match session.client().send(jobs::show(&text)).await {
        Err(error) if error.code() == Some(Code::NotFound) => {
            Ok(by_beginning(session, &text).await?.unwrap_or(text))
        }
        Ok(_) | Err(_) => Ok(text),
    }
}

/// The jobs that an argument names: one, an array, or some of an array, as in `sweep.3-8`.
pub(crate) async fn find_all(session: &Session, text: &str) -> Result<Vec<Selected>, Failure> {
    let failure = match find(session, text).await {
        Ok(selected) => return Ok(vec![selected]),
        Err(failure) => failure,
    };
    // An id may look like a range, so it is read as one only if there is no such id.
    let Some((array, indexes)) = range(text) else { return Err(failure) };
    let mut selected = Vec::new();
    for index in indexes {
        selected.push(find(session, &format!("{array}.{index}")).await?);
    }
    Ok(selected)
}

/// The array and the indexes of a text such as `sweep.3-8`.
fn range(text: &str) -> Option<(&str, std::ops::RangeInclusive<u32>)> {
    let (array, indexes) = text.rsplit_once('.')?;
    let (first, last) = indexes.split_once('-')?;
    let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
    (first <= last && last < 1_000).then_some((array, first..=last))
}

/// How many of the newest jobs are compared to see whether they are of several tenants.
const COMPARED_JOBS: u32 = 100;

/// The newest job that the key can see, below BURSAR_ACCOUNT or of --tenant if one is set. Refused
/// if the jobs are of several tenants: the newest may be of another than the one that is meant.
async fn newest(session: &Session) -> Result<Selected, Failure> {
    let tenant = session.tenant();
    // An id is looked up in the tenant that was given: the account of another one does not count.
    let is_within = |account: &String| tenant.is_none_or(|tenant| tenant_of(account) == tenant);
    let account = variable("BURSAR_ACCOUNT").filter(is_within);
    let account = account.or_else(|| tenant.map(str::to_owned));
    let limit = if account.is_some() { 1 } else { COMPARED_JOBS };
    let filter = JobFilter { account, limit: Some(limit), ..JobFilter::default() };
    let jobs = session.send(jobs::list(&filter)).await?.value.data;
    let newest = jobs.first().ok_or_else(|| {
        Failure::because(Exit::NotFound, "there is no job yet").with_next("bursar run --help")
    })?;
    let tenant = tenant_of(&newest.account);
    if let Some(other) = jobs.iter().find(|job| tenant_of(&job.account) != tenant) {
        let (id, other) = (&newest.id, tenant_of(&other.account));
        let why = format!("this key sees jobs of {tenant}, of {other} and perhaps of others");
        return Err(Failure::because(Exit::Refused, why)
            .with_particular(format!("the newest is {id} of {}", newest.account))
            .with_next(format!("write {id}, or choose: --tenant {tenant}")));
    }
    let answer = session.send(jobs::show(&newest.id)).await?;
    // The jobs of an array are submitted together: the newest one stands for all.
    Ok(Selected::submitted(answer))
}

/// The first part of the path of an account.
fn tenant_of(account: &str) -> &str {
    account.split(':').next().unwrap_or(account)
}

/// The id of the array that a job with an id such as `sweep.3` belongs to.
fn of_array(id: &str) -> &str {
    let is_index = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
    id.rsplit_once('.').filter(|(_, end)| is_index(end)).map_or(id, |(array, _)| array)
}

/// The only job, or the only array, whose id begins with a text.
async fn by_beginning(session: &Session, text: &str) -> Result<Option<String>, Failure> {
    let query = SearchQuery { q: text.to_owned(), limit: Some(100) };
    // A text that cannot be searched for begins no id.
    let Ok(found) = session.client().send(search::search(&query)).await else { return Ok(None) };
    let hits = found.value.data.into_iter().filter(|hit| hit.kind == HitType::Job);
    let ids: Vec<String> = hits.map(|hit| hit.id).filter(|id| id.starts_with(text)).collect();
    match only(&ids) {
        Ok(id) => Ok(id),
        Err(Several(several)) => {
            let why = format!("`{text}` begins the ids of several jobs: {several}");
            Err(Failure::because(Exit::Refused, why).with_next("write more of the id"))
        }
    }
}

/// Ids of several jobs, as a list of the first of them.
#[derive(Debug, PartialEq)]
struct Several(String);

/// The only id, that of the array if all are of one.
fn only(ids: &[String]) -> Result<Option<String>, Several> {
    match ids {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [first, rest @ ..] => {
            let array = of_array(first);
            if array != first && rest.iter().all(|id| of_array(id) == array) {
                return Ok(Some(array.to_owned()));
            }
            let named: Vec<&str> = ids.iter().take(MAX_NAMED).map(String::as_str).collect();
            let more = if ids.len() > MAX_NAMED { ", …" } else { "" };
            Err(Several(format!("{}{more}", named.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: &[&str]) -> Result<Option<String>, Several> {
        only(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_beginning_names_one_job_or_one_array() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["job_1"]), Ok(Some("job_1".into())));
        assert_eq!(of(&["sweep.0", "sweep.1"]), Ok(Some("sweep".into())));
        let several = |list: &str| Err(Several(list.to_owned()));
        assert_eq!(of(&["sweep.0", "sweep2.0"]), several("sweep.0, sweep2.0"));
        assert_eq!(of(&["a", "b", "c", "d", "e", "f"]), several("a, b, c, d, e, …"));
        assert_eq!(of(&["x", "x"]), several("x, x"), "two tenants have it");
    }

    #[test]
    fn a_range_names_jobs_of_an_array() {
        assert_eq!(range("sweep.3-8"), Some(("sweep", 3..=8)));
        assert_eq!(range("v1.2.0-0"), Some(("v1.2", 0..=0)));
        for other in
            ["sweep", "sweep.3", "sweep.8-3", "sweep.3-", "sweep.-8", "sweep.0-1000", "a-b"]
        {
            assert_eq!(range(other), None, "{other}");
        }
    }

    #[test]
    fn only_an_index_makes_an_id_one_of_an_array() {
        assert_eq!(of_array("sweep.12"), "sweep");
        assert_eq!(of_array("v1.2b"), "v1.2b");
        assert_eq!(of_array("sweep."), "sweep.");
        assert_eq!(of_array("plain"), "plain");
    }
}
