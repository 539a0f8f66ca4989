//! Checks of the laws of a cell.
//!
//! L8: a GPU is allocated at most once. L9: no placement exceeds a quota or group. L10: the states
//! of jobs are legal and attempts are fenced. L14: no job waits without a reason. Derived data
//! agrees with its source.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::event::{AttemptOutcome, Event, StopReason};
use super::ids::{AccountId, AttemptId, ClassRank, JobId};
use super::jobs::attempt::{AttemptNodePhase, CellAttempt};
use super::jobs::job::{CellJob, Phase, Waiting};
use super::nodes::inventory::NodeRecord;
use super::nodes::owner::NodeKey;
use super::nodes::scope::covers;
use super::share::accounts::Account;
use super::share::quota::InUse;
use super::state::Cell;

/// A violated law of a cell, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellViolation(Cow<'static, str>);

impl fmt::Display for CellViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CellViolation {}

impl From<&'static str> for CellViolation {
    fn from(detail: &'static str) -> CellViolation {
        CellViolation(detail.into())
    }
}

impl From<String> for CellViolation {
    fn from(detail: String) -> CellViolation {
        CellViolation(detail.into())
    }
}

/// The attempt that an event preempts for a job.
fn preempted_for(event: &Event, job: JobId) -> Option<AttemptId> {
    let (attempt, reason) = if let Event::StopOrdered { attempt, reason, .. } = event {
        (attempt, reason)
    } else if let Event::AttemptEnded { attempt, outcome, .. } = event
        && let AttemptOutcome::Stopped(reason) = outcome
    {
        (attempt, reason)
    } else {
        return None;
    };
    matches!(reason, StopReason::Preempted { by, .. } if *by == job).then_some(*attempt)
}

/// A node, as an operator knows it.
pub(in crate::cell) fn in_words(record: &NodeRecord) -> String {
    format!("node {}", NodeKey::of(&record.offer))
}

/// Sums over the jobs at and below an account.
#[derive(Default)]
struct Sum {
    in_use: InUse,
    rate: u64,
    competing: BTreeMap<ClassRank, u32>,
}

impl Cell {
    /// Checks all laws. For tests, simulators and the sampled self-check.
    pub fn check(&self) -> Result<(), CellViolation> {
        self.check_without_reasons()?;
        self.check_reasons()
    }

    /// Checks all laws except L14, which examines all nodes for each waiting job.
    pub fn check_without_reasons(&self) -> Result<(), CellViolation> {
        self.check_devices()?;
        self.check_accounts()?;
        for (id, job) in self.jobs.iter() {
            self.check_job(id, job)?;
        }
        self.check_groups()?;
        self.check_preemptible()?;
        self.check_reservations()?;
        let attempts = self.jobs.values().filter_map(CellJob::attempt);
        let named = attempts.flat_map(CellAttempt::ended_on);
        self.inventory.check_indexes(&self.shapes, self.demand.mix(), named)
    }

    /// Checks the placements of a step: every quota and group that counts them still holds (L9).
    pub fn check_step(&self, events: &[Event]) -> Result<(), CellViolation> {
        for event in events {
            let Event::PlacementProposed { attempt, placements, .. } = event else { continue };
            let Some((job, live)) = self.live(*attempt) else { continue };
            let nodes = placements.iter().map(|placement| self.inventory.node(placement.node));
            for offer in nodes.map(|record| &record.offer) {
                if !covers(offer.scope.as_deref(), Some(&job.spec.account)) {
                    return Err(
                        format!("L13: {attempt} is on {}, outside its scope", offer.name).into()
                    );
                }
            }
            for id in self.accounts.path(job.account) {
                let account = self.accounts.get(id);
                let over = |used: u32, limit: Option<u32>| limit.is_some_and(|limit| used > limit);
                let of_model = live.model.is_some_and(|model| {
                    let limit = account.quota.gpus.iter().find(|(of, _)| *of == model);
                    over(account.in_use.of_model(model), limit.map(|(_, limit)| *limit))
                });
                if of_model
                    || over(account.in_use.total_gpus, account.quota.total_gpus)
                    || over(account.in_use.running_jobs, account.quota.running_jobs)
                {
                    return Err(
                        format!("L9: {attempt} exceeds the quota of {}", account.path).into()
                    );
                }
            }
            let group = job.group.map(|group| self.groups.get(group));
            if let Some(group) = group.filter(|group| group.active > group.limit) {
                return Err(format!("L9: {attempt} exceeds the group {}", group.name).into());
            }
        }
        Ok(())
    }

    /// Checks a step before it is applied: its preemptions make a complete placement, every victim
    /// is needed, and only permitted attempts are victims.
    pub fn check_plan(&self, events: &[Event]) -> Result<(), CellViolation> {
        for event in events {
            let Event::ReservationMade { job, nodes, preempting: true, .. } = event else {
                continue;
            };
            let job = self.job(*job);
            let victims: BTreeSet<AttemptId> =
                events.iter().filter_map(|event| preempted_for(event, job.spec.job)).collect();
            let firm = victims.iter().find(|victim| {
                self.live(**victim).is_none_or(|(victim, _)| {
                    !victim.spec.preemptible
                        || victim.class() > job.class()
                        || !self.may_preempt(job, victim)
                })
            });
            if let Some(firm) = firm {
                return Err(format!("{firm} may not be preempted for {}", job.spec.job).into());
            }
            if victims.is_empty() || !self.fits_without(job, nodes, &victims) {
                return Err(format!("preemption makes no room for {}", job.spec.job).into());
            }
            for spared in &victims {
                let mut fewer = victims.clone();
                fewer.remove(spared);
                if self.fits_without(job, nodes, &fewer) {
                    return Err(format!("{spared} is not needed for {}", job.spec.job).into());
                }
            }
        }
        Ok(())
    }

    /// Checks a step before it is applied: no job is placed before an earlier job of the same
    /// account, class and request.
    pub fn check_order(&self, events: &[Event]) -> Result<(), CellViolation> {
        for event in events {
            let Event::PlacementProposed { attempt, .. } = event else { continue };
            let job = self.job(attempt.job);
            let earlier = self.jobs.values().find(|other| {
                other.waiting() == Some(Waiting::Competing)
                    && other.ticket < job.ticket
                    && (other.account, other.class(), other.request)
                        == (job.account, job.class(), job.request)
                    && other.group.is_none()
            });
            if let Some(earlier) = earlier {
                return Err(format!("{attempt} goes before {}", earlier.spec.job).into());
            }
        }
        Ok(())
    }

    /// Checks, when no pass is due, that no waiting job could start: every parked request was woken
    /// by each event that could help it. A full search for each job.
    pub fn check_quiet(&self) -> Result<(), CellViolation> {
        for (id, job) in self.jobs.iter() {
            let open = self.accounts.path(job.account).all(|id| !self.accounts.get(id).frozen)
                && job.group.is_none_or(|group| !self.groups.get(group).is_full());
            let competes = job.waiting() == Some(Waiting::Competing);
            if self.idle && competes && open && self.find_place(self.now, job).is_ok() {
                return Err(format!("{id} of {} could start", job.spec.account).into());
            }
        }
        Ok(())
    }

    /// L8, and that the resources taken on nodes are those of attempts and fences.
    fn check_devices(&self) -> Result<(), CellViolation> {
        for (id, record) in self.inventory.iter() {
            let mut used = vec![0u32; record.node.free_gpus().len()];
            let node = in_words(record);
            let (mut cpu, mut memory) = (0u64, 0u64);
            for (attempt, held) in &record.attempts {
                let shape = self.shapes.get(held.shape);
                for device in held.gpus.iter() {
                    used[device] += u32::from(shape.gpu.per_device());
                }
                cpu += u64::from(shape.cpu_milli);
                memory += u64::from(shape.memory_mib);
                let live = self.live(*attempt).and_then(|(_, live)| live.on_node(id));
                let live = live.is_some_and(|on_node| {
                    on_node.gpus == held.gpus
                        && !matches!(on_node.phase, AttemptNodePhase::Ended(_))
                });
                if live == held.fenced {
                    return Err(
                        format!("L10: {attempt} on {node} is neither live nor fenced").into()
                    );
                }
            }
            for (device, (used, free)) in used.iter().zip(record.node.free_gpus()).enumerate() {
                if used + u32::from(*free) != 1000 {
                    return Err(
                        format!("L8: device {device} of {node}: {used} and {free} free").into()
                    );
                }
            }
            let spec = record.node.spec();
            if cpu + u64::from(record.node.free_cpu_milli()) != u64::from(spec.cpu_milli)
                || memory + u64::from(record.node.free_memory_mib()) != u64::from(spec.memory_mib)
            {
                return Err(format!("L8: CPU or memory of {node} does not add up").into());
            }
            if !record.alive && !record.attempts.is_empty() {
                return Err(format!("L10: {node} is lost and still holds attempts").into());
            }
        }
        Ok(())
    }

    /// L14.
    fn check_reasons(&self) -> Result<(), CellViolation> {
        for (id, job) in self.jobs.iter().filter(|(_, job)| job.waiting().is_some()) {
            let why = self.why(id, self.now);
            if why.is_none_or(|why| why.blockers.is_empty()) {
                return Err(
                    format!("L14: {id} of {} waits without a reason", job.spec.account).into()
                );
            }
        }
        Ok(())
    }

    /// L10 for one job.
    fn check_job(&self, id: JobId, job: &CellJob) -> Result<(), CellViolation> {
        let may_run_still = job.waiting().is_some() && self.fences.contains_key(&id);
        if job.unsent_end.is_some() != may_run_still {
            let what = if may_run_still { "is sent too early" } else { "is not sent" };
            return Err(format!("L10: the end of {id} {what}").into());
        }
        match &job.phase {
            Phase::Waiting(Waiting::Moving) => Err(format!("L10: {id} is between phases").into()),
            Phase::Waiting(waiting) => {
                let nominated = *waiting == Waiting::Nominated;
                if nominated && !self.reservations.contains_key(&id) {
                    return Err(format!("L15: {id} is nominated without a reservation").into());
                }
                let queue = self.classes.get(&job.class());
                let listed = queue.is_some_and(|queue| queue.by_age.contains(&(job.ticket, id)));
                if listed != (*waiting == Waiting::Competing) {
                    return Err(
                        format!("L10: {id} competes and is not listed, or the reverse").into()
                    );
                }
                Ok(())
            }
            Phase::Active(attempt) => {
                let expected = AttemptId { job: id, number: job.attempts };
                if attempt.id != expected {
                    return Err(format!("L10: {id} runs as {}, not {expected}", attempt.id).into());
                }
                for on_node in &attempt.nodes {
                    let ended = matches!(on_node.phase, AttemptNodePhase::Ended(_));
                    let record = self.inventory.get(on_node.node);
                    let held = record.is_some_and(|record| record.attempts.contains_key(&expected));
                    if held == ended {
                        let node = record.map_or("an unknown node".to_owned(), in_words);
                        return Err(format!("L10: {expected} and {node} disagree").into());
                    }
                }
                if attempt.running_since.is_some() && !attempt.confirmed {
                    return Err(format!("L10: {expected} runs without a confirmation").into());
                }
                Ok(())
            }
        }
    }

    /// Checks that the counts of every account are the sums over its subtree and that lanes list
    /// all waiting jobs.
    fn check_accounts(&self) -> Result<(), CellViolation> {
        let mut sums: BTreeMap<AccountId, Sum> = BTreeMap::new();
        for job in self.jobs.values() {
            for account in self.accounts.path(job.account) {
                let sum = sums.entry(account).or_default();
                match &job.phase {
                    Phase::Active(attempt) => {
                        sum.in_use.take(attempt.model, job.thousandths());
                        sum.rate += attempt.rate(job);
                    }
                    Phase::Waiting(waiting) => {
                        sum.in_use.waiting_jobs += 1;
                        if *waiting == Waiting::Competing {
                            *sum.competing.entry(job.class()).or_default() += 1;
                        }
                    }
                }
            }
        }
        for (id, account) in self.accounts.iter() {
            let sum = sums.remove(&id).unwrap_or_default();
            let counts = |in_use: &InUse| {
                let gpus: Vec<u32> = (0..self.models.len())
                    .map(|model| in_use.gpus.get(model).copied().unwrap_or(0))
                    .collect();
                (gpus, in_use.total_gpus, in_use.running_jobs, in_use.waiting_jobs)
            };
            if counts(&sum.in_use) != counts(&account.in_use) || sum.rate != account.rate {
                return Err(
                    format!("{}: counts are not the sums over its subtree", account.path).into()
                );
            }
            self.check_lanes(id, account, &sum)?;
        }
        Ok(())
    }

    fn check_lanes(
        &self,
        id: AccountId,
        account: &Account,
        sum: &Sum,
    ) -> Result<(), CellViolation> {
        for (class, lane) in &account.lanes {
            let path = &account.path;
            if lane.waiting != sum.competing.get(class).copied().unwrap_or(0) {
                return Err(format!("{path}: {} wait in class {}", lane.waiting, class.0).into());
            }
            if lane.counts().values().sum::<u32>() != lane.waiting
                || !lane.counts().keys().map(|request| request.0 as usize).eq(lane.mask().iter())
            {
                let rank = class.0;
                return Err(format!("{path}: requests of class {rank} are miscounted").into());
            }
            if !lane.has_right_heads() {
                return Err(format!("{path}: the first of some request is not listed").into());
            }
            for (key, child) in lane.order() {
                let expected =
                    if *child == id { account.own_key() } else { self.accounts.get(*child).key() };
                if *key != expected {
                    let child = &self.accounts.get(*child).path;
                    return Err(format!("{path}: {child} is out of order").into());
                }
            }
            let waiting = account.children.iter().filter(|child| {
                let lane = self.accounts.get(**child).lane(*class);
                lane.is_some_and(|lane| lane.waiting > 0)
            });
            if waiting.count() + usize::from(!lane.own().is_empty()) != lane.order().len() {
                let rank = class.0;
                return Err(
                    format!("{path}: an account of class {rank} is not in the order").into()
                );
            }
        }
        Ok(())
    }

    fn check_groups(&self) -> Result<(), CellViolation> {
        for group in self.groups.iter() {
            let jobs_of_group = || {
                self.jobs.values().filter(|job| {
                    job.group.is_some_and(|id| {
                        let own = self.groups.get(id);
                        own.name == group.name && own.tenant == group.tenant
                    })
                })
            };
            let active = jobs_of_group().filter(|job| job.attempt().is_some()).count();
            let held = jobs_of_group().filter(|job| job.waiting() == Some(Waiting::Group)).count();
            if active != group.active as usize
                || held != group.held().count()
                || jobs_of_group().count() != group.jobs()
                || (group.jobs() == 0) != group.tenant.is_empty()
            {
                return Err(format!("group {} is miscounted", group.name).into());
            }
            let free = group.limit.saturating_sub(group.active) as usize;
            for (kind, held) in group.held_kinds() {
                let alike =
                    jobs_of_group().filter(|job| (job.class(), job.account, job.request) == kind);
                let ready = alike.filter(|job| {
                    matches!(job.waiting(), Some(Waiting::Competing | Waiting::Nominated))
                });
                if held > 0 && ready.count() < free {
                    return Err(format!("group {} has room and holds jobs", group.name).into());
                }
            }
        }
        Ok(())
    }

    fn check_preemptible(&self) -> Result<(), CellViolation> {
        let mut counted: BTreeMap<ClassRank, u32> = BTreeMap::new();
        let active = |job: &&CellJob| job.spec.preemptible && job.attempt().is_some();
        for job in self.jobs.values().filter(active) {
            *counted.entry(job.class()).or_default() += 1;
        }
        let listed = self.preemptible.iter().filter(|(_, count)| **count > 0);
        if !listed.eq(counted.iter()) {
            return Err("preemptible attempts are miscounted".into());
        }
        Ok(())
    }

    fn check_reservations(&self) -> Result<(), CellViolation> {
        for (id, kept) in &self.reservations {
            let job = self.jobs.get(id).ok_or(format!("{id} is unknown and has a reservation"))?;
            if job.attempt().is_some() {
                return Err(format!("{id} has a reservation and GPUs").into());
            }
            for node in &kept.nodes {
                let record = self.inventory.get(*node);
                let claimed = record
                    .is_some_and(|record| record.claims.iter().any(|claim| claim.job == Some(*id)));
                if !claimed {
                    let node = record.map_or("an unknown node".to_owned(), in_words);
                    return Err(format!("{node} has no claim of {id}").into());
                }
            }
        }
        for (id, record) in self.inventory.iter() {
            for job in record.claims.iter().filter_map(|claim| claim.job) {
                let kept = self.reservations.get(&job);
                if !kept.is_some_and(|kept| kept.nodes.contains(&id)) {
                    let node = in_words(record);
                    return Err(format!("{node} has a claim of {job} and no reservation").into());
                }
            }
        }
        Ok(())
    }
}
