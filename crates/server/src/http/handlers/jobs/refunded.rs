//! What was refunded of a job that has ended.

use bursar_api::amount::Sum;
use bursar_api::jobs::job::Job;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::event::total;
use bursar_core::ledger::id::AccountNo;
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;
use bursar_history::query::{ListPart, RefundsOf};

use crate::app::App;
use crate::http::convert::instant;
use crate::render;
use crate::request::Failure;

/// How many refunds are read at once.
const PAGE: u32 = 100;

/// Adds what was refunded of a job. The ledger may have forgotten its holds; history has not.
pub(super) async fn with_refunds(app: &App, mut job: Job) -> Result<Job, Failure> {
    if !render::job::is_over(job.state) || job.charged == Sum::default() {
        return Ok(job);
    }
    let path = AccountPath::unchecked(job.account.as_str());
    let seen = app.read(move |ledger: &Ledger| ledger.find_account(&path)).await?;
    let Some(AccountNo(account)) = seen.value else { return Ok(job) };
    let (of, period) = (RefundsOf::Job(job.id.clone()), (instant(job.created_at), Timestamp::MAX));
    let ask = app.history.ask(seen.position, move |history| {
        let (mut units, mut after) = (0, None);
        loop {
            let part = ListPart { period, after, limit: PAGE };
            let page = history.refunds(Some(account), Some(&of), part)?;
            let pieces = page.data.iter().flat_map(|made| &made.parts);
            units += pieces.map(|pieces| i128::from(total(pieces))).sum::<i128>();
            after = page.next;
            if after.is_none() {
                return Ok(units);
            }
        }
    });
    let (units, _) = ask.await?;
    job.refunded = (units > 0).then(|| Sum::from_micros(units));
    Ok(job)
}
