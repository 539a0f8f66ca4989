//! Books derived from events alone, with independent rules: every unit is in one part, and moves
//! only from the part that it is in.
//!
//! Simple on purpose: intervals in ordered maps, sums recomputed each time. Shares no code with the
//! ledger.

mod accounts;
mod bucket;
mod budgets;
mod grants;
mod holds;
mod jobs;
mod memory;
mod movements;
mod prompt;

use std::collections::BTreeMap;

use crate::malformed::Malformed;
use crate::names::{COMMANDS, REFUSALS};
use crate::node::Node;
use accounts::AccountBook;
use bucket::BucketBook;
use grants::GrantBook;
use holds::HoldBook;
use jobs::{CellNumbers, JobBook};
use memory::Memory;
use prompt::Due;

/// A violated law, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) law: &'static str,
    pub(crate) detail: String,
}

impl From<String> for Broken {
    fn from(detail: String) -> Broken {
        Broken { law: "format", detail }
    }
}

impl From<Malformed> for Broken {
    fn from(wrong: Malformed) -> Broken {
        Broken { law: "format", detail: wrong.to_string() }
    }
}

pub(crate) type LawResult<T> = Result<T, Broken>;

/// Returns the violated law unless `holds`.
pub(crate) fn require(
    holds: bool,
    law: &'static str,
    detail: impl FnOnce() -> String,
) -> LawResult<()> {
    if holds { Ok(()) } else { Err(Broken { law, detail: detail() }) }
}

/// The parts of a unit, by number: free, held, spent, expired, revoked, moved.
pub(crate) const FREE: u8 = 0;
pub(crate) const HELD: u8 = 1;
pub(crate) const SPENT: u8 = 2;
pub(crate) const EXPIRED: u8 = 3;
pub(crate) const REVOKED: u8 = 4;
pub(crate) const MOVED: u8 = 5;

/// Units of one bucket: `first..end`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) bucket: u32,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

impl Units {
    pub(crate) fn count(&self) -> u64 {
        self.end - self.first
    }
}

pub(crate) fn count(units: &[Units]) -> u128 {
    units.iter().map(|units| u128::from(units.count())).sum()
}

/// The state derived from all events so far.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) accounts: Vec<AccountBook>,
    pub(crate) grants: Vec<GrantBook>,
    pub(crate) buckets: Vec<BucketBook>,
    pub(crate) holds: BTreeMap<u32, HoldBook>,
    cells: Vec<CellNumbers>,
    /// All jobs, by number.
    jobs: Vec<JobBook>,
    memory: Memory,
    due: Due,
    /// Open items of the current decision.
    decision: Decision,
}

/// Items that must balance within one decision.
#[derive(Default)]
struct Decision {
    /// Units moved out by a transfer and not yet granted to its receiver.
    moved: u128,
    moved_to: Option<u32>,
    /// Returned units that expired, by hold. No more than that may be issued again.
    expired_returns: BTreeMap<u32, u128>,
    /// Buckets that were changed.
    touched: std::collections::BTreeSet<u32>,
}

impl Books {
    /// Enters the events of one decision.
    pub(crate) fn enter(&mut self, at: i64, body: &Node) -> LawResult<u64> {
        let [version, header, events] = body.list()? else {
            return Err("a body is [version, header, events]".to_owned().into());
        };
        if version.unsigned()? != 1 {
            return Err(format!("a body of version {}", version.unsigned()?).into());
        }
        check_header(header)?;
        if *header != Node::Null {
            self.due.check(at)?;
        }
        self.decision = Decision::default();
        let events = events.list()?;
        for event in events {
            let (tag, content) = event.tagged()?;
            self.event(at, tag, content)?;
        }
        self.close_decision(at)?;
        Ok(events.len() as u64)
    }

    fn event(&mut self, at: i64, tag: u64, event: &Node) -> LawResult<()> {
        match tag {
            0 => self.policy_set(event),
            1 => self.account_opened(event),
            2 => self.known_account(event).map(|_| ()),
            3 => self.freeze(event),
            4 => self.unfreeze(event),
            5 => self.grant_issued(at, event),
            6 => self.grant_activated(at, event),
            7 => self.grant_revoked(event),
            8 => self.bucket_expired(at, event),
            9 => self.expiry_reversed(event),
            10 => self.return_expired(at, event),
            11 => self.return_revoked(event),
            12 => self.hold_placed(at, event),
            13 => self.hold_extended(at, event),
            14 => self.hold_captured(at, event),
            15 => self.hold_cut(at, event),
            16 => self.hold_closed(at, event),
            17 => self.charged(at, event),
            18 => self.refunded(at, event),
            19 => self.credits_moved(event),
            20 => self.uncollected_collected(event),
            21 => self.budget_set(event),
            22 | 23 => self.budget_known(tag, event),
            24 => self.memory.answered(event),
            25 => self.known_account(event).map(|_| ()),
            26 => self.forgotten(at, event),
            27 => self.hold_revived(at, event),
            28 => self.region_opened(event),
            29 | 30 => self.known_account(event).map(|_| ()),
            31 => self.job_submitted(event),
            32 => self.hold_pinned(at, event),
            33 => self.attempt_confirmed(event),
            34..=36 | 38 | 44 => self.attempt_moved(event),
            37 => self.attempt_ended(event),
            39 => self.job_waits(event),
            40 => self.job_ended(event),
            41 => self.known_account(event).map(|_| ()),
            42 => self.message_sent(event),
            43 => self.message_received(event),
            45 => self.set_aside(event),
            46 => self.cell(event).map(|_| ()),
            other => Err(format!("an event with the unknown tag {other}").into()),
        }
    }

    /// From a policy that suspends expiry until the next one that does not, no grant expires.
    fn policy_set(&mut self, event: &Node) -> LawResult<()> {
        self.memory.set_policy(event)?;
        self.due.set_expiry_waits(event.get(4).is_some_and(|waits| *waits == Node::Bool(true)));
        Ok(())
    }

    /// Checks that one decision is balanced.
    fn close_decision(&mut self, at: i64) -> LawResult<()> {
        let decision = std::mem::take(&mut self.decision);
        require(decision.moved == 0, "L1", || {
            format!("{} units were moved out and not granted to any account", decision.moved)
        })?;
        for number in decision.touched {
            let bucket = &self.buckets[number as usize];
            let is_over = bucket.expires_at.is_some_and(|last| last < at);
            let late = bucket.expired || (is_over && !self.due.expiry_waits());
            require(!late || bucket.sum(FREE) == 0, "L2", || {
                format!("bucket {number} has expired but still has free units")
            })?;
        }
        Ok(())
    }

    /// Moves units from one part to another. All changes of units happen here.
    pub(crate) fn turn(&mut self, units: &[Units], from: u8, to: u8) -> LawResult<()> {
        for units in units {
            let bucket = self.buckets.get_mut(units.bucket as usize);
            let missing = || Broken { law: "L12", detail: format!("no bucket {}", units.bucket) };
            bucket.ok_or_else(missing)?.turn(units.first, units.end, from, to)?;
            self.decision.touched.insert(units.bucket);
        }
        Ok(())
    }

    /// The units of each grant, by part.
    pub(crate) fn grant_parts(&self) -> Vec<[u64; 6]> {
        self.grants
            .iter()
            .map(|grant| match grant.place {
                Some((bucket, first)) => {
                    self.buckets[bucket as usize].parts(first, first + grant.amount)
                }
                None => [grant.amount, 0, 0, 0, 0, 0],
            })
            .collect()
    }

    /// The sums of each account: free, held and owed.
    pub(crate) fn account_sums(&self) -> Vec<(String, i128, i128, i128)> {
        let mut sums: Vec<(String, i128, i128, i128)> = self
            .accounts
            .iter()
            .map(|account| (account.path.clone(), 0, 0, account.uncollected))
            .collect();
        for bucket in &self.buckets {
            let (_, free, held, _) = &mut sums[bucket.account as usize];
            *free += i128::from(bucket.sum(FREE));
            *held += i128::from(bucket.sum(HELD));
        }
        sums
    }

    /// L3 over all buckets: held units equal the units of open holds.
    pub(crate) fn check_holds(&self) -> LawResult<()> {
        let mut kept: BTreeMap<u32, u128> = BTreeMap::new();
        for hold in self.holds.values().filter(|hold| hold.state == 0) {
            for slice in &hold.slices {
                *kept.entry(slice.units.bucket).or_default() += u128::from(slice.room());
            }
        }
        for (number, bucket) in (0u32..).zip(&self.buckets) {
            let open = kept.get(&number).copied().unwrap_or(0);
            require(open == u128::from(bucket.sum(HELD)), "L3", || {
                format!("bucket {number} has {} held units, holds keep {open}", bucket.sum(HELD))
            })?;
        }
        Ok(())
    }
}

/// The author of a record: `null`, or actor, fingerprint, key, command, outcome and request.
fn check_header(header: &Node) -> LawResult<()> {
    if *header == Node::Null {
        return Ok(());
    }
    header.field(0)?.text()?;
    let hash = |node: &Node| -> LawResult<()> {
        require(node.bytes()?.len() == 16, "format", || "a hash has 16 bytes".to_owned())
    };
    hash(header.field(1)?)?;
    header.get(2).map_or(Ok(()), hash)?;
    header.get(5).map_or(Ok(()), hash)?;
    let named =
        |number: u64, names: &[&str]| usize::try_from(number).is_ok_and(|n| n < names.len());
    let known = named(header.field(3)?.unsigned()?, COMMANDS);
    require(known, "format", || "an unknown command".to_owned())?;
    if let Some(outcome) = header.get(4) {
        let (tag, code) = outcome.tagged()?;
        let known = tag == 1 && named(code.unsigned()?, REFUSALS);
        require(known, "format", || "an unknown outcome".to_owned())?;
    }
    Ok(())
}

/// A list of pieces: for each its bucket, first unit and number of units.
pub(crate) fn pieces(node: &Node) -> LawResult<Vec<Units>> {
    let numbers = node.list()?;
    let piece = |three: &[Node]| -> LawResult<Units> {
        let [bucket, first, length] = three else {
            return Err("a piece has three numbers".to_owned().into());
        };
        let (first, length) = (first.unsigned()?, length.unsigned()?);
        let end = first.checked_add(length).filter(|_| length > 0);
        let end = end.ok_or_else(|| Broken::from("an empty piece".to_owned()))?;
        Ok(Units { bucket: bucket.index()?, first, end })
    };
    numbers.chunks(3).map(piece).collect()
}
