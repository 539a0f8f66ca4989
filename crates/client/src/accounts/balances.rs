//! What an account has, had and will have; what moved; who has most.

use bursar_api::List;
use bursar_api::accounts::balance::{
    Balance, BalanceQuery, EntriesQuery, Entry, Forecast, Statement, StatementQuery,
};
use bursar_api::accounts::top::{Top, TopQuery};

use crate::call::{Call, path};

/// What an account has now.
pub fn now(account: &str) -> Call<Balance> {
    Call::get(path(&["v1", "accounts", account, "balance"]))
}

/// What an account has at an instant or for a purpose.
pub fn at(account: &str, query: &BalanceQuery) -> Call<Balance> {
    now(account).with_query(query)
}

/// The movements of an account, newest first.
pub fn entries(account: &str, query: &EntriesQuery) -> Call<List<Entry>> {
    Call::get(path(&["v1", "accounts", account, "entries"])).with_query(query)
}

/// Opening balance, movements and closing balance of a time.
pub fn statement(account: &str, query: &StatementQuery) -> Call<Statement> {
    Call::get(path(&["v1", "accounts", account, "statement"])).with_query(query)
}

/// How long the credits of an account last.
pub fn forecast(account: &str) -> Call<Forecast> {
    Call::get(path(&["v1", "accounts", account, "forecast"]))
}

/// Who spends, has or holds most.
pub fn top(query: &TopQuery) -> Call<Top> {
    Call::get("/v1/top").with_query(query)
}
