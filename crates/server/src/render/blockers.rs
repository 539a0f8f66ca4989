//! Renders the blockers of a waiting job in a cell, each with how to fix it.

use bursar_api::amount::Sum;
use bursar_api::words::counted;
use bursar_api::{Blocker, BlockerType};
use bursar_core::cell::ids::JobId;
use bursar_core::cell::schedule::explain;

use crate::render::time;

/// Thousandths of GPUs as the API shows them.
pub(crate) fn gpus(thousandths: u32) -> Sum {
    Sum::from_thousandths(thousandths)
}

/// A number of nodes that could serve a job.
fn suitable_nodes(nodes: u32) -> String {
    if nodes == 1 { "1 suitable node".to_owned() } else { format!("{nodes} suitable nodes") }
}

fn of(kind: BlockerType, detail: impl Into<String>, fix: impl Into<String>) -> Blocker {
    Blocker::new(kind, detail, fix)
}

/// Renders a blocker of a cell. `name` returns the id of another job, if the caller may see it.
pub(crate) fn blocker(
    region: &str,
    blocker: &explain::PlacementBlocker,
    name: impl Fn(JobId) -> Option<String>,
) -> Blocker {
    let mut shown = words(region, blocker, name);
    if let Some(rule) = blocker.rule() {
        shown.rule = Some(rule.number());
        shown.detail = format!("{} (rule {}, {})", shown.detail, rule.number(), rule.name());
    }
    shown
}

fn words(
    region: &str,
    blocker: &explain::PlacementBlocker,
    name: impl Fn(JobId) -> Option<String>,
) -> Blocker {
    use explain::PlacementBlocker;
    match blocker {
        PlacementBlocker::Credits => of(
            BlockerType::Credits,
            "the account has too few credits for the next hold",
            "a billing key can grant or transfer credits to the account; the job then continues without \
             a request",
        ),
        PlacementBlocker::Budget => of(
            BlockerType::Budget,
            "a hard budget would be exceeded by the next hold",
            "wait for the next period of the budget, or have it raised with a billing key; the job then \
             continues without a request",
        ),
        PlacementBlocker::Frozen { account } => {
            let whose = account.as_deref().unwrap_or("an account above the job");
            let fix = match account {
                Some(account) => {
                    format!("with a billing or operator key: POST /v1/accounts/{account}/unfreeze")
                }
                None => "have the account unfrozen with a billing or operator key".to_owned(),
            };
            let mut shown = of(BlockerType::Frozen, format!("{whose} is frozen"), fix);
            shown.account = account.as_ref().map(ToString::to_string);
            shown
        }
        PlacementBlocker::Quota { account, model, jobs, limit, used, requested } => {
            let (what, limit, used, requested) = if *jobs {
                let whole = |jobs: &u32| Sum::from_whole(*jobs);
                ("jobs".to_owned(), whole(limit), whole(used), whole(requested))
            } else {
                let what =
                    model.as_ref().map_or("GPUs".to_owned(), |model| format!("{model} GPUs"));
                (what, gpus(*limit), gpus(*used), gpus(*requested))
            };
            let detail = format!(
                "the quota of {account} in {region} is {limit} {what} at once, of which {used} \
                 are in use; {requested} more do not fit"
            );
            let fix = format!(
                "wait until jobs end, or with an operator key: PUT /v1/accounts/{account}/quota"
            );
            let mut shown = of(BlockerType::Quota, detail, fix);
            shown.account = Some(account.to_string());
            (shown.limit, shown.held, shown.requested) = (Some(limit), Some(used), Some(requested));
            shown
        }
        PlacementBlocker::Group { name, limit, active } => of(
            BlockerType::Group,
            format!("the group `{name}` has {active} of its {} running", counted(*limit, "job")),
            "wait until one of them ends, or submit the next job of the group with a higher limit",
        ),
        PlacementBlocker::GpuType { models } => {
            let wanted = match models.as_slice() {
                [] => "with GPUs".to_owned(),
                models => format!("with {}", models.join(" or ")),
            };
            of(
                BlockerType::GpuType,
                format!("{region} has no node {wanted}"),
                "add another type to gpus.types, allow another region, or wait for such a node",
            )
        }
        PlacementBlocker::Scope { account, models } => {
            let wanted = match models.as_slice() {
                [] => "GPUs".to_owned(),
                models => models.join(" or "),
            };
            of(
                BlockerType::GpuType,
                format!("nodes with {wanted} in {region} run no jobs of {account}"),
                format!(
                    "allow another type or region, or register a node under an agent key whose \
                     scope is {account} or above it"
                ),
            )
        }
        PlacementBlocker::GpuCount { wanted, most, models } => {
            let kind = match models.as_slice() {
                [] => String::new(),
                models => format!("{} ", models.join(" or ")),
            };
            of(
                BlockerType::GpuType,
                format!(
                    "no node in {region} has {wanted} {kind}GPUs; the largest has {most}, and a job \
                     asks for GPUs on each node"
                ),
                format!(
                    "ask for at most {most}, and for several nodes (`nodes`) if the job can use them"
                ),
            )
        }
        PlacementBlocker::Memory { nodes } => of(
            BlockerType::Memory,
            match *nodes {
                1 => format!(
                    "the only node with the right GPUs in {region} is not large enough, even when empty"
                ),
                _ => format!(
                    "none of the {nodes} nodes with the right GPUs in {region} is large enough, even \
                     when empty"
                ),
            },
            "ask for fewer GPUs per node, less memory or CPU, or fewer labels",
        ),
        PlacementBlocker::Capacity { wanted, available, suitable } => of(
            BlockerType::Capacity,
            format!(
                "needs {wanted} of {} in {region}; {} free",
                suitable_nodes(*suitable),
                match available {
                    0 => "none is".to_owned(),
                    1 => "1 is".to_owned(),
                    several => format!("{several} are"),
                }
            ),
            "wait until others end, or allow more types or regions",
        ),
        PlacementBlocker::Gang { wanted, available } => of(
            BlockerType::Gang,
            format!(
                "the job needs {} of {region} at once; {available} could serve it",
                counted(*wanted, "node")
            ),
            "ask for fewer nodes, or allow more types or regions",
        ),
        PlacementBlocker::Reservation { job, from } => {
            let whom = match job {
                Some(job) => match name(*job) {
                    Some(name) => format!("job {name}"),
                    None => "another job".to_owned(),
                },
                None => "maintenance".to_owned(),
            };
            let detail = format!("nodes with room are reserved for {whom} from {} on", time(*from));
            let fix = "a shorter max_runtime_seconds lets the job run before that";
            of(BlockerType::Reservation, detail, fix)
        }
        PlacementBlocker::Drain { nodes } => of(
            BlockerType::Drain,
            format!(
                "{} in {region} {} no jobs now",
                suitable_nodes(*nodes),
                if *nodes == 1 { "accepts" } else { "accept" }
            ),
            "wait until the nodes are resumed, or ask an operator",
        ),
        PlacementBlocker::Lost { nodes } => of(
            BlockerType::Capacity,
            format!(
                "lost: {} in {region} no longer {}",
                suitable_nodes(*nodes),
                if *nodes == 1 { "reports" } else { "report" }
            ),
            "wait until the nodes report again, or ask an operator",
        ),
        PlacementBlocker::Priority { ahead: 0, .. } => of(
            BlockerType::Priority,
            "it is next; it starts in the next pass of the scheduler",
            "nothing to do",
        ),
        PlacementBlocker::Priority { ahead, higher } => of(
            BlockerType::Priority,
            match (ahead, higher) {
                (1, 0) => format!("1 job is ahead in {region}"),
                (1, _) => format!("1 job of a higher class is ahead in {region}"),
                (ahead, 0) => format!("{ahead} jobs are ahead in {region}"),
                (ahead, higher) => format!(
                    "{ahead} jobs are ahead in {region}, {higher} of them in a higher class"
                ),
            },
            "wait, or submit it in a higher class",
        ),
        PlacementBlocker::Delayed { until } => of(
            BlockerType::Priority,
            format!("an operator preempted it; it is not placed before {}", time(*until)),
            "wait",
        ),
    }
}
