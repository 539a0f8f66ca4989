//! What the jobs of a tenant have asked for. The tables of demands, their labels and GPU types never
//! drop an entry, so a tenant may add so many and no more, whether other tenants ask for the same or
//! not.

use std::collections::BTreeSet;

use super::job::Request;
use crate::cell::command::JobSpec;
use crate::cell::ids::RequestId;
use crate::cell::schedule::shape::Shape;
use crate::cell::state::Cell;
use crate::name::AccountPath;

/// The most that the demands of one tenant's jobs may have taken in a region: each distinct demand
/// counts one, and one more for each of its labels and GPU types.
pub const MAX_DEMANDS_PER_TENANT: usize = 400_000;

/// The demands of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct UsedDemands {
    pub(crate) requests: BTreeSet<RequestId>,
    /// What they take. Derived from them.
    taken: usize,
}

impl Cell {
    /// Whether the tenant of a job has used all its demands and this is another one.
    pub(crate) fn has_too_many_demands(&self, spec: &JobSpec) -> bool {
        let Some(used) = self.used_demands.get(spec.tenant()) else { return false };
        if used.taken < MAX_DEMANDS_PER_TENANT {
            return false;
        }
        let known = self.find_request(spec);
        !known.is_some_and(|request| used.requests.contains(&request))
    }

    /// The demand of a job, if a job had it before.
    fn find_request(&self, spec: &JobSpec) -> Option<RequestId> {
        let labels = spec.labels.iter().map(|label| self.labels.find(label.as_str()));
        let mut labels = labels.collect::<Option<Vec<_>>>()?;
        labels.sort_unstable();
        labels.dedup();
        let models = spec.models.iter().map(|model| self.models.find(model.as_str()));
        let account = self.known_path(&spec.account).next()?;
        let shape = Shape {
            models: models.collect::<Option<_>>()?,
            labels: labels.into(),
            ..spec.bare_shape(self.scopes_of(account))
        };
        self.requests.find(&spec.request(self.shapes.find(&shape)?))
    }

    /// Notes the demand of a tenant's job.
    pub(crate) fn note_demand(&mut self, tenant: &str, request: RequestId) {
        if self.used_demands.get(tenant).is_some_and(|used| used.requests.contains(&request)) {
            return;
        }
        let Request { shape, .. } = self.requests.get(request);
        let shape = self.shapes.get(*shape);
        let takes = 1 + shape.labels.len() + shape.models.len();
        let used = self.used_demands.entry(AccountPath::unchecked(tenant)).or_default();
        used.requests.insert(request);
        used.taken += takes;
    }
}
