//! `bursar transfer`.

use bursar_client::accounts::balances;
use bursar_client::api::Amount;
use bursar_client::api::credits::transfer::{CreateTransfer, Transfer};
use bursar_client::credits::transfers;
use clap::Args;

use crate::command::effect;
use crate::exit::Failure;
use crate::render::sheet::{Cell, Sheet, View};
use crate::session::{ChangeArguments, Session};

#[derive(Args)]
#[command(after_help = "Example:\n  bursar transfer acme acme:nlp 100")]
pub(crate) struct TransferArguments {
    /// The account whose own grants are drawn.
    from: String,
    /// The account that receives the credits.
    to: String,
    /// The amount, with at most six decimals.
    amount: Amount,
    /// An id; generated if not given.
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, arguments: TransferArguments) -> Result<(), Failure> {
    let TransferArguments { from, to, amount, id, change } = arguments;
    let transfer = CreateTransfer { id, from, to, amount };
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
    session.change(transfers::create(&transfer), &change, effect).await
}

impl View for Transfer {
    fn sheet(&self) -> Sheet {
        let sheet = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("from", Cell::new(&self.from)),
            ("to", Cell::new(&self.to)),
            ("amount", Cell::new(self.amount)),
        ]);
        sheet.with_section("drawn from", Sheet::list(&self.lots))
    }
}
