//! What the server does about its regions beside answering for them: prices and counters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bursar_core::cell::{Cell, Command, Origin};
use bursar_core::ledger::id::Name;

use crate::app::App;
use crate::http::problem::Failure;
use crate::telemetry::RegionCounts;

/// How long to wait before looking again for a price that begins to count: clocks may stand still,
/// and cells may be away for a while.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Stands for every GPU type that the platform neither has nor prices.
const OTHER: &str = "other";

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
    counts
}

impl App {
    /// Tells the cells the list prices of now: they weigh usage until a price is pinned.
    pub async fn tell_prices(&self) -> Result<(), Failure> {
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

    /// Tells the cells which classes may take from which.
    pub async fn tell_classes(&self) -> Result<(), Failure> {
        let directory = self.directory.current();
        for cell in self.cells.iter() {
            for (class, _) in directory.classes() {
                let wanted = directory.preempted_by(class).map(<[Name]>::to_vec);
                let name = class.clone();
                let known = move |cell: &Cell| cell.preempted_by(&name).map(<[Name]>::to_vec);
                if cell.gateway.peek(known).await? != wanted {
                    let command = Command::SetClass { class: class.clone(), preempts: wanted };
                    let origin = Origin::component("classes");
                    cell.gateway.post(origin, command).answer().await?.value?;
                }
            }
        }
        Ok(())
    }

    /// Tells the cells prices that were set ahead when they begin to count, for as long as the
    /// server runs. A manual clock does this itself, on its way.
    pub async fn follow_prices(&self) {
        let mut told = self.clock.now();
        loop {
            let next = self.directory.current().next_price_change(told);
            let wait = next.and_then(|next| self.clock.until(next)).unwrap_or(LONGEST_WAIT);
            tokio::select! {
                () = tokio::time::sleep(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)) => {}
                () = self.prices_set.notified() => {}
            }
            let now = self.clock.now();
            if next.is_none_or(|next| next > now) {
                continue;
            }
            match self.tell_prices().await {
                Ok(()) => told = now,
                Err(failure) => {
                    tracing::warn!(detail = %failure.problem.detail, "prices were not told");
                }
            }
        }
    }

    /// Brings the counters of the regions and of their writers up to date.
    pub async fn measure_regions(&self) {
        for cell in self.cells.iter() {
            let name = format!("cell-{}", cell.region);
            let (waiting, stats, status) = (cell.gateway.waiting(), cell.stats(), cell.status());
            self.metrics.machine(&name, waiting, &stats, &status);
            // While a cell does not answer its last counters stand.
            if let Ok(counts) = cell.gateway.peek(counts).await {
                self.metrics.region(&cell.region, &counts);
            }
        }
    }
}
