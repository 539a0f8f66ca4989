//! What was refunded of a job that has ended.

use bursar_api::amount::Sum;
use bursar_api::jobs::job::Job;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::AccountNo;
use bursar_core::name::AccountPath;

use crate::app::App;
use crate::http::convert::instant;
use crate::render;
use crate::request::Failure;

/// Adds what was refunded of a job. The ledger may have forgotten its holds; history has not.
pub(super) async fn with_refunds(app: &App, mut job: Job) -> Result<Job, Failure> {
    if !render::job::is_over(job.state) || job.charged == Sum::default() {
        return Ok(job);
    }
    let path = AccountPath::unchecked(job.account.as_str());
    let seen = app.read(move |ledger: &Ledger| ledger.find_account(&path)).await?;
    let Some(AccountNo(account)) = seen.value else { return Ok(job) };
    let (id, since) = (job.id.clone(), instant(job.created_at));
    let ask =
        app.history.ask(seen.position, move |history| history.refunded_of_job(account, &id, since));
    let (units, _) = ask.await?;
    job.refunded = (units > 0).then(|| Sum::from_micros(units.into()));
    Ok(job)
}
