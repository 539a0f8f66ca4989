//! Background work for the regions: prices and metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bursar_api::Code;
use bursar_core::cell::{Cell, Command, Origin};
use bursar_core::name::ClassName;
use bursar_engine::Seen;

use crate::app::{App, READ_TIMEOUT};
use crate::followers::region_samples::RegionSamples;
use crate::machines::cells::CellService;
use crate::request::Failure;
use crate::telemetry::RegionCounts;
use crate::telemetry::monotonic::Stopwatch;

/// The delays between two checks for a price that takes effect. Clocks may stand still, and cells
/// may be away for a while.
const MIN_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The label of every GPU type that the platform neither has nor prices.
const OTHER: &str = "other";

/// How old an answer may be that is given without a key.
const MAX_AGE: Duration = Duration::from_secs(1);

/// What was measured last of a machine. Requests without a key share it: they are neither counted nor
/// shed, so one measurement is made at a time, and none while the last one is young.
pub(crate) struct LastMeasurement<T> {
    last: Arc<tokio::sync::Mutex<Option<(Stopwatch, T)>>>,
    max_age: Duration,
}

impl<T: Clone + Send + 'static> LastMeasurement<T> {
    fn new(max_age: Duration) -> LastMeasurement<T> {
        LastMeasurement { last: Arc::default(), max_age }
    }

    /// The last measurement, or a new one on a thread that may wait, once `ready` is.
    async fn get(
        &self,
        ready: impl Future<Output = Result<(), Failure>>,
        measure: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((since, value)) = &*last
            && since.elapsed() < self.max_age
        {
            return Some(value.clone());
        }
        ready.await.ok()?;
        let work = move || {
            // The lock is kept until the work is done, even if the caller goes away meanwhile.
            let value = measure();
            *last = Some((Stopwatch::start(), value.clone()));
            value
        };
        tokio::task::spawn_blocking(work).await.ok()
    }
}

impl Default for LastMeasurement<RegionCounts> {
    fn default() -> LastMeasurement<RegionCounts> {
        LastMeasurement::new(MAX_AGE)
    }
}

impl CellService {
    /// What the cell has and does, from the copy that follows it: nothing that is asked without a key
    /// costs the writer's time. None if the copy does not answer soon.
    pub(crate) async fn measured(&self) -> Option<RegionCounts> {
        let copy = self.copy().clone();
        let measured = self.measurement.get(self.copied(), move || copy.look(counts));
        tokio::time::timeout(READ_TIMEOUT, measured).await.ok().flatten()
    }

    /// Waits until the copy has all that is durable now.
    async fn copied(&self) -> Result<(), Failure> {
        match self.engine().durable().head() {
            Some(head) => self.copy().reach(head.position).await,
            None => Ok(()),
        }
    }

    /// Looks at the copy, on a thread that may wait. It costs the writer nothing.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Cell) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let turn = self.looks.take().await?;
        self.copied().await?;
        let copy = self.copy().clone();
        let look = move || {
            let _turn = turn;
            copy.look(look)
        };
        let looked = tokio::task::spawn_blocking(look).await;
        looked.map_err(|error| Failure::new(Code::Internal, error.to_string()))
    }

    /// The same with everything that the writer has decided by now. The look itself costs it nothing.
    pub(crate) async fn look_now<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Cell) -> T + Send + 'static,
    ) -> Result<Seen<T>, Failure> {
        let Seen { position, at, .. } = self.gateway.read(|_| ()).await?;
        self.copy().reach(position).await?;
        Ok(Seen { value: self.look(look).await?, position, at })
    }

    /// The figures of the region over time.
    pub(crate) fn samples(&self) -> MutexGuard<'_, RegionSamples> {
        self.copy().samples()
    }
}

/// What a cell has and does. Tenants name the types of their own nodes as they like: only those that
/// the platform prices or has itself are counted by name.
fn counts(cell: &Cell) -> RegionCounts {
    let own = cell.nodes().filter(|view| view.offer.scope.is_none());
    let own = own.map(|view| view.offer.model.as_str());
    let known: BTreeSet<&str> = own.chain(cell.priced_models()).collect();
    let mut gpus: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut counts = RegionCounts::default();
    for view in cell.nodes() {
        counts.nodes += 1;
        counts.ready += u32::from(view.is_open());
        let model = view.offer.model.as_str();
        let entry = gpus.entry(if known.contains(model) { model } else { OTHER }).or_default();
        for free in view.free.iter().map(|free| u32::from(*free)) {
            entry.0 += 1000 - free.min(1000);
            entry.1 += if view.is_open() { free } else { 0 };
        }
    }
    counts.gpus = gpus.into_iter().map(|(kind, (used, free))| (kind.into(), used, free)).collect();
    (counts.running, counts.waiting) = cell.job_counts();
    let kinds: BTreeSet<&'static str> = cell.set_aside().map(|thing| thing.kind()).collect();
    counts.set_aside = kinds.into_iter().collect();
    counts
}

impl App {
    /// Sends the current list prices to the cells. They weigh usage until a price is pinned.
    pub async fn send_prices(&self) -> Result<(), Failure> {
        let directory = self.directory.current();
        let now = self.clock.now();
        let mut types: Vec<_> =
            directory.prices_at(now).into_iter().map(|price| price.gpu_type).collect();
        types.dedup();
        for cell in self.cells.iter() {
            for model in &types {
                let Some(price) = directory.price(model, &cell.region, now) else { continue };
                let (name, price) = (model.clone(), price.length());
                let known = cell.gateway.peek(move |cell| cell.list_price(&name)).await?;
                if known != Some(price) {
                    let command = Command::SetPrice { model: model.clone(), price };
                    let origin = Origin::component("prices");
                    cell.gateway.post(origin, command).answer().await?.value?;
                }
            }
        }
        Ok(())
    }

    /// Sends the cells which classes may preempt which.
    pub async fn send_classes(&self) -> Result<(), Failure> {
        let directory = self.directory.current();
        for cell in self.cells.iter() {
            for (class, _) in directory.classes() {
                let wanted = directory.preempted_by(class).map(<[ClassName]>::to_vec);
                let name = class.clone();
                let known = move |cell: &Cell| cell.preempted_by(&name).map(<[ClassName]>::to_vec);
                if cell.gateway.peek(known).await? != wanted {
                    let command = Command::SetClass { class: class.clone(), preempts: wanted };
                    let origin = Origin::component("classes");
                    cell.gateway.post(origin, command).answer().await?.value?;
                }
            }
        }
        Ok(())
    }

    /// Sends prices that were set in advance to the cells when they take effect, until the server
    /// stops. With a manual clock, moving the clock does this.
    pub async fn follow_prices(&self) {
        let mut sent_until = self.clock.now();
        loop {
            let next = self.directory.current().next_price_change(sent_until);
            let wait = next.and_then(|next| self.clock.until(next)).unwrap_or(MAX_WAIT);
            tokio::select! {
                () = tokio::time::sleep(wait.clamp(MIN_WAIT, MAX_WAIT)) => {}
                () = self.prices_set.notified() => {}
            }
            let now = self.clock.now();
            if next.is_none_or(|next| next > now) {
                continue;
            }
            match self.send_prices().await {
                Ok(()) => sent_until = now,
                Err(failure) => {
                    tracing::warn!(detail = %failure.problem.detail, "prices were not sent to the cells");
                }
            }
        }
    }

    /// Updates the metrics of the regions and of their writers.
    pub async fn measure_regions(&self) {
        for cell in self.cells.iter() {
            let name = format!("cell-{}", cell.region);
            let (waiting, stats, status) = (cell.gateway.waiting(), cell.stats(), cell.status());
            self.metrics.machine(&name, waiting, &stats, &status);
            // While a cell does not answer its last counters stand.
            if let Some(counts) = cell.measured().await {
                self.metrics.region(&cell.region, &counts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use bursar_core::ledger::id::CellNo;
    use bursar_core::time::Timestamp;
    use bursar_engine::{EngineOptions, ManualClock, Status};
    use bursar_journal::JournalId;
    use bursar_journal::memory::MemoryJournal;
    use futures_util::future::join_all;

    use super::*;
    use crate::machines::started_cell::StartedCell;

    async fn cell() -> CellService {
        let started = tokio::task::spawn_blocking(|| {
            let journal = Arc::new(MemoryJournal::new(JournalId([7; 16])));
            let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
            StartedCell::start("eu".into(), journal, clock, EngineOptions::default(), 1000)
        });
        let started = started.await.expect("it ends").expect("an empty journal");
        let cell = CellService::new(started, CellNo(0), 0).expect("a thread");
        while cell.status() != Status::Serving {
            tokio::task::yield_now().await;
        }
        cell
    }

    #[tokio::test]
    async fn what_is_asked_without_a_key_does_not_wait_for_the_writer() {
        let cell = cell().await;
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go, may_end) = std::sync::mpsc::channel::<()>();
        let held = cell.gateway.post_peek(move |_| {
            begun.send(()).expect("it is waited for");
            may_end.recv().expect("it is let go");
        });
        has_begun.await.expect("the writer is held");
        let answers = join_all((0..100).map(|_| cell.measured())).await;
        assert!(answers.iter().all(Option::is_some), "some waited for the writer");
        // Regions, queues and fair shares are looked up on the copy too.
        let shares = (0..100).map(|_| cell.look(|cell| cell.fair_shares(Timestamp::MIN).len()));
        let shares = join_all(shares).await;
        assert!(shares.iter().all(|share| matches!(share, Ok(1))), "the root alone");
        go.send(()).expect("it listens");
        held.seen().await.expect("it goes on");
    }

    #[tokio::test]
    async fn one_measurement_serves_all_who_ask_until_it_is_old() {
        let made = Arc::new(AtomicU32::new(0));
        let ask = |measured: &Arc<LastMeasurement<u32>>| {
            let (measured, made) = (Arc::clone(measured), Arc::clone(&made));
            async move {
                let measure = move || made.fetch_add(1, Ordering::SeqCst) + 1;
                measured.get(std::future::ready(Ok(())), measure).await
            }
        };
        let young = Arc::new(LastMeasurement::new(Duration::MAX));
        let answers = join_all((0..100).map(|_| ask(&young))).await;
        assert_eq!(answers, vec![Some(1); 100]);
        let old = Arc::new(LastMeasurement::new(Duration::ZERO));
        assert_eq!((ask(&old).await, ask(&old).await), (Some(2), Some(3)));
        // One that cannot be made now leaves the next one free.
        let unready = || async { Err(Failure::invalid("x", "not now")) };
        assert_eq!(old.get(unready(), || 9).await, None);
        assert_eq!(ask(&old).await, Some(4));
    }
}
