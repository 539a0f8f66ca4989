//! Jobs: account, state, end, and the decisions that concern them.

use bursar_core::ledger::id::JobNo;
use bursar_core::ledger::jobs::{JobOrder, JobState};
use bursar_core::time::Timestamp;

use super::{History, Step, hour_of};
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
            "INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL)",
            &[
                job.0.cast_signed().into(),
                tenant.into(),
                order.id.as_str().into(),
                order.account.0.into(),
                (JobState::Queued as u32).into(),
                step.at.millis().into(),
            ],
        )
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

    /// Adds usage to a job.
    pub(super) fn use_job(&mut self, at: Timestamp, job: JobNo, spent: i128, gpu_ms: i128) {
        let row = self.cache.job_usage.entry((hour_of(at), job)).or_default();
        row.spent += spent;
        row.gpu_ms += gpu_ms;
    }

    pub(super) fn flush_job_usage(&mut self) -> Result<(), HistoryError> {
        for ((hour, job), added) in std::mem::take(&mut self.cache.job_usage) {
            let key = [hour.into(), job.0.cast_signed().into()];
            let rows = self
                .database
                .query("SELECT spent, gpu_ms FROM job_hours WHERE hour = ?1 AND job = ?2", &key)?;
            let mut sums = added;
            if let Some(row) = rows.into_iter().next() {
                let mut row = Columns::of(row);
                sums.spent += row.sum()?;
                sums.gpu_ms += row.sum()?;
            }
            let [hour, job] = key;
            self.database.execute(
                "INSERT INTO job_hours VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (hour, job) DO UPDATE SET spent = excluded.spent,
                 gpu_ms = excluded.gpu_ms",
                &[hour, job, sums.spent.into(), sums.gpu_ms.into()],
            )?;
        }
        Ok(())
    }
}
