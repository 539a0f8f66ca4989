//! What credits are spent on: jobs, GPU types, regions and classes, by spender and hour.

use std::collections::BTreeMap;

use bursar_core::ledger::command::Context;
use bursar_core::ledger::event::AttemptConfirmed;
use bursar_core::ledger::id::{CellNo, JobNo, Name};
use bursar_core::name::{ClassName, GpuModel};
use bursar_core::time::Timestamp;
use bursar_journal::record::ledger::decode_archived;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::{History, hour_of};
use crate::database::{Columns, Database};
use crate::error::HistoryError;

/// Stands for spending without a job.
const NO_JOB: i64 = -1;

/// The most holds whose purposes are remembered.
const MAX_PURPOSES: usize = 10_000;

/// What a hold is spent on. Empty names are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Purpose {
    pub(crate) gpu_type: Name,
    pub(crate) region: Name,
    pub(crate) class: ClassName,
}

impl Purpose {
    /// The purpose of a hold without a job, from its stored record.
    pub(crate) fn of_record(record: &[u8]) -> Result<Purpose, HistoryError> {
        let hold = decode_archived(record).map_err(HistoryError::inconsistent)?.hold;
        Ok(hold
            .details
            .map_or_else(Purpose::default, |details| Purpose::of_context(&details.context)))
    }

    /// A hold without a job names its purpose in its context, where that leaves no choice.
    fn of_context(context: &Context) -> Purpose {
        Purpose {
            gpu_type: only_one(context.gpu_types.as_deref()),
            region: only_one(context.regions.as_deref()),
            class: context.class.clone().unwrap_or_default(),
        }
    }
}

/// The name in a list of one.
fn only_one<N: AsRef<str>>(list: Option<&[N]>) -> Name {
    match list {
        Some([name]) => name.as_ref().into(),
        Some(_) | None => Name::default(),
    }
}

/// Account, hour, job, purpose.
type Key = (u32, i64, i64, Purpose);

/// Spending that is not written yet, and the purposes of holds that spent lately.
#[derive(Default)]
pub(super) struct Spend {
    added: BTreeMap<Key, i128>,
    purposes: FxHashMap<i64, Purpose>,
}

/// The part of a submitted job that spending is grouped by.
#[derive(Deserialize)]
struct Labelled {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

impl<D: Database> History<D> {
    pub(super) fn region_opened(&self, cell: CellNo, region: &str) -> Result<(), HistoryError> {
        self.database.execute(
            "INSERT OR REPLACE INTO cells VALUES (?1, ?2)",
            &[u32::from(cell.0).into(), region.into()],
        )
    }

    /// Stores the labels of a job.
    pub(super) fn label_job(&self, job: JobNo, submitted: &str) -> Result<(), HistoryError> {
        // Most jobs have no labels, and their text need not be parsed.
        if !submitted.contains("\"labels\"") {
            return Ok(());
        }
        let labels = match serde_json::from_str::<Labelled>(submitted) {
            Ok(job) => job.labels,
            Err(error) => {
                tracing::error!(job = job.0, %error, "the stored specification cannot be read");
                None
            }
        };
        let rows: Vec<_> = labels
            .into_iter()
            .flatten()
            .map(|(name, value)| {
                [job.0.cast_signed().into(), name.as_str().into(), value.as_str().into()]
            })
            .collect();
        self.database.execute_each("INSERT OR REPLACE INTO job_labels VALUES (?1, ?2, ?3)", &rows)
    }

    /// Records that a hold pays for a job.
    pub(super) fn note_job_hold(&self, hold: i64, job: JobNo) -> Result<(), HistoryError> {
        self.database.execute(
            "INSERT OR REPLACE INTO job_holds VALUES (?1, ?2, '', '', '')",
            &[hold.into(), job.0.cast_signed().into()],
        )
    }

    /// Records what the last hold of a job is spent on from now on.
    pub(super) fn attempt_confirmed(
        &self,
        confirmed: &AttemptConfirmed,
    ) -> Result<(), HistoryError> {
        let cell = confirmed.cell.map(|cell| u32::from(cell.0));
        self.database.execute(
            "UPDATE job_holds SET gpu_type = ?2,
             region = coalesce((SELECT region FROM cells WHERE number = ?3), ''),
             class = coalesce((SELECT class FROM jobs WHERE number = ?1), '')
             WHERE hold = (SELECT max(hold) FROM job_holds WHERE job = ?1)",
            &[
                confirmed.job.0.cast_signed().into(),
                confirmed.gpu_type.as_ref().map_or("", GpuModel::as_str).into(),
                cell.into(),
            ],
        )
    }

    /// Counts what a hold spent, or a refund of it.
    pub(super) fn spend_on(
        &mut self,
        at: Timestamp,
        number: u32,
        spent: i128,
    ) -> Result<(), HistoryError> {
        let live = self.live_hold(number)?;
        let (hold, account, job) = (live.hold, live.record.account.0, live.record.job());
        let context =
            live.record.details.as_ref().map(|details| Purpose::of_context(&details.context));
        let purpose = match job {
            Some(_) => self.purpose_of_job_hold(hold)?,
            None => context.unwrap_or_default(),
        };
        if spent != 0 && (job.is_some() || purpose != Purpose::default()) {
            let job = job.map_or(NO_JOB, |job| job.0.cast_signed());
            let key = (account, hour_of(at), job, purpose);
            *self.cache.spend.added.entry(key).or_default() += spent;
        }
        Ok(())
    }

    fn purpose_of_job_hold(&mut self, hold: i64) -> Result<Purpose, HistoryError> {
        if let Some(purpose) = self.cache.spend.purposes.get(&hold) {
            return Ok(purpose.clone());
        }
        let Some(purpose) = self.stored_purpose(hold)? else { return Ok(Purpose::default()) };
        let purposes = &mut self.cache.spend.purposes;
        if purposes.len() >= MAX_PURPOSES {
            purposes.clear();
        }
        purposes.insert(hold, purpose.clone());
        Ok(purpose)
    }

    /// What the hold of a job is spent on.
    pub(crate) fn stored_purpose(&self, hold: i64) -> Result<Option<Purpose>, HistoryError> {
        let sql = "SELECT gpu_type, region, class FROM job_holds WHERE hold = ?1";
        let Some(row) = self.database.query(sql, &[hold.into()])?.into_iter().next() else {
            return Ok(None);
        };
        let mut row = Columns::of(row);
        let mut name = || row.text().map(Name::from);
        Ok(Some(Purpose { gpu_type: name()?, region: name()?, class: name()?.into() }))
    }

    /// Writes what was spent.
    pub(super) fn flush_spend(&mut self) -> Result<(), HistoryError> {
        let mut rows = Vec::new();
        for ((account, hour, job, purpose), added) in std::mem::take(&mut self.cache.spend.added) {
            let Purpose { gpu_type, region, class } = purpose;
            let key = [
                account.into(),
                hour.into(),
                job.into(),
                gpu_type.into(),
                region.into(),
                class.as_str().into(),
            ];
            let found = self.database.query(
                "SELECT spent FROM spend_hours WHERE account = ?1 AND hour = ?2 AND job = ?3
                 AND gpu_type = ?4 AND region = ?5 AND class = ?6",
                &key,
            )?;
            let before = match found.into_iter().next() {
                Some(row) => Columns::of(row).sum()?,
                None => 0,
            };
            let [account, hour, job, gpu_type, region, class] = key;
            rows.push([account, hour, job, gpu_type, region, class, (before + added).into()]);
        }
        self.database.execute_each(
            "INSERT INTO spend_hours VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (account, hour, job, gpu_type, region, class)
             DO UPDATE SET spent = excluded.spent",
            &rows,
        )
    }
}
