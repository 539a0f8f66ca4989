//! Accounts.

pub(in crate::http) mod balance;
pub(in crate::http) mod budgets;
pub(in crate::http) mod forecast;
pub(in crate::http) mod history;
pub(in crate::http) mod quotas;
pub(in crate::http) mod spend;
pub(in crate::http) mod statement;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::accounts::account::{
    Account, AccountFilter, ChangeAccount, Collect, Collected, OpenAccount,
};
use bursar_api::json::convert;
use bursar_api::list::List;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::command::{AccountSettings, ClearedSettings, Command};
use bursar_core::ledger::id::{AccountNo, Name};
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::{AccountPath, Region};
use serde_json::Value;

use crate::app::App;
use crate::auth::is_org;
use crate::auth::permissions::Authority;
use crate::change::{ChangePlan, Target};
use crate::http::convert::{account_kind, credits, metadata, millis, name, text};
use crate::http::extract::{Params, Path, Tree};
use crate::http::list::{PageStep, page_size, walk};
use crate::http::respond::{Answer, account_field, account_path, change, json, new_id};
use crate::machines::ledgers::ledger_name;
use crate::operations::Operation;
use crate::render::{self, AnswerShape, time};
use crate::request::{Caller, Failure};

/// The fair-share weight of an account that has none of its own.
const DEFAULT_WEIGHT_MILLI: u32 = 1000;

fn settings(
    change: ChangeAccount,
    home_region: Option<Region>,
) -> Result<AccountSettings, Failure> {
    let overdraft = change.overdraft_limit.map(|limit| credits(limit, "overdraft_limit"));
    Ok(AccountSettings {
        name: text(change.name, "name", 256)?.map(Name::from),
        weight_milli: change.weight.map(|weight| weight.milli()),
        home_region,
        metadata: metadata(change.metadata)?,
        compensation_ttl_ms: change.compensation_ttl_seconds.map(millis),
        overdraft_limit: overdraft.transpose()?,
    })
}

/// The authority that settings need: the platform for the weight of an org, the capability `issue`
/// for settings that let credits in.
fn authority(path: &str, settings: &AccountSettings, cleared: ClearedSettings) -> Authority {
    let issues = settings.compensation_ttl_ms.is_some()
        || settings.overdraft_limit.is_some()
        || cleared.compensation_ttl_ms
        || cleared.overdraft_limit;
    if settings.weight_milli.is_some() && is_org(path) {
        Authority::Platform
    } else if issues {
        Authority::Issue
    } else {
        Authority::Role
    }
}

/// The region that an account prefers: one that exists.
fn home_region(app: &App, named: Option<String>) -> Result<Option<Region>, Failure> {
    let region = name(named, "home_region", Region::parse)?;
    match region.as_ref().filter(|region| app.cells.of_region(region).is_none()) {
        Some(unknown) => {
            let known: Vec<&str> = app.cells.iter().map(|cell| cell.region.as_str()).collect();
            let reason = format!("there is no region `{unknown}`; known: {}", known.join(", "));
            Err(Failure::invalid("home_region", reason))
        }
        None => Ok(region),
    }
}

pub(in crate::http) fn plan_open(app: &App, body: Value) -> Result<ChangePlan, Failure> {
    let open: OpenAccount = convert(body)?;
    let path = account_field(open.id, "id")?;
    let kind = account_kind(open.kind);
    let given = ChangeAccount {
        name: open.name,
        weight: open.weight,
        metadata: open.metadata,
        compensation_ttl_seconds: open.compensation_ttl_seconds,
        overdraft_limit: open.overdraft_limit,
    };
    let settings = settings(given, home_region(app, open.home_region)?)?;
    Ok(ChangePlan {
        operation: Operation::OpenAccount,
        authority: authority(&path, &settings, ClearedSettings::default()),
        target: Target::Account(path.clone()),
        creates: Some((Resource::Account, path.clone().into(), true)),
        counts: None,
        array: None,
        build: Box::new(move |_| Command::OpenAccount { path, kind, settings }),
        shape: AnswerShape::Account,
    })
}

pub(super) fn plan_change(_: &App, id: String, body: Value) -> Result<ChangePlan, Failure> {
    let is_null = |field: &str| body.get(field).is_some_and(Value::is_null);
    let cleared = ClearedSettings {
        name: is_null("name"),
        metadata: is_null("metadata"),
        compensation_ttl_ms: is_null("compensation_ttl_seconds"),
        overdraft_limit: is_null("overdraft_limit"),
    };
    let usual_weight = is_null("weight").then_some(DEFAULT_WEIGHT_MILLI);
    let mut settings = settings(convert(body)?, None)?;
    settings.weight_milli = settings.weight_milli.or(usual_weight);
    let path = account_path(id)?;
    Ok(ChangePlan {
        operation: Operation::ChangeAccount,
        authority: authority(&path, &settings, cleared),
        target: Target::Account(path.clone()),
        creates: None,
        counts: None,
        array: None,
        build: Box::new(move |_| Command::ChangeAccount { path, settings, cleared }),
        shape: AnswerShape::Account,
    })
}

pub(super) fn plan_freeze(id: String, freeze: bool, body: Value) -> Result<ChangePlan, Failure> {
    let _: bursar_api::credits::hold::Release = convert(body)?;
    let path = account_path(id)?;
    Ok(ChangePlan {
        operation: if freeze { Operation::FreezeAccount } else { Operation::UnfreezeAccount },
        authority: Authority::Role,
        target: Target::Account(path.clone()),
        creates: None,
        counts: None,
        array: None,
        build: Box::new(move |_| {
            // Set when the caller is known.
            let by_platform = false;
            if freeze {
                Command::FreezeAccount { path, by_platform }
            } else {
                Command::UnfreezeAccount { path, by_platform }
            }
        }),
        shape: AnswerShape::Account,
    })
}

pub(super) fn plan_collect(app: &App, id: String, body: Value) -> Result<ChangePlan, Failure> {
    let collect: Collect = convert(body)?;
    let path = account_path(id)?;
    let (id, creates) = new_id(app, Resource::Collection, collect.id, "collection")?;
    Ok(ChangePlan {
        operation: Operation::Collect,
        authority: Authority::Role,
        target: Target::Account(path.clone()),
        creates: Some(creates),
        counts: None,
        array: None,
        shape: AnswerShape::Collection { account: path.clone() },
        build: Box::new(move |_| Command::CollectUncollected { path, id: id.into() }),
    })
}

/// Opens an account below its parent.
#[utoipa::path(post, path = "/v1/accounts", tag = "accounts", operation_id = "open_account",
    request_body = OpenAccount, responses(
        (status = 201, description = "The account was opened", body = Account),
        (status = 200, description = "The same request had opened it before", body = Account)))]
pub(in crate::http) async fn open(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_open(&app, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// Updates an account. Absent fields stay as they are.
#[utoipa::path(patch, path = "/v1/accounts/{id}", tag = "accounts", operation_id = "change_account",
    params(("id" = String, Path, description = "The account's path")),
    request_body = ChangeAccount,
    responses((status = 200, description = "The account as it is now", body = Account)))]
pub(in crate::http) async fn patch(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_change(&app, id, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// Stops new spending in the subtree of an account. Held credits stay capturable.
#[utoipa::path(post, path = "/v1/accounts/{id}/freeze", tag = "accounts",
    operation_id = "freeze_account",
    params(("id" = String, Path, description = "The account's path")),
    responses((status = 200, description = "The account, frozen", body = Account)))]
pub(in crate::http) async fn freeze(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_freeze(id, true, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// Allows spending again.
#[utoipa::path(post, path = "/v1/accounts/{id}/unfreeze", tag = "accounts",
    operation_id = "unfreeze_account",
    params(("id" = String, Path, description = "The account's path")),
    responses((status = 200, description = "The account, no longer frozen", body = Account)))]
pub(in crate::http) async fn unfreeze(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_freeze(id, false, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// Repays uncollected usage from spendable credits.
#[utoipa::path(post, path = "/v1/accounts/{id}/collect", tag = "accounts", operation_id = "collect",
    params(("id" = String, Path, description = "The account's path")),
    request_body = Collect, responses(
        (status = 201, description = "The repayment", body = Collected),
        (status = 200, description = "The same request had repaid it before", body = Collected)))]
pub(in crate::http) async fn collect(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let fingerprint = caller.fingerprint(&body);
    let plan = plan_collect(&app, id, body)?;
    change(&app, caller, fingerprint, plan).await
}

/// The path of an account that the caller may read.
pub(in crate::http) fn visible(caller: &Caller, id: String) -> Result<AccountPath, Failure> {
    let path = account_path(id)?;
    if !caller.principal.sees(&path) {
        return Err(Failure::not_found("account", &path));
    }
    Ok(path)
}

/// An account.
#[utoipa::path(get, path = "/v1/accounts/{id}", tag = "accounts", operation_id = "get_account",
    params(("id" = String, Path, description = "The account's path")),
    responses((status = 200, description = "The account", body = Account)))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    let path = visible(&caller, id)?;
    let wanted = path.clone();
    let read = move |ledger: &Ledger| {
        ledger.find_account(&wanted).map(|number| render::account(ledger, number))
    };
    let seen = app.read(read).await?;
    let mut account = seen.value.ok_or_else(|| Failure::not_found("account", &path))?;
    caller.principal.require(Operation::GetAccount)?;
    account.shard = account.parent.is_none().then(|| ledger_name(app.shard));
    account.as_of = Some(time(seen.at));
    account.position = Some(seen.position);
    Ok(json(StatusCode::OK, &account))
}

/// Accounts in the key's scope, newest first.
#[utoipa::path(get, path = "/v1/accounts", tag = "accounts", operation_id = "list_accounts",
    params(AccountFilter),
    responses((status = 200, description = "A page of accounts", body = List<Account>)))]
pub(in crate::http) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<AccountFilter>,
) -> Answer {
    caller.principal.require(Operation::ListAccounts)?;
    let size = page_size(filter.limit)?;
    let cursor = filter.cursor.clone();
    let principal = caller.principal;
    let wanted = Arc::new(move |ledger: &Ledger, number: AccountNo| {
        let account = ledger.account(number);
        let path = account.path.as_str();
        let parent = filter.parent.as_deref();
        principal.sees(path)
            && (parent.is_none()
                || account.parent.map(|p| ledger.account(p).path.as_str()) == parent)
            && filter.prefix.as_deref().is_none_or(|prefix| path.starts_with(prefix))
    });
    let page = walk(&app, size, cursor, move |ledger, before, count| {
        let end = u32::try_from(before).unwrap_or(u32::MAX);
        PageStep::over(
            count,
            ledger.accounts_before(end).map(|(number, _)| number.0.into()),
            |place| {
                let number = AccountNo(u32::try_from(place).ok()?);
                wanted(ledger, number).then(|| render::account(ledger, number))
            },
        )
    });
    Ok(json(StatusCode::OK, &page.await?))
}
