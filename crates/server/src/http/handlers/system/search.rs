//! Finding things by their id or the beginning of a name.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::system::search::{Hit, HitType, SearchQuery, SearchResult};
use bursar_core::directory::{ApiKey, Directory};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::id::AccountNo;
use bursar_core::name::KeyId;
use bursar_core::time::Timestamp;
use bursar_history::query::{AuditFilter, Cursor, FoundName};
use bursar_history::{History, HistoryError, Sqlite};
use bursar_journal::Journal;

use crate::app::App;
use crate::auth::Principal;
use crate::followers::trail::{directory_records_of, ledger_records_of};
use crate::http::extract::Params;
use crate::http::list::page_size;
use crate::http::respond::{Answer, json};
use crate::ids::request_of;
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

/// The most accounts of the scope whose names are compared, in order of their paths.
const MAX_ACCOUNTS: u32 = 5_000;
/// The most tenants in which the platform's search looks.
const MAX_TENANTS: usize = 1_000;
/// The longest text.
const MAX_TEXT: usize = 128;
/// The most records of one request.
const MAX_RECORDS: usize = 50;
/// The most decisions of one record that are looked at for those in the caller's scope.
const MAX_ITEMS: u32 = 100;
/// A request is decided at most this long after it arrived.
const REQUEST_SPAN_MS: i64 = 30_000;

/// What is searched for, and by which caller.
#[derive(Clone)]
struct Search {
    text: String,
    /// The text in small letters, for display names.
    small: String,
    principal: Principal,
    size: usize,
}

/// What was found so far.
#[derive(Default)]
struct SearchHits {
    hits: Vec<Hit>,
    seen: BTreeSet<(HitType, String, Option<String>)>,
}

impl SearchHits {
    fn add(&mut self, hit: Hit) {
        if self.seen.insert((hit.kind, hit.id.clone(), hit.account.clone())) {
            self.hits.push(hit);
        }
    }

    /// The first hits, whole ids first.
    fn result(mut self, size: usize) -> SearchResult {
        self.hits.sort_by_key(|hit| !hit.exact);
        let truncated = self.hits.len() > size;
        self.hits.truncate(size);
        SearchResult { data: self.hits, truncated }
    }
}

impl Search {
    fn scope(&self) -> Option<&str> {
        self.principal.scope.as_deref()
    }

    fn hit(&self, kind: HitType, id: &str, account: &str) -> Hit {
        Hit {
            kind,
            id: id.to_owned(),
            account: Some(account.to_owned()),
            name: None,
            exact: id == self.text,
            at: None,
            position: None,
            machine: None,
        }
    }

    fn is_named(&self, name: &str) -> bool {
        name.to_lowercase().starts_with(&self.small)
    }

    /// The tenants in which to look.
    fn tenants(&self, ledger: &Ledger) -> Vec<AccountNo> {
        match self.principal.tenant() {
            Some(tenant) => ledger.find_account(tenant).into_iter().collect(),
            None => ledger.tenants().take(MAX_TENANTS).collect(),
        }
    }

    /// Grants with this id.
    fn grants(&self, ledger: &Ledger, tenants: &[AccountNo]) -> Vec<Hit> {
        let grants = tenants.iter().filter_map(|tenant| ledger.find_grant(*tenant, &self.text));
        let hits = grants.map(|number| {
            let grant = ledger.grant(number);
            let path = ledger.account(grant.account).path.as_str();
            let at = Some(time(grant.created_at));
            Hit { at, ..self.hit(HitType::Grant, &grant.id, path) }
        });
        let sees = |hit: &Hit| hit.account.as_deref().is_some_and(|path| self.principal.sees(path));
        hits.filter(sees).collect()
    }

    /// Accounts among these whose path, last segment or display name begins with the text.
    fn accounts(&self, ledger: &Ledger, paths: &[String]) -> Vec<Hit> {
        let meant = paths.iter().filter_map(|path| {
            let account = ledger.account(ledger.find_account(path)?);
            let name =
                account.details.as_ref().and_then(|details| details.settings.name.as_deref());
            let last = path.rsplit(':').next().unwrap_or(path);
            let is_meant = path.starts_with(&self.text)
                || last.starts_with(&self.small)
                || name.is_some_and(|name| self.is_named(name));
            let name = name.map(str::to_owned);
            is_meant.then(|| Hit { name, ..self.hit(HitType::Account, path, path) })
        });
        meant.take(self.size + 1).collect()
    }

    /// Keys in the caller's scope.
    fn keys(&self, directory: &Directory) -> Vec<Hit> {
        let own = self.principal.tenant().map(|tenant| directory.keys_of(tenant));
        let all = own.is_none().then(|| directory.keys());
        let keys = own.into_iter().flatten().chain(all.into_iter().flatten());
        let seen = |key: &ApiKey| match &key.scope {
            Some(scope) => self.principal.sees(scope),
            None => self.principal.is_of_platform(),
        };
        let meant = keys.filter(|(id, key)| {
            seen(key) && (id.starts_with(&self.text) || self.is_named(&key.name))
        });
        let hit = |(id, key): (&KeyId, &ApiKey)| {
            let scope = key.scope.as_ref().map_or("*", |scope| scope.as_str());
            let (name, at) = (Some(key.name.to_string()), Some(time(key.created_at)));
            Hit { name, at, ..self.hit(HitType::Key, id, scope) }
        };
        meant.take(self.size + 1).map(hit).collect()
    }

    /// Jobs, holds, charges and grants.
    fn in_history(
        &self,
        history: &History<Sqlite>,
        tenants: &[AccountNo],
    ) -> Result<Vec<Hit>, HistoryError> {
        let limit = u32::try_from(self.size + 1).unwrap_or(u32::MAX);
        let (scope, text) = (self.scope(), self.text.as_str());
        let mut hits = Vec::new();
        let mut add = |kind: HitType, found: Vec<FoundName>| {
            hits.extend(found.iter().map(|found| self.hit(kind, &found.name, &found.account)));
            hits.len() > self.size * 4
        };
        add(HitType::Grant, history.grants_starting(scope, text, limit)?);
        for tenant in tenants.iter().map(|tenant| tenant.0) {
            add(HitType::Job, history.jobs_starting(tenant, scope, text, limit)?);
            let holds = (tenant, HoldKind::Hold);
            add(HitType::Hold, history.holds_starting(holds, scope, text, limit)?);
            let charges = (tenant, HoldKind::Charge);
            if add(HitType::Charge, history.holds_starting(charges, scope, text, limit)?) {
                break;
            }
        }
        Ok(hits)
    }

    /// Records that a request made.
    fn requests(
        &self,
        history: &History<Sqlite>,
        journals: &Journals,
        made: &RequestSearch,
    ) -> Result<Vec<Hit>, HistoryError> {
        let span = (made.at, made.at.plus_millis(REQUEST_SPAN_MS));
        let hit = |machine: Option<&str>, name: Option<String>, at: Timestamp, position: u64| Hit {
            kind: HitType::Request,
            id: self.text.clone(),
            account: None,
            name,
            exact: true,
            at: Some(time(at)),
            position: Some(position),
            machine: machine.map(str::to_owned),
        };
        let found = ledger_records_of(&*journals.ledger, made.request, span, MAX_RECORDS);
        let found = found.map_err(HistoryError::inconsistent)?;
        let mut hits = Vec::new();
        for position in found.positions {
            let before = Some(Cursor::before_record(position));
            let page = history.audit(made.filter, before, MAX_ITEMS)?;
            let entry = page.data.into_iter().rfind(|entry| entry.position == position);
            hits.extend(entry.map(|entry| {
                let name = entry.command.map(|command| command.name().to_owned());
                Hit { exact: found.is_exact, ..hit(None, name, entry.at, position) }
            }));
        }
        if self.principal.is_of_platform() {
            let made = directory_records_of(&*journals.directory, made.request, 1);
            let made = made.map_err(HistoryError::inconsistent)?.into_iter();
            hits.extend(made.map(|entry| {
                let name = entry.events.first().map(|event| (*event).to_owned());
                hit(Some("directory"), name, entry.at, entry.position)
            }));
        }
        Ok(hits)
    }
}

/// The journals in which requests are looked for.
struct Journals {
    ledger: Arc<dyn Journal>,
    directory: Arc<dyn Journal>,
}

/// A request whose records are looked for.
struct RequestSearch {
    filter: AuditFilter,
    request: u128,
    at: Timestamp,
}

/// Where to look for the records of a request; `None` if the caller may not read them.
fn records_of(search: &Search, ledger: &Ledger) -> Option<RequestSearch> {
    let (request, at) = request_of(&search.text)?;
    search.principal.require(Operation::ListAudit).ok()?;
    let filter = match search.scope() {
        Some(scope) => AuditFilter::Account(ledger.find_account(scope)?.0),
        None => AuditFilter::Everything,
    };
    Some(RequestSearch { filter, request, at })
}

/// Finds accounts, jobs, holds, grants, charges, keys and requests by their id or the beginning of
/// it; accounts and keys also by the beginning of their names.
///
/// Only what the key can see. Of a request (`req_…`) the records are found that name it. Records of older
/// builds name no request: then those are shown that were made when it arrived and in the 30 seconds
/// after, with `exact` false.
#[utoipa::path(get, path = "/v1/search", tag = "operations", operation_id = "search",
    params(SearchQuery),
    responses((status = 200, description = "What was found", body = SearchResult)))]
pub(in crate::http) async fn search(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<SearchQuery>,
) -> Answer {
    caller.principal.require(Operation::Search)?;
    let size = page_size(query.limit)?;
    let text = query.q.trim().to_owned();
    if text.is_empty() || text.len() > MAX_TEXT {
        return Err(Failure::invalid("q", "must have 1 to 128 characters"));
    }
    let principal = caller.principal.clone();
    let search = Search { small: text.to_lowercase(), text, principal, size };
    let mut found = SearchHits::default();
    let look = search.clone();
    let seen = app.read(move |ledger| {
        let tenants = look.tenants(ledger);
        let (grants, records) = (look.grants(ledger, &tenants), records_of(&look, ledger));
        (tenants, grants, records)
    });
    let seen = seen.await?;
    let (tenants, grants, records) = seen.value;
    grants.into_iter().for_each(|hit| found.add(hit));
    let asked = search.clone();
    let journals = Journals {
        ledger: Arc::clone(&app.ledger_journal),
        directory: Arc::clone(&app.directory_journal),
    };
    let ask = app.history.ask(seen.position, move |history| {
        let paths = history.accounts_within(asked.scope(), MAX_ACCOUNTS)?;
        let hits = asked.in_history(history, &tenants)?;
        let requests = match records {
            Some(made) => asked.requests(history, &journals, &made)?,
            None => Vec::new(),
        };
        Ok((paths, hits, requests))
    });
    let ((paths, hits, requests), _) = ask.await?;
    let accounts = app.read_copy(|ledger| search.accounts(ledger, &paths)).await?.value;
    accounts.into_iter().chain(hits).for_each(|hit| found.add(hit));
    if caller.principal.require(Operation::ListKeys).is_ok() {
        search.keys(&app.directory.current()).into_iter().for_each(|hit| found.add(hit));
    }
    found.hits.extend(requests);
    Ok(json(StatusCode::OK, &found.result(size)))
}
