//! `bursar transfer`.

use bursar_client::accounts::balances;
use bursar_client::api::Amount;
use bursar_client::api::credits::transfer::{CreateTransfer, Transfer, TransferFilter};
use bursar_client::credits::transfers;
use clap::{Args, Subcommand};

use super::hold::by_grant;
use crate::command::effect;
use crate::exit::{Exit, Failure};
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::{ChangeArguments, PeriodArguments, Session};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "Examples:\n  bursar transfer acme acme:nlp 100 --reason 'Second quarter'\n  \
    bursar transfer ls --account acme:nlp --from 2026-11-01"
)]
pub(crate) struct TransferArguments {
    #[command(subcommand)]
    command: Option<TransferCommand>,
    /// The account whose own grants are drawn.
    #[arg(required = true)]
    from: Option<String>,
    /// The account that receives the credits.
    #[arg(required = true)]
    to: Option<String>,
    /// The amount, with at most six decimals.
    #[arg(required = true)]
    amount: Option<Amount>,
    /// Why, for people.
    #[arg(long)]
    reason: Option<String>,
    /// Your own reference, such as the number of a ticket.
    #[arg(long)]
    reference: Option<String>,
    /// An id; generated if not given.
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Subcommand)]
pub(crate) enum TransferCommand {
    /// List transfers, newest first.
    #[command(after_help = "Example:\n  bursar transfer ls --account acme:nlp --from 2026-11-01")]
    Ls {
        /// Only from or to this account or one below it.
        #[arg(long)]
        account: Option<String>,
        #[command(flatten)]
        period: PeriodArguments,
    },
    /// Show a transfer.
    #[command(after_help = "Example:\n  bursar transfer show transfer-3")]
    Show {
        /// The transfer.
        id: String,
    },
}

async fn look(session: &Session, command: TransferCommand) -> Result<(), Failure> {
    match command {
        TransferCommand::Ls { account, period } => {
            let PeriodArguments { from, to, list } = period;
            let (limit, cursor) = (list.limit, list.cursor.clone());
            let filter = TransferFilter { account, from, to, limit, cursor };
            session.list(transfers::list(&filter), &list).await
        }
        TransferCommand::Show { id } => session.read(transfers::show(&id)).await,
    }
}

pub(crate) async fn run(session: &Session, arguments: TransferArguments) -> Result<(), Failure> {
    let TransferArguments { command, from, to, amount, reason, reference, id, change } = arguments;
    if let Some(command) = command {
        return look(session, command).await;
    }
    let (Some(from), Some(to), Some(amount)) = (from, to, amount) else {
        let missing = "the two accounts and the amount are needed";
        return Err(Failure::because(Exit::Usage, missing));
    };
    let transfer = CreateTransfer { id, from, to, amount, reason, reference };
    let effect = async |session: &Session| {
        let balance = session.send(balances::now(&transfer.from)).await?.value;
        let left = effect::less(balance.available, transfer.amount.micros());
        let (from, available) = (&transfer.from, balance.available);
        Ok(vec![if left.micros() < 0 {
            format!("would be refused: {from} has {available} of its own")
        } else {
            format!("{from} has {available} of its own, afterwards {left}")
        }])
    };
    let call = transfers::create(&transfer);
    session.change_and_read(call, &change, effect, |made| transfers::show(&made.id)).await
}

impl View for Transfer {
    fn sheet(&self) -> Sheet {
        let sheet = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("from", Cell::new(&self.from)),
            ("to", Cell::new(&self.to)),
            ("amount", Cell::new(self.amount)),
            ("reason", Cell::maybe(self.reason.as_ref())),
            ("reference", Cell::maybe(self.reference.as_ref())),
            ("created_at", Cell::maybe_time(self.created_at)),
        ]);
        sheet.with_section("drawn from", Sheet::list(&by_grant(&self.lots)))
    }
}

impl Row for Transfer {
    const COLUMNS: &'static [Column] = &[
        words("created_at"),
        words("from"),
        words("to"),
        numbers("amount"),
        words("reason"),
        words("reference"),
        words("id"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::maybe_time(self.created_at),
            Cell::new(&self.from),
            Cell::new(&self.to),
            Cell::new(self.amount),
            Cell::maybe(self.reason.as_ref()),
            Cell::maybe(self.reference.as_ref()),
            Cell::new(&self.id),
        ]
    }
}
