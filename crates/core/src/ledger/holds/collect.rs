//! Collections: uncollected usage is repaid from spendable credits, only on request.

use fefo::Part;

use crate::credits::Credits;
use crate::ledger::command::{Context, Envelope};
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::event::{Event, NamedMovement, total};
use crate::ledger::id::AccountNo;
use crate::ledger::refusal::{Blocker, Conflict, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::Ledger;
use crate::name::{AccountPath, MovementId};
use crate::time::Timestamp;

impl Ledger {
    pub(in crate::ledger) fn decide_collect(
        &self,
        envelope: &Envelope,
        path: &AccountPath,
        id: &MovementId,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(path)?;
        let tenant = self.account(account).tenant;
        if let Some(reply) = self.repeated(tenant, Resource::Collection, id, envelope)? {
            return Ok(reply);
        }
        let path = self.path(account);
        self.require_thawed(&path)?;
        let owed = self.account(account).uncollected().unsigned_abs();
        if owed == 0 {
            return Err(Refusal::Conflict(Conflict::NothingUncollected));
        }
        let context = Context::default();
        let request = DrawRequest::new(&path, &context);
        let owed = owed.min(u128::from(Credits::MAX.length()));
        let amount = self.largest_draw(request, &[], owed);
        let amount = u64::try_from(amount).unwrap_or(Credits::MAX.length());
        if amount == 0 {
            let requested = u64::try_from(owed).ok().and_then(Credits::from_length);
            return Err(Refusal::InsufficientCredits {
                blockers: vec![Blocker::Credits {
                    account: self.account(account).path.clone(),
                    requested: requested.unwrap_or(Credits::MAX),
                    spendable: 0,
                }],
            });
        }
        let pieces = self.draw(request, amount).unwrap_or_default();
        let movement = self.new_movement(envelope, id, pieces);
        let reply = self.movement_reply(&movement);
        events.push(Event::DebtRepaid { movement, account });
        Ok(reply)
    }

    pub(in crate::ledger) fn apply_collected(
        &mut self,
        at: Timestamp,
        movement: &NamedMovement,
        account: AccountNo,
    ) {
        for piece in &movement.pieces {
            self.retag(*piece, Part::Free, Part::Spent);
        }
        self.change_owed(account, -i128::from(total(&movement.pieces)));
        self.insert_movement(at, Resource::Collection, account, movement, None);
    }
}
