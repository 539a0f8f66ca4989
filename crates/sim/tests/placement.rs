//! The packing experiment on synthetic families: our score is better than the published policies.
//! `studies.rs` checks the published figures on the original traces.

mod support;

use bursar_sim::families::cluster::{TaskFamily, nodes, tasks};
use bursar_sim::placement::{Experiment, PlacementPolicy};
use support::allocated;

/// The seed of the families.
const SEED: u64 = 1;

fn experiment(family: TaskFamily) -> Experiment {
    Experiment::new(&nodes(SEED), &tasks(family, SEED)).expect("nodes and tasks with GPUs")
}

#[test]
fn six_published_policies_keep_their_measured_values() {
    // Measured on these families with these seeds. The values are 0.1 to 0.7 points below the
    // published ones, because the family is a little harder than the trace. Over seeds of the
    // family they vary by less than a point.
    let experiment = experiment(TaskFamily::Usual);
    for (policy, measured) in [
        (PlacementPolicy::Random, 85.83),
        (PlacementPolicy::DotProd, 90.14),
        (PlacementPolicy::Clustering, 90.94),
        (PlacementPolicy::Packing, 91.20),
        (PlacementPolicy::BestFit, 92.40),
        (PlacementPolicy::Fgd, 94.83),
    ] {
        let ours = allocated(&experiment, policy, 3);
        let name = policy.name();
        assert!((ours - measured).abs() <= 0.3, "{name}: {ours:.2}, measured {measured}");
    }
}

#[test]
fn our_score_leaves_less_than_five_per_cent_idle_on_the_usual_family() {
    let ours = allocated(&experiment(TaskFamily::Usual), PlacementPolicy::Bursar, 3);
    assert!(ours > 95.2, "{ours:.2}");
}

#[test]
fn our_score_is_at_least_as_good_as_gradient_descent_on_every_family() {
    for (family, measured) in [
        (TaskFamily::Usual, 95.56),
        (TaskFamily::MoreCpu, 95.64),
        (TaskFamily::MoreShares, 91.49),
        (TaskFamily::Models, 95.39),
        (TaskFamily::MoreGangs, 96.49),
    ] {
        let experiment = experiment(family);
        let [ours, theirs] = [PlacementPolicy::Bursar, PlacementPolicy::Fgd]
            .map(|policy| allocated(&experiment, policy, 3));
        let name = family.name();
        assert!(ours >= theirs, "{name}: {ours:.2} against {theirs:.2}");
        assert!((ours - measured).abs() <= 0.3, "{name}: {ours:.2}, measured {measured}");
    }
}

#[test]
fn the_same_seed_gives_the_same_curve() {
    let experiment = experiment(TaskFamily::Usual);
    for policy in [PlacementPolicy::Bursar, PlacementPolicy::Random] {
        assert_eq!(experiment.run(policy, 7, 1.05), experiment.run(policy, 7, 1.05));
        assert_ne!(experiment.run(policy, 7, 1.05), experiment.run(policy, 8, 1.05));
    }
}
