//! Cells: the regions of this ledger, and the last messages sent to and received from each.
//!
//! Messages are numbered densely from 1 in each direction. A sent message is an event. A received
//! message moves the mark in the same commit as its effect. The next expected number is taken, a
//! lower one has no effect, and a higher one is refused.

use bursar_seeded::{Bug, seeded};

use crate::cell::ids::JobId;
use crate::ledger::event::Event;
use crate::ledger::id::{AccountNo, CellNo, JobNo};
use crate::ledger::index::aside::STEP_EVENTS;
use crate::ledger::refusal::{Conflict, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::Ledger;
use crate::ledger::undo::Undo;
use crate::message::{Mark, ToCell, ToLedger};
use crate::name::Region;
use crate::time::Timestamp;

/// The ledger's record of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CellBook {
    /// Its region.
    pub region: Region,
    /// The shard number of this ledger, as it appears in the job ids of the cell.
    pub shard: u16,
    /// The number of the last message to it.
    pub sent: u64,
    /// The last message from it.
    pub mark: Mark,
}

impl Ledger {
    /// The cell of a region.
    pub fn find_cell(&self, region: &str) -> Option<CellNo> {
        let cells = (0..).map(CellNo).zip(&self.cells);
        cells.into_iter().find(|(_, book)| book.region == region).map(|(cell, _)| cell)
    }

    /// The record of a cell.
    pub fn cell(&self, cell: CellNo) -> Option<&CellBook> {
        self.cells.get(cell.index())
    }

    /// The number of this shard, as it appears in the job ids of cells.
    pub fn shard(&self) -> u16 {
        self.cells.first().map_or(0, |book| book.shard)
    }

    /// The id of a job in cells.
    pub fn id_in_cells(&self, job: JobNo) -> JobId {
        job.in_cell(self.shard())
    }

    /// The job with this id in cells, if it is one of this shard.
    pub fn job_of_cells(&self, id: JobId) -> Option<JobNo> {
        (id.shard() == self.shard()).then(|| JobNo::of_cell(id))
    }

    /// All cells, in the order of their numbers.
    pub fn cells(&self) -> impl Iterator<Item = (CellNo, &CellBook)> {
        (0..).map(CellNo).zip(&self.cells)
    }

    pub(in crate::ledger) fn decide_open_region(
        &self,
        region: &Region,
        shard: u16,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        if let Some(cell) = self.find_cell(region) {
            return if self.cells[cell.index()].shard == shard {
                Ok(Reply::Region(cell))
            } else {
                Err(Refusal::AlreadyExists {
                    what: Resource::Region,
                    name: region.clone().into_text(),
                })
            };
        }
        let cell = u16::try_from(self.cells.len()).map(CellNo);
        let cell = cell.map_err(|_| Refusal::InvalidField {
            field: "region",
            reason: "the ledger has the maximum number of regions",
        })?;
        events.push(Event::RegionOpened { cell, region: region.clone(), shard });
        let mut special = self.accounts_with_policy(AccountNo(0));
        for account in special.by_ref().take(STEP_EVENTS) {
            let policy = self.policy_in(account, region, None);
            self.send(cell, ToCell::AccountPolicyChanged(Box::new(policy)), events);
        }
        // The rest follows at once, in further steps.
        if let Some(next) = special.next() {
            events.push(Event::RegionPoliciesSent { cell, next: Some(next) });
        }
        Ok(Reply::Region(cell))
    }

    /// Pushes a message to a cell, numbered after the messages that this decision has already
    /// pushed.
    pub(in crate::ledger) fn send(&self, cell: CellNo, message: ToCell, events: &mut Vec<Event>) {
        let said = events.iter().rev().find_map(|event| {
            let Event::CellMessageSent { cell: to, number, message: _ } = event else {
                return None;
            };
            (*to == cell).then_some(*number)
        });
        let sent = || self.cells.get(cell.index()).map_or(0, |book| book.sent);
        let number = said.unwrap_or_else(sent) + 1;
        events.push(Event::CellMessageSent { cell, number, message: Box::new(message) });
    }

    pub(in crate::ledger) fn decide_receive(
        &self,
        now: Timestamp,
        cell: CellNo,
        number: u64,
        position: u64,
        message: &ToLedger,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let unknown = || Refusal::NotFound {
            what: Resource::Region,
            name: compact_str::format_compact!("{cell}"),
        };
        let expected = self.cell(cell).ok_or_else(unknown)?.mark.number + 1;
        if number < expected {
            return Ok(Reply::Received { taken: false });
        }
        if number > expected && !seeded(Bug::TakesMessageTooEarly) {
            return Err(Refusal::Conflict(Conflict::MessageSkipped { expected }));
        }
        events.push(Event::MessageReceived { cell, number, position });
        let is_end = matches!(message, ToLedger::AttemptEnded { .. });
        if !(is_end && seeded(Bug::MarksWithoutEffect)) {
            self.push_message_effects(now, cell, message, events);
        }
        Ok(Reply::Received { taken: true })
    }

    /// Pushes the effects of a message of a cell. A message about an attempt or job that is over
    /// has none.
    fn push_message_effects(
        &self,
        now: Timestamp,
        cell: CellNo,
        message: &ToLedger,
        events: &mut Vec<Event>,
    ) {
        match message {
            ToLedger::PlacementProposed { attempt, gpu_type, nodes } => {
                self.push_proposal(now, cell, *attempt, gpu_type.as_ref(), nodes, events);
            }
            ToLedger::AttemptStarted { attempt } => {
                if let Some((job, _)) = self.live_attempt_of(cell, *attempt) {
                    self.push_started(job, events);
                }
            }
            ToLedger::UsageMetered(usages) => {
                self.push_usages(now, cell, usages, events);
            }
            ToLedger::FundsNeeded { attempt } => {
                if let Some((job, _)) = self.live_attempt_of(cell, *attempt) {
                    self.push_more_funds(now, cell, *attempt, job, events);
                }
            }
            ToLedger::StopOrdered { attempt, reason: _ } => {
                if let Some((job, _)) = self.live_attempt_of(cell, *attempt) {
                    self.push_stopping(job, events);
                }
            }
            ToLedger::AttemptEnded { attempt, outcome, gpu_ms, exit_code, requeued } => {
                if let Some((job, _)) = self.live_attempt_of(cell, *attempt) {
                    let ending = crate::ledger::jobs::end::Ending {
                        cause: self.cause_of_end(cell, job, *outcome),
                        reason: crate::ledger::jobs::EndReason::of(*outcome),
                        usage: crate::ledger::command::Usage::GpuMs(*gpu_ms),
                        exit_code: *exit_code,
                        requeue: requeued.is_some(),
                    };
                    self.push_attempt_end(now, job, ending, events);
                }
            }
            ToLedger::JobEnded { job, outcome } => {
                self.push_left_cell(now, cell, JobNo::of_cell(*job), *outcome, events);
            }
        }
    }

    pub(in crate::ledger) fn apply_region_opened(
        &mut self,
        cell: CellNo,
        region: &Region,
        shard: u16,
    ) {
        assert_eq!(cell.index(), self.cells.len(), "cells are numbered in order");
        let mark = Mark::default();
        self.cells.push(CellBook { region: region.clone(), shard, sent: 0, mark });
        self.remember(|| Undo::CellOpened);
    }

    pub(in crate::ledger) fn apply_region_policies_sent(
        &mut self,
        cell: CellNo,
        next: Option<AccountNo>,
    ) {
        match next {
            Some(next) => drop(self.briefings.insert(cell, next)),
            None => drop(self.briefings.remove(&cell)),
        }
    }

    pub(in crate::ledger) fn apply_message_sent(
        &mut self,
        cell: CellNo,
        number: u64,
        message: &ToCell,
    ) {
        self.change_cell(cell, |book| book.sent = number);
        self.apply_message_about_job(cell, message);
    }

    pub(in crate::ledger) fn apply_message_received(
        &mut self,
        cell: CellNo,
        number: u64,
        position: u64,
    ) {
        self.change_cell(cell, |book| book.mark = Mark { number, position });
    }

    fn change_cell(&mut self, cell: CellNo, change: impl FnOnce(&mut CellBook)) {
        let book = &mut self.cells[cell.index()];
        let (sent, mark) = (book.sent, book.mark);
        change(book);
        self.remember(|| Undo::Cell(cell, sent, mark));
    }
}
