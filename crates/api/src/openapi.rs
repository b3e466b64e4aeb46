//! The OpenAPI document: what the routes say, and the errors that all of them share.

use serde_json::json;
use utoipa::{
    OpenApi, PartialSchema, ToSchema,
    openapi::{
        Content, OpenApi as Document, Ref, RefOr, Response, SecurityRequirement,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use crate::{
    error::{Problem, Violation},
    router,
};

#[derive(OpenApi)]
#[openapi(info(
    title = "Longhaul",
    description = "Runs LLM-agent executions to completion.",
    license(name = "Apache-2.0")
))]
struct Base;

/// Errors that every `/v1` operation can answer.
const SHARED: [(&str, &str, &str); 6] = [
    ("401", "unauthenticated", "No API key, or one that is unknown or revoked"),
    ("403", "missing_scope", "The key lacks a scope"),
    ("404", "not_found", "No such thing of this tenant"),
    ("422", "invalid_request", "The request is invalid; `errors` says where"),
    ("500", "internal_error", "Our fault"),
    ("503", "unavailable", "The database is away; try again after `Retry-After`"),
];
/// Errors of operations with a body.
const WITH_BODY: [(&str, &str, &str); 4] = [
    ("400", "malformed_json", "The body is not JSON"),
    ("409", "idempotency_key_reused", "It conflicts with what is stored"),
    ("413", "payload_too_large", "The body is too large"),
    ("415", "unsupported_media_type", "The body is not `application/json`"),
];

/// The document of this build.
#[must_use]
pub fn openapi() -> Document {
    let mut document = router::described().into_openapi();
    let base = Base::openapi();
    document.info = base.info;
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let components = document.components.get_or_insert_default();
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    components.schemas.insert(Violation::name().into_owned(), Violation::schema());
    components
        .security_schemes
        .insert("api_key".to_owned(), RefOr::T(SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer))));
    document.security = Some(vec![SecurityRequirement::new("api_key", Vec::<String>::new())]);
    for (path, item) in &mut document.paths.paths {
        // The contract has a shape of its own for errors, and its operations list theirs.
        if !path.starts_with("/v1/") || path.starts_with("/v1/internal/") || path.starts_with("/v1/agent-executions") {
            continue;
        }
        let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            let own = if operation.request_body.is_some() { &WITH_BODY[..] } else { &[] };
            for (status, code, description) in SHARED.iter().chain(own) {
                let responses = &mut operation.responses.responses;
                responses.entry((*status).to_owned()).or_insert_with(|| problem(status, code, description));
            }
        }
    }
    document
}

fn problem(status: &str, code: &str, description: &str) -> RefOr<Response> {
    let mut content = Content::new(Some(Ref::from_schema_name(Problem::name())));
    content.example = Some(json!({
        "type": format!("urn:longhaul:error:{code}"),
        "title": description,
        "status": status.parse::<u16>().unwrap_or_default(),
        "code": code,
        "detail": description,
    }));
    let mut response = Response::new(description);
    response.content.insert("application/problem+json".to_owned(), content.into());
    RefOr::T(response)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_versioned_operation_states_its_errors() {
        let document = serde_json::to_value(super::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let versioned = paths.iter().filter(|(path, _)| path.starts_with("/v1/"));
        let operations = versioned.flat_map(|(path, item)| item.as_object().unwrap().iter().map(move |of| (path, of)));
        let silent: Vec<_> =
            operations.filter(|(_, (_, operation))| !operation["responses"]["401"].is_object()).collect();
        assert!(silent.is_empty(), "{silent:?}");
        assert!(document["paths"]["/v1/executions"]["post"]["responses"]["413"].is_object());
        assert!(document["paths"]["/v1/executions/{id}"]["get"]["responses"]["401"].is_object());
    }
}
