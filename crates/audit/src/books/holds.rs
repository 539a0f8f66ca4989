//! Holds and charges.

use super::prompt::TimerKind;
use super::{Books, Broken, EXPIRED, FREE, HELD, LawResult, SPENT, Units, count, pieces, require};
use crate::node::Node;

/// Units drawn by a hold. Captures take them from the front.
#[derive(Clone, Debug)]
pub(crate) struct SliceBook {
    pub(crate) units: Units,
    pub(crate) captured: u64,
    pub(crate) cut: bool,
    pub(super) drawn_at: i64,
}

impl SliceBook {
    fn new(units: Units, drawn_at: i64) -> SliceBook {
        SliceBook { units, captured: 0, cut: false, drawn_at }
    }

    /// How many units are still held.
    pub(crate) fn room(&self) -> u64 {
        if self.cut { 0 } else { self.units.count() - self.captured }
    }

    fn rest(&self) -> Units {
        Units { first: self.units.first + self.captured, ..self.units }
    }
}

/// One hold or charge.
#[derive(Clone, Debug)]
pub(crate) struct HoldBook {
    pub(crate) account: u32,
    /// 0 for a hold, 1 for a charge.
    pub(crate) kind: u64,
    pub(crate) name: String,
    /// 0 open, 1 settled, 2 released, 3 lapsed.
    pub(crate) state: u64,
    strict: bool,
    pub(super) expires_at: Option<i64>,
    pub(super) metered: u64,
    pub(crate) captured: u128,
    pub(crate) refunded: u128,
    pub(crate) moved_at: i64,
    pub(crate) slices: Vec<SliceBook>,
    /// The job that it pays for.
    job: Option<u64>,
    /// Price, share and limit.
    pub(super) rate: Option<(u64, u64, u64)>,
}

impl Books {
    pub(super) fn require_hold(&self, number: u32) -> LawResult<&HoldBook> {
        let missing = || Broken { law: "L12", detail: format!("there is no hold {number}") };
        self.holds.get(&number).ok_or_else(missing)
    }

    pub(super) fn open_hold(&mut self, number: u32) -> LawResult<&mut HoldBook> {
        let state = self.require_hold(number)?.state;
        require(state == 0, "L6", || format!("hold {number} changes after it was closed"))?;
        Ok(self.holds.get_mut(&number).expect("it was just found"))
    }

    /// Units may be drawn from the account or its ancestors, before they expire.
    fn check_draw(&self, at: i64, account: u32, units: &[Units]) -> LawResult<()> {
        for units in units {
            let bucket = self.buckets.get(units.bucket as usize);
            let above = bucket.is_some_and(|bucket| self.is_above(bucket.account, account));
            require(above, "L13", || {
                format!(
                    "bucket {} is drawn by an account that is not at or below its own",
                    units.bucket
                )
            })?;
            let waits = self.due.expiry_waits();
            let valid = bucket.is_some_and(|b| waits || b.expires_at.is_none_or(|last| at <= last));
            require(valid, "L1", || format!("bucket {} is drawn after its expiry", units.bucket))?;
        }
        Ok(())
    }

    /// Counts a draw in the budgets, which must have room for it.
    fn count_draw(&mut self, at: i64, account: u32, units: &[Units]) -> LawResult<()> {
        let amount = i128::try_from(count(units)).unwrap_or(i128::MAX);
        if amount == 0 {
            return Ok(());
        }
        self.count(at, account, at, amount, true)
    }

    /// Adds a hold or charge under an unused number and name.
    fn add_hold(&mut self, number: u32, hold: HoldBook) -> LawResult<()> {
        let tenant = self.accounts[hold.account as usize].tenant;
        let taken = self.memory.name_hold(tenant, hold.kind, &hold.name);
        require(taken, "L5", || format!("hold {} is placed twice", hold.name))?;
        let before = self.holds.insert(number, hold);
        require(before.is_none(), "L12", || format!("hold {number} is placed twice"))
    }

    pub(super) fn hold_placed(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let account = event.field(2)?.index()?;
        self.require_account(account)?;
        self.require_thawed(account)?;
        let units = pieces(event.field(3)?)?;
        require(!units.is_empty(), "L3", || "a hold without units".to_owned())?;
        self.check_draw(at, account, &units)?;
        self.turn(&units, FREE, HELD)?;
        self.count_draw(at, account, &units)?;
        let number = event.field(0)?.index()?;
        let expires_at = event.get(4).map(Node::time).transpose()?;
        self.due.hold(number, expires_at);
        let hold = HoldBook {
            account,
            kind: 0,
            name: event.field(1)?.text()?.to_owned(),
            state: 0,
            strict: event.unsigned_or_zero(6)? == 1,
            expires_at,
            metered: 0,
            captured: 0,
            refunded: 0,
            moved_at: at,
            slices: units.into_iter().map(|units| SliceBook::new(units, at)).collect(),
            job: event.get(11).map(Node::unsigned).transpose()?,
            rate: event.get(7).map(super::jobs::rate).transpose()?,
        };
        if let Some(job) = hold.job {
            self.job_held(job, number, account)?;
        }
        self.add_hold(number, hold)
    }

    pub(super) fn hold_extended(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.index()?;
        let account = self.open_hold(number)?.account;
        let units = event.get(1).map_or(Ok(Vec::new()), pieces)?;
        if !units.is_empty() {
            self.require_thawed(account)?;
        }
        self.check_draw(at, account, &units)?;
        self.turn(&units, FREE, HELD)?;
        self.count_draw(at, account, &units)?;
        let expires_at = event.get(3).map(Node::time).transpose()?;
        let hold = self.open_hold(number)?;
        hold.slices.extend(units.into_iter().map(|units| SliceBook::new(units, at)));
        let before = std::mem::replace(&mut hold.expires_at, expires_at);
        self.due.done(TimerKind::Hold(number), before);
        self.due.hold(number, expires_at);
        Ok(())
    }

    pub(super) fn hold_captured(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.index()?;
        let hold = self.open_hold(number)?;
        let total = event.unsigned_or_zero(2)?;
        let uncollected = event.unsigned_or_zero(5)?;
        let taken = event.get(4).map_or(Ok(&[][..]), Node::list)?;
        let mut spent = Vec::new();
        for pair in taken.chunks(2) {
            let [slice, amount] = pair else { return Err("half a slice".to_owned().into()) };
            let (slice, amount) = (slice.index()?, amount.unsigned()?);
            let found = hold.slices.get_mut(slice as usize);
            let Some(slice) = found.filter(|slice| amount > 0 && amount <= slice.room()) else {
                let detail = format!("{amount} units of slice {slice} are not held");
                return Err(Broken { law: "L3", detail });
            };
            let rest = slice.rest();
            spent.push(Units { end: rest.first + amount, ..rest });
            slice.captured += amount;
        }
        // A report of more GPU time can cost less than an earlier one. Then nothing grows.
        let grown = u128::from(total.saturating_sub(hold.metered));
        let explained = count(&spent) + u128::from(uncollected);
        require(grown == explained, "L7", || {
            format!("usage grew to {total}, the events account for {explained} units")
        })?;
        hold.metered = hold.metered.max(total);
        hold.captured += count(&spent);
        let account = hold.account;
        if uncollected > 0 {
            self.accounts[account as usize].uncollected += i128::from(uncollected);
            // Uncollected usage counts, even above a limit.
            self.count(at, account, at, uncollected.into(), false)?;
        }
        self.turn(&spent, HELD, SPENT)
    }

    pub(super) fn hold_cut(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.index()?;
        let hold = self.open_hold(number)?;
        require(hold.strict, "L3", || format!("hold {number} is cut but not strict"))?;
        let mut gone = Vec::new();
        for pair in event.field(1)?.list()?.chunks(2) {
            let [slice, amount] = pair else { return Err("half a slice".to_owned().into()) };
            let (slice, amount) = (slice.index()?, amount.unsigned()?);
            let found = hold.slices.get_mut(slice as usize);
            let Some(slice) = found.filter(|slice| amount > 0 && amount == slice.room()) else {
                let detail = format!("{amount} units of slice {slice} are cut but were not held");
                return Err(Broken { law: "L3", detail });
            };
            gone.push((slice.rest(), slice.drawn_at));
            slice.cut = true;
        }
        let account = hold.account;
        self.give_back(at, account, &gone)?;
        let gone: Vec<Units> = gone.into_iter().map(|(units, _)| units).collect();
        for units in &gone {
            let expired = self.buckets.get(units.bucket as usize).is_some_and(|b| b.expired);
            require(expired, "L3", || "units are cut before they expire".to_owned())?;
        }
        self.turn(&gone, HELD, EXPIRED)
    }

    pub(super) fn hold_closed(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.index()?;
        let state = event.field(1)?.unsigned()?;
        let returned = event.unsigned_or_zero(3)?;
        require((1..=3).contains(&state), "L6", || format!("hold {number} is closed as {state}"))?;
        let hold = self.open_hold(number)?;
        let open = hold.slices.iter().filter(|slice| slice.room() > 0);
        let back: Vec<(Units, i64)> = open.map(|slice| (slice.rest(), slice.drawn_at)).collect();
        let rest: Vec<Units> = back.iter().map(|(units, _)| *units).collect();
        require(count(&rest) == u128::from(returned), "L3", || {
            format!("{returned} units came back, {} were held", count(&rest))
        })?;
        hold.state = state;
        hold.moved_at = at;
        let (account, lease, job) = (hold.account, hold.expires_at, hold.job);
        if let Some(job) = job {
            self.job_released(job, number)?;
        }
        self.due.done(TimerKind::Hold(number), lease);
        self.memory.hold_closed(number);
        self.give_back(at, account, &back)?;
        self.turn(&rest, HELD, FREE)
    }

    pub(super) fn charged(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let account = event.field(2)?.index()?;
        self.require_account(account)?;
        self.require_thawed(account)?;
        let units = pieces(event.field(3)?)?;
        let requested = event.field(4)?.unsigned()?;
        let valid = !units.is_empty() && count(&units) <= u128::from(requested);
        require(valid, "L1", || format!("{} units charged for {requested}", count(&units)))?;
        let used_at = event.get(5).map_or(Ok(at), Node::time)?;
        require(used_at <= at, "L1", || "future usage is charged".to_owned())?;
        self.check_draw(used_at, account, &units)?;
        self.turn(&units, FREE, SPENT)?;
        self.count_draw(at, account, &units)?;
        let number = event.field(0)?.index()?;
        let captured = |units: Units| {
            let captured = units.count();
            SliceBook { captured, ..SliceBook::new(units, at) }
        };
        let hold = HoldBook {
            account,
            kind: 1,
            name: event.field(1)?.text()?.to_owned(),
            state: 1,
            strict: false,
            expires_at: None,
            metered: u64::try_from(count(&units)).unwrap_or(u64::MAX),
            captured: count(&units),
            refunded: 0,
            moved_at: at,
            slices: units.into_iter().map(captured).collect(),
            job: None,
            rate: None,
        };
        self.memory.hold_closed(number);
        self.add_hold(number, hold)
    }

    pub(super) fn refunded(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let number = event.field(1)?.index()?;
        let (units, tenant_of) = (pieces(event.field(0)?.field(2)?)?, self.require_hold(number)?);
        let account = tenant_of.account;
        self.name_movement(4, account, event.field(0)?)?;
        let hold = self.holds.get_mut(&number).expect("it was just found");
        require(hold.state != 0, "L6", || format!("hold {number} is refunded while it is open"))?;
        hold.refunded += count(&units);
        hold.moved_at = at;
        require(!units.is_empty() && hold.refunded <= hold.captured, "L6", || {
            format!("{} units refunded of {} captured", hold.refunded, hold.captured)
        })?;
        let mut back = Vec::new();
        for part in &units {
            let its_own = hold.slices.iter().find(|slice| {
                slice.units.bucket == part.bucket
                    && slice.units.first <= part.first
                    && part.end <= slice.units.first + slice.captured
            });
            let stranger = || "units are refunded that the hold never spent".to_owned();
            require(its_own.is_some(), "L6", stranger)?;
            back.extend(its_own.map(|slice| (*part, slice.drawn_at)));
        }
        self.give_back(at, account, &back)?;
        self.turn(&units, SPENT, FREE)
    }

    /// A forgotten hold is restored. All units that it records as spent must be spent.
    pub(super) fn hold_revived(&mut self, at: i64, event: &Node) -> LawResult<()> {
        let number = event.field(0)?.index()?;
        let record = event.field(1)?.field(0)?;
        let account = record.field(1)?.index()?;
        self.require_account(account)?;
        let details = record.get(13);
        let draws = details.and_then(|details| details.get(7)).map_or(Ok(&[][..]), Node::list)?;
        let placed_at = record.field(9)?.time()?;
        let slice = |slice: &Node| revived_slice(slice, placed_at, draws);
        let slices: Vec<SliceBook> =
            record.field(12)?.list()?.iter().map(slice).collect::<LawResult<_>>()?;
        let hold = HoldBook {
            account,
            kind: record.field(2)?.unsigned()?,
            name: record.field(0)?.text()?.to_owned(),
            state: record.field(3)?.unsigned()?,
            strict: details.map_or(Ok(0), |details| details.unsigned_or_zero(1))? == 1,
            expires_at: None,
            metered: record.unsigned_or_zero(7)?,
            captured: record.unsigned_or_zero(6)?.into(),
            refunded: record.unsigned_or_zero(8)?.into(),
            moved_at: at,
            slices,
            job: None,
            rate: None,
        };
        require(hold.state != 0, "L6", || format!("hold {number} was restored open"))?;
        let spent: u128 = hold.slices.iter().map(|slice| u128::from(slice.captured)).sum();
        let sane = spent == hold.captured && hold.refunded <= hold.captured;
        require(sane, "L7", || format!("hold {number} was restored with other amounts"))?;
        let mut refunded = hold.refunded;
        for slice in hold.slices.iter().rev() {
            let returned = refunded.min(slice.captured.into());
            refunded -= returned;
            let still = u128::from(slice.captured) - returned;
            let first = slice.units.first;
            // The units still spent are at most those captured, which fit into 64 bits.
            let end = first + u64::try_from(still).unwrap_or(0);
            let bucket = self.buckets.get(slice.units.bucket as usize);
            let whole =
                bucket.is_some_and(|b| u128::from(b.parts(first, end)[SPENT as usize]) == still);
            require(whole, "L1", || {
                format!("hold {number} was restored with spent units missing")
            })?;
        }
        self.memory.hold_closed(number);
        self.add_hold(number, hold)
    }
}

/// `[bucket, draw, first unit, units, captured, cut]`.
fn revived_slice(node: &Node, placed_at: i64, draws: &[Node]) -> LawResult<SliceBook> {
    let [bucket, draw, first, length, captured, cut] = node.list()? else {
        return Err("a slice has six parts".to_owned().into());
    };
    let (first, length) = (first.unsigned()?, length.unsigned()?);
    let end = first.checked_add(length).ok_or_else(|| Broken::from("too long".to_owned()))?;
    let units = Units { bucket: bucket.index()?, first, end };
    let captured = captured.unsigned()?;
    require(captured <= length, "L3", || "more captured than drawn".to_owned())?;
    // The draw before the first extension is the placement.
    let drawn_at = match draws.get(draw.index()? as usize) {
        None => placed_at,
        Some(draw) => draw.list()?.first().map_or(Ok(placed_at), Node::time)?,
    };
    Ok(SliceBook { units, captured, cut: cut.flag()?, drawn_at })
}
