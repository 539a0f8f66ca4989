//! Lists, rankings and searches over all shards.

use std::cmp::Reverse;

use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{ShardAnswer, ShardedHandlers};
use crate::http::list::page_size;
use crate::http::respond::{POSITION, json as answer};
use crate::machines::ledgers::ledger_name;
use crate::request::Failure;

/// Where the list continues in one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Beginning,
    After(String),
    End,
}

/// The most pages without an entry that are read from one shard for one page over all shards.
const MAX_EMPTY: usize = 4;

/// The prefix of a cursor with a place for each shard.
const SHARDS: &str = "shards:";

/// Writes the places of all shards. Cursors have no comma.
fn write_places(places: &[Place]) -> String {
    let all: Vec<&str> = places
        .iter()
        .map(|place| match place {
            Place::Beginning => "^",
            Place::After(cursor) => cursor,
            Place::End => "$",
        })
        .collect();
    format!("{SHARDS}{}", all.join(","))
}

fn read_places(cursor: Option<&str>, count: usize) -> Result<Vec<Place>, Failure> {
    let Some(cursor) = cursor else { return Ok(vec![Place::Beginning; count]) };
    let wrong = || Failure::invalid("cursor", "pass the next_cursor of the page before");
    let places: Vec<Place> = cursor
        .strip_prefix(SHARDS)
        .ok_or_else(wrong)?
        .split(',')
        .map(|place| match place {
            "^" => Place::Beginning,
            "$" => Place::End,
            cursor => Place::After(cursor.to_owned()),
        })
        .collect();
    // A shard that was added meanwhile is shown from its beginning.
    let missing = count.checked_sub(places.len()).ok_or_else(wrong)?;
    Ok([places, vec![Place::Beginning; missing]].concat())
}

/// The parameters of a query except those with these names.
fn pairs(uri: &Uri) -> Vec<(String, String)> {
    form_urlencoded::parse(uri.query().unwrap_or("").as_bytes()).into_owned().collect()
}

fn with(uri: &Uri, pairs: &[(String, String)]) -> Result<Uri, Failure> {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let path = uri.path();
    Uri::try_from(format!("{path}?{query}"))
        .map_err(|error| Failure::invalid("query", error.to_string()))
}

/// The next entries of a list in one shard.
#[derive(Debug, Default)]
struct ShardPage {
    entries: Vec<Value>,
    /// Where the list continues after the entries.
    next: Option<String>,
}

impl ShardPage {
    fn of(page: &mut Value) -> ShardPage {
        let entries = page.get_mut("data").and_then(Value::as_array_mut).map(std::mem::take);
        let next = page.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
        ShardPage { entries: entries.unwrap_or_default(), next }
    }
}

/// The order of entries: by creation, newest first. Times have one form, so they sort as text.
fn made(entry: &Value) -> Reverse<&str> {
    let at = entry.get("created_at").or_else(|| entry.get("at"));
    Reverse(at.and_then(Value::as_str).unwrap_or(""))
}

/// The shard of each entry of a page of this size, in order. Of equals, that of the first shard comes first.
fn merged(parts: &[ShardPage], size: usize) -> Vec<usize> {
    let mut taken = vec![0; parts.len()];
    let mut order = Vec::new();
    while order.len() < size {
        // What follows the entries of a shard may be newer than the entries of another.
        let unknown = |(part, taken): (&ShardPage, &usize)| {
            part.entries.len() == *taken && part.next.is_some()
        };
        if parts.iter().zip(&taken).any(unknown) {
            break;
        }
        let fronts = parts.iter().zip(&taken).enumerate();
        let fronts =
            fronts.filter_map(|(shard, (part, taken))| Some((shard, part.entries.get(*taken)?)));
        let Some((next, _)) = fronts.min_by_key(|(shard, entry)| (made(entry), *shard)) else {
            break;
        };
        taken[next] += 1;
        order.push(next);
    }
    order
}

/// The value of a parameter that may come once.
fn only_value<'a>(pairs: &'a [(String, String)], name: &str) -> Result<Option<&'a str>, Failure> {
    let mut values = pairs.iter().filter(|(other, _)| other == name);
    let value = values.next().map(|(_, value)| value.as_str());
    match values.next() {
        Some(_) => Err(Failure::invalid(name.to_owned(), "appears twice")),
        None => Ok(value),
    }
}

/// The positions of all shards as one.
fn positions(parts: &[(u16, Option<u64>)]) -> Option<HeaderValue> {
    let known = parts.iter().filter_map(|(shard, position)| {
        position.map(|position| format!("{}:{position}", ledger_name(*shard)))
    });
    let text = known.collect::<Vec<String>>().join(",");
    HeaderValue::from_str(&text).ok().filter(|_| !text.is_empty())
}

impl ShardedHandlers {
    /// Entries of one shard from a place on, as the shard answers them.
    async fn page_from(
        &self,
        parts: &Parts,
        (shard, place): (u16, &Place),
        limit: usize,
    ) -> Result<Result<Value, Response>, Failure> {
        let mut pairs = pairs(&parts.uri);
        pairs.retain(|(name, _)| name != "limit" && name != "cursor");
        pairs.push(("limit".to_owned(), limit.to_string()));
        if let Place::After(cursor) = place {
            pairs.push(("cursor".to_owned(), cursor.clone()));
        }
        Ok(self.get(shard, parts, with(&parts.uri, &pairs)?).await.json().await)
    }

    /// A page of a list over all shards, newest first. Each shard goes on exactly after its entries of the page.
    pub(super) async fn list(&self, parts: &Parts) -> Result<Response, Failure> {
        let given = pairs(&parts.uri);
        let cursor = only_value(&given, "cursor")?;
        let limit = only_value(&given, "limit")?.map(str::parse::<u32>);
        let limit = limit.transpose().map_err(|_| Failure::invalid("limit", "must be a number"))?;
        let size = page_size(limit)?;
        let mut places = read_places(cursor, self.routers.len())?;
        let mut seen = Vec::new();
        let mut as_of = Value::Null;
        let mut found: Vec<ShardPage> = Vec::new();
        for (shard, place) in self.numbers().zip(&mut places) {
            let mut part = ShardPage::default();
            for _ in 0..MAX_EMPTY {
                if *place == Place::End {
                    break;
                }
                let mut page = match self.page_from(parts, (shard, place), size).await? {
                    Ok(page) => page,
                    Err(other) => return Ok(other),
                };
                seen.retain(|(other, _)| *other != shard);
                seen.push((shard, page.get("position").and_then(Value::as_u64)));
                if as_of.as_str() < page.get("as_of").and_then(Value::as_str) {
                    as_of = page.get("as_of").cloned().unwrap_or_default();
                }
                part = ShardPage::of(&mut page);
                if !part.entries.is_empty() {
                    break;
                }
                // A shard visits a bounded number of entries for a page, and these may all be filtered out.
                *place = part.next.clone().map_or(Place::End, Place::After);
            }
            found.push(part);
        }
        let order = merged(&found, size);
        for ((shard, place), part) in self.numbers().zip(&mut places).zip(&mut found) {
            let count = order.iter().filter(|other| **other == usize::from(shard)).count();
            if count == 0 {
                *part = ShardPage::default();
                continue;
            }
            if count < part.entries.len() {
                // Its shard says where the list goes on after only some of the entries.
                let mut page = match self.page_from(parts, (shard, place), count).await? {
                    Ok(page) => page,
                    Err(other) => return Ok(other),
                };
                *part = ShardPage::of(&mut page);
            }
            *place = part.next.take().map_or(Place::End, Place::After);
        }
        let order = merged(&found, usize::MAX);
        let mut entries: Vec<_> = found.into_iter().map(|part| part.entries.into_iter()).collect();
        let data: Vec<Value> =
            order.into_iter().filter_map(|shard| entries.get_mut(shard)?.next()).collect();
        let has_more = places.iter().any(|place| *place != Place::End);
        let mut list = Map::new();
        list.insert("data".to_owned(), data.into());
        list.insert("has_more".to_owned(), has_more.into());
        list.insert("next_cursor".to_owned(), json!(has_more.then(|| write_places(&places))));
        if !as_of.is_null() {
            list.insert("as_of".to_owned(), as_of);
        }
        Ok(at_positions(answer(StatusCode::OK, &list), &seen))
    }

    /// The answers of all shards, or the first answer that is not a success.
    async fn everywhere(&self, parts: &Parts) -> Result<Vec<(u16, Value)>, Response> {
        let mut all = Vec::new();
        for shard in self.numbers() {
            let part: ShardAnswer = self.get(shard, parts, parts.uri.clone()).await;
            all.push((shard, part.json().await?));
        }
        Ok(all)
    }

    /// A ranking over all shards, largest first.
    pub(super) async fn top(&self, parts: &Parts) -> Result<Response, Failure> {
        let all = match self.everywhere(parts).await {
            Ok(all) => all,
            Err(other) => return Ok(other),
        };
        let wanted = pairs(&parts.uri).into_iter().find(|(name, _)| name == "k");
        let size = wanted.and_then(|(_, size)| size.parse().ok()).unwrap_or(10);
        let seen = seen_in(&all);
        let mut first: Value = Value::Null;
        let mut data: Vec<Value> = Vec::new();
        for (_, mut ranking) in all {
            let entries = ranking.get_mut("data").map(Value::take).unwrap_or_default();
            data.extend(entries.as_array().cloned().unwrap_or_default());
            if first.get("as_of").and_then(Value::as_str)
                < ranking.get("as_of").and_then(Value::as_str)
            {
                first = ranking;
            }
        }
        let value = |entry: &Value| micros(entry.get("value"));
        // Stable: of equals those of the first shard.
        data.sort_by_key(|entry| Reverse(value(entry)));
        data.truncate(size);
        if let Some(ranking) = first.as_object_mut() {
            ranking.insert("data".to_owned(), data.into());
        }
        Ok(at_positions(answer(StatusCode::OK, &first), &seen))
    }

    /// A search over all shards. Hits in the directory are shown once.
    pub(super) async fn search(&self, parts: &Parts) -> Result<Response, Failure> {
        let all = match self.everywhere(parts).await {
            Ok(all) => all,
            Err(other) => return Ok(other),
        };
        let wanted = pairs(&parts.uri).into_iter().find(|(name, _)| name == "limit");
        let size = wanted.and_then(|(_, size)| size.parse().ok()).unwrap_or(25);
        let mut truncated = false;
        let mut data: Vec<Value> = Vec::new();
        for (shard, mut found) in all {
            truncated |= found.get("truncated").and_then(Value::as_bool).unwrap_or(false);
            let hits = found.get_mut("data").map(Value::take).unwrap_or_default();
            for mut hit in hits.as_array().cloned().unwrap_or_default() {
                let is_request = hit.get("kind").and_then(Value::as_str) == Some("request");
                if let Some(fields) = hit.as_object_mut().filter(|_| is_request) {
                    fields.entry("machine").or_insert_with(|| ledger_name(shard).into());
                }
                if !data.contains(&hit) {
                    data.push(hit);
                }
            }
        }
        let is_exact = |hit: &Value| hit.get("exact").and_then(Value::as_bool).unwrap_or(false);
        data.sort_by_key(|hit| !is_exact(hit));
        truncated |= data.len() > size;
        data.truncate(size);
        Ok(answer(StatusCode::OK, &json!({ "data": data, "truncated": truncated })))
    }
}

fn seen_in(all: &[(u16, Value)]) -> Vec<(u16, Option<u64>)> {
    let position = |value: &Value| value.get("position").and_then(Value::as_u64);
    all.iter().map(|(shard, value)| (*shard, position(value))).collect()
}

fn at_positions(mut response: Response, seen: &[(u16, Option<u64>)]) -> Response {
    if let Some(positions) = positions(seen) {
        response.headers_mut().insert(POSITION, positions);
    }
    response
}

/// A decimal number in millionths.
fn micros(value: Option<&Value>) -> i128 {
    let text = value.and_then(Value::as_str).unwrap_or("0");
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: i128 = format!("{part:0<6}").get(..6).and_then(|part| part.parse().ok()).unwrap_or(0);
    sign * (whole.parse::<i128>().unwrap_or(0) * 1_000_000 + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_has_a_place_for_each_shard() {
        let places = [Place::End, Place::Beginning, Place::After("0123".to_owned())];
        let cursor = write_places(&places);
        assert_eq!(read_places(Some(&cursor), 3).ok().as_deref(), Some(&places[..]));
        assert_eq!(read_places(None, 2).ok(), Some(vec![Place::Beginning; 2]));
        let added = read_places(Some(&cursor), 4).ok().and_then(|places| places.last().cloned());
        assert_eq!(added, Some(Place::Beginning));
        assert!(read_places(Some(&cursor), 2).is_err(), "shards do not vanish");
        assert!(read_places(Some("0123"), 3).is_err());
    }

    fn part(times: &[&str], next: Option<&str>) -> ShardPage {
        let entries = times.iter().map(|at| json!({ "created_at": at })).collect();
        ShardPage { entries, next: next.map(str::to_owned) }
    }

    #[test]
    fn the_newest_entry_comes_first_and_of_equals_that_of_the_first_shard() {
        let late = "2026-01-02T00:00:00.000Z";
        let early = part(&["2026-01-01T00:00:00.000Z"], None);
        let parts = [early, part(&[late], None), part(&[late], None)];
        assert_eq!(merged(&parts, 1), [1]);
        assert_eq!(merged(&parts, 9), [1, 2, 0]);
        assert!(merged(&[part(&[], None), part(&[], None)], 2).is_empty());
    }

    #[test]
    fn a_page_ends_before_entries_that_are_not_known() {
        let rest = || part(&["2026-01-03", "2026-01-01"], None);
        assert!(merged(&[rest(), part(&[], Some("0123"))], 9).is_empty());
        assert_eq!(merged(&[rest(), part(&["2026-01-02"], Some("0123"))], 9), [0, 1]);
    }

    #[test]
    fn amounts_are_compared_as_numbers() {
        let number = |text: &str| micros(Some(&json!(text)));
        assert!(number("10") > number("9.999999") && number("-1") < number("0"));
        assert_eq!(number("0.5"), 500_000);
    }
}
