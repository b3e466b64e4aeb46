//! The counters that one test moves: those of the process belong to all tests at once.

use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// What is counted on this thread from now on; the runtime of the test must have no other.
pub(crate) struct Counted {
    handle: PrometheusHandle,
    _guard: LocalRecorderGuard<'static>,
}

impl Counted {
    pub(crate) fn start() -> Self {
        // As long as the process: the guard of a recorder borrows it.
        let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self { handle: recorder.handle(), _guard: metrics::set_default_local_recorder(recorder) }
    }

    /// A counter as the text has it, labels included; 0 before it was moved.
    pub(crate) fn of(&self, counter: &str) -> u64 {
        let text = self.handle.render();
        let value = text.lines().find_map(|line| line.strip_prefix(counter)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// Executions stored, FINISHED, and FAILED for good.
    pub(crate) fn executions(&self) -> [u64; 3] {
        [
            "longhaul_executions_submitted_total",
            "longhaul_executions_ended_total{failure_class=\"none\"}",
            "longhaul_executions_ended_total{failure_class=\"permanent\"}",
        ]
        .map(|counter| self.of(counter))
    }
}
