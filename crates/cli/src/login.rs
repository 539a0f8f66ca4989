//! `bursar login`: signs in with a browser, here or on another machine, and saves the connection.
//! `bursar logout` ends it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bursar_client::api::system::session::{BeginDevice, RedeemCode, RedeemDevice, SessionToken};
use bursar_client::system::sessions;
use bursar_client::{Call, Client};
use clap::Args;
use serde::de::DeserializeOwned;

use crate::exit::{Exit, Failure};
use crate::render::format::print;
use crate::session::connection::{ConnectionArguments, connect, variable};
use crate::session::contexts::{self, Context, Contexts, DEFAULT_SERVER};
use crate::session::problem;
use crate::session::{ChangeArguments, ConfirmArguments};

/// How long a browser may take to send its request.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest name that the server accepts.
const MAX_CLIENT_NAME: usize = 64;
/// The longest line of a request.
const MAX_LINE: u64 = 8192;

#[derive(Args)]
pub(crate) struct LoginArguments {
    /// The name under which the connection is saved.
    #[arg(long, default_value = "default")]
    name: String,
    /// Print the address instead of opening a browser.
    #[arg(long)]
    no_browser: bool,
    /// Sign in with a browser on any machine: approve the code that is shown.
    #[arg(long, conflicts_with = "no_browser")]
    device: bool,
}

#[derive(Args)]
pub(crate) struct LogoutArguments {
    /// End every session of the same key or person, in browsers and on other command lines too.
    /// Asks on a terminal.
    #[arg(long)]
    everywhere: bool,
    #[command(flatten)]
    confirm: ConfirmArguments,
}

/// Signs in and saves the connection.
pub(crate) fn login(
    arguments: &LoginArguments,
    connection: &ConnectionArguments,
) -> Result<(), Failure> {
    let place = contexts::location(variable)?;
    let mut contexts = Contexts::load(&place)?;
    let server = connection.server.clone().or_else(|| variable("BURSAR_SERVER"));
    let server = server.unwrap_or_else(|| DEFAULT_SERVER.to_owned());
    let server = server.trim_end_matches('/').to_owned();
    let context = Context {
        server: server.clone(),
        tenant: connection.tenant.clone(),
        ca_file: connection.ca_file.as_deref().map(std::path::absolute).transpose()?,
        ..Context::default()
    };
    let token = if arguments.device {
        block_on(by_device(&context))??
    } else {
        by_loopback(&context, !arguments.no_browser)?
    };
    let context = Context { key: Some(token.token), ..context };
    contexts.contexts.insert(arguments.name.clone(), context);
    contexts.current = Some(arguments.name.clone());
    contexts.save(&place)?;
    let session = token.session;
    let role = serde_json::to_value(session.role)?;
    let role = role.as_str().unwrap_or_default();
    print(&format!("signed in to {server} as {}: {role} of {}", session.actor, session.scope))
}

/// Signs in with a browser on this machine, which brings a code to a port here.
fn by_loopback(context: &Context, opens_browser: bool) -> Result<SessionToken, Failure> {
    let server = &context.server;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let (state, verifier) = (random(), random());
    let challenge: String =
        bursar_server::auth::hash(&verifier).iter().map(|byte| format!("{byte:02x}")).collect();
    let url = format!("{server}/auth/cli?port={port}&state={state}&challenge={challenge}");
    anstream::eprintln!("sign in with a browser on this machine:");
    print(&url)?;
    if opens_browser {
        open(&url);
    }
    let code = wait_for_code(&listener, &state)?;
    let client = client(context)?;
    block_on(send(&client, sessions::redeem(&RedeemCode { code, verifier })))?
}

/// Signs in with a browser anywhere: the person approves a code there.
async fn by_device(context: &Context) -> Result<SessionToken, Failure> {
    let client = client(context)?;
    let begin = BeginDevice { client: client_name() };
    let begun = send(&client, sessions::begin_device(&begin)).await?;
    anstream::eprintln!(
        "open this address in a browser on any machine, and approve the code {}:",
        begun.user_code
    );
    print(&format!("{}{}", context.server, begun.path))?;
    let device = RedeemDevice { device_code: begun.device_code };
    // The server ends the wait: it refuses a code that is too old.
    loop {
        let answer = send(&client, sessions::redeem_device(&device)).await?;
        if let Some(token) = answer.signed_in {
            return Ok(token);
        }
        tokio::time::sleep(Duration::from_secs(u64::from(begun.interval.clamp(1, 60)))).await;
    }
}

/// The user and the machine, for the page that asks to approve. Other characters than those that the
/// server accepts are left out.
fn client_name() -> Option<String> {
    let user = variable("USER").or_else(|| variable("LOGNAME"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = [user.as_deref(), host.as_deref().map(str::trim)];
    let name: Vec<&str> = name.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "._-@".contains(*letter);
    let name: String = name.join("@").chars().filter(is_plain).take(MAX_CLIENT_NAME).collect();
    Some(name).filter(|name| !name.is_empty())
}

/// A text that cannot be guessed.
fn random() -> String {
    // Each has 74 random bits.
    let part = || uuid::Uuid::now_v7().simple().to_string();
    part() + &part()
}

/// Opens a browser, if there is one.
fn open(url: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(opener);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The browser may stay in the foreground.
    std::thread::spawn(move || {
        if command.status().is_err() {
            anstream::eprintln!("no browser could be opened; open the address yourself");
        }
    });
}

/// Waits until the browser brings the code.
fn wait_for_code(listener: &TcpListener, state: &str) -> Result<String, Failure> {
    loop {
        let (stream, _) = listener.accept()?;
        // A connection that says nothing useful is not the browser's.
        if let Ok(Some(code)) = read_code(stream, state) {
            return Ok(code);
        }
    }
}

fn read_code(mut stream: TcpStream, state: &str) -> std::io::Result<Option<String>> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut line = String::new();
    std::io::Read::take(BufReader::new(stream.try_clone()?), MAX_LINE).read_line(&mut line)?;
    let target = line.split(' ').nth(1).unwrap_or("");
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    let code = value("code").filter(|_| value("state").as_deref() == Some(state));
    let (status, text) = match &code {
        Some(_) => ("200 OK", "You are signed in on the command line. You can close this page."),
        None => ("404 Not Found", "Nothing is here."),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    )?;
    Ok(code)
}

/// Runs one request.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

fn client(context: &Context) -> Result<Client, Failure> {
    let mut builder = Client::builder(&context.server);
    if let Some(file) = &context.ca_file {
        builder = builder.authority(read_authority(file)?);
    }
    builder.build().map_err(|error| problem::failure(&error, None))
}

fn read_authority(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file)
        .map_err(|cause| Failure::new(format_args!("cannot read {}", file.display()), cause))
}

async fn send<T: DeserializeOwned>(client: &Client, call: Call<T>) -> Result<T, Failure> {
    let sent = client.send(call).await;
    sent.map(|answer| answer.value).map_err(|error| problem::failure(&error, None))
}

/// Ends the session of the saved connection and forgets its token.
pub(crate) fn logout(
    arguments: &LogoutArguments,
    connection: &ConnectionArguments,
) -> Result<(), Failure> {
    let place = contexts::location(variable)?;
    let mut contexts = Contexts::load(&place)?;
    let name = connection.use_context.clone().or_else(|| contexts.current.clone());
    let missing = || {
        Failure::because(Exit::Usage, "no connection is saved").with_next("bursar login saves one")
    };
    let name = name.ok_or_else(missing)?;
    let context = contexts.named(&name)?.clone();
    if arguments.everywhere {
        let question = format!("end every session of this key or person on {}?", context.server);
        arguments.confirm.ask(&ChangeArguments::default(), &question)?;
    }
    let use_context = Some(name.clone());
    let client = connect(&ConnectionArguments { use_context, ..connection.clone() })?;
    let ended = block_on(client.send(sessions::end(arguments.everywhere)))?;
    contexts.contexts.remove(&name);
    contexts.current = contexts.current.filter(|current| *current != name);
    contexts.save(&place)?;
    match ended {
        Ok(_) => print(&format!("signed out of {}; {name} is removed", context.server)),
        // The session may have ended before; the token is forgotten either way.
        Err(error) => Err(problem::failure(&error, None)),
    }
}
