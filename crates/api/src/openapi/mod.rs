//! Builds the OpenAPI document: the routes, the schemas of bodies, and the rules that hold for all operations and all
//! schemas.

mod bodies;
pub(crate) mod closed;
mod contract;
mod errors;
mod frames;
mod headers;
mod operation;
mod operations;
pub(crate) mod params;
mod schemas;
pub(crate) mod spec;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use utoipa::{
    OpenApi,
    openapi::{
        RefOr, SecurityRequirement,
        security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme},
    },
};

use operations::SERVICE_TOKEN;

use crate::{
    error::{Problem, Violation},
    routes::definitions::view::{VersionPage, VersionView},
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Longhaul",
        description = "Runs LLM-agent executions to completion.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    tags(
        (name = "executions", description = "Requests to run a definition or an agent"),
        (name = "people", description = "Approvals and questions that executions wait for"),
        (name = "runs", description = "Programs outside, whose model calls are recorded and paid once"),
        (name = "sessions", description = "Conversations with an agent"),
        (name = "projects", description = "Goals, and plans of tasks that depend on each other"),
        (name = "schedules", description = "Executions that start at each tick of a schedule"),
        (name = "webhooks", description = "Addresses that are told of ends and of requests to people"),
        (name = "files", description = "Files for messages and inputs"),
        (name = "agents", description = "Models with their prompts, tools and limits, versioned"),
        (name = "definitions", description = "Types of executions, versioned"),
        (name = "skills", description = "Instructions that agents load on demand, versioned"),
        (name = "memory", description = "Episodes that agents remember"),
        (name = "indexes", description = "Documents that agents search"),
        (name = "limits", description = "Concurrency limits"),
        (name = "quarantine", description = "Executions that killed their workers"),
        (name = "worker protocol", description = "Workers in other languages, over HTTP"),
        (name = "wires", description = "The APIs of OpenAI and Anthropic, over agents, definitions and models"),
        (name = "agent executions", description = "The agent-execution contract"),
        (name = "keys", description = "API keys and accounts, and the log of what they changed"),
        (name = "operation", description = "The platform, model endpoints and the health of this process"),
    )
)]
struct Base;

const API_KEY: &str = "api_key";

/// The body of a request over a wire of another client, whose own documents describe it in full.
fn wire_body() -> Value {
    json!({
        "type": "object",
        "description": "A request as its wire describes it; docs/reference/wires.md says what is honoured.",
        "properties": {
            "model": {
                "type": "string",
                "description": "`agent:<key>`, `definition:<key>`, an alias, or `<provider>/<name>`",
            },
        },
        "additionalProperties": true,
    })
}

/// An error over a wire of another client: OpenAI's, or Anthropic's with `type` and `request_id`.
fn wire_error() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {
            "type": { "const": "error" },
            "request_id": { "type": "string" },
            "error": {
                "type": "object",
                "required": ["message", "type"],
                "properties": {
                    "message": { "type": "string" },
                    "type": { "type": "string" },
                    "param": { "type": ["string", "null"] },
                    "code": { "type": ["string", "null"] },
                },
            },
        },
    })
}

/// Completes the document of the routes. Schemas of answers come from utoipa, those of request bodies from schemars,
/// because they also validate (docs/design/api.md).
pub(crate) fn complete(mut document: utoipa::openapi::OpenApi) -> Value {
    let base = Base::openapi();
    document.info = base.info;
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.tags = base.tags;
    document.security = Some(vec![SecurityRequirement::new(API_KEY, Vec::<String>::new())]);
    let components = document.components.get_or_insert_default();
    schemas::add::<Problem>(components);
    schemas::add::<Violation>(components);
    schemas::add::<VersionView>(components);
    schemas::add::<VersionPage>(components);
    frames::add(components);
    components
        .security_schemes
        .insert(API_KEY.to_owned(), RefOr::T(SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer))));
    let token = ApiKey::Header(ApiKeyValue::with_description("X-Service-Token", "One of AGENT_ENGINE_SERVICE_TOKEN"));
    components.security_schemes.insert(SERVICE_TOKEN.to_owned(), RefOr::T(SecurityScheme::ApiKey(token)));
    let mut document = serde_json::to_value(document).unwrap_or_default();
    if let Some(known) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        frames::complete(known);
        known.values_mut().for_each(schemas::require_what_is_sent);
        schemas::type_versions(known);
        known.extend(bodies::requests());
        known.extend(bodies::answers());
        known.extend(contract::requests());
        known.insert("WireBody".into(), wire_body());
        known.insert(
            "WireAnswer".into(),
            json!({
                "type": "object",
                "description": "An answer as its wire describes it",
                "additionalProperties": true,
            }),
        );
        known.insert("WireError".into(), wire_error());
        known.insert("Bytes".into(), json!({ "type": "string", "format": "binary" }));
    }
    document["components"]["headers"] = headers::components();
    operations::complete(&mut document);
    schemas::complete(&mut document);
    document
}
