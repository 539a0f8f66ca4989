//! The fair shares with which a waiting job competes.

use bursar_api::amount::Sum;
use bursar_api::jobs::job::JobShare;
use bursar_core::cell::Cell;
use bursar_core::cell::schedule::explain::FairShare;
use bursar_core::ledger::id::CellNo;
use bursar_core::machine::Machine;
use bursar_core::name::AccountPath;

use crate::app::App;
use crate::auth::Principal;
use crate::request::Failure;

/// The shares of an account and those above it that the caller may see, in each of the cells.
pub(super) async fn shares(
    app: &App,
    principal: &Principal,
    cells: &[CellNo],
    account: &AccountPath,
) -> Result<Vec<JobShare>, Failure> {
    let mut shares = Vec::new();
    for service in cells.iter().filter_map(|number| app.cells.numbered(*number)) {
        let (account, principal) = (account.clone(), principal.clone());
        let look = move |cell: &Cell| {
            let on_path = cell.fair_shares(cell.now()).into_iter().filter(|share| {
                is_at_or_above(&share.account, &account) && principal.sees(&share.account)
            });
            (on_path.collect::<Vec<FairShare>>(), cell.half_life_ms())
        };
        let (found, half_life_ms) = service.gateway.read(look).await?.value;
        let half_life_seconds = u64::try_from(half_life_ms / 1000).unwrap_or(0);
        let millionths = |ppm: u64| Sum::from_micros(ppm.into());
        shares.extend(found.into_iter().map(|share| JobShare {
            region: service.region.to_string(),
            account: share.account.to_string(),
            weight: Sum::from_thousandths(share.weight),
            entitled: millionths(share.entitled_ppm),
            received: millionths(share.received_ppm),
            usage: Sum::from_micros(i128::try_from(share.usage_micros).unwrap_or(i128::MAX)),
            half_life_seconds,
        }));
    }
    Ok(shares)
}

/// Whether a path is an account or one above it. The root of a cell's tree has an empty path.
fn is_at_or_above(path: &str, account: &str) -> bool {
    let rest = account.strip_prefix(path).filter(|_| !path.is_empty());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accounts_on_the_path_are_above() {
        assert!(is_at_or_above("acme", "acme:nlp"));
        assert!(is_at_or_above("acme:nlp", "acme:nlp"));
        for other in ["", "acm", "acme:nlp:ada", "acme:vision"] {
            assert!(!is_at_or_above(other, "acme:nlp"), "{other}");
        }
    }
}
