//! One trace from the submit to the last call, across processes.
//!
//! The submit stores its W3C `traceparent` with the execution, and each attempt makes it the parent of its span.
//! Wake-ups carry no trace context: they may be lost, and one claim serves many executions.
//!
//! A killed worker exports the spans of calls that ended, but never that of the attempt, which is their parent. So the
//! ids of an attempt's span are those that every process can tell: of its lease, and, without a `traceparent`, of the
//! root of its tree. The worker that takes the execution back exports the span in its place.

use std::{
    cell::Cell,
    collections::HashMap,
    time::{Duration, SystemTime},
};

pub use opentelemetry::KeyValue;
use opentelemetry::{
    Array, Context, StringValue, Value, global,
    propagation::TextMapPropagator,
    trace::{Span as _, SpanId, SpanKind, Status, TraceContextExt, TraceId, Tracer},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{IdGenerator, RandomIdGenerator},
};
use sha2::{Digest, Sha256};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use uuid::Uuid;

use longhaul_shared::clock::{Clock, SystemClock};

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
    let parent = context_of(traceparent);
    parent.span().span_context().is_valid() && span.set_parent(parent).is_ok()
}

fn context_of(traceparent: &str) -> Context {
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    // From nothing, not from the current span.
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
}

/// Id of the trace of an execution, in hexadecimal digits: that of the `traceparent` of its submit, or of its `root`.
pub fn trace_id(root: Uuid, traceparent: Option<&str>) -> String {
    let given = traceparent.map(|text| context_of(text).span().span_context().trace_id());
    given.filter(|id| *id != TraceId::INVALID).unwrap_or_else(|| TraceId::from_bytes(root.into_bytes())).to_string()
}

/// What the ids of an attempt's span are made of.
#[derive(Debug, Clone, Copy)]
pub struct AttemptIds<'a> {
    /// Topmost execution of the tree: names the trace if there is no `traceparent`.
    pub root: Uuid,
    /// Token of the lease. It is hashed, because traces leave the deployment.
    pub lease: Uuid,
    pub traceparent: Option<&'a str>,
}

impl AttemptIds<'_> {
    /// Starts the span, which must not have been entered yet, with these ids.
    pub fn start(self, span: &Span) {
        if let Some(traceparent) = self.traceparent {
            set_parent(span, traceparent);
        }
        // The context starts the span.
        self.chosen(|| drop(span.context()));
    }

    /// Exports the span of an attempt whose worker died, with all its `attributes`.
    pub fn export_lost(self, name: String, ran: Duration, attributes: Vec<KeyValue>) {
        let (now, tracer) = (SystemTime::from(SystemClock::default().now()), global::tracer(super::TRACER));
        let parent = self.traceparent.map_or_else(Context::new, context_of);
        let builder = tracer
            .span_builder(name)
            .with_kind(SpanKind::Consumer)
            .with_start_time(now.checked_sub(ran).unwrap_or(now))
            .with_attributes(attributes);
        let mut span = self.chosen(|| builder.start_with_context(&tracer, &parent));
        span.set_status(Status::error(""));
        span.end_with_timestamp(now);
    }

    /// Runs `start`, which starts one span, with these ids.
    fn chosen<T>(self, start: impl FnOnce() -> T) -> T {
        let digest: [u8; 32] = Sha256::digest(self.lease.as_bytes()).into();
        let span = digest.first_chunk().copied().map(SpanId::from_bytes);
        CHOSEN.set(Chosen { trace: Some(TraceId::from_bytes(self.root.into_bytes())), span });
        let started = start();
        // Nothing took them if this process exports no traces.
        CHOSEN.take();
        started
    }
}

/// Ids of the next span that this thread starts.
#[derive(Debug, Clone, Copy, Default)]
struct Chosen {
    trace: Option<TraceId>,
    span: Option<SpanId>,
}

thread_local! {
    static CHOSEN: Cell<Chosen> = const { Cell::new(Chosen { trace: None, span: None }) };
}

/// Random ids, except of a span whose ids are chosen.
#[derive(Debug, Default)]
pub(super) struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        CHOSEN.get().trace.unwrap_or_else(|| self.0.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        CHOSEN.get().span.unwrap_or_else(|| self.0.new_span_id())
    }
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
        let provider = SdkTracerProvider::builder().with_id_generator(Ids::default()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), test);
    }

    /// Returns the trace id of a traceparent.
    fn given(traceparent: &str) -> &str {
        traceparent.split('-').nth(1).unwrap()
    }

    #[test]
    fn trace_is_named_by_traceparent_or_root() {
        let root = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001);
        let of = |traceparent: Option<&str>| trace_id(root, traceparent);
        assert_eq!(of(None), "01920000000070008000000000000001");
        let trace = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(of(Some(&format!("00-{trace}-b7ad6b7169203331-01"))), trace);
        for invalid in ["00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0-1-01", ""] {
            assert_eq!(of(Some(invalid)), of(None), "{invalid}");
        }
    }

    #[test]
    fn a_stored_parent_continues_its_trace() {
        with_traces(|| {
            let submitted = tracing::info_span!("submit").in_scope(current_traceparent).unwrap();
            let attempt = tracing::info_span!("attempt");
            assert!(set_parent(&attempt, &submitted));
            let turn = attempt.in_scope(|| tracing::info_span!("turn").in_scope(current_traceparent)).unwrap();
            assert_eq!(given(&turn), given(&submitted));
            assert_ne!(turn, submitted);
            assert_ne!(given(&tracing::info_span!("other").in_scope(current_traceparent).unwrap()), given(&turn));
        });
    }

    #[test]
    fn attempts_of_a_tree_share_a_trace() {
        let root = Uuid::from_u128(7);
        let attempt = |lease, traceparent| {
            let span = tracing::info_span!("attempt");
            AttemptIds { root, lease: Uuid::from_u128(lease), traceparent }.start(&span);
            // The ids are those of this span alone.
            let inside = span.in_scope(|| tracing::info_span!("turn").in_scope(current_traceparent)).unwrap();
            (span.in_scope(current_traceparent).unwrap(), inside)
        };
        with_traces(|| {
            let (first, turn) = attempt(1, None);
            assert_eq!(given(&first), root.simple().to_string());
            assert_eq!(given(&turn), given(&first));
            assert_ne!(turn, first);
            assert_eq!(attempt(1, None).0, first, "in any process");
            assert_eq!(given(&attempt(2, None).0), given(&first));
            assert_ne!(attempt(2, None).0, first);
            let submit = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
            let (under, _) = attempt(1, Some(submit));
            assert_eq!(given(&under), given(submit));
            assert_eq!(under.split('-').nth(2), first.split('-').nth(2));
            let other = tracing::info_span!("other").in_scope(current_traceparent).unwrap();
            assert_ne!(given(&other), given(&first));
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
