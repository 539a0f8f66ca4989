//! `bursar region`: capacity, queues and maintenance of regions.

use bursar_client::api::Time;
use bursar_client::api::nodes::region::{
    Maintenance, PlanMaintenance, Queue, QueueEntry, QueueQuery, Region, ShareEntry,
};
use bursar_client::nodes::regions;
use clap::{Args, Subcommand};

use crate::arguments::{instant, some};
use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::{ChangeArguments, Session, WatchArguments, no_more_known};

#[derive(Subcommand)]
pub(crate) enum RegionCommand {
    /// List regions with their total and free capacity.
    #[command(after_help = "Example:\n  bursar region ls --watch")]
    Ls {
        #[command(flatten)]
        watch: WatchArguments,
    },
    /// Show waiting jobs in order, what blocks them, and the fair share of each account.
    #[command(after_help = "Example:\n  bursar region queue default")]
    Queue(QueueArguments),
    /// Schedule maintenance.
    #[command(visible_alias = "maintenance")]
    #[command(after_help = "Example:\n  bursar region plan default --from 2027-01-31T12:00:00Z \
        --to 2027-01-31T14:00:00Z --node node-1")]
    Plan(PlanArguments),
    /// Show scheduled maintenance.
    #[command(visible_alias = "maintenance-show")]
    #[command(after_help = "Example:\n  bursar region plan-show default")]
    PlanShow {
        /// The region.
        region: String,
    },
    /// Cancel maintenance: nodes accept new attempts again immediately.
    #[command(visible_alias = "maintenance-rm")]
    #[command(after_help = "Example:\n  bursar region plan-rm default")]
    PlanRm {
        /// The region.
        region: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

#[derive(Args)]
pub(crate) struct QueueArguments {
    /// The region.
    region: String,
    /// How many to show; 25 if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: Option<u32>,
    #[command(flatten)]
    watch: WatchArguments,
}

#[derive(Args)]
pub(crate) struct PlanArguments {
    /// The region.
    region: String,
    /// When it begins.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    from: Time,
    /// When it ends.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    to: Time,
    /// A node; may be given several times. Every node registered now if not given.
    #[arg(long = "node", value_name = "NAME")]
    nodes: Vec<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: RegionCommand) -> Result<(), Failure> {
    match command {
        RegionCommand::Ls { watch } => session.watch(regions::list(), &watch).await,
        RegionCommand::Queue(QueueArguments { region, limit, watch }) => {
            session
                .watch(regions::queue(&region, &QueueQuery { limit, cursor: None }), &watch)
                .await
        }
        RegionCommand::Plan(PlanArguments { region, from, to, nodes, change }) => {
            let plan = PlanMaintenance { from, to, nodes: some(&nodes) };
            let call = regions::plan_maintenance(&region, &plan);
            session.change(call, &change, no_more_known).await
        }
        RegionCommand::PlanShow { region } => session.read(regions::maintenance(&region)).await,
        RegionCommand::PlanRm { region, change } => {
            let done = format!("maintenance of {region} is cancelled");
            session.remove(regions::cancel_maintenance(&region), &change, &done).await
        }
    }
}

impl Row for Region {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        numbers("nodes"),
        numbers("ready"),
        words("gpus"),
        words("free"),
        numbers("running"),
        numbers("waiting"),
    ];

    fn cells(&self) -> Vec<Cell> {
        let all: Vec<String> =
            self.gpus.iter().map(|gpus| format!("{} {}", gpus.total, gpus.kind)).collect();
        let free: Vec<String> =
            self.gpus.iter().map(|gpus| format!("{} {}", gpus.free, gpus.kind)).collect();
        vec![
            Cell::new(&self.id),
            Cell::new(self.nodes),
            Cell::new(self.nodes_ready),
            Cell::joined(Some(&all)),
            Cell::joined(Some(&free)),
            Cell::new(self.running_jobs),
            Cell::new(self.waiting_jobs),
        ]
    }
}

impl Row for QueueEntry {
    const COLUMNS: &'static [Column] = &[
        numbers("position"),
        words("job"),
        words("account"),
        words("class"),
        words("estimated_start_at"),
        words("waits_for"),
    ];

    fn cells(&self) -> Vec<Cell> {
        let reasons: Vec<String> =
            self.blockers.iter().map(|blocker| blocker.detail.clone()).collect();
        vec![
            Cell::new(self.position),
            Cell::new(&self.job),
            Cell::new(&self.account),
            Cell::new(&self.class),
            Cell::maybe_time(self.estimated_start_at),
            Cell::new(reasons.join("; ")),
        ]
    }
}

impl Row for ShareEntry {
    const COLUMNS: &'static [Column] = &[
        words("account"),
        numbers("weight"),
        numbers("entitled"),
        numbers("received"),
        numbers("usage"),
        numbers("per_hour"),
        numbers("gpus"),
        numbers("running"),
        numbers("waiting"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.account),
            Cell::new(self.weight),
            Cell::new(self.entitled),
            Cell::new(self.received),
            Cell::new(self.usage),
            Cell::new(self.per_hour),
            Cell::new(self.gpus),
            Cell::new(self.running_jobs),
            Cell::new(self.waiting_jobs),
        ]
    }
}

impl View for Queue {
    fn sheet(&self) -> Sheet {
        Sheet::list(&self.data).with_section("fair shares", Sheet::list(&self.shares))
    }
}

impl View for Maintenance {
    fn sheet(&self) -> Sheet {
        Sheet::record([
            ("region", Cell::new(&self.region)),
            ("from", Cell::time(self.from)),
            ("to", Cell::time(self.to)),
            ("nodes", Cell::joined(Some(&self.nodes))),
        ])
    }
}
