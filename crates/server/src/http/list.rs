//! Pages of lists, collected in bounded steps so that no command waits long.

use bursar_api::list::List;
use bursar_core::ledger::Ledger;
use bursar_core::name::is_valid_name;
use bursar_history::{Cursor, HistoryError};

use crate::app::App;
use crate::ids::base32;
use crate::render::time;
use crate::request::Failure;

/// The most entries that one read of the ledger visits. A read may render each of them.
const MAX_VISITED: usize = 2_000;

/// The result of one step: entries with their places, newest first, and the place to continue from.
pub(super) struct PageStep<T> {
    found: Vec<(u128, T)>,
    next: Option<u128>,
}

impl<T> PageStep<T> {
    /// Visits the first places and collects the entries that `show` returns, at most `wanted` of
    /// them.
    pub(super) fn over(
        wanted: usize,
        places: impl Iterator<Item = u128>,
        mut show: impl FnMut(u128) -> Option<T>,
    ) -> PageStep<T> {
        let mut step = PageStep { found: Vec::new(), next: None };
        let mut last = None;
        for (examined, place) in places.enumerate() {
            if examined == MAX_VISITED || step.found.len() == wanted {
                step.next = last;
                break;
            }
            last = Some(place);
            step.found.extend(show(place).map(|thing| (place, thing)));
        }
        step
    }
}

/// The number of entries of a page.
pub(super) fn page_size(limit: Option<u32>) -> Result<usize, Failure> {
    match limit.unwrap_or(25) {
        limit @ 1..=100 => Ok(limit as usize),
        _ => Err(Failure::invalid("limit", "must be between 1 and 100")),
    }
}

/// Checks the page parameters of a list that always has a single page. No cursor is valid.
pub(super) fn whole_list(limit: Option<u32>, cursor: Option<&str>) -> Result<(), Failure> {
    page_size(limit)?;
    match cursor {
        Some(_) => Err(Failure::invalid("cursor", "this list has one page and no cursor")),
        None => Ok(()),
    }
}

/// Encodes a place as an opaque cursor.
pub(super) fn write_cursor(place: u128) -> String {
    base32(place, 26)
}

/// Decodes a cursor.
pub(super) fn read_cursor(cursor: Option<&str>) -> Result<Option<u128>, Failure> {
    let Some(cursor) = cursor else { return Ok(None) };
    let wrong = || Failure::invalid("cursor", "pass the next_cursor of the page before");
    let mut place: u128 = 0;
    for byte in cursor.bytes() {
        let digit = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ".iter().position(|b| *b == byte);
        let digit = digit.and_then(|digit| u128::try_from(digit).ok()).ok_or_else(wrong)?;
        place = place.checked_mul(32).and_then(|p| p.checked_add(digit)).ok_or_else(wrong)?;
    }
    if cursor.len() == 26 { Ok(Some(place)) } else { Err(wrong()) }
}

/// Decodes a cursor of a list that history answers.
pub(super) fn past_cursor(cursor: Option<&str>) -> Result<Option<Cursor>, Failure> {
    let wrong =
        |_: HistoryError| Failure::invalid("cursor", "pass the next_cursor of the page before");
    cursor.map(|cursor| cursor.parse().map_err(wrong)).transpose()
}

/// The prefix of a cursor that continues after a name.
const AFTER: &str = "after:";

/// The cursor after a name, in a list ordered by name.
pub(super) fn write_after(name: &str) -> String {
    format!("{AFTER}{name}")
}

/// The name after which to continue; empty, which is before all names, without a cursor.
pub(super) fn read_after(cursor: Option<&str>) -> Result<&str, Failure> {
    let Some(cursor) = cursor else { return Ok("") };
    let name = cursor.strip_prefix(AFTER).filter(|name| is_valid_name(name));
    name.ok_or_else(|| Failure::invalid("cursor", "pass the next_cursor of the page before"))
}

/// Collects one page. `look` receives the place before which to begin and the number of entries
/// that are still needed, and returns one step.
pub(super) async fn walk<T: Send + 'static>(
    app: &App,
    size: usize,
    cursor: Option<String>,
    look: impl Fn(&Ledger, u128, usize) -> PageStep<T> + Clone + Send + 'static,
) -> Result<List<T>, Failure> {
    let mut before = read_cursor(cursor.as_deref())?.unwrap_or(u128::MAX);
    let mut found = Vec::new();
    loop {
        let look = look.clone();
        // One more than the page shows that there is a next page.
        let wanted = size + 1 - found.len();
        let seen = app.read(move |ledger| look(ledger, before, wanted)).await?;
        found.extend(seen.value.found);
        let next = seen.value.next.filter(|_| found.len() <= size);
        let Some(next) = next else {
            let (as_of, position) = (Some(time(seen.at)), Some(seen.position));
            return Ok(List { as_of, position, ..page(found, size) });
        };
        before = next;
    }
}

/// The first entries that were found, and the cursor to continue from.
pub(super) fn page<T>(mut found: Vec<(u128, T)>, size: usize) -> List<T> {
    let has_more = found.len() > size;
    found.truncate(size);
    let last = found.last().map(|(place, _)| *place);
    let next_cursor = last.filter(|_| has_more).map(write_cursor);
    let data = found.into_iter().map(|(_, thing)| thing).collect();
    List { data, has_more, next_cursor, as_of: None, position: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_a_forged_one_is_refused() {
        for place in [0, 1, u128::from(u64::MAX), u128::MAX >> 3] {
            let read = read_cursor(Some(&write_cursor(place))).expect("it was written here");
            assert_eq!(read, Some(place));
        }
        for cursor in ["", "x", "0", "ZZZZZZZZZZZZZZZZZZZZZZZZZZZ", "é"] {
            assert!(read_cursor(Some(cursor)).is_err(), "{cursor}");
        }
    }

    #[test]
    fn a_step_renders_no_more_entries_than_are_wanted() {
        let mut rendered = 0;
        let mut show = |place: u128| {
            rendered += 1;
            place.is_multiple_of(2).then_some(place)
        };
        let step = PageStep::over(2, (0..1_000_000).rev(), &mut show);
        let found: Vec<u128> = step.found.into_iter().map(|(place, _)| place).collect();
        assert_eq!((found, step.next), (vec![999_998, 999_996], Some(999_996)));
        let step = PageStep::over(2, (0..1_000_000).rev(), |_| None::<u128>);
        assert_eq!(
            step.next,
            Some(1_000_000 - MAX_VISITED as u128),
            "a step without entries is bounded"
        );
        assert_eq!(rendered, 4);
    }

    #[test]
    fn a_page_ends_where_the_next_one_begins() {
        let found = || vec![(9u128, 'a'), (7, 'b'), (3, 'c')];
        let first = page(found(), 2);
        assert_eq!((first.data, first.has_more), (vec!['a', 'b'], true));
        assert_eq!(read_cursor(first.next_cursor.as_deref()).expect("written here"), Some(7));
        let whole = page(found(), 3);
        assert_eq!((whole.has_more, whole.next_cursor), (false, None));
    }
}
