//! Jobs: account, class, state, end, and the decisions that concern them.

use bursar_core::ledger::id::JobNo;
use bursar_core::ledger::jobs::{JobOrder, JobState};

use super::{History, Step};
use crate::database::{Columns, Database};
use crate::error::HistoryError;

impl<D: Database> History<D> {
    pub(super) fn job_submitted(
        &mut self,
        step: &mut Step,
        job: JobNo,
        order: &JobOrder,
    ) -> Result<(), HistoryError> {
        step.touched.insert(order.account.0);
        step.jobs.insert(job);
        let tenant = self.account(order.account.0)?.tenant;
        self.database.execute(
            "INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7)",
            &[
                job.0.cast_signed().into(),
                tenant.into(),
                order.id.as_str().into(),
                order.account.0.into(),
                (JobState::Queued as u32).into(),
                step.at.millis().into(),
                order.terms.class.as_str().into(),
            ],
        )?;
        self.label_job(job, order.submitted.text())
    }

    pub(super) fn job_ended(
        &mut self,
        step: &mut Step,
        job: JobNo,
        state: JobState,
    ) -> Result<(), HistoryError> {
        self.touch_job(step, job)?;
        self.database.execute(
            "UPDATE jobs SET state = ?2, ended_at = ?3 WHERE number = ?1",
            &[job.0.cast_signed().into(), (state as u32).into(), step.at.millis().into()],
        )
    }

    /// Records that a decision concerns a job and its account.
    pub(super) fn touch_job(&mut self, step: &mut Step, job: JobNo) -> Result<(), HistoryError> {
        if !step.jobs.insert(job) {
            return Ok(());
        }
        let rows = self
            .database
            .query("SELECT account FROM jobs WHERE number = ?1", &[job.0.cast_signed().into()])?;
        // A message may name a job that does not exist. Then it concerns no account.
        if let Some(row) = rows.into_iter().next() {
            step.touched.insert(Columns::of(row).number()?);
        }
        Ok(())
    }
}
