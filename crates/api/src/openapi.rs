//! Builds the OpenAPI document: the routes, plus the errors that they share.

use longhaul_contract::catalogue::PlatformSpec;
use longhaul_sdk::{AgentSpec, DefinitionSpec, FailureClass, spec::SkillSpec};
use longhaul_shared::domain::{ExecutionStatus, WaitReason, schedule::ScheduleSpec};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use utoipa::{
    OpenApi, PartialSchema, ToSchema,
    openapi::{
        Content, Ref, RefOr, Required, Response, Schema, SecurityRequirement,
        security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme},
    },
};

use crate::{
    error::{Problem, Violation},
    router,
    routes::{
        executions::{
            batch::BatchBody, budget::RaiseBody, fork::ForkBody, request::SubmitBody, retry::RetryBody,
            tool_results::ToolResultsBody,
        },
        human_requests::{answer::AnswerBody, decide::DecisionBody},
        indexes::{documents::post::DocumentsBody, search::SearchBody},
        limits::put::LimitBody,
        memory::{put::EpisodeBody, search::MemorySearchBody},
        projects::{
            control::{ApproveBody, CancelBody},
            create::ProjectBody,
            plan::PlanBody,
        },
        providers::ResetBody,
        quarantine::release::ReleaseBody,
        sessions::{chat::ChatBody, create::SessionBody, messages::MessageBody},
        webhooks::{RedeliverBody, RotateBody, WebhookBody},
    },
};

#[derive(OpenApi)]
#[openapi(info(
    title = "Longhaul",
    description = "Runs LLM-agent executions to completion.",
    license(name = "Apache-2.0")
))]
struct Base;

const SERVICE_TOKEN: &str = "service_token";

/// Errors that every `/v1` operation can return.
const SHARED: [(&str, &str, &str); 6] = [
    ("401", "unauthenticated", "No API key, or one that is unknown or revoked"),
    ("403", "missing_scope", "The key lacks a scope"),
    ("404", "not_found", "No such thing of this tenant"),
    ("422", "invalid_request", "The request is invalid; `errors` says where"),
    ("500", "internal_error", "Our fault"),
    ("503", "unavailable", "The database is away; try again after `Retry-After`"),
];
const WITH_BODY: [(&str, &str, &str); 4] = [
    ("400", "malformed_json", "The body is not JSON"),
    ("409", "idempotency_key_reused", "It conflicts with what is stored"),
    ("413", "payload_too_large", "The body is too large"),
    ("415", "unsupported_media_type", "The body is not `application/json`"),
];

/// The OpenAPI document. Schemas of answers come from utoipa, those of request bodies from schemars, because they also
/// validate (docs/adr/0043-one-type-per-request-body.md).
#[must_use]
pub fn openapi() -> Value {
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
    let token = ApiKey::Header(ApiKeyValue::with_description("X-Service-Token", "One of AGENT_ENGINE_SERVICE_TOKEN"));
    components.security_schemes.insert(SERVICE_TOKEN.to_owned(), RefOr::T(SecurityScheme::ApiKey(token)));
    for (schema, property, values) in closed_sets() {
        close(components.schemas.get_mut(schema), property, values);
    }
    document.security = Some(vec![SecurityRequirement::new("api_key", Vec::<String>::new())]);
    for (path, item) in &mut document.paths.paths {
        let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete];
        if path.starts_with("/v1/internal/") {
            for operation in operations.into_iter().flatten() {
                operation.security = Some(vec![SecurityRequirement::new(SERVICE_TOKEN, Vec::<String>::new())]);
            }
            continue;
        }
        // The contract has its own error shape, and its operations list their errors themselves.
        if !(path.starts_with("/v1/") || path.starts_with("/api/")) || path.starts_with("/v1/agent-executions") {
            continue;
        }
        for operation in operations.into_iter().flatten() {
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                body.required =
                    (!path.ends_with("/retry") && !path.ends_with("/release") && !path.ends_with("/cancel"))
                        .then_some(Required::True);
            }
            let own = if operation.request_body.is_some() { &WITH_BODY[..] } else { &[] };
            for (status, code, description) in SHARED.iter().chain(own) {
                let responses = &mut operation.responses.responses;
                responses.entry((*status).to_owned()).or_insert_with(|| problem(status, code, description));
            }
        }
    }
    let mut document = serde_json::to_value(document).unwrap_or_default();
    if let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        schemas.extend(bodies());
    }
    document
}

/// The schemas of the request bodies and of the types that they use, by name.
fn bodies() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|all| all.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    generator.subschema_for::<SubmitBody>();
    generator.subschema_for::<BatchBody<SubmitBody>>();
    generator.subschema_for::<ForkBody>();
    generator.subschema_for::<RetryBody>();
    generator.subschema_for::<RaiseBody>();
    generator.subschema_for::<DecisionBody>();
    generator.subschema_for::<AnswerBody>();
    generator.subschema_for::<ToolResultsBody>();
    generator.subschema_for::<LimitBody>();
    generator.subschema_for::<EpisodeBody>();
    generator.subschema_for::<MemorySearchBody>();
    generator.subschema_for::<ReleaseBody>();
    generator.subschema_for::<ProjectBody>();
    generator.subschema_for::<PlanBody>();
    generator.subschema_for::<ApproveBody>();
    generator.subschema_for::<CancelBody>();
    generator.subschema_for::<SessionBody>();
    generator.subschema_for::<MessageBody>();
    generator.subschema_for::<ScheduleSpec>();
    generator.subschema_for::<WebhookBody>();
    generator.subschema_for::<RotateBody>();
    generator.subschema_for::<RedeliverBody>();
    generator.subschema_for::<ChatBody>();
    generator.subschema_for::<ResetBody>();
    generator.subschema_for::<SearchBody>();
    generator.subschema_for::<DocumentsBody>();
    generator.subschema_for::<DefinitionSpec>();
    generator.subschema_for::<AgentSpec>();
    generator.subschema_for::<SkillSpec>();
    generator.subschema_for::<PlatformSpec>();
    generator.take_definitions(true)
}

/// String properties with a closed set of values, as (schema, property, values).
fn closed_sets() -> [(&'static str, &'static str, Vec<Value>); 3] {
    let statuses = ExecutionStatus::ALL.iter().map(|status| status.as_str().into()).collect();
    let reasons = WaitReason::ALL.iter().map(|reason| reason.as_str().into()).chain([Value::Null]).collect();
    let classes = FailureClass::ALL.iter().map(|class| class.as_str().into()).chain([Value::Null]).collect();
    [("Execution", "status", statuses), ("Execution", "wait_reason", reasons), ("FailureView", "class", classes)]
}

fn close(schema: Option<&mut RefOr<Schema>>, property: &str, values: Vec<Value>) {
    if let Some(RefOr::T(Schema::Object(object))) = schema
        && let Some(RefOr::T(Schema::Object(text))) = object.properties.get_mut(property)
    {
        text.enum_values = Some(values);
    }
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
    use std::collections::BTreeSet;

    use serde_json::json;

    #[test]
    fn operation_ids_are_unique() {
        let document = super::openapi();
        let items = document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
        let ids: Vec<&str> = items.map(|operation| operation["operationId"].as_str().unwrap()).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        assert!(ids.contains(&"getExecution") && ids.contains(&"listExecutions"), "{ids:?}");
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let document = super::openapi();
        let text = document.to_string();
        let references = text.split(r##""$ref":"#"##).skip(1).filter_map(|rest| rest.split('"').next());
        let lost: Vec<&str> = references.filter(|reference| document.pointer(reference).is_none()).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[test]
    fn schemas_and_security_match_the_routes() {
        let document = super::openapi();
        let schemas = &document["components"]["schemas"];
        for (schema, property) in
            [("Execution", "output"), ("Execution", "input"), ("Question", "answer"), ("AnswerBody", "answer")]
        {
            let any = &schemas[schema]["properties"][property];
            assert!(any["type"].is_null() && any["oneOf"].is_null(), "{schema}.{property}: {any}");
        }
        assert_eq!(
            schemas["Execution"]["properties"]["status"]["enum"],
            json!(["PENDING", "IN_PROGRESS", "FINISHED", "FAILED"])
        );
        assert!(schemas["Execution"]["properties"]["wait_reason"]["enum"].as_array().unwrap().contains(&json!(null)));
        let internal = &document["paths"]["/v1/internal/agent-executions"];
        assert_eq!(internal["post"]["security"], json!([{"service_token": []}]));
        assert!(internal["get"]["responses"]["400"].is_object());
    }

    #[test]
    fn every_versioned_operation_states_its_errors() {
        let document = super::openapi();
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
