//! Jobs, including those that the ledger has forgotten.

use bursar_core::ledger::id::JobNo;
use bursar_core::time::Timestamp;

use super::audit::{audit_entry, rows_of};
use crate::blocks::{BlocksOf, Reader};
use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::project::History;

/// The numbers of a job that has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PastJob {
    /// Its number.
    pub job: JobNo,
    /// The number of its tenant.
    pub tenant: u32,
    /// The number of the account that paid.
    pub account: u32,
}

fn past_job(row: crate::database::Row) -> Result<PastJob, HistoryError> {
    let mut row = Columns::of(row);
    let job = JobNo(row.integer()?.cast_unsigned());
    Ok(PastJob { job, tenant: row.number()?, account: row.number()? })
}

impl<D: Database> History<D> {
    /// The newest job of a tenant with this name, if it has ended.
    pub fn past_job(&self, tenant: u32, name: &str) -> Result<Option<PastJob>, HistoryError> {
        let rows = self.database.query(
            "SELECT number, tenant, account FROM jobs
             WHERE tenant = ?1 AND name = ?2 AND ended_at IS NOT NULL
             ORDER BY number DESC LIMIT 1",
            &[tenant.into(), name.into()],
        )?;
        rows.into_iter().next().map(past_job).transpose()
    }

    /// Jobs with a number below `before` that had ended by an instant, newest first, of one tenant
    /// or of all.
    pub fn past_jobs(
        &self,
        tenant: Option<u32>,
        before: JobNo,
        ended_by: Timestamp,
        limit: u32,
    ) -> Result<Vec<PastJob>, HistoryError> {
        let before = i64::try_from(before.0).unwrap_or(i64::MAX);
        let (ended_by, limit) = (ended_by.millis(), i64::from(limit));
        let rows = match tenant {
            Some(tenant) => self.database.query(
                "SELECT number, tenant, account FROM jobs
                 WHERE tenant = ?1 AND number < ?2 AND ended_at <= ?3
                 ORDER BY number DESC LIMIT ?4",
                &[tenant.into(), before.into(), ended_by.into(), limit.into()],
            )?,
            None => self.database.query(
                "SELECT number, tenant, account FROM jobs WHERE number < ?1 AND ended_at <= ?2
                 ORDER BY number DESC LIMIT ?3",
                &[before.into(), ended_by.into(), limit.into()],
            )?,
        };
        rows.into_iter().map(past_job).collect()
    }

    /// The records in which a job was submitted, got holds, started and ended, oldest first.
    pub fn milestones(&self, job: JobNo) -> Result<Vec<u64>, HistoryError> {
        const MILESTONES: [&str; 6] = [
            "job_submitted",
            "hold_placed",
            "attempt_confirmed",
            "attempt_started",
            "attempt_ended",
            "job_ended",
        ];
        let mut decisions = Reader::new(&self.database, BlocksOf::Decisions);
        let numbers = self.decisions_on_job(job, i64::MAX, usize::MAX)?;
        let mut positions = Vec::new();
        for decision in rows_of(&mut decisions, numbers)?.into_iter().rev() {
            let decision = audit_entry(decision)?;
            if decision.events.iter().any(|event| MILESTONES.contains(&event.as_str())) {
                positions.push(decision.position);
            }
        }
        positions.dedup();
        Ok(positions)
    }
}
