//! `bursar class`.

use bursar_client::api::amount::Amount;
use bursar_client::api::jobs::class::{Class, SetClass};
use bursar_client::jobs::classes;
use clap::{Args, Subcommand};
use std::time::Duration;

use crate::arguments::duration;
use crate::exit::{Exit, Failure};
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::{ChangeArguments, ListArguments, Session, no_more_known};

#[derive(Subcommand)]
pub(crate) enum ClassCommand {
    /// List priority classes.
    #[command(after_help = "Example:\n  bursar class ls")]
    Ls,
    /// Show a priority class.
    #[command(after_help = "Example:\n  bursar class show high")]
    Show {
        /// Its name.
        name: String,
    },
    /// Set or replace a priority class.
    #[command(after_help = "Example:\n  \
        bursar class set deadline --rank 35 --preempts batch,normal --grace 2m --multiplier 1.5")]
    Set(SetArguments),
}

#[derive(Args)]
pub(crate) struct SetArguments {
    /// Its name.
    name: String,
    /// A higher rank is scheduled first. The built-in classes have 10, 20, 30 and 40.
    #[arg(long)]
    rank: u32,
    /// The classes whose jobs may be preempted for this one, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    preempts: Vec<String>,
    /// The time between the stop signal and the kill, such as 90s or 2m.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    grace: Duration,
    /// Its jobs are preemptible unless they state otherwise.
    #[arg(long)]
    preemptible: bool,
    /// The price multiplier; 1 if not given.
    #[arg(long, value_name = "FACTOR")]
    multiplier: Option<Amount>,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: ClassCommand) -> Result<(), Failure> {
    match command {
        ClassCommand::Ls => session.list(classes::list(), &ListArguments::default()).await,
        ClassCommand::Show { name } => {
            let classes = session.send(classes::list()).await?.value.data;
            match classes.iter().find(|class| class.name == name) {
                Some(class) => session.show_value(class),
                None => {
                    let why = format!("there is no class `{name}`");
                    Err(Failure::because(Exit::NotFound, why).with_next("bursar class ls"))
                }
            }
        }
        ClassCommand::Set(arguments) => {
            let class = SetClass {
                rank: arguments.rank,
                preempts: arguments.preempts,
                grace_seconds: u32::try_from(arguments.grace.as_secs()).unwrap_or(u32::MAX),
                default_preemptible: arguments.preemptible,
                price_multiplier: arguments.multiplier,
            };
            let call = classes::set(&arguments.name, &class);
            session.change(call, &arguments.change, no_more_known).await
        }
    }
}

impl Row for Class {
    const COLUMNS: &'static [Column] = &[
        words("name"),
        numbers("rank"),
        words("preempts"),
        numbers("grace_seconds"),
        words("preemptible"),
        numbers("multiplier"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.name),
            Cell::new(self.rank),
            Cell::joined(Some(&self.preempts)),
            Cell::new(self.grace_seconds),
            Cell::new(self.default_preemptible),
            Cell::new(self.price_multiplier),
        ]
    }
}

impl View for Class {
    fn sheet(&self) -> Sheet {
        Sheet::record([
            ("name", Cell::new(&self.name)),
            ("rank", Cell::new(self.rank)),
            ("preempts", Cell::joined(Some(&self.preempts))),
            ("grace_seconds", Cell::new(self.grace_seconds)),
            ("default_preemptible", Cell::new(self.default_preemptible)),
            ("price_multiplier", Cell::new(self.price_multiplier)),
        ])
    }
}
