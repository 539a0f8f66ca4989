//! The author, command and outcome of a cell's decision, stored before its events.

use bursar_core::cell::NodeKey;
use bursar_core::cell::command::{Command, Origin};
use compact_str::CompactString;

use crate::record::codec::wire::{stored_choice, stored_enum, stored_struct};
use crate::record::ledger::header::pinned_names;

/// The author, command and outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellHeader {
    /// The author.
    pub author: Author,
    /// The command.
    pub command: CommandKind,
    /// The outcome.
    pub outcome: CellOutcome,
    /// The full name of the node that an operator's command names, because numbers of nodes are used
    /// again. Absent in older journals.
    pub node: Option<CompactString>,
}

/// The author of a command to a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Author {
    /// An API key or a component.
    Actor(CompactString),
    /// A ledger. The first event contains the number of the message.
    Ledger {
        /// Its shard.
        shard: u16,
    },
}

/// The outcome of a command.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CellOutcome {
    /// It was carried out.
    Accepted,
    /// It was refused: the only event is that the message was received.
    Refused,
}

pinned_names!(
    /// The variant of a [`Command`].
    CommandKind {
        0 Configure "configure",
        1 SetPrice "set_price",
        2 SetAccount "set_account",
        3 RegisterNode "register_node",
        4 Heartbeat "heartbeat",
        5 DrainNode "drain_node",
        6 ResumeNode "resume_node",
        7 RemoveNode "remove_node",
        8 PlanMaintenance "plan_maintenance",
        9 CancelMaintenance "cancel_maintenance",
        10 AdmitJob "admit_job",
        11 CancelJob "cancel_job",
        12 WithdrawJob "withdraw_job",
        13 PreemptJob "preempt_job",
        14 ConfirmPlacement "confirm_placement",
        15 RefusePlacement "refuse_placement",
        16 SetFunding "set_funding",
        17 RefuseFunding "refuse_funding",
        18 SetClass "set_class",
        19 KeepAnswer "keep_answer",
        20 Rewind "rewind",
    }
);

stored_enum!(Author {
    0 Actor(actor);
    1 Ledger { 0 shard };
});

stored_choice!(CellOutcome { 0 Accepted, 1 Refused });

stored_struct!(CellHeader {
    0 author,
    1 command,
    2 outcome = CellOutcome::Accepted,
    3 node = None,
});

impl From<&Command> for CommandKind {
    fn from(command: &Command) -> CommandKind {
        match command {
            Command::Configure(_) => CommandKind::Configure,
            Command::SetPrice { .. } => CommandKind::SetPrice,
            Command::SetAccount(_) => CommandKind::SetAccount,
            Command::SetClass { .. } => CommandKind::SetClass,
            Command::RegisterNode(_) => CommandKind::RegisterNode,
            Command::Heartbeat(_) => CommandKind::Heartbeat,
            Command::DrainNode { .. } => CommandKind::DrainNode,
            Command::ResumeNode { .. } => CommandKind::ResumeNode,
            Command::RemoveNode { .. } => CommandKind::RemoveNode,
            Command::PlanMaintenance { .. } => CommandKind::PlanMaintenance,
            Command::CancelMaintenance { .. } => CommandKind::CancelMaintenance,
            Command::AdmitJob(_) => CommandKind::AdmitJob,
            Command::CancelJob { .. } => CommandKind::CancelJob,
            Command::WithdrawJob { .. } => CommandKind::WithdrawJob,
            Command::PreemptJob { .. } => CommandKind::PreemptJob,
            Command::KeepAnswer(_) => CommandKind::KeepAnswer,
            Command::Rewind { .. } => CommandKind::Rewind,
            Command::ConfirmPlacement { .. } => CommandKind::ConfirmPlacement,
            Command::RefusePlacement { .. } => CommandKind::RefusePlacement,
            Command::SetFunding { .. } => CommandKind::SetFunding,
            Command::RefuseFunding { .. } => CommandKind::RefuseFunding,
        }
    }
}

impl From<&Origin> for Author {
    fn from(origin: &Origin) -> Author {
        match origin {
            Origin::Shell { actor, .. } => Author::Actor(actor.clone()),
            Origin::Ledger { shard, .. } => Author::Ledger { shard: *shard },
        }
    }
}

impl CellHeader {
    /// The header of a command and its outcome.
    pub fn of(origin: &Origin, command: &Command, accepted: bool) -> CellHeader {
        CellHeader {
            author: origin.into(),
            command: command.into(),
            outcome: if accepted { CellOutcome::Accepted } else { CellOutcome::Refused },
            node: named_node(command).map(NodeKey::full),
        }
    }
}

/// The node that an operator's command names.
fn named_node(command: &Command) -> Option<&NodeKey> {
    match command {
        Command::DrainNode { node, .. }
        | Command::ResumeNode { node }
        | Command::RemoveNode { node } => Some(node),
        Command::Configure(_)
        | Command::SetPrice { .. }
        | Command::SetClass { .. }
        | Command::SetAccount(_)
        | Command::RegisterNode(_)
        | Command::Heartbeat(_)
        | Command::PlanMaintenance { .. }
        | Command::CancelMaintenance { .. }
        | Command::AdmitJob(_)
        | Command::CancelJob { .. }
        | Command::WithdrawJob { .. }
        | Command::PreemptJob { .. }
        | Command::KeepAnswer(_)
        | Command::ConfirmPlacement { .. }
        | Command::RefusePlacement { .. }
        | Command::SetFunding { .. }
        | Command::Rewind { .. }
        | Command::RefuseFunding { .. } => None,
    }
}
