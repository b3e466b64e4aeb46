//! `POST /v1/responses/compact`: the summary of a conversation, as an item that stands for it in later requests.

use axum::{Json, body::Body, extract::State, http::HeaderMap};
use longhaul_domain::wire_run::Wire;
use longhaul_sdk::spec::ModelSpec;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{
    Asked, Choice, End, Fault, FaultKind, Format, Item, ModelName, Moment, Part, Tokens,
    responses::{self, compact::Compacted},
};
use serde_json::{Value, json};

use super::{
    super::{
        body::parsed,
        delivery::Unstored,
        moments::Next,
        plan::{Request, model, of_model, plan_call},
        refused::{Answer, Refused},
        start::alone,
    },
    chain::{Before, before, said},
    kept::response_id,
};
use crate::{auth::Principal, catalog::Target, state::ApiState, traceparent::traceparent_of};

const INSTRUCTIONS: &str = "Summarise the conversation so far for the model that goes on with it: the goal, what was \
                            decided and why, facts and names that will be needed, results of tools, and what is left \
                            to do. Write the summary alone.";
const ASK: &str = "Write the summary now.";

/// Summarises a conversation by one call of the model, and answers with an item that stands for it.
#[utoipa::path(
    post,
    operation_id = "compactResponse",
    path = "/v1/responses/compact",
    tag = "wires",
    request_body = ref("#/components/schemas/WireBody"),
    responses((status = 200, description = "The compaction", body = Object)),
)]
pub(crate) async fn compact(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    principal.need(Scope::ExecutionsWrite)?;
    let create = parsed(&state, principal.tenant(), &headers, body, responses::request::read_compact).await?;
    let reading = state.reads.place(principal.tenant()).await?;
    let earlier = match before(&state, &principal, &create, &[]).await? {
        Before::Response(found) => said(&state, &found).await?,
        Before::Nothing => Vec::new(),
        Before::Session(_) => {
            let message = "is not for this endpoint: send `previous_response_id`, or the items themselves";
            return Err(Fault::unsupported("conversation", message).into());
        }
    };
    let spec = spec_of(&state, &principal, &create.asked).await?;
    let mut asked = create.asked;
    let own = asked.instructions.take().map(|own| format!("{INSTRUCTIONS}\n\nInstructions of the caller: {own}"));
    asked.instructions = Some(own.unwrap_or_else(|| INSTRUCTIONS.to_owned()));
    asked.items.push(Item::User(vec![Part::Text(ASK.to_owned())]));
    let asked = Asked { tools: Vec::new(), choice: Choice::Auto, format: Format::Text, stream: false, ..asked };
    let request = Request {
        asked,
        wire: Wire::Responses,
        echo: json!({}),
        is_stored: false,
        is_background: false,
        traceparent: traceparent_of(&headers),
        idempotency: None,
        follows: None,
        before: earlier,
        version: None,
    };
    let plan = plan_call(&state, &principal, request, spec).await?;
    drop(reading);
    let started = alone(&state, &principal, plan).await?;
    let _unstored = Unstored::new(state.store.clone(), started.execution);
    let mut moments = started.moments(&state, &principal, false).await?;
    let mut tokens = Tokens::default();
    loop {
        match moments.next().await? {
            Next::Moment(Moment::Reply(reply), _) => tokens = tokens.plus(reply.tokens),
            Next::Moment(Moment::Over(End::Finished { output }), _) => {
                let id = response_id(started.execution, 0)?.to_string();
                let created_at = started.created_at;
                let compacted = Compacted { id, created_at, kept: Vec::new(), summary: output, tokens };
                return Ok(Json(responses::compact::object(&compacted)));
            }
            Next::Moment(Moment::Over(end), _) => return Err(failed(&end)),
            Next::Moment(_, _) => {}
            Next::Gone => return Err(crate::error::ApiError::Unavailable.into()),
        }
    }
}

/// The model that writes the summary: the one named, or that of the agent.
async fn spec_of(state: &ApiState, principal: &Principal, asked: &Asked) -> Answer<ModelSpec> {
    let (target, version) = match &asked.model {
        ModelName::Agent { key, version } => (Target::Agent(key.clone()), *version),
        ModelName::Definition { key, version } => (Target::Definition(key.clone()), *version),
        ModelName::Other(name) => return model(state, name).await,
    };
    let resolved = state.catalog.resolve(principal.tenant(), &target, version).await;
    let runnable = resolved.map_err(|error| of_model(error, &asked.model_text))?;
    let agent = (runnable.pinned.agent_version_id, runnable.pinned.agent_key.as_str());
    state.catalog.permit(agent, principal, &state.options.contract.org_id).await?;
    Ok(runnable.agent.model.clone())
}

fn failed(end: &End) -> Refused {
    let message = match end {
        End::Failed { code, summary, .. } => format!("the summary could not be written: {code}: {summary}"),
        End::Finished { .. } | End::Cut | End::Cancelled => "the summary was cut off".to_owned(),
    };
    Fault { kind: FaultKind::Internal, message, param: None, code: Some("compaction_failed".into()) }.into()
}
