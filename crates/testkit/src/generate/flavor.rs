//! The mix of commands in a world. Worlds differ, so that rare commands are common in some of them.

use bursar_core::ledger::command::Command;

use super::Generator;
use super::random::Random;
use crate::model::Model;

type MakeCommand = fn(&mut Generator, &Model) -> Command;

/// The kinds of commands, with their weights in an average world.
pub(super) const KINDS: [(u64, MakeCommand); 18] = [
    (90, |world, _| world.issue_grant()),
    (20, Generator::revoke_grant),
    (240, Generator::place_hold),
    (160, Generator::capture_hold),
    (70, Generator::extend_hold),
    (60, Generator::settle_hold),
    (40, Generator::release_hold),
    (110, Generator::charge),
    (60, Generator::refund),
    (40, Generator::transfer),
    (25, Generator::collect),
    (35, Generator::set_budget),
    (8, Generator::remove_budget),
    (8, |world, _| world.open_account()),
    (7, |world, _| world.change_account()),
    (5, |world, _| world.freeze_account()),
    (20, Generator::unfreeze_account),
    (2, |world, _| Command::SetPolicy(world.next_policy())),
];

/// The indexes in [`KINDS`] that every world needs.
const GRANT: usize = 0;
const UNFREEZE: usize = 16;

/// Frequencies, in per cent.
pub(super) struct Flavor {
    /// The weight of each of [`KINDS`].
    pub(super) weights: [u64; KINDS.len()],
    /// Grants that are promotions with a share cap.
    pub(super) capped: u64,
    /// Grants that are restricted to some GPU types, regions or classes.
    pub(super) restricted: u64,
    /// Holds and charges that have a context.
    pub(super) contextual: u64,
    /// Charges with an earlier effective time.
    pub(super) late: u64,
    /// Charges that allow a partial amount.
    pub(super) partial: u64,
    /// Commands before which time advances.
    pub(super) hasty: u64,
    /// Commands with an idempotency key.
    pub(super) keyed: u64,
    /// Repetitions of an earlier command.
    pub(super) repeated: u64,
    /// Grants that never expire.
    pub(super) lasting: u64,
}

impl Flavor {
    pub(super) fn choose(random: &mut Random) -> Flavor {
        let mut weights = KINDS.map(|(weight, _)| weight);
        for weight in &mut weights {
            *weight *= *random.pick(&[0, 1, 1, 1, 1, 4]);
        }
        // Every world needs grants, and must be able to unfreeze accounts.
        for needed in [GRANT, UNFREEZE] {
            weights[needed] = weights[needed].max(KINDS[needed].0);
        }
        Flavor {
            weights,
            capped: *random.pick(&[0, 10, 15, 50, 95]),
            restricted: *random.pick(&[0, 10, 35, 60]),
            contextual: *random.pick(&[10, 70, 95]),
            late: *random.pick(&[2, 30, 80]),
            partial: *random.pick(&[10, 40, 90]),
            hasty: *random.pick(&[10, 35, 60]),
            keyed: *random.pick(&[2, 20, 60]),
            repeated: *random.pick(&[1, 6, 20]),
            lasting: *random.pick(&[5, 25, 80]),
        }
    }
}
