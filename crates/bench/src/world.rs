//! The commands that benchmarks send.

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, IssueGrant, PlaceHold, Usage,
};
use bursar_core::ledger::id::Name;
use bursar_core::ledger::{Command, Envelope};
use bursar_core::name::{AccountPath, GrantId, HoldId};
use bursar_core::time::{DAY_MS, Timestamp};
use compact_str::format_compact;

/// Amount of one hold.
pub(crate) const HELD: i64 = 4000;
/// Amount that settling a hold charges.
pub(crate) const CHARGED: i64 = 2400;
/// Grants per account, each with its own expiry.
pub(crate) const GRANTS: i64 = 10;
/// Total amount granted to each org.
pub(crate) const ENDOWED: i64 = GRANTS * AMOUNT;
/// Amount of one grant. No run spends all of it.
const AMOUNT: i64 = 1_000_000_000_000;

pub(crate) fn micros(amount: i64) -> Credits {
    Credits::from_micros(amount).expect("benchmarks use small positive amounts")
}

/// The envelope of a command, with its own idempotency key if `keyed`.
pub(crate) fn envelope(request: u128, keyed: bool) -> Envelope {
    Envelope {
        actor: Name::const_new("bench"),
        fingerprint: request,
        key: keyed.then(|| request.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060)),
        ..Envelope::default()
    }
}

pub(crate) fn open(path: &AccountPath, kind: AccountKind) -> Command {
    Command::OpenAccount { path: path.clone(), kind, settings: AccountSettings::default() }
}

/// A grant that is valid for `days` from `start`.
pub(crate) fn grant(
    id: GrantId,
    account: &AccountPath,
    amount: i64,
    start: Timestamp,
    days: i64,
) -> Command {
    Command::IssueGrant(IssueGrant {
        expires_at: Some(start.plus_millis(days * DAY_MS)),
        ..IssueGrant::purchase(id, account.clone(), micros(amount))
    })
}

pub(crate) fn place(id: HoldId, account: &AccountPath) -> Command {
    Command::PlaceHold(PlaceHold {
        ttl_ms: Some(3_600_000),
        ..PlaceHold::new(id, account.clone(), micros(HELD))
    })
}

pub(crate) fn settle(tenant: &AccountPath, hold: HoldId) -> Command {
    let usage = Usage::Total(micros(CHARGED));
    Command::SettleHold { tenant: tenant.clone(), hold, usage, cause: Cause::Holder }
}

/// The names of `count` orgs.
pub(crate) fn orgs(count: usize) -> Vec<AccountPath> {
    (0..count).map(|number| format_compact!("org{number}").into()).collect()
}

/// Commands that open the orgs and issue their grants.
pub(crate) fn setup_commands(
    orgs: &[AccountPath],
    start: Timestamp,
) -> impl Iterator<Item = Command> {
    let opened = orgs.iter().map(|name| open(name, AccountKind::Org));
    let days = (0..GRANTS).flat_map(move |day| orgs.iter().map(move |name| (day, name)));
    let granted = days.map(move |(day, name)| {
        // Longer than the time of any run.
        grant(format_compact!("{name}-{day}").into(), name, AMOUNT, start, 400 + day)
    });
    opened.chain(granted)
}
