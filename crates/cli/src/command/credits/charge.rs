//! `bursar charge`.

use bursar_client::api::credits::charge::{Charge, ChargeFilter, CreateCharge};
use bursar_client::api::{Amount, Time};
use bursar_client::credits::charges;
use clap::{Args, Subcommand};

use super::hold::by_grant;
use crate::arguments::{ContextArguments, instant};
use crate::command::effect;
use crate::exit::{Exit, Failure};
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::{ChangeArguments, PeriodArguments, Session};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:\n  bursar charge acme:nlp 5\n  \
    bursar charge acme:nlp 5 --allow-partial --id invoice-7\n  bursar charge --show invoice-7\n  \
    bursar charge ls --account acme --from 2026-11-01")]
pub(crate) struct ChargeArguments {
    #[command(subcommand)]
    command: Option<ChargeCommand>,
    /// The account that spends.
    #[arg(required_unless_present = "show")]
    account: Option<String>,
    /// The amount, with at most six decimals.
    #[arg(required_unless_present = "show")]
    amount: Option<Amount>,
    /// Show an earlier charge instead of creating one.
    #[arg(long, value_name = "ID", conflicts_with_all = ["account", "amount"])]
    show: Option<String>,
    /// Charge less if fewer credits are spendable.
    #[arg(long)]
    allow_partial: bool,
    #[command(flatten)]
    context: ContextArguments,
    /// When the usage happened, if it is reported late.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    effective: Option<Time>,
    /// An id; generated if not given.
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Subcommand)]
pub(crate) enum ChargeCommand {
    /// List charges, newest first.
    #[command(after_help = "Example:\n  bursar charge ls --account acme --from 2026-11-01 --all")]
    Ls {
        /// Only of this account and all below it.
        #[arg(long)]
        account: Option<String>,
        #[command(flatten)]
        period: PeriodArguments,
    },
}

pub(crate) async fn run(session: &Session, arguments: ChargeArguments) -> Result<(), Failure> {
    if let Some(ChargeCommand::Ls { account, period }) = arguments.command {
        let PeriodArguments { from, to, list } = period;
        let (limit, cursor) = (list.limit, list.cursor.clone());
        let filter = ChargeFilter { account, from, to, limit, cursor };
        return session.list(charges::list(&filter), &list).await;
    }
    if let Some(id) = arguments.show {
        return session.read(charges::show(&id)).await;
    }
    let (Some(account), Some(amount)) = (arguments.account, arguments.amount) else {
        return Err(Failure::because(Exit::Usage, "the account and the amount are needed"));
    };
    let charge = CreateCharge {
        id: arguments.id,
        account,
        amount,
        allow_partial: arguments.allow_partial.then_some(true),
        context: arguments.context.context(),
        effective_at: arguments.effective,
    };
    let effect = async |session: &Session| {
        effect::of_drawing(session, &charge.account, charge.amount, charge.context.as_ref()).await
    };
    session.change(charges::create(&charge), &arguments.change, effect).await
}

impl View for Charge {
    fn sheet(&self) -> Sheet {
        let sheet = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("account", Cell::new(&self.account)),
            ("requested", Cell::new(self.requested)),
            ("charged", Cell::new(self.charged)),
            ("refunded", Cell::maybe(self.refunded)),
            ("spendable_after", Cell::new(self.spendable_after)),
            ("effective_at", Cell::maybe_time(self.effective_at)),
            ("created_at", Cell::time(self.created_at)),
        ]);
        let title = if self.lots_truncated { "drawn from (first 100)" } else { "drawn from" };
        sheet.with_section(title, Sheet::list(&by_grant(&self.lots)))
    }
}

impl Row for Charge {
    const COLUMNS: &'static [Column] = &[
        words("created_at"),
        words("account"),
        numbers("charged"),
        numbers("refunded"),
        words("effective_at"),
        words("id"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::time(self.created_at),
            Cell::new(&self.account),
            Cell::new(self.charged),
            Cell::maybe(self.refunded),
            Cell::maybe_time(self.effective_at),
            Cell::new(&self.id),
        ]
    }
}
