//! Measures how fast a cell decides, in a release build: `cargo bench -p bursar-sim --bench cell
//! [-- NODES]`. `bursar bench cell` measures the same and more.

use bursar_sim::speed::run;

fn main() {
    let nodes = std::env::args().filter_map(|argument| argument.parse().ok()).next();
    let sizes = nodes.map_or(vec![1000, 10_000], |nodes| vec![nodes]);
    for row in sizes.into_iter().flat_map(run) {
        println!("{row:?}");
    }
}
