//! Commands that call a server: one file per noun, with its arguments, its requests and the
//! layout of its answers.

pub(crate) mod accounts;
mod credits;
mod effect;
mod jobs;
mod nodes;
pub(crate) mod system;

use clap::Subcommand;

use crate::exit::Failure;
use crate::render::format::Format;
use crate::session::Session;
use crate::session::connection::ConnectionArguments;
use accounts::{account, balance, budget, entries, forecast, quota, statement, top};
use credits::{batch, charge, grant, hold, price, refund, transfer, usage};
use jobs::{class, follow, job, logs, quote, run};
use nodes::{node, region};
use system::{api, audit, clock, cluster, events, key, mcp, session, shard};

#[derive(Subcommand)]
pub(crate) enum Remote {
    /// Run a job: show what it costs, submit it, follow it.
    Run(Box<run::RunArguments>),
    /// Show what a job would cost, and whether it would be accepted.
    Quote(Box<quote::QuoteArguments>),
    /// List jobs, newest first.
    Ls(job::LsArguments),
    /// Show everything that blocks a job, and how to fix each.
    Why(job::WhyArguments),
    /// Show the output of a job.
    Logs(logs::LogsArguments),
    /// Cancel jobs.
    Cancel(job::CancelArguments),
    /// Wait until jobs or arrays have ended, or have reached a state.
    Wait(follow::WaitArguments),
    /// Show the balance of an account.
    Balance(balance::BalanceArguments),
    /// Rank accounts or jobs.
    Top(top::TopArguments),
    /// Show opening balance, movements, closing balance and spending of a period.
    Statement(statement::StatementArguments),
    /// Show the movements of an account, newest first.
    Entries(entries::EntriesArguments),
    /// Show how long credits last, what the month will cost, and what will expire unspent.
    Forecast(forecast::ForecastArguments),
    /// List, show, retry and preempt jobs.
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Manage nodes.
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Show regions and their queues, and schedule maintenance.
    #[command(subcommand)]
    Region(region::RegionCommand),
    /// Report usage measured by another system.
    #[command(subcommand)]
    Usage(usage::UsageCommand),
    /// Open, show and change accounts.
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Issue, show and revoke grants.
    #[command(subcommand)]
    Grant(grant::GrantCommand),
    /// Reserve credits, capture usage, return the rest.
    #[command(subcommand)]
    Hold(hold::HoldCommand),
    /// Spend credits immediately, and list charges.
    Charge(charge::ChargeArguments),
    /// Return spent credits to the grants they came from, and list refunds.
    Refund(refund::RefundArguments),
    /// Move credits between accounts of one tenant, and list transfers.
    Transfer(transfer::TransferArguments),
    /// Limit spending in the subtree of an account.
    #[command(subcommand)]
    Budget(budget::BudgetCommand),
    /// Limit the concurrent GPUs and jobs of an account.
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    /// Set and show the prices of GPUs.
    #[command(subcommand)]
    Price(price::PriceCommand),
    /// List, show and set priority classes.
    #[command(subcommand)]
    Class(class::ClassCommand),
    /// Create, list, rotate and revoke API keys.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// List who is signed in, and end sessions.
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Read the audit trail and its proofs.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Follow the event feed.
    Events(events::EventsArguments),
    /// Run many operations from a file.
    Batch(batch::BatchArguments),
    /// Show, drain and resume the servers of a store.
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// List, add, drain and open the ledger shards of a store.
    #[command(subcommand)]
    Shard(shard::ShardCommand),
    /// Accept a server's clock; show and move the manual one of a test server.
    #[command(subcommand)]
    Clock(clock::ClockCommand),
    /// Let a language model read through this connection: a server of the Model Context Protocol.
    #[command(
        after_help = "Example:\n  bursar mcp --key-file viewer.key\n\nOne JSON-RPC message a line on \
        standard input and output. Every tool reads; none changes anything. Give it a viewer's key."
    )]
    Mcp,
    /// Send any request, with this connection's key.
    Api(api::ApiArguments),
}

/// The commands by task, in the order of the help. Others follow under "More".
pub(crate) const TASKS: &[(&str, &[&str])] = &[
    ("First steps", &["demo", "login", "logout", "doctor", "whoami", "context"]),
    ("Jobs", &["run", "quote", "ls", "why", "logs", "wait", "cancel", "job"]),
    ("Credits", &["balance", "forecast", "statement", "entries", "top", "grant", "transfer"]),
    ("Charging", &["charge", "refund", "hold", "usage", "batch", "price"]),
    ("Accounts and limits", &["account", "budget", "quota", "class", "key", "session"]),
    ("Nodes", &["node", "region", "agent"]),
    ("Server", &["serve", "config", "admin", "cluster", "shard", "clock"]),
    ("Audit and integration", &["audit", "events", "api", "mcp", "explain", "completion", "man"]),
    ("Tools without a server", &["credits", "pool", "simulate", "bench"]),
];

/// Runs a command against its server.
pub(crate) fn run(
    command: Remote,
    connection: &ConnectionArguments,
    format: Format,
) -> Result<(), Failure> {
    // Commands on a store need no server and must not run inside a runtime.
    let command = match command {
        Remote::Audit(audit::AuditCommand::Local(command)) if command.remote().is_none() => {
            return crate::local::audit::run(command, format);
        }
        Remote::Cluster(cluster::ClusterCommand::AcceptLoss(arguments)) => return arguments.run(),
        other => other,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let session = Session::open(connection, format)?;
        match command {
            Remote::Run(arguments) => run::run(&session, *arguments).await,
            Remote::Quote(arguments) => quote::run(&session, *arguments).await,
            Remote::Ls(arguments) => job::ls(&session, arguments).await,
            Remote::Why(arguments) => job::why(&session, arguments).await,
            Remote::Logs(arguments) => logs::logs(&session, arguments).await,
            Remote::Cancel(arguments) => job::cancel(&session, arguments).await,
            Remote::Wait(arguments) => follow::wait(&session, arguments).await,
            Remote::Job(command) => job::run(&session, command).await,
            Remote::Node(command) => node::run(&session, command).await,
            Remote::Region(command) => region::run(&session, command).await,
            Remote::Usage(command) => usage::run(&session, command).await,
            Remote::Balance(arguments) => balance::balance(&session, arguments).await,
            Remote::Top(arguments) => top::run(&session, arguments).await,
            Remote::Statement(arguments) => statement::run(&session, arguments).await,
            Remote::Entries(arguments) => entries::run(&session, arguments).await,
            Remote::Forecast(arguments) => forecast::run(&session, arguments).await,
            Remote::Account(command) => account::run(&session, command).await,
            Remote::Grant(command) => grant::run(&session, command).await,
            Remote::Hold(command) => hold::run(&session, command).await,
            Remote::Charge(arguments) => charge::run(&session, arguments).await,
            Remote::Refund(arguments) => refund::run(&session, arguments).await,
            Remote::Transfer(arguments) => transfer::run(&session, arguments).await,
            Remote::Budget(command) => budget::run(&session, command).await,
            Remote::Quota(command) => quota::run(&session, command).await,
            Remote::Price(command) => price::run(&session, command).await,
            Remote::Class(command) => class::run(&session, command).await,
            Remote::Key(command) => key::run(&session, command).await,
            Remote::Session(command) => session::run(&session, command).await,
            Remote::Audit(command) => audit::run(&session, command).await,
            Remote::Events(arguments) => events::run(&session, arguments).await,
            Remote::Batch(arguments) => batch::run(&session, arguments).await,
            Remote::Cluster(command) => cluster::run(&session, command).await,
            Remote::Shard(command) => shard::run(&session, command).await,
            Remote::Clock(command) => clock::run(&session, command).await,
            Remote::Mcp => mcp::run(&session).await,
            Remote::Api(arguments) => api::run(&session, arguments).await,
        }
    })
}
