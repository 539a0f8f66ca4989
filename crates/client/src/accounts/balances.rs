//! Balances, entries, statements, forecasts and rankings.

use bursar_api::List;
use bursar_api::accounts::balance::{Balance, BalanceQuery};
use bursar_api::accounts::effective::{Effective, EffectiveQuery};
use bursar_api::accounts::entry::{EntriesQuery, Entry};
use bursar_api::accounts::forecast::{Forecast, ForecastQuery};
use bursar_api::accounts::spend::{AccountSeries, AccountSeriesQuery, Spend, SpendQuery};
use bursar_api::accounts::statement::{Statement, StatementQuery};
use bursar_api::accounts::top::{Top, TopQuery};

use crate::call::{Call, path};

/// The balance of an account now.
pub fn now(account: &str) -> Call<Balance> {
    Call::get(path(&["v1", "accounts", account, "balance"]))
}

/// The balance of an account at an instant, for a GPU type, a region or a class.
pub fn at(account: &str, query: &BalanceQuery) -> Call<Balance> {
    now(account).with_query(query)
}

/// The movements of an account, newest first.
pub fn entries(account: &str, query: &EntriesQuery) -> Call<List<Entry>> {
    Call::get(path(&["v1", "accounts", account, "entries"])).with_query(query)
}

/// Opening balance, movements, closing balance and spending of a period.
pub fn statement(account: &str, query: &StatementQuery) -> Call<Statement> {
    Call::get(path(&["v1", "accounts", account, "statement"])).with_query(query)
}

/// How long the credits of an account last.
pub fn forecast(account: &str, query: &ForecastQuery) -> Call<Forecast> {
    Call::get(path(&["v1", "accounts", account, "forecast"])).with_query(query)
}

/// What an account can spend: its own credits and those above it, and the budgets that limit it.
pub fn effective(account: &str, query: &EffectiveQuery) -> Call<Effective> {
    Call::get(path(&["v1", "accounts", account, "effective"])).with_query(query)
}

/// What an account and all below it spent, by period and group.
pub fn spend(account: &str, query: &SpendQuery) -> Call<Spend> {
    Call::get(path(&["v1", "accounts", account, "spend"])).with_query(query)
}

/// An amount of an account's own credits over time.
pub fn series(account: &str, query: &AccountSeriesQuery) -> Call<AccountSeries> {
    Call::get(path(&["v1", "accounts", account, "series"])).with_query(query)
}

/// Rankings of accounts and jobs.
pub fn top(query: &TopQuery) -> Call<Top> {
    Call::get("/v1/top").with_query(query)
}
