//! Budgets.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::accounts::budget::{
    BindingBudget, Budget, BudgetLevel, BudgetTree, Budgets, SetBudget,
};
use bursar_api::credits::hold::Release;
use bursar_api::json::convert;
use bursar_api::list::Page;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::id::AccountNo;
use bursar_core::time::Timestamp;
use serde_json::Value;

use super::history::known;
use super::visible;
use crate::app::App;
use crate::auth::permissions::Authority;
use crate::change::{ChangePlan, Target};
use crate::http::convert::budget_terms;
use crate::http::extract::{Params, Path, Tree};
use crate::http::list::whole_list;
use crate::http::respond::{Answer, account_path, change, json, named, new_name};
use crate::operations::Operation;
use crate::render::{self, AnswerShape, time};
use crate::request::{Caller, Failure};

pub(in crate::http) fn plan_set(
    id: String,
    name: String,
    body: Value,
) -> Result<ChangePlan, Failure> {
    let set: SetBudget = convert(body)?;
    let path = account_path(id)?;
    let budget = new_name(name)?.into();
    let terms = budget_terms(set)?;
    let set = Command::SetBudget { path: path.clone(), budget, terms };
    Ok(ChangePlan {
        operation: Operation::SetBudget,
        authority: Authority::Role,
        target: Target::Account(path),
        creates: None,
        counts: Some(Box::new(set.clone())),
        array: None,
        build: Box::new(move |_| set),
        shape: AnswerShape::Budget,
    })
}

pub(in crate::http) fn plan_remove(
    id: String,
    name: String,
    body: Value,
) -> Result<ChangePlan, Failure> {
    let Release {} = convert(body)?;
    let path = account_path(id)?;
    let budget = named("budget", name)?.into();
    Ok(ChangePlan {
        operation: Operation::RemoveBudget,
        authority: Authority::Role,
        target: Target::Account(path.clone()),
        creates: None,
        counts: None,
        array: None,
        build: Box::new(move |_| Command::RemoveBudget { path, budget }),
        shape: AnswerShape::Nothing,
    })
}

/// Sets or replaces a budget over an account's subtree.
#[utoipa::path(put, path = "/v1/accounts/{id}/budgets/{name}", tag = "accounts",
    operation_id = "set_budget",
    params(("id" = String, Path, description = "The account's path"),
        ("name" = String, Path, description = "The budget's name within the account")),
    request_body = SetBudget,
    responses((status = 200, description = "The budget as it is now", body = Budget)))]
pub(in crate::http) async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((id, name)): Path<(String, String)>,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_set(id, name, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// Removes a budget.
#[utoipa::path(delete, path = "/v1/accounts/{id}/budgets/{name}", tag = "accounts",
    operation_id = "remove_budget",
    params(("id" = String, Path, description = "The account's path"),
        ("name" = String, Path, description = "The budget's name within the account")),
    responses((status = 204, description = "The budget was removed")))]
pub(in crate::http) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((id, name)): Path<(String, String)>,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_remove(id, name, body)?;
    change(&app, caller, fingerprint, plan).await
}

async fn all(
    app: &App,
    caller: &Caller,
    id: String,
    operation: Operation,
) -> Result<Budgets, Failure> {
    let path = visible(caller, id)?;
    let wanted = path.clone();
    let now = app.clock.now();
    let read = move |ledger: &Ledger| {
        let number = ledger.find_account(&wanted)?;
        let budgets = ledger.account(number).budgets().iter();
        let shown: Vec<Budget> =
            budgets.map(|budget| render::budget(ledger, number, budget, now)).collect();
        Some(shown)
    };
    let seen = app.read(read).await?;
    let mut data = seen.value.ok_or_else(|| Failure::not_found("account", &path))?;
    caller.principal.require(operation)?;
    data.sort_by(|a, b| a.name.cmp(&b.name));
    let (as_of, position) = (time(seen.at), seen.position);
    Ok(Budgets { data, has_more: false, next_cursor: None, as_of, position })
}

/// All budgets of an account.
#[utoipa::path(get, path = "/v1/accounts/{id}/budgets", tag = "accounts",
    operation_id = "list_budgets",
    params(("id" = String, Path, description = "The account's path"), Page),
    responses((status = 200, description = "The budgets, by name", body = Budgets)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(page): Params<Page>,
) -> Answer {
    whole_list(page.limit, page.cursor.as_deref())?;
    Ok(json(StatusCode::OK, &all(&app, &caller, id, Operation::ListBudgets).await?))
}

/// The most levels of a tree.
const MAX_LEVELS: usize = 500;

/// The budgets of an account and of all below it, and which of them bind.
#[utoipa::path(get, path = "/v1/accounts/{id}/budget-tree", tag = "accounts",
    operation_id = "get_budget_tree",
    params(("id" = String, Path, description = "The account's path")),
    responses((status = 200, description = "The budgets by account", body = BudgetTree)))]
pub(in crate::http) async fn tree(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let operation = Operation::GetBudgetTree;
    let (account, root, _, position) = known(&app, &caller, id, operation).await?;
    let ask = app
        .history
        .ask(position, move |history| history.accounts_with_budgets(root, MAX_LEVELS + 1));
    let (mut numbers, _) = ask.await?;
    let has_more = numbers.len() > MAX_LEVELS;
    numbers.truncate(MAX_LEVELS);
    if !numbers.contains(&root) {
        numbers.push(root);
    }
    let now = app.clock.now();
    let read = move |ledger: &Ledger| {
        let accounts = numbers.into_iter().map(AccountNo);
        let mut levels: Vec<BudgetLevel> =
            accounts.map(|number| level(ledger, number, now)).collect();
        // Each after the one above it: by the parts of the path, not by its letters.
        levels.sort_by(|one, next| one.account.split(':').cmp(next.account.split(':')));
        levels.retain(|level| !level.budgets.is_empty() || level.account == account.as_str());
        (account, levels)
    };
    let seen = app.read(read).await?;
    let (account, levels) = seen.value;
    let (as_of, position) = (time(seen.at), seen.position);
    let account = account.to_string();
    Ok(json(StatusCode::OK, &BudgetTree { account, levels, has_more, as_of, position }))
}

fn level(ledger: &Ledger, number: AccountNo, now: Timestamp) -> BudgetLevel {
    let own = ledger.account(number);
    let mut budgets: Vec<Budget> =
        own.budgets().iter().map(|budget| render::budget(ledger, number, budget, now)).collect();
    budgets.sort_by(|one, next| one.name.cmp(&next.name));
    let binding = ledger.path_budgets(number, now).into_iter().filter(|one| one.binds);
    let binding = binding.map(|one| {
        let shown = render::budget(ledger, one.account, &one.budget, now);
        BindingBudget { account: shown.account, name: shown.name, remaining: shown.remaining }
    });
    BudgetLevel {
        account: own.path.to_string(),
        depth: u32::try_from(own.path.matches(':').count()).unwrap_or(u32::MAX),
        budgets,
        binding: binding.collect(),
    }
}

/// A budget and its numbers in the current period.
#[utoipa::path(get, path = "/v1/accounts/{id}/budgets/{name}", tag = "accounts",
    operation_id = "get_budget",
    params(("id" = String, Path, description = "The account's path"),
        ("name" = String, Path, description = "The budget's name within the account")),
    responses((status = 200, description = "The budget", body = Budget)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((id, name)): Path<(String, String)>,
) -> Answer {
    let budgets = all(&app, &caller, id, Operation::GetBudget).await?;
    let found = budgets.data.into_iter().find(|budget| budget.name == name);
    let mut budget = found.ok_or_else(|| Failure::not_found("budget", &name))?;
    budget.as_of = Some(budgets.as_of);
    budget.position = Some(budgets.position);
    Ok(json(StatusCode::OK, &budget))
}
