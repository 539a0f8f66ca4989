//! Which priority classes may preempt which.

use crate::cell::jobs::job::CellJob;
use crate::cell::nodes::node::NodeId;
use crate::cell::state::Cell;
use crate::name::ClassName;

impl Cell {
    /// Whether the classes of two jobs allow preemption. Within a class only shares decide. A class
    /// that was never set may preempt every lower one. A victim without a class name, from an
    /// earlier journal, may be preempted by every higher class.
    pub(crate) fn may_preempt(&self, job: &CellJob, victim: &CellJob) -> bool {
        let (ours, theirs) = (&job.spec.class_name, &victim.spec.class_name);
        if job.class() == victim.class() || theirs.is_empty() {
            return true;
        }
        self.preempts.get(ours).is_none_or(|list| list.contains(theirs))
    }

    /// Whether a node has an attempt that the class of a job may preempt.
    pub(crate) fn may_preempt_on(&self, job: &CellJob, node: NodeId) -> bool {
        if !self.preempts.contains_key(&job.spec.class_name) {
            return true;
        }
        let attempts = self.inventory.node(node).attempts.keys();
        attempts.filter_map(|attempt| self.live(*attempt)).any(|(other, _)| {
            other.spec.preemptible && other.class() <= job.class() && self.may_preempt(job, other)
        })
    }

    /// The classes that a class may preempt. `None`: every lower one.
    pub fn preempted_by(&self, class: &str) -> Option<&[ClassName]> {
        self.preempts.get(class).map(Vec::as_slice)
    }

    pub(crate) fn apply_class_set(&mut self, class: &ClassName, preempts: Option<&Vec<ClassName>>) {
        match preempts {
            Some(list) => drop(self.preempts.insert(class.clone(), list.clone())),
            None => drop(self.preempts.remove(class)),
        }
    }
}
