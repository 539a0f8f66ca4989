//! The SQLite journal and the archive on a disk that fails: power loss, bit rot, errors and a full disk.
//!
//! The test runs itself again as a child under `strace`, which records every write and sync or
//! makes some of them fail. From the record, the test makes images of the disk as a power loss
//! could leave it.

mod archive;
mod child;
mod failures;
mod flips;
mod images;
mod record;
#[path = "../support/mod.rs"]
mod support;

use child::Compaction;

/// Appends of a recorded run.
const APPENDS: u64 = 120;
/// Decides which unsynced writes survive. Printed, so that a failure can be reproduced.
const SEED: u64 = 20_261_115;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, directory, sync, compaction, appends] = &arguments[..]
        && mode == child::MODE
    {
        return child::run(directory, sync, compaction, appends);
    }
    println!("seed {SEED}");
    for compaction in [Compaction::Between, Compaction::Meanwhile, Compaction::Sealing] {
        let (lost, images) = images::power_loss("full", compaction, SEED, 3_000);
        println!(
            "power loss, tail moved {}: {images} images, {lost} lost batches",
            compaction.name()
        );
        assert!(images >= 1_000);
        assert_eq!(lost, 0, "an acknowledged batch was lost");
    }

    let (lost, images) = images::power_loss("full", Compaction::Archiving, SEED, 1_500);
    println!("power loss, archive: {images} images, {lost} lost steps");
    assert!(images >= 500);
    assert_eq!(lost, 0, "an acknowledged step was lost");

    let (lost, images) = images::power_loss("normal", Compaction::Between, SEED, 600);
    println!("power loss, synchronous=NORMAL (control): {images} images, {lost} with lost batches");
    assert!(lost > images / 20, "the test does not notice lost batches");

    let flips = flips::bit_flips(SEED, 3_000);
    println!("bit flips in the file: {flips}");
    println!("bit flips in the log: {}", flips::log_flips(SEED, 2_000));
    println!("bit flips in the tail: {}", flips::tail_flips(SEED, 2_000));

    println!("failed syncs: {}", failures::every_failed_sync_stops_the_journal());
    println!("failed writes: {}", failures::every_failed_write_stops_the_journal());
    println!("failures while the tail is moved: {}", failures::moving_the_log_fails());
    println!("full disk: {}", failures::a_full_disk_is_survived());
    println!("failures while sealing: {}", failures::sealing_fails());
    println!("full disk while sealing: {}", failures::a_full_disk_while_sealing_is_survived());
}
