//! The author, command and outcome of a decision, stored before its events.

use bursar_core::ledger::command::{Command, Envelope};
use bursar_core::ledger::event::Event;
use bursar_core::ledger::id::Name;

use super::refusal::RefusalCode;
use crate::record::codec::wire::{stored_choice, stored_enum, stored_struct};

/// The author, command and outcome of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditHeader {
    /// The API key or component that sent the command.
    pub actor: Name,
    /// The hash of the request.
    pub fingerprint: u128,
    /// The hash of tenant and idempotency key, if the request had one.
    pub key: Option<u128>,
    /// The command.
    pub command: CommandKind,
    /// The outcome.
    pub outcome: Outcome,
    /// The id of the request; zero if it has none. Absent in older journals.
    pub request: u128,
}

/// The outcome of a command.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out.
    Accepted,
    /// It was refused.
    Refused(RefusalCode),
}

macro_rules! pinned_names {
    ($(#[$doc:meta])* $type:ident { $($tag:literal $variant:ident $name:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the names say it, and `name` gives them to outsiders")]
        pub enum $type { $($variant),* }

        stored_choice!($type { $($tag $variant),* });

        impl $type {
            /// All variants, in the order of their stored numbers.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            /// The pinned name.
            pub fn name(self) -> &'static str {
                match self {
                    $( $type::$variant => $name, )*
                }
            }

            /// The inverse of `name`.
            pub fn from_name(name: &str) -> Option<$type> {
                $type::ALL.iter().copied().find(|kind| kind.name() == name)
            }
        }
    };
}
pub(in crate::record) use pinned_names;

pinned_names!(
    /// The variant of a [`Command`].
    CommandKind {
        0 SetPolicy "set_policy",
        1 OpenAccount "open_account",
        2 ChangeAccount "change_account",
        3 FreezeAccount "freeze_account",
        4 UnfreezeAccount "unfreeze_account",
        5 IssueGrant "issue_grant",
        6 RevokeGrant "revoke_grant",
        7 PlaceHold "place_hold",
        8 CaptureHold "capture_hold",
        9 ExtendHold "extend_hold",
        10 SettleHold "settle_hold",
        11 ReleaseHold "release_hold",
        12 Charge "charge",
        13 Refund "refund",
        14 Transfer "transfer",
        15 CollectUncollected "collect_uncollected",
        16 SetBudget "set_budget",
        17 RemoveBudget "remove_budget",
        18 RestoreHold "revive_hold",
        19 OpenRegion "open_region",
        20 SetQuota "set_quota",
        21 RemoveQuota "remove_quota",
        22 SubmitJob "submit_job",
        23 CancelJob "cancel_job",
        24 ReportUsage "report_usage",
        25 Receive "receive",
        26 KeepBatch "keep_batch",
        27 Forget "forget",
    }
);

stored_enum!(Outcome {
    0 Accepted {};
    1 Refused(code);
});

stored_struct!(AuditHeader {
    0 actor,
    1 fingerprint,
    2 key = None,
    3 command,
    4 outcome = Outcome::Accepted,
    5 request = 0,
});

impl From<&Command> for CommandKind {
    fn from(command: &Command) -> CommandKind {
        match command {
            Command::SetPolicy(_) => CommandKind::SetPolicy,
            Command::OpenAccount { .. } => CommandKind::OpenAccount,
            Command::ChangeAccount { .. } => CommandKind::ChangeAccount,
            Command::FreezeAccount { .. } => CommandKind::FreezeAccount,
            Command::UnfreezeAccount { .. } => CommandKind::UnfreezeAccount,
            Command::IssueGrant(_) => CommandKind::IssueGrant,
            Command::RevokeGrant { .. } => CommandKind::RevokeGrant,
            Command::PlaceHold(_) => CommandKind::PlaceHold,
            Command::CaptureHold { .. } => CommandKind::CaptureHold,
            Command::ExtendHold { .. } => CommandKind::ExtendHold,
            Command::SettleHold { .. } => CommandKind::SettleHold,
            Command::ReleaseHold { .. } => CommandKind::ReleaseHold,
            Command::Charge(_) => CommandKind::Charge,
            Command::Refund(_) => CommandKind::Refund,
            Command::Transfer(_) => CommandKind::Transfer,
            Command::CollectUncollected { .. } => CommandKind::CollectUncollected,
            Command::SetBudget { .. } => CommandKind::SetBudget,
            Command::RemoveBudget { .. } => CommandKind::RemoveBudget,
            Command::RestoreHold { .. } => CommandKind::RestoreHold,
            Command::Forget(_) => CommandKind::Forget,
            Command::OpenRegion { .. } => CommandKind::OpenRegion,
            Command::SetQuota { .. } => CommandKind::SetQuota,
            Command::RemoveQuota { .. } => CommandKind::RemoveQuota,
            Command::SubmitJob(_) => CommandKind::SubmitJob,
            Command::CancelJob { .. } => CommandKind::CancelJob,
            Command::ReportUsage { .. } => CommandKind::ReportUsage,
            Command::Receive { .. } => CommandKind::Receive,
            Command::KeepBatch { .. } => CommandKind::KeepBatch,
        }
    }
}

impl AuditHeader {
    /// The header of a command and its outcome.
    ///
    /// A refusal is journaled only with the event that records it, so its code is read from that
    /// event.
    pub fn of(envelope: &Envelope, command: &Command, events: &[Event]) -> AuditHeader {
        AuditHeader {
            actor: envelope.actor.clone(),
            fingerprint: envelope.fingerprint,
            key: envelope.key,
            command: CommandKind::from(command),
            outcome: Outcome::of(events),
            request: envelope.request,
        }
    }
}

impl Outcome {
    /// The outcome according to the events of one decision.
    pub fn of(events: &[Event]) -> Outcome {
        let refusal = events.iter().rev().find_map(|event| match event {
            Event::Answered { answer, .. } => answer.as_ref().as_ref().err(),
            Event::CreditsDenied { refusal, .. } => Some(refusal.as_ref()),
            _ => None,
        });
        refusal.map_or(Outcome::Accepted, |refusal| Outcome::Refused(refusal.into()))
    }
}
