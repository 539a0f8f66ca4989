//! `bursar doctor` and `bursar whoami`: what commands use, and whether it works.

use bursar_client::accounts::balances;
use bursar_client::api::accounts::effective::{Effective, EffectiveQuery};
use bursar_client::api::amount::Sum;
use bursar_client::api::system::key::Role;
use bursar_client::api::{Code, Time};
use bursar_client::system::sessions;
use bursar_client::{Call, Client, ClientError, Method};
use serde::Serialize;
use serde_json::Value;

use crate::command::accounts::expiry;
use crate::exit::{Exit, Failure};
use crate::render::format::{Format, colours, print, print_styled, yaml};
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, words};
use crate::session::account::EVERYTHING;
use crate::session::connection::{ConnectionArguments, Origins, connect, origins};
use crate::session::problem;

/// The result of a check.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warning,
    Failed,
    Skipped,
}

/// One thing that was checked.
#[derive(Serialize)]
struct Check {
    #[serde(rename = "check")]
    what: &'static str,
    #[serde(rename = "result")]
    verdict: Verdict,
    detail: String,
    fix: String,
}

impl Check {
    fn ok(what: &'static str, detail: impl Into<String>) -> Check {
        Check { what, verdict: Verdict::Ok, detail: detail.into(), fix: String::new() }
    }

    fn skipped(what: &'static str, detail: impl Into<String>) -> Check {
        Check { what, verdict: Verdict::Skipped, detail: detail.into(), fix: String::new() }
    }

    fn warning(what: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { what, verdict: Verdict::Warning, detail: detail.into(), fix: fix.into() }
    }

    fn failed(what: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { what, verdict: Verdict::Failed, detail: detail.into(), fix: fix.into() }
    }

    /// A check that ended with a failure of a command.
    fn because(what: &'static str, failure: &Failure) -> Check {
        Check::failed(what, failure.why(), failure.next().unwrap_or_default())
    }
}

impl Row for Check {
    const COLUMNS: &'static [Column] =
        &[words("check"), words("result"), words("detail"), words("fix")];

    fn cells(&self) -> Vec<Cell> {
        let tone = match self.verdict {
            Verdict::Ok => Tone::Good,
            Verdict::Warning | Verdict::Failed => Tone::Bad,
            Verdict::Skipped => Tone::Plain,
        };
        vec![
            Cell::new(self.what),
            Cell::word(&self.verdict).with_tone(tone),
            Cell::new(&self.detail),
            Cell::new(&self.fix),
        ]
    }
}

/// Runs the checks, each that can be run after those before it.
pub(crate) fn run(connection: &ConnectionArguments, format: Format) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let checks = runtime.block_on(checks(connection));
    let json = serde_json::to_string(&checks)?;
    match format {
        Format::Table => print_styled(&Sheet::list(&checks).text(colours()))?,
        Format::Csv => print(&Sheet::list(&checks).csv()?)?,
        Format::Json => print(&json)?,
        Format::Yaml => print(&yaml(&json)?)?,
    }
    match checks.iter().filter(|check| check.verdict == Verdict::Failed).count() {
        0 => Ok(()),
        failed => {
            let why = format!("{failed} of {} checks failed", checks.len());
            Err(Failure::because(Exit::Failed, why))
        }
    }
}

async fn checks(connection: &ConnectionArguments) -> Vec<Check> {
    let mut checks = Vec::new();
    let client = match origins(connection).and_then(|origins| {
        checks.extend(of_origins(&origins));
        connect(connection)
    }) {
        Ok(client) => client,
        Err(failure) => {
            checks.push(Check::because("connection", &failure));
            return checks;
        }
    };
    let healthy = get(&client, "/healthz").await;
    let is_there = healthy.is_ok();
    checks.push(match healthy {
        Ok(_) => Check::ok("server", format!("{} answers", client.server())),
        Err(error) => Check::because("server", &problem::failure(&error, None)),
    });
    if !is_there {
        return checks;
    }
    checks.push(match get(&client, "/readyz").await {
        Ok(answer) => match answer["time"].as_str() {
            Some(time) => Check::failed("ready", time, "see docs/operate/operations.md, The clock"),
            None => Check::ok("ready", "every writer is serving"),
        },
        Err(error) => {
            let fix = "wait for a start to end; otherwise see docs/operate/operations.md, Runbook";
            Check::failed("ready", error.to_string(), fix)
        }
    });
    let accounts = get(&client, "/v1/accounts?limit=1").await;
    let is_accepted = accounts.is_ok();
    checks.push(match accounts {
        Ok(answer) if answer["data"].as_array().is_some_and(Vec::is_empty) => {
            let fix = "bursar account open NAME, with a key of the platform";
            Check::failed("key", "it is accepted, but sees no account", fix)
        }
        Ok(_) => Check::ok("key", "it is accepted"),
        Err(error) if error.code() == Some(Code::Forbidden) => {
            Check::skipped("key", "it is accepted, but may not list accounts")
        }
        Err(error) => Check::because("key", &problem::failure(&error, None)),
    });
    if is_accepted {
        checks.push(of_nodes(&client).await);
        checks.push(of_credits(&client).await);
    }
    checks
}

fn of_origins(origins: &Origins) -> Vec<Check> {
    let server = Check::ok("address", format!("{} ({})", origins.server, origins.server_from));
    let key = match &origins.key_id {
        _ if origins.key_from == "none" => {
            let fix = "pass --key-file FILE, or save it: bursar context add NAME --server URL \
                --key-file FILE";
            Check::failed("key source", "no key is given", fix)
        }
        Some(id) => Check::ok("key source", format!("{id} ({})", origins.key_from)),
        None => Check::ok("key source", format!("a key without an id ({})", origins.key_from)),
    };
    vec![server, key]
}

async fn of_nodes(client: &Client) -> Check {
    match get(client, "/v1/nodes?limit=100").await {
        Ok(answer) => {
            let nodes = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ready = nodes.iter().filter(|node| node["state"] == "ready").count();
            match (ready, nodes.len()) {
                (0, 0) => Check::failed(
                    "nodes",
                    "no node is registered: jobs wait",
                    "start an agent on each GPU node: docs/operate/agent.md",
                ),
                (0, all) => {
                    Check::failed("nodes", format!("none of {all} is ready"), "bursar node ls")
                }
                (ready, all) => Check::ok("nodes", format!("{ready} of {all} are ready")),
            }
        }
        Err(_) => Check::skipped("nodes", "not visible to this key"),
    }
}

/// Whether credits that the key's account can spend expire soon.
async fn of_credits(client: &Client) -> Check {
    let what = "credits";
    let Ok(caller) = client.send(sessions::get()).await else {
        return Check::skipped(what, "not visible to this key");
    };
    let account = caller.value.scope;
    if account == EVERYTHING {
        let detail = "the key is for all accounts: bursar balance ACCOUNT shows those of one";
        return Check::skipped(what, detail);
    }
    let Some(effective) = effective(client, &account).await else {
        return Check::skipped(what, "not visible to this key");
    };
    let spendable = effective.spendable;
    match expiry::of_account(&effective) {
        Some((sum, first)) => Check::warning(
            what,
            format!("{sum} of {spendable} expire within 14 days, the first at {first}"),
            format!("bursar forecast {account} shows what will expire unspent"),
        ),
        None => {
            Check::ok(what, format!("{account} can spend {spendable}; none expire within 14 days"))
        }
    }
}

/// What an account can spend now, if the key may see it.
async fn effective(client: &Client, account: &str) -> Option<Effective> {
    let query = EffectiveQuery::default();
    client.send(balances::effective(account, &query)).await.ok().map(|answer| answer.value)
}

async fn get(client: &Client, target: &str) -> Result<Value, ClientError> {
    let call: Call<Value> = Call::from_target(Method::Get, target);
    client.send(call).await.map(|answer| answer.value)
}

/// What commands use, and what the key may do.
#[derive(Serialize)]
struct Identity {
    #[serde(flatten)]
    origins: Origins,
    role: Role,
    scope: String,
    name: Option<String>,
    /// Credits that its account can spend and that expire soon.
    expiring_in_14_days: Option<Sum>,
    first_expiry_at: Option<Time>,
}

/// Shows the server and the key that commands use.
pub(crate) fn whoami(connection: &ConnectionArguments, format: Format) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let origins = origins(connection)?;
    let client = connect(connection)?;
    let caller = runtime.block_on(client.send(sessions::get()));
    let caller = caller.map_err(|error| problem::failure(&error, None))?.value;
    let (role, scope, name) = (caller.role, caller.scope, caller.name);
    let effective = match scope.as_str() {
        EVERYTHING => None,
        account => runtime.block_on(effective(&client, account)),
    };
    let soon = effective.as_ref().and_then(expiry::of_account);
    let (expiring_in_14_days, first_expiry_at) = soon.unzip();
    let identity = Identity { origins, role, scope, name, expiring_in_14_days, first_expiry_at };
    let json = serde_json::to_string(&identity)?;
    let sheet = || {
        let Identity { origins, role, scope, name, expiring_in_14_days, first_expiry_at } =
            &identity;
        let mut fields = vec![
            ("server", Cell::new(&origins.server)),
            ("server_from", Cell::new(origins.server_from)),
            ("context", Cell::maybe(origins.context.as_ref())),
            ("key", Cell::maybe(origins.key_id.as_ref())),
            ("key_from", Cell::new(origins.key_from)),
            ("tenant", Cell::maybe(origins.tenant.as_ref())),
            ("name", Cell::maybe(name.as_ref())),
            ("role", Cell::word(role)),
            ("scope", Cell::new(scope)),
        ];
        if let (Some(sum), Some(first)) = (expiring_in_14_days, first_expiry_at) {
            fields.push(("expiring_in_14_days", Cell::new(sum).with_tone(Tone::Bad)));
            fields.push(("first_expiry_at", Cell::time(*first).with_tone(Tone::Bad)));
        }
        Sheet::record(fields)
    };
    match format {
        Format::Table => print_styled(&sheet().text(colours())),
        Format::Csv => print(&sheet().csv()?),
        Format::Json => print(&json),
        Format::Yaml => print(&yaml(&json)?),
    }
}
