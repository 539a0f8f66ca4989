use super::*;
use crate::cell::Origin;
use crate::cell::command::{Command, JobSpec};
use crate::cell::ids::JobId;
use crate::cell::schedule::shape::GpuDemand;
use crate::cell::share::accounts::VISITS;
use crate::machine::{advance, execute};

/// How many accounts are looked at for the shares of a tenant's teams, each of which has a job.
fn visits(teams: u32) -> u64 {
    let (mut cell, now) = (Cell::new(), Timestamp::from_millis(0));
    for team in 0..teams {
        let account = format!("acme:t{team}");
        let spec = JobSpec::new(JobId(team.into()), account.as_str(), GpuDemand::Whole(1));
        let (origin, admit) = (Origin::component("test"), Command::AdmitJob(spec));
        execute(&mut cell, now, &origin, &admit, &mut Vec::new()).expect("admitted");
        advance(&mut cell, now, |_, _| {});
    }
    VISITS.set(0);
    let shares = cell.fair_shares(now);
    let part = 1_000_000 / u64::from(teams);
    let own = shares.iter().filter(|share| share.account.starts_with("acme:"));
    assert!(own.clone().all(|share| share.entitled_ppm == part), "an equal part for each");
    assert_eq!(own.count(), teams as usize);
    VISITS.get()
}

#[test]
fn the_shares_of_twice_as_many_siblings_look_at_twice_as_many_accounts() {
    let (some, twice) = (visits(100), visits(200));
    assert!(some >= 100, "they are counted: {some}");
    assert!(twice <= 2 * some, "{some} for 100 siblings, {twice} for 200");
}
