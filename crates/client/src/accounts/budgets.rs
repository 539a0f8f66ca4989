//! Budgets: limits on spending in the subtree of an account.

use bursar_api::accounts::budget::{Budget, BudgetTree, Budgets, SetBudget};

use crate::call::{Call, Method, Nothing, path};

/// Sets or replaces a budget.
pub fn set(account: &str, name: &str, budget: &SetBudget) -> Call<Budget> {
    Call::put(path(&["v1", "accounts", account, "budgets", name]), budget)
}

/// Reads a budget with its usage in the current period.
pub fn show(account: &str, name: &str) -> Call<Budget> {
    Call::get(path(&["v1", "accounts", account, "budgets", name]))
}

/// All budgets of an account.
pub fn list(account: &str) -> Call<Budgets> {
    Call::get(path(&["v1", "accounts", account, "budgets"]))
}

/// The budgets of an account and of all below it.
pub fn tree(account: &str) -> Call<BudgetTree> {
    Call::get(path(&["v1", "accounts", account, "budget-tree"]))
}

/// Removes a budget.
pub fn remove(account: &str, name: &str) -> Call<Nothing> {
    Call::new(Method::Delete, path(&["v1", "accounts", account, "budgets", name]))
}
