use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::*;
use crate::cell::nodes::node::{NodeSpec, RackId};

const NODE: NodeId = NodeId(0);

fn spec(cpu_milli: u32) -> NodeSpec {
    NodeSpec {
        model: ModelId(0),
        gpus: 1,
        gpu_memory_mib: 1024,
        cpu_milli,
        memory_mib: 1024,
        labels: SmallVec::new(),
        rack: RackId(0),
        scope: None,
    }
}

fn register(inventory: &mut Inventory, id: NodeId, cpu_milli: u32, incarnation: u32) {
    let offer = NodeOffer {
        name: format!("n{}", id.0).into(),
        rack: "r".into(),
        model: "m".into(),
        gpus: 1,
        gpu_memory_mib: 1024,
        cpu_milli,
        memory_mib: 1024,
        uuids: Vec::new(),
        labels: Vec::new(),
        scope: None,
    };
    let node = Node::new(spec(cpu_milli)).expect("one GPU");
    inventory.register(id, Box::new(offer), node, incarnation, Timestamp::from_millis(1));
}

#[test]
fn hardware_that_no_node_has_any_more_leaves_nothing_behind() {
    let mut inventory = Inventory::default();
    for round in 1..10_000 {
        register(&mut inventory, NODE, round, round);
    }
    assert!(inventory.hardware.len() <= 2, "{} kinds", inventory.hardware.len());
    for round in 1..10_000 {
        inventory.remove(NODE);
        register(&mut inventory, NODE, round, 1);
    }
    assert!(inventory.hardware.len() <= 2, "{} kinds", inventory.hardware.len());
    inventory.check_states().expect("it is in the slot of its state");
}

#[test]
fn states_that_were_chosen_to_collide_do_not() {
    let mut inventory = Inventory::default();
    register(&mut inventory, NODE, 1, 1);
    let key = |cpu_milli: u32| StateKey {
        hardware: inventory.node(NODE).hardware,
        state: Node::new(spec(cpu_milli)).expect("one GPU").state(),
        claims: SmallVec::new(),
    };
    let all = (0..u32::MAX).map(key);
    let place = |hash: u64| hash & 0xfff;
    let chosen = all.filter(|key| place(FxBuildHasher.hash_one(key)) == 0x123).take(64);
    let hasher = inventory.slots.hasher();
    let places: BTreeSet<u64> = chosen.map(|key| place(hasher.hash_one(&key))).collect();
    assert!(places.len() > 50, "{} places for 64 states", places.len());
}
