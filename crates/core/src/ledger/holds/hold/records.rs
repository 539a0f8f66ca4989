//! Holds in the table and in its indexes.

use fefo::Part;

use super::{Hold, gpu_time};
use crate::ledger::accounts::budget::Change;
use crate::ledger::event::{HoldPlaced, Pieces, total};
use crate::ledger::id::HoldNo;
use crate::ledger::state::Ledger;
use crate::ledger::undo::Undo;
use crate::time::Timestamp;

impl Ledger {
    pub(in crate::ledger) fn apply_hold_placed(&mut self, at: Timestamp, placed: &HoldPlaced) {
        let hold = Hold::placed(at, placed);
        let gpu = gpu_time(placed.gpu_ms, hold.share_milli());
        for piece in &placed.pieces {
            self.retag(*piece, Part::Free, Part::Held);
        }
        let change = Change { held: hold.amount.into(), gpu_held: gpu, ..Change::default() };
        self.change_budgets(placed.account, at, change);
        self.insert_hold(placed.hold, hold);
        if let Some(job) = placed.job {
            self.change_job(job, |job| job.held(placed));
        }
    }

    pub(in crate::ledger) fn apply_hold_extended(
        &mut self,
        at: Timestamp,
        number: HoldNo,
        pieces: &Pieces,
        gpu_ms: u64,
        expires_at: Option<Timestamp>,
    ) {
        self.remember_hold(number);
        self.forget_hold_indexes(number);
        let hold = self.holds.get_mut(number.0).expect("events name only existing holds");
        let (account, drawn) = (hold.account, total(pieces));
        let gpu = hold.apply_extended(at, pieces, gpu_ms, expires_at);
        for piece in pieces {
            self.retag(*piece, Part::Free, Part::Held);
        }
        self.note_hold_indexes(number);
        let change = Change { held: drawn.into(), gpu_held: gpu, ..Change::default() };
        self.change_budgets(account, at, change);
    }

    /// Adds a hold or charge under its number and name.
    pub(in crate::ledger::holds) fn insert_hold(&mut self, number: HoldNo, hold: Hold) {
        let tenant = self.account(hold.account).tenant;
        self.hold_names.insert((tenant, hold.kind, hold.id.as_str()), number.0);
        self.enter_tallies(tenant, number);
        let fresh = self.holds.insert(number.0, hold);
        self.note_hold_indexes(number);
        self.remember(|| Undo::HoldPlaced(number, fresh));
    }

    pub(in crate::ledger) fn undo_hold_placed(&mut self, number: HoldNo, fresh: bool) {
        self.forget_hold_indexes(number);
        self.touch_tallies(number);
        self.holds.undo_insert(number.0, fresh).expect("the hold was placed in this group");
        self.hold_names.remove(number.0);
    }

    /// Adds an open hold to the indexes of leases and strict holds.
    pub(in crate::ledger) fn note_hold_indexes(&mut self, number: HoldNo) {
        let hold = self.holds.get(number.0).expect("events name only existing holds");
        if !hold.is_open() {
            return;
        }
        if let Some(expires_at) = hold.expires_at {
            self.timers.leases.insert((expires_at, number));
        }
        if hold.is_strict() {
            self.strict.extend(hold.slices.iter().map(|slice| (slice.bucket, number)));
            // Needed for an image that was taken in the middle of a large expiry.
            let buckets = &self.buckets;
            let left = hold.slices.iter().filter(|slice| {
                slice.room() > 0 && buckets.get(slice.bucket.index()).is_some_and(|b| b.expired)
            });
            self.cuts.extend(left.map(|slice| (slice.bucket, number)));
        }
    }

    /// Removes what [`Ledger::note_hold_indexes`] added.
    pub(in crate::ledger) fn forget_hold_indexes(&mut self, number: HoldNo) {
        let hold = self.holds.get(number.0).expect("events name only existing holds");
        if !hold.is_open() {
            return;
        }
        if let Some(expires_at) = hold.expires_at {
            self.timers.leases.remove(&(expires_at, number));
        }
        if hold.is_strict() {
            for slice in &hold.slices {
                self.strict.remove(&(slice.bucket, number));
                self.cuts.remove(&(slice.bucket, number));
            }
        }
    }
}
