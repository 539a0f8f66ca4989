//! Snapshots of a cell: the image is complete, its encoding is exact, and a cell that was rebuilt
//! from it continues identically.

use crate::cell_world;

use bursar_core::cell::command::{
    AccountPolicy, Command, FundsBlocker, GroupSpec, QuotaSpec, Verdict,
};
use bursar_core::cell::ids::MaintenanceId;
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::cell::{AttemptId, Cell, ClassRank, JobId};
use bursar_core::machine::Machine;
use bursar_journal::record::cell::{decode_body, decode_image, encode_body, encode_image};
use cell_world::*;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A small cell in which every kind of event happens.
fn step(world: &mut World, random: &mut ChaCha8Rng, jobs: &mut Vec<JobId>) {
    let mut below = |bound: u32| random.next_u32() % bound;
    let node = format!("n{}", below(4));
    let job = jobs.get(below(50) as usize).copied().unwrap_or(JobId(1));
    match below(16) {
        0..=6 => {
            let account = ["a", "a:x", "a:y", "b", "b:z"][below(5) as usize];
            let mut spec = world.spec(account, 1, i64::from(1 + below(200)) * MINUTE);
            spec.gpu = match below(5) {
                0 => GpuDemand::None,
                1 => GpuDemand::Share(100 + 100 * below(9) as u16),
                _ => GpuDemand::Whole(1 + below(8) as u16),
            };
            spec.cpu_milli = below(4) * 10_000;
            spec.nodes = if below(5) == 0 { 2 } else { 1 };
            spec.class = ClassRank(10 + 10 * below(4) as u8);
            spec.preemptible = below(5) > 0;
            spec.resumable = below(2) > 0;
            if below(5) == 0 {
                spec.group = Some(GroupSpec { name: "g".into(), limit: 1 + below(2) });
            }
            if below(3) == 0 {
                spec.models = [["A100", "H100"][below(2) as usize].into()].into_iter().collect();
            }
            jobs.push(spec.job);
            world.submit(spec);
        }
        7..=10 => {
            let (seconds, beats) = (i64::from(1 + below(3000)), i64::from(1 + below(4)));
            world.pass(seconds * SECOND, (seconds * SECOND / beats).max(SECOND));
        }
        11 => {
            let _ = world.send(Command::CancelJob { job });
            world.agent(&node).silent = below(3) == 0;
        }
        12 => {
            let force = below(2) == 0;
            world.ok(Command::DrainNode { node: node.as_str().into(), force });
            world.confirms = below(3) > 0;
        }
        13 => {
            world.ok(Command::ResumeNode { node: node.as_str().into() });
            let from = at(world.now + i64::from(below(7200)) * SECOND);
            let (id, to) = (MaintenanceId(u64::from(below(3))), from.plus_millis(HOUR));
            world.ok(Command::PlanMaintenance { id, from, to, nodes: vec![node.into()] });
        }
        14 => {
            let mut policy = AccountPolicy::new(["a", "a:x", "b"][below(3) as usize]);
            policy.weight = below(4);
            policy.quota = QuotaSpec {
                gpus: vec![("H100".into(), 1000 * below(16))],
                running_jobs: (below(2) == 0).then(|| below(6)),
                ..QuotaSpec::default()
            };
            world.ok(Command::SetAccount(policy));
        }
        _ => {
            let verdict =
                if below(2) == 0 { Verdict::Wait(FundsBlocker::Budget) } else { Verdict::Withdraw };
            let attempt = AttemptId { job, number: 1 };
            let _ = world.send(Command::RefusePlacement { attempt, verdict });
            let _ = world.send(Command::PreemptJob { job, by_platform: true });
        }
    }
}

fn world_after(seed: u64, steps: u32) -> (World, ChaCha8Rng, Vec<JobId>) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut world = World::with_nodes(2, "H100");
    world.checks = false;
    for name in ["n2", "n3"] {
        world.register(&offer(name, "A100", 8));
    }
    let mut jobs = Vec::new();
    for _ in 0..steps {
        step(&mut world, &mut random, &mut jobs);
    }
    (world, random, jobs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn a_rebuilt_cell_has_the_same_digest_obeys_the_same_laws_and_decides_equally(
        seed in any::<u64>(), steps in 0u32..120,
    ) {
        let (mut world, mut random, mut jobs) = world_after(seed, steps);
        let image = world.cell.image();
        let bytes = encode_image(&image);
        let read = decode_image(&bytes).expect("just written");
        prop_assert_eq!(&read, &image);
        let rebuilt = Cell::from_image(read).expect("the image of a real cell");
        prop_assert_eq!(rebuilt.digest(), world.cell.digest());
        prop_assert_eq!(rebuilt.check(), world.cell.check());
        world.twin = Some(Box::new(rebuilt));
        for _ in 0..30 {
            step(&mut world, &mut random, &mut jobs);
        }
        world.check_replay();
    }

    #[test]
    fn a_damaged_image_is_refused_or_is_another_cell(
        seed in any::<u64>(), at in any::<prop::sample::Index>(), value in any::<u8>(),
    ) {
        let (world, ..) = world_after(seed % 8, 40);
        let mut bytes = encode_image(&world.cell.image());
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(image) = decode_image(&bytes) {
            prop_assert_eq!(encode_image(&image), bytes);
        }
    }
}

#[test]
fn everything_that_happens_in_a_cell_is_stored_exactly() {
    for seed in 0..4 {
        let (world, ..) = world_after(seed, 80);
        let mut replayed = Cell::new();
        for (when, events) in &world.journal {
            let mut bytes = Vec::new();
            encode_body(None, events, &mut bytes);
            let body = decode_body(&bytes).expect("just written");
            assert_eq!(&body.events, events);
            body.events.iter().for_each(|event| replayed.apply(*when, event));
        }
        assert_eq!(replayed.digest(), world.cell.digest());
    }
}

#[test]
fn an_image_of_another_version_is_refused_with_advice() {
    let error = decode_image(&[0x82, 2, 0xa0]).expect_err("version 2 does not exist");
    assert!(error.to_string().contains("use the build that wrote it"), "{error}");
}
