//! Ids that resemble a mistyped one.

use bursar_client::api::system::search::{HitType, SearchQuery};
use bursar_client::api::{Code, Problem};
use bursar_client::system::search;
use bursar_client::{Call, Client, ClientError};
use serde::Deserialize;

/// The most proposals.
const MAX_PROPOSED: usize = 3;

/// An object of a list, of which only the id is read.
#[derive(Deserialize)]
struct Named {
    id: String,
}

#[derive(Deserialize)]
struct Names {
    data: Vec<Named>,
}

/// Ids of existing things that resemble the one which a problem says does not exist.
pub(super) async fn similar(client: &Client, error: &ClientError) -> Vec<String> {
    let Some((what, id)) = error.problem().and_then(missing) else { return Vec::new() };
    let known = match what {
        "account" => found(client, HitType::Account, id).await,
        "job" => found(client, HitType::Job, id).await,
        "hold" => found(client, HitType::Hold, id).await,
        "charge" => found(client, HitType::Charge, id).await,
        "grant" => listed(client, "/v1/grants?limit=100").await,
        "node" => listed(client, "/v1/nodes?limit=100").await,
        "key" => listed(client, "/v1/keys?limit=100").await,
        "region" => listed(client, "/v1/regions").await,
        _ => Vec::new(),
    };
    closest(id, known)
}

/// What a problem says does not exist: its kind and its id.
fn missing(problem: &Problem) -> Option<(&str, &str)> {
    if problem.code != Code::NotFound {
        return None;
    }
    let rest = problem.detail.strip_prefix("there is no ")?;
    let (what, rest) = rest.split_once(" `")?;
    let (id, _) = rest.split_once('`')?;
    Some((what, id))
}

/// Things whose ids begin as the first half of an id, or else as its first character.
async fn found(client: &Client, kind: HitType, id: &str) -> Vec<String> {
    let half = id.chars().count().div_ceil(2);
    for length in [half, 1] {
        let query = SearchQuery { q: id.chars().take(length).collect(), limit: Some(100) };
        let Ok(found) = client.send(search::search(&query)).await else { return Vec::new() };
        let hits = found.value.data.into_iter().filter(|hit| hit.kind == kind);
        let ids: Vec<String> = hits.map(|hit| hit.id).collect();
        if !closest(id, ids.clone()).is_empty() {
            return ids;
        }
    }
    Vec::new()
}

async fn listed(client: &Client, target: &str) -> Vec<String> {
    let call: Call<Names> = Call::from_target(bursar_client::Method::Get, target);
    let Ok(list) = client.send(call).await else { return Vec::new() };
    list.value.data.into_iter().map(|named| named.id).collect()
}

/// The ids that differ in few characters, the most similar first.
fn closest(id: &str, known: Vec<String>) -> Vec<String> {
    let most = (id.chars().count() / 3).clamp(1, 3);
    let distance = |other: &String| strsim::osa_distance(&id.to_lowercase(), &other.to_lowercase());
    let mut near: Vec<(usize, String)> =
        known.into_iter().map(|other| (distance(&other), other)).collect();
    near.retain(|(distance, _)| *distance <= most);
    near.sort();
    near.dedup();
    near.into_iter().take(MAX_PROPOSED).map(|(_, other)| other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(id: &str, known: &[&str]) -> Vec<String> {
        closest(id, known.iter().map(|id| (*id).to_owned()).collect())
    }

    #[test]
    fn ids_that_differ_in_few_characters_are_proposed() {
        let known = ["train-1", "train-2", "evaluate", "Train-1"];
        assert_eq!(of("trian-1", &known), ["Train-1", "train-1", "train-2"]);
        assert_eq!(of("acme:npl", &["acme:nlp", "acme", "umbra"]), ["acme:nlp"]);
        assert_eq!(of("n9", &["n1", "node-9"]), ["n1"]);
        assert_eq!(of("x", &["evaluate"]), [""; 0]);
    }
}
