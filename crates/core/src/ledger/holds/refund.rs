//! Refunds: spent credits are returned to the grants that they came from, last drawn first.

use bursar_seeded::{Bug, seeded};
use fefo::{Part, Span};

use super::archive::ArchivedHold;
use super::hold::{Hold, HoldKind};
use crate::credits::Credits;
use crate::ledger::accounts::budget::Change;
use crate::ledger::command::{Envelope, RecalledHold, Refund, RefundOf};
use crate::ledger::event::{Event, NamedMovement, Piece, Pieces, total};
use crate::ledger::id::{AccountNo, HoldNo};
use crate::ledger::refusal::{Conflict, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::{Ledger, Movement, short_fingerprint};
use crate::ledger::undo::Undo;
use crate::name::{HoldId, JobName, MovementId};
use crate::time::Timestamp;

impl Ledger {
    pub(in crate::ledger) fn decide_refund(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Refund,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let (kind, what, id) = match &command.of {
            RefundOf::Hold(id) => (HoldKind::Hold, Resource::Hold, id),
            RefundOf::Charge(id) => (HoldKind::Charge, Resource::Charge, id),
            RefundOf::Job(id) | RefundOf::PastJob(id, _) => {
                return self.decide_refund_job(now, envelope, command, id, events);
            }
        };
        let not_found = || Refusal::NotFound { what, name: id.clone().into() };
        let tenant = self.find_account(&command.tenant).ok_or_else(not_found)?;
        let again = self.repeated(tenant, Resource::Refund, &command.id, envelope);
        if let Ok(Some(reply)) = again {
            return Ok(reply);
        }
        let source = self.refund_source(tenant, kind, id, command)?.ok_or_else(not_found)?;
        again?;
        if source.hold.is_open() {
            return Err(Refusal::Conflict(Conflict::StillOpen));
        }
        let left = source.left();
        let amount = command.amount.map_or(left, Credits::length);
        if (left == 0 || amount > left) && !seeded(Bug::RefundsMoreThanSpent) {
            let spent = Credits::from_length(left).unwrap_or(Credits::MAX);
            return Err(Refusal::Conflict(Conflict::RefundAboveSpent { spent }));
        }
        let pieces = source.hold.last_spent(amount);
        let movement = self.new_movement(envelope, &command.id, pieces);
        let reply = self.movement_reply(&movement);
        self.push_refunded(now, source, movement, command, events);
        Ok(reply)
    }

    /// Refunds a job over its holds, the newest first: one movement for each hold.
    fn decide_refund_job(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Refund,
        id: &JobName,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let not_found = || Refusal::NotFound { what: Resource::Job, name: id.clone().into() };
        let tenant = self.find_account(&command.tenant).ok_or_else(not_found)?;
        let again = self.repeated(tenant, Resource::Refund, &command.id, envelope);
        if let Ok(Some(reply @ Reply::Archived(_))) = again {
            return Ok(reply);
        }
        if let Ok(Some(Reply::Movement { movement, .. })) = again {
            let parts = self.refund_parts(movement);
            let sum: u64 = parts.map(|made| total(&made.movement.pieces)).sum();
            let amount = Credits::from_length(sum).unwrap_or(Credits::MAX);
            return Ok(Reply::Movement { movement, amount });
        }
        let names = self.holds_of_job(tenant, command, id)?;
        again?;
        let mut sources = Vec::new();
        for name in names {
            let source = self.refund_source(tenant, HoldKind::Hold, name, command)?;
            // A hold that is missing would make the refund incomplete.
            let forgotten =
                || Refusal::Forgotten { what: Resource::Hold, name: name.clone().into() };
            sources.push(source.ok_or_else(forgotten)?);
        }
        let left: u128 = sources.iter().map(|source| u128::from(source.left())).sum();
        let wanted = command.amount.map_or(left, |amount| amount.length().into());
        if left == 0 || wanted > left {
            let spent = u64::try_from(left).ok().and_then(Credits::from_length);
            let spent = spent.unwrap_or(Credits::MAX);
            return Err(Refusal::Conflict(Conflict::RefundAboveSpent { spent }));
        }
        let mut missing = wanted;
        let first = self.movements.next();
        let spent = sources.into_iter().filter(|source| source.left() > 0);
        for (place, source) in spent.enumerate() {
            let amount = missing.min(source.left().into());
            missing -= amount;
            if amount == 0 {
                break;
            }
            let movement = NamedMovement {
                movement: self.movements.next_after(place),
                id: part_name(&command.id, place),
                // At most the amount that one hold spent, which fits.
                pieces: source.hold.last_spent(u64::try_from(amount).unwrap_or(0)),
                fingerprint: envelope.fingerprint,
            };
            self.push_refunded(now, source, movement, command, events);
        }
        let amount = u64::try_from(wanted).ok().and_then(Credits::from_length);
        Ok(Reply::Movement { movement: first, amount: amount.unwrap_or(Credits::MAX) })
    }

    /// The hold or charge with this name, if the ledger has it or its archived record came with the
    /// command.
    fn refund_source<'a>(
        &'a self,
        tenant: AccountNo,
        kind: HoldKind,
        id: &HoldId,
        command: &'a Refund,
    ) -> Result<Option<RefundSource<'a>>, Refusal> {
        if let Some(number) = self.find_hold(tenant, kind, id) {
            let hold = self.live_hold(number);
            return Ok(Some(RefundSource { number: Some(number), hold, counted: true }));
        }
        let mut recalled = command.recalled.iter();
        let named = recalled.find(|recalled| {
            let Hold { id: name, kind: its, account, .. } = &recalled.record.hold;
            let account = self.accounts.get(account.index());
            (name, *its) == (id, kind) && account.is_some_and(|account| account.tenant == tenant)
        });
        let Some(RecalledHold { record }) = named else { return Ok(None) };
        self.require_genuine(record)?;
        let counted = record.counted;
        Ok(Some(RefundSource { number: None, hold: &record.hold, counted }))
    }

    /// Pushes one refund of one hold. A forgotten hold is restored first.
    fn push_refunded(
        &self,
        now: Timestamp,
        source: RefundSource<'_>,
        movement: NamedMovement,
        command: &Refund,
        events: &mut Vec<Event>,
    ) {
        let hold = source.number.unwrap_or_else(|| {
            let is_revival = |event: &&Event| matches!(event, Event::HoldRestored { .. });
            let revived = events.iter().filter(is_revival).count();
            let hold = HoldNo(self.holds.next_after(revived));
            let record =
                Box::new(ArchivedHold { hold: source.hold.clone(), counted: source.counted });
            events.push(Event::HoldRestored { hold, record });
            hold
        });
        let pieces = movement.pieces.clone();
        let note = command.note.clone().filter(|_| movement.id == command.id);
        events.push(Event::Refunded { movement, hold, note });
        self.push_returned(now, hold, &pieces, command.compensate, events);
    }

    /// The names of the holds of a job that has ended, the newest first.
    fn holds_of_job<'a>(
        &'a self,
        tenant: AccountNo,
        command: &'a Refund,
        id: &JobName,
    ) -> Result<impl Iterator<Item = &'a HoldId>, Refusal> {
        let not_found = || Refusal::NotFound { what: Resource::Job, name: id.clone().into() };
        let (past, attempts) = match &command.of {
            RefundOf::PastJob(_, holds) => (holds.as_slice(), [].as_slice()),
            RefundOf::Job(_) | RefundOf::Hold(_) | RefundOf::Charge(_) => {
                let job = self.live_job(self.find_job(tenant, id).ok_or_else(not_found)?);
                if !job.state.is_ended() {
                    return Err(Refusal::Conflict(Conflict::StillOpen));
                }
                ([].as_slice(), job.attempts.as_slice())
            }
        };
        let own = attempts.iter().rev().filter_map(|attempt| attempt.hold.as_ref());
        Ok(past.iter().chain(own))
    }

    /// A refund with its other parts, if it is a refund of a job.
    pub fn refund_parts(&self, first: u32) -> impl Iterator<Item = &Movement> {
        let whole = self.movements.get(first);
        // Numbers are reused in another order than they were given, so parts are found by their
        // names.
        let part = move |place: usize| {
            let whole = whole?;
            if place == 0 {
                return Some(whole);
            }
            let names = [part_name, old_part_name].map(|name| name(&whole.movement.id, place));
            let mut parts = names.iter().filter_map(|name| {
                let number = self.find_movement(whole.tenant, whole.what, name)?;
                self.movements.get(number)
            });
            // All parts come from one request. A refund of another request may have a name that
            // looks like a part's.
            parts.find(|part| part.movement.fingerprint == whole.movement.fingerprint)
        };
        (0..).map_while(part)
    }

    /// A forgotten refund or transfer as it was made. The hold that it returned from is not known
    /// here.
    pub fn recalled(
        &self,
        what: Resource,
        tenant: AccountNo,
        at: Timestamp,
        movement: NamedMovement,
    ) -> Movement {
        let was_expired = |piece: &Piece| {
            let bucket = self.bucket(piece.bucket);
            // While expiry is suspended, a bucket is not marked as expired at its expiry.
            bucket.expired && !bucket.rank.is_unexpired_at(at)
        };
        let expired = movement.pieces.iter().map(was_expired).collect();
        Movement { what, tenant, movement, expired, hold: None }
    }

    /// The reply to an earlier movement under this name, if the same request made it.
    pub(in crate::ledger) fn repeated(
        &self,
        tenant: AccountNo,
        what: Resource,
        id: &MovementId,
        envelope: &Envelope,
    ) -> Result<Option<Reply>, Refusal> {
        let Some(number) = self.find_movement(tenant, what, id) else {
            return self.moved_before(tenant, what, id, envelope);
        };
        let made = self.movements.get(number).expect("the index contains only existing movements");
        if envelope.made(short_fingerprint(made.movement.fingerprint)) {
            Ok(Some(self.movement_reply(&made.movement)))
        } else {
            Err(Refusal::AlreadyExists { what, name: id.clone().into() })
        }
    }

    /// The refund, transfer or collection with this name.
    pub fn find_movement(&self, tenant: AccountNo, what: Resource, id: &str) -> Option<u32> {
        self.movement_names.find((tenant, what as u8, id), |number| {
            let made =
                self.movements.get(number).expect("the index contains only existing movements");
            (made.tenant, made.what as u8, made.movement.id.as_str())
        })
    }

    pub(super) fn new_movement(
        &self,
        envelope: &Envelope,
        id: &MovementId,
        pieces: Pieces,
    ) -> NamedMovement {
        let movement = self.movements.next();
        NamedMovement { movement, id: id.clone(), pieces, fingerprint: envelope.fingerprint }
    }

    pub(super) fn movement_reply(&self, movement: &NamedMovement) -> Reply {
        let amount = Credits::from_length(total(&movement.pieces)).unwrap_or(Credits::MAX);
        Reply::Movement { movement: movement.movement, amount }
    }

    pub(super) fn insert_movement(
        &mut self,
        at: Timestamp,
        what: Resource,
        account: AccountNo,
        movement: &NamedMovement,
        hold: Option<HoldNo>,
    ) {
        let tenant = self.account(account).tenant;
        let is_expired = |piece: &Piece| self.bucket(piece.bucket).expired;
        let expired = movement.pieces.iter().map(is_expired).collect();
        let number = movement.movement;
        let made = Movement { what, tenant, movement: movement.clone(), expired, hold };
        let fresh = self.movements.insert(number, made);
        let movements = &self.movements;
        let named = |number: u32| {
            let made = movements.get(number).expect("the index contains only existing movements");
            (made.tenant, made.what as u8, made.movement.id.as_str())
        };
        self.movement_names.insert(named(number), number, named);
        self.aging.movements.push_back((at, number));
        self.remember(|| Undo::MovementMade(number, fresh));
    }

    pub(in crate::ledger) fn apply_refunded(
        &mut self,
        at: Timestamp,
        movement: &NamedMovement,
        number: HoldNo,
    ) {
        self.remember_hold(number);
        let hold = self.holds.get_mut(number.0).expect("events name only existing holds");
        let account = hold.account;
        let drawn = hold.apply_refunded(at, &movement.pieces);
        // A budget that was set while this was forgotten never counted it, and must not be relieved
        // of what others spent: then hard limits would not hold.
        let counted = !hold.is_revived();
        for (piece, drawn_at) in drawn {
            self.retag(piece, Part::Spent, Part::Free);
            if !counted {
                continue;
            }
            let change = Change { spent: -i128::from(piece.span.len()), ..Change::default() };
            self.change_budgets(account, drawn_at, change);
        }
        self.insert_movement(at, Resource::Refund, account, movement, Some(number));
    }
}

/// The name of one part of a job's refund. The first part has the name of the whole; the others
/// have names that no client can choose.
fn part_name(id: &MovementId, place: usize) -> MovementId {
    match place {
        0 => id.clone(),
        _ => MovementId::unchecked(compact_str::format_compact!("{id}/{}", place + 1)),
    }
}

/// The name of a part in older journals: with a dot, which clients can also use in names.
fn old_part_name(id: &MovementId, place: usize) -> MovementId {
    MovementId::unchecked(compact_str::format_compact!("{id}.{}", place + 1))
}

/// The hold or charge that a refund returns from.
struct RefundSource<'a> {
    /// Its number; `None` if it is restored from its archived record.
    number: Option<HoldNo>,
    hold: &'a Hold,
    /// Whether budgets count what it spent.
    counted: bool,
}

impl RefundSource<'_> {
    /// The amount that was spent and not refunded.
    fn left(&self) -> u64 {
        if seeded(Bug::IgnoresEarlierRefund) {
            return self.hold.captured;
        }
        self.hold.captured - self.hold.refunded
    }
}

impl Hold {
    /// The last `amount` units that it spent and that were not refunded, last drawn first.
    fn last_spent(&self, amount: u64) -> Pieces {
        let mut pieces = Pieces::new();
        let (mut skip, mut left) = (self.refunded, amount);
        for slice in self.slices.iter().rev() {
            let skipped = slice.captured.min(skip);
            skip -= skipped;
            let end = slice.span.start + slice.captured - skipped;
            let taken = (slice.captured - skipped).min(left);
            left -= taken;
            if taken > 0 {
                pieces.push(Piece { bucket: slice.bucket, span: Span::new(end - taken, end) });
            }
        }
        pieces
    }
}
