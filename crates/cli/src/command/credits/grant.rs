//! `bursar grant`.

use bursar_client::api::credits::grant::{Grant, GrantFilter, GrantKind, IssueGrant, Restriction};
use bursar_client::api::{Amount, Time};
use bursar_client::credits::grants;
use clap::{Args, Subcommand};

use crate::arguments::{Expiry, GRANT_KINDS, expiry, instant, object, pair, some, word};
use crate::exit::Failure;
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::{ChangeArguments, ConfirmArguments, ListArguments, Session};

#[derive(Subcommand)]
pub(crate) enum GrantCommand {
    /// Issue credits to an account.
    #[command(after_help = "Examples:\n  bursar grant add acme 1000 --kind purchase\n  \
        bursar grant add acme:nlp 50 --kind promotion --expires 2027-01-31 --gpu-type H100")]
    Add(Box<AddArguments>),
    /// Show a grant and how its amount was used.
    #[command(after_help = "Example:\n  bursar grant show welcome-pack")]
    Show {
        /// Its id.
        id: String,
    },
    /// List grants, newest first.
    #[command(after_help = "Example:\n  bursar grant ls --account acme:nlp")]
    Ls(ListGrants),
    /// Revoke the unspent part of a grant; held parts are revoked when they return.
    #[command(after_help = "Example:\n  bursar grant revoke welcome-pack --dry-run")]
    Revoke(RevokeArguments),
}

#[derive(Args)]
pub(crate) struct AddArguments {
    /// The account that receives the grant.
    account: String,
    /// The amount, with at most six decimals.
    amount: Amount,
    /// The kind of the grant.
    #[arg(long, default_value = "grant", value_parser = word::<GrantKind>(GRANT_KINDS))]
    kind: GrantKind,
    /// The first instant at which it can be spent; now if not given.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    effective: Option<Time>,
    /// The last instant or day at which it can be spent, or how long from now on, such as 90d; it
    /// never expires if not given.
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Expiry>,
    /// Lower is spent first; 100 if not given.
    #[arg(long)]
    priority: Option<u8>,
    /// Only for these GPU types, separated by commas.
    #[arg(long = "gpu-type", value_name = "TYPE", value_delimiter = ',')]
    gpu_types: Vec<String>,
    /// Only in these regions, separated by commas.
    #[arg(long = "region", value_name = "REGION", value_delimiter = ',')]
    regions: Vec<String>,
    /// Only for these priority classes, separated by commas.
    #[arg(long = "class", value_name = "CLASS", value_delimiter = ',')]
    classes: Vec<String>,
    /// The largest part of one hold that may come from it, such as 0.5; promotions only.
    #[arg(long, value_name = "SHARE")]
    max_share: Option<Amount>,
    /// A reference, such as an order number.
    #[arg(long)]
    reference: Option<String>,
    /// Free-form metadata; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// An id; generated if not given.
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct ListGrants {
    /// Only those of this account.
    #[arg(long)]
    account: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Args)]
pub(crate) struct RevokeArguments {
    /// Its id.
    id: String,
    #[command(flatten)]
    confirm: ConfirmArguments,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: GrantCommand) -> Result<(), Failure> {
    match command {
        GrantCommand::Add(arguments) => {
            let call = grants::issue(&arguments.grant());
            let remark = arguments.expires.and_then(Expiry::remark);
            session.change_with_remark(call, &arguments.change, remark).await
        }
        GrantCommand::Show { id } => session.read(grants::show(&id)).await,
        GrantCommand::Ls(ListGrants { account, list }) => {
            let filter = GrantFilter { account, limit: list.limit, cursor: list.cursor.clone() };
            session.list(grants::list(&filter), &list).await
        }
        GrantCommand::Revoke(RevokeArguments { id, confirm, change }) => {
            let question = format!("revoke {id}? Its unspent credits are gone.");
            confirm.ask_for_name(&change, &question, &id)?;
            let effect = async |session: &Session| {
                let grant = session.send(grants::show(&id)).await?.value;
                Ok(vec![format!(
                    "revokes {} now, and the {} held when it returns",
                    grant.available, grant.held
                )])
            };
            session.change(grants::revoke(&id), &change, effect).await
        }
    }
}

impl AddArguments {
    fn grant(&self) -> IssueGrant {
        let restriction = Restriction {
            gpu_types: some(&self.gpu_types),
            regions: some(&self.regions),
            classes: some(&self.classes),
            max_share: self.max_share,
        };
        IssueGrant {
            id: self.id.clone(),
            account: self.account.clone(),
            amount: self.amount,
            kind: self.kind,
            effective_at: self.effective,
            expires_at: self.expires.map(Expiry::at),
            priority: self.priority,
            restrict: (restriction != Restriction::default()).then_some(restriction),
            reference: self.reference.clone(),
            metadata: object(&self.metadata),
        }
    }
}

impl Row for Grant {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        words("account"),
        words("kind"),
        numbers("amount"),
        numbers("available"),
        numbers("held"),
        numbers("spent"),
        words("expires_at"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.id),
            Cell::new(&self.account),
            Cell::word(&self.kind),
            Cell::new(self.amount),
            Cell::new(self.available),
            Cell::new(self.held),
            Cell::new(self.spent),
            Cell::maybe_time(self.expires_at),
        ]
    }
}

impl View for Grant {
    fn sheet(&self) -> Sheet {
        let restriction = self.restrict.clone().unwrap_or_default();
        Sheet::record([
            ("id", Cell::new(&self.id)),
            ("account", Cell::new(&self.account)),
            ("kind", Cell::word(&self.kind)),
            ("amount", Cell::new(self.amount)),
            ("available", Cell::new(self.available)),
            ("held", Cell::new(self.held)),
            ("spent", Cell::new(self.spent)),
            ("expired", Cell::new(self.expired)),
            ("revoked", Cell::new(self.revoked)),
            ("moved", Cell::new(self.moved)),
            ("effective_at", Cell::time(self.effective_at)),
            ("expires_at", Cell::maybe_time(self.expires_at)),
            ("priority", Cell::new(self.priority)),
            ("gpu_types", Cell::joined(restriction.gpu_types.as_deref())),
            ("regions", Cell::joined(restriction.regions.as_deref())),
            ("classes", Cell::joined(restriction.classes.as_deref())),
            ("max_share", Cell::maybe(restriction.max_share)),
            ("reference", Cell::maybe(self.reference.as_ref())),
            ("metadata", Cell::maybe(self.metadata.as_ref())),
            ("created_at", Cell::time(self.created_at)),
        ])
    }
}
