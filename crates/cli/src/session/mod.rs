//! Sends the calls of a command, shows answers, explains failures.

pub(crate) mod account;
pub(crate) mod connection;
pub(crate) mod contexts;
pub(crate) mod problem;
mod similar;

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use bursar_client::api::credits::batch::Operation;
use bursar_client::api::terminal::escaped;
use bursar_client::api::{List, Time};
use bursar_client::credits::batches;
use bursar_client::{ApiAnswer, Call, Client, ClientError, Nothing};
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::arguments::{instant, interval};
use crate::exit::{Exit, Failure};
use crate::render::format::{
    Format, colours, is_terminal, pretty, print, print_styled, shown, yaml,
};
use crate::render::note;
use crate::render::sheet::{Row, Sheet, View};
use crate::session::connection::{ConnectionArguments, connect};

/// Arguments of every command that changes something.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ChangeArguments {
    /// Show what would be sent and its known effect; change nothing. The server checks it where it
    /// can.
    #[arg(long)]
    dry_run: bool,
    /// Repeat an earlier command safely: with the same key it takes effect at most once.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Arguments of every command that cannot be undone.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConfirmArguments {
    /// Do not ask for confirmation. Without a terminal nothing is asked.
    #[arg(short, long)]
    yes: bool,
}

impl ConfirmArguments {
    /// Asks on a terminal, unless `--yes` is given or nothing will change.
    pub(crate) fn ask(&self, change: &ChangeArguments, question: &str) -> Result<(), Failure> {
        self.unless(change, || confirmed(question))
    }

    /// The same, where a mistake is severe: the name must be typed once more.
    pub(crate) fn ask_for_name(
        &self,
        change: &ChangeArguments,
        question: &str,
        name: &str,
    ) -> Result<(), Failure> {
        self.unless(change, || typed_again(question, name))
    }

    fn unless(
        &self,
        change: &ChangeArguments,
        confirms: impl FnOnce() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        if self.yes || change.dry_run || !std::io::stdin().is_terminal() || confirms()? {
            return Ok(());
        }
        Err(Failure::because(Exit::Failed, "not confirmed: nothing was changed"))
    }
}

/// Whether the name of what is removed is typed once more.
fn typed_again(question: &str, name: &str) -> Result<bool, Failure> {
    anstream::eprint!("{} Type {} to go on: ", escaped(question), escaped(name));
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == name)
}

/// Asks a question on the terminal; only `y` and `yes` confirm.
pub(crate) fn confirmed(question: &str) -> Result<bool, Failure> {
    anstream::eprint!("{} [y/N] ", escaped(question));
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Arguments of every command that lists.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListArguments {
    /// The number of entries to show; 25 if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: Option<u32>,
    /// The `next_cursor` of the previous page.
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    /// Show all pages. In JSON, each page is one line.
    #[arg(long, conflicts_with = "cursor")]
    pub(crate) all: bool,
}

/// Arguments of lists of past movements.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PeriodArguments {
    /// Only from this instant on.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    pub(crate) from: Option<Time>,
    /// Only before this instant.
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    pub(crate) to: Option<Time>,
    #[command(flatten)]
    pub(crate) list: ListArguments,
}

/// Arguments of commands that can refresh.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct WatchArguments {
    /// Refresh until interrupted: every 2 seconds, or every TIME, such as 10 (seconds) or 5m.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true,
        default_missing_value = "2", value_parser = interval)]
    watch: Option<Duration>,
}

impl ChangeArguments {
    /// Whether it is a dry run.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The arguments for one of several requests, with its own key.
    pub(crate) fn of_part(&self, number: usize) -> ChangeArguments {
        let key = self.idempotency_key.as_ref().map(|key| match number {
            0 => key.clone(),
            _ => format!("{key}.{number}"),
        });
        ChangeArguments { dry_run: self.dry_run, idempotency_key: key }
    }
}

impl WatchArguments {
    /// Whether to refresh.
    pub(crate) fn is_on(&self) -> bool {
        self.watch.is_some()
    }
}

/// A request that is shown instead of sent.
#[derive(Serialize)]
struct DryRunPlan<'a> {
    method: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<serde_json::Value>,
    effect: &'a [String],
    /// Whether the server would accept it; otherwise it cannot say beforehand.
    checked: bool,
}

/// A connection and the output format.
pub(crate) struct Session {
    client: Client,
    format: Format,
    /// The tenant whose ids are meant, if it was given.
    tenant: Option<String>,
}

impl Session {
    /// Connects.
    pub(crate) fn open(
        connection: &ConnectionArguments,
        format: Format,
    ) -> Result<Session, Failure> {
        let tenant = connection::tenant(connection)?;
        Ok(Session { client: connect(connection)?, format, tenant })
    }

    /// The tenant whose ids are meant, if it was given.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The connection.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The output format.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Sends a call.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        call: Call<T>,
    ) -> Result<ApiAnswer<T>, Failure> {
        self.send_under(call, None).await
    }

    /// Sends a call with an idempotency key. An error that allows a retry names the key.
    async fn send_under<T: DeserializeOwned>(
        &self,
        call: Call<T>,
        key: Option<String>,
    ) -> Result<ApiAnswer<T>, Failure> {
        if !call.method().changes() {
            return match self.client.send(call).await {
                Ok(answer) => Ok(answer),
                Err(error) => Err(self.explain_with_proposals(&error, None).await),
            };
        }
        let key = key.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        match self.client.send(call.with_idempotency_key(&key)).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain_with_proposals(&error, Some(&key)).await),
        }
    }

    /// The failure of a call, with ids that resemble one which does not exist.
    pub(crate) async fn explain_with_proposals(
        &self,
        error: &ClientError,
        key: Option<&str>,
    ) -> Failure {
        let failure = self.explain(error, key);
        let near = similar::similar(&self.client, error).await;
        if near.is_empty() {
            return failure;
        }
        let near: Vec<String> = near.iter().map(|id| format!("`{}`", escaped(id))).collect();
        failure.with_particular(format!("did you mean {}?", near.join(" or ")))
    }

    /// The failure of a call; with JSON output, the problem document.
    pub(crate) fn explain(&self, error: &ClientError, key: Option<&str>) -> Failure {
        let failure = problem::failure(error, key);
        match (self.format, error.problem()) {
            (Format::Json, Some(problem)) => {
                let text = serde_json::to_string(problem).expect("a problem has plain fields");
                failure.with_machine(text)
            }
            (Format::Json | Format::Table | Format::Yaml | Format::Csv, _) => failure,
        }
    }

    /// Shows an answer.
    pub(crate) fn show<T: View>(&self, answer: &ApiAnswer<T>) -> Result<(), Failure> {
        print_styled(&self.rendered(&answer.value, &answer.body)?)
    }

    fn rendered(&self, view: &impl View, body: &str) -> Result<String, Failure> {
        match self.format {
            Format::Table => Ok(view.sheet().text(colours())),
            Format::Json => Ok(shown(body.to_owned())),
            Format::Yaml => yaml(body).map(shown),
            Format::Csv => view.sheet().csv(),
        }
    }

    /// Reads and shows.
    pub(crate) async fn read<T: DeserializeOwned + View>(
        &self,
        call: Call<T>,
    ) -> Result<(), Failure> {
        self.show(&self.send(call).await?)
    }

    /// Reads and shows, with refreshing if requested.
    pub(crate) async fn watch<T: DeserializeOwned + View>(
        &self,
        call: Call<T>,
        arguments: &WatchArguments,
    ) -> Result<(), Failure> {
        let read = async || {
            let answer = self.send(call.clone()).await?;
            self.rendered(&answer.value, &answer.body)
        };
        self.refresh(arguments, read).await
    }

    /// Shows what `read` returns, with refreshing if requested.
    pub(crate) async fn refresh(
        &self,
        arguments: &WatchArguments,
        read: impl AsyncFn() -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        let Some(interval) = arguments.watch else { return print_styled(&read().await?) };
        loop {
            let text = read().await?;
            if self.format == Format::Table && is_terminal() {
                print_styled("\u{1b}[2J\u{1b}[H")?;
            }
            print_styled(&text)?;
            tokio::time::sleep(interval).await;
        }
    }

    /// Shows one page of a list, or all of them.
    pub(crate) async fn list<T: DeserializeOwned + Row>(
        &self,
        call: Call<List<T>>,
        arguments: &ListArguments,
    ) -> Result<(), Failure> {
        let mut page = call.clone();
        let mut all = Vec::new();
        loop {
            let answer = self.send(page).await?;
            match self.format {
                Format::Json => print(&answer.body)?,
                Format::Yaml => print(&format!("---\n{}", yaml(&answer.body)?))?,
                Format::Table | Format::Csv => all.extend(answer.value.data),
            }
            let more = answer.value.next_cursor.filter(|_| answer.value.has_more);
            match more {
                Some(cursor) if arguments.all => page = call.clone().with_cursor(&cursor),
                more => return self.listed(&all, more.as_deref()),
            }
        }
    }

    /// Shows the collected entries of a list; JSON and YAML were shown page by page.
    fn listed<T: Row>(&self, rows: &[T], more: Option<&str>) -> Result<(), Failure> {
        let sheet = Sheet::list(rows);
        match self.format {
            Format::Json | Format::Yaml => return Ok(()),
            Format::Table => print_styled(&sheet.text(colours()))?,
            Format::Csv => print(&sheet.csv()?)?,
        }
        if let Some(cursor) = more {
            note(&format!("there is more: --all, or --cursor {cursor}"));
        }
        Ok(())
    }

    /// Adds a remark for people to an answer, on standard error.
    pub(crate) fn remark(&self, remark: Option<&str>) {
        match (self.format, remark) {
            (Format::Table | Format::Csv, Some(remark)) => note(remark),
            (Format::Table | Format::Csv, None) | (Format::Json | Format::Yaml, _) => {}
        }
    }

    /// Makes a change and shows the answer, or shows what would be sent and the known `effect`
    /// in a dry run.
    pub(crate) async fn change<T: DeserializeOwned + View>(
        &self,
        call: Call<T>,
        arguments: &ChangeArguments,
        effect: impl AsyncFnOnce(&Session) -> Result<Vec<String>, Failure>,
    ) -> Result<(), Failure> {
        if arguments.dry_run {
            let is_checked = self.check(&call).await?;
            return self.plan(&call, &effect(self).await?, is_checked);
        }
        self.show(&self.send_change(call, arguments).await?)
    }

    /// Makes a change and shows what was made as it is read, which has more than the answer to the
    /// change.
    pub(crate) async fn change_and_read<T: DeserializeOwned + View>(
        &self,
        call: Call<T>,
        arguments: &ChangeArguments,
        effect: impl AsyncFnOnce(&Session) -> Result<Vec<String>, Failure>,
        read: impl FnOnce(&T) -> Call<T>,
    ) -> Result<(), Failure> {
        if arguments.dry_run {
            return self.change(call, arguments, effect).await;
        }
        let made = self.send_change(call, arguments).await?;
        // The change is made whether it can be read or not.
        match self.client.send(read(&made.value)).await {
            Ok(read) => self.show(&read),
            Err(_) => self.show(&made),
        }
    }

    /// Makes a change and shows the answer and a remark on what was sent. In a dry run the remark
    /// is the known effect.
    pub(crate) async fn change_with_remark<T: DeserializeOwned + View>(
        &self,
        call: Call<T>,
        arguments: &ChangeArguments,
        remark: Option<String>,
    ) -> Result<(), Failure> {
        if arguments.dry_run {
            let is_checked = self.check(&call).await?;
            return self.plan(&call, &Vec::from_iter(remark), is_checked);
        }
        self.show(&self.send_change(call, arguments).await?)?;
        self.remark(remark.as_deref());
        Ok(())
    }

    /// Makes a change, for commands that process the answer.
    pub(crate) async fn send_change<T: DeserializeOwned>(
        &self,
        call: Call<T>,
        arguments: &ChangeArguments,
    ) -> Result<ApiAnswer<T>, Failure> {
        self.send_under(call, arguments.idempotency_key.clone()).await
    }

    /// Shows a value that differs from the server's answer.
    pub(crate) fn show_value(&self, value: &(impl View + Serialize)) -> Result<(), Failure> {
        print_styled(&self.rendered_value(value)?)
    }

    /// The text of a value that differs from the server's answer.
    pub(crate) fn rendered_value(
        &self,
        value: &(impl View + Serialize),
    ) -> Result<String, Failure> {
        self.rendered(value, &serde_json::to_string(value)?)
    }

    /// Removes something and prints `done`.
    pub(crate) async fn remove(
        &self,
        call: Call<Nothing>,
        arguments: &ChangeArguments,
        done: &str,
    ) -> Result<(), Failure> {
        if arguments.dry_run {
            let is_checked = self.check(&call).await?;
            return self.plan(&call, &[], is_checked);
        }
        let answer = self.send_change(call, arguments).await?;
        match self.format {
            Format::Table => print(done),
            Format::Json => print(&answer.body),
            Format::Yaml if !answer.body.is_empty() => print(&yaml(&answer.body)?),
            Format::Yaml | Format::Csv => Ok(()),
        }
    }

    /// Asks the server whether it would accept a change. Says whether it was checked: changes of
    /// nodes, regions, keys, prices and classes are not, nor is any by an older server.
    pub(crate) async fn check<T>(&self, call: &Call<T>) -> Result<bool, Failure> {
        let (method, path) = (call.method().as_str().to_owned(), call.target());
        let body = call.body().map(serde_json::from_str).transpose()?;
        let asked = Operation { method, path, body, idempotency_key: None };
        let Err(error) = self.client.send(batches::dry_run(&asked)).await else { return Ok(true) };
        let is_unchecked = match &error {
            ClientError::Problem(problem) => {
                // The path of the change itself, which is not a field of any change.
                problem.param.as_deref() == Some("path") || problem.detail.contains("/v1/dry-run")
            }
            ClientError::Unexpected { status, .. } => *status == 404,
            ClientError::Unreachable { .. }
            | ClientError::Untrusted { .. }
            | ClientError::Unusable(_) => false,
        };
        if is_unchecked { Ok(false) } else { Err(self.explain_with_proposals(&error, None).await) }
    }

    /// Shows what would be sent and its known effect.
    pub(crate) fn plan<T>(
        &self,
        call: &Call<T>,
        effect: &[String],
        is_checked: bool,
    ) -> Result<(), Failure> {
        if self.format == Format::Table || self.format == Format::Csv {
            let mut text = format!("would send {} {}", call.method(), call.target());
            if let Some(body) = call.body().filter(|body| *body != "{}") {
                text.push_str(&format!("\n{}", pretty(body)?));
            }
            text.push_str(match is_checked {
                true => "\nthe server would accept it now",
                false => "\nnot checked: the server checks this change only when it is made",
            });
            for line in effect {
                text.push_str(&format!("\n{line}"));
            }
            return print(&text);
        }
        let body = call.body().map(serde_json::from_str).transpose()?;
        let method = call.method().as_str();
        let plan = DryRunPlan { method, path: call.target(), body, effect, checked: is_checked };
        let json = serde_json::to_string(&plan)?;
        print(&if self.format == Format::Json { json } else { yaml(&json)? })
    }
}

/// For changes without a known effect.
pub(crate) async fn no_more_known(_: &Session) -> Result<Vec<String>, Failure> {
    Ok(vec![])
}
