//! `bursar account`.

use bursar_client::accounts;
use bursar_client::api::Amount;
use bursar_client::api::accounts::account::{
    Account, AccountFilter, AccountKind, ChangeAccount, Collect, Collected, OpenAccount, Weight,
};
use clap::{Args, Subcommand};
use serde_json::Value;
use std::time::Duration;

use crate::arguments::{ACCOUNT_KINDS, duration, object, pair, word};
use crate::exit::{Exit, Failure};
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::{ChangeArguments, ConfirmArguments, ListArguments, Session, no_more_known};

#[derive(Subcommand)]
pub(crate) enum AccountCommand {
    /// Open an account below its parent.
    #[command(after_help = "Examples:\n  bursar account open acme\n  \
        bursar account open acme:nlp --kind team --name Language")]
    Open(OpenArguments),
    /// Show an account.
    #[command(after_help = "Example:\n  bursar account show acme:nlp")]
    Show {
        /// The full path, such as acme:nlp.
        account: String,
    },
    /// List accounts.
    #[command(after_help = "Examples:\n  bursar account ls --parent acme\n  \
        bursar account ls --prefix acme: --all -o csv")]
    Ls(ListAccounts),
    /// Update an account.
    #[command(after_help = "Example:\n  bursar account change acme:nlp --weight 2.5")]
    Change(ChangeAccountArguments),
    /// Stop new spending in the subtree of an account.
    #[command(after_help = "Example:\n  bursar account freeze acme:nlp")]
    Freeze(FreezeArguments),
    /// Allow new spending again.
    #[command(after_help = "Example:\n  bursar account unfreeze acme:nlp")]
    Unfreeze(OneAccount),
    /// Repay uncollected usage from spendable credits.
    #[command(after_help = "Example:\n  bursar account collect acme:nlp --dry-run")]
    Collect(CollectArguments),
}

#[derive(Args)]
pub(crate) struct OneAccount {
    /// The full path, such as acme:nlp.
    account: String,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct FreezeArguments {
    #[command(flatten)]
    of: OneAccount,
    #[command(flatten)]
    confirm: ConfirmArguments,
}

#[derive(Args)]
pub(crate) struct CollectArguments {
    /// The full path, such as acme:nlp.
    account: String,
    /// An id for this repayment.
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct OpenArguments {
    /// The full path, such as acme:nlp.
    account: String,
    /// What the account represents; an account without a parent is an org.
    #[arg(long, value_parser = word::<AccountKind>(ACCOUNT_KINDS))]
    kind: Option<AccountKind>,
    /// The region that keeps its credits.
    #[arg(long, value_name = "REGION")]
    home_region: Option<String>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct ChangeAccountArguments {
    /// The full path, such as acme:nlp.
    account: String,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    change: ChangeArguments,
}

/// The settings of an account.
#[derive(Args)]
pub(crate) struct Settings {
    /// Display name.
    #[arg(long)]
    name: Option<String>,
    /// The fair-share weight, with at most three decimals; 1 if never set.
    #[arg(long, value_parser = weight)]
    weight: Option<Weight>,
    /// Free-form metadata; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// How long compensation credits are valid, such as 72h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    compensation_ttl: Option<Duration>,
    /// The most uncollected usage before jobs are stopped.
    #[arg(long, value_name = "AMOUNT")]
    overdraft_limit: Option<Amount>,
}

#[derive(Args)]
pub(crate) struct ListAccounts {
    /// Only children of this account.
    #[arg(long, value_name = "ACCOUNT")]
    parent: Option<String>,
    /// Only accounts whose path starts with this text.
    #[arg(long)]
    prefix: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

fn weight(text: &str) -> Result<Weight, String> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| error.to_string())
}

pub(crate) async fn run(session: &Session, command: AccountCommand) -> Result<(), Failure> {
    match command {
        AccountCommand::Open(arguments) => open(session, arguments).await,
        AccountCommand::Show { account } => session.read(accounts::show(&account)).await,
        AccountCommand::Ls(arguments) => {
            let filter = AccountFilter {
                parent: arguments.parent,
                prefix: arguments.prefix,
                limit: arguments.list.limit,
                cursor: arguments.list.cursor.clone(),
            };
            session.list(accounts::list(&filter), &arguments.list).await
        }
        AccountCommand::Change(arguments) => change(session, arguments).await,
        AccountCommand::Freeze(FreezeArguments { of: OneAccount { account, change }, confirm }) => {
            let question = format!("freeze {account}? New jobs and charges below it are refused.");
            confirm.ask_for_name(&change, &question, &account)?;
            session.change(accounts::freeze(&account), &change, no_more_known).await
        }
        AccountCommand::Unfreeze(OneAccount { account, change }) => {
            session.change(accounts::unfreeze(&account), &change, no_more_known).await
        }
        AccountCommand::Collect(CollectArguments { account, id, change }) => {
            let call = accounts::collect(&account, &Collect { id });
            let effect = async |session: &Session| {
                let shown = session.send(accounts::show(&account)).await?.value;
                Ok(vec![format!("uncollected now: {}", shown.uncollected)])
            };
            session.change(call, &change, effect).await
        }
    }
}

async fn open(session: &Session, arguments: OpenArguments) -> Result<(), Failure> {
    let kind = match arguments.kind {
        Some(kind) => kind,
        None if !arguments.account.contains(':') => AccountKind::Org,
        None => {
            let why = format!("the kind of {} is needed", arguments.account);
            return Err(Failure::because(Exit::Usage, why)
                .with_next("give --kind team, --kind project or --kind user"));
        }
    };
    let settings = arguments.settings;
    let account = OpenAccount {
        id: arguments.account,
        kind,
        name: settings.name,
        weight: settings.weight,
        home_region: arguments.home_region,
        metadata: object(&settings.metadata),
        compensation_ttl_seconds: settings.compensation_ttl.map(|ttl| ttl.as_secs()),
        overdraft_limit: settings.overdraft_limit,
    };
    session.change(accounts::open(&account), &arguments.change, no_more_known).await
}

async fn change(session: &Session, arguments: ChangeAccountArguments) -> Result<(), Failure> {
    let settings = arguments.settings;
    let change = ChangeAccount {
        name: settings.name,
        weight: settings.weight,
        metadata: object(&settings.metadata),
        compensation_ttl_seconds: settings.compensation_ttl.map(|ttl| ttl.as_secs()),
        overdraft_limit: settings.overdraft_limit,
    };
    if change == ChangeAccount::default() {
        return Err(Failure::because(Exit::Usage, "no setting was given")
            .with_next("bursar account change --help shows what can be changed"));
    }
    let call = accounts::change(&arguments.account, &change);
    session.change(call, &arguments.change, no_more_known).await
}

fn state(account: &Account) -> Cell {
    match account.frozen {
        true => Cell::new("frozen").with_tone(Tone::Bad),
        false => Cell::new("active").with_tone(Tone::Good),
    }
}

impl Row for Account {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        words("kind"),
        words("name"),
        numbers("weight"),
        words("state"),
        numbers("uncollected"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.id),
            Cell::word(&self.kind),
            Cell::maybe(self.name.as_ref()),
            Cell::word(&self.weight),
            state(self),
            Cell::new(self.uncollected),
        ]
    }
}

impl View for Account {
    fn sheet(&self) -> Sheet {
        Sheet::record([
            ("id", Cell::new(&self.id)),
            ("kind", Cell::word(&self.kind)),
            ("name", Cell::maybe(self.name.as_ref())),
            ("state", state(self)),
            ("weight", Cell::word(&self.weight)),
            ("home_region", Cell::maybe(self.home_region.as_ref())),
            ("overdraft_limit", Cell::maybe(self.overdraft_limit)),
            ("compensation_ttl_seconds", Cell::maybe(self.compensation_ttl_seconds)),
            ("uncollected", Cell::new(self.uncollected)),
            ("metadata", Cell::maybe(self.metadata.as_ref())),
        ])
    }
}

impl View for Collected {
    fn sheet(&self) -> Sheet {
        Sheet::record([
            ("id", Cell::new(&self.id)),
            ("account", Cell::new(&self.account)),
            ("collected", Cell::new(self.collected)),
            ("at", Cell::maybe_time(self.at)),
        ])
    }
}
