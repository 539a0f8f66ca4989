//! The undo log of a group of commands.
//!
//! While a group is open, every change of the state records an undo step. A rollback applies the
//! steps from the last to the first. Nothing is recorded outside a group.

use fefo::Part;

use super::accounts::account::AccountDetails;
use super::accounts::past_usage::PastSpending;
use super::command::Policy;
use super::event::Piece;
use super::holds::hold::Hold;
use super::id::{AccountNo, BucketNo, CellNo, GrantNo, HoldNo, JobNo};
use super::jobs::Job;
use super::jobs::table::Review;
use super::state::Ledger;
use crate::message::Mark;
use crate::time::Timestamp;

/// One undo step, named after the change that it reverts.
#[derive(Clone, Debug)]
pub enum Undo {
    /// The time advanced.
    Time(Timestamp),
    /// The policy was set.
    Policy(Policy),
    /// The last account was opened.
    AccountOpened,
    /// An account was changed.
    Account(AccountNo, bool, Option<Box<AccountDetails>>),
    /// The last grant was issued.
    GrantIssued,
    /// A grant was laid in an existing bucket, or in a new one that replaced another.
    GrantLaid {
        /// The grant.
        grant: GrantNo,
        /// The new bucket, and the one that it replaced.
        bucket: Option<(BucketNo, Option<BucketNo>)>,
    },
    /// A grant was revoked.
    GrantRevoked {
        /// The grant.
        grant: GrantNo,
    },
    /// The activation timer of a grant was removed.
    ActivationRemoved {
        /// The timer.
        timer: (Timestamp, GrantNo),
    },
    /// Units changed their state.
    Retagged {
        /// The units.
        piece: Piece,
        /// The previous state.
        from: Part,
        /// The new state.
        to: Part,
    },
    /// A hold or charge was created, and whether its slot was new.
    HoldPlaced(HoldNo, bool),
    /// A hold was changed.
    Hold(HoldNo, Box<Hold>),
    /// A closed hold was queued for forgetting.
    HoldAged,
    /// A movement was made, and whether its slot was new.
    MovementMade(u32, bool),
    /// An answer was kept.
    Answered,
    /// The last job was submitted.
    JobSubmitted(JobNo),
    /// A job was changed.
    Job(JobNo, Box<Job>),
    /// An ended job was queued for forgetting.
    JobAged,
    /// The next review of a tenant was set.
    Review(AccountNo, Option<Review>),
    /// The last cell was registered.
    CellOpened,
    /// A message was sent to a cell or received from it.
    Cell(CellNo, u64, Mark),
    /// What forgotten holds spent was changed.
    PastUsage((AccountNo, i64), Option<PastSpending>),
}

impl Ledger {
    /// Records an undo step if a group is open.
    pub(super) fn remember(&mut self, step: impl FnOnce() -> Undo) {
        if let Some(steps) = &mut self.undo {
            steps.push(step());
        }
    }

    /// Records the state of an account before it changes.
    pub(super) fn remember_account(&mut self, account: AccountNo) {
        if self.undo.is_some() {
            let present = self.account(account);
            let step = Undo::Account(account, present.frozen, present.details.clone());
            self.remember(|| step);
        }
    }

    /// Records the state of a hold before it changes.
    pub(super) fn remember_hold(&mut self, hold: HoldNo) {
        self.touch_tallies(hold);
        if self.undo.is_some() {
            let step = Undo::Hold(hold, Box::new(self.live_hold(hold).clone()));
            self.remember(|| step);
        }
    }

    pub(super) fn undo_all(&mut self) {
        let steps = self.undo.take().unwrap_or_default();
        for step in steps.into_iter().rev() {
            self.undo_step(step);
        }
    }

    fn undo_step(&mut self, step: Undo) {
        match step {
            Undo::Time(now) => self.now = now,
            Undo::PastUsage(place, before) => self.set_past_usage(place, before),
            Undo::Policy(policy) => self.policy = policy,
            Undo::AccountOpened => {
                let account = self.accounts.pop().expect("the account was opened in this group");
                let number = u32::try_from(self.accounts.len()).unwrap_or(u32::MAX);
                let hash = self.account_names.hash_of(&account.path.as_str());
                self.account_names.remove(hash, number);
                if let Some(own) = self.tenant_accounts.get_mut(&account.tenant) {
                    *own -= 1;
                }
            }
            Undo::Account(account, frozen, details) => {
                let account = &mut self.accounts[account.index()];
                account.frozen = frozen;
                account.details = details;
            }
            Undo::GrantIssued => self.undo_grant_issued(),
            Undo::GrantLaid { grant, bucket } => self.undo_grant_laid(grant, bucket),
            Undo::GrantRevoked { grant } => {
                let granted = &mut self.grants[grant.index()];
                granted.revoked = false;
                if let Some(bucket) = granted.bucket {
                    let line = &self.buckets[bucket.index()].line;
                    let all = fefo::Span::new(0, line.end());
                    let revoked = line.packs_in(all).any(|(_, pack)| self.grant(pack).revoked);
                    self.buckets[bucket.index()].has_revoked = revoked;
                }
            }
            Undo::ActivationRemoved { timer } => {
                self.timers.activations.insert(timer);
            }
            Undo::Retagged { piece, from, to } => self.retag(piece, to, from),
            Undo::HoldPlaced(hold, fresh) => self.undo_hold_placed(hold, fresh),
            Undo::Hold(number, before) => {
                self.touch_tallies(number);
                self.forget_hold_indexes(number);
                *self.holds.get_mut(number.0).expect("the hold existed before") = *before;
                self.note_hold_indexes(number);
            }
            Undo::HoldAged => {
                self.aging.holds.pop_back();
            }
            Undo::MovementMade(movement, fresh) => {
                let made = self.movements.undo_insert(movement, fresh);
                let made = made.expect("the movement was made in this group");
                let name = (made.tenant, made.what as u8, made.movement.id.as_str());
                self.movement_names.remove(name, movement);
                self.aging.movements.pop_back();
            }
            Undo::JobSubmitted(job) => {
                self.remove_job(job);
                self.jobs.next = job.0;
            }
            Undo::Job(job, before) => self.restore_job(job, *before),
            Undo::JobAged => {
                self.aging.jobs.pop_back();
            }
            Undo::Review(tenant, before) => self.set_review(tenant, before),
            Undo::CellOpened => {
                self.cells.pop();
            }
            Undo::Cell(cell, sent, mark) => {
                let book = &mut self.cells[cell.index()];
                (book.sent, book.mark) = (sent, mark);
            }
            Undo::Answered => self.answers.undo_push(),
        }
    }

    fn undo_grant_issued(&mut self) {
        let grant = self.grants.pop().expect("the grant was issued in this group");
        let number = GrantNo(u32::try_from(self.grants.len()).unwrap_or(u32::MAX));
        let tenant = self.account(grant.account).tenant;
        self.grant_names.remove((tenant, grant.id.as_str()), number.0);
        self.timers.activations.remove(&(grant.effective_at, number));
    }

    fn undo_grant_laid(
        &mut self,
        grant: GrantNo,
        new_bucket: Option<(BucketNo, Option<BucketNo>)>,
    ) {
        let granted = &mut self.grants[grant.index()];
        let bucket = granted.bucket.take().expect("the grant was laid in this group");
        let length = i128::from(granted.amount.length());
        granted.start = 0;
        let laid = &mut self.buckets[bucket.index()];
        let terms = super::credits::grant::PendingTerms {
            rank: laid.rank,
            restriction: laid.restriction.clone(),
        };
        let account = &mut self.accounts[laid.account.index()];
        account.available -= length;
        account.plain -= if laid.restriction.is_none() { length } else { 0 };
        let restricted = terms.restriction.is_some();
        let key = (terms.rank, bucket);
        self.grants[grant.index()].pending = Some(Box::new(terms));
        match new_bucket {
            Some((bucket, before)) => {
                self.index_open(key, restricted, false);
                let alone = self.bucket(bucket).max_share().is_some();
                if !alone {
                    self.unindex_bucket(bucket, before);
                }
                if let Some(expires_at) = key.0.expires_at() {
                    self.timers.expiries.remove(&(expires_at, bucket));
                }
                self.buckets.pop();
            }
            None => {
                let line = &mut self.buckets[bucket.index()].line;
                line.truncate();
                if line.free() == 0 {
                    self.index_open(key, restricted, false);
                }
            }
        }
    }
}
