//! The stored form of a whole cell, for snapshots.

use bursar_core::cell::config::CellConfig;
use bursar_core::cell::ids::GroupId;
use bursar_core::cell::image::{
    CellAccountImage, CellAside, CellQuota, ClassImage, DoneRequest, GroupImage, Image,
    MaintenanceWindow, ModelSlot, NamesImage, NodeImage, Request, ReservationImage, Timer,
};
use bursar_core::cell::nodes::node::RackId;
use bursar_core::cell::schedule::demand::{DemandImage, KindImage, MixImage};
use bursar_core::cell::schedule::shape::{LabelId, ModelId, Shape, ShapeId};
use smallvec::SmallVec;

use crate::record::body;
use crate::record::codec::FormatError;
use crate::record::codec::value::stored_number;
use crate::record::codec::wire::{Reader, Stored, Writer, stored_enum, stored_struct};
use crate::record::message::stored_small_list;

/// The version of the image that this build writes and reads. A snapshot of another version is
/// skipped: replaying the journal gives the same state, only slower.
pub const IMAGE_VERSION: u64 = 1;

stored_number!(ShapeId, LabelId, GroupId, RackId);

stored_small_list!(ModelId; 4, LabelId; 2);

stored_struct!(Image {
    0 now,
    1 config = CellConfig::default(),
    2 marks,
    3 sent,
    4 models,
    5 labels,
    6 racks,
    7 prices,
    8 shapes,
    9 requests,
    10 demand,
    11 decay,
    12 accounts,
    13 nodes,
    14 next_node,
    15 memory_of_models,
    16 groups,
    17 jobs,
    18 classes,
    19 reservations,
    20 hot,
    21 ready,
    22 mixed,
    23 maintenance,
    24 timers,
    25 idle,
    26 review_at = None,
    27 victims = 0,
    28 preempts = Vec::new(),
    29 scopes = Vec::new(),
    30 requests_done = Vec::new(),
    31 aside = Vec::new(),
    32 used_names = Vec::new(),
    33 generation = 0,
    34 left_drained = Vec::new(),
    35 removed_incarnations = Vec::new(),
    36 used_demands = Vec::new(),
});

stored_struct!(DoneRequest { 0 request, 1 at, 2 answer = None });

stored_struct!(Shape {
    0 gpu,
    1 models = SmallVec::new(),
    2 gpu_memory_mib = 0,
    3 cpu_milli = 0,
    4 memory_mib = 0,
    5 labels = SmallVec::new(),
    6 scopes = SmallVec::new(),
});

stored_struct!(Request { 0 shape, 1 nodes = 1, 2 occupancy, 3 guest = false });

stored_struct!(DemandImage { 0 counts, 1 news = 0, 2 mix });

stored_struct!(MixImage {
    0 version,
    1 kinds,
    2 without_gpu = 0,
    3 cpu_milli_per_gpu = 0,
    4 memory_mib_per_gpu = 0,
    5 restricted = Vec::new(),
});

stored_struct!(KindImage {
    0 gpu,
    1 cpu_milli = 0,
    2 models = Vec::new(),
    3 gpu_memory_mib = 0,
    4 weight,
});

stored_struct!(CellQuota {
    0 gpus = Vec::new(),
    1 total_gpus = None,
    2 running_jobs = None,
    3 waiting_jobs = None,
});

stored_struct!(CellAccountImage {
    0 path,
    1 weight = 1,
    2 frozen = false,
    3 quota = CellQuota::default(),
    4 usage,
    5 own_usage,
    6 blocked = Vec::new(),
});

stored_struct!(NodeImage {
    0 node,
    1 offer,
    2 incarnation,
    3 seq,
    4 lease_until,
    5 alive,
    6 drained = false,
    7 attempts = Vec::new(),
    8 kept_until = None,
});

stored_struct!(NamesImage { 0 owner, 1 models, 2 labels, 3 racks });

stored_struct!(GroupImage { 0 tenant, 1 name, 2 limit });

stored_struct!(ClassImage {
    0 class,
    1 parked = Vec::new(),
    2 woken = Vec::new(),
    3 since_aged = 0,
    4 unreserved = Vec::new(),
    5 review = false,
});

stored_enum!(ModelSlot {
    0 Any {};
    1 Model(model);
});

stored_struct!(ReservationImage {
    0 job,
    1 class,
    2 nodes,
    3 start_at,
    4 expires_at,
    5 slot = None,
    6 made_at,
    7 guests = false,
});

stored_struct!(MaintenanceWindow { 0 from, 1 to, 2 nodes, 3 began = false });

stored_enum!(CellAside {
    0 Message { 0 shard, 1 number };
    1 Timer { 0 at, 1 timer };
    2 Pass { 0 at };
});

stored_enum!(Timer {
    0 NodeLease(node);
    1 MaxRuntime(job);
    2 FundsNeeded(job);
    3 FundsEnd(job);
    4 Kill(job);
    5 KillTimeout(job);
    6 Release(job);
    7 Reservation(job);
    8 MaintenanceBegin(id);
    9 MaintenanceEnd(id);
    10 Review {};
    11 Requests {};
});

/// Encodes an image as `[version, image]`.
pub fn encode_image(image: &Image) -> Vec<u8> {
    body::encode_image(IMAGE_VERSION, image)
}

/// Decodes [`encode_image`].
pub fn decode_image(bytes: &[u8]) -> Result<Image, FormatError> {
    body::decode_image(IMAGE_VERSION, bytes)
}
