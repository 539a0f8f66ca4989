//! What one job, key or node can do to others: hostile reports, scopes, failures and repeats.

mod aside;
mod attackers;
mod failures;
mod repeats;
mod scopes;
