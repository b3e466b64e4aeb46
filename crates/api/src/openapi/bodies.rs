//! Schemas that schemars derives: of request bodies, of answers with types of other crates, and of the types that both
//! use.

use longhaul_contract::{ErrorBody, catalogue::PlatformSpec};
use longhaul_domain::{Offers, retrieval::RetrievedItem, schedule::ScheduleSpec};
use longhaul_sdk::{AgentSpec, DefinitionSpec, spec::SkillSpec};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::schemas;
use crate::routes::{
    contract::{
        answer::Envelope,
        internal::Executions,
        stream::{Complete, Delta, ErrorFrame, StatusView},
    },
    executions::{
        batch::BatchBody, budget::RaiseBody, fork::ForkBody, request::SubmitBody, retry::RetryBody, signal::SignalBody,
        tool_results::ToolResultsBody,
    },
    human_requests::{answer::AnswerBody, decide::DecisionBody},
    indexes::{documents::post::DocumentsBody, search::SearchBody},
    keys::{KeyBody, KeyRotationBody},
    limits::put::LimitBody,
    memory::{put::EpisodeBody, search::MemorySearchBody},
    projects::{
        control::{ApproveBody, CancelBody},
        create::ProjectBody,
        plan::PlanBody,
    },
    providers::ResetBody,
    quarantine::release::ReleaseBody,
    runs::{create::RunBody, end::RunEndBody},
    sessions::{chat::ChatBody, create::SessionBody, messages::MessageBody},
    webhooks::{RedeliverBody, RotateBody, WebhookBody},
    workers::remote::{
        children::{ChildrenBody, ChildrenWaitBody},
        claim::ClaimBody,
        ends::EndsBody,
        heartbeat::HeartbeatBody,
        register::RegisterBody,
        requests::AskBody,
        writes::WritesBody,
    },
};

/// Settings of schemas whose references lead to the document's components.
fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|all| all.definitions_path = "/components/schemas".into())
}

/// The schemas of the request bodies and of the types that they use, by name.
pub(super) fn requests() -> Map<String, Value> {
    let mut generator = settings().into_generator();
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
    generator.subschema_for::<RunBody>();
    generator.subschema_for::<SignalBody>();
    generator.subschema_for::<RegisterBody>();
    generator.subschema_for::<HeartbeatBody>();
    generator.subschema_for::<ClaimBody>();
    generator.subschema_for::<WritesBody>();
    generator.subschema_for::<EndsBody>();
    generator.subschema_for::<AskBody>();
    generator.subschema_for::<ChildrenBody>();
    generator.subschema_for::<ChildrenWaitBody>();
    generator.subschema_for::<RunEndBody>();
    generator.subschema_for::<SessionBody>();
    generator.subschema_for::<MessageBody>();
    generator.subschema_for::<ScheduleSpec>();
    generator.subschema_for::<WebhookBody>();
    generator.subschema_for::<RotateBody>();
    generator.subschema_for::<RedeliverBody>();
    generator.subschema_for::<KeyBody>();
    generator.subschema_for::<KeyRotationBody>();
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

/// The schemas of answers and frames, by name. They require what is always sent; the rest is left out, never null.
pub(super) fn answers() -> Map<String, Value> {
    let mut generator = settings().for_serialize().into_generator();
    generator.subschema_for::<Envelope>();
    generator.subschema_for::<Executions>();
    generator.subschema_for::<ErrorBody>();
    generator.subschema_for::<StatusView>();
    generator.subschema_for::<Delta>();
    generator.subschema_for::<Complete>();
    generator.subschema_for::<ErrorFrame>();
    generator.subschema_for::<RetrievedItem>();
    generator.subschema_for::<Offers>();
    let mut schemas = generator.take_definitions(true);
    schemas.values_mut().for_each(schemas::refuse_null_for_absent);
    schemas
}
