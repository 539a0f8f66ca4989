//! Jobs: their states are legal (L10), their holds belong to their account, their charges are price
//! times usage (L7), and messages to and from cells are numbered without gaps.

use super::prompt::TimerKind;
use super::{Books, Broken, FREE, HELD, LawResult, Units, require};
use crate::node::Node;

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct JobBook {
    account: u32,
    ended: bool,
    /// Its open hold.
    hold: Option<u32>,
    /// The metered usage and the rate of its last closed hold.
    closed: Option<ClosedBook>,
    /// Whether it has an attempt, and whether a cell placed it.
    attempt: Option<bool>,
}

/// A hold of a job when it was closed.
#[derive(Copy, Clone, Debug)]
struct ClosedBook {
    metered: u64,
    rate: Option<(u64, u64, u64)>,
}

/// The last message numbers sent to a cell and received from it.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct CellNumbers {
    sent: u64,
    heard: u64,
}

/// The cost of `gpu_ms` at (price, share in thousandths, limit), rounded to the nearest, ties to
/// even.
fn charge((price, share, limit): (u64, u64, u64), gpu_ms: u64) -> u128 {
    let whole: u128 = 3_600_000 * 1000;
    let product = u128::from(price) * u128::from(share) * u128::from(gpu_ms.min(limit));
    let (quotient, twice) = (product / whole, product % whole * 2);
    let up = twice > whole || (twice == whole && quotient % 2 == 1);
    quotient + u128::from(up)
}

/// The three numbers of a rate.
pub(super) fn rate(node: &Node) -> LawResult<(u64, u64, u64)> {
    Ok((node.field(0)?.unsigned()?, node.field(1)?.unsigned()?, node.field(2)?.unsigned()?))
}

impl Books {
    pub(super) fn region_opened(&mut self, event: &Node) -> LawResult<()> {
        let dense = event.field(0)?.index()? as usize == self.cells.len();
        require(dense, "L12", || "cells are numbered in order".to_owned())?;
        event.field(1)?.text()?;
        self.cells.push(CellNumbers::default());
        Ok(())
    }

    pub(super) fn cell(&mut self, event: &Node) -> LawResult<&mut CellNumbers> {
        let number = event.field(0)?.index()?;
        let missing = || Broken { law: "L12", detail: format!("there is no cell {number}") };
        self.cells.get_mut(number as usize).ok_or_else(missing)
    }

    pub(super) fn message_sent(&mut self, event: &Node) -> LawResult<()> {
        let number = event.field(1)?.unsigned()?;
        event.field(2)?.tagged()?;
        let cell = self.cell(event)?;
        cell.sent += 1;
        let expected = cell.sent;
        require(number == expected, "L12", || format!("message {number}, not {expected}, was sent"))
    }

    pub(super) fn message_received(&mut self, event: &Node) -> LawResult<()> {
        let number = event.field(1)?.unsigned()?;
        event.field(2)?.unsigned()?;
        let cell = self.cell(event)?;
        cell.heard += 1;
        let expected = cell.heard;
        require(number == expected, "L12", || {
            format!("message {number}, not {expected}, was received")
        })
    }

    pub(super) fn job_submitted(&mut self, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.unsigned()?;
        let order = event.field(1)?;
        let account = order.field(1)?.index()?;
        self.require_account(account)?;
        self.require_thawed(account)?;
        order.field(0)?.text()?;
        let dense = number == self.jobs.len() as u64;
        require(dense, "L12", || format!("job {number} is out of order"))?;
        let (hold, closed, attempt) = (None, None, None);
        self.jobs.push(JobBook { account, ended: false, hold, closed, attempt });
        Ok(())
    }

    fn live_job(&mut self, number: u64) -> LawResult<&mut JobBook> {
        let missing = || Broken { law: "L12", detail: format!("there is no job {number}") };
        let job = usize::try_from(number).ok().and_then(|number| self.jobs.get_mut(number));
        let job = job.ok_or_else(missing)?;
        require(!job.ended, "L10", || format!("job {number} changes after its end"))?;
        Ok(job)
    }

    /// A hold is placed for a job.
    pub(super) fn job_held(&mut self, number: u64, hold: u32, account: u32) -> LawResult<()> {
        let job = self.live_job(number)?;
        require(job.account == account, "L13", || {
            format!("hold {hold} is of another account's job")
        })?;
        let free = job.hold.is_none() && job.attempt.is_none();
        require(free, "L10", || format!("job {number} has a hold already"))?;
        job.hold = Some(hold);
        Ok(())
    }

    /// The hold of a job is closed.
    pub(super) fn job_released(&mut self, number: u64, hold: u32) -> LawResult<()> {
        let book = self.require_hold(hold)?;
        let closed = ClosedBook { metered: book.metered, rate: book.rate };
        let job = self.live_job(number)?;
        require(job.hold == Some(hold), "L10", || format!("hold {hold} is not of job {number}"))?;
        job.hold = None;
        job.closed = Some(closed);
        Ok(())
    }

    pub(super) fn hold_pinned(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.index()?;
        let rate = rate(event.field(1)?)?;
        let lease = event.get(3).map(Node::time).transpose()?;
        let hold = self.open_hold(number)?;
        require(hold.captured == 0, "L7", || format!("hold {number} is priced after use"))?;
        let mut back: Vec<(Units, i64)> = Vec::new();
        let returned = event.get(2).map_or(Ok(&[][..]), Node::list)?;
        for pair in returned.chunks(2) {
            let [slice, amount] = pair else { return Err("half a slice".to_owned().into()) };
            let (slice, amount) = (slice.index()?, amount.unsigned()?);
            let found = hold.slices.get_mut(slice as usize);
            let Some(slice) = found.filter(|slice| amount > 0 && amount <= slice.room()) else {
                let detail =
                    format!("{amount} units of slice {slice} are returned but were not held");
                return Err(Broken { law: "L3", detail });
            };
            let first = slice.units.end - amount;
            back.push((Units { first, ..slice.units }, slice.drawn_at));
            slice.units.end = first;
        }
        hold.slices.retain(|slice| slice.units.count() > 0);
        hold.rate = Some(rate);
        let before = std::mem::replace(&mut hold.expires_at, lease);
        let account = hold.account;
        self.due.done(TimerKind::Hold(number), before);
        self.due.hold(number, lease);
        self.give_back(at, account, &back)?;
        let units: Vec<Units> = back.into_iter().map(|(units, _)| units).collect();
        self.turn(&units, HELD, FREE)
    }

    pub(super) fn attempt_confirmed(&mut self, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.unsigned()?;
        let by_cell = event.get(1).is_some();
        let job = self.live_job(number)?;
        require(job.attempt.is_none(), "L10", || format!("job {number} runs twice at once"))?;
        job.attempt = Some(by_cell);
        job.closed = None;
        Ok(())
    }

    /// An event that requires a job with an attempt.
    pub(super) fn attempt_moved(&mut self, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.unsigned()?;
        let job = self.live_job(number)?;
        require(job.attempt.is_some(), "L10", || format!("job {number} does not run"))
    }

    pub(super) fn attempt_ended(&mut self, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.unsigned()?;
        let end = event.field(1)?;
        let (gpu_ms, charged) = (end.unsigned_or_zero(3)?, end.unsigned_or_zero(4)?);
        let lost = end.field(1)?.unsigned()? == 8;
        let job = self.live_job(number)?;
        require(job.hold.is_none(), "L10", || format!("job {number} keeps its hold"))?;
        let Some(by_cell) = job.attempt.take() else {
            return require(false, "L10", || format!("job {number} does not run"));
        };
        let Some(closed) = job.closed.take() else {
            return require(charged == 0, "L7", || {
                format!("job {number} is charged without a hold")
            });
        };
        require(closed.metered == charged, "L7", || {
            format!("job {number} is charged {charged}, its hold metered {}", closed.metered)
        })?;
        let Some(rate) = closed.rate.filter(|_| by_cell) else { return Ok(()) };
        let exact = charge(rate, gpu_ms);
        // A hold that lapsed was not rounded for the last time.
        let right = u128::from(charged) == exact || (lost && u128::from(charged) + 1 == exact);
        require(right, "L7", || format!("job {number}: {gpu_ms} ms cost {exact}, not {charged}"))
    }

    pub(super) fn job_ended(&mut self, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.unsigned()?;
        let state = event.field(1)?.unsigned()?;
        require((4..=9).contains(&state), "L10", || format!("job {number} ends as {state}"))?;
        let job = self.live_job(number)?;
        let over = job.hold.is_none() && job.attempt.is_none();
        require(over, "L10", || format!("job {number} ends while it holds credits or runs"))?;
        job.ended = true;
        Ok(())
    }

    pub(super) fn job_waits(&mut self, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.unsigned()?;
        self.live_job(number).map(|_| ())
    }
}
