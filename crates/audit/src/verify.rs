//! Reads a journal from its first batch to its head and stops at the first error.

use bursar_core::time::Timestamp;

use crate::books::{Books, Broken};
use crate::chain::{bodies, first_record, genesis, hash};
use crate::live::LiveNumbers;
use crate::malformed::Malformed;
use crate::node;
use crate::report::{Problem, Report};
use crate::source::{RawBatch, RawHead, Source};

/// The progress of a verification.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Records read.
    pub records: u64,
    /// All records, according to the store.
    pub of: u64,
}

/// The most differences that are listed.
const MAX_DIFFERENCES: usize = 100;

/// Verifies a whole journal, and compares its balances with those of the ledger's own replay if they are given.
///
/// `progress` is called after every batch.
pub fn verify(
    source: &dyn Source,
    live: Option<&LiveNumbers>,
    mut progress: impl FnMut(Progress),
) -> Report {
    let mut walk = Walk::new(source.journal());
    walk.read(source, &mut progress);
    let Walk { mut report, books, .. } = walk;
    report.signed_segments = source.signatures();
    report.accounts = books.accounts.len() as u64;
    report.grants = books.grants.len() as u64;
    report.open_holds = books.holds.values().filter(|hold| hold.state == 0).count() as u64;
    let parts = books.grant_parts();
    for grant in &parts {
        for (sum, part) in report.parts.iter_mut().zip(grant) {
            *sum += u128::from(*part);
        }
    }
    if let Some(live) = live.filter(|_| report.problem.is_none()) {
        report.compared = true;
        report.differences = differences(&books, &parts, live);
    }
    report
}

/// Verifies the chain, the order and the encoding of a journal, but not its content. Used for
/// cells, whose own replay checks the laws of scheduling.
pub fn verify_chain(source: &dyn Source, mut progress: impl FnMut(Progress)) -> Report {
    let mut walk = Walk::new(source.journal());
    walk.enters = false;
    walk.read(source, &mut progress);
    walk.report.signed_segments = source.signatures();
    walk.report
}

/// Verifies the chain and the order of a journal without decoding its bodies. Used for the
/// directory, whose bodies its own replay decodes.
pub fn verify_links(source: &dyn Source) -> Report {
    let mut walk = Walk::new(source.journal());
    (walk.enters, walk.reads) = (false, false);
    walk.read(source, &mut |_| {});
    walk.report
}

/// A violated law, and the record, if it is known.
type BrokenAt = (Option<u64>, Broken);

struct Walk {
    report: Report,
    books: Books,
    /// Whether the records are a ledger's, to be entered into the books.
    enters: bool,
    /// Whether the bodies are decoded.
    reads: bool,
    sequence: u64,
    position: u64,
    previous: [u8; 32],
    epoch: u64,
    time: i64,
}

impl Walk {
    /// Reads every batch up to the declared head, or up to the first error.
    fn read(&mut self, source: &dyn Source, progress: &mut dyn FnMut(Progress)) {
        let head = source.head();
        let read = source.each(&mut |batch| {
            let good = self.accept(&batch);
            progress(Progress { records: self.report.records, of: head.position });
            good
        });
        if self.report.problem.is_none() {
            self.check_end(head, read.err().map(|error| error.to_string()));
        }
    }

    fn new(journal: [u8; 16]) -> Walk {
        let previous = genesis(&journal);
        Walk {
            report: Report { journal, head: previous, ..Report::default() },
            books: Books::default(),
            enters: true,
            reads: true,
            sequence: 0,
            position: 0,
            previous,
            epoch: 0,
            time: Timestamp::MIN.millis(),
        }
    }

    fn problem(&mut self, last: u64, position: Option<u64>, broken: Broken) {
        let sequence = self.sequence + 1;
        let first = self.position + 1;
        let positions = (first, last.max(first));
        let Broken { law, detail } = broken;
        self.report.problem = Some(Problem { sequence, positions, position, law, detail });
    }

    /// Accepts a batch if all of it is valid.
    fn accept(&mut self, batch: &RawBatch) -> bool {
        if let Err(wrong) = self.check_chain(batch) {
            self.problem(
                self.position.saturating_add(batch.records.into()),
                None,
                Broken { law: "chain", detail: wrong.to_string() },
            );
            return false;
        }
        match self.check_records(batch) {
            Ok((events, time)) => {
                self.sequence = batch.sequence;
                self.position += u64::from(batch.records);
                self.previous = batch.hash;
                self.epoch = batch.epoch;
                self.time = time;
                let report = &mut self.report;
                report.batches += 1;
                report.records = self.position;
                report.events += events;
                report.head = batch.hash;
                report.until = Some(Timestamp::from_millis(time));
                true
            }
            Err((position, broken)) => {
                self.problem(self.position + u64::from(batch.records), position, broken);
                false
            }
        }
    }

    fn check_chain(&self, batch: &RawBatch) -> Result<(), Malformed> {
        let expected = self.sequence + 1;
        if batch.sequence != expected {
            return Err(format!("batch {expected} is missing; {} was found", batch.sequence).into());
        }
        if batch.previous != self.previous {
            return Err("it does not follow the batch before it".into());
        }
        if hash(batch) != batch.hash {
            return Err("its content does not match its hash".into());
        }
        if batch.first_position != self.position + 1 || batch.records == 0 {
            return Err("its records are not the next ones".into());
        }
        if batch.epoch < self.epoch {
            return Err(format!("epoch {} comes after epoch {}", batch.epoch, self.epoch).into());
        }
        Ok(())
    }

    /// Enters all records of a batch. Returns the number of their events and the last time.
    fn check_records(&mut self, batch: &RawBatch) -> Result<(u64, i64), BrokenAt> {
        let format = |position: u64| {
            move |wrong: Malformed| {
                (Some(position), Broken { law: "format", detail: wrong.to_string() })
            }
        };
        let (mut rest, mut events, mut time) = (&batch.payload[..], 0, self.time);
        for offset in 1..=u64::from(batch.records) {
            let position = self.position + offset;
            let (record, after) = first_record(rest).map_err(format(position))?;
            rest = after;
            if record.time < time {
                let detail =
                    format!("it happened {} ms before the one before it", time - record.time);
                return Err((Some(position), Broken { law: "time", detail }));
            }
            time = record.time;
            if !self.reads {
                continue;
            }
            for body in bodies(&record).map_err(format(position))? {
                let body = node::read(body).map_err(format(position))?;
                if !self.enters {
                    continue;
                }
                let entered = self.books.enter(time, &body);
                events += entered.map_err(|broken| (Some(position), broken))?;
            }
        }
        if !rest.is_empty() || time != batch.time {
            let detail = "its records are not what it announces".to_owned();
            return Err((None, Broken { law: "format", detail }));
        }
        Ok((events, time))
    }

    /// The last batch must be the one that the store's head names, and the books must balance.
    fn check_end(&mut self, head: RawHead, failure: Option<String>) {
        let end = RawHead { sequence: self.sequence, position: self.position, hash: self.previous };
        if let Some(detail) = failure {
            self.problem(head.position, None, Broken { law: "storage", detail });
        } else if end != head {
            let detail = format!("it is missing or changed; the head is batch {}", head.sequence);
            self.problem(head.position, None, Broken { law: "chain", detail });
        } else if let Err(broken) = self.books.check_holds() {
            self.problem(head.position, None, broken);
        }
    }
}

/// Pairs of values from the journal and from the ledger that differ.
fn unequal<'a, T: PartialEq>(
    derived: &'a [T],
    live: &'a [T],
) -> impl Iterator<Item = (usize, (&'a T, &'a T))> {
    derived.iter().zip(live).enumerate().filter(|(_, (a, b))| a != b)
}

/// Numbers, separated by commas; `none` if there are none.
fn joined<T: ToString>(numbers: impl Iterator<Item = T>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    if numbers.is_empty() { "none".to_owned() } else { numbers.join(", ") }
}

fn differences(books: &Books, grants: &[[u64; 6]], live: &LiveNumbers) -> Vec<String> {
    let accounts = books.account_sums();
    let holds: Vec<(u32, u64, u128, u128)> = books
        .holds
        .iter()
        .map(|(number, hold)| (*number, hold.state, hold.captured, hold.refunded))
        .collect();
    let mut lines = Vec::new();
    for (what, derived, found) in [
        ("accounts", accounts.len(), live.accounts.len()),
        ("grants", grants.len(), live.grants.len()),
        ("holds", holds.len(), live.holds.len()),
    ] {
        if derived != found {
            lines.push(format!("{derived} {what} by the journal, {found} live"));
        }
    }
    for (_, (derived, live)) in unequal(&accounts, &live.accounts) {
        let sums = |(_, free, held, owed): &(String, i128, i128, i128)| {
            format!("{free} free, {held} held, {owed} owed")
        };
        let (path, derived, live) = (&derived.0, sums(derived), sums(live));
        lines.push(format!("account {path}: {derived} by the journal; {live} live"));
    }
    for (number, (derived, live)) in unequal(grants, &live.grants) {
        let parts = |parts: &[u64; 6]| joined(parts.iter());
        let (derived, live) = (parts(derived), parts(live));
        lines.push(format!("grant {number}: {derived} by the journal; {live} live"));
    }
    let taken_back = (0u32..).zip(&books.grants).filter(|(_, grant)| grant.revoked);
    let revoked: Vec<u32> = taken_back.map(|(number, _)| number).collect();
    if revoked != live.revoked {
        let (derived, live) = (joined(revoked.iter()), joined(live.revoked.iter()));
        lines.push(format!("revoked grants: {derived} by the journal; {live} live"));
    }
    for (_, (derived, live)) in unequal(&holds, &live.holds) {
        let sums = |(_, state, captured, refunded): &(u32, u64, u128, u128)| {
            format!("state {state}, {captured} captured, {refunded} refunded")
        };
        let (number, derived, live) = (derived.0, sums(derived), sums(live));
        lines.push(format!("hold {number}: {derived} by the journal; {live} live"));
    }
    lines.truncate(MAX_DIFFERENCES);
    lines
}
