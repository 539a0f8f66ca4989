//! The audit trail of a cell or of the directory, read from its journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bursar_api::list::List;
use bursar_api::system::audit::{AuditRecord, AuditSubject, AuditSubjectType};
use bursar_core::cell::Cell;
use bursar_core::cell::ids::JobId;
use bursar_core::ledger::Ledger;
use bursar_core::name::{AccountPath, is_at_or_below, tenant_of};
use bursar_history::query::Cursor;
use bursar_journal::Journal;

use crate::app::App;
use crate::auth::Principal;
use crate::followers::cell_copy::CellCopy;
use crate::followers::timeline::ReadBackError;
use crate::followers::trail::{About, TrailEntry, TrailOf, TrailSpan, newest};
use crate::ids::RequestId;
use crate::machines::ledgers::ledger_name;
use crate::render::time;
use crate::request::Failure;

/// The most things that one record names.
const MAX_ABOUT: usize = 20;

/// A machine whose trail is not in history.
#[derive(Clone)]
pub(super) struct TrailMachine {
    /// Its name.
    pub name: String,
    /// Its journal.
    pub journal: Arc<dyn Journal>,
    /// Its copy, of a cell.
    copy: Option<CellCopy>,
}

impl TrailMachine {
    /// The machine of this name; `None` for the ledger.
    pub(super) fn named(app: &App, name: Option<&str>) -> Result<Option<TrailMachine>, Failure> {
        let name = match name {
            None => return Ok(None),
            Some(name) if name == ledger_name(app.shard) => return Ok(None),
            Some(name) => name,
        };
        let audited = |journal: &Arc<dyn Journal>, copy: Option<CellCopy>| TrailMachine {
            name: name.to_owned(),
            journal: Arc::clone(journal),
            copy,
        };
        if name == "directory" {
            return Ok(Some(audited(&app.directory_journal, None)));
        }
        let cell = name.strip_prefix("cell-").and_then(|region| app.cells.of_region(region));
        let cell = cell.ok_or_else(|| Failure::not_found("machine", name))?;
        Ok(Some(audited(&cell.journal, Some(cell.copy().clone()))))
    }

    fn of(&self) -> TrailOf {
        if self.copy.is_some() { TrailOf::Cell } else { TrailOf::Directory }
    }

    /// Whether a record contains a secret that a proof would show.
    pub(super) async fn is_secret(&self, app: &App, position: u64) -> Result<bool, Failure> {
        if self.copy.is_some() {
            return Ok(false);
        }
        let span = TrailSpan { before: Some((position.saturating_add(1), 0)), after: position - 1 };
        let (journal, turn) = (Arc::clone(&self.journal), app.history.turn().await?);
        let read = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            newest(&*journal, TrailOf::Directory, span, MAX_ABOUT, |entries| {
                entries
                    .into_iter()
                    .map(|entry| ((entry.position, entry.item), entry.events))
                    .collect()
            })
        });
        let (found, _) = finished(read.await)?;
        Ok(found.iter().flatten().any(|event| *event == "attempt_secret_set"))
    }
}

/// What is wanted of a trail.
#[derive(Clone)]
pub(super) struct WantedRecords {
    /// Who asks.
    pub principal: Principal,
    /// Only what is about this account or one below it.
    pub account: Option<AccountPath>,
    /// Only what is about this job.
    pub job: Option<JobId>,
    /// Only by this actor.
    pub actor: Option<String>,
    /// Only these commands.
    pub commands: Option<BTreeSet<String>>,
    /// Only this record.
    pub position: Option<u64>,
    /// Only records after this one.
    pub after: u64,
    /// How many at most.
    pub limit: usize,
}

/// A page of the trail of a machine.
pub(super) async fn page(
    app: &Arc<App>,
    audited: TrailMachine,
    wanted: WantedRecords,
    cursor: Option<Cursor>,
) -> Result<List<AuditRecord>, Failure> {
    let wrong = || Failure::invalid("cursor", "pass the next_cursor of the page before");
    let before = cursor.map(|cursor| cursor.record().ok_or_else(wrong)).transpose()?;
    let span = match wanted.position {
        Some(at) => TrailSpan {
            before: before.or(Some((at.saturating_add(1), 0))),
            after: wanted.after.max(at.saturating_sub(1)),
        },
        None => TrailSpan { before, after: wanted.after },
    };
    let (limit, own) = (wanted.limit, Arc::clone(app));
    let turn = app.history.turn().await?;
    let read = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let choose = |entries: Vec<TrailEntry>| chosen(&own, &audited, &wanted, entries);
        let (data, next) = newest(&*audited.journal, audited.of(), span, limit, choose)?;
        Ok::<_, ReadBackError>((data, next, audited.journal.head()?.position))
    });
    let (data, next, position) = finished(read.await)?;
    let next_cursor = next.map(|place| Cursor::of_record(place).to_string());
    let as_of = Some(time(app.clock.now()));
    Ok(List { data, has_more: next_cursor.is_some(), next_cursor, as_of, position: Some(position) })
}

fn finished<T>(
    read: Result<Result<T, ReadBackError>, tokio::task::JoinError>,
) -> Result<T, Failure> {
    let unreadable = |detail: String| Failure::new(bursar_api::Code::Unavailable, detail);
    let read = read.map_err(|error| unreadable(error.to_string()))?;
    read.map_err(|error| unreadable(error.to_string()))
}

/// The decisions that are meant, as records.
fn chosen(
    app: &App,
    audited: &TrailMachine,
    wanted: &WantedRecords,
    mut entries: Vec<TrailEntry>,
) -> Vec<((u64, u32), AuditRecord)> {
    entries.retain(|entry| wanted.is_meant(entry));
    if entries.is_empty() {
        return Vec::new();
    }
    match &audited.copy {
        None => {
            let others = BTreeMap::new();
            let look = |ledger: &Ledger| {
                records(&TrailNames { ledger, others: &others, cell: None }, wanted, entries)
            };
            app.feed.look(look).value
        }
        Some(copy) => {
            let others = jobs_of_others(app, &entries);
            copy.look(|cell| {
                let cell = Some((cell, copy));
                let look = |ledger: &Ledger| {
                    records(&TrailNames { ledger, others: &others, cell }, wanted, entries)
                };
                app.feed.look(look).value
            })
        }
    }
}

/// The decisions that the caller may see, as records.
fn records(
    names: &TrailNames<'_>,
    wanted: &WantedRecords,
    entries: Vec<TrailEntry>,
) -> Vec<((u64, u32), AuditRecord)> {
    let shown = entries.into_iter().filter_map(|entry| {
        let place = (entry.position, entry.item);
        let about: Vec<TrailSubject> =
            entry.about.iter().map(|one| names.of(one, &entry)).collect();
        wanted.may_see(&entry, &about).then(|| (place, record(entry, about)))
    });
    shown.collect()
}

/// What a decision is about, and the accounts to which that belongs.
struct TrailSubject {
    shown: Option<AuditSubject>,
    owner: SubjectOwner,
}

/// To which accounts something belongs.
enum SubjectOwner {
    /// To the platform, or nothing is known.
    Platform,
    /// To an account.
    Account(AccountPath),
    /// To a tenant; to which of its accounts is not known.
    Tenant(AccountPath),
}

impl WantedRecords {
    fn is_meant(&self, entry: &TrailEntry) -> bool {
        let is_named = |commands: &BTreeSet<String>| {
            entry.command.is_some_and(|command| commands.contains(command))
        };
        self.actor.as_ref().is_none_or(|actor| entry.actor.as_ref() == Some(actor))
            && self.commands.as_ref().is_none_or(is_named)
            && self.job.is_none_or(|job| entry.about.contains(&About::Job(job)))
    }

    /// Everything that it is about belongs to the account.
    fn may_see(&self, entry: &TrailEntry, about: &[TrailSubject]) -> bool {
        let own = |of: &AccountPath| {
            let acts = entry.actor.as_deref() == Some(self.principal.id.as_str());
            acts && self.principal.tenant() == Some(tenant_of(of))
        };
        let within = |account: &AccountPath| {
            about.iter().all(|subject| match &subject.owner {
                SubjectOwner::Platform => false,
                SubjectOwner::Account(path) => is_at_or_below(path, account),
                SubjectOwner::Tenant(tenant) => tenant == account || own(tenant),
            })
        };
        let limits = [self.principal.scope.as_ref(), self.account.as_ref()];
        let mut limits = limits.into_iter().flatten();
        limits.all(|account| !about.is_empty() && within(account))
    }
}

/// The accounts and names of jobs.
type NamedJobs = BTreeMap<JobId, (AccountPath, String)>;

/// The jobs of other shards that records of a cell are about.
fn jobs_of_others(app: &App, entries: &[TrailEntry]) -> NamedJobs {
    let about = entries.iter().flat_map(|entry| &entry.about);
    let jobs = about.filter_map(|about| match about {
        About::Job(job) if job.shard() != app.shard => Some(*job),
        _ => None,
    });
    let mut named = BTreeMap::new();
    for job in jobs {
        let Some(own) = app.ledgers.get(usize::from(job.shard())) else { continue };
        named
            .extend(own.feed.look(|ledger| named_job(ledger, job)).value.map(|known| (job, known)));
    }
    named
}

fn named_job(ledger: &Ledger, job: JobId) -> Option<(AccountPath, String)> {
    let known = ledger.job(ledger.job_of_cells(job)?)?;
    let path = ledger.account(known.order.account).path.clone();
    Some((path, known.order.id.to_string()))
}

/// Where names are looked up.
struct TrailNames<'a> {
    ledger: &'a Ledger,
    others: &'a NamedJobs,
    cell: Option<(&'a Cell, &'a CellCopy)>,
}

impl TrailNames<'_> {
    fn of(&self, about: &About, entry: &TrailEntry) -> TrailSubject {
        let shown = |kind, id: String| Some(AuditSubject { kind, id });
        match about {
            About::Platform => TrailSubject { shown: None, owner: SubjectOwner::Platform },
            About::Named(subject, owner) => {
                // A revocation names the tenant of the key, not its account.
                let is_revoked = entry.events.contains(&"key_revoked");
                let owner = match owner.clone() {
                    None => SubjectOwner::Platform,
                    Some(tenant) if is_revoked => SubjectOwner::Tenant(tenant),
                    Some(account) => SubjectOwner::Account(account),
                };
                TrailSubject { shown: Some(subject.clone()), owner }
            }
            About::Job(job) => self.job(*job),
            About::NodeNamed(name) => {
                let owner = name.split_once('/').map(|(tenant, _)| AccountPath::unchecked(tenant));
                let owner = owner.map_or(SubjectOwner::Platform, SubjectOwner::Tenant);
                TrailSubject { shown: shown(AuditSubjectType::Node, name.to_string()), owner }
            }
            About::Node(number) => {
                let known = self.cell.and_then(|(cell, copy)| {
                    let scope = cell.node_numbered(*number)?.offer.scope.clone();
                    Some((copy.node_at(cell, *number, entry.position)?, scope))
                });
                match known {
                    Some((node, scope)) => TrailSubject {
                        shown: shown(AuditSubjectType::Node, node.full().to_string()),
                        owner: scope.map_or(SubjectOwner::Platform, SubjectOwner::Account),
                    },
                    None => {
                        let id = format!("#{}", number.0);
                        TrailSubject {
                            shown: shown(AuditSubjectType::Node, id),
                            owner: SubjectOwner::Platform,
                        }
                    }
                }
            }
        }
    }

    /// A job that the ledger has not forgotten.
    fn job(&self, job: JobId) -> TrailSubject {
        let kind = AuditSubjectType::Job;
        match named_job(self.ledger, job).or_else(|| self.others.get(&job).cloned()) {
            Some((path, id)) => {
                let shown = Some(AuditSubject { kind, id });
                TrailSubject { shown, owner: SubjectOwner::Account(path) }
            }
            None => {
                let shown = Some(AuditSubject { kind, id: format!("#{}", job.number()) });
                TrailSubject { shown, owner: SubjectOwner::Platform }
            }
        }
    }
}

fn record(entry: TrailEntry, about: Vec<TrailSubject>) -> AuditRecord {
    let named: BTreeSet<AuditSubject> = about.into_iter().filter_map(|one| one.shown).collect();
    AuditRecord {
        position: entry.position,
        item: entry.item,
        at: time(entry.at),
        actor: entry.actor,
        command: entry.command.map(str::to_owned),
        refusal: entry.is_refused.then(|| "refused".to_owned()),
        events: entry.events.into_iter().map(str::to_owned).collect(),
        about: named.into_iter().take(MAX_ABOUT).collect(),
        request_id: (entry.request != 0).then(|| RequestId::from_bits(entry.request).to_string()),
    }
}
