//! Sparse functions of time: what is held, or has changed, at single instants.

/// An amount attached to an instant.
pub(super) type Point = (i64, i128);

/// The pointwise sum of two functions, each sorted by instant; zeros are left out.
pub(super) fn sum(left: &[Point], right: &[Point]) -> Vec<Point> {
    combine(left, right, 1)
}

/// The pointwise difference `left - right`, under the same conditions as [`sum`].
pub(super) fn difference(left: &[Point], right: &[Point]) -> Vec<Point> {
    combine(left, right, -1)
}

/// The part of a function at `instant` and later.
pub(super) fn since(points: &[Point], instant: i64) -> &[Point] {
    &points[points.partition_point(|point| point.0 < instant)..]
}

/// The integral of a function over all instants.
pub(super) fn total(points: &[Point]) -> i128 {
    points.iter().map(|point| point.1).sum()
}

fn combine(left: &[Point], right: &[Point], sign: i128) -> Vec<Point> {
    let mut result = Vec::with_capacity(left.len() + right.len());
    let (mut i, mut j) = (0, 0);
    while i < left.len() || j < right.len() {
        let next_left = left.get(i).map(|point| point.0);
        let next_right = right.get(j).map(|point| point.0);
        let (instant, mut amount) = match (next_left, next_right) {
            (Some(a), Some(b)) if b < a => (b, 0),
            (Some(a), _) => (a, left[i].1),
            (None, Some(b)) => (b, 0),
            (None, None) => break,
        };
        if next_left == Some(instant) {
            i += 1;
        }
        if next_right == Some(instant) {
            amount += sign * right[j].1;
            j += 1;
        }
        if amount != 0 {
            result.push((instant, amount));
        }
    }
    result
}
