//! Random histories for the comparisons with the model.

use proptest::prelude::*;

use super::timeline_model::Recorded;

/// Histories in random order of time, dense enough that packs compete, expire and run out.
pub(crate) fn histories(longest: usize) -> impl Strategy<Value = Vec<Recorded>> {
    let horizon = prop_oneof![Just(8_i64), Just(60), Just(5_000)];
    let life = prop_oneof![Just(3_i64), Just(30), Just(5_000)];
    let largest = prop_oneof![Just(1_u64), Just(5), Just(1_000)];
    let demand = 1..=3_u64;
    (horizon, life, largest, demand).prop_flat_map(move |(horizon, life, largest, demand)| {
        let lifetime = prop_oneof![9 => (0..=life).prop_map(Some), 1 => Just(None)];
        let pack = (1..=largest, 0..horizon, lifetime).prop_map(|(amount, at, lifetime)| {
            Recorded::Pack { amount, at, expires_at: lifetime.map(|lifetime| at + lifetime) }
        });
        let consumption = (1..=largest * demand, 0..horizon)
            .prop_map(|(amount, at)| Recorded::Consumption { amount, at });
        prop::collection::vec(prop_oneof![pack, consumption], 0..longest)
    })
}
