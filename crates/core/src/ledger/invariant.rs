//! Invariant checks: the laws L1 to L13, and the consistency of every index with the state.

use std::collections::BTreeMap;
use std::fmt;

use fefo::Part;

use super::accounts::past_usage::PastUsage;
use super::credits::spend_order::FirstBucket;
use super::holds::hold::HoldState;
use super::id::{AccountNo, BucketNo, GrantNo, HoldNo};
use super::state::Ledger;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// The law: `L1`…`L13`, or `index` for a derived index.
    pub law: &'static str,
    /// The tenant concerned, if known.
    pub tenant: Option<AccountNo>,
    /// What was found.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.law, self.detail)
    }
}

pub(super) type Check = Result<(), Violation>;

pub(super) fn holds(
    condition: bool,
    law: &'static str,
    tenant: Option<AccountNo>,
    detail: impl FnOnce() -> String,
) -> Check {
    if condition { Ok(()) } else { Err(Violation { law, tenant, detail: detail() }) }
}

/// Checks every law over the whole ledger.
pub fn check(ledger: &Ledger) -> Check {
    check_grants(ledger)?;
    check_accounts(ledger)?;
    check_holds(ledger)?;
    check_budgets(ledger)?;
    check_timers(ledger)?;
    super::jobs::invariant::check(ledger)
}

/// Checks the laws that concern one account: L2 and the sums that spending relies on.
pub fn check_account(ledger: &Ledger, account: AccountNo) -> Check {
    let own = ledger.account(account);
    let (mut available, mut plain, mut restricted) = (0i128, 0i128, 0u32);
    for ((rank, bucket), ()) in own.open.iter() {
        let open = ledger.bucket(*bucket);
        let listed = open.is_open() && open.rank == *rank && open.account == account;
        holds(listed, "index", Some(own.tenant), || {
            format!("bucket {bucket} must not be among the open ones of {}", own.path)
        })?;
        let free = i128::from(open.line.free());
        available += free;
        plain += if open.restriction.is_none() { free } else { 0 };
        restricted += u32::from(open.restriction.is_some());
    }
    let sums = (available, plain, restricted);
    let kept = (own.available, own.plain, own.restricted_open);
    holds(sums == kept && available >= 0, "L2", Some(own.tenant), || {
        let text = |(available, plain, restricted): (i128, i128, u32)| {
            format!(
                "{available} units, {plain} of them unrestricted, {restricted} restricted buckets"
            )
        };
        format!("{} keeps {}; its open buckets have {}", own.path, text(kept), text(sums))
    })?;
    let first_bucket = FirstBucket::of(&own.open, &ledger.buckets);
    holds(own.first_bucket == first_bucket, "index", Some(own.tenant), || {
        format!("{} remembers another first bucket than its spend order has", own.path)
    })?;
    holds(own.uncollected() >= 0, "L2", Some(own.tenant), || {
        format!("{} has uncollected {}", own.path, own.uncollected())
    })
}

/// L1 of one grant: all of its units are in a bucket of its own account.
pub fn check_grant(ledger: &Ledger, number: GrantNo) -> Check {
    let grant = ledger.grant(number);
    let tenant = Some(ledger.account(grant.account).tenant);
    let parts: u64 = ledger.grant_parts(number).iter().sum();
    holds(parts == grant.amount.length(), "L1", tenant, || {
        format!("grant {} of {} has {parts} units", grant.id, grant.amount)
    })?;
    let Some(bucket) = grant.bucket else { return Ok(()) };
    let owner = ledger.bucket(bucket).line.packs_in(grant.span()).next();
    holds(owner == Some((grant.span(), number)), "L1", tenant, || {
        format!("grant {} does not own its units of bucket {bucket}", grant.id)
    })?;
    let of_account = ledger.bucket(bucket).account == grant.account;
    holds(of_account, "L13", tenant, || {
        format!("grant {} is in a bucket of another account", grant.id)
    })
}

/// L1: every granted unit is on a line exactly once.
fn check_grants(ledger: &Ledger) -> Check {
    let mut ends: BTreeMap<BucketNo, u64> = BTreeMap::new();
    for (number, grant) in (0..).map(GrantNo).zip(ledger.grants.iter()) {
        check_grant(ledger, number)?;
        let Some(bucket) = grant.bucket else { continue };
        let end = ends.entry(bucket).or_default();
        *end = (*end).max(grant.span().end);
    }
    for (number, bucket) in (0..).map(BucketNo).zip(&ledger.buckets) {
        let tenant = Some(ledger.account(bucket.account).tenant);
        let laid = ends.get(&number).copied().unwrap_or(0);
        holds(laid == bucket.line.end(), "L1", tenant, || {
            format!("bucket {number} has {} units, its grants {laid}", bucket.line.end())
        })?;
        let free = ledger.bucket_sum(number, Part::Free);
        let none_free = !bucket.expired || free == 0;
        holds(none_free && free == bucket.line.free(), "L2", tenant, || {
            format!("bucket {number} has {free} free units and records {}", bucket.line.free())
        })?;
        let listed = ledger.account(bucket.account).open.get(&(bucket.rank, number)).is_some();
        holds(listed == bucket.is_open(), "index", tenant, || {
            format!("bucket {number} is open: {}, listed: {listed}", bucket.is_open())
        })?;
    }
    Ok(())
}

fn check_accounts(ledger: &Ledger) -> Check {
    for number in (0..).map(AccountNo).take(ledger.accounts.len()) {
        check_account(ledger, number)?;
        let found = ledger.find_account(&ledger.account(number).path);
        holds(found == Some(number), "index", None, || format!("account {number} is not found"))?;
    }
    let mut owed: BTreeMap<AccountNo, i128> = BTreeMap::new();
    for (number, account) in (0..).map(AccountNo).zip(&ledger.accounts) {
        let above = ledger.path(number).into_iter().filter(|_| account.uncollected() != 0);
        above.for_each(|above| *owed.entry(above).or_default() += account.uncollected());
    }
    for (number, account) in (0..).map(AccountNo).zip(&ledger.accounts) {
        let sum = owed.get(&number).copied().unwrap_or(0);
        let kept = account.details.as_ref().map_or(0, |details| details.owed_below);
        holds(sum == kept, "index", Some(account.tenant), || {
            format!("{} records {kept} owed at and below it, not {sum}", account.path)
        })?;
    }
    let mut held: BTreeMap<AccountNo, i128> = BTreeMap::new();
    for (number, bucket) in (0..).map(BucketNo).zip(&ledger.buckets) {
        let units = ledger.bucket_sum(number, Part::Held);
        *held.entry(bucket.account).or_default() += i128::from(units);
    }
    for (number, account) in (0..).map(AccountNo).zip(&ledger.accounts) {
        let sum = held.get(&number).copied().unwrap_or(0);
        holds(sum == account.held, "L3", Some(account.tenant), || {
            format!("{} keeps {} held but its buckets have {sum}", account.path, account.held)
        })?;
    }
    Ok(())
}

/// L3, L6, L7 and L13 of one hold or charge, if there is one with this number.
pub fn check_hold(ledger: &Ledger, number: HoldNo) -> Check {
    let Some(hold) = ledger.hold(number) else { return Ok(()) };
    let tenant = ledger.account(hold.account).tenant;
    let path = ledger.path(hold.account);
    let (mut kept, mut captured) = (0u64, 0u64);
    for slice in &hold.slices {
        let owner = ledger.bucket(slice.bucket).account;
        holds(path.contains(&owner), "L13", Some(tenant), || {
            format!("hold {} draws on an account that is not an ancestor", hold.id)
        })?;
        kept += slice.kept();
        captured += slice.captured;
        if hold.is_open() && slice.room() > 0 {
            let line = &ledger.bucket(slice.bucket).line;
            let all_held = line.runs_in(slice.rest().span).all(|(_, p)| p == Part::Held);
            holds(all_held, "L3", Some(tenant), || {
                format!("hold {} keeps units that are not held", hold.id)
            })?;
        }
    }
    holds((kept, captured) == (hold.amount, hold.captured), "L3", Some(tenant), || {
        format!("hold {} of {} has slices of {kept}", hold.id, hold.amount)
    })?;
    let ordered = hold.refunded <= hold.captured && hold.captured <= hold.metered;
    holds(ordered, "L7", Some(tenant), || {
        format!("hold {}: refunded, captured and metered out of order", hold.id)
    })?;
    let late: u64 =
        hold.details.iter().flat_map(|r| &r.uncollected).map(|(_, amount)| amount).sum();
    holds(late == hold.uncollected(), "L7", Some(tenant), || {
        format!("hold {}: {late} is not the uncollected amount", hold.id)
    })?;
    let found = ledger.find_hold(tenant, hold.kind, &hold.id);
    holds(found == Some(number), "index", Some(tenant), || {
        format!("hold {} is not found by its name", hold.id)
    })
}

/// L3, L6, L7 and L13: held units belong to open holds, and the amounts of each hold add up.
fn check_holds(ledger: &Ledger) -> Check {
    let mut held: BTreeMap<BucketNo, u64> = BTreeMap::new();
    for (number, hold) in ledger.holds.iter() {
        check_hold(ledger, HoldNo(number))?;
        for slice in hold.slices.iter().filter(|slice| hold.is_open() && slice.room() > 0) {
            *held.entry(slice.bucket).or_default() += slice.room();
        }
    }
    for number in (0..).map(BucketNo).take(ledger.buckets.len()) {
        let units = ledger.bucket_sum(number, Part::Held);
        let sum = held.get(&number).copied().unwrap_or(0);
        holds(units == sum, "L3", None, || {
            format!("bucket {number} has {units} held units, open holds keep {sum}")
        })?;
    }
    Ok(())
}

/// L4: the numbers of a budget equal the sums over the holds of its subtree.
fn check_budgets(ledger: &Ledger) -> Check {
    (0..ledger.account_count()).try_for_each(|number| check_budgets_of(ledger, AccountNo(number)))
}

/// L4 of the budgets of one account. Walks all holds for each of them.
pub fn check_budgets_of(ledger: &Ledger, number: AccountNo) -> Check {
    let account = ledger.account(number);
    for budget in account.budgets() {
        let numbers = budget.numbers(ledger.now);
        let (period_start, _) = budget.terms.period_of(ledger.now);
        let oldest = ledger.now.plus_millis(-ledger.policy.retention_ms);
        // What was forgotten by its age alone is in no sum. Holds may have been forgotten under an earlier, shorter
        // retention.
        let nothing_forgotten = period_start >= oldest
            && PastUsage::is_exact_since(period_start, ledger.now)
            && ledger.aging.forgotten_until.is_none_or(|until| until < period_start);
        let counted = ledger.count_usage(ledger.now, number, &budget.terms);
        holds(!nothing_forgotten || counted == numbers, "L4", Some(account.tenant), || {
            let name = &budget.name;
            let text = |(spent, held): (i128, i128)| format!("{spent} spent and {held} held");
            let (records, counts) = (text(numbers), text(counted));
            format!(
                "budget {name} of {} records {records}; its holds add up to {counts}",
                account.path
            )
        })?;
        let sane = numbers.0 >= 0 && numbers.1 >= 0;
        holds(sane, "L4", Some(account.tenant), || {
            let (spent, held) = numbers;
            let (name, path) = (&budget.name, &account.path);
            format!("budget {name} of {path} is negative: {spent} spent and {held} held")
        })?;
    }
    Ok(())
}

fn check_timers(ledger: &Ledger) -> Check {
    let expiring = (0..).map(BucketNo).zip(&ledger.buckets).filter(|(_, b)| !b.expired);
    for (number, bucket) in expiring {
        let timed = bucket
            .rank
            .expires_at()
            .is_none_or(|at| ledger.timers.expiries.contains(&(at, number)));
        holds(timed, "index", None, || format!("bucket {number} would never expire"))?;
    }
    let mut leases = 0;
    for (number, hold) in ledger.holds.iter() {
        if hold.state != HoldState::Open {
            continue;
        }
        let Some(at) = hold.expires_at else { continue };
        leases += 1;
        let timed = ledger.timers.leases.contains(&(at, HoldNo(number)));
        holds(timed, "index", None, || format!("hold {} would never lapse", hold.id))?;
    }
    holds(leases == ledger.timers.leases.len(), "index", None, || {
        "a lease without its hold".to_owned()
    })
}
