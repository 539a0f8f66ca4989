//! Machines and tasks of a shared cluster.

use bursar_core::cell::schedule::shape::{GpuDemand, WHOLE_GPU};

use super::pick;
use crate::random::Dice;
use crate::traces::{NodeRow, TaskRow};

/// The number of machines of a cluster.
pub const NODES: usize = 1200;

/// The number of tasks of a family.
pub const TASKS: usize = 8000;

/// The variants of the task mix.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskFamily {
    /// The default mix: 13 % need no GPU, 38 % a share of one, 48 % one, and 1 % two to eight.
    Usual,
    /// Half as many CPU-only tasks again.
    MoreCpu,
    /// Six of ten tasks with a GPU request a share of one.
    MoreShares,
    /// Every fifth task with a GPU names the models that it accepts.
    Models,
    /// Six times as many tasks of two, four and eight GPUs.
    MoreGangs,
}

impl TaskFamily {
    /// All families, the default one first.
    pub const ALL: [TaskFamily; 5] = [
        TaskFamily::Usual,
        TaskFamily::MoreCpu,
        TaskFamily::MoreShares,
        TaskFamily::Models,
        TaskFamily::MoreGangs,
    ];

    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            TaskFamily::Usual => "usual",
            TaskFamily::MoreCpu => "more-cpu",
            TaskFamily::MoreShares => "more-shares",
            TaskFamily::Models => "models",
            TaskFamily::MoreGangs => "more-gangs",
        }
    }

    /// Weights of tasks with no GPU, a share, one, two, four and eight.
    fn sizes(self) -> [(u32, Size); 6] {
        use Size::{Gpus, None, Share};
        let [none, share, one, two, four, eight] = match self {
            TaskFamily::Usual | TaskFamily::Models => [1330, 3780, 4800, 20, 20, 50],
            TaskFamily::MoreCpu => [2000, 3480, 4430, 20, 20, 50],
            TaskFamily::MoreShares => [1330, 6420, 2220, 8, 8, 14],
            TaskFamily::MoreGangs => [1280, 3620, 4600, 130, 100, 270],
        };
        [
            (none, None),
            (share, Share),
            (one, Gpus(1)),
            (two, Gpus(2)),
            (four, Gpus(4)),
            (eight, Gpus(8)),
        ]
    }
}

#[derive(Copy, Clone, Debug)]
enum Size {
    None,
    Share,
    Gpus(u16),
}

/// Cores, memory in GiB, number of GPUs and their model.
type Machine = (u32, u32, u16, &'static str);

/// Half the machines have eight GPUs of one model, a third have two small ones, and the rest are
/// older.
const MACHINES: [(u32, Machine); 10] = [
    (450, (96, 384, 8, "G2")),
    (320, (104, 512, 2, "T4")),
    (90, (16, 120, 2, "P100")),
    (18, (64, 256, 2, "P100")),
    (32, (128, 768, 8, "G3")),
    (24, (32, 128, 4, "V16")),
    (16, (8, 32, 1, "V16")),
    (14, (96, 384, 4, "T4")),
    (24, (96, 768, 8, "V32")),
    (12, (64, 256, 8, "V16")),
];

/// Thousandths of a core and GiB: the request of a task beside its GPUs.
type HostRequest = (u32, u32);

const WITHOUT_GPU: [(u32, HostRequest); 5] = [
    (35, (12_500, 56)),
    (26, (32_000, 48)),
    (17, (8_000, 30)),
    (12, (15_500, 50)),
    (10, (16_500, 50)),
];

const WITH_A_SHARE: [(u32, HostRequest); 6] = [
    (37, (3_200, 6)),
    (20, (12_000, 46)),
    (16, (8_000, 30)),
    (12, (4_000, 20)),
    (9, (4_200, 12)),
    (6, (6_000, 10)),
];

const WITH_ONE: [(u32, HostRequest); 10] = [
    (25, (11_300, 48)),
    (16, (11_500, 47)),
    (13, (3_200, 6)),
    (8, (18_700, 63)),
    (9, (9_800, 40)),
    (8, (12_000, 24)),
    (8, (15_700, 57)),
    (5, (8_000, 16)),
    (5, (16_000, 32)),
    (3, (24_200, 90)),
];

/// Per GPU, for tasks with two or more.
const WITH_GANGS: [(u32, HostRequest); 4] =
    [(45, (8_000, 32)), (35, (11_000, 40)), (12, (15_000, 80)), (8, (4_000, 32))];

/// Thousandths of a GPU.
const SHARES: [(u32, u16); 9] = [
    (350, 810),
    (245, 470),
    (105, 320),
    (80, 650),
    (60, 230),
    (60, 460),
    (50, 580),
    (30, 160),
    (20, 370),
];

/// Accepted models, for tasks that name them.
const WANTED: [(u32, &[&str]); 6] = [
    (50, &["T4"]),
    (15, &["G2"]),
    (15, &["P100"]),
    (8, &["V16", "V32"]),
    (8, &["G2", "P100", "T4"]),
    (4, &["G3"]),
];

/// In [`TaskFamily::Models`], one in this many tasks with a GPU names its models.
const ONE_IN: usize = 5;

/// Separates the draws of machines from those of tasks.
const MACHINES_PURPOSE: u64 = 11;
const TASKS_PURPOSE: u64 = 12;

/// The machines of a cluster.
pub fn nodes(seed: u64) -> Vec<NodeRow> {
    let mut dice = Dice::new(seed, MACHINES_PURPOSE);
    let node = |place| {
        let (cores, memory_gib, gpus, model) = pick(&mut dice, &MACHINES);
        NodeRow {
            name: format!("node-{place:04}"),
            cpu_milli: cores * 1000,
            memory_mib: memory_gib * 1024,
            gpus,
            model: model.into(),
        }
    };
    (0..NODES).map(node).collect()
}

/// The tasks of a family.
pub fn tasks(family: TaskFamily, seed: u64) -> Vec<TaskRow> {
    let mut dice = Dice::new(seed, TASKS_PURPOSE);
    let sizes = family.sizes();
    (0..TASKS).map(|place| task(family, &sizes, place, &mut dice)).collect()
}

fn task(family: TaskFamily, sizes: &[(u32, Size)], place: usize, dice: &mut Dice) -> TaskRow {
    let size = pick(dice, sizes);
    let ((cpu_milli, memory_gib), gpus, thousandths) = match size {
        Size::None => (pick(dice, &WITHOUT_GPU), 0, 0),
        Size::Share => (pick(dice, &WITH_A_SHARE), 1, pick(dice, &SHARES)),
        Size::Gpus(1) => (pick(dice, &WITH_ONE), 1, WHOLE_GPU),
        Size::Gpus(gpus) => {
            let (cpu_milli, memory_gib) = pick(dice, &WITH_GANGS);
            let all = u32::from(gpus);
            ((cpu_milli * all, memory_gib * all), gpus, WHOLE_GPU)
        }
    };
    let says = family == TaskFamily::Models && gpus > 0 && dice.below(ONE_IN) == 0;
    // Gangs of eight fit on some models only. With another model they could never run.
    let models: &[&str] = match size {
        Size::Gpus(4 | 8) if says => &["G2", "G3", "V32"],
        _ if says => pick(dice, &WANTED),
        _ => &[],
    };
    TaskRow {
        name: format!("task-{place:04}"),
        cpu_milli,
        memory_mib: memory_gib * 1024,
        gpu: GpuDemand::new(gpus, thousandths).expect("the tables hold valid demands"),
        models: models.iter().map(|model| (*model).into()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_cluster_and_another_a_different_one() {
        assert_eq!(nodes(1), nodes(1));
        assert_ne!(nodes(1), nodes(2));
        for family in TaskFamily::ALL {
            assert_eq!(tasks(family, 1), tasks(family, 1));
            assert_ne!(tasks(family, 1), tasks(family, 2));
        }
    }

    #[test]
    fn the_families_differ_as_their_names_say() {
        let part = |family, is: fn(&TaskRow) -> bool| {
            let tasks = tasks(family, 1);
            100 * tasks.iter().filter(|task| is(task)).count() / tasks.len()
        };
        let no_gpu = |task: &TaskRow| task.gpu == GpuDemand::None;
        assert!((12..=14).contains(&part(TaskFamily::Usual, no_gpu)));
        assert!((18..=21).contains(&part(TaskFamily::MoreCpu, no_gpu)));
        let share = |task: &TaskRow| matches!(task.gpu, GpuDemand::Share(_));
        assert!((36..=40).contains(&part(TaskFamily::Usual, share)));
        assert!((62..=66).contains(&part(TaskFamily::MoreShares, share)));
        let picky = |task: &TaskRow| !task.models.is_empty();
        assert_eq!(part(TaskFamily::Usual, picky), 0);
        assert!((15..=19).contains(&part(TaskFamily::Models, picky)));
        let gang = |task: &TaskRow| task.gpu.devices() > 1;
        assert_eq!(part(TaskFamily::Usual, gang), 0);
        assert!((4..=6).contains(&part(TaskFamily::MoreGangs, gang)));
    }
}
