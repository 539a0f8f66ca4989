//! Restores a ledger from an image: rebuilds every name, order, timer and sum.

use fefo::{Line, Part, Span};
use smallvec::SmallVec;

use super::{AccountImage, AnswerImage, BucketImage, GrantImage, Image, ImageError};
use crate::ledger::accounts::account::{Account, AccountDetails};
use crate::ledger::credits::bucket::Bucket;
use crate::ledger::credits::grant::{Grant, PendingTerms};
use crate::ledger::credits::spend_order::{BucketOrder, FirstBucket};
use crate::ledger::event::{NamedMovement, Pieces};
use crate::ledger::holds::hold::{Hold, HoldKind, HoldState};
use crate::ledger::id::{AccountNo, BucketNo, GrantNo, HoldNo, JobNo};
use crate::ledger::index::idempotency::{KeptAnswer, KeptEntry};
use crate::ledger::index::slab::Slab;
use crate::ledger::jobs::Job;
use crate::ledger::refusal::Resource;
use crate::ledger::state::{Ledger, Movement};
use crate::name::{HoldId, MovementId, parent_of};
use crate::time::Timestamp;

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), ImageError> {
    if holds { Ok(()) } else { Err(ImageError(what())) }
}

/// When anything with an id was forgotten last. What an image of an earlier release does not say is taken as late as
/// it can have been: then more is looked up.
fn forgotten_through(image: &Image) -> Option<Timestamp> {
    let forgot = image.forgotten_until.is_some()
        || (image.archived_through == 0 && !image.free_movements.is_empty())
        || (image.archived_through == 0 && image.next_job > image.jobs.len() as u64);
    image.forgotten_through.or(forgot.then_some(image.now))
}

impl Ledger {
    /// The ledger that has this image.
    ///
    /// # Errors
    /// If the parts are inconsistent. The invariants are not checked here: see
    /// [`crate::ledger::invariant::check`].
    pub fn from_image(image: Image) -> Result<Ledger, ImageError> {
        let forgotten_through = forgotten_through(&image);
        let mut ledger = Ledger { now: image.now, policy: image.policy, ..Ledger::default() };
        ledger.accounts.reserve_exact(image.accounts.len());
        ledger.account_names.make_room(image.accounts.len());
        for account in image.accounts {
            ledger.restore_account(account)?;
        }
        ledger.restore_owed();
        ledger.grants.reserve_exact(image.grants.len());
        ledger.grant_names.make_room(image.grants.len());
        for grant in image.grants {
            ledger.restore_grant(grant)?;
        }
        ledger.restore_buckets(image.buckets)?;
        ledger.restore_holds(image.holds, &image.free_holds)?;
        ledger.restore_movements(image.movements, &image.free_movements)?;
        for AnswerImage { at, key, fingerprint, answer, request } in image.answers {
            let fresh = ledger.answers.get(key).is_none();
            require(fresh, || "two answers for one key".to_owned())?;
            let kept = KeptAnswer { fingerprint, answer, request };
            ledger.answers.push(KeptEntry { at, key, kept });
        }
        ledger.restore_aging(image.aging_holds, image.aging_movements, image.aging_buckets)?;
        ledger.cells = image.cells;
        ledger.restore_jobs(image.next_job, image.jobs)?;
        for (tenant, review) in image.reviews {
            ledger.require_account(tenant)?;
            ledger.set_review(tenant, Some(review));
        }
        for (_, number) in &image.aging_jobs {
            let ended = ledger.job(*number).is_some_and(|job| job.state.is_ended());
            require(ended, || format!("job {number} is queued for retention but has not ended"))?;
        }
        ledger.aging.jobs = image.aging_jobs.into();
        ledger.aging.forgotten_until = image.forgotten_until;
        ledger.aging.forgotten_through = forgotten_through;
        // An image of an earlier release does not say it.
        ledger.aging.forgotten_movements = image.forgotten_movements
            || (image.archived_through == 0 && !image.free_movements.is_empty());
        for (_, number) in &image.old_holds {
            let closed = ledger.hold(*number).is_some_and(|hold| !hold.is_open());
            require(closed, || format!("hold {number} is queued for retention but is not closed"))?;
        }
        ledger.aging.old_holds = image.old_holds.into();
        ledger.aging.archived_through = image.archived_through;
        ledger.aging.recent = image.recent;
        ledger.past_usage.by_quarter = image.past_usage.into_iter().collect();
        ledger.aside = image.aside.into_iter().collect();
        ledger.briefings = image.briefings.into_iter().collect();
        Ok(ledger)
    }

    fn restore_jobs(&mut self, next: u64, jobs: Vec<(JobNo, Job)>) -> Result<(), ImageError> {
        self.jobs.next = next;
        for (number, job) in jobs {
            let id = &job.order.id;
            self.require_account(job.order.account)?;
            let tenant = self.account(job.order.account).tenant;
            let twice = self.find_job(tenant, id).is_some() || self.job(number).is_some();
            require(!twice && number.0 < next, || format!("job {id} does not fit"))?;
            let stands = job.standings.iter().map(|standing| Some(standing.cell));
            let mut cells = stands.chain(job.attempts.iter().map(|attempt| attempt.cell)).flatten();
            let known = cells.all(|cell| cell.index() < self.cells.len());
            require(known, || format!("job {id} is in an unknown cell"))?;
            let held = job.hold.is_none_or(|hold| {
                self.hold(hold).is_some_and(|hold| hold.is_open() && hold.job() == Some(number))
            });
            require(held, || format!("job {id} has a hold that is not its own"))?;
            self.add_job(number, job);
        }
        Ok(())
    }

    /// Computes the uncollected usage at and below each account.
    fn restore_owed(&mut self) {
        for number in (0..self.account_count()).map(AccountNo) {
            let owed = self.account(number).uncollected();
            if owed != 0 {
                for above in self.path(number) {
                    self.rare_account(above).owed_below += owed;
                }
            }
        }
    }

    fn restore_account(&mut self, image: AccountImage) -> Result<(), ImageError> {
        let number = AccountNo(u32::try_from(self.accounts.len()).unwrap_or(u32::MAX));
        let AccountImage {
            path,
            kind,
            frozen,
            fingerprint,
            settings,
            uncollected,
            budgets,
            quotas,
            frozen_by_platform,
        } = image;
        require(self.find_account(&path).is_none(), || format!("account {path} appears twice"))?;
        let parent = match parent_of(&path) {
            None => None,
            Some(parent) => {
                let found = self.find_account(parent);
                require(found.is_some(), || format!("the parent of {path} is missing"))?;
                found
            }
        };
        let tenant = parent.map_or(number, |parent| self.account(parent).tenant);
        let quotas = quotas.into_iter().map(|image| (image.region, image.quota)).collect();
        let expired = BucketOrder::new();
        let details = AccountDetails {
            settings,
            uncollected,
            owed_below: 0,
            budgets,
            expired,
            quotas,
            frozen_by_platform,
        };
        self.push_account(Account {
            frozen,
            fingerprint,
            details: (!details.is_idle()).then(|| Box::new(details)),
            ..Account::empty(path, kind, parent, tenant)
        });
        Ok(())
    }

    fn require_account(&self, account: AccountNo) -> Result<(), ImageError> {
        require(account.index() < self.accounts.len(), || format!("there is no account {account}"))
    }

    fn restore_grant(&mut self, image: GrantImage) -> Result<(), ImageError> {
        let number = GrantNo(u32::try_from(self.grants.len()).unwrap_or(u32::MAX));
        let id = &image.id;
        self.require_account(image.account)?;
        let placed = image.bucket.is_some() != image.pending.is_some();
        require(placed && !image.amount.is_zero(), || format!("grant {id} has no valid position"))?;
        let end = image.start.checked_add(image.amount.length());
        require(end.is_some(), || format!("grant {id} reaches beyond its line"))?;
        if image.bucket.is_none() {
            self.timers.activations.insert((image.effective_at, number));
        }
        let pending = image.pending.map(|terms| {
            Box::new(PendingTerms { rank: terms.rank(), restriction: terms.restriction })
        });
        self.grants.push(Grant {
            id: image.id,
            account: image.account,
            bucket: image.bucket,
            start: image.start,
            amount: image.amount,
            created_at: image.created_at,
            effective_at: image.effective_at,
            fingerprint: image.fingerprint,
            revoked: image.revoked,
            pending,
            details: image.details,
        });
        let twice = self.index_grant_name(number).is_some();
        let id = &self.grant(number).id;
        require(!twice, || format!("grant {id} appears twice"))
    }

    fn restore_buckets(&mut self, images: Vec<BucketImage>) -> Result<(), ImageError> {
        let mut laid: Vec<(BucketNo, u64, GrantNo)> = Vec::with_capacity(self.grants.len());
        for (number, grant) in (0..).map(GrantNo).zip(self.grants.iter()) {
            let Some(bucket) = grant.bucket else { continue };
            let known = bucket.index() < images.len();
            require(known, || format!("there is no bucket {bucket}"))?;
            laid.push((bucket, grant.start, number));
        }
        laid.sort_unstable();
        self.buckets.reserve_exact(images.len());
        self.bucket_keys.make_room(images.len());
        let mut expiries = Vec::with_capacity(images.len());
        let mut laid = &laid[..];
        for (number, image) in (0..).map(BucketNo).zip(images) {
            let (packs, rest) =
                laid.split_at(laid.iter().take_while(|(of, ..)| *of <= number).count());
            laid = rest;
            self.require_account(image.account)?;
            let line = self.restore_line(number, &image, packs)?;
            expiries.extend(self.restore_bucket(number, image, line));
        }
        self.timers.expiries.fill(expiries);
        for account in &mut self.accounts {
            account.first_bucket = FirstBucket::of(&account.open, &self.buckets);
        }
        Ok(())
    }

    fn restore_line(
        &self,
        number: BucketNo,
        image: &BucketImage,
        packs: &[(BucketNo, u64, GrantNo)],
    ) -> Result<Line<GrantNo>, ImageError> {
        let wrong = |what: &str| ImageError(format!("bucket {number}: {what}"));
        let mut line: Option<Line<GrantNo>> = None;
        for (_, start, grant) in packs {
            let end = line.as_ref().map_or(0, Line::end);
            let granted = self.grant(*grant);
            require(*start == end && granted.account == image.account, || {
                wrong("its grants do not lie end to end").0
            })?;
            match &mut line {
                None => line = Some(Line::new(granted.amount.length(), *grant)),
                Some(line) => {
                    line.append(granted.amount.length(), *grant).map_err(|_| wrong("too long"))?;
                }
            }
        }
        let mut line = line.ok_or_else(|| wrong("no grant lies in it"))?;
        let starts = image.runs.iter().map(|(start, _)| *start);
        let ends = starts.clone().skip(1).chain([line.end()]);
        let ordered = starts.clone().zip(ends.clone()).all(|(start, end)| start < end);
        let maximal = image.runs.windows(2).all(|pair| pair[0].1 != pair[1].1);
        let from_zero = image.runs.first().is_some_and(|(start, _)| *start == 0);
        require(ordered && maximal && from_zero, || wrong("its runs do not cover its line").0)?;
        for ((start, part), end) in image.runs.iter().zip(ends) {
            if *part != Part::Free {
                line.retag(Span::new(*start, end), Part::Free, *part);
            }
        }
        require(!image.expired || line.free() == 0, || {
            wrong("it has expired and has free units").0
        })?;
        Ok(line)
    }

    /// Restores a bucket, but for the place of its account's first one. Returns when it will expire.
    fn restore_bucket(
        &mut self,
        number: BucketNo,
        image: BucketImage,
        line: Line<GrantNo>,
    ) -> Option<(Timestamp, BucketNo)> {
        let rank = image.terms.rank();
        let parts = line.breakdown(Span::new(0, line.end()));
        let bucket = Bucket {
            account: image.account,
            rank,
            expired: image.expired,
            has_revoked: image.has_revoked,
            restriction: image.terms.restriction,
            line,
        };
        let restricted = bucket.restriction.is_some();
        let (open, shared) = (bucket.is_open(), bucket.max_share().is_none());
        let account = &mut self.accounts[image.account.index()];
        let free = i128::from(parts[Part::Free as usize]);
        account.available += free;
        account.plain += if restricted { 0 } else { free };
        account.held += i128::from(parts[Part::Held as usize]);
        if open {
            account.open.insert((rank, number), ());
            account.restricted_open += u32::from(restricted);
        }
        self.buckets.push(bucket);
        if image.expired {
            return None;
        }
        if shared {
            // Of several buckets with one key, the last opened takes further grants, because the
            // others are full.
            self.index_last_bucket(number);
        }
        rank.expires_at().map(|expires_at| (expires_at, number))
    }

    fn restore_holds(&mut self, holds: Vec<(u32, Hold)>, free: &[u32]) -> Result<(), ImageError> {
        for (number, hold) in &holds {
            self.require_account(hold.account)?;
            let fits = hold.slices.iter().all(|slice| {
                let line = self.buckets.get(slice.bucket.index()).map(|bucket| bucket.line.end());
                line.is_some_and(|end| slice.span.start < slice.span.end && slice.span.end <= end)
                    && slice.captured <= slice.span.len()
            });
            require(fits, || format!("hold {number} has drawn units that do not exist"))?;
        }
        self.holds = slab("hold", holds, free, placeholder_hold())?;
        self.hold_names.make_room(self.holds.places() as usize);
        let numbers: Vec<u32> = self.holds.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let (accounts, holds) = (&self.accounts, &self.holds);
            let named = |number: u32| {
                let hold = holds.get(number).expect("the index contains only existing entries");
                (accounts[hold.account.index()].tenant, hold.kind, hold.id.as_str())
            };
            let (tenant, kind, id) = named(number);
            let twice = self.hold_names.find((tenant, kind, id), named).is_some();
            require(!twice, || format!("hold {id} appears twice"))?;
            self.hold_names.insert((tenant, kind, id), number);
            self.note_hold_indexes(HoldNo(number));
        }
        Ok(())
    }

    fn restore_movements(
        &mut self,
        movements: Vec<(u32, Movement)>,
        free: &[u32],
    ) -> Result<(), ImageError> {
        let Some((_, any)) = movements.first().cloned() else {
            // There is no movement to use as a placeholder for the free slots.
            return self.restore_only_free_movements(free);
        };
        self.movements = slab("movement", movements, free, any)?;
        self.name_movements()
    }

    fn name_movements(&mut self) -> Result<(), ImageError> {
        let movements = &self.movements;
        let named = |number: u32| {
            let made = movements.get(number).expect("the index contains only existing entries");
            (made.tenant, made.what as u8, made.movement.id.as_str())
        };
        for (number, made) in movements.iter() {
            let known = made.tenant.index() < self.accounts.len()
                && made.movement.movement == number
                && made.expired.len() == made.movement.pieces.len();
            let id = &made.movement.id;
            require(known, || format!("movement {id} does not fit"))?;
            let twice = self.movement_names.find(named(number), named).is_some();
            require(!twice, || format!("movement {id} appears twice"))?;
            self.movement_names.insert(named(number), number, named);
        }
        Ok(())
    }

    fn restore_only_free_movements(&mut self, free: &[u32]) -> Result<(), ImageError> {
        let stand_in = Movement {
            what: Resource::Refund,
            tenant: AccountNo(0),
            movement: NamedMovement {
                movement: 0,
                id: MovementId::default(),
                pieces: Pieces::new(),
                fingerprint: 0,
            },
            expired: Vec::new(),
            hold: None,
        };
        self.movements = slab("movement", Vec::new(), free, stand_in)?;
        Ok(())
    }

    fn restore_aging(
        &mut self,
        holds: Vec<(Timestamp, HoldNo)>,
        movements: Vec<(Timestamp, u32)>,
        buckets: Vec<(Timestamp, BucketNo)>,
    ) -> Result<(), ImageError> {
        for (_, number) in &holds {
            let closed = self.hold(*number).is_some_and(|hold| !hold.is_open());
            require(closed, || format!("hold {number} is queued for retention but is not closed"))?;
        }
        for (_, number) in &movements {
            let made = self.movement(*number).is_some();
            require(made, || {
                format!("movement {number} is queued for retention but does not exist")
            })?;
        }
        for (_, number) in &buckets {
            let bucket = self.buckets.get(number.index()).filter(|bucket| bucket.expired);
            let bucket =
                bucket.ok_or_else(|| ImageError(format!("bucket {number} has not expired")))?;
            let (account, rank) = (bucket.account, bucket.rank);
            self.rare_account(account).expired.insert((rank, *number), ());
        }
        self.aging.holds = holds.into();
        self.aging.movements = movements.into();
        self.aging.buckets = buckets.into();
        Ok(())
    }
}

/// A placeholder for forgotten holds while their slots are being freed.
fn placeholder_hold() -> Hold {
    Hold {
        id: HoldId::default(),
        account: AccountNo(0),
        kind: HoldKind::Hold,
        state: HoldState::Released,
        fingerprint: 0,
        amount: 0,
        captured: 0,
        metered: 0,
        refunded: 0,
        placed_at: Timestamp::MIN,
        expires_at: None,
        closed_at: Timestamp::MIN,
        moved_at: Timestamp::MIN,
        slices: SmallVec::new(),
        details: None,
        charge: None,
    }
}

/// A slab with these values in their slots, and these slots free in this order.
fn slab<T: Clone>(
    what: &str,
    things: Vec<(u32, T)>,
    free: &[u32],
    stand_in: T,
) -> Result<Slab<T>, ImageError> {
    let mut slab = Slab::default();
    let mut things = things.into_iter().peekable();
    let count = things.len() + free.len();
    for place in 0..u32::try_from(count).unwrap_or(u32::MAX) {
        let thing = things.next_if(|(number, _)| *number == place).map(|(_, thing)| thing);
        slab.insert(place, thing.unwrap_or_else(|| stand_in.clone()));
    }
    require(things.next().is_none(), || format!("a {what} has no slot"))?;
    for place in free {
        require(slab.remove(*place).is_some(), || format!("slot {place} cannot be freed"))?;
    }
    Ok(slab)
}
