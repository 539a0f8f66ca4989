//! `bursar refund`.

use bursar_client::api::Amount;
use bursar_client::api::amount::Sum;
use bursar_client::api::credits::refund::{CreateRefund, Refund};
use bursar_client::credits::{charges, holds, refunds};
use clap::Args;

use crate::command::effect;
use crate::exit::Failure;
use crate::render::sheet::{Cell, Sheet, View};
use crate::session::{ChangeArguments, Session};

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar refund --charge invoice-7\n  \
    bursar refund --hold run-7 --amount 2 --compensate")]
pub(crate) struct RefundArguments {
    #[command(flatten)]
    what: What,
    /// The amount; all credits not yet refunded if not given.
    #[arg(long)]
    amount: Option<Amount>,
    /// Re-issue credits whose grants have expired since.
    #[arg(long)]
    compensate: bool,
    /// An id; generated if not given.
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

/// What is refunded: exactly one of these.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct What {
    /// The charge.
    #[arg(long, value_name = "ID")]
    charge: Option<String>,
    /// The closed hold.
    #[arg(long, value_name = "ID")]
    hold: Option<String>,
    /// The ended job.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
}

pub(crate) async fn run(session: &Session, arguments: RefundArguments) -> Result<(), Failure> {
    let refund = CreateRefund {
        id: arguments.id,
        charge: arguments.what.charge,
        hold: arguments.what.hold,
        job: arguments.what.job,
        amount: arguments.amount,
        compensate: arguments.compensate.then_some(true),
    };
    let effect = async |session: &Session| {
        let spent = match (&refund.charge, &refund.hold) {
            (Some(id), _) => {
                let charge = session.send(charges::show(id)).await?.value;
                effect::less(charge.charged, charge.refunded.unwrap_or_default().micros())
            }
            (None, Some(id)) => session.send(holds::show(id)).await?.value.captured,
            (None, None) => return Ok(vec![]),
        };
        let wanted = refund.amount.map_or(spent, |amount| Sum::from_micros(amount.micros()));
        Ok(vec![if wanted > spent {
            format!("would be refused: only {spent} was spent")
        } else {
            format!("returns {wanted} of the {spent} that was spent")
        }])
    };
    session.change(refunds::create(&refund), &arguments.change, effect).await
}

impl View for Refund {
    fn sheet(&self) -> Sheet {
        let sheet = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("charge", Cell::maybe(self.charge.as_ref())),
            ("hold", Cell::maybe(self.hold.as_ref())),
            ("refunded", Cell::new(self.refunded)),
        ]);
        sheet.with_section("returned to", Sheet::list(&self.lots))
    }
}
