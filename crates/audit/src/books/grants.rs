//! Grants: where units come from, and the buckets that contain them.

use super::bucket::BucketBook;
use super::prompt::TimerKind;
use super::{Books, EXPIRED, FREE, LawResult, REVOKED, Units, count, pieces, require};
use crate::node::Node;

/// One grant.
pub(crate) struct GrantBook {
    pub(crate) account: u32,
    pub(crate) amount: u64,
    effective_at: i64,
    expires_at: Option<i64>,
    terms: String,
    shared: bool,
    pub(crate) revoked: bool,
    /// Its bucket and its first unit there, once it is active.
    pub(crate) place: Option<(u32, u64)>,
}

impl Books {
    pub(super) fn grant_issued(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.index()?;
        require(number as usize == self.grants.len(), "L12", || {
            format!("grant {number} is issued after {} others", self.grants.len())
        })?;
        let account = event.field(2)?.index()?;
        self.require_account(account)?;
        let amount = event.field(4)?.unsigned()?;
        let possible = amount > 0 && i64::try_from(amount).is_ok();
        require(possible, "L1", || format!("a grant of {amount} units"))?;
        let effective_at = event.field(5)?.time()?;
        let expires_at = event.get(6).map(Node::time).transpose()?;
        // Credits transferred while expiry is suspended keep an expiry in the past.
        let waits = self.due.expiry_waits();
        require(waits || expires_at.is_none_or(|last| last >= effective_at.max(at)), "L1", || {
            format!("grant {number} was expired when it was issued")
        })?;
        // Grants of one account share a bucket if kind, expiry, priority and restriction are equal.
        let (kind, priority, restriction) = (event.field(3)?, event.field(7)?, event.get(8));
        let terms = format!("{account} {kind:?} {expires_at:?} {priority:?} {restriction:?}");
        let shared = restriction.is_none_or(|restriction| restriction.get(3).is_none());
        self.grants.push(GrantBook {
            account,
            amount,
            effective_at,
            expires_at,
            terms,
            shared,
            revoked: false,
            place: None,
        });
        if let Some(origin) = event.get(9) {
            self.check_origin(account, amount, origin)?;
        }
        if effective_at <= at {
            return self.lay(number);
        }
        self.due.grant(number, effective_at);
        Ok(())
    }

    /// Units granted again must have been taken in the same decision.
    fn check_origin(&mut self, account: u32, amount: u64, origin: &Node) -> LawResult<()> {
        let (tag, content) = origin.tagged()?;
        let amount = u128::from(amount);
        if tag == 2 {
            let due = self.decision.moved_to == Some(account) && amount <= self.decision.moved;
            require(due, "L1", || "a transfer grants units that were not moved".to_owned())?;
            self.decision.moved -= amount;
            return Ok(());
        }
        let hold = content.field(0)?.index()?;
        let left = self.decision.expired_returns.entry(hold).or_default();
        require(tag == 1 && amount <= *left, "L1", || {
            format!("{amount} units are issued again, {left} had expired on return")
        })?;
        *left -= amount;
        Ok(())
    }

    fn lay(&mut self, number: u32) -> LawResult<()> {
        let grant = &self.grants[number as usize];
        require(grant.place.is_none(), "L1", || format!("grant {number} is activated twice"))?;
        let amount = grant.amount;
        let joins = |bucket: &BucketBook| {
            grant.shared && bucket.shared && !bucket.expired && bucket.terms == grant.terms
        };
        // Of several buckets the last one: the others are full.
        let same = self.buckets.iter().rposition(joins).and_then(|at| u32::try_from(at).ok());
        let place =
            same.and_then(|bucket| Some((bucket, self.buckets[bucket as usize].lay(amount)?)));
        let place = match place {
            Some(place) => place,
            None => {
                let bucket = u32::try_from(self.buckets.len()).unwrap_or(u32::MAX);
                let (terms, shared) = (grant.terms.clone(), grant.shared);
                let mut book = BucketBook::new(grant.account, terms, shared, grant.expires_at);
                book.lay(amount).expect("an empty bucket has room for one grant");
                self.due.bucket(bucket, book.expires_at);
                self.buckets.push(book);
                (bucket, 0)
            }
        };
        let grant = &mut self.grants[number as usize];
        grant.place = Some(place);
        self.due.done(TimerKind::Grant(number), Some(grant.effective_at));
        Ok(())
    }

    fn known_grant(&self, event: &Node) -> LawResult<u32> {
        let number = event.field(0)?.index()?;
        require((number as usize) < self.grants.len(), "L12", || {
            format!("there is no grant {number}")
        })?;
        Ok(number)
    }

    pub(super) fn grant_activated(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let number = self.known_grant(event)?;
        let from = self.grants[number as usize].effective_at;
        require(from <= at, "L1", || format!("grant {number} was activated before its time"))?;
        self.lay(number)
    }

    pub(super) fn grant_revoked(&mut self, event: &Node) -> LawResult<()> {
        let number = self.known_grant(event)?;
        let amount = event.field(1)?.unsigned()?;
        let again = self.grants[number as usize].revoked;
        require(!again, "L12", || format!("grant {number} is revoked twice"))?;
        if self.grants[number as usize].place.is_none() {
            self.lay(number)?;
        }
        let grant = &mut self.grants[number as usize];
        grant.revoked = true;
        let (bucket, first) = grant.place.expect("it was just placed in a bucket");
        let free = self.buckets[bucket as usize].of_part(first, first + grant.amount, FREE);
        let units: Vec<Units> =
            free.into_iter().map(|(first, end)| Units { bucket, first, end }).collect();
        require(count(&units) == u128::from(amount), "L1", || {
            format!("{amount} units are revoked, {} were free", count(&units))
        })?;
        self.turn(&units, FREE, REVOKED)
    }

    pub(super) fn bucket_expired(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let (number, amount) = (event.field(0)?.index()?, event.field(1)?.unsigned()?);
        let Some(bucket) = self.buckets.get_mut(number as usize) else {
            return Err(format!("there is no bucket {number}").into());
        };
        let due = !bucket.expired && bucket.expires_at.is_some_and(|last| last < at);
        require(due, "L1", || format!("bucket {number} expired before its time or twice"))?;
        bucket.expired = true;
        self.due.done(TimerKind::Bucket(number), bucket.expires_at);
        require(bucket.sum(FREE) == amount, "L1", || {
            format!("{amount} units expired, {} were free", bucket.sum(FREE))
        })?;
        let units: Vec<Units> = bucket
            .of_part(0, bucket.length, FREE)
            .into_iter()
            .map(|(first, end)| Units { bucket: number, first, end })
            .collect();
        self.memory.bucket_expired(number);
        self.turn(&units, FREE, EXPIRED)
    }

    pub(super) fn expiry_reversed(&mut self, event: &Node) -> LawResult<()> {
        let units = pieces(event.field(0)?)?;
        for units in &units {
            let reachable = self.memory.reaches(units.bucket);
            require(reachable, "L1", || "a reversed expiry is too old".to_owned())?;
        }
        self.turn(&units, EXPIRED, FREE)
    }

    pub(super) fn return_expired(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let (hold, units) = (event.field(0)?.index()?, pieces(event.field(1)?)?);
        self.require_hold(hold)?;
        for units in &units {
            let bucket = self.buckets.get(units.bucket as usize);
            let late = bucket.is_some_and(|b| b.expires_at.is_some_and(|last| last < at));
            require(late, "L1", || "units expired on return before their time".to_owned())?;
        }
        *self.decision.expired_returns.entry(hold).or_default() += count(&units);
        self.turn(&units, FREE, EXPIRED)
    }

    pub(super) fn return_revoked(&mut self, event: &Node) -> LawResult<()> {
        let (hold, units) = (event.field(0)?.index()?, pieces(event.field(1)?)?);
        self.require_hold(hold)?;
        for units in &units {
            let revoked = self.grants.iter().filter(|grant| grant.revoked);
            let covered: u64 = revoked
                .filter_map(|grant| grant.place.map(|(bucket, first)| (grant, bucket, first)))
                .filter(|(_, bucket, _)| *bucket == units.bucket)
                .map(|(grant, _, first)| {
                    let end = units.end.min(first + grant.amount);
                    end.saturating_sub(units.first.max(first))
                })
                .sum();
            require(covered == units.count(), "L1", || {
                "units are revoked on return although their grant was not revoked".to_owned()
            })?;
        }
        self.turn(&units, FREE, REVOKED)
    }
}
