//! Credits that expire soon, as `balance`, `whoami` and `doctor` point them out.

use bursar_client::api::Time;
use bursar_client::api::accounts::balance::Expiring;
use bursar_client::api::accounts::effective::Effective;
use bursar_client::api::amount::Sum;

/// Credits that expire within this time are pointed out.
const SOON_MS: i64 = 14 * 86_400_000;

/// The sum of the credits that expire soon, and when the first of them do.
pub(crate) fn expiring_soon<'a>(
    all: impl IntoIterator<Item = &'a Expiring>,
    as_of: Time,
) -> Option<(Sum, Time)> {
    let end = as_of.millis() + SOON_MS;
    let soon = all.into_iter().filter(|one| one.expires_at.millis() <= end);
    let soon: Vec<&Expiring> = soon.collect();
    let first = soon.iter().map(|one| one.expires_at).min()?;
    let sum = Sum::from_micros(soon.iter().map(|one| one.amount.micros()).sum());
    Some((sum, first))
}

/// The same for an account: its own credits and those above it.
pub(crate) fn of_account(effective: &Effective) -> Option<(Sum, Time)> {
    let above = effective.inherited.iter().flat_map(|credits| &credits.expiring);
    expiring_soon(effective.own.expiring.iter().chain(above), effective.as_of)
}
