//! Credits that expire, spent first-expiring-first-out, with exact provenance. No dependencies.
//!
//! Four levels, each usable alone:
//!
//! * [`Pool`] is the complete structure for one owner: add packs, consume, read the balance, give
//!   back. Time moves forward.
//! * [`Timeline`] takes the same operations in any order of time.
//! * [`Line`] is one bucket of a pool: packs of equal rank laid end to end on a line of units, so
//!   that a million small packs cost few interval operations.
//! * [`SmallMap`] is the ordered map they are made of: inline while it has very few entries,
//!   a sorted vector while it is small, a B-tree beyond.
//!
//! # Why entries cannot go stale
//!
//! The usual heap of packs has two traps: entries whose pack is already spent or expired (*stale
//! entries*), and entries whose rank changed after they were pushed (*mutable priorities*). Neither
//! can occur here. There is no heap and no second copy of a pack's state. A pack **is** an interval
//! of its line, the runs of the line store the state of every unit, and the set of free spans is
//! updated in the same call that retags a run. The rank of a line is the key under which it is
//! stored. It never changes, because a pack with another rank lies on another line. A line without
//! a free unit is not in the index that draws walk; it returns to the index when one of its units
//! becomes free.
//!
//! ```
//! use fefo::Pool;
//!
//! let mut pool = Pool::new();
//! let late = pool.add_credits(30, 200).unwrap();
//! let soon = pool.add_credits(10, 100).unwrap();
//! assert_eq!(pool.get_balance(100), 40, "a pack is valid at its expiry instant");
//!
//! let mut draw = pool.consume_credits(15, 50).unwrap();
//! assert_eq!(pool.lots(&draw), vec![(soon, 10), (late, 5)]);
//!
//! // Returned credits go to the packs that they came from, last drawn first.
//! assert_eq!(pool.give_back(&mut draw, 7, 60).returned, 7);
//! assert_eq!(pool.lots(&draw), vec![(soon, 8)]);
//! assert_eq!(pool.get_balance(101), 30, "the two units of the soon pack have expired");
//! ```

#![warn(missing_docs)]

mod line;
mod orderly;
mod pool;
mod runs;
mod small_map;
pub mod timeline;

pub use line::{Line, LineFull, Part, Span};
pub use pool::{AddError, Draw, GivenBack, PackId, Pool, Shortage};
pub use small_map::SmallMap;
pub use timeline::Timeline;
