//! Mistakes in the engine, each found by a test of this binary.

use bursar_seeded::Bug;
use bursar_seeded::caught::{FoundBy, assert_each_is_found};

const FOUND_BY: &[FoundBy] = &[
    (Bug::AnswersBeforeDurable, "writer::every_answer_is_durable_when_it_is_sent"),
    (Bug::ReadsWithoutLease, "durability::a_read_is_refused_once_another_server_owns_the_machine"),
    (Bug::TrustOutlivesLease, "lease::a_lease_is_trusted_for_two_thirds_of_its_time"),
    (
        Bug::SkipsBarrier,
        "durability::what_a_new_owner_shows_of_an_unknown_append_survives_a_power_failure",
    ),
    (
        Bug::TakesOverLostHistory,
        "following::a_state_that_followed_a_lost_batch_is_dropped_and_the_journal_replayed",
    ),
    (
        Bug::StopsWithoutFlush,
        "writer::answers_never_go_back_in_time_over_a_restart_when_the_clock_was_set_back",
    ),
    (Bug::FollowerShowsUnsynced, "durability::a_follower_shows_nothing_beyond_the_durable_head"),
    (Bug::CourierSendsUnsynced, "durability::a_courier_sends_nothing_beyond_the_durable_head"),
    (Bug::CourierSkipsUntaken, "durability::a_courier_sends_again_what_was_not_taken"),
    (Bug::TrustsForeignSnapshot, "followers::a_snapshot_of_another_history_is_skipped"),
    (
        Bug::ReplayDropsLastRecord,
        "replay::every_event_is_applied_once_and_in_order_however_long_the_journal_is",
    ),
    (Bug::KeepsHalfOfGroup, "writer::a_group_happens_as_a_whole_or_not_at_all"),
    (Bug::FollowsClockJump, "durability::a_timer_does_not_run_because_the_clock_jumped"),
    (Bug::TimeRunsBack, "writer::time_does_not_go_back_over_a_restart"),
    (
        Bug::ForgetsBeforeArchiving,
        "archive_steps::nothing_is_added_at_a_position_that_was_looked_up",
    ),
    (
        Bug::ArchivesAtPastPosition,
        "archive_steps::nothing_is_added_at_a_position_that_was_looked_up",
    ),
    (
        Bug::SkipsLookUp,
        "look_ups::a_request_about_something_old_reads_two_places_for_each_thing_that_it_needs",
    ),
];

#[test]
fn every_seeded_bug_of_the_engine_is_found() {
    assert_each_is_found(FOUND_BY);
}
