//! Prices and classes, which the directory keeps for all tenants.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bursar_api::amount::Sum;
use bursar_api::credits::price::{Price, PriceQuery, Prices, SetPrice};
use bursar_api::jobs::class::{Class, SetClass};
use bursar_api::json::convert;
use bursar_api::list::{List, Page};
use bursar_core::directory::{self, Command, Reply};
use bursar_core::ledger::Envelope;
use bursar_core::name::{ClassName, GpuModel, Region};
use serde_json::Value;

use crate::app::App;
use crate::change::{OLD_PLATFORM, PLATFORM, fingerprint, key_hash};
use crate::http::convert::{credits, instant, name, names};
use crate::http::extract::{Params, Path, Tree};
use crate::http::list::whole_list;
use crate::http::respond::{Answer, at_record, json};
use crate::machines::directory::DirectoryAnswer;
use crate::operations::Operation;
use crate::render::time;
use crate::request::{Caller, Failure};

/// The envelope of a directory command, with its idempotency key in this namespace.
pub(in crate::http) fn envelope(caller: &Caller, namespace: &str, body: &Value) -> Envelope {
    Envelope {
        actor: caller.principal.id.clone().into(),
        fingerprint: fingerprint(caller.method.as_str(), &caller.path, body),
        key: caller.idempotency_key.as_deref().map(|key| key_hash(namespace, key)),
        request: caller.request,
        ..Envelope::default()
    }
}

/// The envelope of a command without a tenant. An answer that an earlier release stored is returned
/// again.
pub(super) async fn platform_envelope(
    app: &App,
    caller: &Caller,
    body: &Value,
) -> Result<Envelope, Failure> {
    let old = envelope(caller, OLD_PLATFORM, body);
    let kept = app.directory.current().answered(&old);
    let is_same = kept.is_some_and(|kept| kept.map_or_else(|no| no.replayed, |yes| yes.replayed));
    if is_same && !app.has_tenant_platform().await? {
        return Ok(old);
    }
    Ok(envelope(caller, PLATFORM, body))
}

/// Marks an answer as a replay, or with the place of its record.
pub(in crate::http) fn mark(mut response: Response, answer: &DirectoryAnswer) -> Response {
    if answer.replayed {
        let value = axum::http::HeaderValue::from_static("true");
        response.headers_mut().insert("idempotent-replayed", value);
    }
    at_record(response, answer.position.map(|position| ("directory", position)))
}

/// Sets a price by adding a version.
#[utoipa::path(put, path = "/v1/prices/{gpu_type}", tag = "prices", operation_id = "set_price",
    params(("gpu_type" = String, Path, description = "The GPU type")), request_body = SetPrice,
    responses((status = 200, description = "The version that was added", body = Price)))]
pub(in crate::http) async fn set_price(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(gpu_type): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let set: SetPrice = convert(body.clone())?;
    caller.principal.require(Operation::SetPrice)?;
    let per_gpu_hour = credits(set.per_gpu_hour, "per_gpu_hour")?;
    let region = name(set.region, "region", Region::parse)?;
    let model = GpuModel::parse(gpu_type.as_str());
    let command = Command::SetPrice {
        gpu_type: model.map_err(|invalid| Failure::invalid("gpu_type", invalid.must))?,
        region: region.clone(),
        per_gpu_hour,
        effective_at: set.effective_at.map(instant),
    };
    let accepted = app
        .submit_to_directory(PLATFORM, platform_envelope(&app, &caller, &body).await?, command)
        .await?;
    app.send_prices().await?;
    app.prices_set.notify_one();
    let Reply::Price { version, effective_at } = accepted.reply else {
        unreachable!("a price is answered with its version")
    };
    let price = Price {
        gpu_type,
        region: region.map(|region| region.to_string()),
        per_gpu_hour: Sum::from_micros(per_gpu_hour.micros().into()),
        effective_at: time(effective_at),
        version,
    };
    Ok(mark(json(StatusCode::OK, &price), &accepted))
}

/// The prices in effect at an instant.
#[utoipa::path(get, path = "/v1/prices", tag = "prices", operation_id = "list_prices",
    params(PriceQuery),
    responses((status = 200, description = "One price per GPU type and region", body = Prices)))]
pub(in crate::http) async fn list_prices(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(query): Params<PriceQuery>,
) -> Answer {
    caller.principal.require(Operation::ListPrices)?;
    whole_list(query.limit, query.cursor.as_deref())?;
    let at = query.at.map_or_else(|| app.clock.now(), instant);
    let directory = app.directory.current();
    let data = directory.prices_at(at).into_iter().map(|current| Price {
        gpu_type: current.gpu_type.to_string(),
        region: current.region.map(|region| region.to_string()),
        per_gpu_hour: Sum::from_micros(current.price.per_gpu_hour.micros().into()),
        effective_at: time(current.price.effective_at),
        version: current.version,
    });
    let data = data.collect();
    let prices = Prices { data, has_more: false, next_cursor: None, as_of: time(at) };
    Ok(json(StatusCode::OK, &prices))
}

fn class(name: &ClassName, class: &directory::Class) -> Class {
    Class {
        name: name.to_string(),
        rank: class.rank,
        preempts: class.preempts.iter().map(ClassName::to_string).collect(),
        grace_seconds: class.grace_seconds,
        default_preemptible: class.default_preemptible,
        price_multiplier: Sum::from_thousandths(class.price_multiplier_milli),
    }
}

/// Sets or replaces a priority class.
#[utoipa::path(put, path = "/v1/classes/{name}", tag = "prices", operation_id = "set_class",
    params(("name" = String, Path, description = "The class's name")), request_body = SetClass,
    responses((status = 200, description = "The class as it is now", body = Class)))]
pub(in crate::http) async fn set_class(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(class_name): Path<String>,
    Tree(body): Tree,
) -> Answer {
    let set: SetClass = convert(body.clone())?;
    caller.principal.require(Operation::SetClass)?;
    let milli = set.price_multiplier.map_or(Some(1000), |multiplier| multiplier.thousandths());
    let milli = milli.and_then(|milli| u32::try_from(milli).ok());
    let reason = "must be between 0.001 and 1000, with at most three decimals";
    let preempts = match set.preempts {
        list if list.is_empty() => Vec::new(),
        list => names(Some(list), "preempts", ClassName::parse)?.unwrap_or_default(),
    };
    let stored = directory::Class {
        rank: set.rank,
        preempts,
        grace_seconds: set.grace_seconds,
        default_preemptible: set.default_preemptible,
        price_multiplier_milli: milli
            .ok_or_else(|| Failure::invalid("price_multiplier", reason))?,
    };
    let class_name = ClassName::unchecked(class_name);
    let command = Command::SetClass { name: class_name.clone(), class: Box::new(stored.clone()) };
    let accepted = app
        .submit_to_directory(PLATFORM, platform_envelope(&app, &caller, &body).await?, command)
        .await?;
    app.send_classes().await?;
    Ok(mark(json(StatusCode::OK, &class(&class_name, &stored)), &accepted))
}

/// All priority classes, by name.
#[utoipa::path(get, path = "/v1/classes", tag = "prices", operation_id = "list_classes",
    params(Page),
    responses((status = 200, description = "The classes", body = List<Class>)))]
pub(in crate::http) async fn list_classes(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(page): Params<Page>,
) -> Answer {
    caller.principal.require(Operation::ListClasses)?;
    whole_list(page.limit, page.cursor.as_deref())?;
    let directory = app.directory.current();
    let data: Vec<Class> = directory.classes().map(|(name, stored)| class(name, stored)).collect();
    Ok(json(StatusCode::OK, &whole(data)))
}

fn whole<T>(data: Vec<T>) -> List<T> {
    List { data, has_more: false, next_cursor: None, as_of: None, position: None }
}
