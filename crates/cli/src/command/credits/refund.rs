//! `bursar refund`.

use bursar_client::api::Amount;
use bursar_client::api::amount::Sum;
use bursar_client::api::credits::refund::{CreateRefund, Refund, RefundFilter};
use bursar_client::credits::{charges, holds, refunds};
use clap::{Args, Subcommand};

use crate::command::effect;
use crate::command::jobs::select;
use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::render::times;
use crate::session::{ChangeArguments, PeriodArguments, Session};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "Examples:\n  bursar refund --charge invoice-7 --reason 'Wrong account'\n  \
    bursar refund --hold run-7 --amount 2 --compensate --reference ticket-12\n  \
    bursar refund ls --account acme --from 2026-11-01\n  bursar refund show refund-3"
)]
pub(crate) struct RefundArguments {
    #[command(subcommand)]
    command: Option<RefundCommand>,
    #[command(flatten)]
    what: RefundTarget,
    /// The amount; all credits not yet refunded if not given.
    #[arg(long)]
    amount: Option<Amount>,
    /// Re-issue credits whose grants have expired since.
    #[arg(long)]
    compensate: bool,
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

/// What is refunded: exactly one of these.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct RefundTarget {
    /// The charge.
    #[arg(long, value_name = "ID")]
    charge: Option<String>,
    /// The closed hold.
    #[arg(long, value_name = "ID")]
    hold: Option<String>,
    /// The ended job: its id, the beginning of one, or `last`.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum RefundCommand {
    /// List refunds, newest first.
    #[command(after_help = "Example:\n  bursar refund ls --account acme --job train-7")]
    Ls {
        /// Only of what this account, or one below it, had spent.
        #[arg(long)]
        account: Option<String>,
        /// Only of this charge.
        #[arg(long, value_name = "ID")]
        charge: Option<String>,
        /// Only of this hold.
        #[arg(long, value_name = "ID", conflicts_with = "charge")]
        hold: Option<String>,
        /// Only of this job.
        #[arg(long, value_name = "ID", conflicts_with_all = ["charge", "hold"])]
        job: Option<String>,
        #[command(flatten)]
        period: PeriodArguments,
    },
    /// Show a refund.
    #[command(after_help = "Example:\n  bursar refund show refund-3")]
    Show {
        /// The refund.
        id: String,
    },
}

async fn look(session: &Session, command: RefundCommand) -> Result<(), Failure> {
    match command {
        RefundCommand::Ls { account, charge, hold, job, period } => {
            let PeriodArguments { from, to, list } = period;
            let job = match job {
                Some(job) => Some(select::job_id(session, job).await?),
                None => None,
            };
            let (limit, cursor) = (list.limit, list.cursor.clone());
            let filter = RefundFilter { account, charge, hold, job, from, to, limit, cursor };
            session.list(refunds::list(&filter), &list).await
        }
        RefundCommand::Show { id } => session.read(refunds::show(&id)).await,
    }
}

pub(crate) async fn run(session: &Session, arguments: RefundArguments) -> Result<(), Failure> {
    if let Some(command) = arguments.command {
        return look(session, command).await;
    }
    let job = match arguments.what.job {
        Some(job) => Some(select::job_id(session, job).await?),
        None => None,
    };
    let refund = CreateRefund {
        id: arguments.id,
        charge: arguments.what.charge,
        hold: arguments.what.hold,
        job,
        amount: arguments.amount,
        compensate: arguments.compensate.then_some(true),
        reason: arguments.reason,
        reference: arguments.reference,
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
    let call = refunds::create(&refund);
    let read = |made: &Refund| refunds::show(&made.id);
    match session.change_and_read(call, &arguments.change, effect, read).await {
        Err(failure) if failure.says(NOTHING_LEFT) => {
            Err(with_last(session, &refund, failure).await)
        }
        done => done,
    }
}

/// How the server begins its answer where nothing can be refunded.
const NOTHING_LEFT: &str = "nothing is left to refund";

/// Adds the refund that was the last one, if there is one.
async fn with_last(session: &Session, wanted: &CreateRefund, failure: Failure) -> Failure {
    let filter = RefundFilter {
        // Another tenant may have a charge with this id.
        account: session.tenant().map(str::to_owned),
        charge: wanted.charge.clone(),
        hold: wanted.hold.clone(),
        job: wanted.job.clone(),
        limit: Some(1),
        ..RefundFilter::default()
    };
    let Ok(found) = session.client().send(refunds::list(&filter)).await else { return failure };
    let Some(last) = found.value.data.into_iter().next() else { return failure };
    let at = last.created_at.map(|at| format!(" at {}", times::local(at))).unwrap_or_default();
    failure
        .with_particular(format!("the last refund is {} of {}{at}", last.id, last.refunded))
        .with_next(format!("bursar refund show {}", last.id))
}

impl View for Refund {
    fn sheet(&self) -> Sheet {
        let sheet = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("charge", Cell::maybe(self.charge.as_ref())),
            ("hold", Cell::maybe(self.hold.as_ref())),
            ("job", Cell::maybe(self.job.as_ref())),
            ("account", Cell::maybe(self.account.as_ref())),
            ("refunded", Cell::new(self.refunded)),
            ("reason", Cell::maybe(self.reason.as_ref())),
            ("reference", Cell::maybe(self.reference.as_ref())),
            ("created_at", Cell::maybe_time(self.created_at)),
        ]);
        sheet.with_section("returned to", Sheet::list(&self.lots))
    }
}

impl Row for Refund {
    const COLUMNS: &'static [Column] = &[
        words("created_at"),
        words("account"),
        numbers("refunded"),
        words("job"),
        words("hold"),
        words("charge"),
        words("reason"),
        words("reference"),
        words("id"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::maybe_time(self.created_at),
            Cell::maybe(self.account.as_ref()),
            Cell::new(self.refunded),
            Cell::maybe(self.job.as_ref()),
            Cell::maybe(self.hold.as_ref()),
            Cell::maybe(self.charge.as_ref()),
            Cell::maybe(self.reason.as_ref()),
            Cell::maybe(self.reference.as_ref()),
            Cell::new(&self.id),
        ]
    }
}
