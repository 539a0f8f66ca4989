use proptest::prelude::*;

use super::*;

fn node(gpus: u16) -> Node {
    Node::new(NodeSpec {
        model: ModelId(1),
        gpus,
        gpu_memory_mib: 81_920,
        cpu_milli: 64_000,
        memory_mib: 524_288,
        labels: SmallVec::from_slice(&[LabelId(5), LabelId(2)]),
        rack: RackId(0),
        scope: None,
    })
    .expect("few enough GPUs")
}

fn shape(gpu: GpuDemand, cpu_milli: u32) -> Shape {
    Shape { cpu_milli, memory_mib: 1024, ..Shape::of_gpus(gpu) }
}

#[test]
fn a_node_with_more_than_64_gpus_is_refused() {
    let spec = NodeSpec { gpus: 65, ..node(0).spec().clone() };
    assert_eq!(Node::new(spec), None);
}

#[test]
fn whole_gpus_are_taken_untouched_and_in_index_order() {
    let mut node = node(4);
    let share = shape(GpuDemand::Share(300), 1000);
    node.take(&share, GpuSet::from_indexes([1]).expect("in range"));
    let pair = shape(GpuDemand::Whole(2), 1000);
    let picked = node.pick_gpus(pair.gpu).expect("three are untouched");
    assert_eq!(picked.iter().collect::<Vec<_>>(), [0, 2]);
    node.take(&pair, picked);
    assert_eq!(node.free_gpus(), [0, 700, 0, 1000]);
    assert!(!node.fits(&pair));
    assert_eq!(node.pick_gpus(pair.gpu), None);
}

#[test]
fn a_share_goes_to_the_fullest_gpu_with_room_for_it() {
    let mut node = node(3);
    let first = shape(GpuDemand::Share(400), 0);
    node.take(&first, GpuSet::from_indexes([2]).expect("in range"));
    let next = |thousandths| node.pick_gpus(GpuDemand::Share(thousandths));
    assert_eq!(next(600), GpuSet::from_indexes([2]));
    assert_eq!(next(601), GpuSet::from_indexes([0]));
}

#[test]
fn a_node_is_refused_for_its_model_gpu_memory_labels_cpu_memory_or_drain() {
    let node = node(2);
    let fine = shape(GpuDemand::Whole(1), 64_000);
    assert!(node.fits(&fine));
    let mut other = fine.clone();
    other.models.push(ModelId(9));
    assert!(!node.fits(&other) && !node.could_ever_fit(&other));
    let mut other = fine.clone();
    other.gpu_memory_mib = 81_921;
    assert!(!node.fits(&other) && !node.could_ever_fit(&other));
    let mut other = fine.clone();
    other.labels.push(LabelId(3));
    assert!(!node.fits(&other) && !node.could_ever_fit(&other));
    other.labels[0] = LabelId(5);
    assert!(node.fits(&other));
    let mut other = fine.clone();
    other.cpu_milli += 1;
    assert!(!node.fits(&other) && !node.could_ever_fit(&other));
    let mut other = fine.clone();
    other.memory_mib = 524_289;
    assert!(!node.fits(&other) && !node.could_ever_fit(&other));
    let mut drained = node.clone();
    drained.set_drained(true);
    assert!(!drained.fits(&fine) && drained.could_ever_fit(&fine));
}

#[test]
#[should_panic(expected = "given back twice")]
fn giving_back_twice_is_caught() {
    let mut node = node(2);
    let job = shape(GpuDemand::Share(100), 0);
    let gpus = GpuSet::from_indexes([0]).expect("in range");
    node.take(&job, gpus);
    node.give(&job, gpus);
    node.give(&job, gpus);
}

fn demands() -> impl Strategy<Value = GpuDemand> {
    prop_oneof![
        Just(GpuDemand::None),
        (1..WHOLE_GPU).prop_map(GpuDemand::Share),
        (1..5u16).prop_map(GpuDemand::Whole),
    ]
}

proptest! {
    #[test]
    fn what_runs_and_what_is_free_always_add_up(
        steps in prop::collection::vec((demands(), 0..40_000u32, any::<prop::sample::Index>()), 1..80),
    ) {
        let mut node = node(8);
        let mut running: Vec<(Shape, GpuSet)> = Vec::new();
        for (gpu, cpu_milli, index) in steps {
            let job = shape(gpu, cpu_milli);
            let foreseen = node.state().after(&job);
            prop_assert_eq!(foreseen.is_some(), node.fits(&job));
            prop_assert_eq!(node.room().holds(&job), node.fits(&job));
            if node.fits(&job) {
                let gpus = node.pick_gpus(gpu).expect("it fits");
                node.take(&job, gpus);
                prop_assert_eq!(Some(node.state()), foreseen);
                running.push((job, gpus));
            } else if !running.is_empty() {
                let (job, gpus) = running.swap_remove(index.index(running.len()));
                node.give(&job, gpus);
            }
            let mut used = [0u32; 8];
            for (job, gpus) in &running {
                gpus.iter().for_each(|device| used[device] += u32::from(job.gpu.per_device()));
            }
            for (used, free) in used.iter().zip(node.free_gpus()) {
                prop_assert_eq!(used + u32::from(*free), u32::from(WHOLE_GPU));
            }
            let cpu: u32 = running.iter().map(|(job, _)| job.cpu_milli).sum();
            prop_assert_eq!(cpu + node.free_cpu_milli(), 64_000);
        }
        for (job, gpus) in running.drain(..) {
            node.give(&job, gpus);
        }
        prop_assert!(node.is_idle());
    }
}
