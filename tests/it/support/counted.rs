//! Counters of one test, because those of the process belong to all tests at once.

use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Counts on this thread from now on; the runtime of the test must have no other thread.
pub(crate) struct Counted {
    handle: PrometheusHandle,
    _guard: LocalRecorderGuard<'static>,
}

impl Counted {
    pub(crate) fn start() -> Self {
        // Leaked, because the guard borrows the recorder.
        let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self { handle: recorder.handle(), _guard: metrics::set_default_local_recorder(recorder) }
    }

    /// Value of a counter, by its name with labels as rendered; 0 before its first change.
    pub(crate) fn of(&self, counter: &str) -> u64 {
        let text = self.handle.render();
        let value = text.lines().find_map(|line| line.strip_prefix(counter)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// Numbers of executions stored, FINISHED, and FAILED with class `permanent`.
    pub(crate) fn executions(&self) -> [u64; 3] {
        [
            "longhaul_executions_submitted_total",
            "longhaul_executions_ended_total{failure_class=\"none\"}",
            "longhaul_executions_ended_total{failure_class=\"permanent\"}",
        ]
        .map(|counter| self.of(counter))
    }
}
