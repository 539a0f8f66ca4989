//! The OpenAPI document: the descriptions of the handlers, completed with what all operations
//! share.

use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required,
    ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use crate::operations::{self, InBatch, Repeats};

const ABOUT: &str = "Credits for shared GPUs: grants that expire, holds that reserve, charges that \
    never overspend. Amounts are strings with at most six decimals; times are RFC 3339 in UTC. \
    Every POST, PUT, PATCH and DELETE takes an `Idempotency-Key`. Every error is \
    `application/problem+json` with a code from a closed list.";

const TAGS: [(&str, &str); 9] = [
    ("accounts", "The tree of accounts, what they have, and what limits them."),
    ("credits", "Grants, holds, charges, refunds and transfers."),
    ("prices", "What GPU time costs, and the classes it is sold in."),
    ("jobs", "Jobs, what they cost, and why they wait."),
    ("nodes", "Nodes, their agents, and the regions they are in."),
    ("keys", "API keys."),
    ("sessions", "Signing in: a cookie in place of a key."),
    ("audit", "What happened, with proofs."),
    ("operations", "Batches and the manual clock."),
];

/// How a session is used.
const COOKIE: &str = "The cookie that `POST /v1/session` sets (`bursar_session_PORT` on loopback without TLS). Requests \
    that change something also send the `csrf_token` of the session in `X-CSRF-Token`.";

/// The statuses of problems that every operation may return.
const PROBLEMS: [(&str, &str); 4] = [
    ("401", "No key, or one that is unknown, expired or revoked"),
    ("403", "The key does not allow this"),
    ("429", "Too many requests"),
    ("503", "Not available now, or the outcome is unknown"),
];

const BODY_PROBLEMS: [(&str, &str); 4] = [
    ("400", "The request or its JSON cannot be read"),
    ("409", "The id is taken, the key was reused, or it is not allowed in the current state"),
    ("413", "The body is too large"),
    ("415", "The body is not declared as JSON"),
];

/// The head of the OpenAPI document.
pub(super) fn head() -> OpenApi {
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("Bursar")
        .version("1")
        .description(Some(ABOUT))
        .license(Some(license));
    let tags =
        TAGS.map(|(name, about)| TagBuilder::new().name(name).description(Some(about)).build());
    OpenApiBuilder::new().info(info.build()).tags(Some(tags)).build()
}

/// Adds what all operations share.
pub(super) fn complete(mut description: OpenApi) -> OpenApi {
    let mut components = description.components.take().unwrap_or_default();
    let mut schemas = Vec::new();
    schemas.push((bursar_api::Problem::name().into_owned(), bursar_api::Problem::schema()));
    bursar_api::Problem::schemas(&mut schemas);
    components.schemas.extend(schemas);
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API key: `bur_…`"))
        .build();
    components.security_schemes.insert("key".to_owned(), RefOr::T(SecurityScheme::Http(bearer)));
    let cookie = ApiKeyValue::with_description("__Host-bursar_session", COOKIE);
    let cookie = SecurityScheme::ApiKey(ApiKey::Cookie(cookie));
    components.security_schemes.insert("session".to_owned(), RefOr::T(cookie));
    description.components = Some(components);
    let needs = |scheme: &str| SecurityRequirement::new(scheme, Vec::<String>::new());
    description.security = Some(vec![needs("key"), needs("session")]);
    for item in description.paths.paths.values_mut() {
        complete_item(item);
    }
    description
}

fn complete_item(item: &mut PathItem) {
    let reading = [&mut item.get];
    for operation in reading.into_iter().flatten() {
        complete_operation(operation, false);
    }
    let changing = [&mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
    for operation in changing.into_iter().flatten() {
        complete_operation(operation, true);
    }
}

fn complete_operation(operation: &mut Operation, changing: bool) {
    let id = operation.operation_id.clone().unwrap_or_default();
    let row = operations::Operation::with_id(&id).expect("every operation is in the table").row();
    let roles: Vec<serde_json::Value> =
        row.roles.list().map(|role| serde_json::to_value(role).expect("a plain name")).collect();
    let batch = row.batch == InBatch::Part;
    let extensions = ExtensionsBuilder::new()
        .add("x-roles", roles)
        .add("x-reach", row.reach.name())
        .add("x-batch", batch);
    operation.extensions = Some(extensions.build());
    let mut problems: Vec<(&str, &str)> = PROBLEMS.to_vec();
    problems.push(("404", "No such thing that this key can see"));
    problems.push(("422", "A field, parameter or header is not valid"));
    if changing {
        problems.extend(BODY_PROBLEMS);
        problems.push(("402", "Not enough credits, or a budget is exceeded"));
        let about = match row.repeats {
            Repeats::NoEffect => "Has no effect: nothing is stored under it",
            Repeats::Stored | Repeats::ByNature => {
                "Repeating a request with the same key has no further effect"
            }
        };
        add_header(operation, "Idempotency-Key", about);
    } else {
        problems.push(("409", "The id exists in several tenants: send Bursar-Tenant"));
        if !has_parameter(operation, "min_position") {
            add_min_position(operation);
        }
    }
    add_header(operation, "Bursar-Tenant", "The tenant of the ids");
    for (status, about) in problems {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let mut response =
            ResponseBuilder::new().description(about).content("application/problem+json", content);
        if matches!(status, "429" | "503") {
            let seconds = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer));
            let header = HeaderBuilder::new()
                .schema(Some(seconds))
                .description(Some("Seconds to wait before trying again"));
            response = response.header("Retry-After", header.build());
        }
        let responses = &mut operation.responses.responses;
        responses.entry(status.to_owned()).or_insert(RefOr::T(response.build()));
    }
}

fn has_parameter(operation: &Operation, name: &str) -> bool {
    let parameters = operation.parameters.as_deref().unwrap_or_default();
    parameters.iter().any(|parameter| match parameter {
        RefOr::T(parameter) => parameter.name == name,
        RefOr::Ref(_) => false,
    })
}

fn add_min_position(operation: &mut Operation) {
    let number = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer)).minimum(Some(0));
    let parameter = ParameterBuilder::new()
        .name("min_position")
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some("Wait until the ledger has reached this position"))
        .schema(Some(number));
    operation.parameters.get_or_insert_default().push(RefOr::T(parameter.build()));
}

fn add_header(operation: &mut Operation, name: &str, about: &str) {
    let text = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).pattern(Some(
        match name {
            "Idempotency-Key" => "^[!-~]{1,255}$",
            _ => "^[a-z0-9][a-z0-9._-]{0,62}$",
        },
    ));
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(about))
        .schema(Some(text));
    operation.parameters.get_or_insert_default().push(RefOr::T(parameter.build()));
}
