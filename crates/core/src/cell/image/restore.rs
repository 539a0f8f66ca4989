//! Restores a cell from an image: every count, queue, claim and index is rebuilt.

use super::{
    CellAccountImage, ClassImage, GroupImage, Image, ImageError, NamesImage, NodeImage,
    ReservationImage,
};
use crate::cell::ids::{MaintenanceId, RequestId};
use crate::cell::index::bitset::Bits;
use crate::cell::index::interner::{InternedId, Interner};
use crate::cell::invariant::in_words;
use crate::cell::jobs::attempt::AttemptNodePhase;
use crate::cell::jobs::job::{CellJob, Phase, Waiting};
use crate::cell::nodes::inventory::Claim;
use crate::cell::nodes::maintenance::MaintenanceWindow;
use crate::cell::nodes::node::{MAX_GPUS, NodeId};
use crate::cell::nodes::owner::NodeKey;
use crate::cell::nodes::used_names::UsedNames;
use crate::cell::schedule::demand::Demand;
use crate::cell::schedule::reservation::Reservation;
use crate::cell::share::accounts::{Accounts, ROOT};
use crate::cell::share::decay::Decay;
use crate::cell::state::{Cell, ClassQueue};

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), ImageError> {
    if holds { Ok(()) } else { Err(ImageError(what())) }
}

/// A table with these values in this order.
fn interned<T, I>(values: Vec<T>, what: &str) -> Result<Interner<T, I>, ImageError>
where
    T: Clone + Eq + std::hash::Hash,
    I: InternedId,
{
    let mut table = Interner::new();
    let length = values.len();
    for value in values {
        table.intern(value);
    }
    require(table.len() == length, || format!("{what} is listed twice"))?;
    Ok(table)
}

fn bits(requests: &[RequestId]) -> Bits {
    let mut bits = Bits::default();
    requests.iter().for_each(|request| bits.insert(request.index()));
    bits
}

impl Cell {
    /// The cell with this image.
    ///
    /// # Errors
    /// If the parts are inconsistent. [`Cell::check`] checks the laws.
    pub fn from_image(image: Image) -> Result<Cell, ImageError> {
        let (half_life_ms, epoch) = image.decay;
        let mut cell = Cell {
            now: image.now,
            config: image.config,
            marks: image.marks.into_iter().collect(),
            sent: image.sent.into_iter().collect(),
            models: interned(image.models, "a model")?,
            labels: interned(image.labels, "a label")?,
            racks: interned(image.racks, "a rack")?,
            prices: image.prices.into_iter().collect(),
            preempts: image.preempts.into_iter().collect(),
            shapes: interned(image.shapes, "a shape")?,
            requests: interned(image.requests, "a request")?,
            demand: Demand::from_image(image.demand),
            accounts: Accounts::new(Decay::new(half_life_ms, epoch)),
            hot: image.hot.into_iter().collect(),
            ready: image.ready.into_iter().collect(),
            mixed: image.mixed.into_iter().collect(),
            idle: image.idle,
            review_at: image.review_at,
            victims: image.victims,
            generation: image.generation,
            ..Cell::new()
        };
        cell.check_tables()?;
        cell.restore_accounts(image.accounts)?;
        let accounts = cell.accounts.iter().count();
        let known = image.scopes.iter().all(|scope| scope.index() < accounts);
        require(known, || "a node's scope is an unknown account".to_owned())?;
        for done in image.requests_done {
            let known = cell.requests_done.get(done.request.key).is_some();
            require(!known, || "a request is listed twice".to_owned())?;
            cell.requests_done.add(done);
        }
        cell.scopes = image.scopes.into_iter().collect();
        cell.restore_names(image.used_names)?;
        cell.left_drained = image.left_drained.into_iter().collect();
        cell.removed_incarnations = image.removed_incarnations.into_iter().collect();
        cell.restore_nodes(image.nodes, image.next_node)?;
        cell.inventory.remember_memory(&image.memory_of_models);
        for (tenant, requests) in image.used_demands {
            let known = requests.iter().all(|request| request.index() < cell.requests.len());
            require(known, || format!("{tenant} has used an unknown request"))?;
            requests.into_iter().for_each(|request| cell.note_demand(&tenant, request));
        }
        for GroupImage { tenant, name, limit } in image.groups {
            let new = cell.groups.restore(tenant, name, limit);
            require(new, || "a group is listed twice".to_owned())?;
        }
        for class in image.classes {
            cell.restore_class(class);
        }
        for job in image.jobs {
            cell.restore_job(job)?;
        }
        // Earlier builds kept groups without jobs.
        cell.groups.free_unused();
        for kept in image.reservations {
            cell.restore_reservation(kept)?;
        }
        for (id, window) in image.maintenance {
            cell.restore_window(id, window)?;
        }
        for (at, timer) in image.timers {
            cell.timers.set(at, timer);
        }
        cell.aside = image.aside.into_iter().collect();
        Ok(cell)
    }

    /// Checks that shapes and requests refer only to known table entries.
    fn check_tables(&self) -> Result<(), ImageError> {
        let known =
            |model: &crate::cell::schedule::shape::ModelId| model.index() < self.models.len();
        let shapes = self.shapes.values().iter().all(|shape| {
            shape.models.iter().all(known)
                && shape.labels.iter().all(|label| label.index() < self.labels.len())
        });
        let requests = self.requests.values().iter();
        let requests = requests.map(|request| request.shape.index());
        let mixed = self.mixed.iter().all(|(request, _)| request.index() < self.requests.len());
        let known = shapes
            && mixed
            && self.prices.keys().all(known)
            && requests.max().is_none_or(|most| most < self.shapes.len());
        require(known, || "a shape, request or price refers to an unknown entry".to_owned())
    }

    fn restore_accounts(&mut self, accounts: Vec<CellAccountImage>) -> Result<(), ImageError> {
        for (account, number) in accounts.into_iter().zip(0..) {
            let known = if number == 0 { ROOT } else { self.accounts.ensure(&account.path) };
            require(known.0 == number, || format!("account {} out of order", account.path))?;
            let blocked = account.blocked.iter().all(|at| at.index() < self.requests.len());
            require(blocked, || format!("account {} blocks an unknown request", account.path))?;
            let restored = self.accounts.get_mut(known);
            restored.weight = account.weight;
            restored.frozen = account.frozen;
            restored.quota = account.quota;
            restored.usage = account.usage;
            restored.own_usage = account.own_usage;
            restored.blocked = bits(&account.blocked);
        }
        Ok(())
    }

    fn restore_names(&mut self, names: Vec<NamesImage>) -> Result<(), ImageError> {
        for NamesImage { owner, models, labels, racks } in names {
            let known = models.iter().all(|model| model.index() < self.models.len())
                && labels.iter().all(|label| label.index() < self.labels.len())
                && racks.iter().all(|rack| rack.index() < self.racks.len());
            require(known, || format!("nodes of {owner} have used unknown names"))?;
            let used = UsedNames {
                models: models.into_iter().collect(),
                labels: labels.into_iter().collect(),
                racks: racks.into_iter().collect(),
            };
            self.used_names.insert(owner, used);
        }
        Ok(())
    }

    fn restore_nodes(&mut self, nodes: Vec<NodeImage>, next: NodeId) -> Result<(), ImageError> {
        for image in nodes {
            let NodeImage { node, offer, incarnation, seq, lease_until, alive, drained, .. } =
                image;
            let (attempts, kept_until) = (image.attempts, image.kept_until);
            let fits = node >= self.inventory.next_id() && usize::from(offer.gpus) <= MAX_GPUS;
            let new = self.inventory.find(&NodeKey::of(&offer)).is_none();
            require(fits && new, || format!("node {} is impossible", offer.name))?;
            self.inventory.skip_to(node);
            let made = self.make_node(&offer);
            self.inventory.register(node, offer, made, incarnation, lease_until);
            for (attempt, held) in attempts {
                let known = held.shape.index() < self.shapes.len();
                require(known, || format!("{attempt} has an unknown shape"))?;
                let shape = self.shapes.get(held.shape);
                let record = self.inventory.node(node);
                let room = record.node.can_take(shape, held.gpus)
                    && !record.attempts.contains_key(&attempt);
                require(room, || format!("{attempt} has no room on {}", in_words(record)))?;
                if held.fenced {
                    *self.fences.entry(attempt.job).or_default() += 1;
                }
                self.inventory.take(&self.shapes, node, attempt, held);
            }
            self.inventory.renew(node, seq, lease_until);
            self.inventory.change(node, |record| {
                record.alive = alive;
                record.drained = drained;
                record.kept_until = kept_until;
            });
        }
        require(next >= self.inventory.next_id(), || "more nodes than numbers".to_owned())?;
        self.inventory.skip_to(next);
        Ok(())
    }

    fn restore_class(&mut self, class: ClassImage) {
        self.classes.insert(
            class.class,
            ClassQueue {
                parked: bits(&class.parked),
                woken: bits(&class.woken),
                since_aged: class.since_aged,
                unreserved: class.unreserved.into_iter().map(Option::from).collect(),
                review: class.review,
                ..ClassQueue::default()
            },
        );
    }

    fn restore_job(&mut self, job: CellJob) -> Result<(), ImageError> {
        let id = job.spec.job;
        let fine = job.spec.check();
        require(fine.is_ok(), || format!("{id} has an invalid spec"))?;
        let groups = self.groups.iter().count();
        let known = job.account.index() < self.accounts.iter().count()
            && job.request.index() < self.requests.len()
            && job.shape.index() < self.shapes.len()
            && job.group.is_none_or(|group| group.index() < groups)
            && !self.jobs.contains_key(&id);
        require(known, || format!("{id} is listed twice or refers to an unknown entry"))?;
        let (account, group, thousandths) = (job.account, job.group, job.thousandths());
        match &job.phase {
            Phase::Active(attempt) => {
                let known = attempt.model.is_none_or(|model| model.index() < self.models.len())
                    && attempt.nodes.iter().all(|on_node| {
                        matches!(on_node.phase, AttemptNodePhase::Ended(_))
                            || self.inventory.get(on_node.node).is_some()
                    });
                require(known, || format!("{} is on nothing that is known", attempt.id))?;
                attempt.ended_on().for_each(|node| self.inventory.name_number(node));
                let (model, rate) = (attempt.model, attempt.rate(&job));
                self.accounts.for_path(account, |account| account.in_use.take(model, thousandths));
                self.accounts.add_rate(account, rate);
                if let Some(group) = group {
                    self.groups.get_mut(group).active += 1;
                }
                if job.spec.preemptible {
                    *self.preemptible.entry(job.class()).or_default() += 1;
                }
            }
            Phase::Waiting(waiting) => {
                self.accounts.for_path(account, |account| account.in_use.waiting_jobs += 1);
                match (waiting, group) {
                    (Waiting::Competing, _) => {
                        self.accounts.enqueue(job.waiter());
                        self.class_mut(job.class()).by_age.insert((job.ticket, id));
                    }
                    (Waiting::Group, Some(group)) => self.groups.get_mut(group).hold(&job),
                    (Waiting::Group, None) => {
                        return Err(ImageError(format!("{id} is held by no group")));
                    }
                    (
                        Waiting::Funds(_)
                        | Waiting::Delayed(_)
                        | Waiting::Nominated
                        | Waiting::Moving,
                        _,
                    ) => {}
                }
            }
        }
        group.iter().for_each(|group| self.groups.restore_member(*group));
        self.jobs.insert(id, job);
        Ok(())
    }

    fn restore_reservation(&mut self, image: ReservationImage) -> Result<(), ImageError> {
        let ReservationImage { job: id, class, nodes, made_at, start_at, expires_at, slot, guests } =
            image;
        let (nodes, slot) = (nodes.into(), slot.map(Option::from));
        let kept = Reservation { class, nodes, made_at, start_at, expires_at, slot, guests };
        let known = self.jobs.contains_key(&id)
            && kept.nodes.iter().all(|node| self.inventory.get(*node).is_some());
        require(known, || format!("a reservation of {id} is invalid"))?;
        let claim = kept.claim(id);
        for node in &kept.nodes {
            self.add_claim(*node, claim);
        }
        if let Some(slot) = kept.slot {
            self.class_mut(kept.class).reserved.insert(slot, id);
        }
        self.reservations.insert(id, kept);
        Ok(())
    }

    fn restore_window(
        &mut self,
        id: MaintenanceId,
        window: MaintenanceWindow,
    ) -> Result<(), ImageError> {
        let known = window.nodes.iter().all(|node| self.inventory.get(*node).is_some());
        require(known, || format!("maintenance window #{} is about unknown nodes", id.0))?;
        let claim = Claim::maintenance(window.from);
        for node in &window.nodes {
            self.add_claim(*node, claim);
            if window.began {
                self.inventory.change(*node, |record| record.windows += 1);
            }
        }
        self.maintenance.insert(id, window);
        Ok(())
    }
}
