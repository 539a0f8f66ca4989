//! Grants: issue, activation, expiry, revocation and re-issue.

use fefo::{Part, Span};

use super::spend_order::SpendRank;
use crate::credits::Credits;
use crate::ledger::command::{Envelope, IssueGrant, Restriction};
use crate::ledger::event::{Event, GrantIssued, GrantOrigin, Piece, Pieces};
use crate::ledger::id::{AccountNo, BucketNo, GrantNo, HoldNo};
use crate::ledger::refusal::{Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::{Ledger, short_fingerprint};
use crate::ledger::undo::Undo;
use crate::name::{AccountPath, GrantId};
use crate::time::Timestamp;

/// One grant: an interval on the line of its bucket.
#[derive(Clone, Debug, Hash)]
pub struct Grant {
    /// Its name.
    pub id: GrantId,
    /// The account that has it.
    pub account: AccountNo,
    /// The bucket it lies in; `None` until it can be spent.
    pub bucket: Option<BucketNo>,
    /// Its first unit on the bucket's line.
    pub start: u64,
    /// How much was granted.
    pub amount: Credits,
    /// When it was issued.
    pub created_at: Timestamp,
    /// The first instant at which it can be spent.
    pub effective_at: Timestamp,
    /// The hash of the request that issued it.
    pub fingerprint: u64,
    /// Whether it was revoked.
    pub revoked: bool,
    /// The terms of its bucket, until it lies in one.
    pub pending: Option<Box<PendingTerms>>,
    /// Fields that most grants do not need.
    pub details: Option<Box<GrantDetails>>,
}

/// The terms of the bucket that a grant will lie in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingTerms {
    /// Its place in the order of spending.
    pub rank: SpendRank,
    /// What it may be spent on.
    pub restriction: Option<Box<Restriction>>,
}

/// Fields that most grants do not need.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantDetails {
    /// Its origin.
    pub origin: GrantOrigin,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
    /// Free-form text.
    pub metadata: Option<Box<str>>,
}

impl Grant {
    /// The units it owns on its bucket's line.
    pub fn span(&self) -> Span {
        Span::new(self.start, self.start + self.amount.length())
    }

    /// When it became spendable. Grants of equal rank are drawn in this order.
    pub fn spendable_from(&self) -> Timestamp {
        self.effective_at.max(self.created_at)
    }
}

impl Ledger {
    /// The grant with this name.
    pub fn find_grant(&self, tenant: AccountNo, id: &str) -> Option<GrantNo> {
        self.grant_names.find((tenant, id), |number| self.grant_name(number)).map(GrantNo)
    }

    fn grant_name(&self, number: u32) -> (AccountNo, &str) {
        let grant = &self.grants[number as usize];
        (self.account(grant.account).tenant, grant.id.as_str())
    }

    /// The units of a grant by state, indexed by the number of [`Part`].
    pub fn grant_parts(&self, grant: GrantNo) -> [u64; 6] {
        let grant = self.grant(grant);
        match grant.bucket {
            Some(bucket) => self.bucket(bucket).line.breakdown(grant.span()),
            // A grant that is not active yet is whole and cannot be drawn.
            None => {
                let mut parts = [0; 6];
                parts[Part::Free as usize] = grant.amount.length();
                parts
            }
        }
    }

    /// The number of the grant that would be issued after `others` in the same decision.
    fn next_grant(&self, others: usize) -> GrantNo {
        GrantNo(u32::try_from(self.grants.len() + others).unwrap_or(u32::MAX))
    }

    /// The number of grants that the decision has issued so far.
    fn grants_issued(&self, events: &[Event]) -> usize {
        let last = events.iter().rev().find_map(|event| {
            let Event::GrantIssued(issued) = event else { return None };
            Some(issued.grant.index() + 1)
        });
        last.map_or(0, |end| end.saturating_sub(self.grants.len()))
    }

    pub(in crate::ledger) fn decide_issue_grant(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &IssueGrant,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(&command.account)?;
        if let Some(grant) = self.find_grant(self.account(account).tenant, &command.id) {
            return if envelope.made(self.grant(grant).fingerprint) {
                Ok(Reply::Grant { grant, parts: self.grant_parts(grant) })
            } else {
                Err(Refusal::AlreadyExists {
                    what: Resource::Grant,
                    name: command.id.clone().into(),
                })
            };
        }
        let effective_at = command.effective_at.unwrap_or(now);
        if command.expires_at.is_some_and(|expires_at| expires_at < effective_at.max(now)) {
            return Err(Refusal::InvalidField {
                field: "expires_at",
                reason: "must not be before now or before effective_at",
            });
        }
        let grant = self.next_grant(0);
        let restriction = command.restriction.clone().filter(|r| !r.is_empty());
        events.push(Event::GrantIssued(Box::new(GrantIssued {
            grant,
            id: command.id.clone(),
            account,
            kind: command.kind,
            amount: command.amount,
            effective_at,
            expires_at: command.expires_at,
            priority: command.priority,
            restriction,
            origin: GrantOrigin::Issued,
            reference: command.reference.clone(),
            metadata: command.metadata.clone(),
            fingerprint: envelope.fingerprint,
        })));
        let mut parts = [0; 6];
        parts[Part::Free as usize] = command.amount.length();
        Ok(Reply::Grant { grant, parts })
    }

    /// A grant derived from credits of `bucket`, for a compensation or a transfer.
    ///
    /// `others` grants are issued before it in the same decision.
    pub(in crate::ledger) fn derived_grant(
        &self,
        now: Timestamp,
        others: usize,
        bucket: BucketNo,
        amount: u64,
        origin: GrantOrigin,
    ) -> GrantIssued {
        let grant = self.next_grant(others);
        let from = self.bucket(bucket);
        GrantIssued {
            grant,
            id: self.derived_name(self.account(from.account).tenant, grant),
            account: from.account,
            kind: from.rank.kind,
            // Pieces of one draw never exceed one amount.
            amount: Credits::from_length(amount).unwrap_or(Credits::MAX),
            effective_at: now,
            expires_at: from.rank.expires_at(),
            priority: from.rank.priority,
            restriction: from.restriction.as_deref().cloned(),
            origin,
            reference: None,
            metadata: None,
            fingerprint: 0,
        }
    }

    /// A name that no grant of the tenant has. A client may have used the plain name already.
    fn derived_name(&self, tenant: AccountNo, grant: GrantNo) -> GrantId {
        let mut name = compact_str::format_compact!("grant_auto-{grant}");
        while self.find_grant(tenant, &name).is_some() {
            name.push('x');
        }
        GrantId::unchecked(name)
    }

    pub(in crate::ledger) fn decide_revoke(
        &self,
        tenant: &AccountPath,
        id: &GrantId,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let not_found = || Refusal::NotFound { what: Resource::Grant, name: id.clone().into() };
        let tenant = self.find_account(tenant).ok_or_else(not_found)?;
        let grant = self.find_grant(tenant, id).ok_or_else(not_found)?;
        let mut parts = self.grant_parts(grant);
        if !self.grant(grant).revoked {
            let free = std::mem::take(&mut parts[Part::Free as usize]);
            parts[Part::Revoked as usize] += free;
            events.push(Event::GrantRevoked { grant, amount: free });
        }
        Ok(Reply::Grant { grant, parts })
    }

    pub(in crate::ledger) fn apply_grant_issued(&mut self, at: Timestamp, issued: &GrantIssued) {
        assert_eq!(issued.grant.index(), self.grants.len(), "grants are numbered in order");
        let rank = SpendRank::new(
            issued.priority,
            issued.expires_at,
            issued.restriction.as_ref(),
            issued.kind,
        );
        let plain = issued.origin == GrantOrigin::Issued
            && issued.reference.is_none()
            && issued.metadata.is_none();
        let details = (!plain).then(|| {
            Box::new(GrantDetails {
                origin: issued.origin,
                reference: issued.reference.clone(),
                metadata: issued.metadata.clone(),
            })
        });
        let restriction = issued.restriction.clone().map(Box::new);
        self.grants.push(Grant {
            id: issued.id.clone(),
            account: issued.account,
            bucket: None,
            start: 0,
            amount: issued.amount,
            created_at: at,
            effective_at: issued.effective_at,
            fingerprint: short_fingerprint(issued.fingerprint),
            revoked: false,
            pending: Some(Box::new(PendingTerms { rank, restriction })),
            details,
        });
        // A decision refuses a name that is known.
        let _ = self.index_grant_name(issued.grant);
        self.remember(|| Undo::GrantIssued);
        if issued.effective_at <= at {
            self.lay_grant(issued.grant);
        } else {
            self.timers.activations.insert((issued.effective_at, issued.grant));
        }
    }

    /// Makes a grant known by its tenant and id. Returns the one that was known by them.
    pub(in crate::ledger) fn index_grant_name(&mut self, grant: GrantNo) -> Option<u32> {
        let (accounts, grants) = (&self.accounts, &self.grants);
        let named = |number: u32| {
            let grant = &grants[number as usize];
            (accounts[grant.account.index()].tenant, grant.id.as_str())
        };
        self.grant_names.replace(named(grant.0), grant.0, named)
    }

    pub(in crate::ledger) fn apply_grant_activated(&mut self, grant: GrantNo) {
        self.timers.activations.remove(&(self.grant(grant).effective_at, grant));
        self.lay_grant(grant);
    }

    pub(in crate::ledger) fn apply_grant_revoked(&mut self, grant: GrantNo) {
        if self.grant(grant).bucket.is_none() {
            let timer = (self.grant(grant).effective_at, grant);
            self.timers.activations.remove(&timer);
            self.remember(|| Undo::ActivationRemoved { timer });
            self.lay_grant(grant);
        }
        // Recorded after the grant is laid, because the undo needs the bucket.
        self.remember(|| Undo::GrantRevoked { grant });
        let granted = &mut self.grants[grant.index()];
        granted.revoked = true;
        let (bucket, span) = (granted.bucket.expect("the grant was just laid"), granted.span());
        self.buckets[bucket.index()].has_revoked = true;
        let line = &self.bucket(bucket).line;
        let free: Vec<Span> = line
            .runs_in(span)
            .filter_map(|(run, part)| (part == Part::Free).then_some(run))
            .collect();
        for span in free {
            self.retag(Piece { bucket, span }, Part::Free, Part::Revoked);
        }
    }

    /// Sorts returned units into those of revoked grants and those that have expired. Also sums the
    /// expired ones that were not revoked, by bucket.
    pub(in crate::ledger) fn sort_returned(&self, now: Timestamp, pieces: &[Piece]) -> Returned {
        let mut returned = Returned::default();
        for piece in pieces {
            let bucket = self.bucket(piece.bucket);
            let expired = bucket.expired || self.expires_by(&bucket.rank, now);
            if !expired && !bucket.has_revoked {
                continue;
            }
            if !bucket.has_revoked {
                returned.expire(*piece);
                continue;
            }
            for (span, grant) in bucket.line.packs_in(piece.span) {
                let part = Piece { bucket: piece.bucket, span };
                if self.grant(grant).revoked {
                    push_joined(&mut returned.revoked, part);
                } else if expired {
                    returned.expire(part);
                }
            }
        }
        returned
    }

    /// Pushes the events that follow a return of units: revoked and expired units are removed, and
    /// the expired ones are re-issued if `reissue` is set.
    pub(in crate::ledger) fn push_returned(
        &self,
        now: Timestamp,
        hold: HoldNo,
        pieces: &[Piece],
        reissue: bool,
        events: &mut Vec<Event>,
    ) {
        let Returned { revoked, expired, by_bucket } = self.sort_returned(now, pieces);
        if !revoked.is_empty() {
            events.push(Event::ReturnRevoked { hold, pieces: revoked });
        }
        if !expired.is_empty() {
            events.push(Event::ReturnExpired { hold, pieces: expired });
        }
        if !reissue {
            return;
        }
        let issued = self.grants_issued(events);
        for (others, (bucket, amount)) in (issued..).zip(by_bucket) {
            let origin = GrantOrigin::Compensation { hold };
            let mut grant = self.derived_grant(now, others, bucket, amount, origin);
            let ttl = self
                .inherited(grant.account, |settings| settings.compensation_ttl_ms)
                .unwrap_or(self.policy.compensation_ttl_ms);
            grant.kind = crate::ledger::command::GrantKind::Compensation;
            grant.expires_at = Some(now.plus_millis(ttl));
            // The share limit belongs to the promotion; the lists still apply.
            grant.restriction = grant.restriction.and_then(|restriction| {
                let kept = Restriction { max_share_micro: None, ..restriction };
                (!kept.is_empty()).then_some(kept)
            });
            events.push(Event::GrantIssued(Box::new(grant)));
        }
    }
}

/// Returned units that do not become free.
#[derive(Debug, Default)]
pub(in crate::ledger) struct Returned {
    /// Units of revoked grants.
    pub(in crate::ledger) revoked: Pieces,
    /// Units that have expired.
    pub(in crate::ledger) expired: Pieces,
    /// The expired amounts by bucket, in the order of their return.
    by_bucket: Vec<(BucketNo, u64)>,
}

impl Returned {
    /// Whether all returned units become free.
    pub(in crate::ledger) fn is_empty(&self) -> bool {
        self.revoked.is_empty() && self.expired.is_empty()
    }

    fn expire(&mut self, piece: Piece) {
        push_joined(&mut self.expired, piece);
        let present = self.by_bucket.iter_mut().find(|(bucket, _)| *bucket == piece.bucket);
        match present {
            Some((_, amount)) => *amount += piece.span.len(),
            None => self.by_bucket.push((piece.bucket, piece.span.len())),
        }
    }
}

/// Appends a piece, or extends the last one if the two are consecutive.
pub(super) fn push_joined(pieces: &mut Pieces, piece: Piece) {
    match pieces.last_mut() {
        Some(last) if last.bucket == piece.bucket && last.span.end == piece.span.start => {
            last.span.end = piece.span.end;
        }
        _ => pieces.push(piece),
    }
}
