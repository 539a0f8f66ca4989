//! Accounts, their balances, budgets and quotas.

pub mod balances;
pub mod budgets;
pub mod quotas;

use bursar_api::List;
use bursar_api::accounts::account::{
    Account, AccountFilter, ChangeAccount, Collect, Collected, OpenAccount,
};

use crate::call::{Call, Method, path};

/// Opens an account below its parent.
pub fn open(account: &OpenAccount) -> Call<Account> {
    Call::post("/v1/accounts", account)
}

/// Reads an account.
pub fn show(id: &str) -> Call<Account> {
    Call::get(path(&["v1", "accounts", id]))
}

/// Lists accounts.
pub fn list(filter: &AccountFilter) -> Call<List<Account>> {
    Call::get("/v1/accounts").with_query(filter)
}

/// Updates an account. Absent fields stay as they are.
pub fn change(id: &str, change: &ChangeAccount) -> Call<Account> {
    Call::new(Method::Patch, path(&["v1", "accounts", id])).with_body(change)
}

/// Stops new spending in the subtree of an account.
pub fn freeze(id: &str) -> Call<Account> {
    Call::new(Method::Post, path(&["v1", "accounts", id, "freeze"])).with_json("{}")
}

/// Allows new spending again.
pub fn unfreeze(id: &str) -> Call<Account> {
    Call::new(Method::Post, path(&["v1", "accounts", id, "unfreeze"])).with_json("{}")
}

/// Repays uncollected usage from spendable credits.
pub fn collect(id: &str, collect: &Collect) -> Call<Collected> {
    Call::post(path(&["v1", "accounts", id, "collect"]), collect)
}
