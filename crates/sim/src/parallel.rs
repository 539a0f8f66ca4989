//! Runs independent work on all cores.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work` on each item, on as many threads as there are cores. Returns the results in the
/// order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    *results[index].lock().expect("storing a result does not panic") = Some(result);
                }
            });
        }
    });
    let finished = |slot: Mutex<Option<R>>| {
        let slot = slot.into_inner().expect("storing a result does not panic");
        slot.expect("the scope ends when every item is done")
    };
    results.into_iter().map(finished).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        let squares: Vec<u64> = items.iter().map(|item| item * item).collect();
        assert_eq!(in_parallel(&items, |item| item * item), squares);
        assert!(in_parallel(&[] as &[u64], |item| *item).is_empty());
    }
}
