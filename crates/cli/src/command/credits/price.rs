//! `bursar price`.

use bursar_client::api::credits::price::{Price, PriceQuery, Prices, SetPrice};
use bursar_client::api::{Amount, Time};
use bursar_client::credits::prices;
use clap::{Args, Subcommand};

use crate::arguments::instant;
use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::{ChangeArguments, Session};

#[derive(Subcommand)]
pub(crate) enum PriceCommand {
    /// Set a price.
    #[command(after_help = "Examples:\n  bursar price set H100 2.5\n  \
        bursar price set H100 2.25 --region eu --effective 2027-01-01")]
    Set(SetArguments),
    /// List the prices in effect now, or at an instant.
    #[command(after_help = "Example:\n  bursar price ls --at 2027-01-01")]
    Ls {
        /// The instant; now if not given.
        #[arg(long, value_name = "WHEN", value_parser = instant)]
        at: Option<Time>,
    },
}

#[derive(Args)]
pub(crate) struct SetArguments {
    /// The GPU type, such as H100.
    gpu_type: String,
    /// Credits per hour of one whole GPU.
    per_gpu_hour: Amount,
    /// The region; every region without its own price if not given.
    #[arg(long)]
    region: Option<String>,
    /// When the price takes effect; now if not given.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    effective: Option<Time>,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: PriceCommand) -> Result<(), Failure> {
    match command {
        PriceCommand::Set(arguments) => set(session, arguments).await,
        PriceCommand::Ls { at } => {
            session.read(prices::list(&PriceQuery { at, ..PriceQuery::default() })).await
        }
    }
}

async fn set(session: &Session, arguments: SetArguments) -> Result<(), Failure> {
    let SetArguments { gpu_type, per_gpu_hour, region, effective, change } = arguments;
    let price = SetPrice { per_gpu_hour, region, effective_at: effective };
    let effect = async |session: &Session| {
        let book = session
            .send(prices::list(&PriceQuery { at: effective, ..PriceQuery::default() }))
            .await?
            .value;
        let same = |known: &&Price| known.gpu_type == gpu_type && known.region == price.region;
        Ok(vec![match book.data.iter().find(same) {
            Some(known) => format!("replaces {} per GPU-hour", known.per_gpu_hour),
            None => "a new price".to_owned(),
        }])
    };
    session.change(prices::set(&gpu_type, &price), &change, effect).await
}

impl Row for Price {
    const COLUMNS: &'static [Column] = &[
        words("gpu_type"),
        words("region"),
        numbers("per_gpu_hour"),
        words("effective_at"),
        numbers("version"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.gpu_type),
            Cell::new(self.region.as_deref().unwrap_or("all")),
            Cell::new(self.per_gpu_hour),
            Cell::time(self.effective_at),
            Cell::new(self.version),
        ]
    }
}

impl View for Prices {
    fn sheet(&self) -> Sheet {
        Sheet::list(&self.data)
    }
}

impl View for Price {
    fn sheet(&self) -> Sheet {
        Sheet::list(std::slice::from_ref(self))
    }
}
