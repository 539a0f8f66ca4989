//! Batches and reports of usage whose parts belong to several shards.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use bursar_api::json::{convert, parse};
use serde_json::Value;

use super::route::{BodySubject, Collection, RequestParts, created, of_part, of_record};
use super::{ShardedHandlers, ambiguous, copied};
use crate::auth::Principal;
use crate::http::handlers::credits::{batch, usage};
use crate::request::Failure;

/// The shard of what a part names; `None` if nothing has that name.
type Home = Result<Option<u16>, Failure>;

/// A name of a part.
type NamedThing = (Collection, String);

/// The shard of each part of a request, for its handler; none if all belong to the shard of the handler.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct HomesOfParts {
    homes: Arc<[Home]>,
    is_counted: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for HomesOfParts {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<HomesOfParts, Infallible> {
        Ok(parts.extensions.get::<HomesOfParts>().cloned().unwrap_or_default())
    }
}

impl HomesOfParts {
    /// Whether the parts belong to several shards.
    pub(in crate::http) fn are_several(&self) -> bool {
        !self.homes.is_empty()
    }

    /// Whether the rate limits of the caller have counted the parts.
    pub(in crate::http) fn are_counted(&self) -> bool {
        self.is_counted
    }

    /// The shard of a part.
    pub(in crate::http) fn of(&self, place: usize) -> Result<u16, Failure> {
        let home = self.homes.get(place).cloned().unwrap_or(Ok(None))?;
        // What names nothing that is there is refused by each.
        Ok(home.unwrap_or(0))
    }

    /// The reason why the shard of a part is unknown.
    pub(in crate::http) fn failure(&self) -> Option<Failure> {
        self.homes.iter().find_map(|home| home.clone().err())
    }
}

/// The shard of all parts, if it is one. Parts that name nothing known run with the others.
fn only(homes: &[Home]) -> Option<u16> {
    let mut found = BTreeSet::new();
    for home in homes {
        found.extend(home.as_ref().ok()?);
    }
    (found.len() <= 1).then(|| found.first().copied().unwrap_or(0))
}

/// The shards of the ids of a request.
#[derive(Default)]
struct KnownIds {
    /// The shard of each id, looked up once.
    looked: BTreeMap<NamedThing, Result<Vec<u16>, Failure>>,
    /// The ids that earlier operations of the batch create. They may not exist yet.
    promised: BTreeMap<NamedThing, BTreeSet<u16>>,
}

impl ShardedHandlers {
    /// Runs a request with parts. The handler gets the shard of each.
    pub(super) async fn batch(
        &self,
        parts: &Parts,
        body: Bytes,
        parted: RequestParts,
    ) -> Result<Response, Failure> {
        let mut read = parse(&body)?;
        if parted == RequestParts::RehearsedRecords {
            read = read.get_mut("body").map(Value::take).unwrap_or_default();
        }
        // Before anything is looked up for it.
        if let Some(principal) = parts.extensions.get::<Principal>() {
            match parted {
                RequestParts::Operations => {
                    batch::admit(&self.app, principal, &convert(read.clone())?)?
                }
                RequestParts::UsageRecords | RequestParts::RehearsedRecords => {
                    usage::admit(&self.app, principal, &convert(read.clone())?)?;
                }
            }
        }
        let homes = self.homes_of(parts, &read, parted).await;
        let only = only(&homes);
        let homes = if only.is_some() { Vec::new() } else { homes };
        let homes = HomesOfParts { homes: homes.into(), is_counted: true };
        let mut request = copied(parts, body.into());
        request.extensions_mut().insert(homes);
        Ok(self.pass(only.unwrap_or(0), request).await.stamped())
    }

    async fn homes_of(&self, parts: &Parts, body: &Value, parted: RequestParts) -> Vec<Home> {
        let principal = parts.extensions.get::<Principal>();
        let field = match parted {
            RequestParts::Operations => "operations",
            RequestParts::UsageRecords | RequestParts::RehearsedRecords => "records",
        };
        let all = body.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut known = KnownIds::default();
        let mut homes = Vec::with_capacity(all.len());
        for part in all {
            let found = match parted {
                RequestParts::Operations => of_part(part).unwrap_or(BodySubject::Nothing),
                RequestParts::UsageRecords | RequestParts::RehearsedRecords => of_record(part),
            };
            let home = match found {
                BodySubject::Nothing => Ok(None),
                BodySubject::Tenant(tenant) => self.home(&tenant).map(Some),
                BodySubject::NewOrg(org) => match part.get("body") {
                    Some(body) if self.can_open(body) => {
                        self.place(principal, &org).await.map(Some)
                    }
                    Some(_) | None => Ok(None),
                },
                BodySubject::Named(of, id) => self.home_of(&mut known, (of, id)).await,
            };
            if let (RequestParts::Operations, Some(thing), Ok(Some(home))) =
                (parted, created(part), &home)
            {
                known.promised.entry(thing).or_default().insert(*home);
            }
            homes.push(home);
        }
        homes
    }

    /// The only shard that has a thing or will have it.
    async fn home_of(&self, known: &mut KnownIds, thing: NamedThing) -> Home {
        if !known.looked.contains_key(&thing) {
            let found = self.all_with(thing.0, &thing.1).await;
            known.looked.insert(thing.clone(), found);
        }
        let looked = known.looked.get(&thing).cloned().unwrap_or(Ok(Vec::new()))?;
        let promised = known.promised.get(&thing).into_iter().flatten().copied();
        let shards: BTreeSet<u16> = looked.into_iter().chain(promised).collect();
        if shards.len() > 1 {
            Err(ambiguous(thing.0, &thing.1))
        } else {
            Ok(shards.first().copied())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_a_home_go_with_the_others() {
        assert_eq!(only(&[Ok(None), Ok(Some(1)), Ok(Some(1))]), Some(1));
        assert_eq!(only(&[Ok(None)]), Some(0));
        assert_eq!(only(&[Ok(Some(0)), Ok(None), Ok(Some(1))]), None);
        assert_eq!(only(&[Ok(Some(1)), Err(ambiguous(Collection::Holds, "h"))]), None);
    }
}
