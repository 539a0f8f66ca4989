//! `bursar hold`.

use std::time::Duration;

use bursar_client::api::amount::Sum;
use bursar_client::api::credits::hold::{
    Capture, Extend, Hold, HoldFilter, HoldState, Lot, OnExpiry, PlaceHold, ReturnedLot, Settle,
};
use bursar_client::api::{Amount, Page};
use bursar_client::credits::holds;
use clap::{Args, Subcommand};

use crate::arguments::{ContextArguments, HOLD_STATES, ON_EXPIRY, duration, word};
use crate::command::effect;
use crate::exit::{Exit, Failure};
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::{ChangeArguments, ListArguments, Session, WatchArguments};

#[derive(Subcommand)]
pub(crate) enum HoldCommand {
    /// Reserve credits.
    #[command(after_help = "Examples:\n  bursar hold place acme:nlp 28.8 --ttl 2h\n  \
        bursar hold place acme:nlp 28.8 --gpu-type H100,A100 --dry-run")]
    Place(PlaceArguments),
    /// Show a hold.
    #[command(after_help = "Examples:\n  bursar hold show run-7\n  bursar hold show run-7 --lots")]
    Show(ShowArguments),
    /// List holds, newest first.
    #[command(after_help = "Example:\n  bursar hold ls --account acme:nlp --state open --watch")]
    Ls(ListHolds),
    /// Spend the usage so far; the total is cumulative, so repeating it changes nothing.
    #[command(after_help = "Example:\n  bursar hold capture run-7 12.5 --seq 3")]
    Capture(CaptureArguments),
    /// Extend a hold: a larger amount, a longer TTL, or both.
    #[command(after_help = "Example:\n  bursar hold extend run-7 --amount 10 --ttl 1h")]
    Extend(ExtendArguments),
    /// Spend the final usage and return the rest.
    #[command(after_help = "Example:\n  bursar hold settle run-7 20 --dry-run")]
    Settle(SettleArguments),
    /// Release a hold: credits that were not captured return to their grants.
    #[command(after_help = "Example:\n  bursar hold release run-7")]
    Release(ReleaseArguments),
}

#[derive(Args)]
pub(crate) struct PlaceArguments {
    /// The account that spends.
    account: String,
    /// The amount, with at most six decimals.
    amount: Amount,
    /// The time until it lapses unless extended, such as 90s, 2h or 7d; an hour if not given.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    context: ContextArguments,
    /// When a grant expires: its held credits can still be spent by this hold (honor_hold), or expire
    /// with it (strict); honor_hold if not given.
    #[arg(long, value_parser = word::<OnExpiry>(ON_EXPIRY))]
    on_expiry: Option<OnExpiry>,
    /// A reference, such as an order number.
    #[arg(long)]
    reference: Option<String>,
    /// An id; generated if not given.
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct ShowArguments {
    /// Its id.
    id: String,
    /// List all its lots instead.
    #[arg(long)]
    lots: bool,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Args)]
pub(crate) struct ListHolds {
    /// Only those of this account.
    #[arg(long)]
    account: Option<String>,
    /// Only those in this state.
    #[arg(long, value_parser = word::<HoldState>(HOLD_STATES))]
    state: Option<HoldState>,
    #[command(flatten)]
    list: ListArguments,
    #[command(flatten)]
    watch: WatchArguments,
}

#[derive(Args)]
pub(crate) struct CaptureArguments {
    /// Its id.
    id: String,
    /// The cumulative usage.
    total: Amount,
    /// The sequence number of this report; a repeated number changes nothing.
    #[arg(long)]
    seq: Option<u64>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct ExtendArguments {
    /// Its id.
    id: String,
    /// The additional amount.
    #[arg(long)]
    amount: Option<Amount>,
    /// The time from now until the hold lapses; never shortens it.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct SettleArguments {
    /// Its id.
    id: String,
    /// The cumulative usage at the end.
    total: Amount,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct ReleaseArguments {
    /// Its id.
    id: String,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: HoldCommand) -> Result<(), Failure> {
    match command {
        HoldCommand::Place(arguments) => place(session, arguments).await,
        HoldCommand::Show(ShowArguments { id, lots: false, .. }) => {
            session.read(holds::show(&id)).await
        }
        HoldCommand::Show(ShowArguments { id, lots: true, list }) => {
            let page = Page { limit: list.limit, cursor: list.cursor.clone() };
            session.list(holds::lots(&id, &page), &list).await
        }
        HoldCommand::Ls(arguments) => list(session, arguments).await,
        HoldCommand::Capture(CaptureArguments { id, total, seq, change }) => {
            let call = holds::capture(&id, &Capture { total, seq });
            let effect = async |session: &Session| {
                let hold = session.send(holds::show(&id)).await?.value;
                let more = effect::less(Sum::from_micros(total.micros()), hold.captured.micros());
                Ok(vec![match more.micros() {
                    ..=0 => format!("nothing changes: {} is captured already", hold.captured),
                    1.. => format!("spends {more} more of the {} that remains", hold.remaining),
                }])
            };
            session.change(call, &change, effect).await
        }
        HoldCommand::Extend(ExtendArguments { id, amount, ttl, change }) => {
            if amount.is_none() && ttl.is_none() {
                let why = "give --amount, --ttl, or both";
                return Err(Failure::because(Exit::Usage, why));
            }
            let extend = Extend { amount, ttl_seconds: ttl.map(|ttl| ttl.as_secs()) };
            let effect = async |session: &Session| {
                let Some(amount) = amount else { return Ok(vec![]) };
                let hold = session.send(holds::show(&id)).await?.value;
                effect::of_drawing(session, &hold.account, amount, hold.context.as_ref()).await
            };
            session.change(holds::extend(&id, &extend), &change, effect).await
        }
        HoldCommand::Settle(SettleArguments { id, total, change }) => {
            let call = holds::settle(&id, &Settle { total });
            let effect = async |session: &Session| closing(session, &id, Some(total)).await;
            session.change(call, &change, effect).await
        }
        HoldCommand::Release(ReleaseArguments { id, change }) => {
            let effect = async |session: &Session| closing(session, &id, None).await;
            session.change(holds::release(&id), &change, effect).await
        }
    }
}

async fn place(session: &Session, arguments: PlaceArguments) -> Result<(), Failure> {
    let hold = PlaceHold {
        id: arguments.id,
        account: arguments.account,
        amount: arguments.amount,
        ttl_seconds: arguments.ttl.map(|ttl| ttl.as_secs()),
        context: arguments.context.context(),
        on_expiry: arguments.on_expiry,
        reference: arguments.reference,
    };
    let effect = async |session: &Session| {
        effect::of_drawing(session, &hold.account, hold.amount, hold.context.as_ref()).await
    };
    session.change(holds::place(&hold), &arguments.change, effect).await
}

async fn list(session: &Session, arguments: ListHolds) -> Result<(), Failure> {
    let filter = HoldFilter {
        account: arguments.account,
        state: arguments.state,
        limit: arguments.list.limit,
        cursor: arguments.list.cursor.clone(),
    };
    let call = holds::list(&filter);
    match arguments.watch.is_on() {
        true => session.watch(call, &arguments.watch).await,
        false => session.list(call, &arguments.list).await,
    }
}

/// The effect of closing a hold at a total, or at the captured amount.
async fn closing(
    session: &Session,
    id: &str,
    total: Option<Amount>,
) -> Result<Vec<String>, Failure> {
    let hold = session.send(holds::show(id)).await?.value;
    let total = total.map_or(hold.captured, |total| Sum::from_micros(total.micros()));
    if hold.state != HoldState::Open {
        return Ok(vec!["the hold is closed already".to_owned()]);
    }
    let more = effect::less(total, hold.captured.micros());
    let back = effect::less(hold.remaining, more.micros());
    Ok(vec![if more.micros() < 0 {
        format!("would be refused: {} is captured already", hold.captured)
    } else if back.micros() < 0 {
        let short = Sum::from_micros(-back.micros());
        format!("spends {more} more, of which {short} is drawn beyond the hold")
    } else {
        format!("spends {more} more and returns {back}")
    }])
}

fn state(state: HoldState) -> Cell {
    let tone = match state {
        HoldState::Open => Tone::Good,
        HoldState::Settled | HoldState::Released => Tone::Plain,
        HoldState::Lapsed => Tone::Warning,
    };
    Cell::word(&state).with_tone(tone)
}

impl Row for Hold {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        words("account"),
        words("state"),
        numbers("amount"),
        numbers("captured"),
        numbers("remaining"),
        words("expires_at"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.id),
            Cell::new(&self.account),
            state(self.state),
            Cell::new(self.amount),
            Cell::new(self.captured),
            Cell::new(self.remaining),
            Cell::maybe_time(self.expires_at),
        ]
    }
}

impl View for Hold {
    fn sheet(&self) -> Sheet {
        let context = self.context.clone().unwrap_or_default();
        let sheet = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("account", Cell::new(&self.account)),
            ("state", state(self.state)),
            ("amount", Cell::new(self.amount)),
            ("captured", Cell::new(self.captured)),
            ("remaining", Cell::new(self.remaining)),
            ("uncollected", Cell::new(self.uncollected)),
            ("expires_at", Cell::maybe_time(self.expires_at)),
            ("gpu_types", Cell::joined(context.gpu_types.as_deref())),
            ("regions", Cell::joined(context.regions.as_deref())),
            ("class", Cell::maybe(context.class.as_ref())),
            ("on_expiry", Cell::word(&self.on_expiry)),
            ("reference", Cell::maybe(self.reference.as_ref())),
            ("created_at", Cell::time(self.created_at)),
        ]);
        let title = if self.lots_truncated { "drawn from (first 100)" } else { "drawn from" };
        let sheet = sheet.with_section(title, Sheet::list(&by_grant(&self.lots)));
        sheet.with_section("returned", Sheet::list(self.returned.as_deref().unwrap_or_default()))
    }
}

/// The parts of each grant together: credits that were returned to a grant are drawn apart.
pub(super) fn by_grant(lots: &[Lot]) -> Vec<Lot> {
    let mut grants: Vec<Lot> = Vec::new();
    for lot in lots {
        match grants.iter_mut().find(|known| known.grant == lot.grant) {
            Some(known) => {
                known.amount = Sum::from_micros(known.amount.micros() + lot.amount.micros());
            }
            None => grants.push(lot.clone()),
        }
    }
    grants
}

impl Row for Lot {
    const COLUMNS: &'static [Column] = &[words("grant"), numbers("amount")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::new(&self.grant), Cell::new(self.amount)]
    }
}

impl Row for ReturnedLot {
    const COLUMNS: &'static [Column] = &[words("grant"), numbers("amount"), words("expired")];

    fn cells(&self) -> Vec<Cell> {
        let expired = match self.expired {
            true => Cell::new("yes").with_tone(Tone::Warning),
            false => Cell::new("no"),
        };
        vec![Cell::new(&self.grant), Cell::new(self.amount), expired]
    }
}
