//! One trace from the submit to the last call, across processes.
//!
//! The submit stores its W3C `traceparent` with the execution, and each attempt makes it the parent of its span.
//! Wake-ups carry no trace context: they may be lost, and one claim serves many executions.

use std::collections::HashMap;

use opentelemetry::{Array, StringValue, Value, propagation::TextMapPropagator, trace::TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: &str = "traceparent";

/// Returns the `traceparent` of the current span. `None` if this process exports no traces; a caller that received
/// a `traceparent` should then forward that one.
pub fn current_traceparent() -> Option<String> {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut carrier);
    carrier.remove(TRACEPARENT)
}

/// Makes a stored `traceparent` the parent of `span`, which must not have been entered yet. Returns false, without
/// effect, if the value is malformed or this process exports no traces.
pub fn set_parent(span: &Span, traceparent: &str) -> bool {
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    let parent = TraceContextPropagator::new().extract(&carrier);
    parent.span().span_context().is_valid() && span.set_parent(parent).is_ok()
}

/// Marks a span as failed. The span must declare the empty fields `error.type` and `otel.status_code`.
pub fn fail(span: &Span, error_type: &str) {
    span.record("error.type", error_type);
    span.record("otel.status_code", "ERROR");
}

/// Gives a span another name, also if it was entered before.
pub fn rename(span: &Span, name: String) {
    span.context().span().update_name(name);
}

/// Records a count. Unsigned numbers would be exported as text.
pub fn count(span: &Span, field: &'static str, count: u64) {
    span.record(field, i64::try_from(count).unwrap_or(i64::MAX));
}

/// Records why a model ended its reply, which the conventions want as a list.
pub fn finish_reason(span: &Span, reason: &str) {
    let reasons = Array::String(vec![StringValue::from(reason.to_owned())]);
    span.set_attribute("gen_ai.response.finish_reasons", Value::Array(reasons));
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn with_traces(test: impl FnOnce()) {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), test);
    }

    /// Returns the trace id of a traceparent.
    fn trace_id(traceparent: &str) -> &str {
        traceparent.split('-').nth(1).unwrap()
    }

    #[test]
    fn a_stored_parent_continues_its_trace() {
        with_traces(|| {
            let submitted = tracing::info_span!("submit").in_scope(current_traceparent).unwrap();
            let attempt = tracing::info_span!("attempt");
            assert!(set_parent(&attempt, &submitted));
            let turn = attempt.in_scope(|| tracing::info_span!("turn").in_scope(current_traceparent)).unwrap();
            assert_eq!(trace_id(&turn), trace_id(&submitted));
            assert_ne!(turn, submitted);
            assert_ne!(trace_id(&tracing::info_span!("other").in_scope(current_traceparent).unwrap()), trace_id(&turn));
        });
    }

    #[test]
    fn malformed_or_unused_traceparent_is_ignored() {
        with_traces(|| {
            for bad in ["", "00-0-0-00", "00-00000000000000000000000000000000-0000000000000000-01", "nonsense"] {
                assert!(!set_parent(&tracing::info_span!("attempt"), bad), "{bad:?}");
            }
        });
        assert_eq!(current_traceparent(), None);
        assert!(!set_parent(
            &tracing::info_span!("attempt"),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        ));
    }
}
