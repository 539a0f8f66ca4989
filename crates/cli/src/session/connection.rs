//! The server and the key of a command.

use std::path::{Path, PathBuf};

use bursar_client::{Client, ClientBuilder, ClientError};
use clap::Args;
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::session::contexts::{self, Context, Contexts, DEFAULT_SERVER};
use crate::session::problem;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArguments {
    /// The address of the server; else BURSAR_SERVER, else the context's, else
    /// http://127.0.0.1:7070.
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) server: Option<String>,
    /// The key. Other users of this machine can see it: prefer --key-file or BURSAR_KEY.
    #[arg(long, global = true, conflicts_with = "key_file")]
    pub(crate) key: Option<String>,
    /// A file with the key, `-` for standard input; else BURSAR_KEY_FILE.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) key_file: Option<PathBuf>,
    /// The context to use; else BURSAR_CONTEXT, else the one chosen by `bursar context use`.
    #[arg(long = "context", value_name = "NAME", global = true)]
    pub(crate) use_context: Option<String>,
    /// The tenant of the ids, for keys that see several.
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) tenant: Option<String>,
    /// The authority (PEM) that signed the server's certificate, if the system does not trust it.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) ca_file: Option<PathBuf>,
}

/// An environment variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Connects with the arguments, the environment and the contexts, in this order of precedence.
pub(crate) fn connect(arguments: &ConnectionArguments) -> Result<Client, Failure> {
    connect_with(arguments, |builder| builder)
}

/// The same, with further settings of the client.
pub(crate) fn connect_with(
    arguments: &ConnectionArguments,
    more: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> Result<Client, Failure> {
    let (client, has_key) = client(arguments, more)?;
    if has_key && client.is_exposed() {
        let server = client.server();
        anstream::eprintln!("warning: the key travels unencrypted to {server}; use https");
    }
    Ok(client)
}

/// The same without a word: fails if the key would travel unencrypted.
pub(crate) fn client_without_warnings(
    arguments: &ConnectionArguments,
    more: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> Result<Client, Failure> {
    let (client, has_key) = client(arguments, more)?;
    if has_key && client.is_exposed() {
        return Err(Failure::because(Exit::Failed, "the key would travel unencrypted"));
    }
    Ok(client)
}

/// The client, and whether it has a key.
fn client(
    arguments: &ConnectionArguments,
    more: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> Result<(Client, bool), Failure> {
    let contexts = Contexts::load(&contexts::location(variable)?)?;
    let target = target(arguments, variable, &contexts)?;
    let mut builder = Client::builder(&target.server);
    let key = match (target.key, target.key_file) {
        (Some(key), _) => Some(key),
        (None, Some(file)) => Some(read_key(&file)?),
        (None, None) => None,
    };
    if let Some(key) = &key {
        builder = builder.key(key);
    }
    if let Some(tenant) = &target.tenant {
        builder = builder.tenant(tenant);
    }
    if let Ok(trace) = std::env::var("TRACEPARENT") {
        builder = builder.traceparent(&trace);
    }
    if let Some(file) = &target.ca_file {
        let pem = std::fs::read(file)
            .map_err(|cause| Failure::new(format_args!("cannot read {}", file.display()), cause))?;
        builder = builder.authority(pem);
    }
    let client =
        more(builder).build().map_err(|error: ClientError| problem::failure(&error, None))?;
    Ok((client, key.is_some()))
}

/// The file of the key: its own, or that of the contexts. `None` if it was given directly.
pub(crate) fn key_file(arguments: &ConnectionArguments) -> Result<Option<PathBuf>, Failure> {
    let place = contexts::location(variable)?;
    let target = target(arguments, variable, &Contexts::load(&place)?)?;
    let is_given = arguments.key.is_some() || variable("BURSAR_KEY").is_some();
    let file = target.key_file.filter(|file| file != Path::new("-"));
    Ok(file.or_else(|| target.key.filter(|_| !is_given).map(|_| place)))
}

/// The tenant whose ids are meant, if it was given.
pub(crate) fn tenant(arguments: &ConnectionArguments) -> Result<Option<String>, Failure> {
    let contexts = Contexts::load(&contexts::location(variable)?)?;
    Ok(target(arguments, variable, &contexts)?.tenant)
}

/// The server and the key that commands use, and where each comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Origins {
    pub(crate) server: String,
    pub(crate) server_from: &'static str,
    pub(crate) context: Option<String>,
    /// The id in the key, never the key itself.
    pub(crate) key_id: Option<String>,
    pub(crate) key_from: &'static str,
    pub(crate) tenant: Option<String>,
}

/// Where the server and the key come from.
pub(crate) fn origins(arguments: &ConnectionArguments) -> Result<Origins, Failure> {
    let contexts = Contexts::load(&contexts::location(variable)?)?;
    let target = target(arguments, variable, &contexts)?;
    let named = arguments.use_context.clone().or_else(|| variable("BURSAR_CONTEXT"));
    let context = named.or_else(|| contexts.current.clone());
    let first = |sources: &[(bool, &'static str)], none| {
        sources.iter().find(|(given, _)| *given).map_or(none, |(_, name)| *name)
    };
    let server_from = first(
        &[
            (arguments.server.is_some(), "--server"),
            (variable("BURSAR_SERVER").is_some(), "BURSAR_SERVER"),
            (context.is_some(), "context"),
        ],
        "default",
    );
    let key_from = first(
        &[
            (arguments.key.is_some(), "--key"),
            (arguments.key_file.is_some(), "--key-file"),
            (variable("BURSAR_KEY").is_some(), "BURSAR_KEY"),
            (variable("BURSAR_KEY_FILE").is_some(), "BURSAR_KEY_FILE"),
            (target.key.is_some() || target.key_file.is_some(), "context"),
        ],
        "none",
    );
    let key = match (target.key, &target.key_file) {
        (Some(key), _) => Some(key),
        // Standard input can be read once, by the connection.
        (None, Some(file)) if file != Path::new("-") => Some(read_key(file)?),
        (None, Some(_) | None) => None,
    };
    let key_id = key.as_deref().and_then(id_of).map(str::to_owned);
    let (server, tenant) = (target.server, target.tenant);
    Ok(Origins { server, server_from, context, key_id, key_from, tenant })
}

/// The id in a key of the form `bur_<id>_<secret>`.
fn id_of(key: &str) -> Option<&str> {
    Some(key.strip_prefix("bur_")?.rsplit_once('_')?.0)
}

/// Merges the sources. A context's key is sent only to that context's server.
fn target(
    arguments: &ConnectionArguments,
    variable: impl Fn(&str) -> Option<String>,
    contexts: &Contexts,
) -> Result<Context, Failure> {
    let name = arguments.use_context.clone().or_else(|| variable("BURSAR_CONTEXT"));
    let context = match name.as_ref().or(contexts.current.as_ref()) {
        Some(name) => Some(contexts.named(name)?),
        None => None,
    };
    let said = arguments.server.clone().or_else(|| variable("BURSAR_SERVER"));
    let same = |context: &&Context| said.as_ref().is_none_or(|server| *server == context.server);
    let context = context.filter(same).cloned().unwrap_or_default();
    let mut target = Context {
        server: said.unwrap_or(context.server),
        tenant: arguments.tenant.clone().or(context.tenant),
        ca_file: arguments.ca_file.clone().or(context.ca_file),
        ..Context::default()
    };
    if target.server.is_empty() {
        target.server = DEFAULT_SERVER.into();
    }
    let given = [
        (arguments.key.clone(), arguments.key_file.clone()),
        (variable("BURSAR_KEY"), None),
        (None, variable("BURSAR_KEY_FILE").map(PathBuf::from)),
        (context.key, context.key_file),
    ];
    let first = given.into_iter().find(|(key, file)| key.is_some() || file.is_some());
    (target.key, target.key_file) = first.unwrap_or_default();
    Ok(target)
}

/// How to create a file with a key.
const MAKE_KEY_FILE: &str =
    "create it with bursar key create … --save FILE, which writes only the key";

/// The text of a file, or of standard input for `-`.
pub(crate) fn read_text(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    }
}

/// The key in a file, or on standard input for `-`.
pub(crate) fn read_key(file: &Path) -> Result<String, Failure> {
    let text = read_text(file).map_err(|cause| {
        Failure::new(format_args!("cannot read the key in {}", file.display()), cause)
    })?;
    let key = text.trim();
    if key.is_empty() {
        let why = format!("{} is empty, a key is expected", file.display());
        return Err(Failure::because(Exit::Failed, why).with_next(MAKE_KEY_FILE));
    }
    // Not a key but, for example, a table: a key is one word of visible characters.
    if !key.chars().all(|letter| letter.is_ascii_graphic()) {
        let why = format!("{} has more than a key, or none", file.display());
        return Err(Failure::because(Exit::Usage, why).with_next(MAKE_KEY_FILE));
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Contexts {
        let context = Context {
            server: "https://a.example".into(),
            key: Some("context key".into()),
            tenant: Some("acme".into()),
            ..Context::default()
        };
        let other = Context { server: "https://b.example".into(), key: None, ..Context::default() };
        Contexts {
            current: Some("a".into()),
            contexts: [("a".into(), context), ("b".into(), other)].into(),
        }
    }

    fn server_and_key(
        arguments: &ConnectionArguments,
        environment: &[(&str, &str)],
    ) -> (String, Option<String>) {
        let variable = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let target = target(arguments, variable, &contexts()).expect("known contexts");
        (target.server, target.key)
    }

    fn expected(server: &str, key: Option<&str>) -> (String, Option<String>) {
        (server.into(), key.map(str::to_owned))
    }

    #[test]
    fn arguments_go_before_the_environment_before_the_context() {
        let mut arguments = ConnectionArguments::default();
        let environment = [("BURSAR_KEY", "environment key")];
        let context = expected("https://a.example", Some("context key"));
        assert_eq!(server_and_key(&arguments, &[]), context);
        let from_environment = expected("https://a.example", Some("environment key"));
        assert_eq!(server_and_key(&arguments, &environment), from_environment);
        arguments.key = Some("argument key".into());
        let from_arguments = expected("https://a.example", Some("argument key"));
        assert_eq!(server_and_key(&arguments, &environment), from_arguments);
    }

    #[test]
    fn the_key_of_a_context_is_not_sent_to_another_server() {
        let arguments = ConnectionArguments {
            server: Some("https://evil.example".into()),
            ..Default::default()
        };
        assert_eq!(server_and_key(&arguments, &[]), expected("https://evil.example", None));
    }

    #[test]
    fn the_id_of_a_key_is_between_the_prefix_and_the_secret() {
        assert_eq!(id_of("bur_key_01JAB2_s3cret"), Some("key_01JAB2"));
        assert_eq!(id_of("a root key of our own"), None);
        assert_eq!(id_of("bur_nothing"), None);
    }

    #[test]
    fn a_context_can_be_named() {
        let environment = [("BURSAR_CONTEXT", "b")];
        let arguments = ConnectionArguments::default();
        assert_eq!(server_and_key(&arguments, &environment), expected("https://b.example", None));
        let unknown =
            ConnectionArguments { use_context: Some("c".into()), ..ConnectionArguments::default() };
        assert!(target(&unknown, |_| None, &contexts()).is_err());
    }

    #[test]
    fn a_file_that_holds_no_key_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("agent.key");
        for text in ["", "KEY   ROLE\nbur_a  agent\n", "two words", "ключ"] {
            std::fs::write(&file, text).expect("written");
            let failure = format!("{:?}", read_key(&file).expect_err(text));
            assert!(failure.contains("agent.key") && failure.contains("--save"), "{failure}");
        }
        std::fs::write(&file, "bur_x_SECRET\n").expect("written");
        assert_eq!(read_key(&file).ok().as_deref(), Some("bur_x_SECRET"));
    }

    #[test]
    fn without_anything_it_is_the_server_on_this_machine() {
        let target = target(&ConnectionArguments::default(), |_| None, &Contexts::default());
        assert_eq!(target.expect("defaults").server, DEFAULT_SERVER);
    }
}
