//! Renders why an attempt was preempted, with the numbers that the caller may see.

use bursar_api::amount::Sum;
use bursar_api::jobs::timeline::Preemption;
use bursar_api::words::gpu_time;
use bursar_core::cell::ids::JobId;
use bursar_core::cell::schedule::preemption::cause::PreemptionCause;
use bursar_core::ledger::Ledger;

use crate::auth::{Principal, tenant_of};
use crate::render::time;

/// The accounts at which two paths part: the first segments in which they differ, with those before.
fn diverging_accounts<'a>(own: &'a str, other: &'a str) -> (&'a str, &'a str) {
    let ends = |path: &'a str| {
        let colons = path.match_indices(':').map(|(at, _)| at);
        colons.chain([path.len()]).map(|end| &path[..end]).collect::<Vec<&str>>()
    };
    let (own_ends, other_ends) = (ends(own), ends(other));
    let pairs = own_ends.into_iter().zip(other_ends);
    pairs.into_iter().find(|(own, other)| own != other).unwrap_or((own, other))
}

/// Renders the cause of a preemption of a job of the account `own`.
pub(crate) fn preemption(
    ledger: &Ledger,
    principal: &Principal,
    own: &str,
    by: JobId,
    cause: PreemptionCause,
) -> Preemption {
    let taker = ledger.job_of_cells(by).and_then(|number| ledger.job(number));
    let path = taker.map(|taker| &*ledger.account(taker.order.account).path);
    let seen = path.is_some_and(|path| principal.sees(path));
    let name = taker.filter(|_| seen).map(|taker| taker.order.id.to_string());
    let who = name.as_ref().map_or("another job".to_owned(), |name| format!("job {name}"));
    let rule = cause.rule();
    let mut shown = Preemption {
        rule: rule.number(),
        name: rule.name().to_owned(),
        detail: String::new(),
        by: name,
        class_rank: None,
        by_class_rank: None,
        usage: None,
        by_usage: None,
        ran_seconds: None,
        protected_seconds: None,
        reserved_from: None,
    };
    let words = match cause {
        PreemptionCause::Class { victim, taker } => {
            (shown.class_rank, shown.by_class_rank) = (Some(victim.0), Some(taker.0));
            format!("the class of {who} has rank {}, its own {}", taker.0, victim.0)
        }
        PreemptionCause::Share { victim_used, taker_used, ran_ms, quantum_ms } => {
            // Without the other job, the accounts part at the tenants or below.
            let (ours, theirs) =
                path.map_or((tenant_of(own), ""), |path| diverging_accounts(own, path));
            let credits = |micros: u64| Sum::from_micros(micros.into());
            let seconds = |ms: i64| u64::try_from(ms / 1000).unwrap_or(0);
            shown.usage = principal.sees(ours).then(|| credits(victim_used));
            shown.by_usage = (seen && principal.sees(theirs)).then(|| credits(taker_used));
            shown.ran_seconds = Some(seconds(ran_ms));
            shown.protected_seconds = Some(seconds(quantum_ms));
            let used = match (shown.usage, shown.by_usage) {
                (Some(used), Some(less)) => format!(
                    "{ours} has used {used} credits per unit of weight, more than the {less} that \
                     {theirs} will have used after a quantum of {who}"
                ),
                (Some(used), None) => format!(
                    "{ours} has used {used} credits per unit of weight, more than the account of \
                     {who} will have used after a quantum of it"
                ),
                (None, _) => {
                    format!("its account has used more of its share than the account of {who}")
                }
            };
            let [ran, quantum] = [ran_ms, quantum_ms].map(|ms| gpu_time(ms.unsigned_abs()));
            format!("{used}; it ran for {ran} and was protected for {quantum}")
        }
        PreemptionCause::OwnJob { victim_gpus, taker_gpus } => format!(
            "its {victim_gpus} GPUs make room for {taker_gpus} of {who}, a larger job of its account"
        ),
        PreemptionCause::Guest { start_at } => {
            shown.reserved_from = Some(time(start_at));
            format!("it ran as a guest on nodes reserved for {who}, which can start now")
        }
    };
    shown.detail = format!("rule {}, {}: {words}", shown.rule, shown.name);
    shown
}

#[cfg(test)]
mod tests {
    use super::diverging_accounts;

    #[test]
    fn accounts_are_compared_where_their_paths_part() {
        for (own, other, parts) in [
            ("acme:nlp:u1", "beta", ("acme", "beta")),
            ("acme:nlp:u1", "acme:vision:u1", ("acme:nlp", "acme:vision")),
            ("acme:nlp:u1", "acme:nlp:u2", ("acme:nlp:u1", "acme:nlp:u2")),
            ("acme:nlp", "acme:nlp2", ("acme:nlp", "acme:nlp2")),
            ("acme", "acme:nlp", ("acme", "acme:nlp")),
        ] {
            assert_eq!(diverging_accounts(own, other), parts, "{own} and {other}");
        }
    }
}
