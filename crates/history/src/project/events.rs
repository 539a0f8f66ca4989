//! Applies one event, by an exhaustive match.

use bursar_core::ledger::command::BudgetTerms;
use bursar_core::ledger::event::{Event, NamedMovement, total};
use bursar_core::ledger::holds::apply::Capture;
use bursar_core::ledger::id::JobNo;
use bursar_core::ledger::refusal::Resource;
use bursar_core::message::ToCell;

use super::holds::MovementContext;
use super::live::HoldNumbers;
use super::movements::Made;
use super::{History, Step, Usage};
use crate::database::{Columns, Database};
use crate::entry::EntryType;
use crate::error::HistoryError;
use crate::levels::AccountLevel;

impl<D: Database> History<D> {
    pub(super) fn apply_event(
        &mut self,
        step: &mut Step,
        event: &Event,
    ) -> Result<(), HistoryError> {
        match event {
            Event::PolicySet(_) | Event::Answered { .. } => Ok(()),
            // Only then a number of a hold is used again.
            Event::Forgotten { holds, archived, .. }
                if *holds > 0 || archived.as_ref().is_some_and(|of| of.old_holds > 0) =>
            {
                self.drop_holds()
            }
            Event::Forgotten { .. } => Ok(()),
            Event::AccountOpened { account, path, kind, settings: _, fingerprint: _ } => {
                self.account_opened(step, account.0, path, *kind as u32)
            }
            Event::AccountChanged { account, settings: _, cleared: _ }
            | Event::AccountFrozen { account, by_platform: _ }
            | Event::AccountUnfrozen { account }
            | Event::CreditsDenied { account, refusal: _ } => {
                step.touched.insert(account.0);
                Ok(())
            }
            Event::GrantIssued(issued) => self.grant_issued(step, issued),
            Event::GrantActivated { grant } => self.grant_activated(step, grant.0),
            Event::GrantRevoked { grant, amount } => self.grant_revoked(step, grant.0, *amount),
            Event::BucketExpired { bucket, amount } => self.bucket_expired(step, bucket.0, *amount),
            Event::ExpiryReversed { pieces } => {
                self.shift_pieces(step.at, pieces, 1)?;
                for owned in self.owners(pieces)? {
                    let movement = super::Movement {
                        account: owned.account,
                        kind: EntryType::ExpiryReversed,
                        amount: owned.amount,
                        grant: owned.grant,
                        hold: None,
                        spender: None,
                        name: None,
                    };
                    self.enter(step, &movement)?;
                }
                Ok(())
            }
            Event::ReturnExpired { hold, pieces } => {
                let of = self.of_hold(EntryType::Expired, hold.0)?;
                self.enter_pieces(step, of, pieces)
            }
            Event::ReturnRevoked { hold, pieces } => {
                let of = self.of_hold(EntryType::Revoked, hold.0)?;
                self.enter_pieces(step, of, pieces)
            }
            Event::HoldPlaced(placed) => self.hold_placed(step, placed),
            Event::HoldExtended { hold, pieces, gpu_ms, expires_at } => {
                self.hold_extended(step, hold.0, pieces, *gpu_ms, *expires_at)
            }
            Event::HoldCaptured { hold, seq, total, gpu_ms, taken, uncollected } => {
                let (seq, total, gpu_ms, uncollected) = (*seq, *total, *gpu_ms, *uncollected);
                let capture = Capture { seq, total, gpu_ms, taken, uncollected };
                self.hold_captured(step, hold.0, &capture)
            }
            Event::HoldCut { hold, cut } => self.hold_cut(step, hold.0, cut),
            Event::HoldClosed { hold, state, cause, returned: _ } => {
                self.hold_closed(step, hold.0, *state, *cause)
            }
            Event::Charged(charged) => self.charged(step, charged),
            Event::Refunded { movement, hold, note } => {
                self.refunded(step, hold.0, movement, note.as_deref())
            }
            Event::CreditsMoved { movement, from, to, note } => {
                step.touched.insert(to.0);
                step.transfer = Some(movement.id.clone());
                let made = Made::new(Resource::Transfer, from.0).to(to.0).with(note.as_deref());
                self.note_movement(step, made, movement)?;
                self.named(step, EntryType::Moved, from.0, movement)
            }
            Event::DebtRepaid { movement, account } => {
                let row = self.account(account.0)?;
                row.state.uncollected -= i128::from(total(&movement.pieces));
                row.dirty = true;
                self.note_level(step.at, account.0, AccountLevel::Uncollected)?;
                let made = Made::new(Resource::Collection, account.0);
                self.note_movement(step, made, movement)?;
                self.named(step, EntryType::Collected, account.0, movement)?;
                let spent = total(&movement.pieces).into();
                self.use_subtree(step.at, account.0, Usage { spent, ..Usage::default() })
            }
            Event::BudgetSet { account, budget, terms, period_start: _, spent: _, held: _ } => {
                self.budget_set(step, account.0, budget, terms)
            }
            Event::BudgetRemoved { account, budget } => {
                step.touched.insert(account.0);
                self.database.execute(
                    "UPDATE budgets SET removed_at = ?3 WHERE account = ?1 AND name = ?2",
                    &[account.0.into(), budget.as_str().into(), step.at.millis().into()],
                )
            }
            Event::BudgetThresholdReached { account, budget, percent, used } => {
                step.touched.insert(account.0);
                self.database.execute(
                    "INSERT INTO budget_alerts VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT (account, name, position, percent) DO NOTHING",
                    &[
                        account.0.into(),
                        budget.as_str().into(),
                        step.position.cast_signed().into(),
                        u32::from(*percent).into(),
                        step.at.millis().into(),
                        (*used).into(),
                    ],
                )
            }
            Event::HoldRestored { hold, record } => self.hold_revived(step, hold.0, record),
            Event::QuotaSet { account, region: _, quota: _ }
            | Event::QuotaRemoved { account, region: _ } => {
                step.touched.insert(account.0);
                Ok(())
            }
            Event::RegionOpened { cell, region, shard: _ } => {
                self.region_opened(*cell, region.as_str())
            }
            Event::RegionPoliciesSent { .. }
            | Event::SetAside { .. }
            | Event::BlockedJobsRechecked { .. }
            | Event::MessageReceived { .. } => Ok(()),
            Event::JobSubmitted { job, order, after: _ } => self.job_submitted(step, *job, order),
            Event::HoldPinned { hold, rate, returned, expires_at } => {
                self.hold_pinned(step, hold.0, *rate, returned, *expires_at)
            }
            Event::AttemptConfirmed(confirmed) => {
                self.touch_job(step, confirmed.job)?;
                self.attempt_confirmed(confirmed)
            }
            Event::AttemptStarted { job }
            | Event::AttemptFunded { job, .. }
            | Event::ExhaustionWarned { job, .. }
            | Event::AttemptStopping { job }
            | Event::AttemptEnded { job, end: _ }
            | Event::CancelRequested { job }
            | Event::DependenciesMet { job, met: _ } => self.touch_job(step, *job),
            Event::JobEnded { job, state } => self.job_ended(step, *job, *state),
            Event::CellMessageSent { cell: _, number: _, message } => {
                self.note_message(step, message)
            }
        }
    }

    /// Records the job that a message is about.
    fn note_message(&mut self, step: &mut Step, message: &ToCell) -> Result<(), HistoryError> {
        let job = match message {
            ToCell::AccountPolicyChanged(_) => return Ok(()),
            ToCell::JobAdmitted(spec) => spec.job,
            ToCell::PlacementConfirmed { attempt, .. }
            | ToCell::PlacementRefused { attempt, .. }
            | ToCell::FundingChanged { attempt, .. }
            | ToCell::FundsRefused { attempt } => attempt.job,
            ToCell::CancelRequested { job } | ToCell::JobWithdrawn { job } => *job,
        };
        self.touch_job(step, JobNo::of_cell(job))
    }

    fn of_hold(
        &mut self,
        kind: EntryType,
        number: u32,
    ) -> Result<MovementContext<'static>, HistoryError> {
        let live = self.live_hold(number)?;
        let hold = HoldNumbers { ledger: number, here: live.hold };
        Ok(MovementContext { kind, hold: Some(hold), spender: live.record.account.0, name: None })
    }

    fn named(
        &mut self,
        step: &mut Step,
        kind: EntryType,
        spender: u32,
        movement: &NamedMovement,
    ) -> Result<(), HistoryError> {
        let of = MovementContext { kind, hold: None, spender, name: Some(movement.id.as_str()) };
        self.enter_pieces(step, of, &movement.pieces)
    }

    fn account_opened(
        &mut self,
        step: &mut Step,
        number: u32,
        path: &str,
        kind: u32,
    ) -> Result<(), HistoryError> {
        step.touched.insert(number);
        let parent = match path.rsplit_once(':') {
            None => None,
            Some((parent, _)) => {
                let rows = self
                    .database
                    .query("SELECT number FROM accounts WHERE path = ?1", &[parent.into()])?;
                let missing = || HistoryError::inconsistent(format!("{path} has no parent"));
                Some(Columns::of(rows.into_iter().next().ok_or_else(missing)?).number()?)
            }
        };
        self.add_account(number, path, kind, parent)
    }

    fn budget_set(
        &mut self,
        step: &mut Step,
        account: u32,
        name: &str,
        terms: &BudgetTerms,
    ) -> Result<(), HistoryError> {
        step.touched.insert(account);
        self.database.execute(
            "INSERT INTO budgets VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL)
             ON CONFLICT (account, name) DO UPDATE SET budget_limit = excluded.budget_limit,
             unit = excluded.unit, period = excluded.period, mode = excluded.mode,
             utc_offset_minutes = excluded.utc_offset_minutes, set_at = excluded.set_at,
             removed_at = NULL",
            &[
                account.into(),
                name.into(),
                i128::from(terms.limit.micros()).into(),
                (terms.unit as u32).into(),
                (terms.period as u32).into(),
                (terms.mode as u32).into(),
                i64::from(terms.utc_offset_minutes).into(),
                step.at.millis().into(),
            ],
        )
    }
}
