//! Snapshots of a ledger: the image is complete, its encoding is exact, and a ledger that was
//! rebuilt from it continues identically.

use crate::traffic;

use std::collections::BTreeSet;

use bursar_core::ledger::image::Image;
use bursar_core::ledger::{Ledger, invariant};
use bursar_core::machine::Machine;
use bursar_journal::record::ledger::{
    decode_body, decode_image, encode_body, encode_image, event_name,
};
use proptest::prelude::*;
use traffic::{World, answer_alike};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_rebuilt_ledger_has_the_same_digest_obeys_the_same_laws_and_answers_equally(
        seed in any::<u64>(), steps in 0u32..700,
    ) {
        let mut world = World::after(seed, steps);
        let image = world.ledger.image();
        let bytes = encode_image(&image);
        let read = decode_image(&bytes).expect("just written");
        prop_assert_eq!(&read, &image);
        let mut rebuilt = Ledger::from_image(read).expect("the image of a real ledger");
        prop_assert_eq!(rebuilt.digest(), world.ledger.digest());
        prop_assert_eq!(invariant::check(&rebuilt), invariant::check(&world.ledger));
        prop_assert_eq!(rebuilt.image(), image);
        prop_assert!(answer_alike(&mut world, &mut rebuilt, 150));
        prop_assert_eq!(invariant::check(&rebuilt), invariant::check(&world.ledger));
    }

    #[test]
    fn a_damaged_image_is_refused_or_is_another_ledger(
        seed in any::<u64>(), at in any::<prop::sample::Index>(), value in any::<u8>(),
    ) {
        let world = World::after(seed % 8, 120);
        let mut bytes = encode_image(&world.ledger.image());
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(image) = decode_image(&bytes) {
            prop_assert_eq!(encode_image(&image), bytes);
            let _ = Ledger::from_image(image);
        }
    }
}

#[test]
fn traffic_makes_every_kind_of_event_and_all_of_it_is_stored_exactly() {
    let mut seen = BTreeSet::new();
    for seed in 0..12 {
        let world = World::after(seed, 900);
        assert_eq!(invariant::check(&world.ledger), Ok(()));
        let mut replayed = Ledger::new();
        for decided in &world.decided {
            for (header, events) in &decided.bodies {
                let mut bytes = Vec::new();
                encode_body(header.as_ref(), events, &mut bytes);
                let body = decode_body(&bytes).expect("just written");
                assert_eq!((&body.header, &body.events), (header, events));
                for event in &body.events {
                    seen.insert(event_name(event));
                    replayed.apply(decided.at, event);
                }
            }
        }
        assert_eq!(replayed.digest(), world.ledger.digest());
    }
    let missing = 28 - seen.len();
    assert_eq!(missing, 0, "{seen:?}");
}

#[test]
fn the_empty_ledger_has_an_image() {
    let rebuilt = Ledger::from_image(Image::default()).expect("an empty image is whole");
    assert_eq!(rebuilt.digest(), Ledger::new().digest());
}
