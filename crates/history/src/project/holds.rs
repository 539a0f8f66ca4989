//! The effects of holds and charges on accounts.

use bursar_core::ledger::command::MovementNote;
use bursar_core::ledger::credits::price::Rate;
use bursar_core::ledger::event::{Charged, HoldPlaced, NamedMovement, Piece, SliceAmount};
use bursar_core::ledger::holds::apply::{Capture, Drawn, UnfitEvent};
use bursar_core::ledger::holds::archive::ArchivedHold;
use bursar_core::ledger::holds::hold::Hold;
use bursar_core::ledger::refusal::Resource;
use bursar_core::time::Timestamp;
use smallvec::SmallVec;

use super::live::{HoldNumbers, LiveHold};
use super::movements::Made;
use super::usage::Usage;
use super::{History, Movement, Step};
use crate::database::{Columns, Database};
use crate::entry::EntryType;
use crate::error::HistoryError;
use crate::levels::AccountLevel;
use crate::lists::{ListOf, decode_from_nothing};

/// The context of a movement: its hold, and the account that spends.
#[derive(Copy, Clone)]
pub(super) struct MovementContext<'a> {
    pub(super) kind: EntryType,
    pub(super) hold: Option<HoldNumbers>,
    pub(super) spender: u32,
    pub(super) name: Option<&'a str>,
}

impl<D: Database> History<D> {
    /// Enters units for the accounts that own them.
    pub(super) fn enter_pieces(
        &mut self,
        step: &mut Step,
        of: MovementContext<'_>,
        pieces: &[Piece],
    ) -> Result<(), HistoryError> {
        self.shift_pieces(step.at, pieces, of.kind.effect().0)?;
        for owned in self.owners(pieces)? {
            self.enter(
                step,
                &Movement {
                    account: owned.account,
                    kind: of.kind,
                    amount: owned.amount,
                    grant: owned.grant,
                    hold: of.hold,
                    spender: Some(of.spender),
                    name: of.name,
                },
            )?;
            if of.kind.spends() != 0 {
                let burned = of.kind.spends() * owned.amount;
                self.count_burned(step.at, owned.account, burned)?;
            }
        }
        Ok(())
    }

    /// Counts drawn or returned units in the hours in which they were drawn.
    fn count_drawn(&mut self, spender: u32, drawn: &Drawn, sign: i128) -> Result<(), HistoryError> {
        for (piece, at) in drawn {
            let drawn = sign * i128::from(piece.span.len());
            self.use_subtree(*at, spender, Usage { drawn, held: drawn, ..Usage::default() })?;
        }
        Ok(())
    }

    fn count_spent(
        &mut self,
        at: Timestamp,
        spender: u32,
        spent: i128,
        gpu_ms: u64,
    ) -> Result<(), HistoryError> {
        let usage = Usage { spent, gpu_ms: gpu_ms.into(), held: -spent, ..Usage::default() };
        self.use_subtree(at, spender, usage)
    }

    /// Adds a hold or charge under a new number. It is written at the end of the transaction,
    /// because most are settled in the same one.
    fn add_hold(&mut self, number: u32, record: Hold) -> Result<HoldNumbers, HistoryError> {
        let new_of = Some(self.account(record.account.0)?.tenant);
        self.cache.progress.holds += 1;
        let hold = self.cache.progress.holds;
        let entries = SmallVec::new();
        self.cache.insert_hold(number, LiveHold { hold, record, entries, new_of, dirty: true });
        Ok(HoldNumbers { ledger: number, here: hold })
    }

    /// Changes the hold with this number.
    fn change_hold<T>(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut Hold) -> Result<T, UnfitEvent>,
    ) -> Result<(HoldNumbers, u32, T), HistoryError> {
        let live = self.live_hold(number)?;
        let changed = change(&mut live.record).map_err(HistoryError::inconsistent)?;
        live.dirty = true;
        let hold = HoldNumbers { ledger: number, here: live.hold };
        Ok((hold, live.record.account.0, changed))
    }

    pub(super) fn hold_placed(
        &mut self,
        step: &mut Step,
        placed: &HoldPlaced,
    ) -> Result<(), HistoryError> {
        let hold = self.add_hold(placed.hold.0, Hold::placed(step.at, placed))?;
        self.list_number(ListOf::Holds, &[placed.account.0], hold.here)?;
        if let Some(job) = placed.job {
            step.jobs.insert(job);
            self.note_job_hold(hold.here, job)?;
        }
        self.enter_drawn(step, EntryType::Held, hold, placed.account.0, &placed.pieces)
    }

    fn enter_drawn(
        &mut self,
        step: &mut Step,
        kind: EntryType,
        hold: HoldNumbers,
        spender: u32,
        pieces: &[Piece],
    ) -> Result<(), HistoryError> {
        let of = MovementContext { kind, hold: Some(hold), spender, name: None };
        self.enter_pieces(step, of, pieces)?;
        let drawn: Drawn = pieces.iter().map(|piece| (*piece, step.at)).collect();
        self.count_drawn(spender, &drawn, 1)
    }

    pub(super) fn hold_extended(
        &mut self,
        step: &mut Step,
        number: u32,
        pieces: &[Piece],
        gpu_ms: u64,
        expires_at: Option<Timestamp>,
    ) -> Result<(), HistoryError> {
        let at = step.at;
        let (hold, spender, ()) = self.change_hold(number, |record| {
            record.apply_extended(at, pieces, gpu_ms, expires_at);
            Ok(())
        })?;
        step.touched.insert(spender);
        self.enter_drawn(step, EntryType::Held, hold, spender, pieces)
    }

    pub(super) fn hold_captured(
        &mut self,
        step: &mut Step,
        number: u32,
        capture: &Capture<'_>,
    ) -> Result<(), HistoryError> {
        let at = step.at;
        let (hold, spender, captured) =
            self.change_hold(number, |record| record.apply_captured(at, capture))?;
        let gpu_ms = captured.gpu_ms;
        let pieces: SmallVec<[Piece; 2]> = captured.spent.iter().map(|(piece, _)| *piece).collect();
        let of =
            MovementContext { kind: EntryType::Captured, hold: Some(hold), spender, name: None };
        self.enter_pieces(step, of, &pieces)?;
        step.touched.insert(spender);
        let total: i128 = pieces.iter().map(|piece| i128::from(piece.span.len())).sum();
        self.count_spent(at, spender, total, gpu_ms)?;
        step.jobs.extend(self.live_hold(number)?.record.job());
        self.spend_on(at, number, total)?;
        if capture.uncollected == 0 {
            return Ok(());
        }
        let owed = i128::from(capture.uncollected);
        let account = self.account(spender)?;
        account.state.uncollected += owed;
        account.dirty = true;
        self.note_level(at, spender, AccountLevel::Uncollected)?;
        self.use_subtree(at, spender, Usage { drawn: owed, ..Usage::default() })?;
        self.enter(
            step,
            &Movement {
                account: spender,
                kind: EntryType::Uncollected,
                amount: owed,
                grant: None,
                hold: Some(hold),
                spender: Some(spender),
                name: None,
            },
        )
    }

    pub(super) fn hold_cut(
        &mut self,
        step: &mut Step,
        number: u32,
        cut: &[SliceAmount],
    ) -> Result<(), HistoryError> {
        let (hold, spender, gone) = self.change_hold(number, |record| record.apply_cut(cut))?;
        let of = MovementContext { kind: EntryType::Cut, hold: Some(hold), spender, name: None };
        self.enter_undrawn(step, of, &gone)
    }

    /// Enters units that a hold no longer holds, and subtracts them from the hour of their draw.
    fn enter_undrawn(
        &mut self,
        step: &mut Step,
        of: MovementContext<'_>,
        units: &Drawn,
    ) -> Result<(), HistoryError> {
        let pieces: SmallVec<[Piece; 2]> = units.iter().map(|(piece, _)| *piece).collect();
        self.enter_pieces(step, of, &pieces)?;
        step.touched.insert(of.spender);
        self.count_drawn(of.spender, units, -1)
    }

    pub(super) fn hold_closed(
        &mut self,
        step: &mut Step,
        number: u32,
        state: bursar_core::ledger::holds::hold::HoldState,
        cause: bursar_core::ledger::command::Cause,
    ) -> Result<(), HistoryError> {
        let at = step.at;
        let (hold, spender, closed) =
            self.change_hold(number, |record| Ok(record.apply_closed(at, state, cause)))?;
        let of =
            MovementContext { kind: EntryType::Returned, hold: Some(hold), spender, name: None };
        self.enter_undrawn(step, of, &closed.rest)
    }

    pub(super) fn hold_pinned(
        &mut self,
        step: &mut Step,
        number: u32,
        rate: Rate,
        returned: &[SliceAmount],
        expires_at: Option<Timestamp>,
    ) -> Result<(), HistoryError> {
        let (hold, spender, back) =
            self.change_hold(number, |record| record.apply_pinned(rate, returned, expires_at))?;
        let of =
            MovementContext { kind: EntryType::Returned, hold: Some(hold), spender, name: None };
        self.enter_undrawn(step, of, &back)
    }

    pub(super) fn charged(
        &mut self,
        step: &mut Step,
        charged: &Charged,
    ) -> Result<(), HistoryError> {
        let hold = self.add_hold(charged.hold.0, Hold::charged(step.at, charged))?;
        let spender = charged.account.0;
        self.list_next_entry(ListOf::Charges, &[spender])?;
        self.enter_drawn(step, EntryType::Charged, hold, spender, &charged.pieces)?;
        let total = charged.pieces.iter().map(|piece| i128::from(piece.span.len())).sum();
        self.count_spent(step.at, spender, total, 0)
    }

    pub(super) fn refunded(
        &mut self,
        step: &mut Step,
        number: u32,
        movement: &NamedMovement,
        note: Option<&MovementNote>,
    ) -> Result<(), HistoryError> {
        let at = step.at;
        let (hold, spender, units) =
            self.change_hold(number, |record| Ok(record.apply_refunded(at, &movement.pieces)))?;
        let made = Made::new(Resource::Refund, spender).of(hold.here).with(note);
        self.note_movement(step, made, movement)?;
        let name = Some(movement.id.as_str());
        let of = MovementContext { kind: EntryType::Refunded, hold: Some(hold), spender, name };
        self.enter_undrawn(step, of, &units)?;
        let total: i128 = units.iter().map(|(piece, _)| i128::from(piece.span.len())).sum();
        step.jobs.extend(self.live_hold(number)?.record.job());
        self.spend_on(at, number, -total)?;
        self.count_spent(at, spender, -total, 0)
    }

    /// Restores a forgotten hold under a number of the ledger. History never drops it.
    pub(super) fn hold_revived(
        &mut self,
        step: &mut Step,
        number: u32,
        archived: &ArchivedHold,
    ) -> Result<(), HistoryError> {
        let record = Hold::revived(step.at, archived);
        let tenant = self.account(record.account.0)?.tenant;
        step.touched.insert(record.account.0);
        self.flush_holds()?;
        let rows = self.database.query(
            "SELECT hold, entries FROM holds WHERE tenant = ?1 AND kind = ?2 AND name = ?3
             ORDER BY hold DESC LIMIT 1",
            &[tenant.into(), (record.kind as u32).into(), record.id.as_str().into()],
        )?;
        let missing = || HistoryError::inconsistent("a restored hold is unknown");
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(missing)?);
        let hold = row.integer()?;
        let entries = decode_from_nothing(&row.bytes()?).into();
        self.name_live(&[(number, hold)])?;
        let live = LiveHold { hold, record, entries, new_of: None, dirty: true };
        self.cache.insert_hold(number, live);
        Ok(())
    }
}
