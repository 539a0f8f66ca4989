//! `bursar context`: saved connections.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::exit::Failure;
use crate::render::format::{Format, colours, print, print_styled, shown, yaml};
use crate::render::sheet::{Cell, Column, Row, Sheet, words};
use crate::session::connection::{ConnectionArguments, read_key, variable};
use crate::session::contexts::{self, Context, Contexts, DEFAULT_SERVER};
use crate::session::{ChangeArguments, ConfirmArguments};

#[derive(Subcommand)]
pub(crate) enum ContextCommand {
    /// Save a server and its key (--server, --key-file) under a name.
    #[command(after_help = "Example:\n  \
        bursar context add prod --server https://credits.example --key-file ~/prod.key")]
    Add(AddArguments),
    /// Use a saved connection by default.
    #[command(after_help = "Example:\n  bursar context use prod")]
    Use {
        /// Its name.
        name: String,
    },
    /// List saved connections.
    #[command(after_help = "Example:\n  bursar context ls")]
    Ls,
    /// Remove a saved connection.
    #[command(after_help = "Example:\n  bursar context rm prod")]
    Rm {
        /// Its name.
        name: String,
        #[command(flatten)]
        confirm: ConfirmArguments,
    },
}

#[derive(Args)]
pub(crate) struct AddArguments {
    /// Its name; an existing one is replaced.
    name: String,
    /// Do not make it the default.
    #[arg(long)]
    keep_current: bool,
}

pub(crate) fn run(
    command: ContextCommand,
    connection: &ConnectionArguments,
    format: Format,
) -> Result<(), Failure> {
    let path = contexts::location(variable)?;
    let mut contexts = Contexts::load(&path)?;
    match command {
        ContextCommand::Add(arguments) => add(contexts, &path, arguments, connection),
        ContextCommand::Use { name } => {
            contexts.named(&name)?;
            contexts.current = Some(name.clone());
            contexts.save(&path)?;
            print(&format!("using {name}"))
        }
        ContextCommand::Ls => list(&contexts, format),
        ContextCommand::Rm { name, confirm } => {
            contexts.named(&name)?;
            let question = format!("remove {name}? a key that is kept in it is gone");
            confirm.ask(&ChangeArguments::default(), &question)?;
            contexts.contexts.remove(&name);
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.save(&path)?;
            print(&format!("{name} is removed"))
        }
    }
}

fn add(
    mut contexts: Contexts,
    path: &Path,
    arguments: AddArguments,
    connection: &ConnectionArguments,
) -> Result<(), Failure> {
    let mut context = Context {
        server: connection.server.clone().unwrap_or_else(|| DEFAULT_SERVER.into()),
        key: connection.key.clone(),
        key_file: None,
        tenant: connection.tenant.clone(),
        ca_file: connection.ca_file.as_deref().map(absolute).transpose()?,
    };
    match &connection.key_file {
        Some(file) if file == Path::new("-") => context.key = Some(read_key(file)?),
        Some(file) => {
            read_key(file)?;
            context.key_file = Some(absolute(file)?);
        }
        None => {}
    }
    let name = arguments.name;
    let server = context.server.clone();
    contexts.contexts.insert(name.clone(), context);
    if !arguments.keep_current {
        contexts.current = Some(name.clone());
    }
    contexts.save(path)?;
    print(&format!("{name} is {server}, kept in {}", path.display()))
}

fn absolute(file: &Path) -> Result<PathBuf, Failure> {
    Ok(std::path::absolute(file)?)
}

/// A context without its secret.
#[derive(Serialize)]
struct ContextView<'a> {
    name: &'a str,
    current: bool,
    server: &'a str,
    key: String,
}

impl Row for ContextView<'_> {
    const COLUMNS: &'static [Column] =
        &[words("current"), words("name"), words("server"), words("key")];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(if self.current { "*" } else { "" }),
            Cell::new(self.name),
            Cell::new(self.server),
            Cell::new(&self.key),
        ]
    }
}

fn list(contexts: &Contexts, format: Format) -> Result<(), Failure> {
    let kept: Vec<ContextView<'_>> = contexts
        .contexts
        .iter()
        .map(|(name, context)| ContextView {
            name,
            current: contexts.current.as_ref() == Some(name),
            server: &context.server,
            key: match (&context.key, &context.key_file) {
                (Some(_), _) => "kept".into(),
                (None, Some(file)) => file.display().to_string(),
                (None, None) => "none".into(),
            },
        })
        .collect();
    let sheet = Sheet::list(&kept);
    print_styled(&match format {
        Format::Table => sheet.text(colours()),
        Format::Json => shown(serde_json::to_string(&kept)?),
        Format::Yaml => shown(yaml(&serde_json::to_string(&kept)?)?),
        Format::Csv => sheet.csv()?,
    })
}
