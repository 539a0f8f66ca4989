//! Batches and reports of usage whose parts belong to several shards.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use serde_json::Value;

use super::way::{Collection, Found, Parted, created, of_part, of_record};
use super::{ShardedHandlers, copied};
use crate::auth::Principal;
use crate::request::Failure;

/// The shard of each part of a request, for its handler; empty if all belong to the shard of the handler.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct HomesOfParts(Arc<[u16]>);

impl<S: Send + Sync> FromRequestParts<S> for HomesOfParts {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<HomesOfParts, Infallible> {
        Ok(parts.extensions.get::<HomesOfParts>().cloned().unwrap_or_default())
    }
}

impl HomesOfParts {
    /// Whether the parts belong to several shards.
    pub(in crate::http) fn are_several(&self) -> bool {
        !self.0.is_empty()
    }

    /// The shard of a part.
    pub(in crate::http) fn of(&self, place: usize) -> u16 {
        self.0.get(place).copied().unwrap_or(0)
    }

    /// The only shard of all parts, if they have one.
    fn only(&self) -> Option<u16> {
        let first = self.0.first()?;
        self.0.iter().all(|shard| shard == first).then_some(*first)
    }
}

impl ShardedHandlers {
    /// Runs a request with parts. The handler gets the shard of each.
    pub(super) async fn batch(
        &self,
        parts: &Parts,
        body: Bytes,
        parted: Parted,
    ) -> Result<Response, Failure> {
        let homes = match bursar_api::json::parse(&body) {
            Ok(read) => self.homes_of(parts, &read, parted).await?,
            // The handler says what is wrong with the body.
            Err(_) => Vec::new(),
        };
        let homes = HomesOfParts(homes.into());
        let only = homes.only();
        let shard = only.unwrap_or(0);
        let mut request = copied(parts, body.into());
        if only.is_none() {
            request.extensions_mut().insert(homes);
        }
        Ok(self.pass(shard, request).await.stamped())
    }

    async fn homes_of(
        &self,
        parts: &Parts,
        body: &Value,
        parted: Parted,
    ) -> Result<Vec<u16>, Failure> {
        let principal = parts.extensions.get::<Principal>();
        let field = match parted {
            Parted::Operations => "operations",
            Parted::UsageRecords => "records",
        };
        let all = body.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        // What earlier operations of the batch create need not be there yet.
        let mut promised: BTreeMap<(Collection, String), u16> = BTreeMap::new();
        let mut homes = Vec::with_capacity(all.len());
        for part in all {
            let found = match parted {
                Parted::Operations => of_part(part).unwrap_or(Found::Nothing),
                Parted::UsageRecords => of_record(part),
            };
            let home = match found {
                Found::Nothing => 0,
                Found::Tenant(tenant) => self.home(&tenant)?,
                Found::NewOrg(org) => self.place(principal, &org).await?,
                Found::Named(of, id) => match promised.get(&(of, id.clone())) {
                    Some(shard) => *shard,
                    None => self.only_one_with(of, &id).await?,
                },
            };
            if let (Parted::Operations, Some(thing)) = (parted, created(part)) {
                promised.insert(thing, home);
            }
            homes.push(home);
        }
        Ok(homes)
    }
}
