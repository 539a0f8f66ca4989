use super::*;

#[test]
fn actions_of_a_tenant_are_not_attributed_to_the_platform() {
    let on = |nodes: &[&str]| -> Vec<ProposedNode> {
        nodes.iter().map(|node| ProposedNode { node: (*node).into(), gpus: 1 }).collect()
    };
    let (ours, theirs, mixed) = (on(&["n1", "n2"]), on(&["acme/n1"]), on(&["n1", "acme/n1"]));
    let preempted = StopReason::Preempted { by: JobId(1), for_share: false, cause: None };
    for outcome in [
        AttemptOutcome::Lost,
        AttemptOutcome::Stopped(StopReason::Drained),
        AttemptOutcome::Stopped(preempted),
    ] {
        let by_another = |nodes: &[ProposedNode]| cause_of(outcome, nodes, |_| false);
        assert_eq!(by_another(&ours), Cause::Platform, "{outcome:?}");
        assert_eq!(by_another(&theirs), Cause::Holder, "{outcome:?}");
        assert_eq!(by_another(&mixed), Cause::Holder, "{outcome:?}");
    }
    let by_itself = cause_of(AttemptOutcome::Stopped(preempted), &ours, |by| by == JobId(1));
    assert_eq!(by_itself, Cause::Holder, "a job of the same tenant preempted it");
    for (by_platform, cause) in [(true, Cause::Platform), (false, Cause::Holder)] {
        let outcome = AttemptOutcome::Stopped(StopReason::Operator { by_platform });
        assert_eq!(cause_of(outcome, &ours, |_| true), cause);
    }
}
