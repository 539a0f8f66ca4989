//! Charges: credits spent in one step.

use fefo::Part;

use super::hold::{Hold, HoldKind};
use crate::credits::Credits;
use crate::ledger::accounts::budget::Change;
use crate::ledger::command::{Charge, Envelope};
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::event::{Charged, Event, Pieces, total};
use crate::ledger::id::HoldNo;
use crate::ledger::refusal::{Blocker, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::Ledger;
use crate::ledger::undo::Undo;
use crate::time::Timestamp;

impl Ledger {
    pub(in crate::ledger) fn decide_charge(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Charge,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(&command.account)?;
        let tenant = self.account(account).tenant;
        if let Some(hold) = self.find_hold(tenant, HoldKind::Charge, &command.id) {
            return if envelope.made(self.live_hold(hold).fingerprint) {
                Ok(self.charge_reply(hold))
            } else {
                Err(Refusal::AlreadyExists {
                    what: Resource::Charge,
                    name: command.id.clone().into(),
                })
            };
        }
        if let Some(answer) =
            self.made_before(envelope, (tenant, HoldKind::Charge, command.id.as_str()))
        {
            return answer;
        }
        let late_for = self.lateness(now, command.effective_at)?;
        let path = self.path(account);
        self.require_thawed(&path)?;
        let request = DrawRequest::new(&path, &command.context);
        let (pieces, reversed) = match late_for {
            None => (self.draw_charge(now, request, command)?, Pieces::new()),
            Some(at) => self.draw_late(now, at, request, command)?,
        };
        let charged = Credits::from_length(total(&pieces)).unwrap_or(Credits::MAX);
        let free: Pieces =
            pieces.iter().filter(|piece| !self.bucket(piece.bucket).expired).copied().collect();
        let left = self.largest_draw(request, &free, u128::MAX);
        let spendable_after = i128::try_from(left).unwrap_or(i128::MAX);
        if !reversed.is_empty() {
            events.push(Event::ExpiryReversed { pieces: reversed });
        }
        let hold = HoldNo(self.holds.next());
        events.push(Event::Charged(Box::new(Charged {
            hold,
            id: command.id.clone(),
            account,
            pieces,
            requested: command.amount,
            late_for,
            spendable_after,
            fingerprint: envelope.fingerprint,
        })));
        self.push_thresholds(now, &path, charged.micros().into(), 0, events);
        Ok(Reply::Charge { hold, requested: command.amount, charged, spendable_after })
    }

    /// The instant of the usage if it lies in the past.
    fn lateness(
        &self,
        now: Timestamp,
        effective_at: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, Refusal> {
        let Some(at) = effective_at.filter(|at| *at != now) else { return Ok(None) };
        if at > now {
            return Err(Refusal::InvalidField {
                field: "effective_at",
                reason: "must not be in the future",
            });
        }
        let earliest = now.plus_millis(-self.policy.lateness_ms);
        if at < earliest { Err(Refusal::TooLate { earliest }) } else { Ok(Some(at)) }
    }

    fn draw_charge(
        &self,
        now: Timestamp,
        request: DrawRequest<'_>,
        command: &Charge,
    ) -> Result<Pieces, Refusal> {
        if !command.allow_partial {
            return self.draw_within_budgets(now, request, command.amount, 0);
        }
        let largest = |wanted| self.largest_draw(request, &[], wanted);
        let amount = self.partial_amount(now, request, command, largest)?;
        Ok(self.draw(request, amount).unwrap_or_default())
    }

    /// The amount of a partial charge: the largest draw that budgets allow.
    pub(in crate::ledger) fn partial_amount(
        &self,
        now: Timestamp,
        request: DrawRequest<'_>,
        command: &Charge,
        largest: impl Fn(u128) -> u128,
    ) -> Result<u64, Refusal> {
        let wanted = command.amount.length();
        let room = self.budget_room(now, request.path).min(wanted.into());
        let amount = largest(room);
        if amount > 0 {
            // At most what was wanted, which fits.
            return Ok(u64::try_from(amount).unwrap_or(wanted));
        }
        let funds = largest(wanted.into());
        let requested = command.amount.micros().into();
        let mut blockers = self.blocking_budgets(now, request.path, requested, 0);
        if funds > 0 {
            return Err(Refusal::BudgetExceeded { blockers });
        }
        blockers.insert(
            0,
            Blocker::Credits {
                account: self.account(request.path[0]).path.clone(),
                requested: command.amount,
                spendable: 0,
            },
        );
        Err(Refusal::InsufficientCredits { blockers })
    }

    fn charge_reply(&self, number: HoldNo) -> Reply {
        let hold = self.live_hold(number);
        let charged = Credits::from_length(hold.captured).unwrap_or(Credits::MAX);
        let terms = hold.charge.as_ref();
        Reply::Charge {
            hold: number,
            requested: terms.map_or(charged, |terms| terms.requested),
            charged,
            spendable_after: terms.map_or(0, |terms| terms.spendable_after),
        }
    }

    pub(in crate::ledger) fn apply_charged(&mut self, at: Timestamp, charged: &Charged) {
        for piece in &charged.pieces {
            self.retag(*piece, Part::Free, Part::Spent);
        }
        let hold = Hold::charged(at, charged);
        let amount = hold.amount;
        self.insert_hold(charged.hold, hold);
        let change = Change { spent: amount.into(), ..Change::default() };
        self.change_budgets(charged.account, at, change);
        self.aging.holds.push_back((at, charged.hold));
        self.remember(|| Undo::HoldAged);
    }
}
