//! What a cell answers to a command.

use std::fmt;

use compact_str::CompactString;

use crate::name::NodeName;
use crate::time::Timestamp;

/// The answer to a request, stored under its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredAnswer {
    /// Its code, which means something to the server alone.
    pub code: u16,
    /// The body, if there is one.
    pub body: Option<CompactString>,
    /// The scope of the key that was answered, as an account path or `*`. Earlier builds did not note it.
    pub scope: Option<CompactString>,
}

/// The answer to a command that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The command was carried out, now or before.
    Done,
    /// A message from the ledger that was received before.
    Duplicate,
    /// The request was carried out before, under the same idempotency key.
    Repeated,
    /// The answer to a registration.
    Registered {
        /// The incarnation that each report must contain.
        incarnation: u32,
        /// The interval between reports.
        heartbeat_ms: i64,
        /// The node's attempts are lost if it does not report by then.
        lease_until: Timestamp,
    },
    /// The answer to a report. The orders are read with `Cell::orders` once the report's events are
    /// applied.
    Reported {
        /// The node's attempts are lost if it does not report by then.
        lease_until: Timestamp,
    },
}

/// Why a command was refused, in the order in which it is checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Messages of this ledger are missing between the last one accepted and this one.
    MessageGap {
        /// The expected number.
        expected: u64,
    },
    /// The idempotency key was used for another request.
    KeyReused,
    /// A field of the command is invalid.
    Invalid {
        /// The field.
        field: &'static str,
        /// What it must be.
        must: &'static str,
    },
    /// The owner has no node of this name.
    UnknownNode,
    /// No job has this number.
    UnknownJob,
    /// The attempt is not the job's current one, or was answered before.
    StaleAttempt,
    /// The report is from an earlier incarnation of the agent, which must register again.
    StaleIncarnation {
        /// The current incarnation.
        current: u32,
    },
    /// The scope of the agent does not cover the accounts of the node.
    NodeScope,
    /// Attempts run on the node, so it can neither be removed nor change its hardware.
    NodeBusy,
    /// Another node of the owner has one of the GPUs and a valid lease: one GPU would be allocated
    /// twice.
    GpuTaken {
        /// The GPU.
        uuid: CompactString,
        /// The node that has it.
        node: NodeName,
    },
    /// The job was admitted before.
    AlreadyAdmitted,
    /// No maintenance window has this id.
    UnknownMaintenance,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::MessageGap { expected } => write!(f, "message {expected} is missing"),
            Refusal::KeyReused => f.write_str("the idempotency key was used for another request"),
            Refusal::Invalid { field, must } => write!(f, "{field} must be {must}"),
            Refusal::UnknownNode => f.write_str("there is no such node"),
            Refusal::UnknownJob => f.write_str("there is no such job"),
            Refusal::StaleAttempt => f.write_str("the attempt is not the current one of its job"),
            Refusal::StaleIncarnation { current } => {
                write!(f, "the current incarnation is {current}")
            }
            Refusal::NodeScope => f.write_str("the scope does not cover the accounts of the node"),
            Refusal::NodeBusy => f.write_str("attempts run on the node"),
            Refusal::GpuTaken { uuid, node } => write!(f, "node {node} has the GPU {uuid}"),
            Refusal::AlreadyAdmitted => f.write_str("the job was admitted before"),
            Refusal::UnknownMaintenance => f.write_str("no such maintenance is planned"),
        }
    }
}

impl Refusal {
    /// Whether the same command may be accepted later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Refusal::MessageGap { .. } | Refusal::NodeBusy | Refusal::GpuTaken { .. } => true,
            Refusal::Invalid { .. }
            | Refusal::UnknownNode
            | Refusal::UnknownJob
            | Refusal::StaleAttempt
            | Refusal::StaleIncarnation { .. }
            | Refusal::NodeScope
            | Refusal::KeyReused
            | Refusal::AlreadyAdmitted
            | Refusal::UnknownMaintenance => false,
        }
    }
}
