//! The effect of a change, as far as it is known beforehand.

use bursar_client::accounts::{balances, budgets};
use bursar_client::api::Amount;
use bursar_client::api::accounts::balance::BalanceQuery;
use bursar_client::api::accounts::budget::{BudgetMode, BudgetUnit};
use bursar_client::api::amount::Sum;
use bursar_client::api::credits::hold::Context;

use crate::exit::Failure;
use crate::session::Session;

/// The difference of two amounts.
pub(crate) fn less(sum: Sum, amount: i128) -> Sum {
    Sum::from_micros(sum.micros() - amount)
}

/// What remains spendable after drawing an amount, and the budgets that would reject it.
pub(crate) async fn of_drawing(
    session: &Session,
    account: &str,
    amount: Amount,
    context: Option<&Context>,
) -> Result<Vec<String>, Failure> {
    let query = purpose(context);
    let balance = session.send(balances::at(account, &query)).await?.value;
    let left = less(balance.spendable, amount.micros());
    let mut lines = vec![if left.micros() < 0 {
        let missing = Sum::from_micros(-left.micros());
        format!("would be refused: {} is spendable, {missing} is missing", balance.spendable)
    } else {
        format!("spendable now {}, afterwards {left}", balance.spendable)
    }];
    for level in levels(account) {
        // Accounts above the key's scope are not visible; their budgets still apply.
        let Ok(answer) = session.client().send(budgets::list(level)).await else {
            lines.push(format!("the budgets of {level} are not visible to this key"));
            continue;
        };
        for budget in answer.value.data {
            let counts = budget.unit == BudgetUnit::Credits && budget.mode == BudgetMode::Hard;
            if counts && budget.remaining.micros() < amount.micros() {
                let (name, remaining) = (budget.name, budget.remaining);
                lines.push(format!(
                    "would be refused: the budget `{name}` of {level} has {remaining} left"
                ));
            }
        }
    }
    Ok(lines)
}

/// The account and its ancestors, from the root.
fn levels(account: &str) -> Vec<&str> {
    let ends = account.match_indices(':').map(|(index, _)| index);
    ends.chain([account.len()]).map(|end| &account[..end]).collect()
}

/// The balance query for a context. The API accepts one type and one region only.
fn purpose(context: Option<&Context>) -> BalanceQuery {
    let single = |values: Option<&Vec<String>>| match values.map(Vec::as_slice) {
        Some([one]) => Some(one.clone()),
        Some(_) | None => None,
    };
    BalanceQuery {
        gpu_type: single(context.and_then(|context| context.gpu_types.as_ref())),
        region: single(context.and_then(|context| context.regions.as_ref())),
        class: context.and_then(|context| context.class.clone()),
        ..BalanceQuery::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_go_from_the_top_to_the_account() {
        assert_eq!(levels("acme"), ["acme"]);
        assert_eq!(levels("acme:nlp:a"), ["acme", "acme:nlp", "acme:nlp:a"]);
    }
}
