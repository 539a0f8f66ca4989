//! A class preempts the classes on its list and no others.

use crate::cell_world;

use bursar_core::cell::command::Command;
use bursar_core::cell::{ClassRank, JobId};
use cell_world::*;

fn named(world: &mut World, gpus: u16, name: &str, rank: ClassRank) -> JobId {
    let mut spec = class(world.spec("a", gpus, 10 * HOUR), rank);
    spec.class_name = name.into();
    world.submit(spec)
}

fn set(world: &mut World, class: &str, preempts: Option<&[&str]>) {
    let preempts = preempts.map(|list| list.iter().map(|name| (*name).into()).collect());
    world.ok(Command::SetClass { class: class.into(), preempts });
}

#[test]
fn a_class_preempts_only_the_classes_on_its_list() {
    let mut world = World::with_nodes(1, "H100");
    set(&mut world, "urgent", Some(&["normal"]));
    set(&mut world, "normal", Some(&[]));
    let batch = named(&mut world, 4, "batch", ClassRank::BATCH);
    let normal = named(&mut world, 4, "normal", ClassRank::NORMAL);
    world.pass(5 * MINUTE, 30 * SECOND);
    let urgent = named(&mut world, 4, "urgent", ClassRank::URGENT);
    assert_eq!(world.victims(), [(normal, urgent)], "batch is lower, but not on the list");
    world.pass(2 * MINUTE, 30 * SECOND);
    let second = named(&mut world, 4, "urgent", ClassRank::URGENT);
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(world.victims().len(), 1, "no other class is on the list");
    // A longer list applies to waiting jobs at the next review.
    set(&mut world, "urgent", Some(&["normal", "batch"]));
    world.pass(2 * MINUTE, 30 * SECOND);
    assert_eq!(world.victims()[1..], [(batch, second)]);
    world.check_replay();
}

#[test]
fn an_empty_list_preempts_nothing_and_no_list_preempts_every_lower_class() {
    let mut world = World::with_nodes(1, "H100");
    set(&mut world, "high", Some(&[]));
    let batch = named(&mut world, 8, "batch", ClassRank::BATCH);
    world.pass(5 * MINUTE, 30 * SECOND);
    named(&mut world, 8, "high", ClassRank::HIGH);
    world.pass(5 * MINUTE, 30 * SECOND);
    assert_eq!(world.victims(), []);
    let urgent = named(&mut world, 8, "urgent", ClassRank::URGENT);
    assert_eq!(world.victims(), [(batch, urgent)]);
    set(&mut world, "high", None);
    world.pass(2 * MINUTE, 30 * SECOND);
    world.check_replay();
}

#[test]
fn victims_are_found_after_any_number_of_nodes_without_permitted_ones() {
    let mut world = World::with_nodes(40, "H100");
    set(&mut world, "urgent", Some(&["normal"]));
    for _ in 0..39 {
        named(&mut world, 8, "batch", ClassRank::BATCH);
    }
    let normal = named(&mut world, 8, "normal", ClassRank::NORMAL);
    world.pass(MINUTE, 30 * SECOND);
    let urgent = named(&mut world, 8, "urgent", ClassRank::URGENT);
    assert_eq!(world.victims(), [(normal, urgent)]);
}
