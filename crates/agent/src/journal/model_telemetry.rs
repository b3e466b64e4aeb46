//! The span and metrics of a model call, by the `GenAI` conventions of OpenTelemetry.

use std::time::{Duration, Instant};

use longhaul_llm::{ModelError, ModelReply, ReplyEvent, health::Route};
use longhaul_sdk::FailureClass;
use longhaul_telemetry::{
    TRACED,
    metrics::{self, AskedModel, ModelOutcome, TokenKind},
    trace,
};
use tracing::Span;

use super::Writer;

impl Writer {
    /// The span of a call. `turn` is absent for a call that is no turn.
    pub(super) fn model_span(&self, route: &Route, turn: Option<u32>) -> Span {
        let AskedModel { provider, model } = asked_model(route);
        tracing::info_span!(
            target: TRACED,
            "turn",
            otel.name = format!("chat {model}"),
            otel.kind = "client",
            execution.id = %self.id,
            // Signed: unsigned numbers are exported as text.
            turn.number = turn.map(i64::from),
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = provider,
            gen_ai.request.model = model,
            gen_ai.request.stream = route.spec.stream,
            gen_ai.conversation.id = self.scope.session.map(tracing::field::display),
            gen_ai.response.model = tracing::field::Empty,
            gen_ai.response.time_to_first_chunk = tracing::field::Empty,
            gen_ai.usage.input_tokens = tracing::field::Empty,
            gen_ai.usage.output_tokens = tracing::field::Empty,
            gen_ai.usage.cache_read.input_tokens = tracing::field::Empty,
            gen_ai.usage.cache_write.input_tokens = tracing::field::Empty,
            error.type = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
        )
    }

    /// Notes a reply, its tokens and its cost.
    pub(super) fn observe_reply(&self, route: &Route, span: &Span, reply: &ModelReply, took: Duration) {
        let asked = asked_model(route);
        metrics::model_call(asked, ModelOutcome::Ok, None, took);
        if let Some(model) = &reply.model {
            span.record("gen_ai.response.model", model.as_str());
        }
        trace::finish_reason(span, reply.finish.as_str());
        let usage = reply.usage;
        for (count, field, kind) in [
            (usage.input_tokens, "gen_ai.usage.input_tokens", TokenKind::Input),
            (usage.output_tokens, "gen_ai.usage.output_tokens", TokenKind::Output),
            (usage.cached_tokens, "gen_ai.usage.cache_read.input_tokens", TokenKind::CachedInput),
            (usage.cache_write_tokens, "gen_ai.usage.cache_write.input_tokens", TokenKind::CacheWriteInput),
        ] {
            let Some(count) = count else { continue };
            trace::count(span, field, count);
            metrics::tokens(asked, kind, count);
        }
        if let Some(cost) = self.cost(route, usage) {
            metrics::model_cost(asked, cost);
        }
    }
}

/// Notes a call that failed, or whose reply broke.
pub(crate) fn observe_failure(route: &Route, span: &Span, error: &ModelError, took: Duration) {
    let code = error.code();
    trace::fail(span, code.as_str());
    metrics::model_call(asked_model(route), outcome(error), Some(&code), took);
}

/// Notes that the reply to the call of the current span has begun to stream.
pub(super) fn observe_event(route: &Route, started: Instant, event: &ReplyEvent) {
    match event {
        ReplyEvent::Begun => {
            let took = started.elapsed();
            metrics::first_chunk(asked_model(route), took);
            Span::current().record("gen_ai.response.time_to_first_chunk", took.as_secs_f64());
        }
        ReplyEvent::TextDelta(_) | ReplyEvent::CallStarted { .. } | ReplyEvent::CallCompleted { .. } => {}
    }
}

fn asked_model(route: &Route) -> AskedModel<'_> {
    AskedModel { provider: route.model.provider(), model: route.model.model_name(&route.spec) }
}

fn outcome(error: &ModelError) -> ModelOutcome {
    match error.class() {
        FailureClass::Transient => ModelOutcome::Transient,
        FailureClass::LlmError => ModelOutcome::LlmError,
        FailureClass::ContextLimit => ModelOutcome::ContextLimit,
        FailureClass::ToolError | FailureClass::Permanent | FailureClass::HumanRejected => ModelOutcome::Permanent,
    }
}
