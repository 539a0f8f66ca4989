//! `bursar quota`.

use std::collections::BTreeMap;

use bursar_client::accounts::quotas;
use bursar_client::api::accounts::quota::{Quota, QuotaQuery, Quotas, SetQuota};
use clap::{Args, Subcommand};

use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::{ChangeArguments, ConfirmArguments, Session, no_more_known};

#[derive(Subcommand)]
pub(crate) enum QuotaCommand {
    /// Set or replace the quota of an account for one region, or for every region.
    #[command(after_help = "Example:\n  bursar quota set acme:nlp --gpus H100=8 --gpus '*=16'")]
    Set(SetArguments),
    /// Show the quotas of an account.
    #[command(after_help = "Example:\n  bursar quota show acme:nlp")]
    Show {
        /// The account.
        account: String,
    },
    /// Remove the quota for one region, or for every region. Asks on a terminal.
    #[command(after_help = "Example:\n  bursar quota rm acme:nlp --region eu")]
    Rm(RemoveArguments),
}

#[derive(Args)]
pub(crate) struct SetArguments {
    /// The account.
    account: String,
    /// The region; every region if not given.
    #[arg(long)]
    region: Option<String>,
    /// GPUs in use at once of a type, `*` for all together; may be given several times.
    #[arg(long, value_name = "TYPE=COUNT", value_parser = gpus)]
    gpus: Vec<(String, u32)>,
    /// Jobs running at once.
    #[arg(long, value_name = "COUNT")]
    running_jobs: Option<u32>,
    /// Jobs waiting at once.
    #[arg(long, value_name = "COUNT")]
    waiting_jobs: Option<u32>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct RemoveArguments {
    /// The account.
    account: String,
    /// The region; the quota for every region if not given.
    #[arg(long)]
    region: Option<String>,
    #[command(flatten)]
    confirm: ConfirmArguments,
    #[command(flatten)]
    change: ChangeArguments,
}

fn gpus(text: &str) -> Result<(String, u32), String> {
    let wrong = || "write it as H100=8, or '*=8' for all types together".to_owned();
    let (name, count) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.to_owned(), count.parse().map_err(|_| wrong())?))
}

pub(crate) async fn run(session: &Session, command: QuotaCommand) -> Result<(), Failure> {
    match command {
        QuotaCommand::Set(arguments) => {
            let gpus: BTreeMap<String, u32> = arguments.gpus.into_iter().collect();
            let quota = SetQuota {
                region: arguments.region,
                gpus: (!gpus.is_empty()).then_some(gpus),
                running_jobs: arguments.running_jobs,
                waiting_jobs: arguments.waiting_jobs,
            };
            let call = quotas::set(&arguments.account, &quota);
            session.change(call, &arguments.change, no_more_known).await
        }
        QuotaCommand::Show { account } => session.read(quotas::show(&account)).await,
        QuotaCommand::Rm(RemoveArguments { account, region, confirm, change }) => {
            let of = region.as_deref().map(|region| format!(" in {region}")).unwrap_or_default();
            confirm.ask(&change, &format!("remove the quota of {account}{of}?"))?;
            let done = format!("the quota of {account} is removed");
            let call = quotas::remove(&account, &QuotaQuery { region });
            session.remove(call, &change, &done).await
        }
    }
}

impl Row for Quota {
    const COLUMNS: &'static [Column] =
        &[words("region"), words("gpus"), numbers("running_jobs"), numbers("waiting_jobs")];

    fn cells(&self) -> Vec<Cell> {
        let gpus: Vec<String> =
            self.gpus.iter().map(|(name, count)| format!("{name}={count}")).collect();
        vec![
            Cell::new(self.region.as_deref().unwrap_or("each")),
            Cell::joined(Some(&gpus)),
            Cell::maybe(self.running_jobs),
            Cell::maybe(self.waiting_jobs),
        ]
    }
}

impl View for Quotas {
    fn sheet(&self) -> Sheet {
        Sheet::list(&self.data)
    }
}

impl View for Quota {
    fn sheet(&self) -> Sheet {
        Sheet::list(std::slice::from_ref(self))
    }
}
