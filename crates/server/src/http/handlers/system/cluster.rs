//! The servers of a store: which there are, what they own, and which of them shall own nothing.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use bursar_api::credits::hold::Release;
use bursar_api::json::convert;
use bursar_api::system::cluster::{Cluster, ClusterMachine, ClusterMember, ClusterMemberState};
use bursar_api::{Code, Time};
use bursar_journal::JournalError;
use bursar_journal::postgres::{
    MemberChange, MemberState, Membership, NEWEST_FORM, PostgresLeader,
};

use crate::app::App;
use crate::http::extract::{Path, Tree};
use crate::http::respond::{Answer, json};
use crate::machines::leader::{Leader, MEMBER_REQUEST_TIMEOUT};
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

/// The name of the only server of a data folder.
const ALONE: &str = "server";
const HAS_ONE: &str = "a data folder has one server, which owns every machine; several servers need a PostgreSQL \
    store: bursar serve --store postgres://…";

/// The servers of the store, and the machines that they own.
#[utoipa::path(get, path = "/v1/cluster", tag = "operations", operation_id = "get_cluster",
    responses((status = 200, description = "The members and machines", body = Cluster)))]
pub(in crate::http) async fn get(State(app): State<Arc<App>>, caller: Caller) -> Answer {
    caller.principal.require(Operation::GetCluster)?;
    let cluster = match &app.leader {
        Some(leader) => {
            let read = |store: &PostgresLeader| store.membership(MEMBER_REQUEST_TIMEOUT);
            of_store(asked(leader, read).await?)
        }
        None => alone(&app),
    };
    Ok(json(StatusCode::OK, &cluster))
}

/// Drains a member: it hands over what it owns, and takes nothing while another member can. It still forwards
/// requests. The last member that can own machines is not drained.
#[utoipa::path(post, path = "/v1/cluster/members/{id}/drain", tag = "operations",
    operation_id = "drain_member",
    params(("id" = String, Path, description = "The member")), request_body = Release,
    responses((status = 200, description = "The members and machines", body = Cluster)))]
pub(in crate::http) async fn drain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body)?;
    caller.principal.require(Operation::DrainMember)?;
    change(&app, id, Standalone::Refused, |store, id| {
        store.set_draining(id, true, MEMBER_REQUEST_TIMEOUT)
    })
    .await
}

/// Resumes a member: it may own machines again.
#[utoipa::path(post, path = "/v1/cluster/members/{id}/resume", tag = "operations",
    operation_id = "resume_member",
    params(("id" = String, Path, description = "The member")), request_body = Release,
    responses((status = 200, description = "The members and machines", body = Cluster)))]
pub(in crate::http) async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body)?;
    caller.principal.require(Operation::ResumeMember)?;
    change(&app, id, Standalone::NothingToDo, |store, id| {
        store.set_draining(id, false, MEMBER_REQUEST_TIMEOUT)
    })
    .await
}

/// Removes a member that is gone. One that still runs is drained and stopped first.
#[utoipa::path(post, path = "/v1/cluster/members/{id}/evict", tag = "operations",
    operation_id = "evict_member",
    params(("id" = String, Path, description = "The member")), request_body = Release,
    responses((status = 200, description = "The members and machines", body = Cluster)))]
pub(in crate::http) async fn evict(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body)?;
    caller.principal.require(Operation::EvictMember)?;
    change(&app, id, Standalone::Refused, |store, id| store.evict(id, MEMBER_REQUEST_TIMEOUT)).await
}

/// Raises the form of the store to the newest that the members read, so that they may store what earlier builds cannot
/// read. Refused while a member runs that cannot read it.
#[utoipa::path(post, path = "/v1/cluster/upgrade", tag = "operations", operation_id = "upgrade_cluster",
    request_body = Release,
    responses((status = 200, description = "The members and machines", body = Cluster)))]
pub(in crate::http) async fn upgrade(
    State(app): State<Arc<App>>,
    caller: Caller,
    Tree(body): Tree,
) -> Answer {
    let Release {} = convert(body)?;
    caller.principal.require(Operation::UpgradeCluster)?;
    change(&app, ALONE.to_owned(), Standalone::NothingToDo, |store, _| {
        store.raise(MEMBER_REQUEST_TIMEOUT)
    })
    .await
}

/// What a server alone does with a change of itself.
enum Standalone {
    Refused,
    NothingToDo,
}

/// Changes a member and answers with all of them.
async fn change(
    app: &App,
    id: String,
    of_folder: Standalone,
    work: impl FnOnce(&PostgresLeader, &str) -> Result<MemberChange, JournalError> + Send + 'static,
) -> Answer {
    let missing = Failure::not_found("member", &id);
    let conflict = |reason: String| Failure::new(Code::Conflict, reason);
    let Some(leader) = &app.leader else {
        if id != ALONE {
            return Err(missing);
        }
        return match of_folder {
            Standalone::Refused => Err(conflict(HAS_ONE.to_owned())),
            Standalone::NothingToDo => Ok(json(StatusCode::OK, &alone(app))),
        };
    };
    // In one request to the thread: if this server is drained, it hands over right after that.
    let both = move |store: &PostgresLeader| {
        let changed = work(store, &id)?;
        Ok((changed, store.membership(MEMBER_REQUEST_TIMEOUT)?))
    };
    match asked(leader, both).await? {
        (MemberChange::Done, membership) => Ok(json(StatusCode::OK, &of_store(membership))),
        (MemberChange::Unknown, _) => Err(missing),
        (MemberChange::Refused(reason), _) => Err(conflict(reason)),
    }
}

async fn asked<T: Send + 'static>(
    leader: &Leader,
    work: impl FnOnce(&PostgresLeader) -> Result<T, JournalError> + Send + 'static,
) -> Result<T, Failure> {
    let late = || Failure::new(Code::Unavailable, "the database does not answer; try again");
    leader.ask(work).await.ok_or_else(late)?.map_err(|error| {
        tracing::warn!(%error, "the members were not read or changed");
        late()
    })
}

fn of_store(membership: Membership) -> Cluster {
    let Membership { version, form, members, machines } = membership;
    let running = || members.iter().filter(|member| member.state != MemberState::Gone);
    let next = running().map(|member| member.form).max().filter(|newest| *newest > form);
    let held_back = running().filter(|member| next.is_some_and(|next| member.form < next));
    let held_back_by = held_back.map(|member| member.name.clone()).collect();
    let named = |start: Option<String>| {
        let owner = members.iter().find(|member| Some(&member.start) == start.as_ref());
        // A member that was forgotten is still named, by its start.
        owner.map(|owner| owner.name.clone()).or(start)
    };
    let machines = machines.into_iter().map(|machine| ClusterMachine {
        id: machine.name,
        owner: named(machine.owner),
        successor: None,
        epoch: machine.epoch,
        position: machine.position,
        follower_lag_ms: None,
    });
    let machines = machines.collect();
    let members = members.into_iter().map(|member| ClusterMember {
        id: member.name,
        url: member.url,
        state: match member.state {
            MemberState::Active => ClusterMemberState::Active,
            MemberState::Draining => ClusterMemberState::Draining,
            MemberState::Gone => ClusterMemberState::Gone,
        },
        build: member.build,
        form: member.form,
        seen_at: Time::from_millis(member.seen_ms),
    });
    let members = members.collect();
    Cluster { version, form, next_form: next, held_back_by, members, machines }
}

/// The only server of a data folder.
fn alone(app: &App) -> Cluster {
    let member = ClusterMember {
        id: ALONE.to_owned(),
        url: app.base_url.to_string(),
        state: ClusterMemberState::Active,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        form: NEWEST_FORM,
        seen_at: time(app.clock.now()),
    };
    let machines = app.machine_ends().into_iter().map(|(id, epoch, position)| ClusterMachine {
        id,
        owner: Some(ALONE.to_owned()),
        successor: None,
        epoch,
        position,
        follower_lag_ms: None,
    });
    Cluster {
        version: 0,
        form: NEWEST_FORM,
        next_form: None,
        held_back_by: Vec::new(),
        members: vec![member],
        machines: machines.collect(),
    }
}
