//! `POST /v1/responses/compact`: the summary of a conversation, as an item that stands for it in later requests.

use axum::{body::Body, extract::State, http::HeaderMap, response::Response};
use longhaul_domain::wire_run::Wire;
use longhaul_sdk::spec::ModelSpec;
use longhaul_store::tenants::api_keys::Scope;
use longhaul_wire::{
    Asked, Broken, Choice, End, Fault, FaultKind, Format, Frame, Item, ModelName, Moment, Part, Render, Tokens,
    responses::{self, compact::Compacted},
};
use serde_json::{Value, json};

use super::{
    super::{
        body::parsed,
        delivery::Unstored,
        follow::Following,
        plan::{Request, model, of_model, plan_call},
        refused::Answer,
        start::alone,
    },
    chain::{Before, before, said},
    kept::response_id,
};
use crate::{auth::Principal, catalog::Target, state::ApiState};

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
) -> Answer<Response> {
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
    let request = Request::new(asked, Wire::Responses, json!({}), &headers)?;
    let request = Request { is_stored: false, idempotency: None, before: earlier, ..request };
    let plan = plan_call(&state, &principal, request, spec).await?;
    drop(reading);
    let started = alone(&state, &principal, plan).await?;
    let unstored = Some(Unstored::new(state.store.clone(), started.execution));
    let id = response_id(started.execution, started.leg)?.to_string();
    let compacted = Compacted { id, created_at: started.created_at, summary: String::new(), tokens: Tokens::default() };
    let summary = Summary { compacted, end: None };
    let following = started.follow(&state, &principal, summary).await?;
    Following { unstored, ..following }.whole().await
}

/// The summary that a model's call writes.
struct Summary {
    compacted: Compacted,
    end: Option<End>,
}

impl Render for Summary {
    fn begin(&mut self) -> Vec<Frame> {
        Vec::new()
    }

    fn push(&mut self, moment: &Moment, _: i64) -> Result<Vec<Frame>, Broken> {
        match moment {
            Moment::Reply(reply) => self.compacted.tokens = self.compacted.tokens.plus(reply.tokens),
            Moment::Over(end) => {
                if let End::Finished { output } = end {
                    self.compacted.summary.clone_from(output);
                }
                self.end = Some(end.clone());
            }
            Moment::Started | Moment::Text { .. } | Moment::Void { .. } | Moment::Result { .. } | Moment::Waits(_) => {}
        }
        Ok(Vec::new())
    }

    fn object(&self) -> Value {
        responses::compact::object(&self.compacted)
    }

    fn is_over(&self) -> bool {
        self.end.is_some()
    }

    fn failure_is_told(&self) -> bool {
        false
    }

    fn failure(&self) -> Option<Fault> {
        let message = match self.end.as_ref()? {
            End::Finished { .. } => return None,
            End::Failed { code, summary, .. } => format!("the summary could not be written: {code}: {summary}"),
            End::Cut | End::Cancelled => "the summary was cut off".to_owned(),
        };
        Some(Fault { kind: FaultKind::Internal, message, param: None, code: Some("compaction_failed".into()) })
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
