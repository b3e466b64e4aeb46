//! A model call that is no turn: a summary, or a judgement about the outputs of children.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use longhaul_llm::{Message, ModelError, ModelReply, ModelRequest, NO_FILES, ToolChoice, health::Call, prompt_bound};
use longhaul_sdk::{Step, StepError, spec::ModelSpec};
use longhaul_store::history::journal::{Hash, JournalStep, StepKind, StepUsage};
use longhaul_telemetry::trace;
use serde::{Deserialize, Serialize};
use tracing::Instrument;

use super::{
    Agent, Writer,
    budget::Took,
    model_telemetry::{observe_event, observe_failure},
    preview, read_body,
};
use crate::probe::Point;

/// The body of an aggregation step.
#[derive(Debug, Serialize, Deserialize)]
struct AggregationBody {
    /// Absent if the model failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
}

/// A request of such a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aside<'a> {
    /// Key of its step.
    pub(super) key: &'a Hash,
    /// Identifies the call to the health of its endpoint.
    pub(super) chain: &'a Hash,
    pub(super) messages: &'a [Arc<Message>],
}

/// How such a call ended.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) call: Arc<Call>,
    pub(super) came_to: Result<ModelReply, ModelError>,
    pub(super) took: Duration,
}

impl Writer {
    /// Makes the call, without the agent's script and tools, which are for its task. The caller settles it.
    ///
    /// # Errors
    /// An interrupt, also if the execution must wait; no room in the budget; or a failure of the store.
    pub(super) async fn ask_aside(
        &mut self,
        agent: &Agent,
        Aside { key, chain, messages }: Aside<'_>,
        phase: impl Fn() -> String,
    ) -> Step<Asked> {
        let sent = messages.iter().map(|message| message.estimated_tokens()).sum();
        loop {
            self.control.may_launch().await?;
            let call = self.admit_call(agent, chain, sent).await?;
            let route = &agent.routes[call.route];
            let model = ModelSpec { script: None, ..route.spec.clone() };
            let mut request = ModelRequest {
                tenant: self.scope.tenant,
                model: &model,
                messages,
                files: &NO_FILES,
                tools: &[],
                tool_choice: ToolChoice::Auto,
                idempotency_key: &self.idempotency_key(key),
                traceparent: None,
                max_output_tokens: None,
                context_tokens: Some(agent.config.limits.context_tokens),
                output_schema: None,
                cache: None,
            };
            if self.scope.has_budget {
                // Never a lowered limit: half an answer is worse than a wait for the budget.
                let limit = self.reserve(route, key, request, prompt_bound::of_request(&request, 0), u32::MAX).await?;
                request.max_output_tokens = Some(limit.tokens);
            }
            self.about_to(&phase).await;
            // The waits for a permit and the budget may have outlasted the lease.
            self.control.may_launch().await?;
            let (started, span) = (Instant::now(), self.model_span(route, None));
            let answer = async {
                let traceparent = trace::current_traceparent();
                let request = ModelRequest { traceparent: traceparent.as_deref(), ..request };
                route.model.complete(request, &mut |event| observe_event(route, started, &event)).await
            };
            let came_to = answer.instrument(span.clone()).await;
            call.ended(&came_to);
            match &came_to {
                Ok(reply) => self.observe_reply(route, &span, reply, started.elapsed()),
                Err(error) => observe_failure(route, &span, error, started.elapsed()),
            }
            match &came_to {
                Err(error) if self.is_asked_again(agent, Some(&call), error).await => {
                    self.settle(route, key, Took::Nothing);
                }
                Ok(_) | Err(_) => return Ok(Asked { call, came_to, took: started.elapsed() }),
            }
        }
    }

    /// The model's answer about the outputs of children; `None` if it failed. It is asked once: the answer, or the
    /// failure, is committed before it is returned.
    ///
    /// # Errors
    /// As [`ask_aside`](Self::ask_aside).
    pub(crate) async fn aggregation(
        &mut self,
        agent: &Agent,
        key: &Hash,
        messages: &[Arc<Message>],
    ) -> Step<Option<String>> {
        if let Some(step) = self.aggregations.get(key) {
            return Ok(read_body::<AggregationBody>(step)?.reply);
        }
        let aside = Aside { key, chain: key, messages };
        let Asked { call, came_to, took } =
            self.ask_aside(agent, aside, || "aggregating the outputs of sub-agents".to_owned()).await?;
        let route = &agent.routes[call.route];
        let (reply, usage, failure_code) = match came_to {
            Ok(reply) => {
                self.settle(route, key, Took::Counted(reply.usage));
                (Some(reply.message.text().into_owned()), self.step_usage(route, reply.usage), None)
            }
            Err(error) => {
                self.settle(route, key, Took::by_failure(&error));
                let failure = error.to_failure();
                let code = failure.code.to_string();
                // A provider that is down is waited for, as with a turn.
                match self.call_failed(agent, Some(&call), &error, failure).await {
                    StepError::Interrupt(interrupt) => return Err(interrupt.into()),
                    StepError::Failed(_) => (None, StepUsage::default(), Some(code)),
                }
            }
        };
        let step = self.step(StepKind::Aggregation, *key, &AggregationBody { reply: reply.clone() })?;
        self.pending.steps.push(JournalStep {
            name: Some(route.model.model_name(&route.spec).to_owned()),
            preview: reply.as_deref().map(preview),
            failure_code,
            usage,
            took,
            ..step
        });
        self.flush().await?;
        self.at(Point::Aggregated).await;
        Ok(reply)
    }
}
