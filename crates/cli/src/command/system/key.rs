//! `bursar key`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bursar_client::api::Page;
use bursar_client::api::system::key::{Capability, CreateKey, Key, Role};
use bursar_client::system::keys;
use clap::{Args, Subcommand};

use crate::arguments::{CAPABILITIES, Expiry, ROLES, expiry, word};
use crate::exit::{Exit, Failure};
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, words};
use crate::session::{ChangeArguments, ConfirmArguments, ListArguments, Session};

#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key. Its secret is shown only once.
    #[command(after_help = "Examples:\n  \
        bursar key create --role submitter --scope acme:nlp --name ci\n  \
        bursar key create --role viewer --scope '*' --name grafana --save grafana.key\n  \
        bursar key create --role billing --scope acme --name shop --capability issue")]
    #[command(alias = "add")]
    Create(CreateArguments),
    /// List keys, newest first.
    #[command(after_help = "Example:\n  bursar key ls --all")]
    Ls(ListArguments),
    /// Replace a key: create one with the same rights, then revoke the old one.
    #[command(after_help = "Examples:\n  \
        bursar key rotate key_01JAB2C3D4E5F6G7H8J9K0MNPQ --save new.key\n  \
        bursar key rotate key_01JAB2C3D4E5F6G7H8J9K0MNPQ --keep-old")]
    Rotate(RotateArguments),
    /// Revoke a key immediately.
    #[command(after_help = "Example:\n  bursar key revoke key_01JAB2C3D4E5F6G7H8J9K0MNPQ")]
    Revoke(RevokeArguments),
}

#[derive(Args)]
pub(crate) struct CreateArguments {
    /// What it may do.
    #[arg(long, value_parser = word::<Role>(ROLES))]
    role: Role,
    /// An account path, or `*` for everything.
    #[arg(long, value_name = "ACCOUNT")]
    scope: String,
    /// Display name.
    #[arg(long)]
    name: String,
    /// The last instant or day at which it is valid, or how long from now on, such as 30d; never
    /// expires if not given.
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Expiry>,
    /// Agents only: the region it is bound to.
    #[arg(long)]
    region: Option<String>,
    /// Agents only: the node it is bound to.
    #[arg(long)]
    node: Option<String>,
    /// A permission beyond its role; only keys with the scope `*` may grant it. `issue`: issue credits.
    #[arg(long = "capability", value_name = "NAME", value_parser = word::<Capability>(CAPABILITIES))]
    capabilities: Vec<Capability>,
    /// Write the secret to this new file, readable by its owner only, instead of showing it.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// An id; generated if not given.
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

#[derive(Args)]
pub(crate) struct RotateArguments {
    /// The id of the old key.
    id: String,
    /// Leave the old key valid; revoke it once the new one is installed.
    #[arg(long)]
    keep_old: bool,
    /// The last instant or day of the new key, or how long from now on; that of the old one if not
    /// given.
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Expiry>,
    /// Write the secret to this new file, readable by its owner only, instead of showing it.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    confirm: ConfirmArguments,
    #[command(flatten)]
    change: ChangeArguments,
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

pub(crate) async fn run(session: &Session, command: KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::Create(arguments) => create(session, arguments).await,
        KeyCommand::Ls(list) => {
            let page = Page { limit: list.limit, cursor: list.cursor.clone() };
            session.list(keys::list(&page), &list).await
        }
        KeyCommand::Rotate(arguments) => rotate(session, arguments).await,
        KeyCommand::Revoke(RevokeArguments { id, confirm, change }) => {
            let question = format!("revoke {id}? Programs that use it stop working.");
            confirm.ask_for_name(&change, &question, &id)?;
            let done = format!("the key {id} is revoked");
            session.remove(keys::revoke(&id), &change, &done).await
        }
    }
}

async fn create(session: &Session, arguments: CreateArguments) -> Result<(), Failure> {
    let key = CreateKey {
        id: arguments.id,
        role: arguments.role,
        scope: arguments.scope,
        name: arguments.name,
        expires_at: arguments.expires.map(Expiry::at),
        region: arguments.region,
        node: arguments.node,
        capabilities: arguments.capabilities,
    };
    let call = keys::create(&key);
    let remark = arguments.expires.and_then(Expiry::remark);
    match arguments.save {
        None => session.change_with_remark(call, &arguments.change, remark).await,
        Some(_) if arguments.change.is_dry_run() => {
            session.change_with_remark(call, &arguments.change, remark).await
        }
        Some(path) => {
            // Created first: a secret that cannot be stored must not be created.
            let file = new_secret_file(&path)?;
            let sent = session.send_change(call, &arguments.change).await;
            let mut answer = sent.inspect_err(|_| discard(&path))?;
            let secret = answer.value.key.take().ok_or_else(|| {
                discard(&path);
                Failure::because(Exit::Failed, "the answer is a replay, without the secret")
                    .with_next("create another key")
            })?;
            write_secret(file, &path, &secret)?;
            session.show_value(&answer.value)?;
            session.remark(remark.as_deref());
            Ok(())
        }
    }
}

/// The key with an id, among all that are visible.
async fn find(session: &Session, id: &str) -> Result<Key, Failure> {
    let mut page = keys::list(&Page { limit: Some(100), cursor: None });
    loop {
        let keys = session.send(page.clone()).await?.value;
        if let Some(key) = keys.data.into_iter().find(|key| key.id == id) {
            return Ok(key);
        }
        match keys.next_cursor {
            Some(cursor) => page = page.with_cursor(&cursor),
            None => {
                let why = format!("there is no key `{id}`");
                return Err(Failure::because(Exit::NotFound, why).with_next("bursar key ls --all"));
            }
        }
    }
}

async fn rotate(session: &Session, arguments: RotateArguments) -> Result<(), Failure> {
    let RotateArguments { id, keep_old, expires, save, confirm, change } = arguments;
    let old = find(session, &id).await?;
    if !keep_old {
        confirm.ask(&change, &format!("replace {id}? the old key stops working at once"))?;
    }
    let new = CreateArguments {
        role: old.role,
        scope: old.scope,
        name: old.name,
        expires: expires.or(old.expires_at.map(Expiry::from)),
        region: old.region,
        node: old.node,
        capabilities: old.capabilities,
        save,
        id: None,
        change: change.of_part(0),
    };
    create(session, new).await?;
    if keep_old {
        session.remark(Some(&format!("next: install it, then bursar key revoke {id}")));
        return Ok(());
    }
    let done = format!("the key {id} is revoked");
    session.remove(keys::revoke(&id), &change.of_part(1), &done).await
}

fn new_secret_file(path: &Path) -> Result<std::fs::File, Failure> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|cause| Failure::new(format_args!("cannot create {}", path.display()), cause))
}

fn write_secret(mut file: std::fs::File, path: &Path, secret: &str) -> Result<(), Failure> {
    writeln!(file, "{secret}").and_then(|()| file.sync_all()).map_err(|cause| {
        Failure::new(format_args!("cannot write {}", path.display()), cause)
            .with_next("revoke the key that was just created (bursar key ls) and create another")
    })
}

fn discard(path: &Path) {
    // An empty file that remains is harmless.
    let _ = std::fs::remove_file(path);
}

fn capabilities(key: &Key) -> Cell {
    let names = key.capabilities.iter().map(|capability| match capability {
        Capability::Issue => "issue",
    });
    let names: Vec<&str> = names.collect();
    Cell::maybe((!names.is_empty()).then(|| names.join(", ")).as_ref())
}

impl Row for Key {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        words("name"),
        words("role"),
        words("scope"),
        words("capabilities"),
        words("expires_at"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.id),
            Cell::new(&self.name),
            Cell::word(&self.role),
            Cell::new(&self.scope),
            capabilities(self),
            Cell::maybe_time(self.expires_at),
        ]
    }
}

impl View for Key {
    fn sheet(&self) -> Sheet {
        Sheet::record([
            ("id", Cell::new(&self.id)),
            ("key", Cell::maybe(self.key.as_ref()).with_tone(Tone::Warning)),
            ("name", Cell::new(&self.name)),
            ("role", Cell::word(&self.role)),
            ("scope", Cell::new(&self.scope)),
            ("capabilities", capabilities(self)),
            ("expires_at", Cell::maybe_time(self.expires_at)),
            ("region", Cell::maybe(self.region.as_ref())),
            ("node", Cell::maybe(self.node.as_ref())),
            ("created_at", Cell::time(self.created_at)),
        ])
    }
}
