//! Transfers: an account's own credits move to another account of the tenant, with the same terms.

use fefo::Part;

use crate::ledger::accounts::account::Path;
use crate::ledger::command::{Context, Envelope, Transfer};
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::event::{Event, GrantOrigin, NamedMovement};
use crate::ledger::id::{AccountNo, BucketNo};
use crate::ledger::refusal::{Blocker, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

impl Ledger {
    pub(in crate::ledger) fn decide_transfer(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &Transfer,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let from = self.existing_account(&command.from)?;
        let to = self.existing_account(&command.to)?;
        let tenant = self.account(from).tenant;
        if let Some(reply) = self.repeated(tenant, Resource::Transfer, &command.id, envelope)? {
            return Ok(reply);
        }
        self.require_thawed(&self.path(from))?;
        let own: Path = std::iter::once(from).collect();
        let context = Context::default();
        let request = DrawRequest { unrestricted: true, ..DrawRequest::new(&own, &context) };
        let Some(pieces) = self.draw(request, command.amount.length()) else {
            let source = self.account(from);
            return Err(Refusal::InsufficientCredits {
                blockers: vec![Blocker::Credits {
                    account: source.path.clone(),
                    requested: command.amount,
                    spendable: source.available,
                }],
            });
        };
        let mut by_bucket: Vec<(BucketNo, u64)> = Vec::new();
        for piece in &pieces {
            match by_bucket.iter_mut().find(|(bucket, _)| *bucket == piece.bucket) {
                Some((_, amount)) => *amount += piece.span.len(),
                None => by_bucket.push((piece.bucket, piece.span.len())),
            }
        }
        let movement = self.new_movement(envelope, &command.id, pieces);
        let reply = self.movement_reply(&movement);
        let note = command.note.clone();
        events.push(Event::CreditsMoved { movement, from, to, note });
        for (others, (bucket, amount)) in by_bucket.into_iter().enumerate() {
            let origin = GrantOrigin::Transfer { from: bucket };
            let mut grant = self.derived_grant(now, others, bucket, amount, origin);
            grant.account = to;
            events.push(Event::GrantIssued(Box::new(grant)));
        }
        Ok(reply)
    }

    pub(in crate::ledger) fn apply_moved(
        &mut self,
        at: Timestamp,
        movement: &NamedMovement,
        from: AccountNo,
    ) {
        for piece in &movement.pieces {
            self.retag(*piece, Part::Free, Part::Moved);
        }
        self.insert_movement(at, Resource::Transfer, from, movement, None);
    }
}
