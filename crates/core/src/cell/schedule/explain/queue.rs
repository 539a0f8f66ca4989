//! The order of the queue, and the place of a job in it, if all shares stayed as they are.

use std::cmp::Reverse;

use crate::cell::ids::{AccountId, ClassRank, JobId};
use crate::cell::jobs::job::{CellJob, Waiting};
use crate::cell::share::accounts::ROOT;
use crate::cell::state::Cell;

impl Cell {
    /// How many jobs are ahead of a competing one, if all shares stayed as they are.
    pub(super) fn ahead_of(&self, job: &CellJob) -> u64 {
        self.accounts.ahead(job.waiter()) + self.ahead_by_class(job)
    }

    /// How many competing jobs have a higher class.
    pub(super) fn ahead_by_class(&self, job: &CellJob) -> u64 {
        let higher = self.classes.iter().filter(|(class, _)| **class > job.class());
        higher.map(|(class, _)| u64::from(self.competing(*class))).sum()
    }

    /// Waiting jobs, at most `limit`: first jobs for which others are being preempted, then
    /// competing jobs in the order in which they would start if all shares stayed as they are, then
    /// jobs that wait for something other than a placement.
    pub fn queue(&self, limit: usize) -> Vec<JobId> {
        let mut jobs = self.waiting_jobs(limit, |waiting| match waiting {
            Waiting::Nominated => true,
            Waiting::Competing
            | Waiting::Group
            | Waiting::Funds(_)
            | Waiting::Delayed(_)
            | Waiting::Moving => false,
        });
        for class in self.classes.keys().rev() {
            self.queue_below(ROOT, *class, limit, &mut jobs);
        }
        let room = limit - jobs.len();
        jobs.extend(self.waiting_jobs(room, |waiting| match waiting {
            Waiting::Nominated | Waiting::Competing => false,
            Waiting::Group | Waiting::Funds(_) | Waiting::Delayed(_) | Waiting::Moving => true,
        }));
        jobs
    }

    /// Jobs in some waiting states, the highest class and the earliest submission first.
    fn waiting_jobs(&self, limit: usize, which: impl Fn(Waiting) -> bool) -> Vec<JobId> {
        let waiting = self.jobs.values().filter(|job| job.waiting().is_some_and(&which));
        let mut waiting: Vec<_> =
            waiting.map(|job| (Reverse(job.class()), job.ticket, job.spec.job)).collect();
        waiting.sort_unstable();
        waiting.into_iter().take(limit).map(|(_, _, job)| job).collect()
    }

    fn queue_below(&self, id: AccountId, class: ClassRank, limit: usize, jobs: &mut Vec<JobId>) {
        let Some(lane) = self.accounts.get(id).lane(class) else { return };
        for (_, child) in lane.order() {
            if jobs.len() >= limit {
                return;
            }
            if *child == id {
                let mut own: Vec<_> = lane.own().values().flatten().collect();
                own.sort_unstable();
                let room = limit - jobs.len();
                jobs.extend(own.into_iter().take(room).map(|(_, job)| *job));
            } else {
                self.queue_below(*child, class, limit, jobs);
            }
        }
    }
}
