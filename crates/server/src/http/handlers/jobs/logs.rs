//! The output of jobs.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bursar_api::jobs::job::LogQuery;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::{JobNo, Name};
use bursar_core::ledger::jobs::Attempt;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;
use futures_util::stream;

use crate::app::App;
use crate::auth::{Principal, tenant_of};
use crate::change::find;
use crate::http::extract::{Params, Path};
use crate::http::respond::{Answer, job_named};
use crate::ids::attempt::stored;
use crate::logs::{NodeTag, Output, TenantTag};
use crate::net::waits::{Wait, WaitPlace};
use crate::operations::Operation;
use crate::render::job::{attempt_name, place_of};
use crate::request::{Caller, Failure};

/// How long to wait before checking for more output.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What to read: the output of an attempt on one of its nodes.
struct Source {
    number: JobNo,
    output: Option<Output>,
    rank: u32,
}

/// The output of an attempt on the node of a rank.
fn output(ledger: &Ledger, job: JobNo, attempt: &Attempt, rank: u32) -> Output {
    let region = attempt.cell.and_then(|cell| ledger.cell(cell));
    let region = region.map_or("", |book| book.region.as_str());
    let on = usize::try_from(rank).ok().and_then(|rank| attempt.nodes.get(rank));
    let node = on.map_or("", |on| on.node.as_str());
    let account = ledger.job(job).map(|own| &ledger.account(own.order.account).path);
    let tenant = TenantTag::of(account.map_or("", |path| tenant_of(path)));
    let (cell, id) = place_of(ledger.id_in_cells(job), attempt);
    Output { attempt: stored(cell, id), rank, node: NodeTag::of_full(region, node), tenant }
}

async fn source(
    app: &App,
    account: &AccountPath,
    id: &Name,
    wanted: Option<String>,
    rank: u32,
) -> Result<Source, Failure> {
    let (tenant, job, ids) =
        (AccountPath::unchecked(tenant_of(account)), id.clone(), app.attempt_ids);
    let read = move |ledger: &Ledger| {
        let number = ledger.find_job_or_array(ledger.find_account(&tenant)?, &job)?;
        let own = ledger.job(number)?;
        let all = own.attempts.iter();
        let all = all.map(|attempt| {
            (
                attempt_name(&ids, ledger.id_in_cells(number), attempt),
                output(ledger, number, attempt, rank),
            )
        });
        Some((number, all.collect::<Vec<_>>(), own.order.terms.nodes))
    };
    let seen = app.read(read).await?;
    let (number, mut outputs, nodes) = seen.value.ok_or_else(|| Failure::not_found("job", id))?;
    if rank >= u32::from(nodes) {
        let reason = match nodes {
            1 => "the job has one node: 0".to_owned(),
            nodes => format!("the job has {nodes} nodes: 0 to {}", nodes - 1),
        };
        return Err(Failure::invalid("rank", reason));
    }
    let output = match wanted {
        Some(wanted) => {
            let found = outputs.into_iter().find(|(name, _)| *name == wanted);
            Some(found.ok_or_else(|| Failure::not_found("attempt", &wanted))?)
        }
        None => outputs.pop(),
    };
    Ok(Source { number, output: output.map(|(_, output)| output), rank })
}

/// The state of a reader.
struct Reading {
    app: Arc<App>,
    source: Source,
    offset: u64,
    follow: bool,
    principal: Principal,
    /// Whether the reason why the output is incomplete was sent.
    noted: bool,
    /// Held while it follows.
    _place: Option<WaitPlace>,
}

/// Aborts the response: a normal end would mean that the output is complete.
fn key_ended() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::PermissionDenied, "the key is no longer valid")
}

impl Reading {
    async fn has_ended(&self) -> bool {
        let number = self.source.number;
        let look = move |ledger: &Ledger| ledger.job(number).is_none_or(|job| job.state.is_ended());
        // A ledger that does not answer is shutting down, and the stream with it.
        self.app.ledger.peek(look).await.unwrap_or(true)
    }

    /// The output to read. If no attempt was named, it may appear only later.
    async fn output(&mut self) -> Option<Output> {
        if self.source.output.is_none() {
            let (number, rank) = (self.source.number, self.source.rank);
            let look = move |ledger: &Ledger| {
                let attempts = &ledger.job(number)?.attempts;
                attempts.last().map(|attempt| output(ledger, number, attempt, rank))
            };
            self.source.output = self.app.ledger.peek(look).await.ok().flatten();
        }
        self.source.output.clone()
    }

    /// The reason why the output is incomplete, once, if it is.
    async fn note(&mut self) -> Option<Vec<u8>> {
        let output = self.source.output.clone()?;
        if std::mem::replace(&mut self.noted, true) {
            return None;
        }
        let note = self.app.logs.cut(&output).await?;
        Some(format!("\n[{note}]\n").into_bytes())
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        loop {
            if !self.principal.works(&self.app.directory.current(), self.app.clock.now()) {
                return Err(key_ended());
            }
            // Checked first, so that output written before the end is still read.
            let ended = !self.follow || self.has_ended().await;
            if let Some(output) = self.output().await {
                let piece = self.app.logs.read(&output, self.offset).await?;
                if !piece.is_empty() {
                    self.offset += piece.len() as u64;
                    return Ok(Some(piece));
                }
            }
            if ended {
                return Ok(self.note().await);
            }
            let mut stopped = self.app.stopped.clone();
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = stopped.changed() => return Ok(None),
                () = self.app.until_key_ends(&self.principal) => return Err(key_ended()),
            }
        }
    }
}

/// The output of a job's attempt on one of its nodes as text. `rank` selects the node; 0 if
/// absent. With `follow` it streams until the job has ended.
#[utoipa::path(get, path = "/v1/jobs/{id}/logs", tag = "jobs", operation_id = "get_job_logs",
    params(("id" = String, Path, description = "The job's id"), LogQuery),
    responses((status = 200, description = "The output", body = String,
        content_type = "text/plain")))]
pub(in crate::http) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Params(query): Params<LogQuery>,
) -> Answer {
    let id = job_named(id)?;
    let account = find(&app, &caller, Resource::Job, &id).await?;
    caller.principal.require(Operation::GetJobLogs)?;
    let source = source(&app, &account, &id, query.attempt, query.rank.unwrap_or(0)).await?;
    let follow = query.follow.unwrap_or(false);
    let place = follow.then(|| app.waits.enter(&caller.principal, Wait::Stream)).transpose()?;
    let principal = caller.principal;
    let reading =
        Reading { app, source, offset: 0, follow, principal, noted: false, _place: place };
    let pieces = stream::try_unfold(reading, |mut reading| async move {
        Ok::<_, std::io::Error>(reading.next().await?.map(|piece| (piece, reading)))
    });
    let mut response: Response = Body::from_stream(pieces).into_response();
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}
