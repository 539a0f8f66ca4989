//! Waits until no message is in transit between the machines, and moves the manual clock step by
//! step.

use std::time::Duration;

use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::CellNo;
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::{Clock, ManualClock};

use crate::app::App;
use crate::request::Failure;

/// How long to wait before checking again whether messages have arrived.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// For each cell: the number of the last message that the ledger sent to it, and of the last one
/// received from it.
type MessageCounts = Vec<(CellNo, u64, u64)>;

/// The messages that the ledger has sent and received, and the deadline of its next timer.
fn progress(ledger: &Ledger) -> (MessageCounts, Option<Timestamp>) {
    (message_counts(ledger), ledger.next_deadline())
}

fn message_counts(ledger: &Ledger) -> MessageCounts {
    ledger.cells().map(|(cell, book)| (cell, book.sent, book.mark.number)).collect()
}

impl App {
    /// Waits until every message between the machines, and everything that it causes, is journaled
    /// and applied.
    pub async fn quiesce(&self) -> Result<(), Failure> {
        loop {
            if self.is_quiet().await? {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Whether no message is in transit and no timer is due: no ledger changed while every
    /// cell was found to have received and delivered all messages.
    async fn is_quiet(&self) -> Result<bool, Failure> {
        let mut all = Vec::new();
        for app in self.every_shard() {
            let seen = app.ledger.read(progress).await?;
            let (before, due) = seen.value;
            if due.is_some_and(|deadline| deadline <= seen.at) {
                return Ok(false);
            }
            all.push((app, before));
        }
        for cell in self.cells.iter() {
            for (app, before) in &all {
                let shard = app.shard;
                let seen = cell
                    .gateway
                    .read(move |cell| (cell.mark(shard).number, cell.last_message_to(shard)));
                let (received, said) = seen.await?.value;
                let known = before.iter().find(|(number, _, _)| *number == cell.number);
                if known.is_none_or(|(_, sent, heard)| (*sent, *heard) != (received, said)) {
                    return Ok(false);
                }
            }
        }
        for (app, before) in all {
            if app.ledger.read(message_counts).await?.value != before {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until the machines are quiet if the clock is manual, so that the effects of a request
    /// are complete when it is answered. With the wall clock it returns at once.
    pub async fn quiesce_if_manual(&self) -> Result<(), Failure> {
        if self.manual.is_some() { self.quiesce().await } else { Ok(()) }
    }

    /// Moves the manual clock to `target`. Timers that are due on the way run in order: the clock
    /// stops at each of them until all machines have processed its effects. The caller must hold
    /// `moving`.
    pub async fn move_clock(&self, manual: &ManualClock, target: Timestamp) -> Result<(), Failure> {
        self.quiesce().await?;
        let mut sent_until = manual.now();
        while let Some(stop) = self.next_stop(manual.now(), target).await? {
            // No other caller moves the clock, so it does not run back.
            let _earlier = manual.set(stop);
            sent_until = self.tell_prices_since(sent_until, stop).await?;
            self.quiesce().await?;
        }
        if let Err(shown) = manual.set(target) {
            let reason = format!("the clock shows {shown} and never runs back");
            return Err(Failure::invalid("now", reason));
        }
        self.tell_prices_since(sent_until, target).await?;
        self.quiesce().await
    }

    /// Sends prices to the cells if one took effect in between.
    async fn tell_prices_since(
        &self,
        sent_until: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, Failure> {
        let next = self.directory.current().next_price_change(sent_until);
        if next.is_some_and(|next| next <= now) {
            self.send_prices().await?;
        }
        Ok(now)
    }

    /// The next instant up to `target` at which a timer of a machine is due that may affect another
    /// machine, or at which a price takes effect. While no cell has a job, timers affect no other
    /// machine and the clock need not stop.
    async fn next_stop(
        &self,
        now: Timestamp,
        target: Timestamp,
    ) -> Result<Option<Timestamp>, Failure> {
        let mut earliest = None;
        for app in self.every_shard() {
            let deadline = app.ledger.read(|ledger| ledger.next_deadline()).await?.value;
            earliest = [earliest, deadline].into_iter().flatten().min();
        }
        let mut busy = false;
        for cell in self.cells.iter() {
            let look = |cell: &bursar_core::cell::Cell| (cell.next_deadline(), cell.job_counts());
            let (deadline, (running, waiting)) = cell.gateway.read(look).await?.value;
            busy |= running > 0 || waiting > 0;
            earliest = [earliest, deadline].into_iter().flatten().min();
        }
        let price = self.directory.current().next_price_change(now);
        let stops = [earliest.filter(|_| busy), price].into_iter().flatten();
        Ok(stops.filter(|stop| *stop > now && *stop <= target).min())
    }
}
