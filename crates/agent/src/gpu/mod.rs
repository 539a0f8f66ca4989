//! The GPUs of this node: found through NVIDIA's management library, which is loaded when the agent
//! starts, or simulated for tests. The library is not needed to build the program. A static build
//! cannot load it and asks `nvidia-smi`.

pub mod sampler;
mod smi;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use bursar_api::nodes::node;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use thiserror::Error;

use smi::SmiCommand;

/// The library, by the name that every driver installs.
const LIBRARY: &str = "libnvidia-ml.so.1";
const GIB: u64 = 1 << 30;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its UUID, as in `CUDA_VISIBLE_DEVICES`.
    pub uuid: String,
    /// Its type, such as `H100`.
    pub gpu_type: String,
    /// Its memory.
    pub memory_gib: u32,
}

/// The utilisation of a GPU.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GpuUse {
    /// The percentage of the last sample period in which a kernel ran.
    pub utilization_percent: u32,
    /// Bytes in use.
    pub memory_used_bytes: u64,
}

/// Why the GPUs cannot be used. Each text says how to fix it.
#[derive(Debug, Error)]
pub enum GpuError {
    /// There is no driver.
    #[error(
        "no NVIDIA driver was found on this machine ({0}). Install the driver, check that \
         `nvidia-smi` works for this user, or try things out with --fake-gpus H100:8:80"
    )]
    NoDriver(String),
    /// The command of the driver hangs.
    #[error(
        "`nvidia-smi` did not answer within {0} seconds. Run it by hand: if it hangs, see \
         `dmesg | grep -i nvrm` and restart the driver or the machine; if it is only slow, switch on \
         persistence mode (`nvidia-smi -pm 1`) and start the agent again"
    )]
    NoAnswer(u64),
    /// The environment hides all GPUs.
    #[error(
        "CUDA_VISIBLE_DEVICES={0} names none of the GPUs of this machine. `nvidia-smi -L` lists them \
         with their numbers and ids; parts of a GPU (MIG) are not supported"
    )]
    Hidden(String),
    /// There is a driver and no GPU.
    #[error(
        "the NVIDIA driver finds no GPU. Check `nvidia-smi`, or try things out with \
         --fake-gpus H100:8:80"
    )]
    NoGpu,
    /// A GPU does not answer.
    #[error("GPU {index} does not answer: {cause}. Check `nvidia-smi -q -i {index}`")]
    Broken {
        /// Its index.
        index: u32,
        /// The error of the library.
        cause: String,
    },
    /// The GPUs have different types.
    #[error(
        "the GPUs of a node must be alike, and here are {0} and {1}. Run an agent for each type, \
         with CUDA_VISIBLE_DEVICES set to its GPUs, or name them alike with --gpu-type"
    )]
    Mixed(Gpu, Gpu),
    /// The description of simulated GPUs is not valid.
    #[error("`{0}` is not a set of simulated GPUs: write TYPE:COUNT:GIB, as in H100:8:80")]
    Invalid(String),
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} GiB", self.gpu_type, self.memory_gib)
    }
}

/// The source of the GPUs.
#[derive(Debug)]
pub enum GpuSource {
    /// The devices of this machine.
    Real(Box<Nvml>),
    /// The devices of this machine, read with a command of the driver.
    Command(SmiCommand),
    /// Simulated devices.
    Fake {
        /// The file with the percentage in which they are busy, read at each use.
        utilization: Option<PathBuf>,
    },
}

/// The GPUs of a node.
#[derive(Debug)]
pub struct Gpus {
    /// The GPUs, in the order of the machine.
    pub list: Vec<Gpu>,
    source: GpuSource,
}

impl Gpus {
    /// The GPUs as a node registers them.
    pub fn offered(&self) -> Vec<node::Gpu> {
        let offered = self.list.iter().map(|gpu| node::Gpu {
            uuid: gpu.uuid.clone(),
            kind: gpu.gpu_type.clone(),
            memory_gib: gpu.memory_gib,
        });
        offered.collect()
    }

    /// The GPUs of this machine. `named` overrides the driver's name, `visible` lists the
    /// ones that this agent may use, by number or id, as in `CUDA_VISIBLE_DEVICES`.
    pub fn discover(named: Option<&str>, visible: Option<&str>) -> Result<Gpus, GpuError> {
        if cfg!(target_feature = "crt-static") {
            let smi = SmiCommand::new("nvidia-smi");
            let list = only_visible(visible, smi.list(named)?)?;
            return Gpus { list, source: GpuSource::Command(smi) }.checked();
        }
        let library = Nvml::builder().lib_path(LIBRARY.as_ref()).init();
        let nvml = library.map_err(|error| GpuError::NoDriver(error.to_string()))?;
        let count = nvml.device_count().map_err(|error| GpuError::NoDriver(error.to_string()))?;
        let mut list = Vec::new();
        for index in 0..count {
            let gpu = read(&nvml, index, named)
                .map_err(|error| GpuError::Broken { index, cause: error.to_string() })?;
            list.push((index, gpu));
        }
        let list = only_visible(visible, list)?;
        Gpus { list, source: GpuSource::Real(Box::new(nvml)) }.checked()
    }

    /// Simulated GPUs of a node, written as `H100:8:80`: type, count, memory of each in GiB.
    pub fn fake(text: &str, node: &str) -> Result<Gpus, GpuError> {
        let wrong = || GpuError::Invalid(text.to_owned());
        let mut parts = text.split(':');
        let (Some(gpu_type), Some(count), Some(memory), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let count: u32 = count.parse().map_err(|_| wrong())?;
        let memory_gib: u32 = memory.parse().map_err(|_| wrong())?;
        if gpu_type.is_empty() || !(1..=64).contains(&count) || memory_gib == 0 {
            return Err(wrong());
        }
        let gpu = |index| Gpu {
            uuid: format!("GPU-fake-{node}-{index}"),
            gpu_type: gpu_type.to_owned(),
            memory_gib,
        };
        let source = GpuSource::Fake { utilization: None };
        Ok(Gpus { list: (0..count).map(gpu).collect(), source })
    }

    /// Simulated GPUs that are as busy as a file says: a percentage, which is read for each sample.
    pub fn with_utilization(mut self, file: Option<PathBuf>) -> Gpus {
        if let GpuSource::Fake { utilization } = &mut self.source {
            *utilization = file;
        }
        self
    }

    fn checked(self) -> Result<Gpus, GpuError> {
        let Some(first) = self.list.first() else { return Err(GpuError::NoGpu) };
        let alike =
            |gpu: &&Gpu| gpu.gpu_type == first.gpu_type && gpu.memory_gib == first.memory_gib;
        match self.list.iter().find(|gpu| !alike(gpu)) {
            Some(other) => Err(GpuError::Mixed(first.clone(), other.clone())),
            None => Ok(self),
        }
    }

    /// Whether the driver reports how busy they are.
    pub fn are_measured(&self) -> bool {
        !matches!(self.source, GpuSource::Fake { utilization: None })
    }

    /// The present use of each GPU, without those that do not report it. May wait for the driver.
    fn uses(&self) -> BTreeMap<String, GpuUse> {
        let each = |read: &dyn Fn(&str) -> Option<GpuUse>| {
            let gpus =
                self.list.iter().filter_map(|gpu| Some((gpu.uuid.clone(), read(&gpu.uuid)?)));
            gpus.collect()
        };
        match &self.source {
            GpuSource::Real(nvml) => each(&|uuid| {
                let device = nvml.device_by_uuid(uuid).ok()?;
                Some(GpuUse {
                    utilization_percent: device.utilization_rates().ok()?.gpu,
                    memory_used_bytes: device.memory_info().ok()?.used,
                })
            }),
            GpuSource::Command(smi) => smi.uses(),
            GpuSource::Fake { utilization } => each(&|_| {
                let text = std::fs::read_to_string(utilization.as_ref()?).ok()?;
                let utilization_percent = text.trim().parse().ok()?;
                Some(GpuUse { utilization_percent, memory_used_bytes: 0 })
            }),
        }
    }
}

/// The GPUs that this agent may use.
fn only_visible(visible: Option<&str>, all: Vec<(u32, Gpu)>) -> Result<Vec<Gpu>, GpuError> {
    let found = all.len();
    let shown = all.into_iter().filter(|(index, gpu)| is_visible(visible, *index, &gpu.uuid));
    let shown: Vec<Gpu> = shown.map(|(_, gpu)| gpu).collect();
    match visible {
        Some(visible) if found > 0 && shown.is_empty() => Err(GpuError::Hidden(visible.to_owned())),
        Some(_) | None => Ok(shown),
    }
}

fn read(nvml: &Nvml, index: u32, named: Option<&str>) -> Result<Gpu, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let name = device.name()?;
    // Rounded: a GPU sold with 80 GB has a little less than 80 GiB.
    let memory_gib = (device.memory_info()?.total + GIB / 2) / GIB;
    Ok(Gpu {
        uuid: device.uuid()?,
        gpu_type: named.map_or_else(|| type_of(&name), str::to_owned),
        memory_gib: u32::try_from(memory_gib).unwrap_or(u32::MAX),
    })
}

fn is_visible(visible: Option<&str>, index: u32, uuid: &str) -> bool {
    let Some(visible) = visible else { return true };
    let mut listed = visible.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    listed.any(|entry| entry == index.to_string() || uuid.starts_with(entry))
}

/// The type of a GPU from its product name: `NVIDIA H100 80GB HBM3` is an `H100`.
pub fn type_of(name: &str) -> String {
    let maker = ["NVIDIA", "Tesla", "GeForce", "Quadro"];
    let is_memory = |word: &str| {
        let digits = word.trim_end_matches("GB");
        digits.len() < word.len() && digits.chars().all(|c| c.is_ascii_digit())
    };
    let is_form = |word: &str| {
        let forms = ["PCIE", "PCIe", "HBM", "SXM", "NVL", "MIG"];
        forms.iter().any(|form| word.starts_with(form)) || word == "Generation"
    };
    // `A100-SXM4-40GB` has type, form factor and memory in one word.
    let words = name.split([' ', '-']).filter(|word| !word.is_empty() && !maker.contains(word));
    let words = words.take_while(|word| !is_memory(word) && !is_form(word));
    let joined: String = words.flat_map(str::chars).filter(char::is_ascii_alphanumeric).collect();
    if joined.is_empty() { "GPU".to_owned() } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_names_become_types() {
        for (name, expected) in [
            ("NVIDIA H200", "H200"),
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA H100 PCIe", "H100"),
            ("NVIDIA H100 NVL", "H100"),
            ("NVIDIA GH200 480GB", "GH200"),
            ("NVIDIA B200", "B200"),
            ("NVIDIA A100-SXM4-40GB", "A100"),
            ("NVIDIA A100 80GB PCIe", "A100"),
            ("A100-PCIE-40GB", "A100"),
            ("NVIDIA L40S", "L40S"),
            ("NVIDIA L4", "L4"),
            ("Tesla V100-SXM2-16GB", "V100"),
            ("Tesla T4", "T4"),
            ("NVIDIA GeForce RTX 4090", "RTX4090"),
            ("NVIDIA RTX A6000", "RTXA6000"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX6000Ada"),
            ("NVIDIA", "GPU"),
            ("", "GPU"),
        ] {
            assert_eq!(type_of(name), expected, "{name}");
        }
    }

    #[test]
    fn gpus_can_be_simulated() {
        let gpus = Gpus::fake("H100:2:80", "n1").expect("well formed");
        let expected = |index| Gpu {
            uuid: format!("GPU-fake-n1-{index}"),
            gpu_type: "H100".into(),
            memory_gib: 80,
        };
        assert_eq!(gpus.list, [expected(0), expected(1)]);
        assert!(gpus.uses().is_empty());
        for wrong in
            ["", "H100", "H100:8", "H100:0:80", "H100:65:80", "H100:8:0", ":8:80", "a:1:1:1"]
        {
            let error = Gpus::fake(wrong, "n1").expect_err(wrong);
            assert!(error.to_string().contains("H100:8:80"), "{error}");
        }
    }

    #[test]
    fn an_agent_may_be_limited_to_some_devices() {
        assert!(is_visible(None, 3, "GPU-abc"));
        assert!(is_visible(Some("1, 3"), 3, "GPU-abc"));
        assert!(is_visible(Some("GPU-ab"), 3, "GPU-abc"));
        assert!(!is_visible(Some("1,2"), 3, "GPU-abc"));
        assert!(!is_visible(Some(""), 3, "GPU-abc"));
    }

    #[test]
    fn gpus_of_one_node_have_one_type() {
        let gpu =
            |gpu_type: &str| Gpu { uuid: "u".into(), gpu_type: gpu_type.into(), memory_gib: 80 };
        let node = |list| Gpus { list, source: GpuSource::Fake { utilization: None } }.checked();
        assert!(node(vec![gpu("H100"), gpu("H100")]).is_ok());
        let mixed = node(vec![gpu("H100"), gpu("A100")]).expect_err("not alike").to_string();
        assert!(mixed.contains("--gpu-type"), "{mixed}");
        assert!(matches!(node(vec![]), Err(GpuError::NoGpu)));
    }

    #[test]
    fn hidden_gpus_are_not_missing_ones() {
        let gpu = |index: u32| {
            let uuid = format!("GPU-{index}");
            (index, Gpu { uuid, gpu_type: "H100".into(), memory_gib: 80 })
        };
        let all = vec![gpu(0), gpu(1)];
        assert_eq!(only_visible(Some("1"), all.clone()).expect("one"), [gpu(1).1]);
        let hidden = only_visible(Some("MIG-7"), all).expect_err("none").to_string();
        assert!(hidden.contains("CUDA_VISIBLE_DEVICES=MIG-7"), "{hidden}");
        assert_eq!(only_visible(Some("MIG-7"), vec![]).expect("no GPU at all"), []);
    }

    #[test]
    fn without_a_driver_the_error_says_what_to_do() {
        // On a machine with GPUs there is no error.
        if let Err(error) = Gpus::discover(None, None) {
            assert!(error.to_string().contains("--fake-gpus"), "{error}");
        }
    }
}
