//! `bursar node`.

use bursar_client::api::amount::Sum;
use bursar_client::api::nodes::node::{DrainNode, Node, NodeFilter, NodeGpu, NodeState};
use bursar_client::api::words::counted;
use bursar_client::nodes;
use clap::{Args, Subcommand};

use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::{ChangeArguments, ConfirmArguments, ListArguments, Session, WatchArguments};

#[derive(Subcommand)]
pub(crate) enum NodeCommand {
    /// List nodes with their usage.
    #[command(after_help = "Example:\n  bursar node ls --region eu --watch")]
    Ls(LsArguments),
    /// Show a node and its GPUs.
    #[command(after_help = "Example:\n  bursar node show node-1")]
    Show {
        /// The node.
        node: String,
    },
    /// Drain a node: no new attempts are placed on it.
    #[command(after_help = "Examples:\n  bursar node drain node-1\n  \
        bursar node drain node-1 --force")]
    Drain(DrainArguments),
    /// Resume a node: new attempts are placed on it again.
    #[command(after_help = "Example:\n  bursar node resume node-1")]
    Resume {
        /// The node.
        node: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Remove a node.
    #[command(after_help = "Example:\n  bursar node rm node-1\n\n\
        An agent that still runs registers its node again: stop the agent first.")]
    Rm {
        /// The node.
        node: String,
        #[command(flatten)]
        confirm: ConfirmArguments,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

#[derive(Args)]
pub(crate) struct LsArguments {
    /// Only nodes of this region.
    #[arg(long)]
    region: Option<String>,
    #[command(flatten)]
    list: ListArguments,
    #[command(flatten)]
    watch: WatchArguments,
}

#[derive(Args)]
pub(crate) struct DrainArguments {
    /// The node.
    node: String,
    /// Stop running attempts, including those that are not preemptible.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    confirm: ConfirmArguments,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: NodeCommand) -> Result<(), Failure> {
    match command {
        NodeCommand::Ls(LsArguments { region, list, watch }) => {
            let (limit, cursor) = (list.limit, list.cursor.clone());
            let call = nodes::list(&NodeFilter { region, limit, cursor });
            if watch.is_on() {
                return session.watch(call, &watch).await;
            }
            session.list(call, &list).await
        }
        NodeCommand::Show { node } => session.read(nodes::show(&node)).await,
        NodeCommand::Drain(DrainArguments { node, force, confirm, change }) => {
            if force {
                confirm.ask(&change, &format!("stop everything that runs on {node}?"))?;
            }
            let drain = DrainNode { force: force.then_some(true) };
            let effect = async |session: &Session| running(session, &node).await;
            session.change(nodes::drain(&node, &drain), &change, effect).await
        }
        NodeCommand::Resume { node, change } => {
            let effect = async |session: &Session| running(session, &node).await;
            session.change(nodes::resume(&node), &change, effect).await
        }
        NodeCommand::Rm { node, confirm, change } => {
            confirm.ask_for_name(&change, &format!("remove {node}?"), &node)?;
            let done = format!("{node} is removed");
            session.remove(nodes::delete(&node), &change, &done).await
        }
    }
}

/// The running attempts of a node, for --dry-run.
async fn running(session: &Session, node: &str) -> Result<Vec<String>, Failure> {
    let node = session.send(nodes::show(node)).await?.value;
    let count = node.attempts.len();
    let verb = if count == 1 { "runs" } else { "run" };
    Ok(vec![format!("{} {verb} there now", counted(count, "attempt"))])
}

fn state_cell(state: NodeState) -> Cell {
    let tone = match state {
        NodeState::Ready => Tone::Good,
        NodeState::Draining | NodeState::Drained | NodeState::Maintenance => Tone::Warning,
        NodeState::Lost => Tone::Bad,
    };
    Cell::word(&state).with_tone(tone)
}

fn used(node: &Node) -> Sum {
    Sum::from_micros(node.gpus.iter().map(|gpu| gpu.used.micros()).sum())
}

fn gpu_type(node: &Node) -> &str {
    node.gpus.first().map_or("none", |gpu| gpu.kind.as_str())
}

impl Row for Node {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        words("region"),
        words("state"),
        words("gpu_type"),
        numbers("gpus"),
        numbers("used"),
        numbers("cpus"),
        numbers("memory_gib"),
        words("lease_until"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.id),
            Cell::new(&self.region),
            state_cell(self.state),
            Cell::new(gpu_type(self)),
            Cell::new(self.gpus.len()),
            Cell::new(used(self)),
            Cell::new(self.cpus),
            Cell::new(self.memory_gib),
            Cell::time(self.lease_until),
        ]
    }
}

impl Row for NodeGpu {
    const COLUMNS: &'static [Column] =
        &[words("uuid"), words("type"), numbers("memory_gib"), numbers("used")];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.uuid),
            Cell::new(&self.kind),
            Cell::new(self.memory_gib),
            Cell::new(self.used),
        ]
    }
}

impl View for Node {
    fn sheet(&self) -> Sheet {
        let labels: Vec<String> =
            self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let fields = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("region", Cell::new(&self.region)),
            ("rack", Cell::maybe(self.rack.as_ref())),
            ("scope", Cell::new(&self.scope)),
            ("state", state_cell(self.state)),
            ("cpus", Cell::new(self.cpus)),
            ("memory_gib", Cell::new(self.memory_gib)),
            ("labels", Cell::joined(Some(&labels))),
            ("attempts", Cell::joined(Some(&self.attempts))),
            ("incarnation", Cell::new(self.incarnation)),
            ("lease_until", Cell::time(self.lease_until)),
        ]);
        fields.with_section("gpus", Sheet::list(&self.gpus))
    }
}
